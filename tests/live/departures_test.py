#!/usr/bin/env python3
"""Ranks that begin to end long before their processes do: the verdict names them, a stop leaves them their time, and one that
never ends is said and counts as failed.

The programs of PyTorch are run by the Python of $MUSTER_TORCH_VENV on gloo, whose other ranks fail as soon as one has
destroyed its group.
"""
import glob
import json
import os
import shutil
import signal

from harness import Job, LiveTest, long, main, pause, wait_for, within
from ports import free_port

PYTHON = os.path.join(os.environ.get("MUSTER_TORCH_VENV", ""), "bin", "python")
TORCH_LIMIT_S = 120

TRAIN = """
import os, sys, time, torch, torch.distributed as dist
dist.init_process_group("gloo")
rank, tensor = dist.get_rank(), torch.ones(10)
def finish(seconds=2):
    open(os.environ["FOLDER"] + "/finishing", "w").close()
    time.sleep(float(os.environ.get("SECONDS", seconds)))
    open(os.environ["FOLDER"] + "/finished", "w").close()
def train(fails):
    for step in range(1000):
        if step == 50 and rank == 0: fails()
        dist.all_reduce(tensor); tensor.fill_(1.0)
def fail(): raise ValueError("loss is NaN at step 50")
"""
# The commonest shape of a training script.
FINALLY = TRAIN + """
try:
    train(fail)
finally:
    dist.destroy_process_group()
    if rank == 0: finish()
"""
EXITS = FINALLY.replace("train(fail)", "train(lambda: sys.exit(3))")
LEAVES = TRAIN + """
if rank == 0:
    for step in range(50): dist.all_reduce(tensor)
    dist.destroy_process_group(group=dist.group.WORLD)
    finish()
    sys.exit()
for step in range(1000): dist.all_reduce(tensor)
"""
# Rank 1 fails by itself while rank 0 is finishing; no rank has lost another.
OWN_FAILURE = TRAIN + """
dist.barrier()
dist.destroy_process_group()
if rank == 0: finish()
while not os.path.exists(os.environ["FOLDER"] + "/finishing"): time.sleep(0.05)
raise KeyError("step")
"""
# A signal's handler may raise anywhere in a call and in what records it: the exception is the program's.
HANDLES = TRAIN + """
import signal
class Stopped(Exception): pass
raised = 0
def stop(*_): global raised; raised += 1; raise Stopped
signal.signal(signal.SIGALRM, stop)
for caught in range(1, 1001):
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.001 + 1e-7 * caught)
        while raised < caught: dist.all_reduce(tensor); tensor.fill_(1.0)
    except Stopped: continue
    os._exit(3)
open(f"{os.environ['FOLDER']}/caught.{rank}", "w").close()
os._exit(0)
"""
AFTER_A_CALL = TRAIN + """
for step in range(5): dist.all_reduce(tensor)
dist.all_reduce(tensor, async_op=True).wait()
if rank == 1:
    end = time.monotonic() + 0.06
    while time.monotonic() < end: pass
    os.kill(os.getpid(), 9)
time.sleep(1000)
"""
IN_A_CALL = TRAIN + """
dist.all_reduce(tensor)
if rank == 0: time.sleep(1); os.kill(int(dist.distributed_c10d._get_default_store().get("pid")), 9); time.sleep(1000)
dist.distributed_c10d._get_default_store().set("pid", str(os.getpid()))
dist.all_reduce(tensor)
"""
# All ranks survive rank 0's error and form the group again; later rank 1 ends without a word.
RECOVERS = TRAIN + """
try:
    train(fail)
except (ValueError, RuntimeError):
    dist.destroy_process_group()
store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False)
dist.init_process_group("gloo", store=dist.PrefixStore("again", store), rank=rank, world_size=2)
dist.all_reduce(tensor)
if rank == 1: os._exit(7)
time.sleep(1000)
"""

