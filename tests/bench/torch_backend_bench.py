"""Compares the backend `muster` with gloo, from Python, in one run.

    torch_backend_bench.py [--ranks 2,4] [--nodes 1,2] [--runs 11] [--json FILE]

Needs PyTorch 2.14 or later and the wheel of muster-launch in the Python that runs it; for two nodes, which are network
namespaces with two ranks each, root and iproute2. All ranks are on this machine, with one thread each. A figure is the
median of the runs, with the smallest and the largest; the backends take turns in every run, and "times" is the median of
gloo's time / muster's in each of these pairs, with an interval that holds the true median with 95 %. A run is the mean of
many calls, as measured by rank 0; the others begin with it.
"""

import argparse
import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "live"))
import netns  # noqa: E402
import paired  # noqa: E402
import results  # noqa: E402
from bench import machine  # noqa: E402
from plots import byte_words  # noqa: E402
from ports import free_port  # noqa: E402

WARM_UP = 3
BACKENDS = ("muster", "gloo")
SECONDS = 0.02  # The approximate length of a run.
SIZES = (8, 64, 1024, 16 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20)
SIZES_OF_OTHERS = (8, 16 << 10, 1 << 20, 16 << 20)


def operations(torch, dist, world):
    """Yields (name, bytes of this rank's result, function that makes one call in a group), the largest last."""
    for size in SIZES:
        tensor = torch.zeros(size // 8, dtype=torch.float64)
        yield "all_reduce", size, lambda group, t=tensor: dist.all_reduce(t, group=group)
    tensor = torch.zeros(1, dtype=torch.float64)
    yield "all_reduce, async_op", 8, lambda group: dist.all_reduce(tensor, group=group, async_op=True).wait()
    yield "barrier", 0, lambda group: dist.barrier(group=group)
    for size in SIZES_OF_OTHERS:
        one = torch.zeros(size // 8, dtype=torch.float64)
        all_of_them = torch.zeros(world * len(one), dtype=torch.float64)
        parts = [torch.zeros_like(one) for _ in range(world)]
        yield "broadcast", size, lambda group, t=one: dist.broadcast(t, 0, group=group)
        yield "all_gather", size, lambda group, t=one, p=parts: dist.all_gather(p, t, group=group)
        yield "all_gather_single", size, lambda group, t=one, a=all_of_them: dist.all_gather_into_tensor(a, t, group=group)
        yield "reduce_scatter_single", size, lambda group, t=one, a=all_of_them: dist.reduce_scatter_tensor(t, a, group=group)
        yield "all_to_all_single", size, lambda group, a=all_of_them, b=all_of_them.clone(): dist.all_to_all_single(b, a, group=group)


def ddp_steps(torch, groups):
    """Yields (name, parameters, function that makes one step in a group)."""
    for name, width, layers, rows in (("DDP step, small", 64, 2, 32), ("DDP step, large", 1024, 4, 32)):
        torch.manual_seed(0)
        models = {}
        for group in groups:
            net = torch.nn.Sequential(*(torch.nn.Linear(width, width) for _ in range(layers)))
            model = torch.nn.parallel.DistributedDataParallel(net, process_group=group)
            models[group] = model, torch.optim.SGD(model.parameters(), lr=0.01)
        given = torch.randn(rows, width)

        def step(group, models=models, given=given):
            model, optimizer = models[group]
            optimizer.zero_grad()
            model(given).square().mean().backward()
            optimizer.step()

        yield name, 4 * sum(parameter.numel() for parameter in net.parameters()), step


def compare(dist, groups, call, runs):
    """Returns the microseconds of a call, by backend, of each run."""
    def run(group, count):
        dist.barrier(group=groups[0])
        began = time.perf_counter()
        for _ in range(count):
            call(group)
        return (time.perf_counter() - began) / count

    counts = []
    for group in groups:
        facts = [max(1, min(500, int(SECONDS / run(group, WARM_UP))))]
        dist.broadcast_object_list(facts, 0, group=groups[0])
        counts.append(facts[0])
    taken = [[], []]
    for _ in range(runs):
        for times, group, count in zip(taken, groups, counts):
            times.append(1e6 * run(group, count))
    return taken


def rank_main(runs):
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group(BACKENDS[0])
    groups = [dist.group.WORLD, dist.new_group(backend=BACKENDS[1])]
    rows = []
    for cases in (operations(torch, dist, dist.get_world_size()), ddp_steps(torch, groups)):
        for name, size, call in cases:
            row = {"operation": name, "bytes": size, "ranks": dist.get_world_size(), "nodes": int(os.environ["GROUP_WORLD_SIZE"])}
            row |= dict(zip(BACKENDS, compare(dist, groups, call, runs)))
            rows.append(row)
            if dist.get_rank() == 0:
                show(row)
    if dist.get_rank() == 0:
        print(json.dumps(rows), file=sys.stderr)
    dist.destroy_process_group()


def show(row):
    texts = [f"{statistics.median(row[backend]):,.1f} ({min(row[backend]):,.1f}–{max(row[backend]):,.1f})" for backend in BACKENDS]
    pairs = [gloo / muster for muster, gloo in zip(row["muster"], row["gloo"])]
    low, high = paired.interval(pairs)
    print(f"| {row['nodes']} | {row['ranks']} | {row['operation']} {byte_words(row['bytes']) if row['bytes'] else ''} | {texts[0]} | {texts[1]} | "
          f"{statistics.median(pairs):.1f} ({low:.1f}–{high:.1f}) |", flush=True)


def run_ranks(nodes, ranks, runs):
    """Starts ranks on one node, or half of them on another."""
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(netns.Cluster(nodes)) if nodes > 1 else None
        port = free_port()
        processes = []
        for rank in range(ranks):
            node = rank * nodes // ranks
            env = {"RANK": str(rank), "WORLD_SIZE": str(ranks), "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1",
                   "LOCAL_RANK": str(rank % (ranks // nodes)), "GROUP_WORLD_SIZE": str(nodes),
                   "MASTER_ADDR": cluster.address(1) if cluster else "127.0.0.1"}
            command = [sys.executable, "-W", "ignore", __file__, "--rank", "--runs", str(runs)]
            more = {"stderr": subprocess.PIPE if rank == 0 else None, "text": True}
            if cluster:
                processes.append(cluster.run(node + 1, command, env | {"GLOO_SOCKET_IFNAME": cluster.nic()}, **more))
            else:
                processes.append(subprocess.Popen(command, env=os.environ | env, **more))
        said = processes[0].communicate()[1]
        if any([process.wait() for process in processes]):
            sys.exit(said)
        return json.loads(said.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--nodes", default="1,2")
    parser.add_argument("--runs", type=int, default=11)
    parser.add_argument("--json")
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank:
        return rank_main(options.runs)
    layouts = [(nodes, ranks) for nodes in map(int, options.nodes.split(",")) for ranks in map(int, options.ranks.split(","))]
    if any(nodes > 1 for nodes, _ in layouts) and netns.missing():
        parser.error(f"{netns.missing()}: choose --nodes 1")
    print("| nodes | ranks | µs | muster | gloo | times |\n| --- | --- | --- | --- | --- | --- |")
    rows = [row for nodes, ranks in layouts for row in run_ranks(nodes, ranks, options.runs)]
    if options.json:
        keys = "operation", "bytes", "ranks", "nodes"
        results.store(options.json, machine(), options.runs, [
            (row[backend], {key: row[key] for key in keys} | {"peer": backend}) for row in rows for backend in BACKENDS])
    return 0


if __name__ == "__main__":
    sys.exit(main())
