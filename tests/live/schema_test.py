"""schema.md and the files of jobs agree: every event and every field, in both directions."""
import glob
import json
import os
import re
import resource
import signal

from hang_cells import RECORDED_MISMATCH, HangJob, limits
from harness import Job, main, run, wait_for
from nodes_harness import NodesTest

SCHEMA = os.path.join(os.path.dirname(__file__), "../../agent/report/schema.md")
ALWAYS = {"time", "event", "attempt"}  # "each with `time` and `event`. `attempt` is there once one has begun."


def names_in(text):
    return set(re.findall(r"`(\w+)`", text))


def rows(section):
    """Yields (first cell, last cell) of the table rows in a section of schema.md."""
    with open(SCHEMA) as f:
        text = f.read().split(f"\n## {section}", 1)[1].split("\n## ", 1)[0]
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| `"):
            yield cells[0], cells[-1]


def documented_events():
    return {name: names_in(fields) for names, fields in rows("events.jsonl") for name in names_in(names)}


def documented_hangs():
    """Returns the events of hangs, their fields and the classes, from one table each."""
    with open(SCHEMA) as f:
        section = f.read().split("\n## Hangs", 1)[1].split("\n## ", 1)[0]
    return [set(re.findall(r"^\| `(\w+)`", table, re.M)) for table in section.split("\n\n") if "\n| `" in table]


def documented_result():
    """Returns the fields of result.json itself, from the first table."""
    fields = set()
    for names, _ in rows("result.json"):
        fields |= names_in(names)
        if "stuck" in fields:
            return fields
    raise AssertionError("the first table of result.json ends with another field than 'stuck'")


def documented_worker():
    with open(SCHEMA) as f:
        text = f.read().split("\nA worker (`culprit`, `others`):", 1)[1]
    worker, culprit = text.split("\n\n", 1)[0].split("The\nculprit has in addition:", 1)
    return names_in(worker), names_in(worker) | names_in(culprit)


class Schema(NodesTest):
    def setUp(self):
        super().setUp()
        self.logs = []

    def log_dir(self):
        self.logs.append(self.path(f"logs{len(self.logs)}"))
        return "--log-dir", self.logs[-1]

    def written(self, name):
        """Yields the contents of the given file of each job so far."""
        for folder in self.logs:
            for path in glob.glob(os.path.join(folder, "*", name)):
                with open(path) as f:
                    yield f.read()

    def sh(self, script, *flags, **options):
        run(*self.log_dir(), *flags, "--no-python", self.write("w.sh", "#!/bin/sh\n" + script), cwd=self.folder.name, **options)

    def end_in_all_ways_on_one_node(self):
        cores = lambda: resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        self.sh("exit 0")
        self.sh("[ $RANK = 1 ] && kill -SEGV $$; sleep 1000", "--nproc-per-node", 2, "--max-restarts", 1,
                preexec_fn=cores)
        trapped = self.path("trapped")
        self.sh(f"trap '' TERM; while [ $RANK = 1 ]; do [ -e {trapped} ] && exit 3; sleep 0.05; done; touch {trapped}; "
                "while true; do sleep 0.1; done", "--nproc-per-node", 2, "--shutdown-timeout", "0.2")
        self.sh("setsid sleep 1 & exit 0")
        self.sh("""printf '{"version": 1, "pid": %s, "scope_id": "s", "expiration_time": 1.0, "signal": 9}\\n' $$ """
                ">$TORCHELASTIC_TIMER_FILE; sleep 1000", env={"TORCHELASTIC_ENABLE_FILE_TIMER": "1"})

    def signal_it(self):
        with Job(*self.log_dir(), "--no-python", "sh", "-c",
                 f"trap 'touch {self.path('told')}' USR1; touch {self.path('up')}; while true; do sleep 0.05; done") as job:
            self.wait_for_files("up")
            job.signal(signal.SIGUSR1)
            self.wait_for_files("told")
            job.signal(signal.SIGTSTP)
            wait_for(lambda: '"suspended"' in "".join(self.written("events.jsonl")), "the job is suspended")
            job.signal(signal.SIGCONT)
            wait_for(lambda: '"resumed"' in "".join(self.written("events.jsonl")), "the job goes on")
            job.signal(signal.SIGTERM)
            job.wait()

    def hang(self):
        def job(*arguments, **options):
            hanging = HangJob(self.folder.name, *arguments, ranks=2, **options)
            self.logs.append(hanging.logs)
            return hanging

        with job("blocked_read", *limits(0.1), env={"CALLS": "1000000"}) as hanging:
            hanging.wait_found("hang")
            hanging.go_on()
            hanging.wait_found("withdrawn")
            hanging.stop()
        with job("blocked_read", *limits(0.1)) as hanging:
            hanging.wait_found("hang")
            hanging.stop()
        with job("none", program=RECORDED_MISMATCH) as hanging:
            hanging.wait_found("mismatch")
            hanging.stop()
        with job("straggle", env={"SECONDS": "8"}) as late:
            late.wait(60)

    def check_hangs(self, events, results):
        names, fields, classes = documented_hangs()
        self.assertEqual({event["event"] for event in events}, names)
        for event in events:
            self.assertEqual(set(event) - ALWAYS, fields)
            self.assertIn(event["class"], classes)
        verdicts = {name: [result[name] for result in results if result[name]] for name in ("hang", "mismatch")}
        for name, (verdict,) in verdicts.items():
            self.assertEqual(set(verdict), fields | {"attempt"}, name)

    def lose_and_fail_on_two_nodes(self):
        a = self.elastic("a", "1:2", "--rdzv-conf", "is_host=true,last_call_timeout=1", *self.log_dir())
        self.wait_starts(1)
        b = self.elastic("b", "1:2", "--rdzv-conf", "is_host=false,last_call_timeout=1", *self.log_dir())
        self.wait_starts(3)
        b.signal(signal.SIGTERM)
        b.wait()
        self.wait_starts(4)
        self.end_well(a)
        os.remove(self.path("do"))
        count = len(self.starts())
        pair = [self.ranked(0, 2, *self.log_dir())]
        wait_for(lambda: '"waiting"' in "".join(self.written("events.jsonl")), "the first node says that it waits")
        pair.append(self.ranked(1, 2, *self.log_dir()))
        self.wait_starts(count + 2)
        self.order("fail7", "n1.0")
        for job in pair:
            self.assert_exit(job, 7)

    def test_jobs_write_exactly_the_documented_events_and_fields(self):
        self.end_in_all_ways_on_one_node()
        self.signal_it()
        self.lose_and_fail_on_two_nodes()
        self.hang()
        events = [json.loads(line) for text in self.written("events.jsonl") for line in text.splitlines()]
        seen = {}
        for event in events:
            if "class" not in event:
                seen.setdefault(event["event"], set()).update(set(event) - ALWAYS)
        documented = documented_events()
        self.assertEqual(set(seen), set(documented))
        for name, fields in documented.items():
            self.assertEqual(seen[name], fields, name)
        workers, culprits = documented_worker()
        results = [json.loads(text) for text in self.written("result.json")]
        self.assertEqual(len(results), len(self.logs))
        self.check_hangs([event for event in events if "class" in event], results)
        for result in results:
            self.assertEqual(set(result), documented_result())
            if result["culprit"]:
                self.assertEqual(set(result["culprit"]), culprits)
            for other in result["others"]:
                self.assertEqual(set(other), workers)


if __name__ == "__main__":
    main()