# A thread of rank 1 ends long before rank 0 fails. Then rank 1 raises the same exception itself, or leaves its group.
THREAD = TRAIN + """
import threading
class Reader(threading.Thread):
    def run(self):
        try: {}["record"]
        except KeyError as error: self.error = error; raise
if rank == 1: reader = Reader(); reader.start(); reader.join()
dist.all_reduce(tensor)
time.sleep(0.5)
"""
THREAD_OF_A_VICTIM = THREAD + "train(fail)"
THREAD_OF_THE_CULPRIT = THREAD + """
try:
    if rank == 1: raise RuntimeError("no more records") from reader.error
    dist.all_reduce(tensor)
finally:
    dist.destroy_process_group()
    if rank == 1: finish()
"""
THREAD_OF_ONE_THAT_LEAVES = THREAD + """
if rank == 1: dist.destroy_process_group(); finish(); sys.exit()
dist.all_reduce(tensor)
"""
# A thread fails of what the end of its rank's group took away.
THREAD_AFTER_LEAVING = TRAIN + """
import threading
if rank == 1:
    dist.destroy_process_group()
    reader = threading.Thread(target=lambda: {}["record"]); reader.start(); reader.join()
    finish(); sys.exit()
dist.all_reduce(tensor)
"""

# Rank 0 shows an exception by the hook, as a toolkit with an event loop does, and goes on.
LINGERS = """
import os, sys, threading, time
def work():
    while True:
        time.sleep(1000)
if os.environ["RANK"] == "1":
    threading.Thread(target=work, name="prefetcher").start()
    raise ValueError("loss is NaN at step 50")
try:
    {}["shown"]
except KeyError:
    sys.excepthook(*sys.exc_info())
time.sleep(1000)
"""
UPLOADS = LINGERS.replace("        time.sleep(1000)\nif", """        time.sleep(0.01)
        with open(os.environ["FOLDER"] + "/upload", "wb") as file: file.write(bytes(1 << 20))
if""")


# All but rank 0 have raised, and cannot end, when rank 0 ends.
ALIKE = """
import os, threading, time
rank, folder = int(os.environ["RANK"]), os.environ["FOLDER"]
def stay():
    threading.main_thread().join()
    open(f"{folder}/raised.{rank}", "w").close()
    time.sleep(1000)
if rank == 0:
    while not all(os.path.exists(f"{folder}/raised.{other}") for other in (1, 2, 3)): time.sleep(0.01)
else:
    threading.Thread(target=stay).start()
{}["step"]
"""
# A rank is killed as it writes a checkpoint, which no later attempt can read.
CUT = """
import os, pickle, signal, time
if os.environ["TORCHELASTIC_RESTART_COUNT"] != "0":
    with open("checkpoint", "rb") as file: pickle.load(file)
if os.environ["RANK"] != "0": time.sleep(1000)
with open("checkpoint", "wb") as file: file.write(pickle.dumps(list(range(10000)))[:500])
os.kill(os.getpid(), signal.SIGKILL)
"""


class DeparturesTest(LiveTest):
    def start(self, program, *flags, workers=2, node=0, cwd=None, **env):
        job = Job("--nproc-per-node", workers, "--log-dir", self.path(f"logs{node}"), *flags, "--python", self.python,
                  self.write("train.py", program), cwd=cwd, env={"FOLDER": self.folder.name, "OMP_NUM_THREADS": "1", **env})
        self.addCleanup(job.__exit__)
        return job

    def result(self, node=0):
        [path] = glob.glob(self.path(f"logs{node}/*/result.json"))
        with open(path) as file:
            return json.load(file)


