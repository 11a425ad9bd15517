"""The demo from start to end in a process of its own, small, on lehr and on torch in its place."""

import json
import os
import pty
import subprocess
import sys
import termios
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path

import pytest

import lehr

PROGRAM = Path(__file__).with_name("program.py")
STEPS, EAGER = 30, 20

EMPTY = Path(lehr.__file__).stat().st_size == 0
MODULES = [
    pytest.param("lehr", marks=pytest.mark.skipif(EMPTY, reason="lehr is still empty")),
    pytest.param("torch", marks=pytest.mark.skipif(not find_spec("torch"), reason="no torch here")),
]
pytestmark = pytest.mark.parametrize("module", MODULES, scope="module")


def demo(module, code=0, **plan):
    words = [sys.executable, "-P", str(PROGRAM), module, json.dumps({"seed": 5, **plan})]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert done.returncode == code, done.stderr[-3000:]
    return done


@pytest.fixture(scope="module")
def whole(module, tmp_path_factory):
    """An uninterrupted run: its folder, its output, its record."""
    out = tmp_path_factory.mktemp(module)
    done = demo(module, steps=STEPS, out=str(out), record=str(out / "run.json"))
    return out, done, json.loads((out / "run.json").read_text())


def test_record(whole):
    _, _, record = whole
    assert record["steps"] == len(record["losses"]) == STEPS
    assert len(record["first"]["eager"]) == EAGER
    assert record["first"]["largest_difference"] < 1e-3
    assert 4.5 < record["losses"][0] < 7.5  # near log 256, before anything is learnt
    assert record["held_out_loss"] < record["losses"][0] - 0.5
    assert len(record["seconds"]["compiled_steps"]) == STEPS - 1
    assert len(record["seconds"]["first_compiled_step"]) == 1
    assert record["bytes_a_second"] > 0 and record["peak_memory_bytes"] > 1e7
    assert isinstance(record["compiler"], dict) and record["versions"]["python"]


def test_eager_and_compiled_begin_alike(whole):
    first = whole[2]["first"]
    assert first["eager"][0] == pytest.approx(first["compiled"][0], rel=1e-6)
    assert first["eager"][-1] == pytest.approx(first["compiled"][-1], rel=1e-3)


def test_output_in_a_pipe(whole):
    _, done, record = whole
    assert "held-out loss" in done.stdout and "compiled step" in done.stdout
    assert f"{record['held_out_loss']:.3f}" in done.stdout
    assert "step/s" not in done.stderr and "\r" not in done.stderr  # no progress bar
    assert "\x1b[" not in done.stdout


def test_progress_on_a_terminal(module, tmp_path):
    master, slave = pty.openpty()
    termios.tcsetwinsize(slave, (40, 100))
    plan = {"seed": 0, "steps": 2, "out": str(tmp_path)}
    words = [sys.executable, "-P", str(PROGRAM), module, json.dumps(plan)]
    subprocess.run(words, stdout=subprocess.DEVNULL, stderr=slave, check=True, timeout=300)
    os.close(slave)
    shown = os.read(master, 1 << 16).decode("utf-8", "replace")
    os.close(master)
    assert "eager" in shown and "2/2" in shown and "loss=" in shown


class Page(HTMLParser):
    """Sources and depth of a page."""

    def __init__(self, text):
        super().__init__()
        self.sources, self.tags = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.sources += [value for key, value in attrs if key in ("src", "href")]


def test_page_stands_alone(whole):
    out, _, record = whole
    text = (out / "demo.html").read_text("utf-8")
    page = Page(text)
    assert page.tags.count("img") == 3 and "script" not in page.tags and "link" not in page.tags
    assert all(source.startswith("data:image/png;base64,") for source in page.sources)
    assert f"{record['held_out_loss']:.3f}" in text and "$" not in text.split("<pre>")[0]


@pytest.mark.parametrize("calls", [7, EAGER + 8], ids=["eager", "compiled"])
def test_interrupted_run_resumes_exactly(module, whole, tmp_path, calls):
    stopped = demo(module, 130, steps=STEPS, out=str(tmp_path), interrupt_after=calls)
    assert "--resume" in stopped.stdout and not (tmp_path / "demo.html").exists()
    assert [p.name for p in tmp_path.iterdir()] == ["demo.ckpt"]
    demo(
        module,
        steps=STEPS,
        out=str(tmp_path),
        resume=str(tmp_path / "demo.ckpt"),
        record=str(tmp_path / "run.json"),
    )
    record = json.loads((tmp_path / "run.json").read_text())
    for name in ("losses", "held_out_loss", "sample"):
        assert record[name] == whole[2][name], name
    assert record["first"]["eager"] == whole[2]["first"]["eager"]


def test_finished_run_goes_on(module, whole, tmp_path):
    out, _, record = whole
    new = tmp_path / "run.json"
    demo(
        module,
        steps=STEPS + 3,
        out=str(tmp_path),
        resume=str(out / "demo.ckpt"),
        record=str(new),
    )
    assert json.loads(new.read_text())["losses"][:STEPS] == record["losses"]


def test_foreign_text_is_refused(module, whole, tmp_path):
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import program; program.stand(sys.argv[2])\n"
        "from lehr.cli.demo import text, train\nfrom pathlib import Path\n"
        "import dataclasses\n"
        "other = dataclasses.replace(text.corpus(), digest='other')\n"
        "train.resume(Path(sys.argv[3]), other)"
    )
    words = [sys.executable, "-c", code, str(PROGRAM.parent), module, str(whole[0] / "demo.ckpt")]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 1 and "another standard library" in done.stderr
