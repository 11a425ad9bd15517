"""The benchmark: workers that misbehave, results that differ, rounds, table and record."""

import json
import mmap
import types
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from rich.console import Console

import lehr
from lehr.cli import main
from lehr.cli.bench import cost, measure, page, process, report, worker, workload
from lehr.cli.bench.measure import Bench, Cell, Settings
from lehr.cli.bench.process import Client, Framework

FAKE = Path(__file__).with_name("fake_worker.py")
BOTH = ("eager", "compiled")


@pytest.fixture
def fakes(monkeypatch, tmp_path):
    """Makes a bench over fake frameworks; they log what they time."""
    ways = ("right", "lehr", "wrong", "odd", "error", "hang", "die")
    table = {way: Framework(way, "none", BOTH, ("FAKE_CACHE",)) for way in ways}
    monkeypatch.setattr(process, "WORKER", FAKE)
    monkeypatch.setattr(measure, "FRAMEWORKS", table)
    log = tmp_path / "log"
    monkeypatch.setenv("FAKE_LOG", str(log))
    made = []

    def make(*names, **settings):
        settings = Settings(2, **{"rounds": 3, "timeout": 20.0, **settings})
        made.append(Bench(list(names), settings, tmp_path, lambda text: None))
        return made[-1], log

    yield make
    for bench in made:
        bench.kill()


def test_rounds_are_interleaved_after_one_to_warm_up(fakes):
    bench, log = fakes("right", "lehr")
    cells = bench.workload("mlp")
    order = [tuple(line.split()[:2]) for line in log.read_text().splitlines()]
    one = [(f, m) for f in ("right", "lehr") for m in BOTH]
    assert order == one * 4
    calls = [int(line.split()[2]) for line in log.read_text().splitlines()]
    assert calls[:4] == [1] * 4 and set(calls[4:]) == {5}  # 50 ms of 10 ms calls
    for cell in cells.values():
        assert cell.wall == [0.01] * 3 and cell.cpu == [0.02] * 3 and cell.problem is None


def test_time_of_a_cell_is_bounded(fakes):
    bench, _ = fakes("lehr", rounds=50, seconds=0.2)
    cells = bench.workload("mlp")
    assert len(cells["lehr", "eager"].wall) == 5  # 5 calls of 10 ms a round


@pytest.mark.parametrize(("way", "text"), [("wrong", "differs by 1.00e-01"), ("odd", "shape")])
def test_wrong_result_is_not_timed(fakes, way, text):
    bench, log = fakes("right", way)
    cells = bench.workload("mlp")
    for mode in BOTH:
        assert cells[way, mode].wrong and text in cells[way, mode].problem
        assert not cells[way, mode].wall and cells["right", mode].wall
    assert way not in log.read_text()


@pytest.mark.parametrize(
    ("way", "text"),
    [
        ("error", "ValueError: cannot"),
        ("die", "ended with code 1: fake worker fell over"),
        ("hang", "no answer within 1 s"),
    ],
)
def test_broken_column_leaves_the_others(fakes, way, text):
    bench, _ = fakes(way, "right", timeout=1.0)
    cells = bench.workload("mlp")
    assert text in cells[way, "compiled"].problem and not cells[way, "compiled"].wrong
    assert cells["right", "compiled"].wall
    # Its other mode died with the worker, and was opened again in a new one.
    assert bool(cells[way, "eager"].wall) == (way != "error")


def test_missing_framework_says_so(tmp_path):
    client = Client(Framework("no_such_module", "none", BOTH, ()), 1, tmp_path, 60.0)
    with pytest.raises(process.Failure, match="No module named 'no_such_module'"):
        client.ask("hello")
    client.kill()


def test_starts_use_one_cache_for_cold_and_warm(fakes):
    bench, _ = fakes("right", starts=2)
    found = bench.starting("mlp")
    for kind in ("cold", "warm"):
        cell = found[kind]["right", "compiled"]
        assert len(cell.wall) == len(cell.cpu) == 2 and min(cell.cpu) > 0
        assert cell.detail["import_seconds"] == 0.5


def test_spread_is_half_the_quartile_distance():
    cell = Cell(wall=[1.0, 2.0, 3.0, 4.0, 5.0], cpu=[1.0])
    assert cell.median("wall") == 3.0
    assert cell.spread("wall") == pytest.approx(1 / 3) and cell.spread("cpu") is None


def test_comparison_allows_what_the_workload_allows():
    row = workload.WORKLOADS["mlp"]
    want = np.float32([[1.0, 0.0]])
    assert measure.difference(want + np.float32(5e-6), want, row) is None
    assert measure.difference(want + np.float32(1e-3), want, row)
    assert measure.difference(want * np.float32(np.nan), want, row)


