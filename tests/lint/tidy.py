#!/usr/bin/env python3
"""Checks the repository's rules and prints its measures.

    tidy.py [ROOT]      prints FILE:LINE: what is wrong, then the measures; exit status 1 if anything is

Rules: no C++ file over 800 lines and nine in ten under 400; nine in ten functions under 25 lines and at most one in a
hundred over 70 (clang-format limits the width of code); pure files (those of the libraries muster_*_core, see
CMakeLists.txt, and headers that call themselves pure with their sources) read no clock, environment or random device and
include no Boost; folders include each other as layers.py allows; headers begin with `#pragma once` under a comment that
says what they are; one namespace; names in anonymous namespaces are unique among sources that may share a unity batch, and
no two types of the product share a name; tables and drawings in comments are whole; classes keep to the limits of
classes.py; no sentence of ours is compared, searched or cut (sentences.py); comments and names of tests use the words that words.py allows; links lead to public documentation, or to a
file that exists; a CMake file names each test; the README has at most 150 lines; no coroutines; no notes to self.
"""
import os
import re
import sys

import classes
import layers
import sentences
import words

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
LINES_MAX, LINES_P90 = 800, 400
README_LINES_MAX = 150
COMMENT_COLUMNS_MAX = 100  # clang-format may not break comments, since it would break drawings and tables.
FUNCTION_LINES_LONG, FUNCTION_LINES_P90, FUNCTIONS_LONG_SHARE = 70, 25, 0.01
HEADER_COMMENT_LINES_MIN = 2

CPP = (".cc", ".h")
TEXT = CPP + (".py", ".sh", ".md", ".txt", ".cmake", ".json", ".yml", ".1")
SKIPPED_FOLDERS = {".git", "build", "__pycache__"}

PURE_FORBIDDEN = [
    (re.compile(r"\bnow\s*\("), "reads a clock; take an Instant instead"),
    (re.compile(r"\bgetenv\b|\benviron\b"), "reads the environment; take it as a parameter"),
    (re.compile(r"\bs?rand(?:om)?\s*\(|\brandom_device\b"), "makes its own random numbers; take a Prng"),
    # A hash table with its own hash, KeyedHash, is for look-ups: only the store's LIST_KEYS walks one, and the protocol
    # leaves the order of its answer open.
    (re.compile(r"\bunordered_\w+<(?!.*\bKeyedHash\b)"), "iterates in no fixed order; use the ordered container"),
    (re.compile(r"#include\s*<(?:boost/|thread|mutex|fstream|filesystem|unistd)"), "does I/O or threads"),
]
# Hosts that a link may lead to; any other may be a private mirror.
PUBLIC_HOSTS = re.compile(
    r"(?:^|\.)(?:github\.com|gnu\.org|kernel\.org|man7\.org|apache\.org|cmake\.org|boost\.org|"
    r"nvidia\.com|pytorch\.org|python\.org|w3\.org|uci\.edu|creativecommons\.org|doi\.org|scikit-learn\.org|"
    r"example\.(?:org|com)|localhost)$|^127\.|^\[?::1"
)
LINK = re.compile(r"\bhttps?://([\w.-]+\.[a-z]{2,}|[\d.]+)(?![\w.-])")
NOTE_TO_SELF = re.compile(r"\b(?:TODO|FIXME|XXX|HACK)\b")
COROUTINE = re.compile(r"\bco_(?:await|yield|return)\b")
MEMCPY = re.compile(r"std::mem(?:cpy|move)\((?!.*\bsizeof\b)")
BANNER = re.compile(r"^\s*(?://|#)\s*[-=*#/]{8,}")
NAMESPACE = re.compile(r"^namespace\s+([\w:]+)\s*\{")
ALLOWED_NAMESPACES = re.compile(r"^(?:muster(?:::\w+)*|dwfl|env|nvml|rc|std|member|membership|hosting|calls|worker|watch|detail|reference|fork_state)$")
CONTROL = re.compile(r"\s*(?:if|else|for|while|switch|do|try|catch|case|default)\b")
TYPE = re.compile(r"\s*(?:template\s*<.*>\s*)?(?:namespace|class|struct|enum|union|extern)\b")
TYPE_DEFINED = re.compile(r"^(?:class|struct|enum class)\s+(\w+)(?:\s+final)?(?:\s+:\s[^;]*)?\s*\{")
ONE_LINE_FUNCTION = re.compile(r"^ {0,4}[\w~].*\)\s*(?:const|noexcept|override|\s)*\{.*\}$")


def files_below(root):
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(f for f in folders if f not in SKIPPED_FOLDERS)
        for name in sorted(names):
            if name.endswith(TEXT):
                yield os.path.relpath(os.path.join(folder, name), root)


