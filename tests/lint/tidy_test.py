#!/usr/bin/env python3
"""Checks that each rule of tidy.py and layers.py fails on a tree that breaks it, and on that tree alone."""
import contextlib
import io
import os
import re
import tempfile
import unittest

import layers
import tidy

HEADER = "// What it is,\n// and why it is here.\n#pragma once\n"


class TidyTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def complaints(self, files, check=tidy):
        """Returns the complaints about a tree with these files, given by path."""
        for path, text in files.items():
            path = os.path.join(self.folder.name, path)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            status = check.main(self.folder.name)
        lines = said.getvalue().splitlines()
        found = [line for line in lines[:-1] if re.search(r"\.(?:h|cc|md|py):", line)]
        self.assertEqual(status, 1 if found else 0, lines)
        return found

    def assert_one(self, words, files):
        found = self.complaints(files)
        self.assertEqual(len(found), 1, found)
        self.assertIn(words, found[0])

    def test_accepts_a_good_tree(self):
        self.assertEqual(self.complaints({"agent/a.h": HEADER, "agent/a.cc": '#include "agent/a.h"\n',
                                          "README.md": "[a](agent/a.h)\n"}), [])

    def test_reports_a_circle_of_folders(self):
        found = self.complaints({"agent/job/a.h": HEADER + '#include "agent/report/b.h"\n',
                                 "agent/report/b.h": HEADER + '#include "agent/output/c.h"\n',
                                 "agent/output/c.h": HEADER + '#include "agent/job/a.h"\n'})
        self.assertEqual(len(found), 3, found)
        self.assertIn("agent/job/a.h:4: agent/job includes agent/report, in a circle of 3 folders", found)

    def test_leaves_a_folder_above_a_circle_out_of_it(self):
        found = self.complaints({"agent/job/a.h": HEADER + '#include "agent/report/b.h"\n',
                                 "agent/report/b.h": HEADER + '#include "agent/job/a.h"\n',
                                 "agent/control/c.h": HEADER + '#include "agent/job/a.h"\n'}, layers)
        self.assertEqual([line.split(":")[0] for line in found], ["agent/job/a.h", "agent/report/b.h"])

    def test_reports_an_include_of_a_part_that_is_not_below(self):
        for path, target in (("rendezvous/net/a.h", "agent/b.h"), ("agent/a.h", "worker_lib/b.h"),
                             ("worker_lib/a.h", "agent/b.h"), ("agent/a.h", "tests/unit/b.h"),
                             ("rendezvous/base/a.h", "rendezvous/net/b.h"), ("examples/a.h", "worker_lib/b.h")):
            with self.subTest(path=path, target=target), tempfile.TemporaryDirectory() as self.folder.name:
                self.assert_one(path + ":4: ", {path: HEADER + f'#include "{target}"\n', target: HEADER})

    def test_allows_an_include_of_tests_for_planted_bugs(self):
        text = HEADER + '#ifdef MUSTER_PLANTED_BUGS\n#include "tests/b.h"\n#else\n#endif\n'
        self.assertEqual(self.complaints({"agent/a.h": text, "tests/b.h": HEADER}), [])
        self.assert_one("may not include tests/", {"agent/a.h": text + '#include "tests/b.h"\n'})

    def test_reports_a_class_that_is_too_large(self):
        def parts(count, declaration):
            return "\n".join(declaration.format(i) for i in range(count))
        large = {"members": parts(26, "  int a{}_ = 0;"), "bools": parts(6, "  bool a{}_ = false;"),
                 "methods": parts(51, "  void a{}(int value) {{ use(value); }}"),
                 "declared": parts(51, "  std::vector<int> a{}(int value,\n      int other) const;")}
        for what, text in large.items():
            with self.subTest(what):
                found = self.complaints({"agent/a.h": f"{HEADER}namespace muster {{\nclass Many {{\n private:\n{text}\n}};\n}}\n"})
                self.assertEqual(len(found), 1, found)
                self.assertRegex(found[0], rf"Many has \d+ {what.replace('declared', 'methods')}; the limit is \d+")
        files = {f"agent/a{i}.cc": f"void Many::a{i}() {{\n}}\n" for i in range(4)}
        self.assert_one("Many has 4 files; the limit is 3", files | {"agent/a.h": f"{HEADER}class Many {{\n  int a_ = 0;\n}};\n"})

    def test_reports_a_sentence_of_ours_that_is_read_again(self):
        for code in ('if (contains(worker.cause.sentence, "timed out")) f();', 'return cause->sentence.starts_with("killed");',
                     'if (describe(status).find("SIG") == 0) f();', 'return failure.remedy == kOther;',
                     'const bool same = life_text(a) == life_text(b);', 'text = call_text(one, f(2)).substr(3);'):
            with self.subTest(code=code):
                self.assert_one("compares, searches or cuts a sentence of ours", {"agent/a.cc": code + "\n"})
        self.assertEqual(self.complaints({"agent/a.cc": "say(describe(status));\nif (cause.sentence.empty()) f();\n"
                                                        "if (contains(searched_text(worker), \"Broken pipe\")) f();\n"
                                                        "// contains(cause.sentence, x)\n",
                                          "tests/a.cc": 'EXPECT_TRUE(contains(cause.sentence, "x"));\n'}), [])

    def test_reports_words_that_comments_and_names_of_tests_do_not_use(self):
        for code in ("int a = 0;  // Of the newest round.", "// Whose store it is.", "// In which order they come."):
            self.assert_one("a comment begins with", {"agent/a.cc": code + "\n"})
        for code in ("// Waits until somebody has come.", "int rank = -1;  // Nobody, or the rank."):
            self.assert_one("are people", {"agent/a.cc": code + "\n"})
        for code in ("TEST(Judge, OfTwoTheFirst) {\n}\n", "TEST(Judge, NamesNobody) {\n}\n"):
            self.assert_one("name the subject and what it does", {"agent/a.cc": "", "tests/a_test.cc": code, "tests/CMakeLists.txt": "a_test.cc\n"})
        self.assertEqual(self.complaints({"tests/a_test.cc": "", "agent/a.cc": "// The ranks of\n// Of a second line nothing is said.\nint a = 0;  // Offset.\n"}), [])

    def test_reports_a_pure_file_that_reads_a_clock(self):
        header = HEADER.replace("here.", "here. Pure.")
        self.assert_one("a pure file reads a clock", {"agent/a.h": header, "agent/a.cc": '#include "agent/a.h"\nnow();\n'})

    def test_reports_a_broken_table(self):
        table = "//   one    is this\n//   two    is that\n//   three  is more\n"
        self.assertEqual(self.complaints({"agent/a.cc": table}), [])
        self.assert_one("a table is broken", {"agent/a.cc": table + "//   words\n"})
        self.assert_one("a table is broken", {"agent/a.cc": table + "//   four  is less\n"})

    def test_reports_a_broken_drawing(self):
        drawing = "//   a ──▶ b\n//   ▲     │\n//   └─────┘\n"
        self.assertEqual(self.complaints({"agent/a.cc": drawing}), [])
        self.assert_one("│ leads to nothing", {"agent/a.cc": drawing.replace("▶ b\n", "▶\n// b\n").replace("▲     │", "▲  │")
                                               .replace("└─────┘", "└──┘  ")[:-3] + "\n"})

    def test_reports_a_comment_that_is_too_wide(self):
        self.assert_one("a comment of 101 columns", {"agent/a.cc": "// " + "x" * 98 + "\n"})

    def test_reports_a_name_that_two_anonymous_namespaces_have(self):
        text = "namespace muster {\nnamespace {\n\nvoid twice() {}\n\n}  // namespace\n}  // namespace muster\n"
        self.assert_one("twice is in an anonymous namespace of agent/a.cc as well", {"agent/a.cc": text, "agent/b.cc": text})

    def test_reports_a_name_that_two_types_have(self):
        text = HEADER + "namespace muster {\n\nstruct Twice {\n  int a;\n};\n\n}  // namespace muster\n"
        self.assert_one("muster::Twice is a type of agent/a.h as well", {"agent/a.h": text, "rendezvous/b.h": text})

    def test_reports_a_test_that_no_cmake_file_names(self):
        tests = {"tests/unit/a_test.cc": "", "tests/live/b_test.py": ""}
        lists = {"tests/CMakeLists.txt": "muster_live_test(b live/b_test.py TIMEOUT 60)\n",
                 "tests/unit/more.cmake": "muster_test(all unit SOURCES a_test.cc)\n"}
        self.assertEqual(self.complaints({**tests, **lists}), [])
        self.assert_one("tests/unit/a_test.cc:1: a test that no CMake file",
                        {"tests/unit/more.cmake": "muster_test(all unit SOURCES  # a_test.cc\n  a_a_test.cc)\n"})
        self.assert_one("tests/live/c_test.py:1: a test that no CMake file", {**lists, "tests/live/c_test.py": ""})

    def test_reports_a_long_readme(self):
        self.assert_one("151 lines; the limit is 150", {"README.md": "\n" * 151})

    def test_reports_links_to_missing_files_and_unknown_hosts(self):
        self.assert_one("a link to docs/none.md, which is not there", {"README.md": "[a](docs/none.md)\n"})
        self.assert_one("not on the list of public hosts", {"README.md": "http" + "://mirror.invalid/a\n"})

    def test_reports_a_header_without_a_comment(self):
        self.assert_one("a header opens with a comment", {"agent/a.h": "#pragma once\n"})

    def test_reports_a_source_that_includes_another_header_first(self):
        self.assert_one("the first include is the file's own header",
                        {"agent/a.h": HEADER, "agent/a.cc": '#include <string>\n#include "agent/a.h"\n'})

    def test_reports_a_coroutine(self):
        self.assert_one("a coroutine", {"agent/a.cc": "void f() { co_" + "return; }\n"})

    def test_reports_a_plain_copy_in_the_worker_library(self):
        copy = "void f() { std::mem" + "cpy(to, from, %s); }\n"
        self.assert_one("use copy_bytes()", {"worker_lib/a.cc": copy % "bytes"})
        self.assertEqual(self.complaints({"worker_lib/a.cc": copy % "sizeof one", "agent/a.cc": copy % "bytes"}), [])

    def test_reports_a_note_to_self(self):
        self.assert_one("a note to self", {"agent/a.cc": "// TO" + "DO\n"})

    def test_reports_a_file_that_is_too_long(self):
        found = self.complaints({"agent/a.cc": "int a;\n" * 801})
        self.assertTrue(any("801 lines; the limit is 800" in line for line in found), found)


if __name__ == "__main__":
    unittest.main(verbosity=2)
