"""`lehr launch`: one program in several processes that find each other (`torch.distributed`)."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time

import click

from lehr.cli import run


def free_port() -> int:
    """A port of this machine that nothing listens at."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def watch(processes: list[subprocess.Popen[bytes]]) -> int:
    """Waits for all; the first failure ends the others. The first failure's exit code, or 0."""
    while True:
        codes = [p.poll() for p in processes]
        failed = [(i, c) for i, c in enumerate(codes) if c]
        if failed:
            rank, code = failed[0]
            print(f"lehr launch: rank {rank} ended with exit code {code}; the others are ended",
                  file=sys.stderr)
            end(processes)
            return code if code > 0 else 128 - code
        if all(c == 0 for c in codes):
            return 0
        time.sleep(0.05)


def end(processes: list[subprocess.Popen[bytes]]) -> None:
    """Asks every process to end, and kills those that have not after five seconds."""
    for p in processes:
        if p.poll() is None:
            p.send_signal(signal.SIGTERM)
    limit = time.monotonic() + 5
    for p in processes:
        try:
            p.wait(max(0.0, limit - time.monotonic()))
        except subprocess.TimeoutExpired:
            p.kill()
            p.wait()


@click.command(context_settings={"ignore_unknown_options": True,
                                 "allow_interspersed_args": False})
@click.option("--nproc-per-node", "--nproc_per_node", default=1, show_default=True,
              help="Processes on this machine.")
@click.option("--nnodes", default=1, show_default=True, help="Machines.")
@click.option("--node-rank", "--node_rank", default=0, show_default=True,
              help="This machine's number.")
@click.option("--master-addr", "--master_addr", default="127.0.0.1", show_default=True,
              help="Address of machine 0.")
@click.option("--master-port", "--master_port", type=int, default=None,
              help="Port there (default: a free one; needed with several machines).")
@click.option("--standalone", is_flag=True, help="One machine: the default.")
@click.option("-m", "module", is_flag=True, help="The program is a module's name.")
@click.argument("program")
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def command(nproc_per_node: int, nnodes: int, node_rank: int, master_addr: str,
            master_port: int | None, standalone: bool, module: bool, program: str,
            args: tuple[str, ...]) -> None:
    """Run PROGRAM ARGS... in several processes, with lehr as torch.

    Each process has RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT in its environment.
    """
    if nnodes > 1 and master_port is None:
        raise click.UsageError("--master-port is needed with several machines")
    size = nproc_per_node * nnodes
    common = {**run.environment(), "WORLD_SIZE": str(size), "MASTER_ADDR": master_addr,
              "LOCAL_WORLD_SIZE": str(nproc_per_node),
              "MASTER_PORT": str(master_port or free_port())}
    if nproc_per_node > 1:
        common.setdefault("OMP_NUM_THREADS", "1")
    start = [sys.executable, *(["-m"] if module else []), program, *args]
    processes = []
    for local in range(nproc_per_node):
        rank = node_rank * nproc_per_node + local
        processes.append(subprocess.Popen(start, env={**common, "RANK": str(rank),
                                                      "LOCAL_RANK": str(local)}))
    try:
        sys.exit(watch(processes))
    except KeyboardInterrupt:
        end(processes)
        sys.exit(os.EX_TEMPFAIL)
