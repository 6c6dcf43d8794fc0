"""The commands in the documents work, and every flag that they name exists.

Bash runs the blocks marked ```sh in the README, docs/ and examples/README.md, those of a document in order in one temporary
folder, with the built programs first on PATH. An HTML comment right above a block may say:

    <!-- exits with 3 -->                    its exit status, else 0
    <!-- not run: needs an installation -->  why it is not run; such blocks are counted and printed

Blocks that are not commands for one machine have another mark (```text, ```console). The folder holds a train.py that
prints its rank, the built examples, and a link to examples/. Ports that the documents name are replaced by free ones, since
tests run side by side. A block has a time limit, and leaves no process behind.
"""
import functools
import glob
import os
import re
import signal
import subprocess
import sys
import tempfile
import unittest

from harness import MUSTER, LiveTest, main, wait_for
from ports import free_port

MUSTERCTL = os.environ.get("MUSTERCTL") or os.path.join(os.path.dirname(MUSTER), "musterctl")
EXAMPLES = os.environ.get("MUSTER_EXAMPLES") or os.path.join(os.path.dirname(MUSTER), "examples")
ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
BLOCK_LIMIT_S = 90.0

TRAIN = """import os, sys
print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], *sys.argv[1:])
"""
FENCE = re.compile(r"(?:^<!-- *(?P<note>[^\n]*?) *-->\n)?^```(?P<mark>\w*)\n(?P<text>.*?)^```$", re.S | re.M)
PORT = re.compile(r"\b29[45]\d\d\b")
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z_-]*[a-z]")
# Flags of CMake, pkg-config, Slurm and the simulator, and one that is shortened.
OTHERS_FLAGS = {"--bind-to", "--distribution", "--gpus-per-node", "--gpus-per-task", "--het-group", "--hostfile",
                "--build", "--install", "--prefix", "--preset", "--cflags", "--libs", "--nodes", "--ntasks-per-node", "--machine",
                "--seed", "--trace", "--nproc", "--no-index", "--find-links", "--strip-components"}


class Block:
    def __init__(self, document, line, mark, note, text):
        self.name, self.document, self.mark, self.text = f"{document}:{line}", document, mark, text
        self.not_run = note[len("not run:"):].strip() if note.startswith("not run:") else None
        code = re.fullmatch(r"exits with (\d+)", note)
        self.code = int(code[1]) if code else 0
        self.is_understood = not note or code is not None or bool(self.not_run)


def documents():
    return ["README.md", *sorted(os.path.relpath(path, ROOT) for path in glob.glob(f"{ROOT}/docs/*.md")),
            "examples/README.md"]


def content_of(document):
    with open(os.path.join(ROOT, document), encoding="utf-8") as f:
        return f.read()


def blocks_of(document):
    text = content_of(document)
    return [Block(document, text.count("\n", 0, match.start("mark")) + 1, match["mark"], match["note"] or "", match["text"])
            for match in FENCE.finditer(text)]


def output_of(*command):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60, check=False).stdout


@functools.lru_cache(maxsize=None)
def known_flags():
    """The flags in the help of the programs and in the sources of the examples, and --print-man, which no help shows."""
    help_texts = ["--print-man", output_of(MUSTER, "--help"),
                  *(output_of(MUSTERCTL, *words, "--help") for words in ([], ["list"], ["status"], ["logs"], ["records"], ["top"],
                                                              ["signal"]))]
    for path in glob.glob(f"{ROOT}/examples/*.cc") + glob.glob(f"{ROOT}/examples/*.py"):
        with open(path, encoding="utf-8") as f:
            help_texts.append(f.read())
    return {flag.replace("_", "-") for text in help_texts for flag in FLAG.findall(text)}


