"""`python -m lehr` is `lehr`."""

from lehr.cli import main

main(prog_name="lehr")
