#!/usr/bin/env python3
"""All that only a GPU can show, in the order of its value, within minutes and without a network:

    gpu.py --build FOLDER --out FOLDER [--parts WORD,...] [--stand-ins FOLDER] [--list]

Each part has a deadline of its own and leaves a log; at the end there is one table (table.md, too). --build names the
folder of a build, or one with its programs (`./dev gpu` collects them).
--parts takes the parts whose names contain one of the words. Exits with 1 if one does not hold.

Ranks that share a GPU are hosts of their own to NCCL. Where speed counts and there are several of them, they share it through
NVIDIA's Multi-Process Service, since else the GPU takes milliseconds to change between processes.

--stand-ins: for machines without a GPU: the folder has stand-ins of the driver and of NCCL, with which the programs run as a
single rank; PyTorch programs run on gloo, without those that only a GPU can make fail.
"""
import argparse
import ctypes
import glob
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TORCH = os.path.join(HERE, "torch_gpu.py")
PARTS = []


class Failed(Exception):
    """A part does not hold, and why."""


class Missing(Exception):
    """What this machine lacks for a part."""


def part(limit_s, on_stand_ins=True):
    def note(function):
        PARTS.append((function.__name__, limit_s, function, on_stand_ins))
        return function

    return note


def expect(condition, why):
    if not condition:
        raise Failed(why)


def spread(values):
    ordered = sorted(values)
    return f"{ordered[len(ordered) // 2]:.4g} ({ordered[0]:.4g} to {ordered[-1]:.4g})"


class Result:
    def __init__(self, code, text):
        self.code, self.text = code, text

    def find(self, pattern):
        found = re.search(pattern, self.text, re.M)
        expect(found, f"nothing like {pattern!r} was said (exit code {self.code})")
        return found

    def count(self, pattern):
        return len(re.findall(pattern, self.text, re.M))


