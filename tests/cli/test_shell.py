"""The table of commands: each row works, and the help imports none of them."""

import subprocess
import sys

import pytest
from click.testing import CliRunner

from lehr.cli import COMMANDS, main


def test_help_lists_every_command():
    shown = CliRunner().invoke(main, ["--help"])
    assert shown.exit_code == 0
    for name, (_, line) in COMMANDS.items():
        assert name in shown.output and line[:30] in shown.output


@pytest.mark.parametrize("name", COMMANDS)
def test_command_has_help(name):
    shown = CliRunner().invoke(main, [name, "--help"])
    assert shown.exit_code == 0 and "Usage" in shown.output


def test_help_imports_no_command():
    code = (
        "import sys\nfrom lehr.cli import COMMANDS, main\nmain(['--help'], standalone_mode=False)\n"
        "loaded = [m for m, _ in COMMANDS.values() if m in sys.modules] + "
        "[m for m in ('rich', 'numpy', 'PIL') if m in sys.modules]\nassert not loaded, loaded"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_near_name_is_suggested():
    shown = CliRunner().invoke(main, ["bnech"])
    assert shown.exit_code == 2 and "Did you mean 'bench'?" in shown.output
    assert "Did you mean" not in CliRunner().invoke(main, ["zzz"]).output
