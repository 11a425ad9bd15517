"""`lehr run`: unmodified programs, their children, their ends, and what is missing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lehr.compat import absent, alias, check
from lehr.compat.version import Version

ROOT = Path(__file__).resolve().parents[2]


def run(tmp_path, text, *args, env=None):
    program = tmp_path / "prog.py"
    program.write_text(text)
    return subprocess.run([sys.executable, "-m", "lehr.cli", "run", str(program), *args],
                          capture_output=True, text=True, timeout=120, cwd=tmp_path,
                          env={**os.environ, "PYTHONPATH": str(ROOT), **(env or {})})


PROGRAM = """
import sys
import torch, torch.nn as nn, torch.nn.functional as F
import torch.backends.cudnn as cudnn
from torch.utils.data import DataLoader, TensorDataset
from torch import Tensor, optim
import lehr
assert torch.nn is nn is lehr.nn and F is torch.nn.functional and Tensor is lehr.Tensor
assert torch.__version__ >= "2.0" and torch.__version__ >= (1, 13) and torch.version.cuda is None
assert int(torch.__version__.split(".")[0]) >= 2 and not torch.cuda.is_available()
cudnn.benchmark = True
assert torch.backends.cudnn.benchmark and torch.backends.cuda.matmul.allow_tf32 is False
assert __name__ == "__main__" and sys.argv[1:] == ["--lr", "0.1", "-v"], sys.argv
assert sys.path[0] == sys.argv[0].rpartition("/")[0]
loader = DataLoader(TensorDataset(torch.arange(6.0)), batch_size=3, num_workers=1)
print([b[0].tolist() for b in loader])
sys.exit(5)
"""


def test_program_arguments_and_exit_code(tmp_path):
    made = run(tmp_path, PROGRAM, "--lr", "0.1", "-v")
    assert made.returncode == 5, made.stderr
    assert made.stdout == "[[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]\n"


CHILDREN = """
import multiprocessing, os, subprocess, sys
import torch

def work(rank, what):
    print(rank, what, torch.__name__, flush=True)

if __name__ == "__main__":
    import torch.multiprocessing as mp
    mp.spawn(work, ("spawned",), nprocs=1)
    child = multiprocessing.get_context("fork").Process(target=work, args=(0, "forked"))
    child.start(); child.join()
    code = "import torch.nn, sitecustomize; print('called', torch.__name__, sitecustomize.mark)"
    subprocess.run([sys.executable, "-c", code], check=True)
    try:
        mp.spawn(fail, nprocs=1)
    except NameError:
        pass
"""


def test_children_and_another_start_up_hook(tmp_path):
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text("mark = 'mine'\n")
    made = run(tmp_path, CHILDREN, env={"PYTHONPATH": f"{tmp_path / 'site'}:{ROOT}"})
    assert made.returncode == 0, made.stderr
    assert made.stdout.splitlines() == ["0 spawned lehr", "0 forked lehr", "called lehr mine"]


def test_modules_and_packages(tmp_path):
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "__init__.py").write_text("")
    (tmp_path / "pack" / "other.py").write_text("x = 3\n")
    (tmp_path / "pack" / "prog.py").write_text(
        "from . import other\nimport torch, sys\nprint(other.x, sys.argv[1:], torch.ones(1))\n")
    made = subprocess.run([sys.executable, "-m", "lehr.cli", "run", "-m", "pack.prog", "a"],
                          capture_output=True, text=True, timeout=120, cwd=tmp_path,
                          env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"})
    assert made.stdout == "3 ['a'] tensor([1.])\n", made.stderr


@pytest.mark.parametrize("line, name, line_number", [
    ("torch.fft.no_such(3)", "torch.fft.no_such", 4),
    ("torch.ones(3).to_mkldnn()", "torch.Tensor.to_mkldnn", 4),
    ("from torch.nn import NoSuchLayer", "torch.nn.NoSuchLayer", 4),
    ("import torch.no.such.module", "torch.no", 4),
])
def test_the_first_missing_name_is_reported(tmp_path, line, name, line_number):
    made = run(tmp_path, f"import torch\n\n\n{line}\n")
    assert made.returncode == 1
    assert f"lehr run: {name} is missing, used at {tmp_path}/prog.py:{line_number}" in made.stderr
    assert "it is " in made.stderr and "lehr run --check" in made.stderr
    trace = made.stderr.split("\nlehr run:")[0]
    assert f'File "{ROOT}/lehr' not in trace and line in trace


def test_tracebacks_are_the_programs(tmp_path):
    text = "import torch\ndef f(x):\n    return x @ torch.ones(5)\nf(torch.ones(3, 4))\n"
    made = run(tmp_path, text)
    assert made.returncode == 1 and "return x @ torch.ones(5)" in made.stderr
    assert str(ROOT / "lehr") not in made.stderr and "frames inside lehr" in made.stderr
    assert "lehr run:" not in made.stderr
    full = run(tmp_path, text, env={"LEHR_TRACEBACK": "full"})
    assert str(ROOT / "lehr") in full.stderr


def test_no_such_program(tmp_path):
    made = subprocess.run([sys.executable, "-m", "lehr.cli", "run", "none.py"], cwd=tmp_path,
                          capture_output=True, text=True, env={"PYTHONPATH": str(ROOT)})
    assert made.returncode == 1 and "'none.py'" in made.stderr


LACKING = """
import torch
import torch.nn as nn
from torch.nn import functional as F, Linear
from torch.fx import symbolic_trace
try:
    from torch.no import thing
