"""`lehr run`: an unmodified PyTorch program with lehr as `torch`."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path

import click

HOOK = Path(__file__).resolve().parents[1] / "compat" / "hook"


def environment() -> dict[str, str]:
    """The environment in which `import torch` gives lehr, in children too."""
    paths = [str(HOOK), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "LEHR_RUN": "1", "PYTHONPATH": os.pathsep.join(paths)}


def report(scripts: list[str]) -> int:
    """Prints what the programs lack, one line each; the exit code: 1 where something is missing."""
    from lehr.compat.check import check
    try:
        found = check(scripts)
    except (OSError, SyntaxError) as error:
        raise click.ClickException(str(error)) from None
    for each in found:
        print(each)
    serious = {f.name for f in found if f.sure and not f.guarded}
    print(f"{len(serious)} names are missing" if serious else "nothing is missing")
    return int(bool(serious))


@click.command(context_settings={"ignore_unknown_options": True,
                                 "allow_interspersed_args": False})
@click.option("-m", "module", is_flag=True, help="The program is a module's name, as of python -m.")
@click.option("--check", is_flag=True,
              help="Do not run: list what the programs use that lehr lacks, with the lines.")
@click.argument("program")
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def command(module: bool, check: bool, program: str, args: tuple[str, ...]) -> None:
    """Run PROGRAM ARGS... as python would, with lehr standing in for torch and torchvision.

    Child processes get lehr too. The exit code is the program's.
    """
    if check:
        if module:
            spec = find_spec(program)
            if spec is None or spec.origin is None:
                raise click.ClickException(f"no module named {program!r}")
            program = spec.origin
        sys.exit(report([program, *args]))
    if not module and not os.path.exists(program):
        raise click.ClickException(f"there is no file {program!r}")
    sys.stdout.flush()
    start = ["-m", program] if module else [program]
    os.execve(sys.executable, [sys.executable, *start, *args], environment())
