"""Records the collectives of a PyTorch program in the ring that its launcher reads, so that a hang can be explained.

    the program's call ─▶ ProcessGroup ─▶ Group.before: the call, its place in the program
                                       ─▶ Group.after:  its Work, kept until it is complete
    Looker, 4 times a second           ─▶ Group.look:   which calls are complete

PyTorch 2.15 has hooks, which also see calls from C++ (DDP's reducer, functional collectives). In older versions (in all
with MUSTER_PYTHON_HOOK=wrap) the methods of ProcessGroup are wrapped, and calls from C++ are only counted.

Nothing here may raise into the program, keep its tensors, or wait. An error of our own ends the recording and takes
this rank's groups out of the ring: a rank that is no longer recorded must not look late.
"""
import atexit
import collections
import contextlib
import faulthandler
import functools
import inspect
import os
import random
import signal
import sys
import threading
import weakref

STANDARD_LIBRARY = os.path.dirname(os.__file__)
LOOK_S = 0.25
FRAMES_MAX = 100
CODES_MAX = 4096
WAITED_MAX = 16  # Newest calls of a group among which a Work that was waited for is looked up.
MESSAGES_MAX = 1000  # Incomplete messages kept per group; beyond that the oldest count as complete.

# Per operation: its kind, the tensors whose size is compared (1: inputs, 0: outputs), and whether members may have
# different sizes ("many": unless there is exactly one tensor).
HOOKED = {
    "ALLREDUCE": ("all_reduce", 1, False),
    "ALLREDUCE_COALESCED": ("all_reduce", 1, "many"),
    "BROADCAST": ("broadcast", 1, False),
    "REDUCE": ("reduce", 1, False),
    "ALLGATHER": ("all_gather", 1, True),
    "ALLGATHER_BASE": ("all_gather", 1, False),
    "ALLGATHER_COALESCED": ("all_gather", 1, True),
    "ALLGATHER_INTO_TENSOR_COALESCED": ("all_gather", 1, "many"),
    "GATHER": ("gather", 1, False),
    "SCATTER": ("scatter", 0, False),
    "REDUCE_SCATTER": ("reduce_scatter", 0, True),
    "REDUCE_SCATTER_BASE": ("reduce_scatter", 0, False),
    "REDUCE_SCATTER_TENSOR_COALESCED": ("reduce_scatter", 0, "many"),
    "ALLTOALL": ("all_to_all", 1, True),
    "ALLTOALL_BASE": ("all_to_all", 1, True),
    "BARRIER": ("barrier", 1, False),
    "SEND": ("send", 1, False),
    "RECV": ("recv", 0, False),
}
# Per method of ProcessGroup: its operation, and the positions of its inputs and outputs among the arguments.
WRAPPED = {
    "allreduce": ("ALLREDUCE", 0, 0),
    "allreduce_coalesced": ("ALLREDUCE_COALESCED", 0, 0),
    "broadcast": ("BROADCAST", 0, 0),
    "reduce": ("REDUCE", 0, 0),
    "allgather": ("ALLGATHER", 1, 0),
    "_allgather_base": ("ALLGATHER_BASE", 1, 0),
    "all_gather_single": ("ALLGATHER_BASE", 1, 0),
    "allgather_coalesced": ("ALLGATHER_COALESCED", 1, 0),
    "allgather_into_tensor_coalesced": ("ALLGATHER_INTO_TENSOR_COALESCED", 1, 0),
    "all_gather_single_coalesced": ("ALLGATHER_INTO_TENSOR_COALESCED", 1, 0),
    "gather": ("GATHER", 1, 0),
    "scatter": ("SCATTER", 1, 0),
    "reduce_scatter": ("REDUCE_SCATTER", 1, 0),
    "_reduce_scatter_base": ("REDUCE_SCATTER_BASE", 1, 0),
    "reduce_scatter_single": ("REDUCE_SCATTER_BASE", 1, 0),
    "reduce_scatter_tensor_coalesced": ("REDUCE_SCATTER_TENSOR_COALESCED", 1, 0),
    "reduce_scatter_single_coalesced": ("REDUCE_SCATTER_TENSOR_COALESCED", 1, 0),
    "alltoall": ("ALLTOALL", 1, 0),
    "alltoall_base": ("ALLTOALL_BASE", 1, 0),
    "all_to_all_single": ("ALLTOALL_BASE", 1, 0),
    "barrier": ("BARRIER", 0, 0),
    "send": ("SEND", 0, 0),
    "recv": ("RECV", 0, 0),
    "recv_anysource": ("RECV", 0, 0),
}
TYPES = {
    "bool": "boolean", "float8_e4m3fn": "float8_e4m3", "float8_e4m3fnuz": "float8_e4m3",
    "float8_e5m2fnuz": "float8_e5m2",
}
REDUCTIONS = {"AVG": "average", "PREMUL_SUM": "premultiplied_sum"}
# Functions of torch that wait for the operation that they call.
WAITING = ("send", "recv")


