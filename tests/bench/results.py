"""The results of a benchmark in a small JSON file, for plots.py: median, smallest and largest sample of each point."""

import datetime
import json
import math
import os
import pathlib
import statistics


def point(values, **where):
    return where | {"median": statistics.median(values), "min": min(values), "max": max(values)}


def store(path, machine, runs, points):
    """`points`: (samples, {their labels}). Leaves out points with a run that did not end."""
    found = [point(values, **where) for values, where in points if values and math.inf not in values]
    head = {"machine": machine, "date": datetime.date.today().isoformat(), "runs": runs,
            "note": f"load {os.getloadavg()[0]:.1f} at the end"}
    lines = ",\n".join(json.dumps(one) for one in found)
    pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
    pathlib.Path(path).write_text(json.dumps(head)[:-1] + f', "points": [\n{lines}\n]}}\n')