def read_lines(root, path):
    with open(os.path.join(root, path), encoding="utf-8") as file:
        lines = file.read().split("\n")
    return lines[:-1] if lines and not lines[-1] else lines


def read_sources(root):
    """Returns the lines of each C++ file, by path."""
    return {path: read_lines(root, path) for path in files_below(root) if path.endswith(CPP)}


def pure_files(root, sources):
    """Returns the sources of the muster_*_core libraries, the headers that call themselves pure, and their sources."""
    pure = {path[:-2] for path, lines in sources.items()
            if path.endswith(".h") and re.search(r"\bPure\b", " ".join(opening_comment(lines)))}
    path = os.path.join(root, "CMakeLists.txt")
    if os.path.exists(path):
        libraries = re.findall(r"add_library\(muster_\w+_core\s+STATIC(.*?)\)", "\n".join(read_lines(root, path)), re.S)
        pure |= {source[:-3] for library in libraries for source in re.findall(r"\S+\.cc", library)}
    return {path for path in sources if os.path.splitext(path)[0] in pure and not path.startswith("tests" + os.sep)}


def without_comment(line):
    return re.sub(r'"(?:\\.|[^"\\])*"', '""', line).split("//")[0]


def function_lengths(lines):
    """Yields the first line number and the length of each function.

    Relies on clang-format: a function ends at a line that consists of a brace, and begins at the nearest line above it
    with the same indentation.
    """
    for end, line in enumerate(lines):
        if ONE_LINE_FUNCTION.match(line) and not CONTROL.match(line) and not TYPE.match(line):
            yield end + 1, 1
        closing = re.match(r"^( {0,4})\}$", line)
        if not closing:
            continue
        indent = len(closing[1])
        start = end - 1
        while start >= 0 and (
            not lines[start].strip()
            or lines[start].startswith("#")
            or len(lines[start]) - len(lines[start].lstrip()) > indent
        ):
            start -= 1
        if start < 0 or CONTROL.match(lines[start]) or TYPE.match(lines[start]):
            continue
        head = " ".join(lines[start : end + 1]).split("{")[0]
        if "(" in head and not lines[start].lstrip().startswith(("}", "//")):
            yield start + 1, end - start + 1


def line_complaints(path, lines, pure):
    cpp = path.endswith(CPP)
    for number, line in enumerate(lines, 1):
        if line != line.rstrip():
            yield number, "white space at the end of the line"
        if cpp and COROUTINE.search(line):
            yield number, "a coroutine, of which g++ 12.2 compiles several shapes wrongly without a warning; use callbacks"
        if MEMCPY.search(line) and path.startswith("worker_lib/") and path != "worker_lib/copy_bytes.h":
            yield number, "memcpy() of more than one object, which some offsets make 20 times slower; use copy_bytes()"
        if NOTE_TO_SELF.search(line) and not path.endswith("tidy.py"):
            yield number, "a note to self; do it, or say in words what is missing"
        if BANNER.match(line):
            yield number, "a banner; a sentence says more"
        for host in LINK.findall(line):
            if not PUBLIC_HOSTS.search(host):
                yield number, f"a link to {host}, which is not on the list of public hosts"
        namespace = NAMESPACE.match(line)
        if cpp and namespace and not ALLOWED_NAMESPACES.match(namespace[1]):
            yield number, f"namespace {namespace[1]}; there is one, muster"
        if pure:
            code = without_comment(line)
            for pattern, message in PURE_FORBIDDEN:
                if pattern.search(code):
                    yield number, f"a pure file {message}"


DECLARED = [
    re.compile(r"(?:template\s*<.*>\s*)?(?:class|struct|enum(?: class)?|union)\s+(?P<name>\w+)"),
    re.compile(r"MATCHER(?:_P\d?)?\((?P<name>\w+)"),
    re.compile(r"[\w:<>,&*\[\] ]*[\w>&*\]] [&*]*(?P<name>\w+)\s*(?:\(|\{|=|\[|;)"),
]
NO_DECLARATION = re.compile(r"(?:using|namespace|return|static_assert|TEST|TYPED_TEST|INSTANTIATE|RC_)\b|\w*TEST\w*\(")