class Call:
    """A call that is not complete. `work`: None while torch is making it."""

    __slots__ = ("record", "is_synchronous", "work", "is_done", "has_failed", "thread", "position")

    def __init__(self, record, is_synchronous=False, is_done=False):
        self.record, self.is_synchronous, self.work = record, is_synchronous, None
        self.is_done, self.has_failed = is_done, False
        self.thread, self.position = threading.get_ident(), None


class Recorder:
    """The recorder of this process."""

    def __init__(self, c10d, departure):
        self.ring, self.c10d, self.departure = departure["ring"], c10d, departure
        self.on = True
        self.is_attached = False
        self.groups = {}  # By id() of the ProcessGroup: a reference would keep that from being destroyed.
        self.worlds = collections.Counter()  # Worlds so far, by size: a rank may have had others of its own.
        self.world = ""
        self.opened = collections.Counter()  # Groups of this world so far, by name.
        self.looker = None
        torch = os.path.dirname(os.path.dirname(c10d.__file__))
        self.folders = (torch, os.path.dirname(sys._getframe().f_code.co_filename), "<")
        self.sites = Sites(self.ring, torch, departure["site_text"])
        self.constants = Constants(self.ring, c10d)

    def guarded(self, function):
        @functools.wraps(function)
        def call(*arguments):
            if not self.on:
                return None
            try:
                return function(*arguments)
            except Exception as error:
                if self.is_programs(error):
                    raise
                self.stop(error)
                return None
        return call

    def is_programs(self, error):
        """True if the handler of a signal raised it, which may run between any two instructions: the program's to catch."""
        trace = error.__traceback__
        while trace is not None:
            path = trace.tb_frame.f_code.co_filename
            if not path.startswith(self.folders) and ("-packages" in path or not path.startswith(STANDARD_LIBRARY)):
                return True
            trace = trace.tb_next
        return False

    def stop(self, error=None):
        """Stops for good, and prints the error, if any."""
        self.on = False
        for group in list(self.groups.values()):
            group.drop()
            if error is not None:
                self.ring.set_state(group.handle, self.ring.UNUSED)
        if error is not None:
            say(f"records no more calls, so a hang is not explained: {place_of(error)}{type(error).__name__}: {error} "
                "(--no-python-hook leaves this out)")

    def attach(self):
        """Called with the first group: a process that only forks must not own the ring."""
        if self.is_attached:
            return True
        why = self.ring.attach(self.departure["record_fd"])
        if why is None:
            self.is_attached = True
            os.register_at_fork(after_in_child=self.forget)
            atexit.register(self.end)
            return True
        self.on = False
        if why:
            say(f"records no calls, so a hang is not explained: {why} (see MUSTER_RECORD_FD)")
        return False

    def forget(self):
        """Stops in a forked child, whose locks may be held by threads that it does not have."""
        self.on = False

    def end(self):
        """Ends while the interpreter can still call and destroy the hooks."""
        if not self.on:
            return
        self.look()
        self.stop()
        if self.looker is not None:
            self.looker.end()
        for group in list(self.groups.values()):
            group.unhook()

    def look(self):
        began = self.ring.now()
        if all([group.look() for group in list(self.groups.values())]):
            self.ring.looked(began)

    # ---- groups

    def forming(self, size, own_rank, ranks, name, description):
        """The members begin to wait for each other. None if nothing is recorded or this process is no member."""
        if own_rank is None or not self.attach():
            return None
        if not ranks:
            self.worlds[size] += 1
            self.world = f"@{size}" + (f".{self.worlds[size]}" if self.worlds[size] > 1 else "")
            self.opened.clear()
            self.departure["went_on"]()
            description = "world"
        return self.open(name, description, ranks or range(size), own_rank)

    def open(self, name, description, ranks, own_rank):
        """The id is unique in the job and equal on all members, since all form the same number of groups of a name."""
        self.opened[name] += 1
        identity = name + self.world
        if self.opened[name] > 1:
            identity += f"#{self.opened[name]}"
        ranks = list(ranks)
        shown = description
        if description in (None, "", "undefined"):  # Then torch's name is a number or a hash.
            shown = self.name_by_ranks(ranks)
        return Group(self, self.ring.open_group(identity, shown, ranks_text(ranks), len(ranks), own_rank))

    def name_by_ranks(self, ranks):
        """Members form groups of the same ranks in the same order, so all of them find the same number."""
        runs = ranks_text(ranks)
        if len(runs) > 50:
            runs = f"{runs[:40].rpartition(',')[0]},... ({len(ranks)} in all)"
        name = f"group of rank{'s' * (len(ranks) > 1)} {runs}"
        self.opened[name] += 1
        number = self.opened[name]
        return f"{name} (#{number})" if number > 1 else name

    def form_failed(self, group, error):
        if group is not None:
            self.ring.note_failure(group.handle, f"{type(error).__name__}: {error}")
            self.ring.set_state(group.handle, self.ring.FAILED)

    def formed(self, group, pg):
        if group is None:
            return
        if not isinstance(pg, self.c10d.ProcessGroup) or id(pg) in self.groups and self.groups[id(pg)].pg() is pg:
            self.ring.set_state(group.handle, self.ring.CLOSED)  # This process is no member, or the group is not new.
            return
        self.groups[id(pg)] = group
        self.ring.set_state(group.handle, self.ring.READY)
        group.follow(pg, is_hooked=not self.is_on_gpus(pg))
        if self.looker is None:
            self.looker = Looker(self)

    def found(self, pg):
        """Records a group whose forming was not seen."""
        if not isinstance(pg, self.c10d.ProcessGroup) or not self.attach():
            return
        if id(pg) in self.groups and self.groups[id(pg)].pg() is pg:
            return
        ranks = self.c10d.get_process_group_ranks(pg)
        self.formed(self.open(pg.group_name, pg.group_desc, ranks, pg.rank()), pg)

    def backends(self, pg):
        return str(self.c10d._world.pg_backend_config.get(pg, "")) + str(self.c10d._world.pg_map.get(pg, ("",))[0])

    def is_on_gpus(self, pg):
        """True if NCCL's profiler plugin records the group's calls."""
        return "nccl" in self.backends(pg) and sys.modules["torch"].cuda.device_count() > 0

    def leaving(self, args, kwargs):
        """Noted before the connections are closed, since the other members may fail of that."""
        group = args[0] if args else kwargs.get("group")
        if self.is_attached and (group is None or group == self.c10d.GroupMember.WORLD):
            self.departure["left"]()

    def waited(self, work):
        """The caller of Work.wait() goes on, so the call is complete, and noted at once."""
        for group in list(self.groups.values()):
            if group.waited(work):
                return

    def is_on_cpus(self, pg):
        """True if all of the group's backends are of CPUs."""
        config = str(self.c10d._world.pg_backend_config.get(pg, "unknown"))
        return all(part.split(":")[-1].strip() in ("gloo", "mpi") for part in config.split(","))

    def close_destroyed(self):
        for key, group in list(self.groups.items()):
            pg = group.pg()
            if pg is None or pg not in self.c10d._world.pg_map:
                group.look()
                group.drop()
                self.ring.set_state(group.handle, self.ring.CLOSED)
                del self.groups[key]


