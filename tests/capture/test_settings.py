"""Settings of the process that a compiled function changes or reads: at every call, as eagerly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import lehr as torch

# What is done, what shows it, what puts it back.
SETTINGS: dict[str, tuple[Callable[[], Any], Callable[[], Any], Callable[[], Any]]] = {
    "default dtype": (lambda: torch.set_default_dtype(torch.float64),
                      lambda: (torch.get_default_dtype(), torch.tensor(1.0).dtype),
                      lambda: torch.set_default_dtype(torch.float32)),
    "default tensor type": (lambda: torch.set_default_tensor_type("torch.DoubleTensor"),
                            lambda: torch.ones(2).dtype,
                            lambda: torch.set_default_dtype(torch.float32)),
    "default device": (lambda: torch.set_default_device("meta"),
                       lambda: str(torch.get_default_device()),
                       lambda: torch.set_default_device(None)),
    "printing": (lambda: torch.set_printoptions(precision=1),
                 lambda: torch.get_printoptions()["precision"],
                 lambda: torch.set_printoptions(profile="default")),
    "determinism": (lambda: torch.use_deterministic_algorithms(True),
                    lambda: (torch.are_deterministic_algorithms_enabled(),
                             torch.get_deterministic_debug_mode()),
                    lambda: torch.use_deterministic_algorithms(False)),
    "threads": (lambda: torch.set_num_threads(1), torch.get_num_threads,
                lambda: torch.set_num_threads(2)),
    "precision": (lambda: torch.set_float32_matmul_precision("medium"),
                  torch.get_float32_matmul_precision,
                  lambda: torch.set_float32_matmul_precision("highest")),
    "tf32": (lambda: setattr(torch.backends.cuda.matmul, "allow_tf32", True),
             lambda: torch.backends.cuda.matmul.allow_tf32,
             lambda: setattr(torch.backends.cuda.matmul, "allow_tf32", False)),
    "warnings": (lambda: torch.set_warn_always(True), torch.is_warn_always_enabled,
                 lambda: torch.set_warn_always(False)),
    "anomalies": (lambda: torch.autograd.set_detect_anomaly(True), torch.is_anomaly_enabled,
                  lambda: torch.autograd.set_detect_anomaly(False)),
    "recompile limit": (lambda: setattr(torch._dynamo.config, "recompile_limit", 5),
                        lambda: torch._dynamo.config.recompile_limit,
                        lambda: setattr(torch._dynamo.config, "recompile_limit", 8)),
}


@pytest.fixture(params=SETTINGS)
def setting(request: Any) -> Any:
    change, look, undo = SETTINGS[request.param]
    before = torch.get_num_threads()
    undo()
    yield change, look, undo
    undo()
    torch.set_num_threads(before)


def test_a_setting_that_is_changed_inside(setting: Any) -> None:
    change, look, undo = setting

    def f(x: Any) -> Any:
        y = x + 1
        change()
        return y * 2, look()
    want = f(torch.ones(1))[1]
    compiled = torch.compile(f, backend="eager")
    for _ in range(3):
        undo()
        assert look() != want
        out, inside = compiled(torch.ones(1))
        assert (out.item(), inside, look()) == (4.0, want, want)


def test_a_setting_that_is_read_inside(setting: Any) -> None:
    change, look, undo = setting

    def f(x: Any) -> Any:
        return x * 2, look()
    compiled = torch.compile(f, backend="eager")
    x = torch.ones(1)
    for act in (undo, change, undo, change):
        act()
        out, inside = compiled(x)
        assert (out.tolist(), inside) == ([2.0], look())


def test_a_device_as_a_context_around_a_break(capsys: Any) -> None:
    def f(x: Any) -> Any:
        with torch.device("meta"):
            made = torch.ones(2)
            print("inside")
            again = torch.zeros(1)
        return x + 1, str(made.device), str(again.device), str(torch.ones(1).device)
    compiled = torch.compile(f, backend="eager")
    for _ in range(3):
        out, *devices = compiled(torch.ones(1))
        assert out.item() == 2 and devices == ["meta", "meta", "cpu"]
        assert str(torch.get_default_device()) == "cpu"
    assert capsys.readouterr().out == "inside\n" * 3


def test_a_device_around_the_call() -> None:
    compiled = torch.compile(lambda x: (x + 1, torch.ones(1)), backend="eager")
    for name in ("cpu", "meta", "cpu"):
        with torch.device(name):
            assert str(compiled(torch.ones(1, device="cpu"))[1].device) == name
