"""Runs torchrun and muster side by side and compares what their workers and their users see.

Every scenario is launched once under each. Environment, arguments, descriptors, signal dispositions, attempts, streams,
log tree, exit code and what is left running must be the same, but for the table in differences.py. The test prints how
many scenarios there were for each section, and the table with the number of times that each entry was used.
"""

import argparse
import collections
import concurrent.futures
import pathlib
import re
import sys
import tempfile
import time
import traceback

import agent_scenarios
import command_line_scenarios
import differences
import environment_scenarios
import launchers
import log_scenarios
import observing
import running
import warm_torchrun

SECTIONS = {
    "1.1": "flags and PET_ variables",
    "1.2": "choice of the mode",
    "1.3": "--nproc-per-node",
    "1.4": "endpoints",
    "1.5": "--rdzv-conf",
    "1.6": "--numa-binding",
    "1.7": "torch.distributed.launch",
    "1.8": "plug-ins",
    "1.9": "parsing",
    "1.10": "the command of a worker",
    "2.1": "environment of a worker",
    "2.2": "ranks",
    "2.3": "MASTER_ADDR and MASTER_PORT",
    "2.4": "--virtual-local-rank",
    "4.1": "the agent's loop",
    "4.2": "exit codes",
    "4.3": "starting",
    "4.4": "signals",
    "4.5": "stopping",
    "4.6": "orphans",
    "4.7": "failure summary",
    "4.8": "error files",
    "5.1": "log layout",
    "5.2": "--redirects and --tee",
    "5.3": "tee",
    "5.4": "duplicate filters",
    "5.5": "the launcher's own messages",
}
LEAST_PER_SECTION = 3
SCENARIOS = (
    command_line_scenarios.SCENARIOS
    + environment_scenarios.SCENARIOS
    + agent_scenarios.SCENARIOS
    + log_scenarios.SCENARIOS
)


def shorten(text, most=400):
    return text if len(text) <= most else f"{text[:most//2]} … {text[-most//2:]}"


class Result:
    def __init__(self, scenario):
        self.scenario, self.problems, self.used, self.notes = scenario, [], [], []


def keys_to_compare(torchrun_table, muster_table):
    """A worker that only one launcher started is reported as that and no more."""
    workers = set(torchrun_table["workers"]) ^ set(muster_table["workers"])
    lonely = tuple(f"worker[{attempt}.{rank}]." for attempt, rank in workers)
    return sorted(key for key in torchrun_table.keys() | muster_table.keys() if not key.startswith(lonely))


def compare(scenario, torchrun_table, muster_table, result):
    for key in keys_to_compare(torchrun_table, muster_table):
        values = [table.get(key, differences.MISSING) for table in (torchrun_table, muster_table)]
        if values[0] == values[1] or any(re.fullmatch(pattern, key) for pattern in scenario.ignore):
            continue
        entry = differences.judge(differences.Finding(scenario, key, *values, torchrun_table, muster_table))
        if entry:
            result.used.append(entry.name)
        else:
            shown = [shorten(repr(value)) for value in values]
            result.problems.append(f"{key}:\n      torchrun {shown[0]}\n      muster   {shown[1]}")


def check_promises(scenario, run, table, own_stdout, own_stderr, result):
    """What muster must show whether or not torchrun shows the same."""
    for key, wanted in scenario.muster.items():
        if table.get(key, differences.MISSING) != wanted:
            result.problems.append(f"{key}: muster must show {wanted!r}, shows {table.get(key)!r}")
    if own_stdout:
        result.problems.append(f"muster itself writes to stdout: {own_stdout!r}")
    if scenario.rejected:
        if run.exit != scenario.rejected:
            result.problems.append(f"muster must refuse with {scenario.rejected}, ends with {run.exit}")
        if own_stderr.count("\n") != 1:
            result.problems.append(f"muster must say one line, says {own_stderr!r}")
        if table["workers"] or run.seconds > 10:
            result.problems.append(f"muster must refuse at once, took {run.seconds:.1f} s, ran {table['workers']}")


