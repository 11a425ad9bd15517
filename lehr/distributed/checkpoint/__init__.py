"""`torch.distributed.checkpoint`: states saved to and loaded from a folder, also while training
goes on. The folder holds one file in the format of `torch.save`, which the first process writes:
every process has the same state.
"""

from __future__ import annotations

import os
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from lehr.distributed import collective, world
from lehr.io import load as read
from lehr.io import save as write
from lehr.tensor.mode import no_grad
from lehr.tensor.tensor import Tensor

NAME = "state.pt"


class CheckpointException(RuntimeError):
    """A folder does not hold what is asked for."""


def _plain(state: dict[str, Any]) -> dict[str, Any]:
    """The state with objects that have a `state_dict` replaced by it."""
    return {k: v.state_dict() if callable(getattr(v, "state_dict", None)) else v
            for k, v in state.items()}


def _frozen(x: Any) -> Any:
    """A copy that later writes do not reach."""
    if isinstance(x, Tensor):
        return x.detach().clone()
    if isinstance(x, dict):
        return type(x)((k, _frozen(v)) for k, v in x.items())
    if isinstance(x, (list, tuple)) and not hasattr(x, "_fields"):
        return type(x)(_frozen(v) for v in x)
    return x


def _path(checkpoint_id: Any) -> Path:
    if checkpoint_id is None:
        raise ValueError("checkpoint_id, the folder, is needed")
    return Path(os.fspath(checkpoint_id)) / NAME


def _first(process_group: Any) -> bool:
    return not world.is_initialized() or world.get_rank(process_group) == 0


def _meet(process_group: Any) -> None:
    if world.is_initialized():
        collective.barrier(process_group)


def save(state_dict: dict[str, Any], *, checkpoint_id: Any = None, storage_writer: Any = None,
         planner: Any = None, process_group: Any = None, **options: Any) -> None:
    """Writes a state to the folder `checkpoint_id`; every process calls it.

    The file is complete or the old one stays. OSError where it cannot be written.
    """
    path = _path(checkpoint_id if storage_writer is None else storage_writer.path)
    if _first(process_group):
        path.parent.mkdir(parents=True, exist_ok=True)
        write(_plain(state_dict), path)
    _meet(process_group)


def async_save(state_dict: dict[str, Any], *, checkpoint_id: Any = None,
               storage_writer: Any = None, planner: Any = None, process_group: Any = None,
               **options: Any) -> Future[None]:
    """Copies the state and writes it in a thread; `result()` waits, and raises what went wrong.

    The file holds the values of the moment of the call.
    """
    path = _path(checkpoint_id if storage_writer is None else storage_writer.path)
    future: Future[None] = Future()
    if not _first(process_group):
        future.set_result(None)
        return future
    copy = _frozen(_plain(state_dict))

    def run() -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write(copy, path)
        except BaseException as error:  # noqa: BLE001  (result() raises it)
            future.set_exception(error)
        else:
            future.set_result(None)
    threading.Thread(target=run, name="lehr-checkpoint").start()
    return future


def load(state_dict: dict[str, Any], *, checkpoint_id: Any = None, storage_reader: Any = None,
         planner: Any = None, process_group: Any = None, **options: Any) -> None:
    """Fills a state from a folder: tensors are written in place, other values are replaced.

    Only what `state_dict` names is loaded. CheckpointException where the folder lacks it or a shape
    differs; what `torch.load` raises for a damaged file.
    """
    path = _path(checkpoint_id if storage_reader is None else storage_reader.path)
    if not path.exists():
        raise CheckpointException(f"{path} does not exist: the folder holds no checkpoint")
    found = read(path, "cpu", weights_only=True)
    for key, value in state_dict.items():
        if key not in found:
            raise CheckpointException(f"{path} has no {key!r}")
        if callable(getattr(value, "load_state_dict", None)):
            value.load_state_dict(found[key])
        else:
            state_dict[key] = _filled(value, found[key], str(key), path)


def _filled(target: Any, value: Any, name: str, path: Path) -> Any:
    if isinstance(target, Tensor):
        if not isinstance(value, Tensor) or tuple(value.shape) != tuple(target.shape):
            have = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
            raise CheckpointException(f"{name!r} is {have} in {path}, {tuple(target.shape)} here")
        with no_grad():
            target.detach().copy_(value)
        return target
    if isinstance(target, dict) and isinstance(value, dict):
        for key, inner in target.items():
            if key not in value:
                raise CheckpointException(f"{path} has no {name}.{key}")
            target[key] = _filled(inner, value[key], f"{name}.{key}", path)
        return target
    return value


class FileSystemWriter:
    """A folder to write to."""

    def __init__(self, path: Any, *args: Any, **options: Any) -> None:
        self.path = path


class FileSystemReader:
    """A folder to read from."""

    def __init__(self, path: Any, *args: Any, **options: Any) -> None:
        self.path = path


save_state_dict, load_state_dict = save, load
