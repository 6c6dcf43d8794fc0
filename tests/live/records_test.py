"""The memory in which each rank records its collectives: which processes get it, what musterctl shows, jobs without it.

The ranks are $MUSTER_HANG_FAULTS (programs/hang_faults.cc): 30 calls of all_reduce, then rank 1 reads $FIFO while the
others make the next call.
"""
import fcntl
import json
import os
import pty
import re
import resource
import signal
import struct
import subprocess
import termios

from harness import MUSTER, MUSTERCTL, Job, LiveTest, is_gone, main, musterctl, require_programs, run, wait_for

RANKS = os.environ.get("MUSTER_HANG_FAULTS", "")
NOT_RECORDED = "muster: calls are not recorded, so a hang is not explained: "


class RecordsTest(LiveTest):
    def setUp(self):
        require_programs(MUSTERCTL=MUSTERCTL, MUSTER_HANG_FAULTS=RANKS)
        super().setUp()
        os.mkdir(self.path("run"), 0o700)
        os.mkfifo(self.path("fifo"))
        self.env = {"MUSTER_RUN_DIR": self.path("run"), "FIFO": self.path("fifo"), "CULPRIT": "1", "DIR": self.folder.name,
                    "OMP_NUM_THREADS": "1"}

    def start(self, *program, flags=(), fault="blocked_read", ranks=3):
        job = Job("--nproc-per-node", ranks, "--shutdown-timeout", 5, *flags, "--no-python", *(program or (RANKS,)),
                  env=self.env | {"FAULT": fault})
        self.addCleanup(job.__exit__)
        return job

    def go_on(self):
        """Ends the read in which rank 1 waits."""
        with open(self.path("fifo"), "w") as fifo:
            fifo.write("x")

    def ask(self, *args):
        return musterctl("records", *args, env=self.env)

    def shown(self, *args):
        code, out, err = self.ask(*args)
        self.assertEqual((code, err), (0, ""))
        return out

    def records(self, *args):
        """Returns {rank: its object}, {} while the job cannot answer."""
        code, out, _ = self.ask("--json", *args)
        return {r["rank"]: r for r in json.loads(out)["records"]} if code == 0 else {}

    def wait_for_records(self, condition, what):
        def found():
            records = self.records("-n", 3)
            return records if records and condition(records) else None
        return wait_for(found, what)

    def refused(self, *args, names):
        code, out, err = self.ask(*args)
        self.assertEqual((code, out, len(err.splitlines())), (1, "", 1), err)
        for name in names:
            self.assertIn(name, err)


def last(records):
    return records["calls"][-1] if records["calls"] else {"ordinal": 0, "state": ""}


def others_wait(records):
    """Returns True if ranks 0 and 2 are in the call that rank 1 has not made."""
    return (all((last(records[r])["ordinal"], last(records[r])["state"]) == (31, "pending") for r in (0, 2)) and
            (last(records[1])["ordinal"], last(records[1])["state"]) == (30, "complete"))


