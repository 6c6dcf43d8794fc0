"""The published files, as users get them: the wheel in fresh environments and in fresh roots of Debian, the package for
Debian, the tarball. They are in $MUSTER_DIST; $MUSTER_WHEEL_TOOLS is a virtual environment with pipx, uv and auditwheel;
$MUSTER_ROOTS has a root for each release, $MUSTER_SYSROOT the libraries that the files contain (./dev test makes all)."""
import glob
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import textwrap
import unittest
import zipfile

from waiting import within

SKIPPED = 77
RELEASE = bool(os.environ.get("MUSTER_RELEASE"))  # What cannot be tested here fails.
DIST = os.environ.get("MUSTER_DIST", "")
TOOLS = os.path.join(os.environ.get("MUSTER_WHEEL_TOOLS", ""), "bin")
ROOTS = os.environ.get("MUSTER_ROOTS", "")
PROGRAMS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "programs")
LIMIT_S = 180
SIZE_MAX = 6_000_000
GLIBC = (2, 28)  # RHEL 8's.
MACHINE = os.uname().machine
SOURCES = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
SYSROOT = os.environ.get("MUSTER_SYSROOT", "")
IMPORT_MS = 3
# Prints a worker's variables and its Python.
TRAIN = """\
import json, os, sys
print(json.dumps({**{name: os.environ[name] for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}, "python": sys.prefix}))
"""
# Uses the worker library, and then waits for the file /go.
COLLECTIVES = """\
import array, os, time
import muster.distributed as dist
def wait_for_go():
    open(f"/there.{os.environ['RANK']}", "w").close()
    while not os.path.exists("/go"):
        time.sleep(0.01)
with dist.init() as world:
    sum = dist.all_reduce(array.array("d", [dist.rank() + 1] * 1000))
    names = dist.all_gather_object(f"rank {dist.rank()}")
    wait_for_go()
    print(sum[999], names)
"""
VALIDATE = """\
import sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
with open(sys.argv[1]) as bill: error = JsonStrictValidator(SchemaVersion.V1_6).validate_str(bill.read())
sys.exit(error and str(error.data)[:500])
"""
LAUNCH = """\
import os, muster
def times_rank(x): return x * int(os.environ["RANK"])
if __name__ == "__main__": print(muster.launch(times_rank, 10, nproc=3))
"""


def wheel():
    return glob.glob(f"{DIST}/*_{MACHINE}.whl")[0]