class Group:
    """The calls of one process group."""

    def __init__(self, recorder, handle):
        self.recorder, self.ring, self.handle = recorder, recorder.ring, handle
        self.ordinal = 0
        self.pending = collections.deque()  # Collectives in call order.
        self.messages = collections.deque()
        self.entered = {}  # Calls that have not returned to their caller, by torch's number.
        self.looking = threading.Lock()
        self.pg = lambda: None
        self.hook_id = None
        self.sequence = None  # Torch's count of the group's collectives, up to the last one recorded or counted.
        self.within = 0  # Wrapped methods in progress.
        self.has_others = False  # The last calls came from C++ and were only counted.
        self.is_unknown = False  # Value of set_completion_unknown().
        self.waits_whole = False  # Work.wait() returns once the call is complete.
        self.before = recorder.guarded(self.before)
        self.after = recorder.guarded(self.after)
        self.enter = recorder.guarded(self.enter)
        self.leave = recorder.guarded(self.leave)
        self.refuse = recorder.guarded(self.refuse)

    def follow(self, pg, is_hooked):
        self.pg = weakref.ref(pg)
        self.waits_whole = self.recorder.is_on_cpus(pg)
        if not is_hooked:
            return
        if has_hooks(pg):
            self.hook_id = random.getrandbits(62)  # Random: a repeated id would replace another's hook.
            pg.register_pre_hook(self.hook_id, self.before)
            pg.register_post_hook(self.hook_id, self.after)
        else:
            wrap_own_methods(self.recorder, type(pg))
            self.hook_id = 0
            self.sequence = sequence_of(pg)

    def unhook(self):
        pg = self.pg()
        if pg is not None and self.hook_id:
            with contextlib.suppress(Exception):
                pg.unregister_pre_hook(self.hook_id)
                pg.unregister_post_hook(self.hook_id)

    def drop(self):
        self.pending.clear()
        self.messages.clear()
        self.entered.clear()

    # ---- torch's hooks

    def before(self, args):
        operation = self.recorder.constants.operations.get(args.name)
        if operation is None:
            return
        tensors = args.input_tensors if operation[1] else args.output_tensors
        frame = sys._getframe(1).f_back
        call = self.record(frame, operation, tensors, args.root, not args.async_op)
        if call is not None:
            call.position = position_of(frame)
            self.entered[args.op_id] = call

    def after(self, args):
        call = self.entered.pop(args.op_id, None)
        if call is not None:
            self.returned(call, args.work)

    # ---- both

    def record(self, frame, operation, tensors, root, is_synchronous, operator=None):
        kind, _, is_v, reduces, is_message = operation
        if self.entered:
            self.withdraw_refused()
        if self.pending or self.messages:
            self.try_to_advance()
        site, value, waits = self.recorder.sites.look(frame, reduces, is_message)
        reduction = self.recorder.constants.reduction(operator if value is None else value) if reduces else 0
        if len(tensors) == 1:
            count, dtype = tensors[0].numel(), tensors[0].dtype
        elif tensors:
            count, dtype = sum(tensor.numel() for tensor in tensors), tensors[0].dtype
        else:
            count, dtype = 0, None
        if is_v == "many":
            is_v = len(tensors) != 1
        dtype = self.recorder.constants.types.get(dtype, 0)
        if is_message:
            record = self.ring.message_called(self.handle, value if isinstance(value, int) else 0, kind, dtype, 0, is_v,
                                              is_synchronous or waits, root, count, site)
        else:
            self.ordinal += 1
            record = self.ring.called(self.handle, self.ordinal, kind, dtype, reduction, is_v, is_synchronous or waits,
                                      root, count, site)
        if record is None:
            return None
        call = Call(record, is_synchronous or waits)
        (self.messages if is_message else self.pending).append(call)
        return call

    def returned(self, call, work):
        """A call without a Work is complete."""
        call.is_done = work is None
        call.work = work

    def waited(self, work):
        """Returns true if one of the group's last calls has this Work."""
        for calls in (self.pending, self.messages):
            for back in range(1, WAITED_MAX + 1):
                try:
                    call = calls[-back]
                except IndexError:  # Another thread has removed some.
                    break
                if call.work is work:
                    return self.note_waited(call, work)
        return False

    def note_waited(self, call, work):
        """On a device, wait() may only make a stream wait."""
        if not self.waits_whole and not work.is_completed():
            return True
        call.work, call.is_done = None, True
        self.try_to_advance()
        return True

    def withdraw_refused(self):
        """Withdraws calls that raised an exception, which torch does not report: those that this thread had entered."""
        thread = threading.get_ident()
        for number, call in list(self.entered.items()):
            if call.thread == thread:
                self.withdraw(number, call)

    def withdraw(self, number, call):
        if self.entered.pop(number, None) is call:
            self.refused(call)

    def refused(self, call):
        """The next collective reuses the ordinal, if no other has been called since."""
        if call in self.messages:
            self.messages.remove(call)
            self.ring.withdrawn(call.record)
        elif self.pending and self.pending[-1] is call:
            self.pending.pop()
            self.ordinal -= 1
            self.ring.withdrawn(call.record)
        else:
            call.is_done = True

    def is_complete(self, call, places=None):
        """Drops the Work of a complete call, which holds its tensors. Some Works (gloo's reduce_scatter, send and recv)
        report completion only after a wait, or never; a synchronous call is then complete once its caller goes on."""
        work = call.work
        if call.is_done or work is None:
            return call.is_done
        if work.is_completed():
            self.note_failure(call, work)
        elif not call.is_synchronous or not self.has_gone_on(call, places):
            return False
        call.work, call.is_done = None, True
        return True

    def note_failure(self, call, work):
        """Records the error that the program gets when it waits."""
        future = future_of(work)
        if future is None:
            return
        try:
            future.value()
        except Exception as error:
            call.has_failed = True
            self.ring.note_failure(self.handle, f"{type(error).__name__}: {error}")

    def has_gone_on(self, call, places):
        """`places`: those of all threads; None: this thread is making another call."""
        if places is None:
            return call.thread == threading.get_ident()
        return not places.get(call.thread, NOWHERE).makes_call

    def try_to_advance(self):
        """Leaves it to the thread that does so, if there is one."""
        if self.looking.acquire(False):
            try:
                self.advance()
            finally:
                self.looking.release()

    def advance(self):
        """Records the first calls that are complete. REQUIRES: `looking` is held."""
        last = None
        while self.pending and self.is_complete(self.pending[0]):
            last = self.pending.popleft()
            if last.has_failed:
                self.ring.failed(last.record)
        if last is not None:
            self.ring.completed(last.record)  # Completes the calls before it, too.
        while self.messages and self.is_complete(self.messages[0]):
            self.message_ended(self.messages.popleft())

    def message_ended(self, call):
        (self.ring.failed if call.has_failed else self.ring.completed)(call.record)

    def look(self):
        """Returns False if another thread is just recording what is complete."""
        if not (self.pending or self.messages or self.sequence is not None):
            return True
        if not self.looking.acquire(False):
            return False
        try:
            # The calls first: the places say nothing about a call that is made after them.
            pending, messages, entered = list(self.pending), list(self.messages), list(self.entered.items())
            places = self.recorder.sites.of_threads({call.thread for call in pending + messages},
                                                    {call.thread for _, call in entered})
            is_later_done = False
            for call in reversed(pending):
                if is_later_done and not call.is_done and self.never_completes(call):
                    call.work, call.is_done = None, True
                is_later_done = self.is_complete(call, places) or is_later_done
            for call in messages:
                if self.is_complete(call, places) or len(self.messages) > MESSAGES_MAX:
                    self.messages.remove(call)
                    self.message_ended(call)
            self.advance()
            self.withdraw_left(entered, places)
            if self.sequence is not None and self.within == 0:
                self.count_others(self.pg())
            self.tell_unknown(self.has_others or bool(self.pending) and self.never_completes(self.pending[0]))
            return True
        finally:
            self.looking.release()

    def never_completes(self, call):
        """True if the Work never reports completion; the call counts as complete once a later one is."""
        return not call.is_synchronous and call.work is not None and future_of(call.work) is None

    def withdraw_left(self, entered, places):
        """Withdraws calls that raised an exception and were the last of their threads, which have gone on. The reader believes
        a rank's last call only after the next look (agent/hang/ring_digest.cc)."""
        for number, call in entered:
            place = places.get(call.thread)
            if place is not None and call.position is not None and call.position not in place.positions:
                self.withdraw(number, call)

    # ---- wrapped methods

    def enter(self, pg, operation, given, arguments, keywords):
        kind, is_given, is_v, reduces, is_message = operation
        place = given[0] if is_given else given[1]
        tensors = flattened(arguments[place]) if place < len(arguments) else []
        options = next((one for one in (*arguments, *keywords.values()) if hasattr(one, "timeout")), None)
        root = getattr(options, "rootRank", -1)
        if is_message and len(arguments) > 2:  # recv_anysource() has only tensors and tag.
            root = arguments[1]
        if not tensors:
            is_v = True  # There is no size to compare.
        if self.sequence is not None:
            self.count_others(pg)
        self.has_others = False
        self.tell_unknown(False)  # The end of this call can be seen, and implies that of earlier ones.
        frame = sys._getframe(3)
        waits = frame.f_locals.get("async_op") is False
        self.within += 1
        return self.record(frame, (kind, is_given, is_v, reduces, is_message), tensors, root, waits,
                           getattr(options, "reduceOp", None))

    def leave(self, pg, call, work):
        self.within -= 1
        if call is not None:
            self.returned(call, work)
        if self.sequence is not None:
            self.sequence = sequence_of(pg)  # Torch may also count messages, and one collective as several.

    def refuse(self, pg, call):
        self.within -= 1
        if call is not None:
            self.refused(call)
        if self.sequence is not None:
            self.sequence = sequence_of(pg)

    def count_others(self, pg):
        """Counts the calls that C++ has made since, whose completion cannot be seen."""
        now = sequence_of(pg) if pg is not None else None
        if now is None or now <= self.sequence:
            self.sequence = now
            return
        for _ in range(now - self.sequence):
            self.ordinal += 1
            record = self.ring.called(self.handle, self.ordinal, 0, 0, 0, True, False, -1, 0, 0)
            self.pending.append(Call(record, is_done=True))
        self.sequence = now
        self.has_others = True

    def tell_unknown(self, is_unknown):
        if is_unknown != self.is_unknown:
            self.is_unknown = is_unknown
            self.ring.set_completion_unknown(self.handle, is_unknown)


