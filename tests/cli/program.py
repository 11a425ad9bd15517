"""Runs the demo in a process of its own: `python program.py MODULE PLAN`, PLAN as JSON.

MODULE answers to the name `lehr`: lehr itself, or torch, which shows that the demo is an ordinary
PyTorch program and gives the losses that lehr has to give. torch runs uncompiled here.
"""

import importlib.util
import json
import os
import signal
import sys
from pathlib import Path

CLI = Path(__file__).resolve().parents[2] / "lehr" / "cli"


def stand(name):
    spec = importlib.util.spec_from_file_location("worker", CLI / "bench" / "worker.py")
    worker = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(worker)
    module = worker.stand(name)
    if name != "lehr":
        module.compile = lambda function, **_: function
        module.compiler.stats = lambda: {"graphs": 0}
        sys.modules["lehr.cli"].release = lambda: "stand-in"
        sys.modules["lehr.cli.demo"].CHECKPOINT = "demo.ckpt"
    return module


def main(name, plan):
    stand(name)
    from lehr.cli.demo import flow
    from lehr.cli.demo.train import Config, Trainer

    stop, advance, calls = plan.get("interrupt_after"), Trainer.advance, []

    def interrupted(self, step):
        """A step during which Ctrl-C comes, where it is the one that was asked for."""
        calls.append(step)
        if len(calls) == stop:
            os.kill(os.getpid(), signal.SIGINT)
        return advance(self, step)

    Trainer.advance = interrupted
    paths = {key: Path(plan[key]) for key in ("out", "resume", "record") if plan.get(key)}
    config = Config(plan["seed"], layers=1, width=32, heads=2, context=32, batch=4)
    return flow.run(flow.Plan(plan["steps"], plan["seed"], config=config, **paths))


if __name__ == "__main__":
    sys.exit(0 if main(sys.argv[1], json.loads(sys.argv[2])) else 130)