class Gpu:
    """One run: where things are, and how programs are started."""

    def __init__(self, options):
        self.build, self.out, self.stand_ins = map(lambda p: p and os.path.abspath(p),
                                                   (options.build, options.out, options.stand_ins))
        self.scratch = tempfile.mkdtemp(prefix="gpu-")
        self.mps = None
        self.deadline = 0
        self.log = None
        venv = os.environ.get("MUSTER_TORCH_VENV")
        self.python = f"{venv}/bin/python" if venv else shutil.which("python3")
        self.has_torch = subprocess.run([self.python, "-c", "import torch"], capture_output=True).returncode == 0
        self.nccl = os.environ.get("MUSTER_NCCL_LIBRARY") or self.find_nccl()
        libraries = [self.build, f"{self.build}/worker_lib", os.environ.get("LD_LIBRARY_PATH")]
        self.env = {**os.environ, "LD_LIBRARY_PATH": ":".join(filter(None, libraries)), "PYTHONUNBUFFERED": "1"}
        if self.stand_ins:
            self.env["MUSTER_CUDA_LIBRARY"] = self.env["MUSTER_NCCL_LIBRARY"] = f"{self.stand_ins}/libfake_gpu.so"
            self.env["LD_LIBRARY_PATH"] += f":{self.stand_ins}/fake_nvml"
        self.worlds = (1,) if self.stand_ins else (1, 2, 4)

    def find_nccl(self):
        """PyTorch's own, so that its programs and ours use the same."""
        script = "import nvidia.nccl as n; print(list(n.__path__)[0])"
        found = subprocess.run([self.python, "-c", script], capture_output=True, text=True)
        return f"{found.stdout.strip()}/lib/libnccl.so.2" if found.returncode == 0 else None

    def path(self, name):
        """In a build's folders, or in a folder with everything."""
        return next((p for p in (f"{self.build}/{name}", f"{self.build}/tests/{name}") if os.path.isfile(p)), f"{self.build}/{name}")

    def run(self, *command, limit_s=None, mps=False, **env):
        """Its output goes to the part's log as well. A command that outlives its limit is stopped, with its processes."""
        left = self.deadline - time.monotonic()
        full = {**self.env, **{key: str(value) for key, value in env.items()}}
        if mps and self.mps:
            full.update(self.mps)
        with tempfile.TemporaryFile() as output:
            begun = time.monotonic()
            process = subprocess.Popen(list(map(str, command)), stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                                       env=full, cwd=self.scratch, start_new_session=True)
            try:
                code = process.wait(max(1, min(left, limit_s or left)))
            except subprocess.TimeoutExpired:
                code = None
            finally:
                if process.poll() is None:
                    self.stop(process)
            output.seek(0)
            text = output.read().decode(errors="replace")
        took = time.monotonic() - begun
        self.log.write(f"\n$ {' '.join(map(str, command))}  # {env}\n{text}\n# exit code {code} after {took:.1f} s\n")
        if code is None:
            raise Failed(f"{os.path.basename(str(command[0]))} {' '.join(map(str, command[-2:]))} did not end in {took:.0f} s")
        return Result(code, text)

    @staticmethod
    def stop(process):
        for number, patience in ((signal.SIGTERM, 5), (signal.SIGKILL, 5)):
            try:
                os.killpg(process.pid, number)
                process.wait(patience)
                return
            except (ProcessLookupError, subprocess.TimeoutExpired):
                continue

    def muster(self, ranks, *program, flags=(), **options):
        return self.run(self.path("muster"), "--nproc-per-node", ranks, *flags, "--no-python", *program, **options)

    def ours(self, ranks, *program, **options):
        """A program of the worker library."""
        if self.nccl and not self.stand_ins:
            options["MUSTER_NCCL_LIBRARY"] = self.nccl
        return self.muster(ranks, self.path(program[0]), *program[1:], **options)

    def torch(self, *words, ranks=2, flags=(), **options):
        if not self.has_torch:
            raise Missing(f"{self.python} has no torch")
        if self.stand_ins:
            options["CUDA_VISIBLE_DEVICES"] = ""
        return self.muster(ranks, self.python, TORCH, *words, flags=flags, **options)

    def torchrun(self, *words, ranks=2):
        return self.run(self.python, "-m", "torch.distributed.run", "--nproc-per-node", ranks, TORCH, *words,
                        **({"CUDA_VISIBLE_DEVICES": ""} if self.stand_ins else {}))

    def verdict(self, *words, flags=(), **options):
        """The result.json of a PyTorch program that fails."""
        folder = tempfile.mkdtemp(dir=self.scratch)
        result = self.torch(*words, flags=(*flags, "--gpus", "0", "--log-dir", folder), **options)
        (path,) = glob.glob(f"{folder}/*/result.json")
        with open(path) as file:
            verdict = json.load(file)
        self.log.write(f"{json.dumps(verdict, indent=1)}\n")
        return result, verdict

    def smi(self, fields, what="gpu"):
        if not shutil.which("nvidia-smi"):
            raise Missing("nvidia-smi")
        result = self.run("nvidia-smi", f"--query-{what}={fields}", "--format=csv,noheader,nounits")
        return [re.split(r",\s*", line) for line in result.text.strip().splitlines()]

    def start_mps(self):
        control = shutil.which("nvidia-cuda-mps-control")
        if not control or self.stand_ins:
            return
        self.mps = {name: tempfile.mkdtemp(prefix="mps-", dir=self.scratch)
                    for name in ("CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY")}
        started = subprocess.run([control, "-d"], env={**os.environ, **self.mps}, capture_output=True)
        if started.returncode != 0:
            self.mps = None

    def stop_mps(self):
        if self.mps:
            subprocess.run(["nvidia-cuda-mps-control"], input=b"quit\n", env={**os.environ, **self.mps}, capture_output=True)
            self.mps = None


# ---- what there is

@part(60)
def machine(gpu):
    """GPU, driver, NCCL, PyTorch."""
    facts = []
    if shutil.which("nvidia-smi"):
        facts += [f"{name}, driver {driver}" for name, driver in gpu.smi("name,driver_version")]
    if gpu.nccl and os.path.exists(gpu.nccl):
        version = ctypes.c_int()
        ctypes.CDLL(gpu.nccl).ncclGetVersion(ctypes.byref(version))
        facts.append(f"NCCL {version.value // 10000}.{version.value // 100 % 100}.{version.value % 100}")
    if gpu.has_torch:
        facts.append(gpu.run(gpu.python, "-c", "import torch; print('PyTorch', torch.__version__)").text.strip())
    gpu.start_mps()
    facts.append("MPS" if gpu.mps else "no MPS")
    gpu.stop_mps()
    return "; ".join(facts)


