"""The profiler: calls, times, regions, schedules, traces."""

from __future__ import annotations

import json
import threading

import pytest
from lehr.profiler import ProfilerActivity, profile, record_function, schedule

import lehr


def work():
    x = lehr.ones(30, 30, requires_grad=True)
    with record_function("forward"):
        y = (x @ x).relu().sum()
    y.backward()


def test_operations_and_regions_are_counted():
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as p:
        work()
        work()
    work()
    found = {a.key: a for a in p.key_averages()}
    assert found["aten::matmul"].count >= 2 and found["aten::relu"].count == 2
    assert found["forward"].count == 2 and "aten::ones" in found
    region = found["forward"]
    inside = [found[k] for k in ("aten::matmul", "aten::relu", "aten::sum")]
    assert region.cpu_time_total > max(a.cpu_time_total for a in inside[1:])
    assert region.self_cpu_time_total < region.cpu_time_total
    assert 0 <= region.cpu_time == pytest.approx(region.cpu_time_total / 2)
    shaped = p.key_averages(group_by_input_shape=True)
    assert any(a.key == "aten::relu" and a.input_shapes == [[30, 30]] for a in shaped)
    table = p.key_averages().table(sort_by="self_cpu_time_total", row_limit=3)
    assert "Self CPU time total" in table and "# of Calls" in table
    with pytest.raises(ValueError, match="no_such"):
        p.key_averages().table(sort_by="no_such")
    total = sum(a.self_cpu_time_total for a in p.key_averages())
    assert p.total_average().self_cpu_time_total == pytest.approx(total)


def test_schedules_and_traces(tmp_path):
    seen = []

    def ready(p):
        seen.append((p.step_num, len(p.events())))
        p.export_chrome_trace(str(tmp_path / f"{p.step_num}.json"))
    plan = schedule(skip_first=1, wait=1, warmup=1, active=2, repeat=2)
    assert [plan(i).value for i in range(10)] == [0, 0, 1, 2, 3, 0, 1, 2, 3, 0]
    with profile(schedule=plan, on_trace_ready=ready) as p:
        for _ in range(12):
            lehr.ones(3).add(1)
            p.step()
    assert [n for n, _ in seen] == [5, 9]
    rows = json.loads((tmp_path / "5.json").read_text())["traceEvents"]
    assert [r["name"] for r in rows].count("aten::add") == 2
    assert all(r["ph"] == "X" and r["dur"] > 0 for r in rows)


def test_results_do_not_change_and_other_threads_are_left_alone():
    want = lehr.nn.functional.softmax(lehr.arange(4.0), 0)
    with profile() as p:
        assert lehr.equal(lehr.nn.functional.softmax(lehr.arange(4.0), 0), want)
        x = lehr.ones(3)
        x[1] = 5
        x.mul_(2)
        with lehr.autocast("cpu"):
            assert (lehr.ones(2, 2) @ lehr.ones(2, 2)).dtype is lehr.bfloat16
        count = len(p.events())
        other = threading.Thread(target=lambda: lehr.ones(3).exp())
        other.start()
        other.join()
        assert len(p.events()) == count
        with pytest.raises(RuntimeError, match="already enabled"):
            profile().start()
        with pytest.raises(RuntimeError):
            lehr.ones(2) @ lehr.ones(3)
    assert x.tolist() == [2, 10, 2]
    keys = {e.key for e in p.events()}
    assert "aten::softmax" in keys and "aten::exp" not in keys
    assert lehr.tensor([1.0]).exp().item() > 2 and len(p.events()) < 100


def test_compiled_functions_run_while_profiled():
    f = lehr.compile(lambda x: (x * 2).sin().sum())
    x = lehr.ones(4)
    with profile() as p:
        with record_function("compiled"):
            a = f(x)
        b = f(x)
    assert lehr.equal(a, b) and lehr.allclose(a, (x * 2).sin().sum())
    assert "compiled" in {e.key for e in p.events()}


def test_the_older_profiler_and_the_decorator():
    @record_function("inner")
    def inner():
        return lehr.ones(2).add(1)
    with lehr.autograd.profiler.profile(use_cuda=False) as p:
        inner()
    assert [e.name for e in p.events()] == ["inner", "aten::ones", "aten::add"]
    assert "inner" in p.key_averages().table(row_limit=10)
    with lehr.autograd.profiler.profile(enabled=False) as p:
        inner()
    assert not p.events()
