#!/usr/bin/env python3
"""Finds uses of co_await that g++ 12.2 may compile wrongly, without a warning.

    co_await_lint.py FILE...      prints FILE:LINE: what is wrong; exit status 1 if anything was found

Known families (all give a double free, a use after free or a function that falls off its end):
temporaries made with braces, lambdas with captures, or ?: in the same statement as a co_await; and a
co_await in a condition. So the project allows these statements only

    co_await X;    v = co_await X;    auto [a, b] = co_await X;    co_return co_await X;

where X has no braces, no ?:, no capturing lambda and no second co_await, and the statement is not a
condition. A name for the offending part cures every case. The script tests itself on each run.
"""
import re
import sys

COMMENT_OR_LITERAL = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<tag>[^\s()\\]{0,16})\(.*?\)(?P=tag)"'
    r'|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'',
    re.S,
)
CONTROL = re.compile(r"\s*(?:else\b|do\b|(?:if|for|while|switch)\b\s*(?:constexpr\b)?\s*(?=\())")
LABEL = re.compile(r"\s*(?:case\b[^:?]*|default\s*|[A-Za-z_]\w*\s*):(?!:)")
ALLOWED_START = re.compile(r"\s*(?:co_return\s+|[^={}?]*[^=!<>{}?]=\s*|\(void\)\s*)?co_await\b")
CAPTURING_LAMBDA = re.compile(r"(?<![\w\])])\s*\[\s*[^\]\s][^\]]*\]\s*(?:\(|\{|<|mutable\b|->)")
# What stands before the { of a block; anything else before a { makes it a braced initialiser.
BLOCK_BEFORE = re.compile(
    r"(?:^|[;{}):\]]|\b(?:else|do|try|const|noexcept|mutable|override|final)|->\s*[\w:<>,&*\s]+)\s*$"
)


def blanked(source):
    """The source with comments and literals blanked out, at the same offsets."""

    def blank(match):
        text = match[0]
        kept = "".join("\n" if c == "\n" else " " for c in text)
        return '""' + kept[2:] if text[0] in "\"'R" and len(text) > 1 else kept

    return COMMENT_OR_LITERAL.sub(blank, source)


def closing(text, start):
    """The offset after the bracket that closes the one at `start`."""
    depth = 0
    for i in range(start, len(text)):
        depth += text[i] in "([{"
        depth -= text[i] in ")]}"
        if depth == 0:
            return i + 1
    return len(text)


def statement_start(text, at):
    """The offset where the statement around `at` begins, and whether a braced initialiser is in the way."""
    depth = 0
    for i in range(at - 1, -1, -1):
        c = text[i]
        if c in ")]" or (c == "}" and depth > 0):
            depth += 1
        elif c in "([" or (c == "{" and depth > 0):
            depth -= 1
        elif depth <= 0 and c == "{":
            return i + 1, BLOCK_BEFORE.search(text[max(0, i - 200) : i]) is None
        elif depth <= 0 and c == "}":
            return i + 1, False
        elif depth == 0 and c == ";":
            return i + 1, False
    return 0, False


def statement_end(text, at):
    depth = 0
    for i in range(at, len(text)):
        if depth <= 0 and text[i] == ";":
            return i
        depth += text[i] in "([{"
        depth -= text[i] in ")]}"
    return len(text)


def skip_control(text, start, at):
    """Moves past `if (…)`, `else` and labels before a statement; None if `at` is in their parentheses."""
    while True:
        label = LABEL.match(text, start, at)
        if label:
            start = label.end()
            continue
        control = CONTROL.match(text, start, at)
        if not control:
            return start
        start = control.end()
        if start < len(text) and text[start] == "(":
            start = closing(text, start)
            if start > at:
                return None


def complaint_about(text, at):
    """What is wrong with the co_await at offset `at`; None if nothing is."""
    start, in_braces = statement_start(text, at)
    if in_braces:
        return "co_await inside a braced initialiser"
    start = skip_control(text, start, at)
    if start is None:
        return "co_await in a condition"
    statement = text[start : statement_end(text, at)]
    if len(re.findall(r"\bco_await\b", statement)) > 1:
        return "two co_await in one statement"
    if "?" in statement:
        return "?: in a statement with co_await"
    if CAPTURING_LAMBDA.search(statement[statement.index("co_await") :]):
        return "capturing lambda in a statement with co_await"
    if "{" in statement:
        return "braces in a statement with co_await"
    if not ALLOWED_START.match(statement):
        return "co_await inside an expression; store its result in a variable first"
    return None


def complaints(source):
    """Pairs of a line number and a message."""
    text = blanked(source)
    for match in re.finditer(r"\bco_await\b", text):
        message = complaint_about(text, match.start())
        if message:
            yield text.count("\n", 0, match.start()) + 1, message


GOOD = """
co_await x;
v = co_await f(a, g(b));
const auto v = co_await f();
auto [a, b] = co_await f(std::move(c));
this->state[i].v = co_await f(x == y);
co_return co_await f();
if (a) co_await f();
if (a) { co_await f(); } else co_await g();
for (int i = 0; i < 3; ++i) co_await f();
case 1: co_await f();
case Kind::one: { co_await f(); }
try { co_await f(); } catch (...) { }
co_spawn(io, [this]() -> awaitable<void> { co_await f(); }, token);
co_spawn(io, [] { co_await f(); }, token);
co_await f("{ ? [x]{ co_await");
// if (co_await f()) {
auto t = R"(if (co_await x))"; co_await f();
awaitable<void> f() const { co_await g(); }
"""
BAD = """
if (co_await f()) g();
while (!co_await f()) { }
for (auto x : co_await f()) { }
switch (co_await f()) { }
co_await f(Options{});
co_await f({1, 2});
Pair p{co_await a(), 1};
f({co_await a()});
auto v = co_await (a ? b() : c());
auto v = a ? co_await b() : 1;
co_await f([p] { return p; });
co_await f([p = std::move(q)]() mutable { });
EXPECT_EQ(co_await f(), 1);
g(co_await f());
v = 1 + co_await f();
return co_await f();
v = co_await a() + co_await b();
v == co_await a();
"""


def self_test():
    for line in GOOD.strip().splitlines():
        found = list(complaints("void g() {\n" + line + "\n}"))
        assert not found, f"self-test: {line!r} was refused: {found}"
    for line in BAD.strip().splitlines():
        assert list(complaints("void g() {\n" + line + "\n}")), f"self-test: {line!r} was accepted"


def main(paths):
    self_test()
    count = 0
    for path in paths:
        with open(path, encoding="utf-8") as file:
            for line, message in complaints(file.read()):
                print(f"{path}:{line}: {message}")
                count += 1
    print(f"co_await_lint: {len(paths)} files, {count} complaints")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