@part(30)
def devices(gpu):
    """Devices, UUIDs, bus ids, order and MIG are those of nvidia-smi."""
    ours = json.loads(gpu.run(gpu.path("muster"), "--internal-devices", FAKE_NVML=fake_machine(gpu)).text)
    if gpu.stand_ins:
        expect(len(ours["gpus"]) == 1, "the stand-in has one")
        return f"{len(ours['gpus'])} GPU of the stand-in"
    theirs = gpu.smi("index,uuid,pci.bus_id,name,mig.mode.current")
    mine = [(str(g["index"]), g["uuid"], g["pci"], g["name"]) for g in ours["gpus"]]
    smi = sorted(((i, u, b.lower().removeprefix("0000"), n) for i, u, b, n, _ in theirs), key=lambda g: g[2])
    expect(mine == smi, f"{mine} and nvidia-smi {smi}")
    migs = [g["mig_enabled"] for g in ours["gpus"]]
    expect(migs == [row[4] == "Enabled" for row in sorted(theirs, key=lambda row: row[2])], f"MIG: {migs} and {theirs}")
    return f"{len(mine)} GPU: {mine[0][3]}, {mine[0][1]}, {mine[0][2]}, MIG {theirs[0][4]}"


def fake_machine(gpu):
    if not gpu.stand_ins:
        return ""
    path = os.path.join(gpu.scratch, "machine")
    with open(path, "w") as file:
        file.write("gpu 00000000:3B:00.0 GPU-aaaa1111-0000-0000-0000-000000000000 NVIDIA Test\n")
    return path


@part(60)
def visible_devices(gpu):
    """CUDA_VISIBLE_DEVICES in each form: as many workers as CUDA sees devices there."""
    (index, uuid), *_ = gpu.smi("index,uuid") if not gpu.stand_ins else [("0", "GPU-aaaa1111-0000-0000-0000-000000000000")]
    script = ("import ctypes; c = ctypes.CDLL('libcuda.so.1'); n = ctypes.c_int(); c.cuInit(0); c.cuDeviceGetCount(ctypes.byref(n)); "
              "print('sees', n.value)")
    forms = [None, index, uuid, uuid[:12], uuid[:8], f"{index},{index}", f"{index},99", "99", "-1", "", f"{index},-1", f" {index}",
             f"{index},{uuid}", f"{uuid},{index}", "NoDevFiles", "MIG-no-such-slice", uuid.lower()]
    said = []
    for form in forms:
        env = {"FAKE_NVML": fake_machine(gpu), **({} if form is None else {"CUDA_VISIBLE_DEVICES": form})}
        result = gpu.muster("gpu", "sh", "-c", "echo worker $LOCAL_RANK", **env)
        workers = result.count(r"^worker \d+$") if result.code == 0 else 0
        sees = int(form in (None, index, uuid, uuid[:12], uuid[:8], f"{index},99", f"{index},-1", f" {index}",
                            f"{index},{uuid}", f"{uuid},{index}")) if gpu.stand_ins else int(gpu.run(gpu.python, "-c", script, **env).find(r"sees (-?\d+)")[1])
        if workers != sees:
            said.append(f"{form!r}: {workers} workers, and CUDA sees {sees}")
    expect(not said, "; ".join(said))
    return f"{len(forms)} forms"


@part(60)
def exclusive(gpu):
    """--gpu-binding exclusive with 1 to 4 workers on one GPU; the table of bindings names it and its NUMA node."""
    uuid = gpu.smi("uuid")[0][0] if not gpu.stand_ins else "GPU-aaaa1111"
    flags, env = ("--gpus", "0", "--gpu-binding", "exclusive", "--report-bindings"), {"FAKE_NVML": fake_machine(gpu)}
    one = gpu.muster(1, "sh", "-c", "echo sees $CUDA_VISIBLE_DEVICES", flags=flags, **env)
    expect(one.code == 0 and one.count(r"^sees 0$") == 1, f"one worker: exit code {one.code}")
    row = one.find(rf"^0 +GPU 0 \({uuid[:12]}[^)]*\) +(\S+) +(.*)$")
    for ranks in (2, 3, 4):
        more = gpu.muster(ranks, "true", flags=flags, **env)
        expect(more.code == 121 and len(more.text.strip().splitlines()) == 1, f"{ranks} workers: exit code {more.code}, {more.text}")
    return f"NUMA node {row[1]}, cores {row[2]}; of 2 to 4 it says: {more.text.strip()}"