class WithTorch(DeparturesTest):
    python = PYTHON

    def setUp(self):
        super().setUp()
        if not os.access(PYTHON, os.X_OK):
            self.skipTest(f"no PyTorch: {PYTHON} (set MUSTER_TORCH_VENV; ./dev test makes it)")

    def ends(self, program, *flags, **options):
        job = self.start(program, *flags, **options)
        return job.wait(TORCH_LIMIT_S), self.result(), job.stderr()

    def test_a_rank_that_flushes_its_logger_is_the_culprit_and_gets_its_time(self):
        code, result, screen = self.ends(FINALLY, workers=3)
        self.assertEqual((code, result["culprit"]["rank"], result["summary"]),
                         (1, 0, "rank 0 exited with 1: ValueError: loss is NaN at step 50"), screen)
        self.assertTrue(self.exists("finished"))

    def test_the_same_on_two_nodes(self):
        port = free_port()
        jobs = [self.start(FINALLY, "--nnodes", 2, "--node-rank", node, "--master-addr", "127.0.0.1", "--master-port", port,
                           workers=1, node=node) for node in (0, 1)]
        self.assertEqual([job.wait(TORCH_LIMIT_S) for job in jobs], [1, 1])
        self.assertTrue(self.exists("finished"))
        for node in (0, 1):
            self.assertEqual(self.result(node)["culprit"]["rank"], 0, jobs[node].stderr())
            self.assertIn("ValueError: loss is NaN at step 50", self.result(node)["summary"])

    def test_a_rank_that_takes_longer_than_the_grace_is_stopped_and_its_place_is_said(self):
        code, result, screen = self.ends(FINALLY, "--shutdown-timeout", 3, SECONDS="1000")
        self.assertEqual((code, result["culprit"]["rank"]), (1, 0), screen)
        self.assertRegex(result["summary"], r"^rank 0 raised ValueError: loss is NaN at step 50 \(train\.py:\d+ fail\) "
                                            r"and did not end; muster stopped it ")
        self.assertFalse(self.exists("finished"))

    @long
    def test_a_rank_that_exits_with_a_code_is_the_culprit(self):
        code, result, screen = self.ends(EXITS)
        self.assertEqual((code, result["culprit"]["rank"]), (3, 0), screen)
        self.assertTrue(self.exists("finished"))

    def test_a_rank_that_has_left_is_named_and_gets_its_time(self):
        code, result, screen = self.ends(LEAVES)
        self.assertEqual((result["reason"], result["culprit"]["rank"]), ("left_early", 0), screen)
        self.assertIn("while rank 1 still needed it", result["summary"])
        self.assertNotIn("records no more calls", screen)
        self.assertTrue(self.exists("finished"))
        self.assertNotEqual(code, 0)

    def test_a_rank_that_has_left_is_stopped_at_once_for_the_failure_of_another(self):
        # With a grace above TORCH_LIMIT_S, so that waiting for it fails the test.
        code, result, screen = self.ends(OWN_FAILURE, "--shutdown-timeout", 1000, SECONDS="1000")
        self.assertEqual((code, result["culprit"]["rank"]), (1, 1), screen)
        self.assertIn("KeyError: 'step'", result["summary"])
        self.assertFalse(self.exists("finished"))

    def test_a_users_stop_reaches_a_rank_that_is_ending(self):
        job = self.start(FINALLY, "--shutdown-timeout", 300, workers=1, SECONDS="1000")
        wait_for(lambda: self.exists("finishing"), "rank 0 is ending", TORCH_LIMIT_S)
        job.signal(signal.SIGTERM)
        self.assertEqual(job.wait(within(5, below=250)), 143, job.stderr())

    def test_an_exception_of_a_signals_handler_is_not_lost(self):
        job = self.start(HANDLES, workers=1)
        self.assertEqual(job.wait(TORCH_LIMIT_S), 0, job.stderr())
        self.assertTrue(self.exists("caught.0"))
        self.assertNotIn("records no more calls", job.stderr())

    def test_a_rank_that_died_after_its_calls_was_in_none(self):
        _, result, screen = self.ends(AFTER_A_CALL)
        self.assertEqual(result["culprit"]["rank"], 1)
        self.assertNotIn("It was in", screen)

    def test_a_rank_that_died_in_a_call_was_in_it(self):
        _, result, screen = self.ends(IN_A_CALL)
        self.assertEqual(result["culprit"]["rank"], 1)
        self.assertIn("It was in all_reduce #2 of group 'world' for ", screen)

    def test_a_thread_that_an_exception_ended_is_no_departure(self):
        code, result, err = self.ends(THREAD_OF_A_VICTIM)  # The victim may abort as it ends.
        self.assertEqual((code == 0, result["culprit"]["rank"]), (False, 0), err)
        self.assertIn("ValueError: loss is NaN at step 50", err)

    def test_the_exception_of_a_thread_that_the_program_raises_again_is_one(self):
        code, result, err = self.ends(THREAD_OF_THE_CULPRIT)
        self.assertEqual((code == 0, result["culprit"]["rank"]), (False, 1), err)
        self.assertTrue(self.exists("finished"), err)

    def test_a_rank_may_leave_before_and_after_a_thread_has_ended(self):
        for program in THREAD_OF_ONE_THAT_LEAVES, THREAD_AFTER_LEAVING:
            with self.subTest(program=program):
                code, result, err = self.ends(program)
                self.assertEqual((code == 0, result["reason"], result["culprit"]["rank"]), (False, "left_early", 1), err)
                self.assertTrue(self.exists("finished"), err)
                shutil.rmtree(self.path("logs0"))
                os.remove(self.path("finished"))

    def test_an_error_that_the_program_survived_is_forgotten(self):
        code, result, screen = self.ends(RECOVERS, "--shutdown-timeout", 3)
        self.assertEqual((code, result["culprit"]["rank"], result["summary"]), (7, 1, "rank 1 exited with 7"), screen)


