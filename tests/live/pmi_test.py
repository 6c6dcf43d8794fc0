"""Rank 0's address from the PMI of a real mpirun and mpiexec, and an agent's errors if PMI does not give it.

`muster --internal-pmi TEXT` asks; pmi_query is what an agent does, with the child and its time limit.
"""
import glob
import json
import os
import shutil
import socket
import subprocess
import sys

from engines_test import HYDRA, OPEN_MPI, run
from harness import MUSTER, LiveTest, main

QUERY = os.environ.get("MUSTER_PMI_QUERY", "")
RANK = '"$OMPI_COMM_WORLD_RANK$PMI_RANK"'
# Each rank has a text of its own, with characters that PMI-1 cannot carry.
ASK = f'exec {MUSTER} --internal-pmi "rank "{RANK}" = $(hostname);"'
ASK_AS_AGENT = f'exec {QUERY} "rank "{RANK}" = $(hostname);" 60'
LIBPMIX = glob.glob("/usr/lib/*/pmix2/lib")


class PmiTest(LiveTest):
    def answers(self, result, size):
        """Checks that every process has rank 0's text and the same job id. Returns the id."""
        code, out, err = result
        self.assertEqual((code, err), (0, ""))
        answers = sorted((json.loads(line) for line in out.splitlines()), key=lambda answer: answer["rank"])
        job = answers[0]["job"]
        self.assertEqual(answers, [{"host": f"rank 0 = {os.uname().nodename};", "job": job, "rank": r, "size": size} for r in range(size)])
        return job


class OneMachine(PmiTest):
    def check(self, command):
        jobs = set()
        for program in (ASK, ASK_AS_AGENT):
            jobs.add(self.answers(run([*command, "-np", 3], "sh", "-c", program), 3))
        self.assertEqual(len(jobs), 2)  # Each launch has an id of its own.

    def test_open_mpi_gives_rank_0s_text_to_all(self):
        self.check(OPEN_MPI)

    def test_hydra_gives_rank_0s_text_to_all(self):
        self.check(HYDRA)

    def test_the_longest_text_arrives_whole(self):
        text = "0123456789" * 100
        for command in (OPEN_MPI, HYDRA):
            # Output goes to files: mpirun forwards pieces of 1,024 bytes, and mixes those of two ranks.
            code, _, err = run([*command, "-np", 2], "sh", "-c", f"{MUSTER} --internal-pmi {text} > {self.path('of')}{RANK}")
            self.assertEqual((code, err), (0, ""))
            for rank in (0, 1):
                self.assertEqual(json.loads(self.read(f"of{rank}"))["host"], text)

    def test_mpirun_within_mpiexec_is_asked(self):
        inner = " ".join([*OPEN_MPI, "-np", "1", "sh", "-c", f"'unset PMI_RANK; {ASK_AS_AGENT}'"])
        code, out, err = run([*HYDRA, "-np", 1], "sh", "-c", inner)
        self.assertEqual(code, 0, err)
        self.assertEqual(json.loads(out)["size"], 1)
        self.assertNotIn("kvs_", json.loads(out)["job"])

    def test_the_descriptor_stays_open_in_the_agent_and_reaches_no_worker(self):
        worker = 'readlink /proc/$PPID/fd/$FD; [ -e /proc/$$/fd/$FD ] || echo "not here"'
        code, out, err = run([*HYDRA, "-np", 1], "sh", "-c", f"FD=$PMI_FD exec {MUSTER} --no-python sh -c '{worker}'")
        self.assertEqual(code, 0, err)
        self.assertRegex(out, r"^socket:\[\d+\]\nnot here\n$")

    def test_a_missing_libpmix_is_named(self):
        if not LIBPMIX or os.geteuid() != 0:
            self.skipTest("libpmix is not where Debian has it, or this is not root")
        hidden = f"mount -t tmpfs none {LIBPMIX[0]} && exec {MUSTER} --internal-pmi text"
        code, out, _ = run([*OPEN_MPI, "-np", 1], "unshare", "-m", "sh", "-c", hidden)
        self.assertEqual(code, 122)
        self.assertEqual(json.loads(out), {"error": "asking PMIx for rank 0's address failed: there is no libpmix.so.2; install it "
                                           "(Debian: libpmix2), or name its folder in LD_LIBRARY_PATH"})