def test_table_shows_times_ratios_and_problems():
    base, slow = Cell([1e-3] * 3, [2e-3] * 3), Cell([2e-3] * 3, [3e-3] * 3)
    results = {
        "mlp": {
            ("lehr", "compiled"): base,
            ("torch", "eager"): slow,
            ("torch", "compiled"): Cell(problem="differs", wrong=True),
            ("jax", "compiled"): Cell(problem="no such thing"),
        }
    }
    columns = list(results["mlp"])
    console = Console(width=160, record=True)
    console.print(report.table(results, columns, Settings(2)))
    text = console.export_text()
    for part in ("1 ms ±0%", "cpu 2 ms", "2.00x", "1.50x", "WRONG: differs", "no such thing"):
        assert part in text
    record = report.record(results, Settings(2), {"lehr": "1"}, {})
    again = json.loads(json.dumps(record))
    assert again["results"]["mlp"]["torch eager"]["wall_median"] == 2e-3
    assert again["results"]["mlp"]["torch compiled"]["wrong"] is True
    assert again["machine"]["processors"] >= 1


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (1.5, "1.5 s"),
        (1234.5, "1234 s"),
        (0.0123, "12.3 ms"),
        (0.9999e-3, "1 ms"),
        (2e-6, "2 us"),
        (5e-12, "0.005 ns"),
    ],
)
def test_duration(seconds, text):
    assert report.duration(seconds) == text


def test_arrays_are_the_same_everywhere():
    for name in ("mlp", "gpt_step", "tiny_call"):
        first, second = workload.arrays(name), workload.arrays(name)
        assert first.keys() == second.keys()
        assert all(np.array_equal(first[key], second[key]) for key in first)
    step, model = workload.arrays("gpt_step"), workload.arrays("gpt_model")
    assert np.array_equal(step["tokens"], model["tokens"])


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["nothing"], "no workload 'nothing'"),
        (["--vs", "numpy"], "not one of torch, jax, tinygrad"),
        (["--threads", "0"], "x>=1"),
        (["--library", "mkl"], "'mkl' is not 'onednn'"),
    ],
)
def test_bad_arguments(words, text):
    shown = CliRunner().invoke(main, ["bench", *words])
    assert shown.exit_code == 2 and text in shown.output


def test_library_that_is_not_there(monkeypatch):
    monkeypatch.setattr("lehr.compiler.run.onednn.find", lambda: "")
    shown = CliRunner().invoke(main, ["bench", "tiny_call", "--library", "onednn"])
    assert shown.exit_code == 2 and "pip install 'lehr[onednn]'" in shown.output


def test_library_is_a_column_of_the_first_framework(fakes):
    bench, log = fakes("lehr", "right", library="onednn")
    cells = bench.workload("mlp")
    assert list(cells) == [("lehr", "eager"), ("lehr", "compiled"), ("lehr", "onednn"),
                           ("right", "eager"), ("right", "compiled")]
    assert all(cell.wall for cell in cells.values())
    assert "lehr onednn" in log.read_text()


@pytest.mark.skipif(not find_spec("torch"), reason="no torch here")
@pytest.mark.parametrize("name", ["tiny_call", "gpt_model"])
def test_real_worker(name, tmp_path):
    """torch in lehr's place: what it computes from the shared arrays is what it should."""
    client = Client(process.FRAMEWORKS["torch"], 1, tmp_path, 120.0)
    path, row = tmp_path / "out.npy", workload.WORKLOADS[name]
    order = {"mode": "eager", "tuning": "default", "steps": row.steps}
    client.ask("open", name=name, save=str(path), **order)
    timed = client.ask("time", name=name, mode="eager", calls=2)
    assert timed["wall"] > 0 and timed["cpu"] > 0
    assert client.ask("peak")["peak_bytes"] > 1e7 and client.end() > 0
    found = np.load(path)
    if name == "tiny_call":
        assert np.array_equal(found[0], workload.arrays(name)["x"] * 2 + 1)
    else:
        assert found.shape == (3,) and found[0] > found[1] > found[2] > 3.0


def test_costs_are_those_of_the_arrays():
    """Products of matrices by their shapes, counted from the weights themselves."""
    weights = [a for k, a in workload.arrays("mlp").items() if k.endswith("weight")]
    assert cost.COSTS["mlp"]().flops == sum(2 * 128 * a.size for a in weights)
    weights = [a for a in workload.arrays("vit_block").values() if a.ndim == 2]
    scores = 2 * 2 * 8 * 197 * 197 * 768
    assert cost.COSTS["vit_block"]().flops == sum(2 * 8 * 197 * a.size for a in weights) + scores
    # The yardsticks are float32: they say nothing about half precision.
    assert set(cost.COSTS) == set(workload.WORKLOADS) - set(workload.HALF)
    assert cost.COSTS["copy"]().moved == 2 * workload.arrays("copy")["x"].nbytes