class Alike(DeparturesTest):
    python = "python3"

    def test_ranks_that_raise_the_same_error_are_called_alike(self):
        job = self.start(ALIKE, workers=4)
        self.assertEqual(job.wait(), 1)
        self.assertIn("\n4 of 4 ranks raised the same error: ranks 0-3\n", job.stderr())
        self.assertNotIn("stopped by muster", job.stderr())

    def test_the_first_failure_of_a_chain_of_restarts_is_told_from_what_followed(self):
        job = self.start(CUT, "--max-restarts", 2, cwd=self.folder.name)
        self.assertEqual(job.wait(), 1)
        self.assertRegex(job.stderr(), r"\nAttempt 0: rank 0 killed by SIGKILL from outside \(not by muster\), [\d.]+ m?s after its start\n"
                                       r"Attempts 1 to 2: ranks? [01](-1)? exited with 1: _pickle.UnpicklingError: pickle data was "
                                       r"truncated, the same each time\n")


class Lingering(DeparturesTest):
    python = "python3"
    FLAGS = ("--shutdown-timeout", 3)

    def said(self, job):
        wait_for(lambda: "has not ended" in job.stderr(), "the rank is said", within(12, below=100))
        self.assertRegex(job.stderr(), r"muster: rank 1 \(pid \d+\) raised ValueError: loss is NaN at step 50 at train\.py:\d+ "
                                       r"1\d\.\d s ago and has not ended: it waits for its thread prefetcher")

    def test_a_rank_that_cannot_end_is_said_and_counts_as_failed(self):
        job = self.start(LINGERS, *self.FLAGS)
        self.said(job)
        self.assertEqual(job.wait(within(20, below=100)), 1)
        result = self.result()
        self.assertEqual((result["culprit"]["rank"], result["class"]), (1, "stuck"))
        self.assertEqual(result["summary"], "rank 1 did not end within 10.0 s of its error; it waits for its thread prefetcher: "
                                            "ValueError: loss is NaN at step 50")

    def test_it_is_only_said_if_the_user_wants_reports(self):
        job = self.start(LINGERS, *self.FLAGS, "--on-hang", "report")
        self.said(job)
        pause(3, "it would have counted as failed")
        self.assertIsNone(job.process.poll())
        self.assertNotIn("counts as failed", job.stderr())
        self.assertNotIn("muster: rank 0", job.stderr())

    def test_a_thread_that_works_is_left_alone(self):
        job = self.start(UPLOADS, *self.FLAGS)
        self.said(job)
        pause(3, "it would have counted as failed")
        self.assertIsNone(job.process.poll(), job.stderr())


if __name__ == "__main__":
    main()