class Commands(LiveTest):
    """The loop below adds a test for each document."""

    maxDiff = None

    def prepare(self):
        self.write("train.py", TRAIN)
        for path in glob.glob(f"{EXAMPLES}/*"):
            if os.path.isfile(path) and os.access(path, os.X_OK):
                os.symlink(path, self.path(os.path.basename(path)))
        os.symlink(os.path.join(ROOT, "examples"), self.path("examples"))
        programs = self.path("programs")
        os.mkdir(programs)
        for program, path in (("muster", MUSTER), ("musterctl", MUSTERCTL)):
            os.symlink(path, os.path.join(programs, program))
        # Hides the jobs of other tests from musterctl.
        os.mkdir(self.path("control"), 0o700)
        os.mkdir(self.path("tmp"))
        self.env = {name: value for name, value in os.environ.items() if not name.startswith(("PET_", "SLURM_", "MUSTER"))}
        self.env.update(PATH=programs + ":" + os.environ["PATH"], TMPDIR=self.path("tmp"), MUSTER_RUN_DIR=self.path("control"))

    def run_block(self, block):
        names = sorted(set(PORT.findall(block.text)))
        ports = {name: free_port() for name in names}
        script = PORT.sub(lambda match: str(ports[match[0]]), block.text)
        with tempfile.TemporaryFile() as output:
            process = subprocess.Popen(["bash", "-e", "-c", script], cwd=self.folder.name, env=self.env,
                                       stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True)
            try:
                code = process.wait(BLOCK_LIMIT_S)
            except subprocess.TimeoutExpired:
                code = f"nothing after {BLOCK_LIMIT_S} s"
            text = os.pread(output.fileno(), 1 << 20, 0).decode(errors="replace")
            if code != block.code:
                self.end_group(process.pid)
                process.wait()
                self.fail(f"{block.name}: exit status {code} instead of {block.code} of\n{script}\n{text}")
        # Background processes that the block did not wait for must end soon, too.
        self.addCleanup(self.end_group, process.pid)
        wait_for(lambda: not self.left(process.pid), f"{block.name} leaves no process of its own")

    @staticmethod
    def end_group(group):
        try:
            os.killpg(group, signal.SIGKILL)
        except ProcessLookupError:
            pass

    @staticmethod
    def left(group):
        try:
            os.killpg(group, 0)
            return True
        except ProcessLookupError:
            return False

    def run_document(self, document):
        self.prepare()
        blocks = [block for block in blocks_of(document) if block.mark == "sh"]
        for block in blocks:
            self.assertTrue(block.is_understood, f"{block.name}: a comment above it is not understood")
            if block.not_run is None:
                with self.subTest(block.name):
                    self.run_block(block)
        idle = [block for block in blocks if block.not_run is not None]
        print(f"{document}: {len(blocks) - len(idle)} of {len(blocks)} blocks run"
              + "".join(f"; not run: line {block.name.rpartition(':')[2]}, {block.not_run}" for block in idle), file=sys.stderr)


for one in documents():
    if any(block.mark == "sh" for block in blocks_of(one)):
        name = "test_" + re.sub(r"\W+", "_", one.removesuffix(".md")).lower()
        setattr(Commands, name, lambda self, document=one: self.run_document(document))


class Words(unittest.TestCase):
    def test_there_are_commands_to_run(self):
        run = [block for one in documents() for block in blocks_of(one) if block.mark == "sh" and block.not_run is None]
        self.assertGreater(len(run), 30)

    def test_every_fence_is_closed_and_marked(self):
        for document in documents():
            fences = [line for line in content_of(document).splitlines() if line.startswith("```")]
            self.assertEqual(len(fences) % 2, 0, document)
            for fence in fences[::2]:
                self.assertRegex(fence, r"^```(sh|console|text|cpp|python|cmake)$", document)

    def test_every_flag_that_is_named_exists(self):
        unknown = []
        for document in documents():
            for number, line in enumerate(content_of(document).splitlines(), 1):
                for flag in FLAG.findall(re.sub(r"^<!--.*|-->$|\]\([^)]*\)", "", line)):
                    if flag.replace("_", "-") not in known_flags() | OTHERS_FLAGS:
                        unknown.append(f"{document}:{number}: {flag}")
        self.assertEqual(unknown, [])

    def test_every_file_that_the_tour_names_is_there(self):
        tracked = [os.path.relpath(os.path.join(folder, name), ROOT)
                   for top in ("agent", "launcher", "rendezvous", "worker_lib", "python", "tests", "examples", "docs", "cmake")
                   for folder, _, names in os.walk(os.path.join(ROOT, top)) for name in names] + os.listdir(ROOT)
        missing = [word for word in re.findall(r"`([\w./-]+\.(?:h|cc|c|py|md|cmake|txt|json))`", content_of("docs/code.md"))
                   if not any(path == word or path.endswith("/" + word) for path in tracked)]
        self.assertEqual(missing, [])


if __name__ == "__main__":
    main()