except ImportError:
    thing = None
from side import helper
ops = torch.fft
x = F.gelu(torch.ones(3), approximate="tanh", nonsense=1)
ops.no_such(x)
y = x.to_sparse_csr().crow_indices()
if hasattr(torch, "zzz"):
    torch.zzz()
nn.Linear(3, 4, bias=False, colour="red")
print(torch.version.cuda, nn.Module.training, torch.float32.itemsize, torch.optim.Adam)
"""


def test_check_lists_everything_and_runs_nothing(tmp_path):
    (tmp_path / "prog.py").write_text(LACKING)
    (tmp_path / "side.py").write_text("import torch\ndef helper():\n    torch.side_name()\n")
    found = check.check([tmp_path / "prog.py"])
    rows = [(Path(f.path).name, f.line, f.name, f.guarded, f.sure) for f in found]
    assert rows == [
        ("prog.py", 5, "torch.fx", False, True),
        ("prog.py", 7, "torch.no", True, True),
        ("prog.py", 12, "torch.nn.functional.gelu(nonsense=...)", False, True),
        ("prog.py", 13, "torch.fft.no_such", False, True),
        ("prog.py", 14, "torch.Tensor.crow_indices", False, False),
        ("prog.py", 14, "torch.Tensor.to_sparse_csr", False, False),
        ("prog.py", 16, "torch.zzz", True, True),
        ("prog.py", 17, "torch.nn.Linear(colour=...)", False, True),
        ("side.py", 3, "torch.side_name", False, True)]
    made = subprocess.run([sys.executable, "-m", "lehr.cli", "run", "--check", "prog.py"],
                          cwd=tmp_path, capture_output=True, text=True,
                          env={"PYTHONPATH": str(ROOT)})
    assert made.returncode == 1 and "5 names are missing" in made.stdout
    assert "prog.py:13: torch.fft.no_such: " in made.stdout
    (tmp_path / "fine.py").write_text("import torch\nprint(torch.ones(3).sum())\n")
    assert not check.check([tmp_path / "fine.py"])


def test_names():
    assert alias.own("torch.nn") == "lehr.nn" and alias.own("torchvision") == "lehr.vision"
    assert alias.own("torchaudio") is None and alias.spelled("lehr.nn.x") == "torch.nn.x"
    assert alias.spelled("lehr.vision.models") == "torchvision.models"
    assert absent.part("torch.jit.nothing").what == "TorchScript"
    v = Version("2.9.0+lehr0.1.0")
    assert v >= "2.0" and v < "2.10" and v > (2, 8) and not v < (2, 9) and v.startswith("2.9")
    assert v == "2.9.0+lehr0.1.0" and v != "2.9" and hash(v) == hash(str(v))
