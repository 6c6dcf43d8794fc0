"""Finds words that comments and names of tests do not use: a comment begins with a noun or a verb, and ranks and processes are
no persons. A list can keep out no more than that; the rest of the house style is for readers."""
import re

BEGINNING = r"(?:Of|Whose|Whom|(?:By|For|From|In|On|To|With|Without) (?:which|whom|what))\b"
PERSONS = r"(?:nobody|somebody|anybody|everybody|whoever)\b"
CPP_COMMENT = re.compile(r"(?:^|[\s;{},(])//\s*(?P<text>\S.*)")
PYTHON_COMMENT = re.compile(r"(?:^|\s)#\s*(?P<text>[A-Z].*)")
PYTHON_DOCSTRING = re.compile(r'^\s*"""(?P<text>.*)')
TEST_NAME = re.compile(r"^(?:TEST(?:_[FP])?|TYPED_TEST|RC_GTEST_(?:FIXTURE_)?PROP)\(\s*\w+,\s*(?P<name>\w+)|^\s+def (?P<method>test_\w+)\(")
FRAGMENT = re.compile(r"(?:Of|Whose|Whom|Whoever|Nobody|Somebody|Anybody|Everybody)(?=[A-Z0-9])|(?:test_)?(?:of|whose|whom|whoever|nobody|somebody)_")
FRAGMENT_ANYWHERE = re.compile(r"(?:Nobody|Somebody|Anybody|Everybody|Whoever)(?=[A-Z0-9]|$)|(?:^|_)(?:nobody|somebody|anybody|everybody|whoever)(?:_|$)")


def comments(path, lines):
    """Number, text and whether it is the first line of its comment."""
    pattern = PYTHON_COMMENT if path.endswith(".py") else CPP_COMMENT
    is_inside = False
    for number, line in enumerate(lines, 1):
        found = pattern.search(line) or (path.endswith(".py") and PYTHON_DOCSTRING.match(line)) or None
        is_whole_line = found is not None and not line[:found.start("text")].strip(" /#\"")
        if found:
            yield number, found["text"], not (is_inside and is_whole_line)
        is_inside = is_whole_line


def complaints(path, lines):
    for number, text, is_first in comments(path, lines):
        if is_first and re.match(BEGINNING, text):
            yield number, f"a comment begins with '{text.split()[0]}': begin with a noun or a verb"
        if re.search(rf"\b{PERSONS}", text, re.I):
            yield number, "nobody, somebody, whoever ... are people: say which rank, process or node"
    for number, line in enumerate(lines, 1):
        found = TEST_NAME.match(line)
        name = found and (found["name"] or found["method"])
        if name and (FRAGMENT.match(name) or FRAGMENT_ANYWHERE.search(name)):
            yield number, f"{name}: name the subject and what it does"