class WhatIsRecorded(RecordsTest):
    def test_shows_a_late_rank_and_those_that_wait_for_it(self):
        job = self.start()
        records = self.wait_for_records(others_wait, "rank 1 has not come")
        for rank, mine in records.items():
            self.assertEqual((mine["source"], mine["owner"], mine["dropped"], mine["garbage"]),
                             ("worker_lib", mine["pid"], 0, 0))
            world = next(g for g in mine["groups"] if g["name"] == "world")
            self.assertEqual((world["size"], world["own_rank"], world["ranks"], world["state"], world["completed"]),
                             (3, rank, "0-2", "ready", 30))
            self.assertEqual([c["ordinal"] for c in mine["calls"]], [28, 29, 30] if rank == 1 else [29, 30, 31])
        call = last(records[0])
        self.assertEqual((call["operation"], call["count"], call["type"], call["reduction"], call["synchronous"]),
                         ("all_reduce", 1000, "float32", "max", True))
        self.assertRegex(call["site"], r"^hang_faults\+0x[0-9a-f]+$")
        lines = self.shown().splitlines()
        self.assertEqual(len(lines), 3, lines)
        self.assertRegex(lines[0], r"^rank 0 \(pid \d+\): in all_reduce #31 of group 'world' for .*: all_reduce \(max\) of "
                                   r"1000 float32, called at hang_faults\+0x")
        self.assertRegex(lines[1], r"^rank 1 \(pid \d+\): between calls for .*; last: all_reduce #30 of group 'world'")
        self.assertEqual(self.records("--ranks", "1-2").keys(), {1, 2})
        self.assertEqual(len(self.shown("--ranks", 2).splitlines()), 1)
        self.assertEqual(len(re.findall(r"#\d+  world  all_reduce \(max\)", self.shown("--ranks", 2, "-n", 7))), 7)
        self.assertGreaterEqual(len(self.records("-n", 4096)[0]["calls"]), 31)
        self.refused("--ranks", 7, names=["rank 7 is not of this job, whose ranks are 0-2"])
        self.go_on()
        self.assertEqual(job.wait(), 0, job.stderr())

    def test_shows_the_section_of_a_rank(self):
        self.env["PAUSE_S"] = "1000"
        self.start(fault="section")
        records = self.wait_for_records(lambda all_of: all_of[1]["sections"], "rank 1 is in its section")
        self.assertEqual([s["name"] for s in records[1]["sections"]], ["evaluation"])
        self.assertIn("; in section 'evaluation' for ", self.shown("--ranks", 1))

    def test_keeps_the_calls_of_a_killed_rank(self):
        # The killed process is a child of the worker, so the job goes on.
        keep = self.write("keep.sh", f"#!/bin/sh\n{RANKS}\nexec sleep 1000\n")
        self.start(keep)
        before = self.wait_for_records(others_wait, "rank 1 has not come")
        self.assertNotEqual(before[1]["owner"], before[1]["pid"])
        os.kill(before[1]["owner"], signal.SIGKILL)
        wait_for(lambda: is_gone(before[1]["owner"]), "it is dead")
        after = self.wait_for_records(lambda all_of: all_of[0]["failure"] and all_of[2]["failure"], "the others know")
        self.assertEqual((after[1]["owner"], last(after[1])["ordinal"]), (before[1]["owner"], 30))
        self.assertIn("rank 1", after[0]["failure"])
        self.assertEqual((last(after[0])["ordinal"], last(after[0])["state"]), (31, "failed"))
        self.assertIn(f"recorded by pid {before[1]['owner']}", self.shown("--ranks", 1))

    def test_an_attempt_has_rings_of_its_own(self):
        again = self.write("again.sh", f"#!/bin/sh\n[ $TORCHELASTIC_RESTART_COUNT = 1 ] && exec sleep 1000\nexec {RANKS}\n")
        self.start(again, flags=("--max-restarts", 1))
        before = self.wait_for_records(others_wait, "rank 1 has not come")
        os.kill(before[1]["pid"], signal.SIGKILL)
        self.wait_for_records(lambda all_of: not any(r["source"] or r["calls"] for r in all_of.values()), "a new attempt")

    def test_shows_ranks_that_record_nothing(self):
        self.start("sh", "-c", "touch $DIR/up.$RANK; exec sleep 1000", ranks=9)
        self.wait_for_files(*(f"up.{rank}" for rank in range(9)))
        lines = self.shown().splitlines()
        self.assertEqual(len(lines), 9, lines)
        for rank, line in enumerate(lines):
            self.assertRegex(line, rf"^rank {rank} \(pid \d+\): no recorder attached")
        self.assertEqual([r["source"] for r in self.records().values()], [""] * 9)
        self.refused("-n", 4096, names=["9 ranks with 4096 calls", "ask for fewer"])

    def test_a_ring_that_another_process_writes_is_not_shown(self):
        # Rank 1 opens rank 0's ring through /proc.
        swap = self.write("swap.sh", f"""#!/bin/bash
if [ $RANK = 0 ]; then echo $$ >$DIR/pid; mv $DIR/pid $DIR/owner; exec sleep 1000; fi
while [ ! -e $DIR/owner ]; do sleep 0.01; done
owner=$(cat $DIR/owner)
export MUSTER_RECORD_FD=$(tr '\\0' '\\n' </proc/$owner/environ | sed -n 's/^MUSTER_RECORD_FD=//p')
eval "exec ${{MUSTER_RECORD_FD%%:*}}<>/proc/$owner/fd/${{MUSTER_RECORD_FD%%:*}}"
RANK=0 LOCAL_RANK=0 WORLD_SIZE=1 LOCAL_WORLD_SIZE=1 CULPRIT=0 exec {RANKS}
""")
        self.start(swap, ranks=2)
        another = "written by a process that does not belong to the worker"
        wait_for(lambda: another in self.ask("--ranks", 0)[1], "rank 1 has it")
        self.assertIn("no recorder attached", self.shown("--ranks", 1))


