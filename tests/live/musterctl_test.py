"""musterctl finds the jobs of its user, shows them, follows their logs and sends signals.

The job is $MUSTERCTL_HOST (tests/fakes/control_host), which has nothing but a control socket.
"""
import json
import os
import subprocess
import tempfile
import threading
import unittest

from harness import MUSTERCTL, is_gone, musterctl, require_programs, run_tests, wait_for

HOST = os.environ.get("MUSTERCTL_HOST", "")


class Host:
    """A made-up job."""

    def __init__(self, name, env, ranks=2):
        self.process = subprocess.Popen([HOST, name, str(ranks)], env=env, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True, bufsize=1)
        self.pid = int(self.process.stdout.readline())

    def write(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def line(self):
        return self.process.stdout.readline().rstrip("\n")

    def end(self):
        self.process.stdin.close()
        self.process.wait(30)
        self.process.stdout.close()

    def kill(self):
        self.process.kill()
        self.process.wait(30)


class Musterctl(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="mctl")
        self.addCleanup(folder.cleanup)
        self.folder = os.path.join(folder.name, "muster")
        self.env = dict(os.environ, MUSTER_RUN_DIR=self.folder)

    def host(self, name, ranks=2):
        host = Host(name, self.env, ranks)
        self.addCleanup(host.end)
        return host

    def ask(self, *args):
        return musterctl(*args, env=self.env)

    def refused(self, code, *args, names=()):
        got, out, err = self.ask(*args)
        self.assertEqual(got, code, err)
        self.assertEqual(out, "")
        self.assertEqual(len(err.splitlines()), 1, err)
        self.assertTrue(err.startswith("musterctl: "), err)
        for name in names:
            self.assertIn(name, err)

    def test_lists_the_running_jobs(self):
        jobs = [self.host("job-a"), self.host("job-b")]
        code, out, err = self.ask()
        self.assertEqual((code, err), (0, ""))
        lines = out.splitlines()
        self.assertEqual(lines[0].split(), ["PID", "JOB", "UP", "PROGRAM"])
        found = {line.split()[0]: line.split()[1] for line in lines[1:]}
        self.assertEqual(found, {str(jobs[0].pid): "job-a", str(jobs[1].pid): "job-b"})
        code, out, _ = self.ask("list", "--json")
        self.assertEqual(code, 0)
        self.assertEqual([(j["pid"], j["id"]) for j in json.loads(out)["jobs"]],
                         sorted((job.pid, name) for job, name in zip(jobs, ("job-a", "job-b"))))

    def test_says_that_no_job_runs(self):
        self.assertEqual(self.ask(), (0, "no job of yours is running on this machine\n", ""))
        self.assertEqual(json.loads(self.ask("--json")[1])["jobs"], [])
        self.refused(1, "status", names=["no job of yours"])

    def test_shows_the_status_of_the_only_job(self):
        host = self.host("job-a", ranks=8)
        expected = (f"job       job-a (pid {host.pid})\n"
                    "program   made_up.py\n"
                    "state     attempt 0, restart 0 of 3: running\n"
                    "workers   8 in round 2\n"
                    "restarts  0 of 3 used\n"
                    "up        1 min 02 s\n"
                    "logs      no files\n"
                    "\n"
                    "NODE  HOST    RANKS  STATE\n"
                    "0     node-a  0-7    running\n"
                    "-     node-b  -      spare\n")
        for args in [], ["job-a"], [host.pid]:
            self.assertEqual(self.ask("status", *args), (0, expected, ""))
        status = json.loads(self.ask("status", "--json")[1])
        self.assertEqual(status["ok"], True)
        self.assertEqual(status["status"]["nodes"][0],
                         {"node_rank": 0, "host": "node-a", "first_rank": 0, "workers": 8, "state": "running"})

    def test_several_jobs_need_a_name(self):
        first, second = self.host("job-a"), self.host("job-a")
        self.refused(2, "status", names=["several jobs", str(first.pid), str(second.pid)])
        self.refused(2, "status", "job-a", names=["by its pid"])
        self.refused(1, "status", "job-c", names=["job-c", "job-a"])
        self.assertEqual(self.ask("status", second.pid)[0], 0)

    def test_refuses_wrong_arguments(self):
        self.host("job-a")
        self.refused(2, "stauts", names=["stauts"])
        self.refused(2, "status", "--colour", names=["--colour"])
        self.refused(2, "signal", names=["signal"])
        self.refused(2, "signal", "USR9", names=["USR9"])
        self.refused(2, "logs", "--ranks", "5-2", names=["--ranks", "5-2"])
        self.refused(2, "logs", "-n", "-1", names=["--lines"])
        code, out, _ = self.ask("--help")
        self.assertEqual(code, 0)
        for word in "list", "status", "logs", "records", "top", "stacks", "signal":
            self.assertIn(word, out)

    def test_sends_signals_to_the_named_ranks(self):
        host = self.host("job-a", ranks=10)
        self.assertEqual(self.ask("signal", "USR1"), (0, "", ""))
        self.assertEqual(host.line(), "signal 10 to 0,1,2,3,4,5,6,7,8,9")
        self.assertEqual(self.ask("signal", "sigusr2", "job-a", "--ranks", "0,8-15"), (0, "", ""))
        self.assertEqual(host.line(), "signal 12 to 0,8,9")
        self.refused(1, "signal", "USR1", "--ranks", "99", names=["no such rank"])

    def test_shows_logs(self):
        host = self.host("job-a")
        host.write("loss 0.5")
        host.write("loss 0.4")
        wait_for(lambda: "loss 0.4" in self.ask("logs")[1], "the lines have arrived")
        self.assertEqual(self.ask("logs", "-n", "1"), (0, "[0] loss 0.4\n[1] loss 0.4\n", ""))
        self.assertEqual(self.ask("logs", "--ranks", "1", "-n", "2"), (0, "loss 0.5\nloss 0.4\n", ""))
        self.assertEqual(self.ask("logs", "-n", "0"), (0, "", ""))
        logs = json.loads(self.ask("logs", "--json", "--ranks", "0")[1])["logs"]
        self.assertEqual(logs, [{"rank": 0, "text": "rank 0 begins\nloss 0.5\nloss 0.4\n", "position": 32}])

    def test_says_that_it_could_not_print(self):
        self.host("job-a")
        with open("/dev/full", "w", encoding="utf-8") as full:
            for args in (), ("status",), ("--help",):
                done = subprocess.run([MUSTERCTL, *args], env=self.env, stdout=full, stderr=subprocess.PIPE, text=True,
                                      timeout=60, check=False)
                self.assertEqual((done.returncode, done.stderr), (1, "musterctl: cannot write all of it to standard output\n"))

    def test_shows_stacks(self):
        self.host("job-a", ranks=3)
        late = "  rank 0 (pid 4710): read ← load (train.py:88)\n"
        self.assertEqual(self.ask("stacks"), (0, late + "  2 ranks (1-2): read ← step (train.py:88)\n", ""))
        self.assertEqual(self.ask("stacks", "job-a", "-a", "--ranks", "0"),
                         (0, late + "    thread 4710 (main)\n      read\n      load (train.py:88)\n", ""))
        code, out, _ = self.ask("stacks", "--json")
        self.assertEqual(code, 0)
        self.assertEqual([s["threads"][0]["frames"][1]["function"] for s in json.loads(out)["stacks"]][1:], ["step"] * 2)
        self.refused(2, "stacks", "--ranks", "x", names=["--ranks"])
        self.refused(2, "stacks", "-n", "3", names=["-n"])

    def test_shows_records(self):
        self.host("job-a", ranks=3)
        lines = ["rank 0 (pid 4710): in barrier #3 of group 'w'", "rank 1 (pid 4711): no recorder attached",
                 "rank 2 (pid 4712): no recorder attached"]
        self.assertEqual(self.ask("records"), (0, "\n".join(lines) + "\n", ""))
        self.assertEqual(self.ask("records", "job-a", "--ranks", "1-2"), (0, "\n".join(lines[1:]) + "\n", ""))
        code, out, err = self.ask("records", "-n", "2", "--ranks", "0")
        self.assertEqual((code, err), (0, ""))
        self.assertEqual([line.split() for line in out.splitlines()[2:]],
                         [["#2", "world", "barrier", "18.0", "s", "ago", "complete"],
                          ["#3", "world", "barrier", "12.0", "s", "ago", "pending"]], out)
        code, out, _ = self.ask("records", "-n", "1", "--json")
        self.assertEqual((code, len(out.splitlines())), (0, 1))
        records = json.loads(out)["records"]
        self.assertEqual([r["rank"] for r in records], [0, 1, 2])
        self.assertEqual(records[0]["groups"][0]["called"], 3)
        self.assertEqual([(c["ordinal"], c["state"]) for c in records[0]["calls"]], [(3, "pending")])
        self.refused(2, "records", "-n", "4097", names=["--lines"])
        self.refused(2, "records", "--ranks", "x", names=["--ranks"])

    def test_top_shows_each_ranks_call(self):
        self.host("job-a", ranks=3)
        code, out, err = self.ask("top", "--once", "-i", "0.1")
        self.assertEqual((code, err), (0, ""))
        self.assertEqual([line.split() for line in out.splitlines()[3:]],
                         [["0", "0", "-", "12.0", "s", "in", "barrier", "#3", "of", "group", "'world'"],
                          ["1-2", "-", "-", "-", "no", "recorder", "attached"]])
        self.refused(2, "top", "-i", "0", names=["--interval"])
        self.refused(2, "top", "--ranks", "x", names=["--ranks"])

    def test_a_node_that_does_not_answer_costs_a_line_and_exit_code_1(self):
        host = self.host("job-a", ranks=3)
        host.write("silent")
        wait_for(lambda: self.ask("records")[0] == 1, "the line has arrived")
        for command in "records", "stacks":
            code, out, err = self.ask(command, "--ranks", "0-4")
            self.assertEqual((code, err), (1, "musterctl: node-b (ranks 3-4): no answer within 2 s\n"))
            self.assertIn("(pid 4710)", out)
            code, out, err = self.ask(command, "--json")
            self.assertEqual((code, err), (1, "musterctl: node-b (ranks 3-4): no answer within 2 s\n"))
            answer = json.loads(out)
            self.assertEqual([r["rank"] for r in answer[command]], [0, 1, 2])
            self.assertEqual([line.partition("(")[2] for line in answer["unanswered"]], ["ranks 3-4): no answer within 2 s"])

    def test_follows_logs_until_the_job_ends(self):
        host = self.host("job-a", ranks=1)
        with subprocess.Popen([MUSTERCTL, "logs", "-f", "-n", "0", "--ranks", "0"], env=self.env, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE) as follower:
            limit = threading.Timer(60, follower.kill)
            limit.start()
            # The line is repeated, since the follower may begin late.
            stop = threading.Event()

            def write():
                while not stop.wait(0.05):
                    host.write("step")

            writer = threading.Thread(target=write)
            writer.start()
            self.assertEqual(follower.stdout.readline(), "step\n")
            self.assertEqual(follower.stdout.readline(), "step\n")
            stop.set()
            writer.join()
            host.end()
            self.assertEqual(follower.wait(60), 0)
            self.assertEqual(follower.stderr.read(), "")
            limit.cancel()

    def test_a_killed_job_is_not_shown(self):
        host = self.host("job-a")
        self.assertEqual(sorted(os.listdir(self.folder)), [f"{host.pid}.json", f"{host.pid}.sock"])
        host.kill()
        self.assertTrue(is_gone(host.pid))
        self.assertEqual(self.ask(), (0, "no job of yours is running on this machine\n", ""))
        self.assertEqual(os.listdir(self.folder), [])

    def test_a_job_that_ends_leaves_no_file(self):
        self.host("job-a").end()
        self.assertEqual(os.listdir(self.folder), [])

    def test_a_stuck_job_is_named(self):
        host = self.host("job-a")
        host.write("stuck")
        wait_for(lambda: self.ask("logs")[0] == 1, "the job is stuck", 60)
        self.refused(1, "logs", names=["stuck"])
        self.assertEqual(self.ask("status")[0], 0)

    def test_files_are_private_to_the_user(self):
        host = self.host("job-a")
        for path, mode in (self.folder, 0o700), (f"{self.folder}/{host.pid}.sock", 0o600), \
                          (f"{self.folder}/{host.pid}.json", 0o600):
            self.assertEqual(os.stat(path).st_mode & 0o777, mode, path)

    def test_a_folder_that_is_a_link_is_not_used(self):
        elsewhere = tempfile.TemporaryDirectory(prefix="mctl")
        self.addCleanup(elsewhere.cleanup)
        os.symlink(elsewhere.name, self.folder)
        done = subprocess.run([HOST, "job-a"], env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, check=False, timeout=60)
        self.assertEqual(done.returncode, 1)
        self.assertIn("it is not a real folder", done.stderr)
        self.assertEqual(os.listdir(elsewhere.name), [])


if __name__ == "__main__":
    require_programs(MUSTERCTL=MUSTERCTL, MUSTERCTL_HOST=HOST)
    run_tests()