def clean_environment(**more):
    """Returns the environment without variables that choose a Python or change how pip works."""
    kept = {name: value for name, value in os.environ.items()
            if not re.match(r"PYTHON|VIRTUAL_ENV|CONDA|PET_|PIP_|MUSTER", name) or name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL")}
    return {**kept, **more}


def run(*command, env=None, **options):
    return subprocess.run([str(word) for word in command], env=clean_environment() if env is None else env, text=True, timeout=LIMIT_S,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False, **options)


def listing(folder):
    return sorted(os.path.relpath(os.path.join(above, name), folder)
                  for above, folders, files in os.walk(folder) for name in folders + files if "__pycache__" not in above + name)


long = unittest.skipUnless(os.environ.get("MUSTER_LONG"), "only ./dev long runs it")  # harness.py would set HOME.


class Published(unittest.TestCase):
    def setUp(self):
        held = tempfile.TemporaryDirectory(prefix="muster-wheel-")
        self.addCleanup(held.cleanup)
        self.folder = held.name
        self.train = self.write("train.py", TRAIN)

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        return path

    def succeed(self, *command, **options):
        done = run(*command, **options)
        self.assertEqual(done.returncode, 0, f"{command}\n{done.stdout}{done.stderr}")
        return done.stdout

    def bare(self, name):
        """Makes an environment without packages, not even pip."""
        path = os.path.join(self.folder, name)
        self.succeed(sys.executable, "-m", "venv", "--without-pip", path)
        return path

    def check_world(self, out, prefix):
        """Checks that `out` comes from two workers, run by the Python of `prefix`."""
        seen = sorted((json.loads(line) for line in out.splitlines()), key=lambda worker: worker["RANK"])
        self.assertEqual([worker["RANK"] for worker in seen], ["0", "1"], out)
        self.assertEqual({worker["WORLD_SIZE"] for worker in seen}, {"2"})
        self.assertEqual({os.path.realpath(worker["python"]) for worker in seen}, {os.path.realpath(prefix)})


class TheWheel(Published):
    @classmethod
    def setUpClass(cls):
        """Makes a fresh environment with the wheel and nothing else."""
        held = tempfile.TemporaryDirectory(prefix="muster-wheel-")
        cls.addClassCleanup(held.cleanup)
        cls.venv = os.path.join(held.name, "venv")
        for command in ((sys.executable, "-m", "venv", cls.venv),
                        (f"{cls.venv}/bin/pip", "install", "--no-index", "--disable-pip-version-check", wheel())):
            done = run(*command)
            if done.returncode != 0:
                raise AssertionError(f"{command}\n{done.stdout}{done.stderr}")

    def test_a_fresh_environment_needs_nothing_else(self):
        venv = self.venv
        for muster in ([f"{venv}/bin/muster"], [f"{venv}/bin/python", "-m", "muster"], [f"{venv}/bin/python", "-m", "muster.torchrun"]):
            out = self.succeed(*muster, "--nproc-per-node", 2, self.train)
            self.check_world(out, venv)
        self.assertRegex(self.succeed(f"{venv}/bin/muster", "--version"), r"^muster \d+\.\d+\.\d+ \([0-9a-f]{12}(-dirty)?\)\n$")
        version = self.succeed(f"{venv}/bin/python", "-c", "import muster; print(muster.__version__)").strip()
        self.assertTrue(self.succeed(f"{venv}/bin/muster", "--version").startswith(f"muster {version} "))
        self.assertIn("usage", (self.succeed(f"{venv}/bin/musterctl", "--help")).lower())
        self.assertFalse(os.path.exists(f"{venv}/bin/torchrun"), "torch's own name")

    def test_uninstalling_leaves_nothing(self):
        venv = self.bare("venv")
        before = listing(venv)
        pip = (f"{TOOLS}/pip", "--python", f"{venv}/bin/python", "--disable-pip-version-check")
        self.succeed(*pip, "install", "--no-index", wheel())
        self.assertNotEqual(listing(venv), before)
        self.succeed(f"{venv}/bin/muster", "--nproc-per-node", 2, self.train)
        self.succeed(*pip, "uninstall", "--yes", "muster-launch")
        self.assertEqual(listing(venv), before)

    def test_the_active_environment_comes_before_the_one_beside(self):
        venv, other = self.venv, self.bare("active")
        out = self.succeed(f"{venv}/bin/muster", "--nproc-per-node", 2, self.train, env=clean_environment(VIRTUAL_ENV=other))
        self.check_world(out, other)
        # python -m uses the Python that was started.
        out = self.succeed(f"{venv}/bin/python", "-m", "muster", "--nproc-per-node", 2, self.train,
                           env=clean_environment(VIRTUAL_ENV=other))
        self.check_world(out, venv)

    def test_a_target_folder_works_by_its_path(self):
        target = os.path.join(self.folder, "target")
        self.succeed(f"{TOOLS}/pip", "install", "--no-index", "--disable-pip-version-check", "--target", target, wheel())
        env = clean_environment(PYTHONPATH=target)
        self.check_world(self.succeed(sys.executable, "-m", "muster", "--nproc-per-node", 2, self.train, env=env), sys.prefix)

    def test_an_import_costs_little(self):
        venv = self.venv
        spent = []
        for _ in range(9):
            done = run(f"{venv}/bin/python", "-X", "importtime", "-c", "import muster")
            spent.append(int(re.search(r"\|\s+(\d+) \| muster\n", done.stderr)[1]) / 1000)
        print(f"\n    import muster: {min(spent):.2f} ms", file=sys.stderr)
        self.assertLess(min(spent), within(IMPORT_MS))

    def test_programs_of_every_compiler_build_against_the_wheel(self):
        """The library has a C++ library of its own inside, which is none of a program's business."""
        venv = self.venv
        ask = "import muster; print(muster.get_include(), muster.get_library())"
        include, library = self.succeed(f"{venv}/bin/python", "-c", ask).split()
        program, checkpoint = os.path.join(self.folder, "tour"), os.path.join(self.folder, "tour.ckpt")
        for compiler, source, start, wanted in (
                ("gcc -std=c99", "c_tour.c", (f"{venv}/bin/muster", "--nproc-per-node", 2, "--no-python"), "tour of 2 ranks: done\n"),
                ("g++ -std=c++17", "cpp_tour.cc", (), "tour: 2 ranks ended well\n"),
                ("clang++-19 -std=c++17 -stdlib=libc++", "cpp_tour.cc", (), "tour: 2 ranks ended well\n")):
            with self.subTest(compiler):
                self.succeed(*compiler.split(), "-Wall", "-Werror", f"-I{include}", f"{PROGRAMS}/{source}", library,
                             f"-Wl,-rpath,{os.path.dirname(library)}", "-o", program)
                self.assertIn(wanted, self.succeed(*start, program, checkpoint))
        # The backend gloo of a build by g++ speaks C to it, too.
        self.succeed("g++", "-std=c++17", f"-I{include}", f"{PROGRAMS}/installed_user.cc", library,
                     f"-Wl,-rpath,{os.path.dirname(library)}", "-o", program)
        env = clean_environment(MUSTER_GLOO_LIBRARY=f"{os.environ['MUSTER_BUILD']}/worker_lib/libmuster_gloo.so")
        out = self.succeed(f"{venv}/bin/muster", "--nproc-per-node", 2, "--no-python", program, "gloo", env=env)
        self.assertIn("average of 2 ranks: 0.5\n", out)

    def test_the_wheel_is_small_and_tagged_by_its_needs(self):
        for path in glob.glob(f"{DIST}/*.whl"):
            self.assertLessEqual(os.path.getsize(path), SIZE_MAX)
            tag = re.search(r"-py3-none-(manylinux_2_28_\w+)\.whl$", path)[1]
            self.assertIn(f'"{tag}"', self.succeed(f"{TOOLS}/auditwheel", "show", path))
            with zipfile.ZipFile(path) as archive:
                names = archive.namelist()
            for program in ("muster", "musterctl"):
                self.assertEqual(len([name for name in names if name.endswith(f".data/scripts/{program}")]), 1, names)
            self.assertEqual([name for name in names if ".so" in name], ["muster/lib/libmuster.so.0"])

    def test_its_remedies_name_packages_that_every_index_has(self):
        """An index may not have muster-launch, or have a stranger's."""
        with zipfile.ZipFile(wheel()) as archive:
            product = b"".join(archive.read(name) for name in archive.namelist() if name.endswith((".py", "/muster", "/musterctl")))
        self.assertEqual(set(re.findall(rb"(?<!`)pip3? install '?([^,;)\"'\n\0]+)", product)), {b"cloudpickle", b"py-spy", b"-U torch"})


class Binaries(Published):
    """Every ELF file of every package, also for another machine than this, and those inside the launcher."""

    def unpacked(self):
        """Unpacks each package into a folder of its own; yields (package/path, the path of the ELF file)."""
        for package in sorted(name for name in os.listdir(DIST) if name.endswith((".whl", ".deb")) or "-linux-" in name):
            folder, path = os.path.join(self.folder, package), os.path.join(DIST, package)
            os.mkdir(folder)
            unpack = {".whl": (sys.executable, "-m", "zipfile", "-e", path, folder), ".deb": ("dpkg-deb", "-x", path, folder),
                      ".gz": ("tar", "-xzf", path, "-C", folder)}
            self.succeed(*unpack[os.path.splitext(package)[1]])
            for name in listing(folder):
                file = os.path.join(folder, name)
                if os.path.isfile(file) and not os.path.islink(file):
                    with open(file, "rb") as f:
                        if f.read(4) == b"\x7fELF":
                            yield os.path.join(package, name), file

    def binaries(self):
        """Yields (what it is, its name in its package, path) of each."""
        for name, path in self.unpacked():
            yield os.path.basename(path).split(".so")[0], name, path
            if os.path.basename(path) == "muster":
                with open(path, "rb") as f:
                    launcher = f.read()
                self.assertTrue(b"_muster_recorder" in launcher, f"{name}: built without Python's headers: no calls are recorded")
                starts = [found.start() for found in re.finditer(b"\x7fELF\x02\x01\x01", launcher)][1:]
                self.assertEqual(len(starts), 2, f"{name} contains Python's hook and NCCL's plugin")
                for start in starts:
                    inner = f"{path}-{start}"
                    with open(inner, "wb") as f:
                        f.write(launcher[start:])
                    yield "inner", f"{name} at {start}", inner

    def test_they_need_only_an_old_glibc_and_show_only_their_names(self):
        declared = set(re.findall(r"^MUSTER_API[^;]*?\b(muster_\w+)\(", self.header(), re.M))
        plugin = {f"ncclProfiler_v{version}" for version in range(3, 8)}
        shown = {"muster": [set()], "musterctl": [set()], "libmuster": [declared], "inner": [plugin, {"PyInit__muster_ring"}]}
        libraries = {"libc", "libm", "libdl", "librt", "libpthread", "ld-linux-x86-64", "ld-linux-aarch64"}
        seen = set()
        for kind, name, path in self.binaries():
            with self.subTest(name):
                with open(path, "rb") as f:
                    folders = re.findall(rb"[\w./-]*(?:\.\./\.\./|/build/sdist/|/sysroot/|/libcxx/)[\w./-]*", f.read())
                self.assertEqual(folders[:3], [], "it names folders of the machine that built it")
                self.assertNotIn(".symtab", self.succeed("readelf", "--section-headers", "--wide", path), "it is not stripped")
                self.assertLessEqual(set(re.findall(r"NEEDED.*\[(\S+?)\.so", self.succeed("readelf", "--dynamic", path))), libraries)
                segments = self.succeed("readelf", "--file-header", "--segments", "--wide", path)
                page = 0x10000 if "AArch64" in segments else 0x1000  # The largest that a kernel may have.
                self.assertGreaterEqual(min(int(apart, 16) for apart in re.findall(r"(?m)^ *LOAD .* (0x\w+)$", segments)), page)
                versions = re.findall(r"Name: (\w+?)_([\d.]+)  Flags", self.succeed("readelf", "--version-info", path))
                self.assertEqual({library for library, _ in versions}, {"GLIBC"})
                self.assertLessEqual(max(tuple(map(int, version.split("."))) for _, version in versions), GLIBC)
                symbols = self.succeed("readelf", "--dyn-syms", "--wide", path)
                defined = re.findall(r"(?:GLOBAL|WEAK|UNIQUE)\s+\w+\s+(?!UND)\w+\s+(\S+)", symbols)
                self.assertIn({re.sub("@.*", "", symbol) for symbol in defined}, shown[kind])
                seen.add(kind)
        self.assertEqual(seen, set(shown))

    def header(self):
        with zipfile.ZipFile(wheel()) as archive:
            return archive.read("muster/include/muster/muster.h").decode()


class TheirOwnTools(Published):
    """pipx and uv keep an environment for muster alone; its Python is not the one that a user trains with."""

    def check(self, bins, env, trains):
        path = f"{bins}:{trains}/bin:{env['PATH']}"
        out = self.succeed("muster", "--nproc-per-node", 2, self.train, env={**env, "PATH": path}, executable=f"{bins}/muster")
        self.check_world(out, trains)

    def test_pipx_trains_with_the_users_python(self):
        bins = os.path.join(self.folder, "bin")
        env = clean_environment(PIPX_HOME=os.path.join(self.folder, "pipx"), PIPX_BIN_DIR=bins, PIPX_MAN_DIR=os.path.join(self.folder, "man"))
        self.succeed(f"{TOOLS}/pipx", "install", "--python", sys.executable, wheel(), env=env)
        self.check(bins, env, self.bare("trains"))

    @long
    def test_uv_trains_with_the_users_python(self):
        bins = os.path.join(self.folder, "bin")
        env = clean_environment(UV_TOOL_DIR=os.path.join(self.folder, "tools"), UV_TOOL_BIN_DIR=bins,
                                UV_CACHE_DIR=os.path.join(self.folder, "cache"))
        self.succeed(f"{TOOLS}/uv", "tool", "install", "--offline", "--no-index", "--python", sys.executable, wheel(), env=env)
        self.check(bins, env, self.bare("trains"))


@unittest.skipUnless(os.geteuid() == 0 or RELEASE, "roots of Debian are entered by root")
class FreshMachine(Published):
    """A root of Debian with Python and nothing of ours, below a layer that is discarded."""
    machine = MACHINE
    made_by = "test"
    under = ()  # A command that runs commands for another machine.

    def inside(self, release, script, *folders):
        """Runs it in the root, in which each of the folders lies below / by its name, as does dist."""
        lower = os.path.join(ROOTS, release)
        if not os.path.exists(os.path.join(lower, "complete")):
            raise AssertionError(f"no root of Debian {release} in MUSTER_ROOTS={ROOTS!r}: ./dev {self.made_by} makes it")
        top = tempfile.mkdtemp(dir=self.folder)
        inner = textwrap.dedent("""\
            set -e
            lower=$1 top=$2 root=$2/root script=$3
            mount -t tmpfs tmpfs "$top"
            mkdir "$top/upper" "$top/work" "$root"
            mount -t overlay overlay -o "lowerdir=$lower,upperdir=$top/upper,workdir=$top/work$4" "$root"
            shift 4
            for folder in "$@"; do
              mkdir -p "$root/${folder##*/}"
              mount --bind "$folder" "$root/${folder##*/}"
            done
            mount -t proc proc "$root/proc"
            mount --rbind /dev "$root/dev"
            exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 chroot "$root" sh -ec "$script"
            """)
        for name, text in (("train", TRAIN), ("collectives", COLLECTIVES), ("launch", LAUNCH)):
            script = f"cat >/{name}.py <<'EOF'\n{text}EOF\n{script}"
        return run(*self.under, "unshare", "--mount", "--pid", "--kill-child", "sh", "-c", inner, "sh", lower, top, script,
                   ",userxattr" if self.under else "", DIST, *folders)

    def check_the_wheel(self, release):
        """Installs it with the release's own pip, and uses each of its parts."""
        done = self.inside(release, f"""
            python3 -m venv /venv
            /venv/bin/pip install --quiet --no-index /dist/*_{self.machine}.whl
            PATH=/venv/bin:$PATH
            muster --nproc-per-node 2 /train.py >/trained
            muster --nproc-per-node 2 /collectives.py >/collected &
            until [ -e /there.0 -a -e /there.1 ]; do sleep 0.05; done
            musterctl status --json >/status
            musterctl records >/records
            until musterctl stacks >/stacks && grep -q wait_for_go /stacks; do sleep 0.1; done
            touch /go
            wait $!
            python3 -W error /launch.py >/launched
            cd /
            tail -n +1 trained collected status records stacks launched
            """)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        parts = dict(re.findall(r"(?ms)^==> (\w+) <==\n(.*?)\n?(?=\n==> |\Z)", done.stdout))
        self.check_world(parts["trained"], "/venv")
        self.assertEqual(parts["collected"], "3.0 ['rank 0', 'rank 1']\n3.0 ['rank 0', 'rank 1']")
        self.assertEqual(json.loads(parts["status"])["status"]["world_size"], 2)
        self.assertEqual(len(re.findall(r"(?m)^rank [01] .*all_gather #\d+ of group 'world', called at collectives.py:9$", parts["records"])), 2)
        self.assertIn("2 ranks (0-1): wait_for_go (collectives.py:6) ← <module> (collectives.py:10)\n", parts["stacks"])
        self.assertEqual(parts["launched"], "[0, 10, 20]")

    def check_the_debian_package(self, release):
        done = self.inside(release, """
            find / -xdev | sort >/before
            dpkg -i /dist/muster_*_$(dpkg --print-architecture).deb >/installed
            ldconfig -p | grep -q libmuster.so.0 || { echo "the linker does not know the library" >&2; exit 1; }
            muster --nproc-per-node 2 /train.py
            dpkg -P muster >/purged
            find / -xdev ! -path '/var/*' ! -path '/tmp/*' ! -path /before ! -path /purged ! -path /installed | sort |
              comm -23 - /before | sed 's/^/left: /'
            """)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertNotIn("left: ", done.stdout)
        self.check_world(done.stdout, "/usr")


class Roots(FreshMachine):
    def test_the_wheel_runs_in_debian_12(self):
        self.check_the_wheel("bookworm")

    def test_the_wheel_runs_in_debian_11(self):
        """Which has glibc 2.31 and Python 3.9."""
        self.check_the_wheel("bullseye")

    def test_the_debian_package_installs_runs_and_purges(self):
        for release in ("bookworm", "bullseye"):
            with self.subTest(release):
                self.check_the_debian_package(release)


class Release(Published):
    """What cmake/release.py makes and refuses."""

    def test_the_bill_lists_what_is_compiled_in(self):
        [path] = glob.glob(f"{DIST}/*.cdx.json")
        self.succeed(f"{TOOLS}/python", "-c", VALIDATE, path)
        with open(path, encoding="utf-8") as f:
            bill = json.load(f)
        zig = bill["components"].pop()
        self.assertEqual([part["name"] for part in zig["components"]],
                         ["clang", "libcxx", "libcxxabi", "libunwind", "compiler_rt", "glibc-start-files"])
        self.assertEqual({each["name"] for each in bill["components"]}, set(os.listdir(f"{SYSROOT}/usr/share/doc")))
        with open(f"{SYSROOT}/usr/include/mbedtls/version.h", encoding="utf-8") as f:
            mbedtls = re.search(r'MBEDTLS_VERSION_STRING +"(.+)"', f.read())[1]
        self.assertEqual({each["version"].split("-")[0] for each in bill["components"] if "mbedtls" in each["name"]}, {mbedtls})
        muster = bill["metadata"]["component"]
        commit = re.sub("([0-9a-f]{12})[0-9a-f]*", r"\1", muster["pedigree"]["commits"][0]["uid"])
        self.assertEqual(self.succeed(os.environ["MUSTER_PUBLISHED"], "--version"), f"muster {muster['version']} ({commit})\n")
        self.assertEqual([name for name in os.listdir(DIST) if muster["version"] not in name], ["SHA256SUMS"])

    def test_a_package_that_the_bill_would_lack_is_refused(self):
        os.symlink(f"{SYSROOT}/usr", f"{self.folder}/usr")
        with open(f"{SYSROOT}/manifest", encoding="utf-8") as f:
            self.write("manifest", "".join(line for line in f if not line.startswith("libexpected-dev ")))
        env = clean_environment(MUSTER_SYSROOT=self.folder, MUSTER_ZIG=os.environ["MUSTER_ZIG"])
        done = run(sys.executable, f"{SOURCES}/cmake/release.py", "bill", self.folder, env=env, cwd=SOURCES)
        self.assertEqual((done.returncode, done.stderr), (1, f"release.py: {self.folder} has packages that its manifest does not list: "
                                                             "libexpected-dev\n"))

    def test_only_a_committed_tree_with_its_own_tag_is_released(self):
        def git(*words):
            self.succeed("git", "-c", "user.name=a", "-c", "user.email=a@b", *words, cwd=self.folder)

        def refused():
            done = run(sys.executable, f"{SOURCES}/cmake/release.py", "check", cwd=self.folder)
            self.assertEqual(done.returncode, 1 if done.stderr else 0)
            return done.stderr

        self.write("CMakeLists.txt", "project(muster VERSION 1.2.3 LANGUAGES CXX)\n")
        for words in ("init -q", "add .", "commit -q -m one"):
            git(*words.split())
        self.assertEqual(refused(), "")
        git("tag", "v1.2.4")
        self.assertEqual(refused(), "./dev release: HEAD has the tag v1.2.4, but the version in CMakeLists.txt is 1.2.3; change one of them\n")
        git("tag", "-d", "v1.2.4")
        git("tag", "v1.2.3")
        self.assertEqual(refused(), "")
        git("commit", "-q", "--allow-empty", "-m", "two")
        self.assertEqual(refused(), "./dev release: v1.2.3 is the tag of another commit; raise the version in CMakeLists.txt\n")
        self.write("new.py", "")
        self.assertEqual(refused(), "./dev release: the tree is not what is committed: 1 changed or new files, first new.py; commit them\n")

class TheOthers(Published):
    def test_the_tarball_may_lie_anywhere(self):
        [tarball] = glob.glob(f"{DIST}/muster-*-linux-{MACHINE}.tar.gz")
        self.succeed("tar", "-xzf", tarball, "-C", self.folder, "--strip-components=1")
        out = self.succeed(f"{self.folder}/bin/muster", "--python", sys.executable, "--nproc-per-node", 2, self.train)
        self.check_world(out, sys.prefix)
        pkg_config = clean_environment(PKG_CONFIG_PATH=f"{self.folder}/lib/pkgconfig")
        self.assertIn("-lmuster", self.succeed("pkg-config", "--libs", "muster", env=pkg_config))

    def test_the_checksums_are_right(self):
        with open(f"{DIST}/SHA256SUMS", encoding="ascii") as f:
            sums = dict(reversed(line.split()) for line in f)
        self.assertEqual(sorted(sums), sorted(name for name in os.listdir(DIST) if name != "SHA256SUMS"))
        machines = len(glob.glob(f"{DIST}/*.whl"))
        self.assertEqual(len(sums), 2 + 3 * machines, "the sources and the bill of materials; by machine a wheel, a .deb and a tarball")
        for name, expected in sums.items():
            with open(f"{DIST}/{name}", "rb") as f:
                self.assertEqual(hashlib.sha256(f.read()).hexdigest(), expected, name)


if __name__ == "__main__":
    missing = [name for name in ("MUSTER_DIST", "MUSTER_SYSROOT", "MUSTER_WHEEL_TOOLS", "MUSTER_ROOTS") if not os.environ.get(name)]
    if missing:
        print(f"SKIPPED: {', '.join(missing)} not set (./dev test sets them)", file=sys.stderr)
        sys.exit(1 if RELEASE else SKIPPED)
    unittest.main(verbosity=2)
