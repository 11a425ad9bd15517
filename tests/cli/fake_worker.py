"""A worker whose framework is one of the ways to behave: right, wrong, odd, error, hang or die."""

import json
import os
import sys
import time

import numpy as np

ANSWERS = {"right": [1.0, 2.0], "wrong": [1.0, 2.1], "odd": [1.0, 2.0, 3.0]}


def answer(way, command):
    do, mode = command["do"], command.get("mode")
    if do == "hello":
        return {"version": "1", "import_seconds": 0.5}
    if do == "open":
        if way == "die" and mode == "compiled":
            sys.exit("fake worker fell over")
        if way == "hang" and mode == "compiled":
            time.sleep(60)
        if way == "error":
            return {"error": "ValueError: cannot"}
        np.save(command["save"], np.float32([ANSWERS.get(way, ANSWERS["right"])]))
        OPEN.add(mode)
        return {"data": {"wall": 0.0, "cpu": 0.0}, "first_seconds": 0.1, "resident_bytes": 30}
    if do == "weigh":
        return {"peak_bytes": 100}
    if do == "time":
        if mode not in OPEN:
            return {"error": f"KeyError: {mode} is not open"}
        with open(os.environ["FAKE_LOG"], "a") as log:
            print(way, mode, command["calls"], file=log)
        return {"wall": 0.01, "cpu": 0.02}
    return {}


OPEN = set()
for line in sys.stdin:
    print(json.dumps(answer(sys.argv[1], json.loads(line))), flush=True)
