"""The command line: `lehr COMMAND ...`.

`COMMANDS` is the one list of subcommands. A module is imported when its command is called, never to
print the help, so that `lehr --help` answers at once.
"""

from __future__ import annotations

import difflib
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version

import click

# name -> (module whose `command` runs it, one line of help)
COMMANDS = {
    "run": ("lehr.cli.run", "Run an unmodified PyTorch program with lehr as torch."),
    "launch": ("lehr.cli.launch", "Run a program in several processes (torch.distributed)."),
    "demo": ("lehr.cli.demo", "Train a small GPT on this machine, eager and compiled, and report."),
    "bench": ("lehr.cli.bench", "Time eager and compiled lehr beside other frameworks."),
    "info": ("lehr.cli.info", "Show what lehr finds on this machine, and what it lacks."),
    "cache": ("lehr.cli.cache", "Look after the cache of compiled kernels."),
}


class Table(click.Group):
    """A click group whose commands are rows of a table."""

    def __init__(self, rows: dict[str, tuple[str, str]], **settings) -> None:
        super().__init__(**settings)
        self.rows = rows

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.rows)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        return import_module(self.rows[name][0]).command if name in self.rows else None

    def resolve_command(self, ctx, args):
        if args and args[0] not in self.rows and not args[0].startswith("-"):
            near = difflib.get_close_matches(args[0], self.rows, 1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            ctx.fail(f"No such command {args[0]!r}.{hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in self.rows.items()])


def release() -> str:
    """The installed version, or "source tree" where lehr runs without being installed."""
    try:
        return version("lehr")
    except PackageNotFoundError:
        return "source tree"


main = Table(
    COMMANDS,
    name="lehr",
    help="Deep learning written eagerly, run compiled.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
main = click.version_option(release(), prog_name="lehr")(main)
