"""muster.distributed: each operation against numpy's result for every type, failures by class, Ctrl-C and the end.

The package is that of the wheel in $MUSTER_DIST, in front of the packages of $MUSTER_PYTHON, a virtual environment with
numpy and jupyter's client and kernel, and for tensors of $MUSTER_TORCH_VENV (./dev test makes all of them). Each program
checks many things and prints "done" on each rank: starting Python with numpy takes longer than all of its checks.
"""
import os
import pty
import re
import select
import signal
import subprocess
import textwrap
import time

from harness import (LIMIT_S, Job, LiveTest, bare_python, end_of_cell, install_wheel, main, run, skip_without, start_kernel,
                     wait_for, wait_until_stuck)
from ports import free_port

PYTHON = os.path.join(os.environ.get("MUSTER_PYTHON", ""), "bin", "python")
TORCH = os.path.join(os.environ.get("MUSTER_TORCH_VENV", ""), "bin", "python")
HEAD = f"""
import sys; sys.path.append({os.path.dirname(os.path.abspath(__file__))!r})
import waiting
from waiting import within
""" + """
import array, functools, gc, os, pickle, signal, sys, threading, time, weakref
import muster.distributed as dist
from muster import _work

wait_for = functools.partial(waiting.wait_for, what="what the others do")

def touch(name):
    open(os.path.join(os.environ["FOLDER"], name), "w").close()

def say_pid_and(function, *args):
    print(os.getpid(), flush=True)
    return function(*args)

def exists(name):
    return os.path.exists(os.path.join(os.environ["FOLDER"], name))

def raised(kind, function, *args, **options):
    try:
        function(*args, **options)
    except kind as error:
        assert "\\n" not in str(error), error
        return error
    raise AssertionError(f"no {kind}")

def interrupt():
    def soon():
        waiting.wait_until_stuck(os.getpid(), "it waits in a call")
        os.kill(os.getpid(), signal.SIGINT)
    threading.Thread(target=soon).start()
"""
BEGIN = """
import numpy as np
dist.init()
r, n, world = dist.rank(), dist.world_size(), dist.world
"""


class Distributed(LiveTest):
    @classmethod
    def setUpClass(cls):
        cls.package, cls.plain = install_wheel(cls.addClassCleanup, PYTHON), bare_python(cls)

    def setUp(self):
        super().setUp()
        self.env = {"PYTHONPATH": self.package, "FOLDER": self.folder.name, "OMP_NUM_THREADS": "1"}

    def program(self, text, begin=BEGIN):
        return self.write("program.py", HEAD + begin + textwrap.dedent(text))

    def job(self, text, ranks=4, python=PYTHON, begin=BEGIN, code=0, options=(), done=None):
        """Returns what the ranks have printed, and what the launcher has."""
        program = self.program(textwrap.dedent(text) + 'print("done")\n', begin)
        given, out, err = run("--nproc-per-node", ranks, *options, "--python", python, program, env=self.env, limit_s=LIMIT_S)
        self.assertEqual(given, code, f"{out}\n{err}")
        self.assertEqual(out.count("done\n"), ranks if done is None else done, f"{out}\n{err}")
        return out, err


# Prints the C initialisers as hexadecimal bytes.
STRUCTURES = """
#include <muster/muster.h>
#include <stdio.h>
#define SHOW(type, initial) do { static const type one = initial; \\
  for (size_t i = 0; i < sizeof one; ++i) printf("%02x", ((const unsigned char*)&one)[i]); puts(""); } while (0)
int main(void) {
  SHOW(muster_init_options, MUSTER_INIT_OPTIONS);
  SHOW(muster_group_options, MUSTER_GROUP_OPTIONS);
  SHOW(muster_call_options, MUSTER_CALL_OPTIONS);
  SHOW(muster_store, MUSTER_STORE);
  SHOW(muster_join_options, MUSTER_JOIN_OPTIONS);
  printf("%zu\\n", sizeof(muster_p2p));
}
"""


