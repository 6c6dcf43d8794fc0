"""Runs a command in a user namespace in which the kernel starts programs for aarch64 by qemu (binfmt_misc, Linux 6.7), and
which maps all users of this machine, so root's commands may chroot and mount. This machine itself is left as it was.

    on_qemu.py QEMU COMMAND...

QEMU is a folder with Debian's qemu-user-static, unpacked.
"""
import ctypes
import os
import sys

NEW_MOUNTS, NEW_USERS = 0x20000, 0x10000000  # sched.h
BINFMT = "/proc/sys/fs/binfmt_misc"


def enter_user_namespace():
    """Makes root of this machine root of a namespace of its own. Only a process outside may map more than one user."""
    libc = ctypes.CDLL(None, use_errno=True)
    entered = os.pipe()
    child = os.getpid()
    if (outside := os.fork()) == 0:
        os.close(entered[1])
        if not os.read(entered[0], 1):
            os._exit(1)
        for kind in ("uid", "gid"):
            with open(f"/proc/{child}/{kind}_map", "w", encoding="ascii") as f:
                f.write("0 0 65536\n")
        os._exit(0)
    if libc.unshare(NEW_USERS | NEW_MOUNTS) != 0:
        sys.exit(f"on_qemu.py: cannot make a user namespace: {os.strerror(ctypes.get_errno())}")
    os.write(entered[1], b".")
    if os.waitpid(outside, 0)[1] != 0:
        sys.exit("on_qemu.py: cannot map the users: is this root?")
    if libc.mount(b"binfmt_misc", BINFMT.encode(), b"binfmt_misc", 0, None) != 0:
        sys.exit(f"on_qemu.py: cannot mount {BINFMT}: {os.strerror(ctypes.get_errno())} (in a user namespace it needs Linux 6.7)")


def start_aarch64_by(qemu):
    """Registers it as its package would. The kernel opens the file now, so that a chroot needs no copy."""
    with open(f"{qemu}/usr/lib/binfmt.d/qemu-aarch64.conf", "rb") as f:
        entry = f.read().strip().replace(b":/usr/", f":{qemu}/usr/".encode())
    with open(f"{BINFMT}/register", "wb", buffering=0) as f:
        f.write(entry)


if __name__ == "__main__":
    enter_user_namespace()
    start_aarch64_by(os.path.abspath(sys.argv[1]))
    os.execvp(sys.argv[2], sys.argv[2:])