class Top(RecordsTest):
    """Tests of musterctl top."""

    def top(self, *args):
        return musterctl("top", *args, env=self.env)

    def test_shows_the_rank_behind_the_others_first(self):
        job = self.start()
        self.wait_for_records(others_wait, "rank 1 has not come")
        code, out, err = self.top("--once", "-i", 0.2)
        self.assertEqual((code, err), (0, ""))
        lines = out.splitlines()
        self.assertRegex(lines[0], rf"^job \S+ \(pid {job.pid}\): .*; 3 ranks on 1 node, restarts: 0 of 0, up \d+ s$")
        self.assertEqual(lines[2].split(), ["RANKS", "CALLS/S", "BEHIND", "FOR", "DOING"])
        site = r"at hang_faults\+0x[0-9a-f]+$"
        self.assertRegex(lines[3], r"^1 +0 +1 \('world'\) +\S+ \S+ +after all_reduce #30 of group 'world' " + site)
        self.assertRegex(lines[4], r"^0,2 +0 +- +\S+ \S+ +in all_reduce #31 of group 'world' " + site)
        self.assertEqual(len(lines), 5)
        self.assertEqual(self.top("--once", "-i", 0.2, "--ranks", "0")[1].splitlines()[3][:2], "0 ")
        code, out, err = self.top("--ranks", 7)
        self.assertEqual((code, out), (1, ""))
        self.assertIn("rank 7 is not of this job", err)

    def test_follows_a_job_to_its_end(self):
        self.env["SECONDS"] = "1000"
        job = self.start(fault="straggle", ranks=4)
        self.wait_for_records(lambda all_of: all(r["calls"] for r in all_of.values()), "all make calls")
        with subprocess.Popen([MUSTERCTL, "top", "--json", "-i", "0.3", str(job.pid)], env={**os.environ, **self.env},
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as top:
            looks = [json.loads(top.stdout.readline()) for _ in range(3)]
            job.signal(signal.SIGTERM)
            _, err = top.communicate(timeout=60)
        self.assertEqual((top.returncode, err), (0, "musterctl: the job has ended\n"))
        for rank in looks[-1]["ranks"]:
            self.assertGreater(rank["calls_per_s"], 1)
            self.assertRegex(rank["doing"], r"^calls all_reduce of group '\w+'$")

    def test_fits_a_terminal(self):
        self.start()
        self.wait_for_records(others_wait, "rank 1 has not come")
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 40, 0, 0))
        with subprocess.Popen([MUSTERCTL, "top", "-i", "0.2"], env={**os.environ, **self.env}, stdout=theirs, stderr=theirs,
                              stdin=subprocess.DEVNULL) as top:
            os.close(theirs)
            drawn = b""
            while drawn.count(b"\x1b[J") < 3:
                drawn += os.read(ours, 65536)
            top.send_signal(signal.SIGINT)
        os.close(ours)
        last_screen = drawn.split(b"\x1b[J")[2].decode()
        self.assertTrue(last_screen.startswith("\x1b[H"), last_screen)
        lines = last_screen.removeprefix("\x1b[H").replace("\x1b[K", "").split("\r\n")
        self.assertEqual(lines[3][:22], "1      0        1 ('wo", lines)
        self.assertLessEqual(max(map(len, lines)), 40)


