"""Turns what a Run left behind into a flat table: observation key → value that can be compared with ==.

What must differ between any two launches (random ids, ports, pids, folders) is replaced by a word in angle brackets
where it has the right form, and stays as it is where it has not.
"""

import json
import re

TAG = re.compile(rb"P\|([^|\n]*)\|([^|\n]*)\|")
# Set by the harness, by shells or by the interpreter that torchrun itself runs in.
NOT_COMPARED = re.compile(r"PROBE_.*|_|SHLVL|PWD|OLDPWD")
UUID = re.compile(r"(?<![0-9a-f])[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}(?![0-9a-f])")
RUN_SUFFIX = re.compile(r"_[a-z0-9_]{8}(?=/|$)")
# What PyTorch says where the machine's name service is slow: no word of the launcher.
NAME_SERVICE = re.compile(rb"\[c10d\] The hostname of the client socket cannot be retrieved")
QUOTED = b"  | "  # How muster's verdict shows the last lines of a worker.
GREPPED = ("Root Cause (first observed failure)", "exitcode  : ", "failed (exitcode: ")


def without_chance(run, text):
    text = text.replace(str(run.folder), "<base>")
    if hasattr(run, "_port"):
        text = re.sub(rf"\b{run.port}\b", "<given port>", text)
    text = UUID.sub("<uuid>", text)
    text = re.sub(r"(?<![0-9a-f])\d{25,39}(?![0-9a-f])", "<128 bits>", text)
    return re.sub(r"\b1\d{9}\b", "<unix time>", text)


def path_without_chance(run, path):
    return RUN_SUFFIX.sub("_<8>", without_chance(run, path))


def environment_value(run, name, value):
    if name == "MASTER_PORT" and value != str(getattr(run, "_port", None)):
        return "<port>" if value.isdigit() and 1024 <= int(value) <= 65535 else value
    return path_without_chance(run, value)


def lines_of(data, newline):
    """Split at newlines alone; a carriage return is part of its line."""
    *whole, rest = data.split(newline)
    return [line + newline for line in whole] + ([rest] if rest else [])


def reports_of(run):
    reports = {}
    for path in sorted(run.reports_folder.glob("report.*.json")):
        _, attempt, rank, _ = path.name.split(".")
        reports[int(attempt), int(rank) if rank.isdigit() else rank] = json.loads(path.read_text())
    return reports


def observe_worker(run, where, report):
    table = {}
    for name, value in report.pop("env").items():
        if not NOT_COMPARED.fullmatch(name):
            table[f"{where}.env.{name}"] = environment_value(run, name, value)
    del report["pid"]
    for name, value in report.items():
        if isinstance(value, list):
            value = [without_chance(run, item) if isinstance(item, str) else item for item in value]
        table[f"{where}.{name}"] = without_chance(run, value) if isinstance(value, str) else value
    return table


def observe_stream(run, name):
    """Lines of workers (sorted over all, in order for each), and whether the launcher itself said anything."""
    lines = lines_of((run.folder / name).read_bytes(), b"\n")
    table, own, by_worker = {}, [], {}
    for line in lines:
        tag = TAG.search(line)
        if tag and not line.startswith(QUOTED):
            by_worker.setdefault(tag.groups(), []).append(line)
        elif not NAME_SERVICE.search(line):
            own.append(line)
    for (rank, attempt), mine in by_worker.items():
        key = f"{name}[{attempt.decode()}.{rank.decode()}]"
        table[key] = [without_chance(run, line.decode("latin-1")) for line in mine]
    table[f"{name}.launcher_speaks"] = bool(own)
    return table, b"".join(own).decode(errors="replace")


def content_of(run, path):
    """Lines; of several workers in one file they come in no fixed order. Of JSON what it means."""
    text = without_chance(run, path.read_bytes().decode("latin-1"))
    if path.suffix == ".json":
        try:
            return json.loads(text)
        except ValueError:
            pass
    lines = lines_of(text, "\n")
    return sorted(lines) if path.name.startswith("filtered_") else lines


def observe_tree(run, root, label):
    table = {}
    for path in sorted(root.rglob("*")) if root.is_dir() else []:
        key = f"{label}:{path_without_chance(run, str(path.relative_to(root)))}"
        if path.is_dir():
            table[key] = "<folder>"
            if path.parent == root:
                table[f"{key} mode"] = oct(path.stat().st_mode & 0o777)
        elif path.is_file():
            table[key] = content_of(run, path)
        else:
            table[key] = "<special>"
    return table


def observe_attempts(reports):
    """Which workers there were, and how the master port went from attempt to attempt."""
    ports = {}
    for (attempt, _), report in reports.items():
        ports.setdefault(attempt, set()).add(report["env"].get("MASTER_PORT"))
    single = [next(iter(ports[attempt])) for attempt in sorted(ports) if len(ports[attempt]) == 1]
    return {
        "workers": sorted(reports),
        "master_port.same_for_all_ranks": len(single) == len(ports),
        "master_port.fresh_per_attempt": len(set(single)) == len(single) if len(single) > 1 else None,
    }


def observe_summary(text):
    root = text[text.find(GREPPED[0]) :] if GREPPED[0] in text else ""
    rank = re.search(r"rank\s+: (\d+)", root)
    code = re.search(r"exitcode\s+: (-?\d+)", root)
    return {
        "summary.strings": [string for string in GREPPED if string in text],
        "summary.root_rank": rank and int(rank.group(1)),
        "summary.root_exitcode": code and int(code.group(1)),
    }


def observe(run):
    """Returns (table, stdout of the launcher itself, stderr of the launcher itself)."""
    table = {"exit": run.exit, "left": run.left}
    reports = reports_of(run)
    table |= observe_attempts(reports)
    for (attempt, rank), report in reports.items():
        table |= observe_worker(run, f"worker[{attempt}.{rank}]", report)
    own = {}
    for name in ("stdout", "stderr"):
        stream, own[name] = observe_stream(run, name)
        table |= stream
    table |= observe_summary(own["stderr"])
    table |= observe_tree(run, run.logs, "logs")
    table |= observe_tree(run, run.temporary, "tmp")
    return table, own["stdout"], own["stderr"]