def run_scenario(scenario, pair, folder, number):
    result = Result(scenario)
    tables, stderrs = [], []
    for side, launcher in enumerate(pair):
        run = running.run_to_end(launcher, scenario, folder / f"{number}" / f"{side}")
        table, own_stdout, own_stderr = observing.observe(run)
        tables.append(table)
        stderrs.append(own_stderr)
        result.notes.append(f"{launcher.name} {run.seconds:.1f} s, exit {run.exit}")
        if launcher.name == "muster":
            check_promises(scenario, run, table, own_stdout, own_stderr, result)
        run.remove()
    compare(scenario, *tables, result)
    if result.problems:
        for launcher, text in zip(pair, stderrs):
            result.problems.append(f"stderr of {launcher.name} itself: {text[-500:]!r}")
    return result


def run_safely(scenario, pair, folder, number):
    try:
        return run_scenario(scenario, pair, folder, number)
    except Exception:  # A defect of the harness must count as a failure of its scenario.
        result = Result(scenario)
        result.problems.append(traceback.format_exc())
        return result


def run_all(scenarios, pair, jobs, verbose):
    results = []
    with tempfile.TemporaryDirectory(prefix="differential_") as folder:
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            tasks = [
                pool.submit(run_safely, scenario, pair, pathlib.Path(folder), number)
                for number, scenario in enumerate(scenarios)
            ]
            for task in concurrent.futures.as_completed(tasks):
                result = task.result()
                results.append(result)
                report(result, verbose)
    return results


def report(result, verbose):
    scenario = result.scenario
    if result.problems or verbose:
        word = "FAIL" if result.problems else "ok"
        print(f"{word}: {scenario.section} {scenario.name} ({'; '.join(result.notes)})", flush=True)
    for problem in result.problems:
        print(f"    {problem}", flush=True)


def print_table(results):
    """Returns the names of entries that nothing used."""
    used = collections.Counter(name for result in results for name in result.used)
    print("\nIntended differences (times used):")
    entries = differences.TABLE + differences.WHOLE
    for entry in entries:
        print(f"  {used[entry.name]:4} {entry.name}: {entry.reason}")
    return [entry.name for entry in entries if not used[entry.name] and not entry.may_not_show]


def print_sections(scenarios):
    """Returns the sections with too few scenarios."""
    counts = collections.Counter(scenario.section for scenario in scenarios)
    print("\nScenarios by section:")
    for section, title in SECTIONS.items():
        print(f"  {counts[section]:3} {section} {title}")
    return [section for section in SECTIONS if counts[section] < LEAST_PER_SECTION]


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="regular expression for 'SECTION NAME'")
    parser.add_argument("--jobs", type=int, default=3, help="scenarios at a time")
    parser.add_argument("--verbose", action="store_true", help="print scenarios that pass, too")
    parser.add_argument("--list", action="store_true", help="print the scenarios and end")
    parser.add_argument(
        "--self-check", action="store_true", help="torchrun beside a warm one: shows what chance changes; no muster"
    )
    parser.add_argument("--cold", action="store_true", help="start the interpreter for each torchrun")
    parser.add_argument("--warm", action="store_true", help="leave out the scenarios that need an interpreter of their own")
    return parser.parse_args()


def main():
    options = parse_options()
    scenarios = [
        scenario for scenario in SCENARIOS if re.search(options.only, f"{scenario.section} {scenario.name}")
    ]
    if options.warm:
        scenarios = [scenario for scenario in scenarios if warm_torchrun.suits(scenario)]
    if options.list:
        print("\n".join(f"{scenario.section} {scenario.name}" for scenario in scenarios))
        return 0
    torchrun = launchers.torchrun()
    began = time.monotonic()
    with warm_torchrun.launcher(torchrun) as warm:
        pair = (torchrun, warm) if options.self_check else (torchrun if options.cold else warm, launchers.muster())
        results = run_all(scenarios, pair, options.jobs, options.verbose)
    failed = sum(bool(result.problems) for result in results)
    thin, unused = print_sections(scenarios), print_table(results)
    if not options.only and not options.warm:
        failed += print_complaints("section with too few scenarios", thin)
        failed += print_complaints("intended difference that nothing uses", [] if options.self_check else unused)
    ended = time.monotonic() - began
    cold = sum(options.cold or not warm_torchrun.suits(scenario) for scenario in scenarios)
    print(f"\n{len(scenarios)} scenarios ({cold} with a cold torchrun), {failed} failures, {ended:.0f} s, "
          f"{pair[0].name} beside {pair[1].name}")
    return 1 if failed or not scenarios else 0


def print_complaints(what, names):
    for name in names:
        print(f"FAIL: {what}: {name}")
    return len(names)


if __name__ == "__main__":
    sys.exit(main())
