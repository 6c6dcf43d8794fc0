"""What an installed muster gives a program: headers that stand alone, a package for CMake and for pkg-config, C and C++
programs that build with nothing else, by any compiler, and run as ranks, and a library that shows its C functions alone.
"""
import os
import re
import shutil
import subprocess
import tempfile

from harness import LiveTest, long, main, output_of, run

BUILD = os.environ["MUSTER_BUILD"]
PROGRAMS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "programs")
WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wconversion", "-Werror"]

PROJECT = """cmake_minimum_required(VERSION 3.25)
project(user LANGUAGES {language})
find_package(muster 0.1 REQUIRED COMPONENTS worker)
add_executable(user {source})
target_link_libraries(user PRIVATE muster::muster)
"""


def compilers(*names):
    return [found for found in map(shutil.which, names) if found]


class Installed(LiveTest):
    @classmethod
    def setUpClass(cls):
        """Installs once, then moves the folder: no file may contain the original path."""
        cls.scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.scratch.cleanup)
        first = os.path.join(cls.scratch.name, "first")
        output_of("cmake", "--install", BUILD, "--prefix", first)
        cls.prefix = os.path.join(cls.scratch.name, "moved here")
        os.rename(first, cls.prefix)

    def find(self, name):
        for folder, _, names in os.walk(self.prefix):
            if name in names:
                return os.path.join(folder, name)
        self.fail(f"{name} was not installed")

    def headers(self):
        folder = os.path.dirname(self.find("muster.h"))
        return folder, sorted(os.listdir(folder))

    def build_with_cmake(self, language, source, *flags):
        project = self.path(f"project-{language}")
        os.mkdir(project)
        with open(os.path.join(project, "CMakeLists.txt"), "w") as f:
            f.write(PROJECT.format(language=language, source=source))
        build = os.path.join(project, "build")
        output_of("cmake", "-G", "Ninja", "-S", project, "-B", build, f"-DCMAKE_PREFIX_PATH={self.prefix}", *flags)
        output_of("cmake", "--build", build)
        return os.path.join(build, "user")

    def pkg_config(self, *flags):
        folder = os.path.dirname(self.find("muster.pc"))
        text = output_of("pkg-config", *flags, "muster", env={**os.environ, "PKG_CONFIG_PATH": folder})
        # The moved prefix has a space, which pkg-config escapes.
        return re.sub(r"\\ ", "\0", text.strip()).replace(" ", "\n").replace("\0", " ").split("\n")

    def assert_runs(self, program, ranks, wanted, *arguments):
        code, out, err = run("--nproc-per-node", ranks, "--no-python", program, *arguments, limit_s=120)
        self.assertEqual(code, 0, err)
        self.assertIn(wanted, out)

    def test_a_cxx_program_builds_by_cmake(self):
        program = self.build_with_cmake("CXX", os.path.join(PROGRAMS, "installed_user.cc"))
        self.assert_runs(program, 4, "average of 4 ranks: 1.5")
        # A program without a launcher is a world of one.
        self.assertIn("average of 1 ranks: 0", output_of(program))

    @long
    def test_a_c_program_builds_by_cmake_in_a_project_without_cxx(self):
        program = self.build_with_cmake("C", os.path.join(PROGRAMS, "c_tour.c"), "-DCMAKE_C_STANDARD=99",
                                        "-DCMAKE_C_EXTENSIONS=OFF", f"-DCMAKE_C_FLAGS={' '.join(WARNINGS)}")
        for ranks in (1, 2, 3, 4):
            self.assert_runs(program, ranks, f"tour of {ranks} ranks: done")
        self.assert_runs(program, 2, "tour of 2 ranks: done", "forever")

    def test_c_and_cxx_programs_build_by_pkg_config(self):
        self.assertEqual(self.pkg_config("--modversion"), [re.search(r"VERSION (\S+)", self.version_line())[1]])
        flags = self.pkg_config("--cflags", "--libs")
        rpath = "-Wl,-rpath," + os.path.dirname(self.find("libmuster.so"))
        for compiler, source, wanted, *arguments in (
                ("c++ -std=c++17", "installed_user.cc", "average of 2 ranks: 0.5"),
                ("cc -std=c99", "c_tour.c", "tour of 2 ranks: done", self.path("tour.ckpt"))):
            program = self.path(source + ".bin")
            output_of(*compiler.split(), *WARNINGS, os.path.join(PROGRAMS, source), "-o", program, *flags, rpath)
            self.assert_runs(program, 2, wanted, *arguments)

    def test_any_compiler_standard_library_and_standard_from_cxx17_on_uses_the_library(self):
        flags = self.pkg_config("--cflags", "--libs")
        rpath = "-Wl,-rpath," + os.path.dirname(self.find("libmuster.so"))
        for compiler in ("g++ -std=c++17", "g++ -std=c++23", "clang++-19 -std=c++17 -stdlib=libc++",
                         "clang++-19 -std=c++20 -stdlib=libc++"):
            program = self.path("tour")
            output_of(*compiler.split(), *WARNINGS, os.path.join(PROGRAMS, "cpp_tour.cc"), "-o", program, *flags, rpath)
            self.assertIn("tour: 2 ranks ended well", output_of(program, self.path("tour.ckpt")), compiler)

    def version_line(self):
        with open(os.path.join(os.path.dirname(self.find("musterConfigVersion.cmake")), "musterConfigVersion.cmake")) as f:
            return "VERSION " + re.search(r'PACKAGE_VERSION "([^"]+)"', f.read())[1]

    @long
    def test_the_installed_examples_build_against_the_library(self):
        source = os.path.dirname(self.find("ranks.cc"))
        build = self.path("examples")
        output_of("cmake", "-G", "Ninja", "-S", source, "-B", build, f"-DCMAKE_PREFIX_PATH={self.prefix}")
        output_of("cmake", "--build", build, "--target", "example_ranks")
        self.assert_runs(os.path.join(build, "ranks"), 2, "the ranks add up to 1")

    def test_an_older_standard_is_one_clear_error(self):
        folder, names = self.headers()
        for compiler in compilers("g++", "clang++-19", "clang++"):
            for name in names:
                if name == "muster.h":
                    continue
                done = subprocess.run([compiler, "-std=c++14", "-fsyntax-only", "-x", "c++", "-I", os.path.dirname(folder), "-"],
                                      capture_output=True, text=True, check=False, input=f"#include <muster/{name}>\n")
                self.assertNotEqual(done.returncode, 0)
                first, *others = re.findall(r"(?:fatal )?error: (.*)", done.stderr)
                self.assertIn("muster's C++ headers need C++17: compile with -std=c++17", first, f"{compiler} {name}")
                self.assertEqual(len(others), 1, done.stderr)

    def test_an_unknown_component_is_named(self):
        project = self.path("unknown")
        os.mkdir(project)
        with open(os.path.join(project, "CMakeLists.txt"), "w") as f:
            f.write("cmake_minimum_required(VERSION 3.25)\nproject(user NONE)\n"
                    "find_package(muster REQUIRED COMPONENTS worker trainer)\n")
        done = subprocess.run(["cmake", "-S", project, "-B", os.path.join(project, "build"),
                               f"-DCMAKE_PREFIX_PATH={self.prefix}"], capture_output=True, text=True, check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("no component `trainer`", " ".join(done.stderr.split()))

    @long
    def test_every_header_compiles_alone(self):
        folder, names = self.headers()
        self.assertGreaterEqual(len(names), 10)
        for compiler in compilers("g++", "clang++-19", "clang++"):
            for name in names:
                output_of(compiler, "-std=c++17", *WARNINGS, "-fsyntax-only", "-x", "c++", "-I", os.path.dirname(folder), "-",
                          input=f"#include <muster/{name}>\n#include <muster/{name}>\n")
        for compiler in compilers("gcc", "clang-19", "clang"):
            for standard in ("c99", "c11", "gnu17"):
                output_of(compiler, f"-std={standard}", *WARNINGS, "-fsyntax-only", "-x", "c", "-I",
                          os.path.dirname(folder), "-", input="#include <muster/muster.h>\n#include <muster/muster.h>\n")

    def test_dropping_the_result_of_spawn_is_a_warning(self):
        """Such a program would end with 0 though a rank has failed."""
        folder, _ = self.headers()
        def compiled(compiler, statement):
            return subprocess.run([compiler, "-std=c++20", "-fsyntax-only", "-Werror", "-x", "c++", "-I",
                                   os.path.dirname(folder), "-"], capture_output=True, text=True, check=False,
                                  input=f"#include <muster/spawn.h>\nint main() {{ {statement}; }}\n")
        for compiler in compilers("g++", "clang++-19", "clang++"):
            calls = ("muster::spawn(2, [](int) { return 0; })", "muster::spawn(2, [](int) {})")
            kept = compiled(compiler, "return " + " + ".join(f"{call}.exit_code()" for call in calls))
            self.assertEqual(kept.returncode, 0, kept.stderr)
            dropped = compiled(compiler, "; ".join(calls))
            self.assertEqual(len(re.findall("error: .*a rank may have failed", dropped.stderr)), len(calls), dropped.stderr)

    def test_headers_need_only_the_standard_library_and_show_an_example_first(self):
        folder, names = self.headers()
        for name in names:
            with open(os.path.join(folder, name)) as f:
                text = f.read()
            for include in re.findall(r'(?m)^#include\s*[<"]([^">]+)', text):
                self.assertTrue("muster/" in include or "/" not in include and ".h" not in include
                                or include in ("stddef.h", "stdint.h"), f"{name} includes {include}")
            opening = text[:text.index("#pragma once")]
            self.assertRegex(opening, r"(?m)^//   \S", f"{name} has no example in its opening comment")

    def test_the_library_shows_the_functions_of_its_c_header_and_nothing_else(self):
        """A foreign name that is visible outside would replace the program's own."""
        names = output_of("nm", "-D", "--defined-only", self.find("libmuster.so"))
        shown = [line.split()[2] for line in names.splitlines() if " A " not in line]
        folder, _ = self.headers()
        with open(os.path.join(folder, "muster.h")) as f:
            header = f.read()
        version = re.search(r"#define MUSTER_ABI_VERSION (\d+)", header)[1]
        declared = re.findall(r"^MUSTER_API[^;]*?\b(muster_\w+)\(", header, re.M)
        self.assertEqual(sorted(shown), sorted(f"{name}@@MUSTER_{version}" for name in declared))
        self.assertGreater(len(declared), 60)

    def test_the_library_needs_only_system_libraries(self):
        system = {"libc", "libm", "libstdc++", "libgcc_s", "ld-linux-x86-64", "ld-linux-aarch64", "libpthread", "libdl"}
        self.assertLessEqual(self.needed("libmuster.so"), system)
        self.assertLessEqual(self.needed(self.gloo_library()), system | {"libgloo"})

    def needed(self, library):
        return set(re.findall(r"NEEDED.*\[(\S+?)\.so", output_of("readelf", "-d", self.find(library))))

    def gloo_library(self):
        folder = os.path.dirname(self.find("libmuster.so"))
        return max((name for name in os.listdir(folder) if name.startswith("libmuster_gloo.so.")), key=len)

    def test_gloo_is_loaded_from_beside_the_library_and_named_if_missing(self):
        program = self.build_with_cmake("CXX", os.path.join(PROGRAMS, "installed_user.cc"))
        self.assert_runs(program, 2, "average of 2 ranks: 0.5", "gloo")
        library = self.find(self.gloo_library())
        self.assertEqual(output_of("nm", "-D", "--defined-only", library).split()[1:], ["T", "muster_gloo_module"])
        os.rename(library, library + ".away")
        self.addCleanup(os.rename, library + ".away", library)
        code, _, err = run("--nproc-per-node", 2, "--no-python", program, "gloo", limit_s=120)
        self.assertEqual(code, 1, err)
        self.assertRegex(err, r"the gloo backend cannot be opened: libmuster_gloo\.so\.\S+: cannot open shared object file")
        self.assertIn("or use the cpu backend", err)
        self.assert_runs(program, 2, "average of 2 ranks: 0.5")

    def test_gloo_may_be_a_library_of_another_compiler_but_not_of_another_version(self):
        program = self.build_with_cmake("CXX", os.path.join(PROGRAMS, "installed_user.cc"))
        def with_library(name):
            env = {**os.environ, "MUSTER_GLOO_LIBRARY": os.path.join(BUILD, "tests", name)}
            return run("--nproc-per-node", 2, "--no-python", program, "gloo", env=env, limit_s=120)
        code, out, err = with_library("plug_in.so")
        self.assertEqual(code, 0, err)
        self.assertIn("average of 2 ranks: 0.5", out)
        code, _, err = with_library("plug_in_version.so")
        self.assertEqual(code, 1, err)
        self.assertRegex(err, r"init_process_group: .*plug_in_version\.so was built for another table of backends: version 7 ")


if __name__ == "__main__":
    main()
