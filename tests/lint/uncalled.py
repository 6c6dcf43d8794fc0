#!/usr/bin/env python3
"""Lists our functions that no product calls: those that the linker drops from all programs and libraries.

    uncalled.py BUILD [ROOT]      builds all of them into BUILD; prints each function; exit status 1 if there is any

Compiles everything with -O0 -fkeep-inline-functions, each function into a section of its own, and lets the linker list
the sections that it drops. A function that any product keeps is called; of a template one kept instance is enough. Not
listed: functions of the public headers (muster::detail is theirs, too), constant expressions, and constructors, destructors, operators and lambdas,
which the compiler generates.
"""
import os
import re
import subprocess
import sys

import tidy

PRODUCTS = ("muster", "musterctl", "worker_lib/libmuster.so.0.1.0", "worker_lib/libmuster_gloo.so.0.1.0",
            "worker_lib/recorder/python/_muster_ring.abi3.so",
            "worker_lib/recorder/nccl_profiler/libnccl-profiler-muster.so")
TARGETS = ("muster", "musterctl", "muster_worker", "muster_gloo", "muster_python_hook", "muster_nccl_plugin")
PUBLIC = os.path.join("worker_lib", "include", "muster")
SOURCES = ("agent", "launcher", "rendezvous", "worker_lib")

# Functions that only tests use, and for what.
FOR_TESTS = {
    "muster::ControlServer::connections": "how many there are",
    "muster::Coordinator::counters": "what a host has done",
    "muster::Coordinator::nodes": "what a host knows",
    "muster::Coordinator::port": "where a host listens that was given port 0",
    "muster::JobStore::counters": "what the store has done",
    "muster::Listener::counters": "what became of each connection",
    "muster::Listener::unidentified": "how many have not said what they are",
    "muster::MessageLines::looks": "that the work grows with the text only",
    "muster::Prng::chance": "the simulator's dice",
    "muster::StoreClient::num_keys": "that nothing is left in the store",
    "muster::c_abi::handle_of": "makes a Work of a test's own state",
    "muster::calls::num_keys": "the same",
    "muster::tcpstore::RequestDecoder::validated": "the decoder's state",
    "muster::worker::CpuBackend::describe": "what a group's backend is made of",
    "muster::worker::Job::connect_store": "what is left in the store",
    "muster::worker::ShmGroup::set_patience": "sets how long a wait spins",
    "muster::worker::StopSignal::is_installed": "that the handler is there",
}

DROPPED = re.compile(r"removing unused section '\.text\.(?:(?:unlikely|startup|hot|exit)\.)?(_Z[^'\[]*)")
MADE_BY_THE_COMPILER = re.compile(r"\{lambda|::~|operator[^a-z_]|::(\w+)(?:<.*>)?::\1\(|^(?:non-)?virtual thunk|^vtable|\[clone")


def run(*command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout[-4000:]}")
    return done.stdout


def link(build, root):
    """Builds the products and returns the linker's output."""
    say = "-Wl,--print-gc-sections"
    run("cmake", "-S", root, "-B", build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Debug", "-DMUSTER_BUILD_TESTS=OFF",
        "-DCMAKE_CXX_FLAGS_DEBUG=-O0 -fkeep-inline-functions", "-DCMAKE_UNITY_BUILD=ON", "-DCMAKE_UNITY_BUILD_BATCH_SIZE=64",
        f"-DCMAKE_EXE_LINKER_FLAGS={say}", f"-DCMAKE_SHARED_LINKER_FLAGS={say}",
        f"-DCMAKE_MODULE_LINKER_FLAGS={say}")
    for product in PRODUCTS:
        if os.path.exists(os.path.join(build, product)):
            os.remove(os.path.join(build, product))
    return run("cmake", "--build", build, "--target", *TARGETS)


def demangled(names):
    done = subprocess.run(["c++filt"], input="\n".join(names), stdout=subprocess.PIPE, text=True, check=True)
    return [re.sub(r"\[abi:\w+\]", "", line) for line in done.stdout.splitlines()]


def kept(build):
    lines = "".join(run("nm", os.path.join(build, product)) for product in PRODUCTS).splitlines()
    return set(demangled({line.split()[-1] for line in lines if len(line.split()) == 3}))


def without_arguments(text):
    """Returns "muster::f" for "int muster::f<int>(int) const"."""
    while re.search(r"<[^<>]*>", text):
        text = re.sub(r"<[^<>]*>", "", text)
    text = text.replace("(anonymous namespace)", "{}")
    return text.split("(")[0].split(" ")[-1].replace("{}", "(anonymous namespace)")


def text_below(root, folders):
    texts = []
    for path in tidy.files_below(root):
        if path.endswith(tidy.CPP) and path.startswith(tuple(folder + os.sep for folder in folders)):
            with open(os.path.join(root, path), encoding="utf-8") as file:
                texts.append(file.read())
    return "\n".join(texts)


def is_called(text, alive, alive_templates):
    is_template = "<" in text.split("(")[0].replace("(anonymous namespace)", "")
    return text in alive or (is_template and without_arguments(text) in alive_templates)


def main(build, root):
    said = link(build, root)
    alive = kept(build)
    alive_templates = {without_arguments(text) for text in alive if "<" in text}
    public = text_below(root, [PUBLIC])
    public_types = set(re.findall(r"^(?:class|struct)(?: MUSTER_API| \[\[[^\]]*\]\])? (\w+)", public, re.M))
    source = text_below(root, SOURCES)
    uncalled = set()
    for text in demangled(set(DROPPED.findall(said))):
        name = without_arguments(text)
        if not name.startswith("muster::") or MADE_BY_THE_COMPILER.search(text) or is_called(text, alive, alive_templates):
            continue
        parts = name.split("::")
        if parts[1] in public_types or parts[1] == "detail" or (len(parts) == 2 and re.search(rf"\b{parts[1]}\(", public)):
            continue
        if re.search(rf"\bconst(?:expr|eval)\b[^;{{}}]*\b{parts[-1]}\(", source):
            continue
        uncalled.add(name)
    complaints = [f"{name}: nothing calls it; remove it" for name in sorted(uncalled - set(FOR_TESTS))]
    complaints += [f"{name}: is called, or gone; take it off the list in {os.path.basename(__file__)}"
                   for name in sorted(set(FOR_TESTS) - uncalled)]
    for complaint in complaints:
        print(complaint)
    print(f"uncalled: {len(complaints)} complaints")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main(os.path.abspath(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else tidy.ROOT))
