"""Runs a program in a sandbox that forbids netlink, as some container runtimes do: without_netlink.py PROGRAM ARGUMENT..."""
import ctypes
import os
import platform
import struct
import sys

SOCKET = {"x86_64": 41, "aarch64": 198}[platform.machine()]
AF_NETLINK = 16
EAFNOSUPPORT = 97
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
LOAD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, ERRNO = 0x7fff0000, 0x00050000
NUMBER, FIRST_ARGUMENT = 0, 16  # Offsets in struct seccomp_data.

FILTER = [(LOAD, 0, 0, NUMBER), (JUMP_IF_EQUAL, 0, 3, SOCKET), (LOAD, 0, 0, FIRST_ARGUMENT),
          (JUMP_IF_EQUAL, 0, 1, AF_NETLINK), (RETURN, 0, 0, ERRNO | EAFNOSUPPORT), (RETURN, 0, 0, ALLOW)]


class Program(ctypes.Structure):
    _fields_ = [("len", ctypes.c_ushort), ("filter", ctypes.c_char_p)]


def main():
    code = b"".join(struct.pack("=HBBI", *one) for one in FILTER)
    libc = ctypes.CDLL(None, use_errno=True)
    program = Program(len(FILTER), code)
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program)):
        sys.exit(f"cannot install the filter: {os.strerror(ctypes.get_errno())}")
    os.execvp(sys.argv[1], sys.argv[1:])


if __name__ == "__main__":
    main()
