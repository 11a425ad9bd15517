"""Python's start-up hook under `lehr run`: `import torch` gives lehr, in child processes as well.

Python imports the first `sitecustomize` on its path. This one makes way for the next one, which is
run as it would have been without lehr.
"""

import os
import sys


def _next():
    """Runs the `sitecustomize` that this one hides."""
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec
    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is None or spec.loader is None:
        return
    module = module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


def _start():
    here = os.path.dirname(os.path.abspath(__file__))
    root = os.path.dirname(os.path.dirname(os.path.dirname(here)))
    sys.path[:] = [p for p in sys.path if os.path.abspath(p) != here]
    if os.environ.get("LEHR_RUN"):
        from importlib.machinery import PathFinder
        if PathFinder.find_spec("lehr", sys.path) is None:
            sys.path.append(root)
        from lehr.compat import alias, report
        alias.install()
        report.install()
    _next()


_start()
