#!/usr/bin/env python3
"""Compiles the example that opens each public header of the worker library, as it stands there.

    header_examples.py COMPILER FOLDER      prints HEADER: what is wrong; exit status 1 if anything was found

The example is the first indented paragraph of the opening comment, with the indented ones that follow it directly. It must
compile without a warning after its own #includes and its header alone; that of muster.h as C99. An example with a main()
is a whole program; any other is put into a function. Names that an example expects from its reader (a model, a function
that trains it) are declared in OWN_NAMES. The script tests itself on each run.
"""
import os
import subprocess
import sys

CPP = ["-x", "c++", "-std=c++20"]
C = ["-x", "c", "-std=c99", "-pedantic"]
WARNINGS = ["-fsyntax-only", "-Wall", "-Wextra", "-Werror"]

LAYERS = """
#include <vector>
struct Layer { std::vector<float> dw, db; };
extern Layer layer1, layer2;
extern const int steps;
void backward(Layer& layer);
void update(Layer& first, Layer& second);
"""
OWN_NAMES = {
    "checkpoint.h": """
#include <ostream>
struct Model;
extern Model& model;
extern const int epochs;
int restore(Model& model, const std::string& bytes);
void train(int epoch, Model& model);
void write(const Model& model, std::ostream& out);
""",
    "error.h": "#include <vector>\nextern std::vector<float> gradients;",
    "gradient_buckets.h": LAYERS,
    "sampler.h": """
extern const std::vector<std::vector<float>> images;
extern const unsigned epochs;
void train(const std::vector<float>& image);
""",
    "section.h": "void evaluate();",
    "training.h": """
struct Dataset {};
Dataset open_or_download(const char* folder);
void train(int step, const Dataset& data);
std::string parameters();
""",
    "types.h": "extern void* pointer;",
    "work.h": """
#include <vector>
extern muster::ProcessGroup group;
extern std::vector<float> gradients;
void compute_something_else();
""",
}


def opening_comment(text):
    """Returns the lines of the comment that the text begins with, without their slashes."""
    lines = []
    for line in text.split("\n"):
        if not line.startswith("//"):
            break
        lines.append(line[2:])
    return lines


def example_of(text):
    """Returns the lines of the example; none if there is no example."""
    paragraphs = [[]]
    for line in opening_comment(text):
        if line.strip():
            paragraphs[-1].append(line)
        else:
            paragraphs.append([])
    example = []
    for paragraph in paragraphs:
        if paragraph and all(line.startswith("   ") for line in paragraph):
            example += [*([""] if example else []), *(line[3:] for line in paragraph)]
        elif example:
            break
    return example


def program_of(header, example):
    """Returns the example as a source file."""
    own_names = OWN_NAMES.get(header, "")
    includes = [line for line in example if line.startswith("#include")]
    code = "\n".join(line for line in example if line not in includes)
    if "int main(" not in code:
        code = f"int example();\nint example() {{\n{code}\nreturn 0;\n}}"
    return "\n".join([*includes, f"#include <muster/{header}>", own_names, code, ""])


def compiled(compiler, folder, language, program):
    """Returns the compiler's output; empty if the program compiles."""
    done = subprocess.run([compiler, *language, *WARNINGS, "-I", os.path.join(folder, ".."), "-"], input=program,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60, check=False)
    return done.stdout if done.returncode else ""


def complaint_about(compiler, folder, header):
    with open(os.path.join(folder, header), encoding="utf-8") as file:
        example = example_of(file.read())
    if not example:
        return "no example in the opening comment"
    return compiled(compiler, folder, C if header == "muster.h" else CPP, program_of(header, example))


def self_test(compiler, folder):
    text = "// What it is.\n//\n//   int f();\n//\n//   int g();\n//\n// More:\n// - a\n//   b\n//\n//   no\nint h();\n"
    assert example_of(text) == ["int f();", "", "int g();"], example_of(text)
    assert not example_of("// What it is.\n// - a list\n//   of one\n#pragma once\n//\n//   int f();\n")
    good = program_of("work.h", ["#include <muster/process_group.h>", "group.barrier();"])
    assert not compiled(compiler, folder, CPP, good)
    assert "nodiscard" in compiled(compiler, folder, CPP, good.replace("barrier", "barrier_async"))
    assert compiled(compiler, folder, CPP, good.replace("group.barrier", "muster::init_process_group"))
    assert compiled(compiler, folder, C, program_of("muster.h", ["int main(void) { return nullptr; }"]))


def main(compiler, folder):
    self_test(compiler, folder)
    headers = sorted(name for name in os.listdir(folder) if name.endswith(".h"))
    complaints = {header: complaint_about(compiler, folder, header) for header in headers}
    for header, complaint in complaints.items():
        if complaint:
            print(f"{header}: {complaint}")
    wrong = sum(1 for complaint in complaints.values() if complaint)
    print(f"header_examples: {len(headers)} headers, {wrong} complaints")
    return 1 if wrong or not headers else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