class NoAnswer(PmiTest):
    """A missing or broken PMI, for which every program prints one clear sentence."""

    def ask(self, command, fd=None, answer=None, **variables):
        """`fd`: a socket to inherit. `answer`: called once the program runs, to reply over it."""
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("PMI", "OMPI"))}
        if fd is not None:
            variables = {"PMI_FD": fd, "PMI_RANK": 0, "PMI_SIZE": 2, **variables}
        environment.update({k: str(v) for k, v in variables.items()})
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
                                   pass_fds=[] if fd is None else [fd])
        if answer is not None:
            answer()
        out, err = process.communicate(timeout=60)
        self.assertEqual((err, len(out.splitlines())), ("", 1))
        return json.loads(out)["error"]

    def ask_both(self, expected, **options):
        for command in ([MUSTER, "--internal-pmi", "text"], [QUERY, "text", "60"]):
            self.assertEqual(self.ask(command, **options), expected)

    def ask_over(self, answer):
        """Returns the error of both programs if the first request gets this answer: bytes, or None to close the socket."""
        errors = set()
        for command in ([MUSTER, "--internal-pmi", "text"], [QUERY, "text", "60"]):
            ours, theirs = socket.socketpair()
            with ours, theirs:
                fd = theirs.fileno()

                def reply(ours=ours, theirs=theirs):
                    theirs.close()
                    self.assertEqual(ours.recv(1000), b"cmd=init pmi_version=1 pmi_subversion=1\n")
                    if answer:
                        ours.sendall(answer)
                    ours.shutdown(socket.SHUT_WR)

                errors.add(self.ask(command, fd, reply).replace(f"descriptor {fd}", "descriptor N"))
        self.assertEqual(len(errors), 1, errors)
        return errors.pop()

    def test_the_absence_of_pmi_is_named(self):
        self.ask_both("there is no PMI to ask for rank 0's address: neither PMI_FD nor PMIX_NAMESPACE is set")

    def test_a_closed_socket_is_named(self):
        closed = "is no open socket: a program between mpiexec and muster may have closed it"
        # The agent itself has opened sockets with the first two of these numbers by then.
        for number in (3, 4, 1, 999, -1, "six", 99999999999):
            self.ask_both(f"PMI_FD={number} {closed}", PMI_FD=number, PMI_RANK=0, PMI_SIZE=1)
        self.assertEqual(self.ask_over(None), "talking to PMI over descriptor N failed: the other side has closed it")

    def test_garbage_is_quoted(self):
        self.assertEqual(self.ask_over(b"HTTP/1.1 400 Bad\x1b Request\r\n\r\n"),
                         'PMI\'s answer to cmd=init is "HTTP/1.1 400 Bad? Request?"')
        self.assertEqual(self.ask_over(b"x" * 10_000), "talking to PMI over descriptor N failed: what comes from there is no PMI-1")
        self.assertEqual(self.ask_over(b"\n"), 'PMI\'s answer to cmd=init is ""')

    def test_silence_is_named_after_the_time_limit(self):
        ours, theirs = socket.socketpair()
        with ours, theirs:
            self.assertEqual(self.ask([QUERY, "text", "1"], theirs.fileno()),
                             "PMI did not tell rank 0's address within 1.0 s: it does so once every process of this launch has "
                             "asked, and each must be a muster")

    def test_a_process_that_does_not_ask_makes_the_others_give_up(self):
        for command in (OPEN_MPI, HYDRA):
            ranks = f"[ {RANK} = 1 ] && exec tail -f /dev/null; exec {QUERY} text 1"
            with subprocess.Popen([*command, "-np", "2", "sh", "-c", ranks], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.DEVNULL, text=True) as process:
                line = process.stdout.readline()
                process.terminate()
                self.assertIn("once every process of this launch has asked", json.loads(line)["error"])

    def test_a_missing_rank_is_named(self):
        ours, theirs = socket.socketpair()
        with ours, theirs:
            self.ask_both("PMI_FD is set without PMI_RANK and PMI_SIZE as numbers", fd=theirs.fileno(), PMI_RANK="x")

    def test_a_dead_pmix_server_is_named(self):
        error = self.ask([QUERY, "text", "60"], PMIX_NAMESPACE="1", PMIX_RANK="0", PMIX_SERVER_URI2="1.0;tcp4://127.0.0.1:1")
        self.assertRegex(error, r"^asking PMIx for rank 0's address failed: PMIx_Init: .* \(-\d+\)$")

    def test_an_invalid_text_is_refused(self):
        for text in ("", "x" * 1001):
            self.assertEqual(self.ask([MUSTER, "--internal-pmi", text]),
                             "the text for PMI is empty, longer than 1000 bytes or not UTF-8")


if __name__ == "__main__":
    for wanted in (OPEN_MPI[0], HYDRA[0]):
        if not shutil.which(wanted):
            print(f"SKIPPED: there is no {wanted} (Debian: openmpi-bin, mpich)", file=sys.stderr)
            sys.exit(77)
    main()
