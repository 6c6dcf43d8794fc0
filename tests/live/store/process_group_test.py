"""PyTorch's process groups meet through our store, as workers do whose launcher serves it.

4 ranks of gloo, by env:// and TORCHELASTIC_USE_AGENT_STORE=True, in each way that PyTorch uses the store: eager and lazy
connections, gloo's one-shot exchange, a store barrier after the start, the debug wrapper. Each does collectives,
subgroups, a monitored barrier and steps of data-parallel training.
"""

import json
import os
import pathlib
import subprocess
import sys
import time
import unittest

import serving

serving.need_torch()
serving.choose_server()

WORLD = 4
LIMIT_S = 300
RANKS = pathlib.Path(__file__).resolve().parent / "gloo_ranks.py"

WAYS = {  # ./dev long runs all of them.
    "eager": {},
    "with a barrier after the start": {"TORCH_DIST_INIT_BARRIER": "1"},
    "one-shot exchange": {"GLOO_ENABLE_STORE_V2_API": "1"},
    "lazy": {"TORCH_GLOO_LAZY_INIT": "1"},
    "debug wrapper": {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"},
}


def start(port, way, without_last=False):
    environment = os.environ | WAYS[way]
    environment |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "TORCHELASTIC_USE_AGENT_STORE": "True"}
    environment |= {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    command = [sys.executable, str(RANKS), str(WORLD), "1" if without_last else "0"]
    return subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


class ProcessGroups(unittest.TestCase):
    def run_all(self, ways, without_last=False):
        """Runs each way against its own server, all at the same time. Returns {way: results by rank}."""
        servers = {way: serving.start_server() for way in ways}
        self.addCleanup(lambda: [server.stop() for server in servers.values()])
        began = time.monotonic()
        jobs = {way: start(server.port, way, without_last) for way, server in servers.items()}
        results = {}
        for way, job in jobs.items():
            try:
                out, error = job.communicate(timeout=LIMIT_S)
            except subprocess.TimeoutExpired:
                job.kill()
                out, error = job.communicate()
                error += f"\nnot done after {LIMIT_S} s"
            self.assertEqual(job.returncode, 0, f"{way}: {error[-3000:]}")
            results[way] = sorted((json.loads(line) for line in out.splitlines()), key=lambda one: one["rank"])
        print(f"{len(jobs)} jobs of {WORLD} ranks in {time.monotonic() - began:.1f} s", file=sys.stderr)
        return results, servers

    def test_every_way_to_meet_works(self):
        results, servers = self.run_all(WAYS if os.environ.get("MUSTER_LONG") else ["eager", "lazy"])
        for way, ranks in results.items():
            with self.subTest(way):
                weights = ranks[0]["weights"]
                everybody = [f"rank {rank}" for rank in range(WORLD)]
                wanted = [
                    {"rank": rank, "sum": 10, "part": (2, 4)[rank % 2], "objects": everybody, "weights": weights}
                    for rank in range(WORLD)
                ]
                self.assertEqual(ranks, wanted)
                self.assertEqual(self.ranks_seen_by(servers[way]), b"4")

    def ranks_seen_by(self, server):
        """Returns the store's own count: proof that the ranks met there and nowhere else."""
        with serving.RawClient(server.port) as line:
            length = int.from_bytes(line.ask(serving.request(serving.GET, b"init/"), 8), "little")
            return line.hear(length)

    def test_a_monitored_barrier_names_the_missing_rank(self):
        results, _ = self.run_all(["eager"], without_last=True)
        for way, ranks in results.items():
            with self.subTest(way):
                self.assertIn(f"Ranks {WORLD - 1} failed to pass monitoredBarrier", ranks[0]["missing"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
