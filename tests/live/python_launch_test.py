"""muster.launch(): functions in workers, from a script, a prompt, a notebook's kernel and pytest, with and without cloudpickle.

The package is that of the wheel in $MUSTER_DIST, in front of the packages of $MUSTER_PYTHON, a virtual environment with
cloudpickle, numpy, jupyter's client and kernel, and pytest (./dev test makes both)."""
import os
import re
import signal
import subprocess
import tempfile
import textwrap
import unittest
import uuid

from harness import (LIMIT_S, LONG, alive_with, bare_python, end_of_cell, install_wheel, long, main, mount_tmpfs, skip_without,
                     start_kernel, wait_for)
from ports import free_port

PYTHON = os.path.join(os.environ.get("MUSTER_PYTHON", ""), "bin", "python")
HEAD = "import functools, glob, os, sys, time\nimport muster\n"


class Launch(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.package = install_wheel(cls.addClassCleanup, PYTHON)
        cls.plain = bare_python(cls)  # It has no cloudpickle.

    def setUp(self):
        held = tempfile.TemporaryDirectory(prefix="muster-python-")
        self.addCleanup(held.cleanup)
        self.folder = held.name
        self.temp = os.path.join(self.folder, "tmp")
        os.mkdir(self.temp)
        self.marker = f"marker-{uuid.uuid4()}"
        self.env = {**{name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PET_", "MUSTER"))},
                    "PYTHONPATH": self.package, "TMPDIR": self.temp, "MARKER": self.marker}

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        return path

    def script(self, text):
        return self.write("script.py", HEAD + textwrap.dedent(text))

    def start(self, command, **options):
        process = subprocess.Popen(command, env=self.env, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, start_new_session=True, **options)
        self.addCleanup(process.kill)
        return process

    def finish(self, process, code=0):
        out, err = process.communicate(timeout=LIMIT_S)
        self.assertEqual(process.returncode, code, f"{out}\n{err}")
        return out, err

    def run_script(self, text, python=PYTHON, code=0):
        return self.finish(self.start([python, self.script(text)]), code)

    def files(self):
        return [name for _, folders, names in os.walk(self.temp) for name in folders + names]


class Results(Launch):
    def test_returns_each_ranks_result_in_order(self):
        out, _ = self.run_script("""
            factor = 10
            def f(x, plus):
                return int(os.environ["RANK"]) * factor * x + plus, os.environ["WORLD_SIZE"]
            print(muster.launch(f, 2, nproc=3, kwargs={"plus": 1}))
            print(muster.launch(lambda: factor, nproc=2))
            print(muster.launch(functools.partial(f, plus=3), 1))
            """)
        self.assertEqual(out, "[(1, '3'), (21, '3'), (41, '3')]\n[10, 10]\n[(3, '1')]\n")
        self.assertEqual(self.files(), [])

    def test_launch_runs_another_python(self):
        out, _ = self.run_script(f"""
            def f(): return sys.prefix, sys.argv
            print(muster.launch(f, python={self.plain!r}, env={{"PYTHONPATH": os.path.dirname(os.path.dirname(__import__("cloudpickle").__file__))}}))
            """)
        self.assertEqual(out, f"[({os.path.dirname(os.path.dirname(self.plain))!r}, [{os.path.join(self.folder, 'script.py')!r}])]\n")

    def test_launch_takes_any_callable(self):
        out, _ = self.run_script("""
            class Adder:
                def __init__(self, one): self.one = one
                def __call__(self, other): return self.one + other
                def add(self, other): return self.one + other
            print(muster.launch(Adder(1), 2), muster.launch(Adder(1).add, 3), muster.launch(os.path.basename, "a/b"))
            """)
        self.assertEqual(out, "[3] [4] ['b']\n")

    def test_a_worker_may_launch(self):
        out, _ = self.run_script("""
            def inner(): return os.environ["WORLD_SIZE"]
            def outer(): return muster.launch(inner, nproc=3)
            print(muster.launch(outer, nproc=2))
            """)
        self.assertEqual(out, "[['3', '3', '3'], ['3', '3', '3']]\n")

    def test_virtual_local_rank_gives_each_rank_local_rank_0(self):
        text = """
            def f(): return os.environ["RANK"], os.environ["LOCAL_RANK"]
            print(muster.launch(f, nproc=3, virtual_local_rank=True, GATHER))
            """
        for gather in ("", 'gather="all"'):
            out, _ = self.run_script(text.replace("GATHER", gather))
            self.assertEqual(out, "[('0', '0'), ('1', '0'), ('2', '0')]\n")

    def test_classes_sent_by_value_can_be_pickled_by_workers(self):
        out, _ = self.run_script("""
            import pickle
            class Config: pass
            def f(config): return type(pickle.loads(pickle.dumps(config))).__name__
            print(muster.launch(f, Config()))
            """)
        self.assertEqual(out, "['Config']\n")

    def test_a_module_that_launches_on_import_is_refused(self):
        self.write("eager.py", "import muster\ndef f(): return 1\nmuster.launch(f, nproc=2)\n")
        _, err = self.run_script("import eager", code=1)
        self.assertIn("muster.launch() was reached while a worker imported the module that calls it", err)

    def test_launch_leaves_the_callers_start_method_alone(self):
        out, _ = self.run_script("""
            import multiprocessing
            def f(): multiprocessing.set_start_method("spawn"); return multiprocessing.get_start_method()
            if __name__ == "__main__":
                print(muster.launch(f))
                multiprocessing.set_start_method("spawn")
            """, python=self.plain)
        self.assertEqual(out, "['spawn']\n")

    def test_output_before_the_call_comes_first(self):
        out, _ = self.run_script("""
            print("first")
            muster.launch(print, "second")
            print("third")
            """)
        self.assertEqual(out, "first\nsecond\nthird\n")

    @long
    def test_threads_may_launch_at_once(self):
        out, _ = self.run_script("""
            from concurrent.futures import ThreadPoolExecutor
            def f(i): return i
            with ThreadPoolExecutor(4) as pool:
                print(list(pool.map(lambda i: muster.launch(f, i, nproc=2), range(8))))
            """)
        self.assertEqual(out, f"{[[i, i] for i in range(8)]}\n")

    def test_scripts_and_modules_work_without_cloudpickle(self):
        self.write("module.py", "import os\ndef rank(): return os.environ['RANK']\n")
        out, _ = self.run_script("""
            import module
            class Answer:
                def __init__(self, text): self.text = text
            def f(answer): return Answer(answer.text + os.environ["RANK"])
            if __name__ == "__main__":
                print(muster.launch(module.rank, nproc=2))
                answers = muster.launch(f, Answer("x"), nproc=2)
                print([answer.text for answer in answers], all(isinstance(answer, Answer) for answer in answers))
            """, python=self.plain)
        self.assertEqual(out, "['0', '1']\n['x0', 'x1'] True\n")

    def test_a_script_without_a_guard_gets_the_remedy(self):
        out, err = self.run_script("""
            def f(): return 1
            print("begins")
            muster.launch(f, nproc=1)
            """, python=self.plain, code=1)
        self.assertIn('put the call below `if __name__ == "__main__":`', err)
        self.assertEqual(out.count("begins"), 2, "the script, and once in the worker")

    def test_large_results_arrive_whole(self):
        out, _ = self.run_script("""
            import numpy
            [small, other] = muster.launch(lambda: numpy.full(1 << 17, float(os.environ["RANK"])), nproc=2)
            print(small.nbytes, small.sum(), other.sum())
            [large] = muster.launch(lambda: numpy.ones(1 << 30, numpy.uint8))
            print(large.nbytes, large.sum())
            """)
        self.assertEqual(out, "1048576 0.0 131072.0\n1073741824 1073741824\n")
        self.assertEqual(self.files(), [])

    def test_a_half_written_start_file_is_ignored(self):
        out, _ = self.run_script("""
            from muster import _function
            for name in "started.0", "started.1.part":
                with open(name, "w") as f: f.write("0 2 x")
            print(*_function.ranks("."))
            """)
        self.assertEqual(out, "0 2 x [0]\n")

    def test_many_calls_leave_nothing(self):
        calls = 200 if LONG else 10  # One in ten fails.
        self.env["CALLS"] = str(calls)
        out, _ = self.run_script("""
            def open_descriptors(): return len(os.listdir("/proc/self/fd"))
            def f(i):
                if i % 10 == 9: raise ValueError(i)
                return i
            assert muster.launch(f, 0) == [0]
            before = open_descriptors()
            for i in range(int(os.environ["CALLS"])):
                try:
                    assert muster.launch(f, i, nproc=2) == [i, i]
                except ValueError as error:
                    assert error.args == (i,)
            assert open_descriptors() == before, open_descriptors()
            with open("/proc/self/task/%d/children" % os.getpid()) as f: print("children:", f.read())
            """)
        self.assertEqual(out, "children: \n")
        # As on the command line, the last lines of a failed job are kept where its verdict says.
        kept = [name for name in os.listdir(self.temp) if name.startswith("muster_logs_")]
        self.assertEqual((len(kept), len(os.listdir(self.temp))), (calls // 10, calls // 10))

    def test_each_of_two_nodes_gets_its_own_results(self):
        port = free_port()
        text = f"""
            def f(): return os.environ["RANK"]
            print(muster.launch(f, nproc=2, nnodes=2, rdzv_backend="c10d", rdzv_endpoint="127.0.0.1:{port}", rdzv_id="x"))
            """
        both = [self.start([PYTHON, self.script(text)]) for _ in range(2)]
        self.assertEqual(sorted(self.finish(node)[0] for node in both), ["['0', '1']\n", "['2', '3']\n"])

    def test_gather_all_gives_all_results_to_all_nodes(self):
        port = free_port()
        text = f"""
            def f(): return os.environ["RANK"] * (40 << 20 if os.environ["RANK"] == "2" else 1)
            results = muster.launch(f, nproc=2, nnodes=2, rdzv_backend="c10d", rdzv_endpoint="127.0.0.1:{port}", rdzv_id="x", gather="all")
            print([(result[:1], len(result)) for result in results])
            """
        both = [self.start([PYTHON, self.script(text)]) for _ in range(2)]
        for node in both:
            self.assertEqual(self.finish(node)[0], f"[('0', 1), ('1', 1), ('2', {40 << 20}), ('3', 1)]\n")
        self.assertEqual(self.files(), [])

    def test_a_restart_runs_the_function_again(self):
        out, _ = self.run_script("""
            def f():
                restarts = os.environ["TORCHELASTIC_RESTART_COUNT"]
                if os.environ["RANK"] == "1" and restarts == "0": raise OSError("once")
                return restarts
            print(muster.launch(f, nproc=2, max_restarts=1))
            """)
        self.assertEqual(out, "['1', '1']\n")


class Failures(Launch):
    def test_a_workers_exception_is_raised_again(self):
        out, err = self.run_script("""
            class Wrong(Exception): pass
            def inner(): raise Wrong("shape (3, 4)")
            def f():
                if os.environ["RANK"] == "1": inner()
                time.sleep(60)
            try:
                muster.launch(f, nproc=3)
            except Wrong as error:
                cause = error.__cause__
                print(error, cause.rank, cause.exit_code, cause.result["class"], isinstance(cause, muster.LaunchError))
                raise
            """, code=1)
        self.assertEqual(out, "shape (3, 4) 1 1 user True\n")
        self.assertRegex(err, r"/muster\.launch\(f\)\.py FAILED: rank 1 of 3 exited with 1: (\w+\.)*Wrong: shape \(3, 4\)")
        ours = err[err.rindex("LaunchError"):]
        self.assertRegex(ours, r'File "\S+/script\.py", line 5, in inner\n +def inner\(\): raise Wrong')
        self.assertNotIn("_function.py", ours)

    def test_an_exception_that_cannot_be_sent_becomes_a_launch_error(self):
        out, _ = self.run_script("""
            class Two(Exception):
                def __init__(self, a, b): super().__init__(f"{a} and {b}")
            def f(): raise Two(1, 2)
            try: muster.launch(f)
            except muster.LaunchError as error: print(error)
            """)
        self.assertIn("Two: 1 and 2", out)
        self.assertIn("in f\n", out)

    def test_a_death_by_signal_raises_launch_error(self):
        out, _ = self.run_script("""
            def f(): os.kill(os.getpid(), 9)
            try: muster.launch(f, nproc=2)
            except muster.LaunchError as error: print(error.exit_code, error.rank in (0, 1), error)
            """)
        self.assertRegex(out, r"^137 True rank \d killed by SIGKILL")

    def test_files_that_the_verdict_names_exist(self):
        _, err = self.run_script("""
            def f():
                import ctypes
                library = ctypes.CDLL(muster.get_library())
                library.muster_init(None)
                library.muster_barrier(None, None, None)
                if os.environ["RANK"] == "0": time.sleep(600)
                library.muster_barrier(None, None, None)
            muster.launch(f, nproc=2, on_hang="stop", hang_timeout=2, busy_timeout=3)
            """, code=1)
        named = re.findall(r"the whole picture: (\S+)", err)
        self.assertTrue(named and all(map(os.path.exists, named)), err)

    def test_an_exit_without_a_result_raises(self):
        out, _ = self.run_script("""
            try: muster.launch(os._exit, 0, nproc=2)
            except muster.LaunchError as error: print(error)
            try: muster.launch(sys.exit, 0, nproc=2, gather="all")
            except RuntimeError as error: print(error)
            try: muster.launch(print, help=True)
            except ValueError as error: print(error)
            """)
        self.assertIn("rank 0 has ended without a result", out)
        self.assertIn("the function has left by sys.exit(), without a result\n", out)
        self.assertTrue(out.endswith("no worker was started: one of the flags makes muster print something and exit\n"), out)

    def test_a_full_disk_is_named_with_the_remedy(self):
        mount_tmpfs(self, self.temp, "size=256k")
        out, err = self.run_script("""
            try: muster.launch(bytes, 1 << 20)
            except OSError as error: print(error)
            """)
        said = rf"cannot write what goes to the caller \(No space left on device\); free some space there, or set TMPDIR to another folder: '{self.temp}/"
        self.assertRegex(out, said)
        self.assertRegex(err, rf"The last line of its stderr:\n  \| OSError: \[Errno 28\] {said}")
        self.assertNotIn("During handling", err)

    def test_a_result_that_cannot_be_pickled_is_named(self):
        out, _ = self.run_script("""
            import threading
            try: muster.launch(lambda: threading.Lock())
            except TypeError as error: print(error)
            """)
        self.assertRegex(out, "^the result of rank 0 cannot be pickled: .*lock")

    def test_the_exception_is_known_without_log_files(self):
        out, _ = self.run_script("""
            def f(): raise KeyError("lost")
            for logs in ("/dev/null", os.environ["TMPDIR"] + "/{host}-{start}"):
                try: muster.launch(f, log_dir=logs)
                except KeyError as error: print(error, error.__cause__.exit_code)
            """)
        self.assertEqual(out, "'lost' 1\n'lost' 1\n")

    def test_a_wrong_time_limit_raises_value_error(self):
        out, _ = self.run_script("""
            for wrong in ("60", 0, -1, float("nan")):
                try: muster.launch(print, timeout=wrong)
                except ValueError as error: print(error)
            """)
        self.assertEqual(out.count("timeout is a number of seconds above 0, or None, not "), 4, out)

    def test_a_time_limit_stops_the_job(self):
        out, _ = self.run_script("""
            try: muster.launch(time.sleep, 600, nproc=2, timeout=1)
            except TimeoutError as error: print(error)
            """)
        self.assertEqual(out, "the job took longer than 1 s, and was stopped\n")
        self.assertEqual(self.files(), [])

    def test_a_worker_may_raise_a_launch_error(self):
        out, _ = self.run_script("""
            def inner(): os._exit(3)
            def outer(): muster.launch(inner)
            try: muster.launch(outer)
            except muster.LaunchError as error: print(error.exit_code, error.rank, error.__cause__.exit_code)
            """)
        self.assertEqual(out, "3 0 1\n")

    def test_arguments_that_cannot_be_sent_are_named(self):
        out, _ = self.run_script("""
            import threading
            try: muster.launch(print, threading.Lock())
            except TypeError as error: print(error)
            """)
        self.assertRegex(out, "^cannot send <built-in function print> and its arguments to the workers: .*lock")
        self.assertEqual(out.count("\n"), 1)
        out, _ = self.finish(self.start([self.plain, "-c", HEAD + textwrap.dedent("""
            def f(): pass
            try: muster.launch(f)
            except TypeError as error: print(error)
            """)]))
        self.assertRegex(out, r"was defined at a prompt or in a __main__.py; pip install cloudpickle, or put it into a module\n$")
        self.assertEqual(self.files(), [])

    def test_an_unknown_flag_raises_launch_error(self):
        out, err = self.run_script("""
            try: muster.launch(print, no_such_flag=1)
            except muster.LaunchError as error: print(error, error.exit_code)
            """)
        self.assertIn("--no-such-flag", err)
        self.assertEqual(out, "muster exited with 2; it has said why on stderr 2\n")


class Stopped(Launch):
    def worker(self, more=""):
        """Returns code of workers with the marker on their command line, which run until they are stopped."""
        return f"""
            def f(marker):
                {more or "pass"}
                os.execv(sys.executable, [sys.executable, "-c", "import time; time.sleep(600)", marker])
            """

    def wait_for_workers(self, count=2):
        wait_for(lambda: len(alive_with(self.marker)) == count, f"{count} workers run")

    def wait_for_none(self):
        wait_for(lambda: not alive_with(self.marker), "no worker is left")


class Interrupted(Stopped):
    def test_ctrl_c_ends_the_job(self):
        job = self.start([PYTHON, self.script(self.worker() + f"""
            try: muster.launch(f, "{self.marker}", nproc=2)
            except KeyboardInterrupt: print("interrupted")
            """)])
        self.wait_for_workers()
        os.killpg(job.pid, signal.SIGINT)
        out, err = self.finish(job)
        self.assertEqual((out, alive_with(self.marker)), ("interrupted\n", []))
        # Only the workers' last words, as on the command line.
        self.assertEqual(os.listdir(self.temp), re.findall(rf"are kept in {self.temp}/([^/]+)/", err))

    def test_a_second_ctrl_c_kills(self):
        ignoring = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.signal(signal.SIGINT, signal.SIG_IGN)"
        job = self.start([PYTHON, self.script(self.worker(ignoring) + f"""
            try: muster.launch(f, "{self.marker}", nproc=2, shutdown_timeout=600)
            except KeyboardInterrupt: print("interrupted")
            """)])
        self.wait_for_workers()
        job.send_signal(signal.SIGINT)
        said = ""
        while "waiting for ranks" not in said:  # Sent at once, it would be taken for the same key press.
            line = job.stderr.readline()
            self.assertTrue(line, said)
            said += line
        job.send_signal(signal.SIGINT)
        self.assertEqual(self.finish(job)[0], "interrupted\n")
        self.assertEqual(alive_with(self.marker), [])

    def test_a_handler_that_raises_ends_the_job(self):
        job = self.start([PYTHON, self.script(self.worker() + f"""
            import signal
            def leave(*_): sys.exit(7)
            signal.signal(signal.SIGTERM, leave)
            muster.launch(f, "{self.marker}", nproc=2)
            """)])
        self.wait_for_workers()
        job.terminate()
        self.finish(job, code=7)
        self.assertEqual((alive_with(self.marker), self.files()), ([], []))

    def test_ctrl_c_ends_a_job_that_a_thread_launched(self):
        job = self.start([PYTHON, self.script(self.worker() + f"""
            from concurrent.futures import ThreadPoolExecutor
            with ThreadPoolExecutor() as pool:
                call = pool.submit(muster.launch, f, "{self.marker}", nproc=2)
                try: call.result()
                except KeyboardInterrupt: print("interrupted")
            """)])
        self.wait_for_workers()
        os.killpg(job.pid, signal.SIGINT)
        self.assertEqual(self.finish(job)[0], "interrupted\n")
        self.assertEqual(alive_with(self.marker), [])

    def test_a_handler_that_raises_during_the_start_ends_the_job(self):
        """An alarm at any moment of the start: wherever it hits, the job is gone when launch() returns."""
        self.run_script(self.worker() + f"""
            import signal
            class Late(Exception): pass
            def ring(*_): raise Late
            signal.signal(signal.SIGALRM, ring)
            def children():
                found = ""
                paths = glob.glob("/proc/self/task/*/children")
                assert paths
                for path in paths:
                    try:
                        with open(path) as file: found += file.read()
                    except OSError: pass  # This thread has ended.
                return found
            muster.launch(int)  # Imports first: Python loses what is raised amid an import.
            for i in range(30):
                try:
                    signal.setitimer(signal.ITIMER_REAL, 0.001 * (i + 1))
                    muster.launch(f, "{self.marker}", nproc=2)
                except Late: pass
                else: raise AssertionError(i)
                assert not children() and signal.getsignal(signal.SIGINT) is signal.default_int_handler, i
            """)
        self.assertEqual(alive_with(self.marker), [])

    def test_a_handlers_exception_passes_where_other_errors_are_caught(self):
        out, _ = self.run_script("""
            import signal
            class Late(TimeoutError): pass
            class Ringing:
                def __call__(self, *_):
                    signal.signal(signal.SIGALRM, signal.SIG_DFL)
                    raise Late
            caller = os.getpid()
            def come_late():
                if os.getpid() == caller: signal.raise_signal(signal.SIGALRM)
                return ValueError()
            class Argument:
                def __reduce__(self):
                    come_late()
                    return int, ()
            class Raised(Exception):
                def __reduce__(self): return come_late, ()
            def f(raised): raise raised
            class Stream:
                def flush(self): come_late()
            for argument in Argument(), Raised, None:
                signal.signal(signal.SIGALRM, Ringing())
                if argument is None: sys.stdout = Stream()
                try: muster.launch(f, argument)
                except Exception as error: sys.stdout = sys.__stdout__; print(type(error).__name__, error.__cause__)
            """)
        self.assertEqual(out, "Late None\n" * 3)

    def check_that_it_ends(self, before="pass", after="pass"):
        """Runs a job with code before its launcher is started, and on the thread that waits for it."""
        out, _ = self.run_script(self.worker() + f"""
            import signal, subprocess, threading
            class Late(Exception): pass
            def ring(*_): raise Late
            signal.signal(signal.SIGALRM, ring)
            launchers = []
            class Popen(subprocess.Popen):
                def __init__(self, *args, **options):
                    {before}
                    super().__init__(*args, **options)
                    launchers.append(self)
                def wait(self, timeout=None):
                    {after}
                    return super().wait(timeout)
            subprocess.Popen = Popen
            try: muster.launch(f, "{self.marker}", nproc=2)
            except Late: print([launcher.returncode is not None for launcher in launchers])
            """)
        self.assertEqual((out, alive_with(self.marker)), ("[True]\n", []))

    def test_a_handler_that_raises_during_a_slow_start_ends_the_job(self):
        self.check_that_it_ends(before="signal.setitimer(signal.ITIMER_REAL, 0.1); time.sleep(3)")

    def test_a_signal_that_another_thread_takes_ends_the_job(self):
        self.check_that_it_ends(after="signal.pthread_kill(threading.get_ident(), signal.SIGALRM)")

    def test_handlers_that_raise_together_end_the_job(self):
        job = self.start([PYTHON, self.script(self.worker() + f"""
            import signal
            def ring(number, _): raise OSError(number)
            for number in signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2: signal.signal(number, ring)
            try: muster.launch(f, "{self.marker}", nproc=2)
            except OSError as error: print(error, signal.getsignal(signal.SIGINT) is signal.default_int_handler,
                                           signal.getsignal(signal.SIGHUP) is ring)
            """)])
        self.wait_for_workers()
        for number in signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2:
            job.send_signal(number)
        self.assertRegex(self.finish(job)[0], r"^\d+ True True\n$")
        self.assertEqual(alive_with(self.marker), [])

    def test_a_thread_that_cannot_be_started_ends_the_job(self):
        out, _ = self.run_script(self.worker() + f"""
            import io, threading
            start = threading.Thread.start
            def refuse(thread):
                if thread._target.__name__ == "pump": raise RuntimeError("can't start new thread")
                start(thread)
            threading.Thread.start = refuse
            sys.stdout = io.StringIO()
            try: muster.launch(f, "{self.marker}", nproc=2)
            except RuntimeError as error: print(error, file=sys.__stdout__)
            """)
        self.assertEqual((out, alive_with(self.marker)), ("can't start new thread\n", []))

    def test_a_killed_caller_leaves_no_worker_and_its_files_are_swept(self):
        text = self.worker() + f"""
            muster.launch(f, "{self.marker}", nproc=2)
            """
        job = self.start([PYTHON, self.script(text)])
        self.wait_for_workers()
        job.kill()
        self.wait_for_none()
        job.communicate(timeout=LIMIT_S)
        left = [os.path.join(self.temp, name) for name in os.listdir(self.temp)]
        self.assertEqual(len(left), 2, "its call, and its logs")
        for folder in left:
            os.utime(os.path.join(folder, "lock"), (0, 0))
        self.run_script("muster.launch(int)")
        self.assertEqual(self.files(), [])


class Notebook(Stopped):
    def setUp(self):
        super().setUp()
        self.manager, self.client = start_kernel(self, PYTHON, self.env, self.folder)
        self.execute(HEAD)

    def begin(self, text):
        return self.client.execute(textwrap.dedent(text))

    def execute(self, text):
        return end_of_cell(self.client, self.begin(text))

    def test_launch_runs_a_cells_function(self):
        printed, error = self.execute("""
            scale = 3
            def f(x):
                print("from rank", os.environ["RANK"])
                return scale * x
            print(muster.launch(f, 5, nproc=2))
            """)
        self.assertIsNone(error, printed)
        for line in ("from rank 0\n", "from rank 1\n", "[15, 15]\n"):
            self.assertIn(line, printed)
        printed, error = self.execute("muster.launch(lambda: 1 / 0)")
        self.assertEqual(error, "ZeroDivisionError")
        self.assertIn("FAILED: rank 0 exited with 1: ZeroDivisionError", printed, "the verdict is in the notebook")

    def test_an_interrupt_ends_the_job(self):
        self.execute(self.worker())
        request = self.begin(f'muster.launch(f, "{self.marker}", nproc=2)')
        self.wait_for_workers()
        self.manager.interrupt_kernel()
        self.assertEqual(end_of_cell(self.client, request)[1], "KeyboardInterrupt")
        self.assertEqual(alive_with(self.marker), [])
        self.assertEqual(self.execute("print(muster.launch(lambda: 7))"), ("[7]\n", None), "the kernel goes on")

    def test_a_kernel_that_is_killed_leaves_no_worker(self):
        self.execute(self.worker())
        self.begin(f'muster.launch(f, "{self.marker}", nproc=2)')
        self.wait_for_workers()
        self.manager.shutdown_kernel(now=True)
        self.wait_for_none()


class Types(Launch):
    def test_the_package_is_typed(self):
        out, _ = self.finish(self.start([PYTHON, "-m", "mypy", "--strict", "--cache-dir", self.temp, f"{self.package}/muster"]))
        self.assertIn("no issues found", out)

    def test_a_programs_types_are_checked(self):
        path = self.script("""
            def f(x: int) -> str: return str(x)
            answers: list[str] = muster.launch(f, 1, nproc=2)
            wrong: list[int] = muster.launch(f, 1)
            """)
        done = self.start([PYTHON, "-m", "mypy", "--strict", "--cache-dir", self.temp, path])
        out, _ = self.finish(done, code=1)
        self.assertIn("Found 1 error", out)


class Pytest(Launch):
    def test_pytest_captures_what_workers_print(self):
        self.write("test_it.py", HEAD + textwrap.dedent("""
            def f(): print("heard from", os.environ["RANK"]); return 1
            def test_fd(capfd):
                assert muster.launch(f, nproc=2) == [1, 1]
                assert "heard from 1" in capfd.readouterr().out
            def test_sys(capsys):
                assert muster.launch(f, nproc=2) == [1, 1]
                assert "heard from 1" in capsys.readouterr().out
            def test_quiet():
                muster.launch(f, nproc=2)
            """))
        out, _ = self.finish(self.start([PYTHON, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_it.py"]))
        self.assertRegex(out, r"3 passed")
        self.assertNotIn("heard from", out)


if __name__ == "__main__":
    skip_without("MUSTER_DIST", "MUSTER_PYTHON")
    main(apart=("Results", "Failures", "Interrupted", "Notebook"))