def test_share_of_the_ceiling():
    """A product that takes twice what the best one took is at half of the ceiling."""
    lehr, torch = ("lehr", "compiled"), ("torch", "eager")
    counts = {"kernels": 2, "moved": 3 * cost.COSTS["softmax"]().moved, "arena": 5e6}
    results = {
        "gemm": {lehr: Cell([0.2], [0.2]), torch: Cell([0.1], [0.1])},
        "copy": {torch: Cell([0.01], [0.01])},
        "softmax": {lehr: Cell([0.01], [0.01], detail={"counts": counts})},
    }
    found = report.analysis(results)
    assert found["gemm"]["share"] == pytest.approx(0.5)
    least = cost.COSTS["softmax"]().moved / (cost.COSTS["copy"]().moved / 0.01)
    assert found["softmax"]["share"] == pytest.approx(least / 0.01)
    assert found["softmax"]["excess"] == pytest.approx(3)
    console = Console(width=160, record=True)
    console.print(report.details(results))
    text = console.export_text()
    assert "50%" in text and "3.00" in text and "GFLOP/s" in text


def test_page_draws_every_measured_workload():
    results = {
        "softmax": {("lehr", "compiled"): Cell([1e-3], [1e-3]),
                    ("jax", "compiled"): Cell(problem="<b>")},
        "memory gpt_step": {("lehr", "compiled"): Cell(size=[2e6])},
    }
    text = page.page(report.record(results, Settings(2), {"lehr": "1"}, {}))
    assert text.count("data:image/png;base64,") == 2 and "no ceiling measured" in text


def test_memory_is_the_peak_above_the_built_model(fakes):
    bench, _ = fakes("right")
    cells = bench.weighing("gpt_step")
    assert [c.size for c in cells.values()] == [[70.0]] * 2


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="no such figures here")
def test_worker_weighs_its_calls():
    tool = worker.Worker.__new__(worker.Worker)

    def run():
        with mmap.mmap(-1, 24 << 20) as memory:     # what was freed before is not taken again
            for _ in range(24):
                memory.write(bytes(1 << 20))
    tool.programs = {"one eager": (run, None)}
    before = worker.memory("VmRSS")
    assert 20e6 < tool.weigh("one", "eager", 2)["peak_bytes"] - before < 60e6


def test_steps_that_move_too_much_are_shown_with_the_reason():
    """However little time they take."""
    given = [[f"sum{n}", ["a.py:1"], 1.0, 100, 100, []] for n in range(6)]
    given.append(["mul9", ["a.py:2"], 0.001, 300, 100, ["reads w 3 times: why"]])
    shown = report.steps({"mlp": {"lehr compiled": {"steps": given}}})
    assert len(shown) == 6 and not any("least" in row[3] for row in shown[:5])
    assert shown[-1][3].endswith("3.00x the least: reads w 3 times: why") and shown[-1][4] == "mul9"


def test_clocks_are_set_in_the_program_that_was_timed():
    """The profile compiles with the mode and the options of the column, and clocks besides."""
    asked = []

    def compile_(function, **settings):
        asked.append(settings)
        return lehr.compile(function, **settings)

    def build(name, mode, arrays, tuning):
        function = module.compile(lambda x: x.exp().sum(), mode=tuning, options={"fusion": False})
        return (lambda: function(lehr.ones(8))), None

    tool = worker.Worker.__new__(worker.Worker)
    module = types.SimpleNamespace(compile=compile_, compiler=lehr.compiler)
    tool.module, tool.cases = module, types.SimpleNamespace(build=build)
    steps = tool.profile("tiny_call", "compiled", "max-autotune", 2)["steps"]
    assert asked == [{"mode": "max-autotune", "options": {"fusion": False, "profile": True}}]
    assert steps and module.compile is compile_


def test_a_run_that_is_stopped_keeps_what_it_measured(fakes, monkeypatch, tmp_path):
    bench, _ = fakes("lehr")
    whole = bench.workload

    def workload_(name):
        if name == "softmax":
            raise KeyboardInterrupt
        return whole(name)
    bench.workload = workload_
    monkeypatch.setattr(measure, "Bench", lambda *_: bench)
    monkeypatch.setattr(measure, "YARDSTICKS", ())
    record, shown = tmp_path / "out.json", CliRunner()
    made = shown.invoke(main, ["bench", "mlp", "softmax", "--vs", "none", "--json", str(record)])
    assert made.exit_code == 130, made.output
    assert list(json.loads(record.read_text())["results"]) == ["mlp"]
    assert "stopped" in made.output and "mlp" in made.output
