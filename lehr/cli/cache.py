"""`lehr cache`: look at the cache of compiled code, empty it, carry it to another machine."""

from __future__ import annotations

import tarfile
from pathlib import Path

import click

from lehr.compiler.run import cache


def megabytes(count: int) -> str:
    return f"{count / 1e6:,.1f} MB"


@click.group("cache")
def command() -> None:
    """Look after the cache of compiled kernels.

    LEHR_CACHE_DIR moves it, LEHR_CACHE_SIZE bounds it.
    """


@command.command()
def info() -> None:
    """Show where the cache is, and what is in it."""
    found = cache.info()
    click.echo(f"folder   {found['folder']}")
    click.echo(f"entries  {found['entries']:,}")
    click.echo(f"size     {megabytes(found['bytes'])} of {megabytes(found['limit'])}")
    for kind, (entries, size) in sorted(found["kinds"].items()):
        click.echo(f"  {kind}: {entries:,} entries, {megabytes(size)}")


@command.command()
@click.argument("kind", default="")
def clear(kind: str) -> None:
    """Remove all entries, or those of one KIND (see info)."""
    click.echo(f"{cache.clear(kind):,} entries removed")


@command.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--kind", "kinds", multiple=True, help="Only entries of this kind; repeatable.")
def pack(file: Path, kinds: tuple[str, ...]) -> None:
    """Write the entries to one FILE, to be unpacked on a machine of the same kind."""
    click.echo(f"{cache.pack(str(file), kinds):,} entries written to {file}")


@command.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def unpack(file: Path) -> None:
    """Add the entries of a FILE that pack wrote."""
    try:
        count = cache.unpack(str(file))
    except tarfile.TarError as error:
        raise click.ClickException(f"{file} is not a packed cache: {error}") from error
    click.echo(f"{count:,} entries added")