# Whether a thread is within a function of torch that makes collectives, and the positions of its frames, if asked for.
Place = collections.namedtuple("Place", ["makes_call", "positions"])
NOWHERE = Place(False, ())


def position_of(frame):
    return None if frame is None else (id(frame.f_code), frame.f_lasti)


class Sites:
    """The places in the program that make calls: the innermost frame outside of installed packages and Python's own
    library; if there is none, the innermost outside of torch."""

    def __init__(self, ring, torch_folder, site_text):
        self.ring, self.site_text = ring, site_text
        # Includes frames between torch's own: decorators, context managers, code made by torch.compile.
        self.inside = (torch_folder + os.sep, contextlib.__file__, functools.__file__, "<frozen", "<eval_with_key>",
                       sys._getframe().f_code.co_filename)
        self.codes = {}  # By id(): the code (a reference keeps the id unique) and its what_is().
        self.sites = {}

    def what_is(self, code):
        """None for the program's code, () for that of other packages; for torch's, two flags: it has the operator as a
        local, and it waits."""
        known = self.codes.get(id(code))
        if known is not None:
            return known[1]
        path = code.co_filename
        is_inside = path.startswith(self.inside) or path.endswith("typing_extensions.py") or "/torchinductor_" in path
        is_one = path.endswith(("distributed_c10d.py", "_functional_collectives.py"))
        is_library = "-packages" + os.sep in path or path.startswith(STANDARD_LIBRARY) or self.is_entry(code)
        what = (is_one, is_one and code.co_name in WAITING) if is_inside else () if is_library else None
        if len(self.codes) >= CODES_MAX:
            self.codes.clear()
            self.sites.clear()
        self.codes[id(code)] = (code, what)
        return what

    @staticmethod
    def is_entry(code):
        """True for the script by which a package is started, and for what starts a spawned process."""
        folder = os.path.dirname(code.co_filename)
        return code.co_name == "<module>" and (code.co_filename == "<string>" or folder == os.path.dirname(sys.executable))

    def look(self, frame, wants_operator, wants_tag):
        """Returns the site, the operator or the tag, and whether the caller waits."""
        value, waits = None, False
        for _ in range(FRAMES_MAX):
            if frame is None:
                break
            what = self.what_is(frame.f_code)
            if what is None:
                return self.site_of(frame), value, waits
            if not what:
                return self.site_of(self.program_frame(frame) or frame), value, waits
            if what[0]:
                waits = waits or what[1]
                if value is None and (wants_operator or wants_tag):
                    names = frame.f_locals
                    value = names.get("tag") if wants_tag else names.get("op", names.get("reduceOp"))
            frame = frame.f_back
        return 0, value, waits

    def program_frame(self, frame):
        """The innermost of the program, or None. A loop of its own: a trainer's steps are dozens of frames deep."""
        codes = self.codes
        for _ in range(FRAMES_MAX):
            if frame is None:
                return None
            known = codes.get(id(frame.f_code))
            if (known[1] if known else self.what_is(frame.f_code)) is None:
                return frame
            frame = frame.f_back
        return None

    def site_of(self, frame):
        key = id(frame.f_code), frame.f_lasti
        site = self.sites.get(key)
        if site is None:
            self.what_is(frame.f_code)  # Keeps the code, and with it the key.
            site = self.sites[key] = self.ring.name_site(self.site_text(frame))
        return site

    def of_threads(self, threads, with_positions):
        """Where these other threads are. Drops their frames at once: a frame that has returned keeps its variables, tensors and
        groups among them, and one's own frame among them would be a cycle."""
        frames = sys._current_frames()
        frames.pop(threading.get_ident(), None)
        return {thread: self.place_of(frame, thread in with_positions) for thread, frame in frames.items()
                if thread in threads}

    def place_of(self, frame, with_positions):
        makes_call, positions = False, set()
        while frame is not None and (with_positions or not makes_call):
            what = self.what_is(frame.f_code)
            makes_call = makes_call or bool(what) and what[0]
            if with_positions:
                positions.add(position_of(frame))
            frame = frame.f_back
        return Place(makes_call, positions)


