#!/usr/bin/env python3
"""Finds what makes tests flaky. Each kind of fault has one remedy.

    steady.py [ROOT]    prints FILE:LINE: what is wrong; exit status 1 if anything is

Parses Python tests; code in their strings belongs to workers and is not checked. Only live/waiting.py calls time.sleep();
ports come from live/ports.py and are neither fixed, random nor the kernel's choice; no file has a fixed name in /tmp; an
upper bound of an elapsed time contains within(). In C++ tests only wait_for.h sleeps. Programs that tests run are exempt.
"""
import ast
import os
import re
import sys

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
PROGRAMS = re.compile(r"tests/(?:.*/)?(?:programs|fixtures)/"
                      r"|tests/(?:bench/first_cause/(?:torch_)?rank|live/differential/probe|gpu/torch_gpu|lint/\w+)\.py$")
CPP_PROGRAMS = re.compile(r"tests/(?:live/programs|fixtures|bench|gpu|fakes)/")
CPP_SLEEP = re.compile(r"\b(?:sleep_for|sleep_until|usleep)\s*\(")
CLOCKS = {"monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "time", "time_ns"}
CHANCE = {"randrange", "randint", "choice"}
ELAPSED = re.compile(r"^(?:took|elapsed|seconds)$|_m?s$")
NEXT_IS_A_PORT = {"--master-port", "--master_port"}
PORT_OF_LOOPBACK = re.compile(r"(?:\b127\.0\.0\.1|\blocalhost|\[::1\]):(\d+)")
IN_TMP = re.compile(r"(?<![\w.{}@])/tmp(?:/[\w{]|$)")
HOME_OF = {"tests/live/waiting.py": "sleeps", "tests/live/ports.py": "ports", "tests/live/harness.py": "/tmp",
           "tests/bench/first_cause/running.py": "/tmp"}  # The last one replaces it in samples.


def name_of(node):
    """Returns the last word of a name, of an attribute or of a call of one."""
    node = node.func if isinstance(node, ast.Call) else node
    return getattr(node, "id", None) or getattr(node, "attr", None) or ""


def calls(node, names):
    return any(isinstance(one, ast.Call) and name_of(one) in names for one in ast.walk(node))


def is_port(node):
    return isinstance(node, ast.Constant) and re.fullmatch(r"[1-9]\d{3,4}", str(node.value)) and int(node.value) < 1 << 16


class Tests(ast.NodeVisitor):
    """Collects (line, kind, message) of one file."""

    def __init__(self, tree):
        self.found = []
        assigned = [(name_of(target), node.value) for node in ast.walk(tree) if isinstance(node, ast.Assign)
                    for target in node.targets]
        self.moments = {name for name, value in assigned if isinstance(value, ast.Call) and name_of(value) in CLOCKS}
        self.elapsed = {name for name, value in assigned if self.is_difference(value)}
        self.visit(tree)

    def complain(self, kind, node, message):
        self.found.append((node.lineno, kind, message))

    def is_difference(self, node):
        """True if it contains a time since a moment that was read from a clock."""
        return any(isinstance(one, ast.BinOp) and isinstance(one.op, ast.Sub)
                   and (calls(one, CLOCKS) or name_of(one.right) in self.moments) for one in ast.walk(node))

    def is_elapsed(self, node):
        return self.is_difference(node) or any(
            name in self.elapsed or ELAPSED.search(name) for name in map(name_of, ast.walk(node)) if not name.isupper())

    def check_bound(self, node, smaller, larger):
        if self.is_elapsed(smaller) and not calls(larger, {"within"}):
            self.complain("bounds", node, "a bound of time without within(), which a busy machine breaks")

    def check_sequence(self, nodes):
        for key, value in zip(nodes, nodes[1:]):
            if isinstance(key, ast.Constant) and key.value in NEXT_IS_A_PORT and is_port(value):
                self.complain("ports", value, "a fixed port; free_port() gives one that no other test has")

    def check_text(self, node, text):
        if any(1024 <= int(port) < 1 << 16 for port in PORT_OF_LOOPBACK.findall(text)):
            self.complain("ports", node, "a fixed port; free_port() gives one that no other test has")
        if IN_TMP.search(text):
            self.complain("/tmp", node, "a name in /tmp, where all tests meet; each has a folder of its own")

    def visit_Call(self, node):
        name = name_of(node)
        if name == "sleep" and name_of(getattr(node.func, "value", node.func)) in ("time", "sleep"):
            self.complain("sleeps", node, "a sleep; wait_for() a fact, or say by nothing_happens_for() or pause() what it is for")
        if name == "getsockname":
            self.complain("ports", node, "a port of the kernel's choice, free for all once it is closed; listening() keeps "
                          "one, free_port() reserves one")
        if name in ("assertLess", "assertLessEqual"):
            self.check_bound(node, *node.args[:2])
        self.check_sequence(node.args)
        self.generic_visit(node)

    def visit_Assert(self, node):
        for test in ast.walk(node.test):
            if isinstance(test, ast.Compare):
                terms = [test.left, *test.comparators]
                for left, op, right in zip(terms, test.ops, terms[1:]):
                    if isinstance(op, (ast.Lt, ast.LtE)):
                        self.check_bound(test, left, right)
        self.generic_visit(node)

    def visit_Assign(self, node):
        if calls(node.value, CHANCE) and any("port" in name_of(target).lower() for target in node.targets):
            self.complain("ports", node, "a port by chance; free_port() reserves one")
        self.generic_visit(node)

    def visit_List(self, node):
        self.check_sequence(node.elts)
        self.generic_visit(node)

    visit_Tuple = visit_List

    def visit_JoinedStr(self, node):
        self.check_text(node, "".join(part.value if isinstance(part, ast.Constant) else "{}" for part in node.values))
        for part in node.values:
            if not isinstance(part, ast.Constant):
                self.visit(part)

    def visit_Expr(self, node):
        if not isinstance(node.value, ast.Constant):  # A docstring is exempt.
            self.generic_visit(node)

    def visit_Constant(self, node):
        if isinstance(node.value, str):
            self.check_text(node, node.value)


def cpp_complaints(text):
    for number, line in enumerate(text.split("\n"), 1):
        if CPP_SLEEP.search(line.split("//")[0]):
            yield number, "a sleep; wait_for.h waits for a fact, or says what a pause is for"


def complaints(root):
    for folder, folders, names in os.walk(os.path.join(root, "tests")):
        folders.sort()
        for name in sorted(names):
            path = os.path.relpath(os.path.join(folder, name), root)
            if name.endswith(".py") and not PROGRAMS.match(path):
                with open(os.path.join(root, path), encoding="utf-8") as file:
                    found = Tests(ast.parse(file.read(), path)).found
                yield from (f"{path}:{line}: {message}" for line, kind, message in sorted(found) if kind != HOME_OF.get(path))
            elif name.endswith((".cc", ".h")) and not CPP_PROGRAMS.match(path) and path != "tests/wait_for.h":
                with open(os.path.join(root, path), encoding="utf-8") as file:
                    yield from (f"{path}:{line}: {message}" for line, message in cpp_complaints(file.read()))


def main(root):
    found = list(complaints(root))
    for complaint in found:
        print(complaint)
    print(f"steady: {len(found)} complaints")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(os.path.normpath(sys.argv[1] if len(sys.argv) > 1 else ROOT)))