def anonymous_names(lines):
    """Yields line number and name of each declaration in anonymous namespaces; overloads once, aliases not at all."""
    inside, seen = False, set()
    without_raw = re.sub(r'R"(\w*)\(.*?\)\1"', lambda text: "\n" * text[0].count("\n"), "\n".join(lines), flags=re.S)
    for number, line in enumerate(without_raw.split("\n"), 1):
        if re.match(r"namespace\s*\{", line):
            inside = True
        elif re.match(r"\}\s*//\s*namespace\s*$", line):
            inside = False
        if not inside or line.startswith((" ", "#", "}", "/", "namespace")) or NO_DECLARATION.match(line):
            continue
        for pattern in DECLARED:
            found = pattern.match(line)
            if found:
                if found["name"] not in seen and "::" + found["name"] not in line:
                    seen.add(found["name"])
                    yield number, found["name"]
                break


def batches(root, sources):
    """Yields lists of sources that may be compiled as one: the launcher's side, the worker library, each test program."""
    library = "worker_lib" + os.sep
    apart = library + os.path.join("reduction", "reduce_kernels_avx2.cc")
    yield [path for path in sources if not path.startswith(("tests" + os.sep, library))]
    yield [path for path in sources if path.startswith(library) and path != apart]
    for name in ("CMakeLists.txt", "worker_tests.cmake"):
        path = os.path.join(root, "tests", name)
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                for program in re.findall(r"^muster_test\((.*?)LIBRARIES", file.read(), re.S | re.M):
                    yield [os.path.join("tests", source) for source in re.findall(r"\S+\.cc", program)]


def name_complaints(root, sources):
    for batch in batches(root, sources):
        first = {}
        for path in batch:
            for number, name in anonymous_names(sources.get(path, [])):
                if first.setdefault(name, path) != path:
                    yield f"{path}:{number}: {name} is in an anonymous namespace of {first[name]} as well; name it anew, or share it"


def types(lines):
    """Yields line number and qualified name of each type that is defined outside of anonymous namespaces."""
    inside = []
    for number, line in enumerate(lines, 1):
        if opened := re.match(r"namespace\s*([\w:]*)\s*\{$", line):
            inside.append(opened[1])
        elif line.startswith("}  // namespace") and inside:
            inside.pop()
        elif (found := TYPE_DEFINED.match(line)) and "" not in inside:
            yield number, "::".join([*inside, found[1]])


def type_complaints(sources):
    """Two types of one name break the one-definition rule unseen: functions of one run on objects of the other."""
    first = {}
    for path in sorted(sources):
        if not path.startswith("tests" + os.sep):
            for number, name in types(sources[path]):
                if first.setdefault(name, path) != path:
                    yield f"{path}:{number}: {name} is a type of {first[name]} as well; name it anew"


def unlisted_test_complaints(root):
    """Yields tests that no CMake file names, which would never run."""
    paths = [path for path in files_below(root) if path.startswith("tests" + os.sep)]
    named = set()
    for path in paths:
        if path.endswith((".cmake", "CMakeLists.txt")):
            text = "\n".join(line.split("#")[0] for line in read_lines(root, path))
            named |= {os.path.join(os.path.dirname(path), word.lstrip("/")) for word in re.findall(r"[\w./-]+_test\.\w+", text)}
    for path in paths:
        if re.search(r"_test\.(?:cc|py|sh)$", path) and path not in named:
            yield f"{path}:1: a test that no CMake file below tests/ names, so nothing runs it"


def document_complaints(root, path, lines):
    if path == "README.md" and len(lines) > README_LINES_MAX:
        yield 1, f"{len(lines)} lines; the limit is {README_LINES_MAX}: what is long belongs into docs/"
    for number, line in enumerate(lines, 1):
        for target in re.findall(r"\]\(([^)#\s]+)", line):
            if "://" not in target and not os.path.exists(os.path.join(root, os.path.dirname(path), target)):
                yield number, f"a link to {target}, which is not there"


def opening_comment(lines):
    end = 0
    while end < len(lines) and lines[end].startswith("//"):
        end += 1
    return lines[:end]


def header_complaints(lines):
    comment = len(opening_comment(lines))
    if comment < HEADER_COMMENT_LINES_MIN:
        yield 1, "a header opens with a comment on what it is, who owns what and why"
    if lines[comment : comment + 1] != ["#pragma once"]:
        yield comment + 1, "#pragma once belongs right under the opening comment"


def drawing_complaints(lines):
    """Yields tables and drawings in comments that a wrong line break has taken apart: the second cells of a table's rows
    stand in one column, and a line that goes up or down in a drawing meets something there."""
    table, above = [], ""
    for number, line in enumerate(lines + [""], 1):
        row = re.match(r"^ *//(   +)(\S.*)$", line)
        if row:
            table.append((number, len(row[1]), row[2]))
        else:
            yield from table_complaints(table)
            table = []
        comment = line if re.match(r"^ *//", line) else ""
        for upper, lower, arms in ((above, comment, "│└┘├┤┴┼"), (comment, above, "│┌┐├┤┬┼")):
            for column, sign in enumerate(lower):
                if sign in arms and not upper[column : column + 1].strip():
                    yield number, f"a drawing is broken: {sign} leads to nothing"
        above = comment