class Constants:
    """Maps torch's values to the ring's numbers."""

    def __init__(self, ring, c10d):
        torch = sys.modules["torch"]
        self.types = {value: number for name, number in ring.TYPES.items()
                      if isinstance(value := getattr(torch, name, None), torch.dtype)}
        for name, ours in TYPES.items():
            if hasattr(torch, name):
                self.types[getattr(torch, name)] = ring.TYPES[ours]
        self.reductions = {}
        for name in ("SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "PREMUL_SUM"):
            number = ring.REDUCTIONS[REDUCTIONS.get(name, name.lower())]
            self.reductions[name.lower()] = number  # Functional collectives.
            if hasattr(c10d.ReduceOp, name):
                self.reductions[getattr(c10d.ReduceOp, name)] = number
        self.by_name = {name: (ring.KINDS[kind], is_given, is_v, "reduce" in kind, kind in ("send", "recv"))
                        for name, (kind, is_given, is_v) in HOOKED.items()}
        names = getattr(sys.modules["torch._C._distributed_c10d"], "HookOpName", None)
        self.operations = {getattr(names, name): operation for name, operation in self.by_name.items()
                           if hasattr(names, name)}

    def reduction(self, operator):
        try:
            return self.reductions.get(operator, 0)
        except TypeError:  # Unhashable: an operator with a factor, which wraps the plain one.
            return self.reductions.get(getattr(operator, "op", None), 0)


class Looker:
    """The thread that detects completions. It ends before the interpreter, which would stop it at any point."""

    def __init__(self, recorder):
        self.recorder = recorder
        self.ending = threading.Event()
        recorder.ring.looked(recorder.ring.now())  # From now on the reader trusts completions only up to the last look.
        self.thread = threading.Thread(target=self.run, name="muster", daemon=True)
        self.thread.start()

    def run(self):
        look = self.recorder.guarded(self.recorder.look)
        while self.recorder.on and not self.ending.wait(LOOK_S):
            look()

    def end(self):
        self.ending.set()
        self.thread.join(1)


def say(text):
    with contextlib.suppress(Exception):
        print(f"muster: rank {os.environ.get('RANK')} {text}", file=sys.stderr, flush=True)


def place_of(error):
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "" if trace is None else f"{os.path.basename(trace.tb_frame.f_code.co_filename)}:{trace.tb_lineno} "


def ranks_text(ranks):
    """Returns "0-3,7", in group order."""
    runs = []
    for rank in ranks:
        if runs and runs[-1][1] == rank - 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def flattened(tensors):
    if not isinstance(tensors, (list, tuple)):
        return [tensors]
    return [one for inner in tensors for one in (inner if isinstance(inner, (list, tuple)) else [inner])]


def sequence_of(pg):
    """None if this group or this PyTorch does not count."""
    try:
        return pg._get_sequence_number_for_group()
    except Exception:
        return None


def future_of(work):
    try:
        return work.get_future()
    except Exception:  # This Work has none.
        return None


def has_hooks(pg):
    return hasattr(pg, "register_pre_hook") and os.environ.get("MUSTER_PYTHON_HOOK") != "wrap"


# ---- patches of torch


def wrap_forming(recorder, c10d):
    original = c10d._new_process_group_helper
    signature = inspect.signature(original)
    forming, failed = recorder.guarded(recorder.forming), recorder.guarded(recorder.form_failed)
    formed = recorder.guarded(recorder.formed)

    def facts(args, kwargs):
        given = signature.bind(*args, **kwargs).arguments
        return forming(given["group_size"], given["group_rank"], list(given["global_ranks_in_group"] or ()),
                       str(given.get("group_name")), given.get("group_desc"))

    facts = recorder.guarded(facts)

    @functools.wraps(original)
    def helper(*args, **kwargs):
        group = facts(args, kwargs)
        try:
            made = original(*args, **kwargs)
        except BaseException as error:
            failed(group, error)
            raise
        formed(group, made[0])
        return made

    c10d._new_process_group_helper = helper


def follow(c10d, name, then, first=lambda args, kwargs: None):
    """Calls first(args, kwargs) before every call of a function of torch, then(result) after it."""
    original = getattr(c10d, name, None)
    if original is None:
        return

    @functools.wraps(original)
    def function(*args, **kwargs):
        first(args, kwargs)
        result = original(*args, **kwargs)
        then(result)
        return result

    setattr(c10d, name, function)


CALLED = threading.local()


def called_here():
    """Groups with a wrapped method in progress on this thread: calls within it (super()'s, say) are not counted."""
    if not hasattr(CALLED, "groups"):
        CALLED.groups = []
    return CALLED.groups


def wrap_method(recorder, cls, name):
    original = getattr(cls, name, None)
    if original is None:
        return
    called, *given = WRAPPED[name]
    operation = recorder.constants.by_name[called]

    @functools.wraps(original)
    def method(self, *args, **kwargs):
        group = recorder.groups.get(id(self))
        if group is None or group.hook_id is None or group in called_here():
            return original(self, *args, **kwargs)
        call = group.enter(self, operation, given, args, kwargs)
        called_here().append(group)
        try:
            work = original(self, *args, **kwargs)
        except BaseException:
            group.refuse(self, call)
            raise
        finally:
            called_here().remove(group)
        group.leave(self, call, work)
        return work

    setattr(cls, name, method)


def wrap_own_methods(recorder, cls):
    """Wraps the methods of a process group class in Python, which override the wrapped ones of ProcessGroup."""
    for base in cls.__mro__[:cls.__mro__.index(recorder.c10d.ProcessGroup)]:
        if "is_wrapped_by_muster" not in vars(base):
            base.is_wrapped_by_muster = True
            for name in WRAPPED.keys() & vars(base).keys():
                wrap_method(recorder, base, name)


def wrap_uncounted(recorder, cls, name):
    """Wraps a method whose messages advance torch's count of the group by different numbers on its members."""
    original = getattr(cls, name, None)
    if original is None:
        return

    def count_before(group, pg):
        if group.sequence is not None:
            group.count_others(pg)

    def count_after(group, pg):
        if group.sequence is not None:
            group.sequence = sequence_of(pg)

    count_before, count_after = recorder.guarded(count_before), recorder.guarded(count_after)

    @functools.wraps(original)
    def method(self, *args, **kwargs):
        group = recorder.groups.get(id(self))
        if group is None or group.hook_id is None:
            return original(self, *args, **kwargs)
        count_before(group, self)
        group.within += 1
        try:
            return original(self, *args, **kwargs)
        finally:
            group.within -= 1
            count_after(group, self)

    setattr(cls, name, method)


def show_crashes():
    """Has crashes print their stack on stderr."""
    crashes = (getattr(signal, name) for name in ("SIGSEGV", "SIGFPE", "SIGABRT", "SIGBUS", "SIGILL"))
    # A library that handles one of the signals (a JVM, say) may mean to go on.
    if not faulthandler.is_enabled() and all(signal.getsignal(crash) is signal.SIG_DFL for crash in crashes):
        faulthandler.enable()


def follow_threads(departure):
    show = threading.excepthook

    def ended(args):
        with contextlib.suppress(Exception):
            departure["thread_ended"](args.exc_value, args.thread)
        show(args)

    threading.excepthook = ended


def start(c10d, departure):
    """`c10d`: torch.distributed.distributed_c10d, before any module has imported its functions."""
    if not hasattr(c10d, "_new_process_group_helper"):
        return  # A PyTorch without distributed.
    with contextlib.suppress(Exception):  # Not the main thread, or no stderr.
        show_crashes()
    recorder = Recorder(c10d, departure)
    wrap_forming(recorder, c10d)
    with contextlib.suppress(Exception):  # Another PyTorch: ends of calls are seen by polling.
        recorder.ring.follow_wait(c10d.Work, recorder.guarded(recorder.waited))
    with contextlib.suppress(Exception):  # A private function, of Python 3.9 and later.
        threading._register_atexit(recorder.guarded(departure["ending"]))
    follow_threads(departure)
    for name in ("split_group", "shrink_group"):
        follow(c10d, name, recorder.guarded(recorder.found))
    for name in ("destroy_process_group", "_abort_process_group"):
        follow(c10d, name, recorder.guarded(lambda _: recorder.close_destroyed()),
               recorder.guarded(recorder.leaving))
    if not has_hooks(c10d.ProcessGroup):
        for name in WRAPPED:
            wrap_method(recorder, c10d.ProcessGroup, name)
        wrap_uncounted(recorder, c10d.ProcessGroup, "monitored_barrier")


def spec_of(name, path, departure):
    """Returns the spec of torch's module from the other finders, with a loader that starts the recorder afterwards."""
    finders = [finder for finder in sys.meta_path if hasattr(finder, "find_spec")]
    spec = next(filter(None, (finder.find_spec(name, path, None) for finder in finders)), None)
    if spec is None or spec.loader is None:
        return spec
    execute = spec.loader.exec_module

    def exec_module(module):
        execute(module)
        try:
            start(module, departure)
        except Exception as error:
            say(f"records no calls, so a hang is not explained: {place_of(error)}{error}")

    spec.loader.exec_module = exec_module
    return spec
