"""Healthy waits get no verdict and end no job, whatever --on-hang says: rank 0 polls, asks a server, runs a child, computes,
or has a user who types, while the others wait for it."""
import contextlib
import glob
import json
import os
import socketserver
import threading
import time

from harness import LONG, Job, LiveTest, main, pause, wait_for

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "programs", "healthy_waits.py")
PYTHON = os.path.join(os.environ.get("MUSTER_TORCH_VENV", ""), "bin", "python")
SCENES = ["poll_a_file", "poll_a_server", "ask_a_server", "watch_a_server", "download", "serve", "run_a_child",
          "read_from_a_child", "ask_by_a_child", "ask_a_child_by_a_socket", "run_a_child_that_asks_another", "evaluate", "save_in_a_thread", "take_turns",
          "load_slowly"]
TYPED = ["prompt", "debug"]
ACTIONS = ["stop", "restart", "auto", "report"]
AT_ONCE = 6
LIMIT_S = 300


class Server(socketserver.ThreadingTCPServer):
    """Outside of the job. "answer 3" is answered after 3 s, "trickle 3" with a few bytes twice a second, for 3 s."""
    daemon_threads = True

    class RequestHandlerClass(socketserver.StreamRequestHandler):
        def handle(self):
            what, seconds = self.rfile.readline().split()
            end = time.monotonic() + float(seconds)
            with contextlib.suppress(OSError):
                while time.monotonic() < end:
                    pause(0.5, "a slow server")
                    if what == b"trickle":
                        self.wfile.write(b"some bytes")
                self.wfile.write(b"done")

    def __init__(self):
        super().__init__(("127.0.0.1", 0), self.RequestHandlerClass)


class HealthyWaits(LiveTest):
    def setUp(self):
        super().setUp()
        self.server = Server()
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)

    def start(self, number, seconds, scenes, action, stdin=None):
        limits = () if LONG else ("--hang-timeout", 1.2)
        env = {"SERVER": f"127.0.0.1:{self.server.server_address[1]}", "FOLDER": self.folder.name, "OMP_NUM_THREADS": "1"}
        options = {} if stdin is None else {"stdin": stdin}
        job = Job("--nproc-per-node", 3, "--on-hang", action, "--log-dir", self.path(f"logs{number}"), *limits,
                  "--python", PYTHON, PROGRAM, seconds, *scenes, env=env, **options)
        self.addCleanup(job.__exit__)
        return job

    def events(self, number):
        found = []
        for path in glob.glob(self.path(f"logs{number}/*/events.jsonl")):
            with open(path) as f:
                found += [json.loads(line) for line in f]
        return found

    def check(self, number, job, code):
        self.assertEqual(code, 0, job.stderr())
        self.assertEqual([e for e in self.events(number) if e["event"] in ("hang", "mismatch")], [], job.stderr())

    def test_have_no_verdict(self):
        """Six jobs at a time in the long run; in the gate one job plays all scenes, one after the other."""
        jobs = [(4, SCENES, "stop")]
        if LONG:
            jobs = [(30, [scene], action) for action in ACTIONS for scene in SCENES]
            jobs += [(seconds, [scene], "stop") for seconds in (60, 600) for scene in SCENES]
        for first in range(0, len(jobs), AT_ONCE):
            some = [(number, self.start(number, *jobs[number])) for number in range(first, min(first + AT_ONCE, len(jobs)))]
            for number, job in some:
                with self.subTest(jobs[number]):
                    self.check(number, job, job.wait(LIMIT_S + len(jobs[number][1]) * jobs[number][0]))
                    said = [e["text"] for e in self.events(number) if e["event"] == "waiting"]
                    self.assertGreaterEqual(len(said), len(jobs[number][1]), said)

    def test_are_for_a_user_where_rank_0_reads_what_a_user_types(self):
        for number, scene in enumerate(TYPED):
            with self.subTest(scene):
                reader, writer = os.pipe()
                job = self.start(number, 0, [scene], "stop", stdin=reader)
                os.close(reader)
                wait_for(lambda number=number: [e for e in self.events(number) if e["event"] == "waiting" and
                                                "is waiting for its user in " in e["text"]], "the notice", LIMIT_S)
                pause(2, "a verdict would follow after 0.2 s")
                os.write(writer, b"go on\n" if scene == "prompt" else b"continue\n")
                os.close(writer)
                self.check(number, job, job.wait(LIMIT_S))


if __name__ == "__main__":
    main()
