"""Scenarios for what a worker is started with: sections 2.1 to 2.4."""

from scenario import Scenario, fail_after_all, probe, say, step

SHOW = [say("here")]

VARIABLES = [
    Scenario("2.1", "two workers", probe("--nproc-per-node", "2"), SHOW),
    Scenario(
        "2.1",
        "restarts are counted",
        probe("--nproc-per-node", "2", "--max-restarts", "2"),
        fail_after_all(2, 3, attempt=0) + fail_after_all(2, 4, rank=1, attempt=1) + SHOW,
    ),
    Scenario(
        "2.1",
        "what the user set",
        probe("--role", "judge"),
        SHOW,
        env={
            "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0",
            "TORCHELASTIC_TIMER_FILE": "/nowhere/timer",
            "CUDA_VISIBLE_DEVICES": "0,2",
            "LOGLEVEL": "ERROR",
            "RANK": "17",
            "TORCHELASTIC_RESTART_COUNT": "9",
            "WITH_NEWLINE": "a\nb",
            "EMPTY": "",
        },
    ),
    Scenario(
        "2.1",
        "no log folder, no error file",
        probe("--log-dir", "/dev/null"),
        SHOW,
    ),
    Scenario(
        "2.1",
        "the file timer",
        probe("--nproc-per-node", "2"),
        SHOW,
        env={"TORCHELASTIC_ENABLE_FILE_TIMER": "1", "TORCHELASTIC_TIMER_FILE": "@BASE@/timer"},
    ),
    Scenario(
        "2.1",
        "ignored signals, affinity and a log folder",
        probe("--log-dir", "@LOGS@", "--redirects", "3"),
        SHOW,
        ignored_signals=(10, 12, 13, 20),
        cores=(1,),
    ),
    Scenario(
        "2.1",
        "rank 0 reads stdin",
        probe("--nproc-per-node", "2"),
        [step("stdin", rank=0)],
        stdin="first\nsecond\n",
    ),
    Scenario(
        "2.1",
        "another rank reads stdin",
        probe("--nproc-per-node", "2"),
        [step("stdin", rank=1)],
        stdin="first\nsecond\n",
        muster={"stdout[0.1]": ["P|1|0|stdin ended\n"]},
    ),
]

RANKS = [
    Scenario("2.2", "four workers", probe("--nproc-per-node", "4"), SHOW),
    Scenario("2.2", "with a role", probe("--nproc-per-node", "3", "--role", "trainer"), SHOW),
    Scenario(
        "2.2",
        "identical workers",
        probe("--nproc-per-node", "2", "--role", "trainer"),
        SHOW,
        env={"TORCH_ELASTIC_WORKER_IDENTICAL": "1"},
    ),
    Scenario(
        "2.2",
        "the same ranks after a restart",
        probe("--nproc-per-node", "3", "--max-restarts", "1"),
        fail_after_all(3, 1, rank=2, attempt=0) + SHOW,
    ),
]

GLOO = """
import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.tensor([float(dist.get_rank() + 1)])
dist.all_reduce(total)
# One write, since under torchrun workers tear each other's lines.
os.write(1, f"P|{dist.get_rank()}|0|sum {total.item()} of {dist.get_world_size()}\\n".encode())
dist.destroy_process_group()
"""
FRESH_PORTS = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}

MASTER = [
    Scenario(
        "2.3",
        "without sharing the store, over a restart",
        probe("--nproc-per-node", "2", "--max-restarts", "1"),
        fail_after_all(2, 1, attempt=0) + [step("await_reports", count=2), step("bind", rank=0)],
        env=FRESH_PORTS,
    ),
    Scenario(
        "2.3",
        "sharing it, over a restart",
        probe("--nproc-per-node", "2", "--max-restarts", "1"),
        fail_after_all(2, 1, attempt=0) + SHOW,
    ),
    Scenario(
        "2.3",
        "who can bind it",
        probe("--nproc-per-node", "1"),
        [step("bind", rank=0)],
    ),
    Scenario(
        "2.3",
        "static over a restart",
        probe("--nproc-per-node", "2", "--max-restarts", "1", "--master-addr", "localhost", "--master-port", "@PORT@"),
        fail_after_all(2, 1, attempt=0) + SHOW,
    ),
    Scenario(
        "2.3",
        "a local address",
        probe("--nproc-per-node", "2", "--local-addr", "127.0.0.1"),
        SHOW,
    ),
    Scenario(
        "2.3",
        "PyTorch meets there",
        ["--nproc-per-node", "2", "gloo.py"],
        files={"gloo.py": GLOO},
        env={"OMP_NUM_THREADS": "1"},
        muster={"exit": 0, "stdout[0.1]": ["P|1|0|sum 3.0 of 2\n"]},
        timeout=120,
    ),
]


def virtual(name, devices, workers=2, **more):
    env = {} if devices is None else {"CUDA_VISIBLE_DEVICES": devices}
    return Scenario(
        "2.4", name, probe("--virtual-local-rank", "--nproc-per-node", str(workers)), SHOW, env=env, **more
    )


VIRTUAL = [
    virtual("no list", None),
    virtual("a list", "0,1"),
    virtual("a list with spaces and room", " 3 , 5 ,7"),
    virtual("names of devices", "GPU-abc,MIG-def"),
    virtual("an empty list and one worker", "", workers=1),
    virtual("a list too short", "0", rejected=121),
    Scenario(
        "2.4",
        "HIP has the list",
        probe("--virtual-local-rank", "--nproc-per-node", "2"),
        SHOW,
        env={"HIP_VISIBLE_DEVICES": "4,6", "CUDA_VISIBLE_DEVICES": "0,1"},
    ),
]

SCENARIOS = VARIABLES + RANKS + MASTER + VIRTUAL