class JobsWithoutRecords(RecordsTest):
    def test_no_recorder_turns_the_records_off(self):
        self.start("sh", "-c", "touch $DIR/up; exec sleep 1000", flags=("--no-recorder",), ranks=1)
        self.wait_for_files("up")
        self.refused(names=["--no-recorder"])

    def test_a_limit_that_forbids_records_is_named_once(self):
        limits = [(resource.RLIMIT_NOFILE, 64, "ulimit -n"), (resource.RLIMIT_FSIZE, 1024, "ulimit -f")]
        for which, limit, remedy in limits:
            with self.subTest(remedy):
                code, out, err = run("--nproc-per-node", 2, "--max-restarts", 1, "--no-python", "sh", "-c",
                                     "echo ${MUSTER_RECORD_FD-none}; exit $((1 - TORCHELASTIC_RESTART_COUNT))",
                                     env=self.env, preexec_fn=lambda: resource.setrlimit(which, (limit, limit)))
                self.assertEqual((code, set(out.splitlines())), (0, {"none"}), err)
                said = [line for line in err.splitlines() if line.startswith(NOT_RECORDED)]
                self.assertEqual(len(said), 1, err)
                self.assertIn(remedy, said[0])

    def test_a_low_soft_limit_does_not_prevent_records(self):
        code, out, err = run("--no-python", "sh", "-c", "echo ${MUSTER_RECORD_FD-none}; ulimit -n", env=self.env,
                             preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 4096)))
        self.assertEqual((code, err), (0, ""))
        self.assertRegex(out, r"^1\d\d:[0-9a-f]+\n64\n$")

    def test_a_program_that_closes_the_descriptor_runs_as_before(self):
        for redirection in (">&-", "</dev/null"):
            with self.subTest(redirection):
                close = self.write("close.sh", f'#!/bin/bash\neval "exec ${{MUSTER_RECORD_FD%%:*}}{redirection}"\nexec {RANKS}\n')
                code, out, err = run("--nproc-per-node", 2, "--no-python", close, env=self.env | {"FAULT": "none"})
                self.assertEqual(code, 0, err)
                self.assertIn("fault ", out)
                said = [line for line in err.splitlines() if "records no calls, so a hang is not explained" in line]
                self.assertEqual(len(said), 2, err)


# Leaves out the file in which Python prints its stack.
LOOK = """import os
name_of = lambda fd: os.path.exists(f"/proc/self/fd/{fd}") and os.readlink(f"/proc/self/fd/{fd}")
names = {fd: name_of(fd) for fd in sorted(int(name) for name in os.listdir("/proc/self/fd"))}
stacks = [fd for fd, name in names.items() if name and "/stacks-" in name]
assert len(stacks) <= 1, names
print(os.environ.get("MUSTER_RECORD_FD"), *(fd for fd, name in names.items() if name and fd not in stacks))
"""


class WhoGetsIt(RecordsTest):
    def seen(self, *args):
        """Returns the variable and all descriptors of each worker."""
        code, out, err = run(*args, env=self.env)
        self.assertEqual((code, err), (0, ""))
        return [tuple(line.split(" ", 1)) for line in out.splitlines()]

    def assert_own(self, variable, descriptors):
        self.assertRegex(variable, r"^1\d\d:[0-9a-f]+$")
        self.assertEqual(descriptors, f"0 1 2 {variable.split(':')[0]}")

    def test_a_worker_has_its_own_and_no_other_descriptor(self):
        seen = self.seen("--nproc-per-node", 3, self.write("look.py", LOOK))
        for variable, descriptors in seen:
            self.assert_own(variable, descriptors)
        self.assertEqual(len({variable for variable, _ in seen}), 3)
        self.assertEqual(self.seen("--no-recorder", self.write("look.py", LOOK)), [("None", "0 1 2")])

    def test_a_nested_muster_passes_on_its_own_ring(self):
        look = self.write("look.py", LOOK)
        outer = self.write("outer.sh", f'#!/bin/sh\necho $MUSTER_RECORD_FD -\nexec {MUSTER} "$@" {look}\n')
        (outers, _), own = self.seen("--no-python", outer)
        self.assert_own(*own)
        self.assertNotEqual(own[0], outers)
        self.assertEqual(self.seen("--no-python", outer, "--no-recorder")[1], ("None", "0 1 2"))

    def test_an_inherited_variable_does_not_reach_the_workers(self):
        code, out, _ = run("--no-recorder", "--no-python", "sh", "-c", "echo ${MUSTER_RECORD_FD-none}",
                           env={"MUSTER_RECORD_FD": "100:1"})
        self.assertEqual((code, out), (0, "none\n"))


if __name__ == "__main__":
    main()
