"""The built binary needs glibc only and prints its version, and installing puts all that the README promises in place."""
import os
import re
import tempfile
import time

from harness import MUSTER, LiveTest, main, output_of, run, within

BUILD = os.environ["MUSTER_BUILD"]


class TheBinary(LiveTest):
    def test_needs_glibc_and_nothing_else(self):
        libraries = re.findall(r"^\s*(\S+)", output_of("ldd", MUSTER), re.M)
        names = sorted(os.path.basename(library).split(".so")[0] for library in libraries)
        self.assertLessEqual(set(names), {"linux-vdso", "libc", "libm", "ld-linux-x86-64", "ld-linux-aarch64"})

    def test_version_names_the_commit(self):
        code, out, err = run("--version")
        self.assertEqual((code, err), (0, ""))
        self.assertRegex(out, r"^muster \d+\.\d+\.\d+ \(([0-9a-f]{12}(-dirty)?|no git)\)\n$")

    def test_help_fits_100_columns(self):
        code, out, err = run("--help")
        self.assertEqual((code, err), (0, ""))
        self.assertLessEqual(max(map(len, out.splitlines())), 100)
        for text in ("--nproc-per-node", "--max-restarts", "Examples", "seconds"):
            self.assertIn(text, out)

    def test_starts_a_job_within_milliseconds(self):
        """The benchmark measures it."""
        self.assertLess(min(self._time_of_one() for _ in range(5)), within(0.02))

    @staticmethod
    def _time_of_one():
        before = time.monotonic()
        run("--nproc-per-node", 2, "--no-python", "true")
        return time.monotonic() - before


class Installed(LiveTest):
    def test_programs_manuals_completions_and_package_are_there(self):
        with tempfile.TemporaryDirectory() as prefix:
            output_of("cmake", "--install", BUILD, "--prefix", prefix)
            found = sorted(os.path.relpath(os.path.join(folder, name), prefix)
                           for folder, _, names in os.walk(prefix) for name in names)
            for wanted in ("bin/muster", "bin/musterctl", "share/man/man1/musterctl.1", "share/man/man1/muster.1", "share/bash-completion/completions/muster",
                           "share/zsh/vendor-completions/_muster"):
                self.assertIn(wanted, found)
            self.assertTrue([name for name in found if name.endswith("cmake/muster/musterConfig.cmake")], found)
            page = output_of("man", "--warnings", "-l", os.path.join(prefix, "share/man/man1/muster.1"),
                             env={**os.environ, "MANWIDTH": "80", "LC_ALL": "C.UTF-8"})
            self.assertIn("--max-restarts", page)
            # The package gives a CMake project the launcher as a target.
            project = os.path.join(prefix, "user")
            os.mkdir(project)
            with open(os.path.join(project, "CMakeLists.txt"), "w") as f:
                f.write("cmake_minimum_required(VERSION 3.25)\nproject(user NONE)\nfind_package(muster 0.1 REQUIRED)\n"
                        "get_target_property(where muster::launcher LOCATION)\nmessage(STATUS \"found ${where}\")\n")
            shown = output_of("cmake", "-G", "Ninja", "-S", project, "-B", os.path.join(project, "build"),
                              f"-DCMAKE_PREFIX_PATH={prefix}")
            self.assertIn(f"found {prefix}/bin/muster", shown)


if __name__ == "__main__":
    main()