@part(60, on_stand_ins=False)
def no_context(gpu):
    """The launcher makes no CUDA context: the driver sees no process and no memory in use while a job runs."""
    query = ["nvidia-smi", "-i", "0", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    before = gpu.run(*query).text.strip()
    result = gpu.muster(1, "sh", "-c", f"{' '.join(query)}; nvidia-smi --query-compute-apps=pid --format=csv,noheader",
                        flags=("--gpus", "0", "--gpu-binding", "exclusive", "--report-bindings", "--max-restarts", "1"))
    inside = result.text.strip().splitlines()[-1]
    expect(inside == before, f"{before} MiB before, and in the job {inside}")
    return f"{before} MiB in use before, and {inside} MiB in a job"


# ---- the worker library

@part(120)
def matrix(gpu):
    """Every operation, dtype, kind of call and place beside a reference, in worlds that share the GPU."""
    lines = [gpu.ours(ranks, "worker_matrix", "--worlds", ",".join(map(str, gpu.worlds)), "--backend", "nccl").find(
        r"matrix: backend nccl, world (\d+), .*: (\d+) of (\d+) cases.* (\d+) faults") for ranks in gpu.worlds]
    expect(all(line[4] == "0" for line in lines), f"{[line[0] for line in lines]}")
    expect(sum(int(line[2]) for line in lines) == int(lines[0][3]), "the worlds together do not make all cases")
    return f"{lines[0][3]} cases in worlds of {', '.join(line[1] for line in lines)}: no fault"


def scene(gpu, worlds, *words, **options):
    texts = []
    for ranks in worlds:
        result = gpu.ours(ranks, "gpu_scenes", *words, **options)
        expect(result.code == 0, f"{words[0]} with {ranks} ranks: exit code {result.code}")
        expect(result.count(rf"^{words[0]}: rank \d+ \w+") == ranks, f"{words[0]} with {ranks} ranks: not all came to its end")
        texts.append(result)
    return texts


@part(60)
def streams(gpu):
    """Operations follow their stream, streams wait for works, events carry the order."""
    scene(gpu, gpu.worlds, "streams")
    return f"worlds of {gpu.worlds}"


@part(60, on_stand_ins=False)
def graph(gpu):
    """Captured operations, repeated by launches of the graph."""
    scene(gpu, gpu.worlds, "graph")
    return f"worlds of {gpu.worlds}"


@part(60)
def buckets(gpu):
    """GradientBuckets over GPU memory."""
    scene(gpu, gpu.worlds, "buckets")
    return f"worlds of {gpu.worlds}"


@part(90, on_stand_ins=False)
def failures(gpu):
    """A dead rank, an abort, a time-out: the others' operations on the GPU end within a second, and name the rank."""
    said = []
    for ranks in (2, 4):
        for words, code in (("death", 137), ("abort", 0), ("timeout", 0)):
            result = gpu.ours(ranks, "gpu_scenes", words)
            expect(result.code == code, f"{words} with {ranks} ranks: exit code {result.code}")
            late = [float(s) for s in re.findall(rf"^{words}: rank \d+ ended ([\d.]+) s after it", result.text, re.M)]
            expect(len(late) == ranks - 1, f"{words} with {ranks} ranks: {len(late)} ended")
            expect(result.count(rf"ranks \[{ranks - 1}\]: ") == ranks - 1, f"{words} with {ranks} ranks: others are blamed")
            said.append(f"{words} {max(late):.3f} s")
    return ", ".join(said)


@part(100)
def overhead(gpu):
    """What the library adds to a call of NCCL, in the median of interleaved calls."""
    if gpu.stand_ins:
        expect(gpu.ours(1, "nccl_bench", 20).code == 0, "nccl_bench failed")
        return "nothing is measured on a stand-in"
    added = []
    for ranks in (1, 2):
        result = gpu.ours(ranks, "nccl_bench", mps=ranks > 1)
        expect(result.code == 0, f"{ranks} ranks: exit code {result.code}")
        rows = [[float(cell) for cell in line.strip("| ").split("|")] for line in result.text.splitlines()
                if re.match(r"\| \d+ \|", line)]
        added += [(ranks, int(row[0]), row[4], row[7], row[10]) for row in rows]
    said = "calling, calling in a burst, until done (us): " + ", ".join(
        f"{ranks} {'rank' if ranks == 1 else 'ranks'}, {size} B: {busy:+.2f} {burst:+.2f} {done:+.2f}"
        for ranks, size, busy, burst, done in added)
    # The figures are what this part is for; it fails only if something is very wrong.
    expect(all((busy if ranks == 1 else burst) < 10 for ranks, _, busy, burst, _ in added), said)
    return said


# ---- PyTorch programs that know nothing of muster

def losses(result):
    found = re.findall(r"^step (\d+) loss (\S+)$", result.text, re.M)
    expect(result.code == 0 and len(found) == 12, f"exit code {result.code}, {len(found)} steps")
    return dict(found)


@part(120)
def same_loss(gpu):
    """DDP and FSDP2 under muster and torchrun: the same losses, digit for digit."""
    said = []
    for how in ("ddp", "fsdp2"):
        ours, theirs = losses(gpu.torch(how)), losses(gpu.torchrun(how))
        expect(ours == theirs, f"{how}: {ours} and {theirs}")
        said.append(f"{how} {ours['11']}")
    return ", ".join(said)


@part(60)
def resumed(gpu):
    """A rank is killed, all are restarted from the checkpoint, and the losses are those of an undisturbed run."""
    whole = losses(gpu.torch("ddp"))
    folder = tempfile.mkdtemp(dir=gpu.scratch)
    result = gpu.torch("killed", folder, flags=("--max-restarts", "1"))
    expect(losses(result) == whole, f"other losses than {whole}")
    result.find(r"^muster: rank 1 killed by SIGKILL .*restarting")
    expect(result.count(r"^rank \d goes on at step 6$") == 2, "not all went on at step 6")
    return "killed after step 5, went on at step 6"


@part(60, on_stand_ins=False)
def memory_before_restart(gpu):
    """A worker that held most of the GPU's memory is killed, and the next attempt finds it free."""
    result = gpu.torch("full", flags=("--gpus", "0", "--max-restarts", "1"), ranks=1)
    free = [float(s) for s in re.findall(r"^free ([\d.]+) GB", result.text, re.M)]
    expect(result.code == 0 and len(free) == 2, f"exit code {result.code}, free {free}")
    expect(abs(free[0] - free[1]) < 0.6, f"{free[0]} GB were free at first, and {free[1]} GB in the second attempt")
    return f"{free[0]} GB were free at first, {free[1]} GB in the second attempt"


@part(150)
def holder(gpu):
    """A process outside the job has the worker's descriptors of the GPU: muster says that its memory is held, and restarts."""
    folder, kept = tempfile.mkdtemp(dir=gpu.scratch), []
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"{folder}/holder")
    listener.listen()

    def hold():
        connection, _ = listener.accept()
        with connection:
            while True:
                data, descriptors, _, _ = socket.recv_fds(connection, 1, 100)
                kept.extend(descriptors)
                if not data:
                    return

    threading.Thread(target=hold, daemon=True).start()
    try:
        result = gpu.torch("held", folder, flags=("--report-bindings", "--max-restarts", "1"), ranks=1, FAKE_NVML=fake_machine(gpu))
    finally:
        listener.close()
        for descriptor in kept:
            os.close(descriptor)
    worker, given = result.find(r"^pid (\d+) gave (\d+) descriptors away$").groups()
    expect(len(kept) == int(given) > 0, f"{given} descriptors given, {len(kept)} held")
    # The driver lists memory under the pid that took it, as long as any process has its descriptors.
    line = result.find(r"^muster: (GPU memory of the last attempt is still held: GPU \d+ by pid (\d+) \(([\d.]+) GiB\); starting anyway)$")
    expect(line[2] == worker and float(line[3]) >= 8, f"pid {worker} took 8 GiB, and it says: {line[1]}")
    expect(result.code == 0, f"exit code {result.code}")
    return line[1]


