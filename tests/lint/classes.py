"""Limits the size of the product's classes: members, bool members, methods, and files that define them.

Relies on clang-format's layout: the members and methods of a class are the declarations that are indented once.
"""
import collections
import os
import re

LIMITS = {"members": 25, "bools": 5, "methods": 50, "files": 3}
# Classes over the limits; their numbers may only shrink.
LARGE = {
    "Detector": {"methods": 65},
    "Group": {"methods": 64, "files": 5},
    "Hosting": {"members": 27, "bools": 9},
    "JobRecorder": {"methods": 52},
    "JobWatch": {"bools": 6},
    "Member": {"members": 37, "bools": 7, "methods": 59},
    "Membership": {"members": 41, "bools": 6, "methods": 120},
    "OutputLoop": {"members": 26},
    "ProcessGroup": {"methods": 84},  # A public handle: each operation, its asynchronous form, their overloads.
    "WatchLoop": {"methods": 52},
    "WatchTree": {"members": 26},
    "WorkerGroup": {"methods": 52},
}

CLASS = re.compile(r"^class (?:\[\[\w+\]\] )?(\w+)(?: final)?(?:\s+:\s[^;]*)?\s*\{$")
MEMBER = re.compile(r"^(?!.*\boperator\b)(?:mutable )?(?P<type>[\w:<>,&*\[\]() ]+?[\w>&*)\]]) (?P<name>\w+_)(?:\[\w*\])?(?: = .*|\{.*\})?;$")
NO_METHOD = re.compile(r"^(?:using|friend|struct|class|enum|static_assert|public|private|protected|static constexpr|typedef|template)\b")
DEFINED = re.compile(r"^(?!\s)[^=;(]*\b(\w+)::~?\w+\(", re.M)

Measure = collections.namedtuple("Measure", "path line name members bools methods files")


def declarations(lines, start):
    """Returns the declarations of the class that begins at lines[start], each on one line and without comments."""
    texts, text, depth = [], "", 0
    for number in range(start + 1, len(lines)):
        line = re.sub(r"\s*//.*", "", lines[number]).rstrip()
        if line == "};":
            return texts
        if re.match(r" (?:public|private|protected):", line) or not line or line.lstrip().startswith("#"):
            continue
        if depth == 0:
            text = line.strip() if line.startswith("  ") and not line.startswith("   ") else text + " " + line.strip()
        else:
            text += " " + line.strip()
        plain = re.sub(r'"(?:\\.|[^"\\])*"', '""', line)
        depth += plain.count("{") - plain.count("}") + plain.count("(") - plain.count(")")
        if depth == 0 and text.endswith((";", "}")):
            texts.append(text)
            text = ""
    return texts


def measures(sources):
    files = collections.defaultdict(set)
    for path, lines in sources.items():
        if path.endswith(".cc") and not path.startswith("tests" + os.sep):
            for name in DEFINED.findall("\n".join(lines)):
                files[name].add(path)
    for path in sorted(sources):
        if path.startswith("tests" + os.sep):
            continue
        for number, line in enumerate(sources[path]):
            found = CLASS.match(line)
            if not found:
                continue
            members = bools = methods = 0
            for text in declarations(sources[path], number):
                member = MEMBER.match(text)
                if member and not NO_METHOD.match(text):
                    members += 1
                    bools += member["type"].split()[-1] == "bool"
                elif "(" in text and not NO_METHOD.match(text) and not text.endswith(("= delete;", "= default;")):
                    methods += 1
            yield Measure(path, number + 1, found[1], members, bools, methods, len(files[found[1]]))


def class_complaints(sources):
    found = list(measures(sources))
    if found:
        most = max(found, key=lambda one: one.members)
        print(f"classes: {len(found)}, the largest {most.name} of {most.members} members, {most.bools} of them bool, and "
              f"{most.methods} methods")
    for one in found:
        for what, limit in LIMITS.items():
            count, today = getattr(one, what), LARGE.get(one.name, {}).get(what)
            if count > (today or limit):
                yield f"{one.path}:{one.line}: {one.name} has {count} {what}; the limit is {today or limit}: make parts of it"
            elif today and count < today:
                yield f"{one.path}:{one.line}: {one.name} has {count} {what} now; say so in tests/lint/classes.py"