def table_complaints(rows):
    base = min((indent for _, indent, _ in rows), default=0)
    gaps = [(number, indent, text, re.search(r" {2,}(?=\S)", text)) for number, indent, text in rows]
    second = [indent + gap.end() for _, indent, _, gap in gaps if gap and indent == base]
    if len(second) < 2 or any(re.search(r"[)}];$|\{$", text) for _, _, text in rows):  # Text, or code.
        return
    column = max(second, key=second.count)
    for number, indent, text, gap in gaps:
        if indent > base:
            wrong = indent < column and indent != base + 2
        elif gap:
            wrong = indent + gap.end() != column and indent + gap.start() < column - 1
        else:
            wrong = True
        if wrong:
            yield number, f"a table is broken: its second cells stand in column {column + 2}"


def own_header_complaints(root, path, lines):
    header = path[:-3] + ".h"
    if not os.path.exists(os.path.join(root, header)):
        return
    for number, line in enumerate(lines, 1):
        if line.startswith("#include"):
            if line != f'#include "{header}"':
                yield number, f"the first include is the file's own header, {header}"
            return


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0


def measure_complaints(file_lengths, functions):
    lengths = [length for _, _, length in functions]
    file_p90 = percentile(file_lengths, 0.9)
    function_p90 = percentile(lengths, 0.9)
    long_ones = [f for f in functions if f[2] > FUNCTION_LINES_LONG]
    print(f"files: {len(file_lengths)}, median {percentile(file_lengths, 0.5)} lines, p90 {file_p90}, "
          f"longest {max(file_lengths, default=0)}")
    print(f"functions: {len(lengths)}, median {percentile(lengths, 0.5)} lines, p90 {function_p90}, "
          f"{len(long_ones)} over {FUNCTION_LINES_LONG}")
    if file_p90 >= LINES_P90:
        yield f"nine files in ten should be under {LINES_P90} lines"
    if function_p90 >= FUNCTION_LINES_P90:
        yield f"nine functions in ten should be under {FUNCTION_LINES_P90} lines"
    if len(long_ones) > FUNCTIONS_LONG_SHARE * max(1, len(lengths)):
        named = ", ".join(f"{path}:{line} ({length})" for path, line, length in long_ones)
        yield f"more than one function in a hundred is over {FUNCTION_LINES_LONG} lines: {named}"


def main(root):
    sources = read_sources(root)
    pure = pure_files(root, sources)
    file_lengths, functions, complaints = [], [], []
    code_lines = test_lines = 0
    for path in files_below(root):
        lines = sources[path] if path in sources else read_lines(root, path)
        found = list(line_complaints(path, lines, path in pure))
        if path.endswith(".md"):
            found += document_complaints(root, path, lines)
        if path.endswith(CPP + (".py",)):
            found += words.complaints(path, lines)
        if path.endswith(CPP):
            found += header_complaints(lines) if path.endswith(".h") else []
            found += drawing_complaints(lines)
            found += sentences.complaints(path, lines)
            found += [(n, f"a comment of {len(line)} columns; the limit is {COMMENT_COLUMNS_MAX}")
                      for n, line in enumerate(lines, 1) if re.match(r" *//", line) and len(line) > COMMENT_COLUMNS_MAX]
            if path.endswith(".cc"):
                found += own_header_complaints(root, path, lines)
            if len(lines) > LINES_MAX:
                found.append((1, f"{len(lines)} lines; the limit is {LINES_MAX}"))
            if path.startswith("tests" + os.sep):
                test_lines += len(lines)
            else:
                code_lines += len(lines)
                file_lengths.append(len(lines))
                functions += [(path, line, length) for line, length in function_lengths(lines)]
        elif path.startswith("tests" + os.sep) and path.endswith(".py"):
            test_lines += len(lines)
        complaints += [f"{path}:{number}: {message}" for number, message in sorted(found)]
    complaints += name_complaints(root, sources)
    complaints += type_complaints(sources)
    complaints += unlisted_test_complaints(root)
    complaints += layers.layer_complaints(sources)
    complaints += classes.class_complaints(sources)
    complaints += measure_complaints(file_lengths, functions)
    ratio = test_lines / max(1, code_lines)
    print(f"lines: {code_lines} of code, {test_lines} of tests, {ratio:.2f} to 1")
    for complaint in complaints:
        print(complaint)
    print(f"tidy: {len(complaints)} complaints")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main(os.path.normpath(sys.argv[1] if len(sys.argv) > 1 else ROOT)))