def kernel_log_is_readable():
    """As muster reads it: with the pids of the first namespace."""
    try:
        os.close(os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK))
    except OSError:
        return False
    return os.readlink("/proc/self/ns/pid") == "pid:[4026531836]"


@part(120, on_stand_ins=False)
def verdicts(gpu):
    """Out of memory, an illegal access, an assertion on the device: the rank, its GPU, its words, its Xid."""
    said = []
    for how, words, xid in (("out_of_memory", "CUDA out of memory", None),
                            ("illegal_access", "CUDA error: an illegal memory access was encountered", 31),
                            ("device_assert", "CUDA error: device-side assert triggered", 43)):
        _, verdict = gpu.verdict(how)
        culprit = verdict["culprit"]
        expect(culprit and culprit["rank"] == 1, f"{how}: rank {culprit and culprit['rank']} is blamed")
        expect(verdict["class"] == "gpu" and verdict["remedy"], f"{how}: class {verdict['class']}, remedy {verdict['remedy']}")
        expect(words in verdict["summary"], f"{how}: {verdict['summary']}")
        expect("GPU 0" in (culprit["device"] or ""), f"{how}: device {culprit['device']}")
        if xid and kernel_log_is_readable():
            expect(f"Xid {xid}" in verdict["summary"], f"{how}: no Xid {xid} in {verdict['summary']}")
            how += f" with Xid {xid}"
        said.append(how)
    return ", ".join(said) + f": {culprit['device']}"