class Agreements(Distributed):
    def test_members_agree_and_shrink_without_a_death(self):
        self.job("""
            assert dist.agree(6 if r == 0 else 3) == 2
            assert dist.agree(2 ** 64 - 1) == 2 ** 64 - 1
            twin = dist.shrink()
            assert (twin.rank, twin.size, twin.name) == (r, n, "world"), twin
            assert twin.all_reduce(np.full(3, r)).tolist() == [6, 6, 6]
            again = twin.shrink(name="again")
            assert (again.size, again.name) == (n, "again")
            half = dist.split(r % 2, name="half")
            alone = dist.split(r)
            assert half.agree(1 << r) == 0
            assert alone.agree(5) == 5 and alone.shrink().size == 1
            small = half.shrink()
            assert small.size == 2 and small.all_gather(np.array([r])).ravel().tolist() == [r % 2, r % 2 + 2]
            for value in -1, 2 ** 64, 1.5, None:
                error = raised(dist.InvalidArgumentError, dist.agree, value)
                assert "0 to 2**64 - 1" in str(error), error
            outside = dist.new_group([0, 1])
            if r > 1:
                assert "not a member" in str(raised(dist.NotMemberError, outside.agree, 1))
                assert "not a member" in str(raised(dist.NotMemberError, outside.shrink))
            dist.destroy()
            for group in world, twin, again, small:
                raised(dist.NotInitializedError, group.agree, 1)
                raised(dist.NotInitializedError, group.shrink)
        """)

    def test_a_member_that_does_not_agree_is_named(self):
        self.job("""
            late, mixed = dist.new_group([0, 1, 2, 3], name="late"), dist.new_group([0, 1, 2, 3], name="mixed")
            if r != 2:
                for call in functools.partial(late.agree, 1), late.shrink:  # Later calls know it already.
                    error = raised(dist.OperationTimeout, call, timeout=1.0)
                    assert error.failed_ranks == (2,) and "rank 2 (" in str(error) and "within 1 s" in str(error), error
            dist.barrier()
            error = raised(dist.MismatchError, mixed.shrink if r == 1 else functools.partial(mixed.agree, 1))
            assert "some members call agree() and others shrink()" in str(error), error
            assert dist.agree(1) == 1
        """)

    def test_the_living_go_on_and_the_dead_rank_is_named(self):
        program = self.program("""
            try:
                for step in range(10 ** 9):
                    world.all_reduce(np.ones(1000))
                    if step == 10:
                        touch(f"runs{r}")
            except dist.PeerFailedError as death:
                assert death.failed_ranks == (1,), death
            left = dist.shrink()
            assert left.size == 2 and left.rank == (0 if r == 0 else 1), left
            assert left.all_reduce(np.full(2, r)).tolist() == [2, 2]
            if r == 2:
                os.kill(os.getpid(), signal.SIGKILL)
            death = raised(dist.PeerFailedError, left.barrier)
            assert death.failed_ranks == (2,) and "rank 2 (" in str(death), death
            alone = left.shrink()
            assert alone.size == 1 and alone.all_reduce(np.ones(1)).tolist() == [1]
            dist.destroy()
            print("done")
        """)
        port = free_port()
        ranks = [subprocess.Popen([PYTHON, program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={
            **os.environ, **self.env, "RANK": str(rank), "WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)})
            for rank in range(3)]
        for process in ranks:
            self.addCleanup(process.communicate)
            self.addCleanup(process.kill)
        self.wait_for_files("runs0", "runs1", "runs2")
        ranks[1].kill()
        ends = [(*process.communicate(timeout=LIMIT_S), process.returncode) for process in ranks]
        self.assertEqual([code for _, _, code in ends], [0, -signal.SIGKILL, -signal.SIGKILL], ends)
        self.assertEqual(ends[0][0], "done\n", ends)


class Declarations(Distributed):
    def test_declarations_match_the_header(self):
        include = f"{self.package}/muster/include"
        with open(f"{include}/muster/muster.h", encoding="utf-8") as file:
            functions = set(re.findall(r"^MUSTER_API [^;(]*?muster_(\w+)\(", file.read(), re.M))
        self.assertGreater(len(functions), 60)
        program = self.path("structures")
        subprocess.run(["gcc", "-x", "c", "-", "-I", include, "-o", program], input=STRUCTURES, text=True, check=True)
        in_c = subprocess.run([program], stdout=subprocess.PIPE, text=True, check=True).stdout
        ours = subprocess.run([PYTHON, "-c", """if True:
            import ctypes
            from muster import _library as lib
            for one in lib.InitOptions, lib.GroupOptions, lib.CallOptions, lib.Store, lib.JoinOptions:
                print(bytes(one()).hex())
            print(ctypes.sizeof(lib.P2P))
            print(*lib._FUNCTIONS)
            """], env={**os.environ, **self.env}, stdout=subprocess.PIPE, text=True, check=True).stdout
        structures, _, named = ours.strip().rpartition("\n")
        self.assertEqual(structures, in_c.strip())
        self.assertLessEqual(set(named.split()), functions)


class Operations(Distributed):
    def test_every_operation_agrees_with_numpy_for_every_type(self):
        self.job("""
            REDUCE = {
                "sum": lambda every: every.sum(0, every.dtype), "product": lambda every: every.prod(0, every.dtype),
                "min": lambda every: every.min(0), "max": lambda every: every.max(0),
                "average": lambda every: every.mean(0, every.dtype) if every.dtype.kind in "fc" else
                                         (every.sum(0) // len(every)).astype(every.dtype),
                "band": np.bitwise_and.reduce, "bor": np.bitwise_or.reduce, "bxor": np.bitwise_xor.reduce}
            INTEGERS, BITS, FLOATS = set(REDUCE), {"band", "bor", "bxor"}, set(REDUCE) - {"band", "bor", "bxor"}
            UNSIGNED, PARTS, LOGICAL = {"sum", "product"} | BITS, {"sum", "average"}, {"min", "max"} | BITS
            TYPES = {"int8": INTEGERS, "uint8": INTEGERS, "int16": INTEGERS, "int32": INTEGERS, "int64": INTEGERS,
                     "float16": FLOATS, "float32": FLOATS, "float64": FLOATS, "uint16": UNSIGNED, "uint32": UNSIGNED,
                     "uint64": UNSIGNED, "complex64": PARTS, "complex128": PARTS, "bool": LOGICAL}
            random = np.random.default_rng(7)
            shape = 3, 2
            for dtype, operations in TYPES.items():
                every = random.integers(0, 2 if dtype == "bool" else 4, (n, n, *shape)).astype(dtype)  # [of][for][...]
                if "complex" in dtype: every = every + np.flip(every) * dtype_one if (dtype_one := np.dtype(dtype).type(1j)) else 0
                if "int" in dtype: every[:, :, 0, 0] = np.iinfo(dtype).max  # Sums wrap around.
                if dtype.startswith("int") or dtype == "uint8": every[:, :, 0, 0] //= 2 * n  # But averages are defined.
                every = every.astype(dtype)
                mine = every[r].copy()
                def same(got, expected):
                    assert got.dtype == np.dtype(dtype) and got.shape == np.shape(expected), (dtype, got.dtype, got.shape)
                    assert np.array_equal(got, expected), (dtype, got, expected)

                for op in REDUCE:
                    if op not in operations:
                        raised(dist.InvalidArgumentError, dist.all_reduce, mine.copy(), op)
                        continue
                    expected = REDUCE[op](every)
                    data = mine.copy()
                    assert dist.all_reduce(data, op) is data
                    same(data, expected)
                    out = np.empty_like(mine)
                    assert dist.all_reduce(mine, op, out=out) is out
                    same(out, expected); same(mine, every[r])
                    same(dist.reduce_scatter(mine, op), expected[r])
                    data = mine.copy()
                    got = dist.reduce(data, 1, op)
                    assert (got is data) if r == 1 else got is None
                    same(data, expected if r == 1 else mine)
                    got = dist.reduce(mine, 2, op, out=np.empty_like(mine) if r == 2 else None)
                    if r == 2: same(got, expected); same(mine, every[2])

                data = mine.copy()
                assert dist.broadcast(data, 3) is data; same(data, every[3])
                frozen = mine.copy(); frozen.flags.writeable = r != 0
                dist.broadcast(frozen); same(frozen, every[0])
                got = dist.gather(mine, 2)
                same(got, every) if r == 2 else None
                assert r == 2 or got is None
                same(dist.all_gather(mine), every)
                same(dist.all_gather(mine, out=np.empty(every.size, dtype)).reshape(every.shape), every)
                got = dist.scatter(every if r == 1 else None, 1, out=None if r == 1 else np.empty_like(mine))
                same(got, every[r])
                same(dist.all_to_all(mine), every[:, r])

                # Rank s gives s + 1 elements, or none; of what each gives, rank r gets r.
                counts = [0 if s == 2 else s + 1 for s in range(n)]
                parts = [every[s].ravel()[:counts[s]] for s in range(n)]
                same(dist.all_gather_v(parts[r].copy(), counts), np.concatenate(parts))
                got = dist.gather_v(parts[r].copy(), counts if r == 3 else None, 3)
                same(got, np.concatenate(parts)) if r == 3 else None
                flat = every[1].ravel()[:sum(counts)].copy()
                bounds = np.cumsum([0, *counts])
                got = dist.scatter_v(flat if r == 1 else None, counts if r == 1 else None, 1,
                                     out=None if r == 1 else np.empty(counts[r], dtype))
                same(got, flat[bounds[r]:bounds[r + 1]])
                op = "bor" if dtype == "bool" else "sum"
                firsts = every.reshape(n, -1)[:, :sum(counts)]
                same(dist.reduce_scatter_v(firsts[r].copy(), counts, op), REDUCE[op](firsts)[bounds[r]:bounds[r + 1]])
                sent = [s for s in range(n)]
                given = [np.concatenate([every[q].ravel()[:s] for s in sent]) for q in range(n)]
                same(dist.all_to_all_v(given[r].copy(), sent, [r] * n), np.concatenate([every[q].ravel()[:r] for q in range(n)]))

                out = np.empty_like(mine)
                dist.batch([dist.Send(mine, (r + 1) % n, 5), dist.Recv(out, (r - 1) % n, 5)])
                same(out, every[(r - 1) % n])
            """)

    def test_operations_work_in_place_and_on_empty_arrays(self):
        self.job("""
            every = np.arange(n * 3.).reshape(n, 3)
            whole = np.zeros((n, 3)); whole[r] = every[r]
            dist.all_gather(whole[r], out=whole)
            assert (whole == every).all()
            whole = every.copy()
            assert (dist.reduce_scatter(whole, out=whole[r]) == every[r] * n).all()
            assert (whole[r] == every[r] * n).all()
            empty = np.zeros((0, 4)); dist.all_reduce(empty)
            assert dist.all_gather(empty).shape == (n, 0, 4)
            single = np.array(2.5); dist.all_reduce(single); assert single == 2.5 * n and single.shape == ()
            assert (dist.all_gather(np.float32(r)) == [0, 1, 2, 3]).all()
            """)

    def test_messages_and_objects_arrive_whole(self):
        self.job("""
            data = np.full(3, float(r))
            if r == 0:
                seen = set()
                for _ in range(n - 1):
                    sender = dist.recv(data, tag=4); seen.add(sender); assert (data == sender).all()
                assert seen == {1, 2, 3}
                work = dist.recv(data, tag=5, async_op=True)
                dist.barrier()
                assert work.wait() and work.source == 3 and work.result is data and (data == 3).all()
                assert dist.recv(data, 2, 6) == 2
            else:
                assert dist.send(data, 0, 4) is None
                dist.barrier()
                if r == 3: dist.send(data, 0, tag=5)
                if r == 2: dist.send(data, dest=0, tag=6)
            large = [np.full(1 << 18, float(r)), np.empty(1 << 18), np.empty(1 << 18)]
            works = dist.batch([dist.Recv(large[1], (r + 1) % n), dist.Send(large[0], (r + 1) % n),
                                dist.Recv(large[2], (r - 1) % n), dist.Send(large[0], (r - 1) % n)], async_op=True)
            assert len(works) == 4 and all(work.wait() for work in works)
            assert (large[1] == (r + 1) % n).all() and (large[2] == (r - 1) % n).all()
            assert dist.batch([]) is None
            assert dist.broadcast_bytes(b"some" * r, 3) == b"some" * 3
            assert dist.broadcast_bytes(bytearray(3) if r == 0 else None) == bytes(3)
            assert dist.broadcast_bytes(b"") == b""
            assert dist.all_gather_bytes(b"x" * r) == [b"x" * s for s in range(n)]
            assert dist.all_gather_object({"rank": r, "array": data[:r]})[2]["rank"] == 2
            own = {"it": r}
            got = dist.broadcast_object(own, 1)
            assert got == {"it": 1} and (got is own) == (r == 1)
            import ctypes, resource  # Lengths beyond a C int, without 4 GiB: there is no memory for them.
            with open("/proc/self/statm") as file: used = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
            before = resource.getrlimit(resource.RLIMIT_AS)
            resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 30), before[1]))
            raised(MemoryError, dist._taken, ctypes.c_void_p(), [0, (1 << 32) + 3])
            resource.setrlimit(resource.RLIMIT_AS, before)
            """)

    def test_groups_split_abort_and_close(self):
        self.job("""
            assert world.ranks == (0, 1, 2, 3) and world.name == "world" and world.is_member and (world.rank, world.size) == (r, n)
            pair = dist.new_group([3, 1], name="pair", timeout=5)
            if r in (1, 3):
                assert pair.is_member and pair.ranks == (3, 1) and pair.rank == [3, 1].index(r) and pair.name == "pair"
                assert pair.group_rank(1) == 1 and pair.global_rank(0) == 3
                data = np.array([r]); pair.broadcast(data, 0); assert data == 3
                assert (pair.all_gather(np.array([r])).ravel() == [3, 1]).all()
            else:
                assert not pair.is_member
                raised(dist.NotMemberError, pair.all_reduce, np.zeros(1))
                raised(dist.NotMemberError, lambda: pair.rank)
                raised(dist.NotMemberError, pair.all_gather, np.zeros(1))
                raised(dist.NotMemberError, pair.scatter, out=np.zeros(1))
                raised(dist.NotMemberError, pair.broadcast_object, 1)
            raised(dist.InvalidArgumentError, pair.group_rank, 0)
            half = world.split(r % 2, -r)
            assert half.ranks == ((2, 0), (3, 1))[r % 2], half.ranks
            assert dist.split(-1 if r == 2 else 0).is_member == (r != 2)
            assert half.failure() is None
            half.barrier()
            if r % 2 == 0:
                if half.rank == 0: half.abort("no more of this")
                error = raised(dist.AbortedError, half.barrier, timeout=10)
                assert "no more of this" in str(error) and error.failed_ranks == (2,) and error.group == half.name, error
                assert isinstance(half.failure(), dist.AbortedError)
            closing = threading.Thread(target=pair.close)
            with _work.aborting:  # It is held while a Ctrl-C aborts the group.
                closing.start(); closing.join(0.05)
                assert closing.is_alive() and pair.name == "pair"
            closing.join()
            assert "closed" in str(raised(dist.InvalidArgumentError, pair.barrier)) and "closed" in repr(pair)
            pair.close()
            assert dist.new_group(rank for rank in (0, 1)).is_member == (r < 2)
            world.close(); del half
            assert pickle.loads(pickle.dumps(dist.all_reduce)).__self__ is world
            dist.all_reduce(np.zeros(1))
            for _ in range(20): dist.new_group(range(n))
            """)

    def test_threads_have_groups_of_their_own(self):
        self.job("""
            groups = [dist.new_group(range(n)) for _ in range(3)]
            sums = [0] * 3
            def work(i):
                for step in range(100): sums[i] += int(groups[i].all_reduce(np.array([step]))[0])
            threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
            for thread in threads: thread.start()
            for thread in threads: thread.join()
            assert sums == [sum(range(100)) * n] * 3
            # A call that blocks lets the others run.
            blocked = threading.Thread(target=groups[0].barrier)
            if r == 0:
                blocked.start(); wait_for(lambda: exists("ran")); blocked.join()
            else:
                if r == 1: touch("ran")
                groups[0].barrier()
            """)

    def test_shared_memory_takes_part_and_outlives_the_job(self):
        self.job("""
            shared = dist.allocate_shared((n, 3), "float32")
            assert shared.shape == (n, 3) and not shared.any()
            shared += r
            dist.all_reduce(shared); assert (shared == 6).all()
            part = shared[1:, 0]; del shared; gc.collect()
            part += 1; assert (part == 7).all()
            view = dist.allocate_shared(10); view[9] = r
            assert isinstance(view, memoryview) and len(view) == 10 and not view.readonly
            dist.all_reduce(view); assert view[9] == 6
            work = dist.all_reduce(dist.allocate_shared(1 << 16, "int8"), async_op=True); gc.collect(); work.wait()
            assert dist.allocate_shared((0, 3), int).shape == (0, 3) and len(dist.allocate_shared(0)) == 0
            raised(dist.InvalidArgumentError, dist.allocate_shared, -1)
            dist.destroy()
            part += 1; view[0] = 1; assert (part == 8).all()
            """)

    def test_plain_buffers_need_no_numpy(self):
        out, _ = self.job("""
            dist.init()
            r, n = dist.rank(), dist.world_size()
            data = bytearray([r, 1]); assert dist.all_reduce(data) is data and data == bytes([6, 4])
            for code in "bBhilqfd":
                numbers = array.array(code, [r, 1]); dist.all_reduce(numbers); assert numbers.tolist() == [6, 4], code
                every = dist.all_gather(numbers); assert every == array.array(code, [6, 4] * n)
            for code in "HILQ": assert dist.all_reduce(array.array(code, [r, 1])).tolist() == [6, 4]
            assert dist.all_gather(bytes([r, r])) == bytes(s for s in range(n) for _ in range(2))
            view = memoryview(array.array("d", [r, 0.5] * 2)); dist.all_reduce(view[:2]); assert view.tolist() == [6, 2, r, 0.5]
            raised(dist.InvalidArgumentError, dist.all_reduce, view[::2])
            raised(dist.InvalidArgumentError, dist.all_reduce, bytes(2))
            raised(dist.InvalidArgumentError, dist.all_gather, data, out=bytearray(7))
            assert dist.reduce_scatter(bytearray(range(8))) == bytes([r * 2 * n, (r * 2 + 1) * n])
            assert dist.all_to_all(bytes([r] * n)) == bytes(range(n))
            assert dist.scatter(b"abcd" if r == 0 else None, out=bytearray(1)) == b"abcd"[r:r + 1]
            raised(dist.InvalidArgumentError, dist.all_to_all, bytes(7))
            raised(dist.InvalidArgumentError, dist.allocate_shared, 3, "int8")
            import ctypes
            P, SIZE, INT = ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int
            class Buffer(ctypes.Structure):  # Py_buffer
                _fields_ = list(zip("buf obj len itemsize readonly ndim format shape strides suboffsets internal".split(),
                                    (P, P, SIZE, SIZE, INT, INT, ctypes.c_char_p, P, P, P, P)))
            memory, shape = (ctypes.c_int32 * 2)(r, 1), (SIZE * 1)(2)
            view_of = ctypes.pythonapi.PyMemoryView_FromBuffer
            view_of.restype = ctypes.py_object
            standard = view_of(ctypes.byref(Buffer(ctypes.addressof(memory), None, 8, 4, 0, 1, b"=l", ctypes.addressof(shape))))
            assert standard.format == "=l"  # 4 bytes; array.array("l") has 8.
            assert dist.all_gather(standard).tolist() == [0, 1, 1, 1, 2, 1, 3, 1]
            work = dist.all_reduce(data, async_op=True)
            error = raised(BufferError, data.extend, b"more")  # It is in use.
            work.wait(); data.extend(b"more")
            released = memoryview(bytearray(3)); released.release()
            raised(dist.InvalidArgumentError, dist.all_reduce, released)
            memory = dist.allocate_shared(100); memory[:] = bytes([r]) * 100; dist.all_reduce(memory); assert memory[99] == 6
            assert "numpy" not in sys.modules and "torch" not in sys.modules
            assert dist.cuda_device() is None and dist.local_rank() == r and dist.local_world_size() == n
            assert dist.node_rank() == 0 and dist.restart_count() == 0 and isinstance(dist.is_nccl_available(), bool)
            assert not _work.is_attended()
            """, python=self.plain, begin="")
        self.assertEqual(out.count("done"), 4)

    def test_bad_arguments_change_nothing(self):
        self.job("""
            a, wide, whole = np.ones(4), np.ones((4, 4)), np.arange(8.)
            frozen = np.ones(4); frozen.flags.writeable = False
            CASES = [
                (TypeError, "array is of type list", lambda: dist.all_reduce([1, 2])),
                (TypeError, "array is of type NoneType", lambda: dist.broadcast(None)),
                (TypeError, "array is of type int", lambda: dist.send(3, 0)),
                (TypeError, "out is of type tuple", lambda: dist.all_gather(a, out=())),
                (TypeError, "of another byte order", lambda: dist.all_reduce(a.astype(">f8"))),
                (TypeError, "elements of type str", lambda: dist.broadcast(np.array(["a"]))),
                (TypeError, "elements of type object", lambda: dist.broadcast(np.array([a, None], object))),
                (TypeError, "elements of type datetime64", lambda: dist.broadcast(np.zeros(2, "M8[s]"))),
                (TypeError, "elements of type", lambda: dist.broadcast(np.zeros(2, "i4,f4"))),
                (ValueError, "not C-contiguous: pass numpy.ascontiguousarray", lambda: dist.all_reduce(wide[:, 1])),
                (ValueError, "not C-contiguous", lambda: dist.all_gather(np.ones((3, 2)).T)),
                (ValueError, "not C-contiguous", lambda: dist.all_reduce(whole[::-1])),
                (ValueError, "array is read-only", lambda: dist.all_reduce(frozen)),
                (ValueError, "out is read-only", lambda: dist.all_reduce(a, out=frozen)),
                (ValueError, "array is read-only", lambda: dist.recv(frozen, (r + 1) % n)),
                (ValueError, "op is one of sum, average", lambda: dist.all_reduce(a, "mean")),
                (ValueError, "max of uint16 is not defined", lambda: dist.all_reduce(np.ones(2, "u2"), "max")),
                (ValueError, "product of complex128 is not defined", lambda: dist.all_reduce(np.ones(2, complex), "product")),
                (ValueError, "sum of bool is not defined", lambda: dist.all_reduce(np.ones(2, bool))),
                (ValueError, "all_reduce: out has 3 elements, and the result has 4", lambda: dist.all_reduce(a, out=np.ones(3))),
                (ValueError, "all_gather: out has 4 elements, and the result has 16", lambda: dist.all_gather(a, out=a)),
                (ValueError, "out has elements of type float32, and the array float64", lambda: dist.all_gather(a, out=wide.astype("f4"))),
                (ValueError, "first dimension is to be the 4 ranks", lambda: dist.reduce_scatter(np.ones((8, 2)))),
                (ValueError, "first dimension is to be the 4 ranks", lambda: dist.all_to_all(np.array(1.))),
                (ValueError, "has 7 elements, which are no blocks for 4", lambda: dist.all_to_all(np.ones(7), out=np.ones(7))),
                (ValueError, "has 7 elements, which are no blocks for 4", lambda: dist.reduce_scatter(np.ones(7), out=np.ones(1))),
                (ValueError, "give out=", lambda: dist.scatter(root=(r + 1) % n)),
                (ValueError, "give out=", lambda: dist.scatter_v(root=(r + 1) % n)),
                (TypeError, "counts is a list", lambda: dist.gather_v(a, None, r)),
                (TypeError, "counts is a list", lambda: dist.all_gather_v(a, [1.5] * 4)),
                (ValueError, "for each of 4 ranks", lambda: dist.all_gather_v(a, [4])),
                (ValueError, "for each of 4 ranks", lambda: dist.all_gather_v(a, [4, 4, 4, -4])),
                (ValueError, r"array has 4 elements, and counts\\[.\\] is 3", lambda: dist.all_gather_v(a, [3] * 4)),
                (ValueError, "array has 8 elements, and counts add up to 6", lambda: dist.reduce_scatter_v(whole, [1, 1, 2, 2])),
                (ValueError, "and send_counts add up to", lambda: dist.all_to_all_v(whole, [1] * 4, [1] * 4)),
                (ValueError, "and counts add up to", lambda: dist.scatter_v(whole, [1] * 4, r)),
                (dist.InvalidArgumentError, "root 4 is not in the group", lambda: dist.broadcast(a, 4)),
                (dist.InvalidArgumentError, "root -1 is not in the group", lambda: dist.broadcast(a, -1)),
                (dist.InvalidArgumentError, "peer 9 is not in the group", lambda: dist.send(a, 9)),
                (dist.InvalidArgumentError, "is this rank itself", lambda: dist.send(a, r)),
                (dist.InvalidArgumentError, "tag -3 is below 0", lambda: dist.send(a, (r + 1) % n, tag=-3)),
                (dist.InvalidArgumentError, "there is no rank -1", lambda: dist.recv(a, -1)),
                (dist.InvalidArgumentError, "band", lambda: dist.all_reduce(a, "band")),
                (dist.InvalidArgumentError, "overlap", lambda: dist.all_to_all(whole, out=whole)),
                (dist.InvalidArgumentError, "overlap", lambda: dist.all_reduce(whole[:6], out=whole[2:])),
                (dist.InvalidArgumentError, "timeout is a number of seconds", lambda: dist.barrier(timeout=-1)),
                (dist.InvalidArgumentError, "timeout is a number of seconds", lambda: dist.barrier(timeout=float("nan"))),
                (TypeError, "batch: its operations are Send", lambda: dist.batch([(a, 1)])),
                (TypeError, r"not \\(array\\(\\[\\[1\\., 1\\., 1\\., 1\\.\\], .*\\.\\.\\.$", lambda: dist.batch([(wide, 1)])),
                (dist.InvalidArgumentError, "is this rank itself", lambda: dist.batch([dist.Send(a, r)])),
                (TypeError, "data is bytes", lambda: dist.all_gather_bytes("text")),
                (TypeError, "broadcast: root is an integer, not '0'", lambda: dist.broadcast(a, "0")),
                (ValueError, "send: dest is an integer of 32 bits", lambda: dist.send(a, (1 << 32) + (r + 1) % n)),
                (TypeError, "split: color is an integer", lambda: dist.split(1.5)),
                (TypeError, "timeout", lambda: dist.barrier(timeout="5")),
                (TypeError, "root is an integer, not array", lambda: dist.broadcast(a, wide)),
                (TypeError, "counts is a list.*, not array", lambda: dist.all_gather_v(a, wide)),
                (ValueError, "counts is .18446744073709551620, 0", lambda: dist.all_gather_v(a, [(1 << 64) + 4, 0, 0, 0])),
                (ValueError, "counts is .576460752303423488, ", lambda: dist.all_gather_v(a, [1 << 59] * 4)),
                (TypeError, "array is a masked array", lambda: dist.all_reduce(np.ma.array(a, mask=a > 0))),
                (ValueError, r"op is one of .*, not \['sum'\]", lambda: dist.all_reduce(a, ["sum"])),
                (TypeError, "stream is a cudaStream_t as a number", lambda: dist.all_reduce(a, stream=object())),
                (ValueError, "stream is a cudaStream_t as a number", lambda: dist.all_reduce(a, stream=-1)),
                (ValueError, "stream is for arrays on a GPU", lambda: dist.recv(a, (r + 1) % n, stream=0)),
                (TypeError, "timeout is a number of seconds", lambda: dist.barrier(timeout=datetime.timedelta(1))),
                (TypeError, "timeout is a number of seconds", lambda: dist.barrier(timeout=a)),
                (ValueError, "there is no shape .18446744073709551624,", lambda: dist.allocate_shared((1 << 64) + 8)),
                (TypeError, "ranks is a list of ranks, in the order", lambda: dist.new_group({0, r})),
                (TypeError, "ranks is a list of ranks, in the order", lambda: dist.new_group(3)),
                (TypeError, "name is a string, not 3", lambda: dist.new_group([r], name=3)),
                (ValueError, "name has a character NUL: 'a", lambda: dist.new_group([r], name="a\\0b")),
                (TypeError, "section: name is a string, not 3", lambda: dist.section(3)),
                (TypeError, "section: name is a string, not None", lambda: dist.section(None)),
                (ValueError, "section: name has a character NUL", lambda: dist.section("a\\0b")),
                (TypeError, "abort: reason is a string, not 5", lambda: dist.abort(5)),
                (ValueError, "abort: reason has a character NUL", lambda: dist.abort("a\\0b")),
                (TypeError, "init: init_method is a string", lambda: dist.init(5)),
                (ValueError, "backend is one of .*, not .'cpu'.", lambda: dist.new_group([r], backend=["cpu"])),
                (dist.InvalidArgumentError, "rank 0 twice", lambda: dist.new_group([0, 0, r])),
                (dist.InvalidArgumentError, "backend is one of", lambda: dist.new_group([r], backend="mpi")),
                (dist.InvalidArgumentError, "rank 4 is not in the group", lambda: world.global_rank(4)),
                (dist.InvalidArgumentError, "already", lambda: dist.init()),
                (dist.InvalidArgumentError, "init: on_sigterm is one of end_calls, agree, ignore", lambda: dist.init(on_sigterm="stop")),
                (dist.InvalidArgumentError, "rank is a number from 0 on", lambda: dist.init(rank=-1)),
                (TypeError, "neither be pickled nor copied", lambda: pickle.dumps(dist.new_group([r]))),
            ]
            import datetime, decimal, fractions, re
            from muster import _library
            for kind, pattern, case in CASES:
                error = raised(kind, case)
                assert re.search(pattern, str(error)), (pattern, error)
            for seconds, expected in ((1e-9, 1), (0, 0), (0.3, 300), (decimal.Decimal("0.0015"), 2), (fractions.Fraction(1, 3), 334),
                                      (float("inf"), _library.LONGEST_MS)):
                assert _library.milliseconds(seconds) == expected, seconds
            assert dist.failure() is None
            assert dist.broadcast(a, np.int64(2)) is a
            assert dist.all_reduce(a)[0] == n and not _work._in_flight
            """)


class Flights(Distributed):
    def test_works_report_completion_and_results(self):
        self.job("""
            data = np.full(1 << 10, 1.)
            first = dist.all_reduce(data, async_op=True, timeout=20)
            assert isinstance(first, dist.Work) and first.wait() and first.is_completed() and first.result is data
            assert first.wait() and (data == n).all(); first.synchronize()
            every = [dist.all_gather(np.array([r, i]), async_op=True) for i in range(50)]
            every[-1].wait()
            for i, work in enumerate(every):
                assert work.is_completed() and (work.result == [[s, i] for s in range(n)]).all()
                assert work.wait(timeout=0)
            assert dist.barrier(async_op=True).wait()
            if r == 0:
                late = dist.recv(np.zeros(1), 1, async_op=True)
                began = time.monotonic()
                assert not late.wait(timeout=0.15) and 0.14 < time.monotonic() - began < within(0.2) and not late.is_completed()
                assert "in flight" in repr(late)
            dist.barrier()
            if r == 1: dist.send(np.ones(1), 0)
            if r == 0: assert late.wait(5) and late.result[0] == 1
            dist.destroy()
            """)

    def test_memory_lives_as_long_as_its_operation(self):
        self.job("""
            group = dist.new_group([0, 1])
            dropped = [np.full(1000, 1.) for _ in range(8)]
            alive = [weakref.ref(one) for one in dropped]
            if r == 0:
                while dropped: group.all_reduce(dropped.pop(), async_op=True)
                kept = np.full(1000, 1.)
                work = group.all_reduce(kept, async_op=True)
                gc.collect()
                assert all(ref() is not None for ref in alive) and len(_work._in_flight) == 9
                touch("dropped")
                work.wait()
                assert (kept == 2).all()
                del work
                gc.collect()
                for _ in range(3): group.all_reduce(np.zeros(1), async_op=True).wait()  # Each looks after some that were dropped.
                gc.collect()
                assert not any(ref() is not None for ref in alive) and not _work._in_flight and not _work._without_work
            else:
                wait_for(lambda: exists("dropped"))
                for _ in range(9): group.all_reduce(np.full(1000, 1.))
                for _ in range(3): group.all_reduce(np.zeros(1))
            """, ranks=2)

    def test_a_dropped_work_that_fails_fails_its_group(self):
        self.job("""
            group = dist.new_group([0, 1])
            if r == 0:
                work = group.all_reduce(np.zeros(3), async_op=True)
                group.all_reduce(np.zeros(3), async_op=True)
                touch("called")
                raised(dist.MismatchError, work.wait)
                raised(dist.MismatchError, work.wait)
                raised(dist.MismatchError, group.barrier)
                wait_for(lambda: _work.sweep() or not _work._in_flight)
            else:
                wait_for(lambda: exists("called"))
                raised(dist.MismatchError, group.all_reduce, np.zeros(4))
            dist.barrier()
            """, ranks=2)

    def test_the_interpreters_end_frees_no_buffer_in_flight(self):
        out, err = self.job("""
            class Noted(array.array):
                def __del__(self, write=os.write): write(1, b"freed\\n")
            if r == 0:
                kept = dist.recv(Noted("d", [0]), 1, async_op=True)
                dist.recv(Noted("d", [0]), 1, async_op=True)
                sys.complete = dist.recv(Noted("d", [0]), 1, 7, async_op=True)
                sys.complete.wait()
                touch("received")
                raise SystemError("on purpose")
            dist.send(array.array("d", [1]), 0, 7)
            wait_for(lambda: exists("received"))
            time.sleep(20)
            """, ranks=2, code=1, done=0)
        self.assertEqual(out, "freed\n", "that of the complete one")
        self.assertRegex(err, r"FAILED: rank 0 of 2 exited with 1: SystemError: on purpose")


class Failures(Distributed):
    def test_a_death_raises_peer_failed_error_on_the_others(self):
        out, err = self.job("""
            with dist.section("steps"):
                for _ in range(3): dist.all_reduce(np.zeros(3))
            if r == 2:
                with open(os.environ["FOLDER"] + "/died", "w") as file: file.write(str(time.monotonic()))
                os.kill(os.getpid(), signal.SIGKILL)
            error = raised(dist.PeerFailedError, dist.all_reduce, np.zeros(3))
            with open(os.environ["FOLDER"] + "/died") as file: late = time.monotonic() - float(file.read())
            assert error.failed_ranks == (2,) and error.code == "peer_failed", error
            assert (error.operation, error.group) == ("all_reduce", "world") and late < within(1), (error, late)
            assert "rank 2 (" in str(error) and "died" in str(error), error
            again = pickle.loads(pickle.dumps(error))
            assert (type(again), str(again), again.failed_ranks, again.operation) == (type(error), str(error), (2,), "all_reduce")
            print(f"after {late:.3f} s")
            """, code=137, done=3)
        self.assertEqual(out.count("after"), 3)
        self.assertIn("rank 2 of 4 killed by SIGKILL", err)

    def test_each_failure_raises_its_class(self):
        self.job("""
            pair, other = dist.new_group([0, 1]), dist.new_group([0, 1])
            if r == 0:
                error = raised(dist.OperationTimeout, pair.barrier, timeout=0.3)
                assert isinstance(error, TimeoutError) and error.failed_ranks == (1,) and error.code == "timeout", error
                assert isinstance(raised(dist.OperationTimeout, pair.barrier), dist.DistributedError)
                error = raised(dist.OperationTimeout, dist.monitored_barrier, timeout=0.3)
                assert error.failed_ranks == (1,), error.failed_ranks
                touch("late")
            else:
                wait_for(lambda: exists("late"))
                raised(dist.OperationTimeout, dist.monitored_barrier)
            error = raised(dist.MismatchError, other.all_reduce, np.zeros(3 + r))
            assert error.failed_ranks == (0, 1), error.failed_ranks
            child = os.fork()
            if child == 0:
                try:
                    assert "fork" in str(raised(dist.ForkedError, dist.barrier))
                    raised(dist.ForkedError, dist.all_gather, np.zeros(1))
                    raised(dist.ForkedError, dist.init)
                    dist.destroy()
                    os._exit(0)
                finally:
                    os._exit(1)
            assert os.waitpid(child, 0)[1] == 0
            work = dist.all_reduce(np.zeros(1), async_op=True)
            child = os.fork()
            if child == 0:
                raised(dist.ForkedError, work.is_completed)
                sys.exit()
            assert os.waitpid(child, 0)[1] == 0
            assert work.wait()
            from muster import _library
            advice = _library._in_words_of_python("use muster_send() with a work or muster_batch()")
            assert advice == "use send(async_op=True) or batch()", advice
            dist.destroy()
            assert not dist.is_initialized()
            for call in (dist.rank, dist.barrier, dist.world.failure, dist.cuda_device, dist.should_stop, lambda: dist.new_group([0]),
                         lambda: dist.all_gather(np.zeros(2)), lambda: dist.world.size, lambda: dist.world.name,
                         lambda: dist.recv(np.zeros(2), 0)):
                error = raised(dist.NotInitializedError, call)
                assert "muster_" not in str(error) and "init()" in str(error), error
            assert "Group" in repr(dist.world)
            dist.destroy()
            raised(dist.InvalidArgumentError, dist.init, "tcp://nowhere")
            """, ranks=2)

    def test_init_times_out_without_all_ranks(self):
        out, _ = self.job(f"""
            error = raised(dist.OperationTimeout, dist.init, "tcp://127.0.0.1:{free_port()}", rank=0, world_size=2, timeout=0.5)
            assert error.failed_ranks == (1,) and error.operation == "init", (error.operation, error)
            os.environ["RANK"] = "many"
            raised(dist.JobEnvironmentError, dist.init)
            """, ranks=1, begin="")
        self.assertEqual(out, "done\n")

    def test_sigterm_stops_all_ranks_at_one_step(self):
        self.job("""
            dist.init(on_sigterm="agree")
            assert not dist.should_stop()
            if dist.rank() == 0: dist.request_stop()
            assert dist.should_stop()
            dist.destroy()
            dist.init(on_sigterm="agree")
            steps = 0
            def tell(): wait_for(lambda: steps); os.kill(os.getpid(), signal.SIGTERM)
            if dist.rank() == 1: threading.Thread(target=tell).start()
            while not dist.should_stop(): steps += 1
            assert steps > 0 and len(set(dist.all_gather_object(steps))) == 1
            """, ranks=2, begin="")

    def test_sigterm_ends_calls(self):
        self.job("""
            dist.init()
            if dist.rank() == 1:
                threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGTERM)).start()
                error = raised(dist.StoppedError, dist.recv, bytearray(1), 0)
                dist.destroy()
            else:
                raised((dist.PeerFailedError, dist.StoppedError), dist.recv, bytearray(1), 1)
            os.write(1, b"done\\n")
            os._exit(0)
            """, ranks=2, begin="")


    def test_a_hang_is_explained_by_lines_of_the_program(self):
        _, err = self.job("""
            def step(): dist.all_reduce(array.array("d", [1]))
            dist.init()
            step()
            if dist.rank() == 0:
                with dist.section("evaluation"): time.sleep(60)
            step()
            """, ranks=2, begin="", code=1, done=0, options=("--on-hang", "stop", "--hang-timeout", "1", "--busy-timeout", "2"))
        with open(self.path("program.py"), encoding="utf-8") as file:
            line = next(number for number, text in enumerate(file, 1) if text.startswith("def step"))
        self.assertRegex(err, rf"rank 0 \(pid \d+\) has not called all_reduce #2 of group 'world'")
        self.assertIn(f"waiting: rank 1 at program.py:{line} step", err)
        self.assertIn("in section 'evaluation'", err)


class TheEnd(Distributed):
    BEFORE = """
        if r == 1:
            wait_for(lambda: exists("waits")); LEAVE
        touch("waits")  # It has no time to lose: the launcher stops it for the other's end.
        error = raised(dist.PeerFailedError, dist.barrier, timeout=20)
        assert error.failed_ranks == (1,), error
        print("told:", error)
        """

    def told(self, leave, code=0, interruptible=False):
        """Returns rank 0's error about rank 1's end, and the launcher's stderr."""
        begin = BEGIN.replace("init()", f"init(interruptible={interruptible})")
        out, err = self.job(self.BEFORE.replace("LEAVE", leave), ranks=2, begin=begin, code=code, done=1)
        [told] = re.findall("told: (.*)", out)
        return told, err

    def test_a_rank_that_exits_has_left(self):
        told, err = self.told("sys.exit()")
        self.assertRegex(told, r"rank 1 \(.*\) (has )?left")
        self.assertNotIn("died", told)

    def test_a_rank_that_raises_has_died(self):
        told, err = self.told('raise KeyError("lost")', code=1)
        self.assertRegex(told, r"rank 1 \(.*\) died")
        self.assertIn("rank 1 of 2 exited with 1: KeyError: 'lost'", err)

    def test_a_launched_function_that_raises_has_died(self):
        program = self.write("launches.py", textwrap.dedent("""
            import muster, sys
            def train():
                import muster.distributed as dist
                dist.init()
                if dist.rank() == 1: raise KeyError("lost")
                try:
                    dist.barrier(timeout=20)
                except dist.PeerFailedError as error:
                    print("told:", error, flush=True)
                    raise
            if __name__ == "__main__":
                try:
                    muster.launch(train, nproc=2)
                except KeyError as error:
                    print(error)
            """))
        ended = subprocess.run([PYTHON, program], env={**os.environ, **self.env}, capture_output=True, text=True, timeout=LIMIT_S,
                               check=False)
        self.assertIn("'lost'", ended.stdout, ended.stderr)
        self.assertRegex(ended.stdout, r"told: .*rank 1 \(.*\) died")

    def test_an_exit_code_means_left_and_an_exit_in_flight_means_died(self):
        told, err = self.told("sys.exit(3)", code=3)
        self.assertRegex(told, r"rank 1 \(.*\) (has )?left")
        self.assertIn("rank 1 of 2 exited with 3", err)
        told, _ = self.told("kept = dist.recv(np.zeros(1), 0, async_op=True); sys.exit('in flight')", code=1)
        self.assertRegex(told, r"rank 1 \(.*\) died")

    def test_a_rank_with_operations_in_flight_has_died(self):
        self.job("""
            sys.last_value = sys.last_exc = KeyError("of before it joins")
            dist.init(interruptible=True)
            r, n = dist.rank(), dist.world_size()
            pairs = [dist.new_group([0, s]) for s in range(1, n)]
            pair = pairs[r - 1]
            def receive(**options): return pair.recv(array.array("d", [0]), 0, **options)
            def left(function, *args):
                interrupt(); raised(KeyboardInterrupt, function, *args)
            def elsewhere():
                threading.Thread(target=receive, daemon=True).start(); wait_for(lambda: _work.calls_elsewhere)
            def completed():
                work = receive(async_op=True, tag=7); touch("begun"); wait_for(work.is_completed)
            WAYS = [lambda: None, completed,  # These leave in order, the others die.
                    lambda: receive(async_op=True), lambda: left(receive), lambda: left(receive(async_op=True).wait),
                    lambda: left(pair.batch, [dist.Recv(bytearray(1), 0), dist.Recv(bytearray(1), 0)]), elsewhere,
                    lambda: left(pair.barrier), lambda: left(pair.broadcast_object)]
            assert n == len(WAYS) + 1
            if r:
                WAYS[r - 1]()
            else:
                wait_for(lambda: exists("begun"))
                pairs[1].send(array.array("d", [0]), 1, tag=7)
                for s in range(1, n):
                    error = raised(dist.PeerFailedError, pairs[s - 1].recv, bytearray(1), 1, timeout=20)
                    assert error.failed_ranks == (s,) and ("died" in str(error)) == (s > 2), (s, error)
            """, ranks=10, begin="")

    def test_a_with_block_leaves_only_without_an_exception(self):
        self.job("""
            with dist.init() as world:
                world.barrier()
            assert not dist.is_initialized()
            try:
                with dist.init(): raise LookupError()
            except LookupError:
                assert dist.is_initialized()
            with dist.init() if not dist.is_initialized() else dist._Joined(): dist.barrier()
            assert not dist.is_initialized()
            """, ranks=2, begin="")

    def test_works_and_groups_may_outlive_the_job(self):
        _, err = self.job("""
            group = dist.new_group(range(n))
            work = group.all_reduce(np.zeros(3), async_op=True)
            if r == 0: never = dist.recv(np.zeros(3), 1, async_op=True)
            dist.destroy()
            assert work.wait()
            if r == 0: raised(dist.DistributedError, never.wait)
            raised(dist.DistributedError, group.barrier)
            """, ranks=2)
        self.assertNotIn("Exception ignored", err)


class Interrupts(Distributed):
    def test_ctrl_c_leaves_a_stuck_operation_which_goes_on(self):
        self.job("""
            dist.init(interruptible=True)
            r, n = dist.rank(), dist.world_size()
            def left(function, *args, **options):
                began = time.monotonic()
                interrupt()
                raised(KeyboardInterrupt, function, *args, **options)
                assert time.monotonic() - began < within(1), time.monotonic() - began
            data = array.array("d", [1 + r] * 3)
            got, message = array.array("d", [0]), array.array("d", [7])
            step = iter(range(100))
            def together(interrupted, other):
                name = f"interrupted-{next(step)}"
                if r == 0: interrupted(); touch(name)
                else: wait_for(lambda: exists(name)); other()
            together(lambda: left(dist.all_reduce, data), lambda: dist.all_reduce(data))
            assert dist.all_reduce(array.array("d", [1])).tolist() == [2]  # After it.
            assert data.tolist() == [3] * 3
            together(lambda: left(dist.recv, got, 1), lambda: dist.send(message, 0))
            dist.barrier()
            wait_for(lambda: r == 1 or got.tolist() == [7])
            together(lambda: left(dist.barrier), dist.barrier)
            together(lambda: left(dist.all_reduce(data, async_op=True).wait), lambda: dist.all_reduce(data))
            together(lambda: left(dist.new_group, [0, 1]), lambda: dist.new_group([0, 1]))
            together(lambda: left(dist.broadcast_bytes, b"given"), lambda: dist.broadcast_bytes())
            together(lambda: left(dist.all_gather_object, 1), lambda: dist.all_gather_object(2))
            assert dist.all_reduce(array.array("d", [1])).tolist() == [2]
            assert data.tolist() == [6] * 3
            if r == 0: left(dist.all_reduce, data); dist.abort("interrupted"); touch("aborted")
            wait_for(lambda: exists("aborted"))
            raised(dist.AbortedError, dist.barrier)
            """, ranks=2, begin="")

    def test_ctrl_c_at_the_launcher_ends_a_deadlock(self):
        program = self.program("""
            import asyncio
            async def main(): asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, print)
            asyncio.run(main())  # Its end unsets the wake-up descriptor.
            for _ in range(3): dist.barrier()
            child = os.fork()  # The child shares nothing of this.
            if child == 0: time.sleep(60)
            error = raised(KeyboardInterrupt, say_pid_and, dist.recv, np.zeros(1), 1 - r)
            raised(dist.AbortedError, dist.barrier)
            touch(f"left-{r}")
            os.kill(child, signal.SIGKILL)
            """)
        with Job("--nproc-per-node", 2, "--python", PYTHON, program, env=self.env) as job:
            for pid in wait_for(lambda: len(pids := job.stdout().split()) == 2 and pids, "both are at it"):
                wait_until_stuck(int(pid), "it waits for the other")
            job.signal(signal.SIGINT)
            job.wait()
            self.assertTrue(self.exists("left-0") and self.exists("left-1"), job.stderr())

    def test_handlers_and_event_loops_keep_the_signals(self):
        self.job("""
            import socket
            ours, theirs = socket.socketpair()
            ours.setblocking(False)
            signal.set_wakeup_fd(ours.fileno())
            dist.init()
            assert signal.set_wakeup_fd(-1) == ours.fileno()
            dist.destroy()
            dist.init()
            own = signal.set_wakeup_fd(-1)
            assert own >= 0
            signal.set_wakeup_fd(ours.fileno())
            _work.look_after_signals()
            assert signal.set_wakeup_fd(-1) == ours.fileno()
            _work.next_look = 0
            dist.barrier()
            assert signal.set_wakeup_fd(own) == own
            r, seen = dist.rank(), []
            signal.signal(signal.SIGINT, lambda *_: seen.append(r))
            if r == 0:
                threading.Timer(0.1, lambda: (os.kill(os.getpid(), signal.SIGINT), touch("interrupted"))).start()
                assert dist.recv(array.array("d", [0]), 1) == 1 and seen == [0]  # A handler that does not raise ends no call.
            else:
                wait_for(lambda: exists("interrupted"))
                dist.send(array.array("d", [0]), 0)
            """, ranks=2, begin="")

    def test_ctrl_c_interrupts_init(self):
        self.job(f"""
            interrupt()
            raised(KeyboardInterrupt, dist.init, "tcp://127.0.0.1:{free_port()}", rank=0, world_size=2, timeout=5,
                   interruptible=True)
            assert not dist.is_initialized() and _work.is_any_in_flight()
            wait_for(lambda: not _work.is_any_in_flight())
            dist.init("tcp://127.0.0.1:{free_port()}", rank=0, world_size=1, interruptible=True)
            """, ranks=1, begin="")

    def by_hand(self, rank, text):
        port = self.port = getattr(self, "port", None) or free_port()
        begin = f'dist.init("tcp://127.0.0.1:{port}", rank={rank}, world_size=2)\n'
        return self.write(f"rank{rank}.py", HEAD + begin + textwrap.dedent(text))

    def environment(self):
        return {**{name: value for name, value in os.environ.items() if not name.startswith("MUSTER")}, **self.env}

    def test_ctrl_c_on_a_terminal_interrupts_a_call(self):
        program = self.by_hand(0, """
            raised(KeyboardInterrupt, say_pid_and, dist.all_reduce, array.array("d", [1]))
            touch("left")
            print(dist.all_reduce(array.array("d", [1])).tolist())
            """)
        other = subprocess.Popen([PYTHON, self.by_hand(1, """
            wait_for(lambda: exists("left"))
            for _ in range(2): dist.all_reduce(array.array("d", [2]))
            """)], env=self.environment(), stdin=subprocess.DEVNULL, start_new_session=True)
        self.addCleanup(other.wait, LIMIT_S)
        child, terminal = pty.fork()
        if child == 0:
            os.execve(PYTHON, [PYTHON, program], self.environment())
        self.addCleanup(os.close, terminal)
        seen = b""

        def read_until(text):
            nonlocal seen
            until = time.monotonic() + LIMIT_S
            while text not in seen:
                self.assertTrue(select.select([terminal], [], [], max(0, until - time.monotonic()))[0], f"no {text} in {seen}")
                try:
                    seen += os.read(terminal, 1000)
                except OSError:  # It has ended.
                    self.fail(f"no {text} in {seen}")

        read_until(b"\n")
        wait_until_stuck(child, "it waits for the other")
        os.write(terminal, b"\x03")
        read_until(b"[3.0]")
        self.assertEqual(os.waitpid(child, 0)[1], 0, seen)
        self.assertEqual(other.wait(LIMIT_S), 0)

    def test_a_notebooks_interrupt_interrupts_a_call(self):
        other = subprocess.Popen([PYTHON, self.by_hand(1, """
            wait_for(lambda: exists("left"))
            for _ in range(2): dist.all_reduce(array.array("d", [2]))
            """)], env=self.environment(), stdin=subprocess.DEVNULL)
        self.addCleanup(other.wait, LIMIT_S)
        manager, client = start_kernel(self, PYTHON, self.environment(), self.folder.name)

        def execute(text, *on_print):
            return end_of_cell(client, client.execute(text), *on_print)

        def interrupt(printed):
            if printed.endswith("\n"):
                wait_until_stuck(int(printed), "it waits for the other")
                manager.interrupt_kernel()

        with open(self.by_hand(0, "print(dist.rank())"), encoding="utf-8") as file:
            self.assertEqual(execute(file.read()), ("0\n", None))
        self.assertEqual(execute('say_pid_and(dist.all_reduce, array.array("d", [1]))', interrupt)[1], "KeyboardInterrupt")
        self.assertEqual(execute('touch("left"); print(dist.all_reduce(array.array("d", [1])).tolist())'), ("[3.0]\n", None))
        self.assertEqual(execute("dist.destroy()"), ("", None))
        self.assertEqual(other.wait(LIMIT_S), 0)


class Tensors(Distributed):
    def setUp(self):
        super().setUp()
        if not os.access(TORCH, os.X_OK):
            self.skipTest(f"no PyTorch: {TORCH} (set MUSTER_TORCH_VENV; ./dev test makes it)")

    def test_operations_take_torch_tensors_and_dlpack(self):
        self.job("""
            import torch
            torch.set_num_threads(1)
            dist.init()
            r, n = dist.rank(), dist.world_size()
            for dtype in (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16,
                          torch.float32, torch.float64, torch.complex64):
                tensor = torch.arange(4).to(dtype) + r
                assert dist.all_reduce(tensor) is tensor
                assert torch.equal(tensor, (torch.arange(4) * n + 1).to(dtype)), tensor
                every = dist.all_gather(torch.full((2, 1), r).to(dtype))
                assert every.dtype == dtype and every.shape == (n, 2, 1) and every[1].eq(1).all()
            flags = dist.all_reduce(torch.tensor([r == 0, False]), "bor"); assert flags.tolist() == [True, False]
            weight = torch.ones(2, requires_grad=True); dist.all_reduce(weight); assert weight.tolist() == [2, 2]
            dist.batch([dist.Send(torch.tensor([r]), 1 - r), dist.Recv(got := torch.zeros(1, dtype=torch.int64), 1 - r)])
            assert got.item() == 1 - r
            raised(ValueError, dist.all_reduce, torch.ones(3, 3).t())
            raised(ValueError, dist.all_reduce, torch.ones(2, dtype=torch.complex64).conj())
            raised(ValueError, dist.all_reduce, torch.ones(2).to_sparse())
            import warnings
            warnings.simplefilter("ignore")  # Nested tensors are new.
            for layout in (torch.strided, torch.jagged):
                nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=layout)
                error = raised(ValueError, dist.all_reduce, nested)
                assert ("nested" if layout is torch.strided else "torch.jagged") in str(error), error
            raised(ValueError, dist.all_reduce, torch.ones(2, device="meta"))
            raised(TypeError, dist.all_reduce, torch.ones(2).to(torch.float8_e4m3fn))

            class Exported:
                \"\"\"What has DLPack alone.\"\"\"
                def __init__(self, tensor, is_old=False): self.tensor, self.is_old, self.shape = tensor, is_old, tensor.shape
                def __dlpack_device__(self): return self.tensor.__dlpack_device__()
                def __dlpack__(self, **options):
                    if self.is_old and options: raise TypeError()
                    return self.tensor.__dlpack__(**options)
            import numpy
            for is_old in (False, True):
                tensor = torch.arange(4.)
                exported = Exported(tensor, is_old)
                assert dist.all_reduce(exported) is exported and tensor.tolist() == [0, 2, 4, 6]
                assert isinstance(dist.all_gather(exported), numpy.ndarray) and dist.all_gather(exported).shape == (n, 4)
                half = torch.arange(4).bfloat16()[2:]; dist.all_reduce(Exported(half, is_old)); assert half.tolist() == [4, 6]
                raised(ValueError, dist.all_reduce, Exported(torch.ones(3, 3).t(), is_old))
                raised(ValueError, dist.all_reduce, Exported(torch.ones(2, requires_grad=True), is_old))
                raised(ValueError, dist.all_gather, Exported(half, is_old))
            class OnGpu(Exported):
                def __dlpack_device__(self): return 2, 0
                def __dlpack__(self, **options):
                    self.stream = options.pop("stream")
                    return super().__dlpack__(**options)
            for stream, expected in ((None, 1), (0, 1), (77, 77)):
                on_gpu = OnGpu(torch.ones(2), stream is None)
                error = raised(dist.DistributedError, dist.all_reduce, on_gpu, stream=stream)
                assert "cuda" in str(error).lower() or "GPU" in str(error), error
                assert on_gpu.stream == expected
            class Copied(Exported):
                def __dlpack__(self, **options):
                    assert options.pop("copy", False) is False
                    capsule = self.tensor.__dlpack__(**options)
                    _arrays._tensor_of(capsule)
                    managed = _arrays._Versioned.from_address(_arrays._pointer_in(capsule, b"dltensor_versioned"))
                    managed.flags |= 2
                    return capsule
            from muster import _arrays
            assert "gives a copy" in str(raised(ValueError, dist.all_reduce, Copied(torch.ones(2))))
            assert dist.all_gather(Copied(torch.ones(2))).shape == (n, 2)
            frozen = numpy.ones(3); frozen.flags.writeable = False
            raised(ValueError, dist.all_reduce, Exported(frozen))
            assert dist.all_gather(Exported(frozen)).shape == (n, 3)
            alive = weakref.ref(tensor := torch.ones(4))
            work = dist.all_reduce(Exported(tensor), async_op=True)
            del tensor; gc.collect(); assert alive() is not None
            work.wait(); work = None
            gc.collect(); assert alive() is None
            tensor = torch.from_numpy(memory := numpy.zeros(4))
            alive = weakref.ref(memory)
            del memory
            if r == 0: work = dist.recv(tensor, 1, async_op=True); touch("begun")
            tensor.data = torch.zeros(1)  # While its memory is being written to.
            gc.collect(); assert (alive() is None) == (r == 1)
            if r == 0: work.wait(); work = None; gc.collect(); assert alive() is None
            else: dist.send(torch.zeros(4, dtype=torch.float64), 0)
            """, ranks=2, python=TORCH, begin="")


if __name__ == "__main__":
    skip_without("MUSTER_DIST", "MUSTER_PYTHON")
    main()