@part(60, on_stand_ins=False)
def hang(gpu):
    """A rank of a PyTorch program that blocks in a read: a verdict within 15 s, with rank, collective and place."""
    result, verdict = gpu.verdict("hang", flags=("--on-hang", "stop"), limit_s=50)
    found = verdict["hang"]
    expect(found and found["ranks"] == [1], f"{found}")
    line = result.find(r"^muster: (rank 1 .*never entered all_reduce.*)$")[1]
    waited = float(re.search(r"waited ([\d.]+) s", line)[1])
    expect(waited <= 15, f"after {waited} s")
    return line


@part(150, on_stand_ins=False)
def nccl_timeout(gpu):
    """NCCL's own time-out, as PyTorch's watchdog tells it: the rank that did not come is the culprit."""
    _, verdict = gpu.verdict("timeout", limit_s=140)
    expect(verdict["culprit"] and verdict["culprit"]["rank"] == 1, f"{verdict['culprit']}: {verdict['summary']}")
    return verdict["summary"]


# ---- the profiler plugin

@part(60, on_stand_ins=False)
def plugin(gpu):
    """NCCL loads the plugin, and the rings tell what the ranks of a PyTorch program called."""
    result = gpu.torch("records", flags=("--gpus", "0"), NCCL_DEBUG="INFO", MUSTERCTL=gpu.path("musterctl"))
    loaded = result.find(r"PROFILER/Plugin: (Loaded muster \(v\d+\))")[1]
    expect(result.code == 0, f"exit code {result.code}")
    records = json.loads(result.find(r"^RECORDS (.*)$")[1])["records"]
    for record in records:
        calls = [(c["operation"], c["count"], c["type"]) for c in record["calls"]]
        # The barrier behind them is an all_reduce to NCCL.
        expect(calls[:3] == [("all_reduce", count, "float32") for count in (1000, 2000, 3000)], f"rank {record['rank']}: {calls}")
    return f"{loaded}; {records[0]['summary']}"


@part(200, on_stand_ins=False)
def plugin_cost(gpu):
    """What the plugin adds to NCCL's own time: medians of 15 interleaved runs with it and without."""
    if not gpu.nccl:
        raise Missing("NCCL (MUSTER_NCCL_LIBRARY)")
    samples = {}
    for run in range(15):
        for flags in ((), ("--no-recorder",)) if run % 2 else (("--no-recorder",), ()):
            folder = tempfile.mkdtemp(dir=gpu.scratch)
            result = gpu.muster(2, gpu.path("nccl_plain"), folder, flags=flags, mps=True, MUSTER_NCCL_LIBRARY=gpu.nccl)
            expect(result.code == 0, f"exit code {result.code}")
            for size, busy, done in re.findall(r"^(\d+) ([\d.]+) ([\d.]+)$", result.text, re.M):
                samples.setdefault(int(size), {}).setdefault(bool(flags), []).append((float(busy), float(done)))
    said, worst = [], 0
    for size, by in samples.items():
        median = lambda values: sorted(values)[len(values) // 2]
        ratio = [median([s[i] for s in by[False]]) / median([s[i] for s in by[True]]) for i in (0, 1)]
        worst = max(worst, ratio[1])
        gpu.log.write(f"{size} B: with {[spread([s[i] for s in by[False]]) for i in (0, 1)]}, "
                      f"without {[spread([s[i] for s in by[True]]) for i in (0, 1)]} us\n")
        said.append(f"{size} B: calling {100 * (ratio[0] - 1):+.1f} %, done {100 * (ratio[1] - 1):+.1f} %")
    # What ranks that share a GPU take varies by 15 % from run to run.
    expect(worst < 1.5, ", ".join(said))
    return ", ".join(said)


@part(90, on_stand_ins=False)
def sanitizer(gpu):
    """compute-sanitizer finds nothing in a run of the library; NCCL's own probes for kernels are no errors."""
    tool = shutil.which("compute-sanitizer")
    if not tool or not gpu.nccl:
        raise Missing("compute-sanitizer, or no NCCL")
    result = gpu.muster(1, tool, "--report-api-errors", "no", gpu.path("gpu_scenes"), "streams", MUSTER_NCCL_LIBRARY=gpu.nccl)
    expect(result.code == 0, f"exit code {result.code}")
    return result.find(r"ERROR SUMMARY: 0 errors")[0]


@part(300)
def groups(gpu):
    """Groups made, used and dropped 200 times leave no memory of the GPU behind."""
    ranks = gpu.worlds[:2][-1]
    (result,) = scene(gpu, (ranks,), "groups", 200 if not gpu.stand_ins else 20, mps=True)
    return result.find(r"^groups: rank 0 (.*)$")[1]


def run_part(gpu, name, limit_s, function):
    begun = time.monotonic()
    gpu.deadline = begun + limit_s * (4 if gpu.stand_ins else 1)  # No machine with a GPU waits, and this one may be busy.
    with open(os.path.join(gpu.out, f"{name}.log"), "w") as gpu.log:
        try:
            outcome, said = "holds", function(gpu)
        except Missing as missing:
            outcome, said = "SKIPPED", f"this machine has no {missing}"
        except Failed as failed:
            outcome, said = "FAILS", str(failed)
        except Exception as error:  # A fault of the part itself is no reason to lose the others.
            outcome, said = "BROKEN", f"{type(error).__name__}: {error}"
        finally:
            gpu.stop_mps()
        gpu.log.write(f"\n{outcome}: {said}\n")
    return outcome, said, time.monotonic() - begun


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=False)
    parser.add_argument("--out", required=False)
    parser.add_argument("--parts", default="")
    parser.add_argument("--without", default="")
    parser.add_argument("--stand-ins")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    wanted, unwanted = (list(filter(None, text.split(","))) for text in (options.parts, options.without))
    parts = [p for p in PARTS if (not wanted or any(w in p[0] for w in wanted)) and not any(w in p[0] for w in unwanted)]
    if options.list:
        for name, limit_s, function, _ in parts:
            print(f"{name:24} {limit_s:4} s  {function.__doc__}")
        return 0
    if not options.build or not options.out:
        parser.error("--build and --out are needed")
    os.makedirs(options.out, exist_ok=True)
    gpu = Gpu(options)
    rows, bad = [], 0
    try:
        for name, limit_s, function, on_stand_ins in parts:
            if gpu.stand_ins and not on_stand_ins:
                continue
            if function in (overhead, plugin_cost, groups):
                gpu.start_mps()
            outcome, said, took = run_part(gpu, name, limit_s, function)
            bad += outcome in ("FAILS", "BROKEN")
            rows.append(f"| {function.__doc__.rstrip('.')} | {outcome} | {took:.0f} s | {said.replace('|', '/')} |")
            print(f"{outcome:8} {name:24} {took:5.1f} s  {said}", flush=True)
            table = "\n".join(["| what | | took | |", "| --- | --- | --- | --- |", *rows, ""])
            with open(os.path.join(options.out, "table.md"), "w") as file:
                file.write(table)
    finally:
        gpu.stop_mps()
        shutil.rmtree(gpu.scratch, ignore_errors=True)
    print(f"\n{len(rows) - bad} of {len(rows)} parts hold; logs and table.md in {options.out}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
