"""Run a program for which prctl(PR_SET_IO_FLUSHER) succeeds without effect: `python -P io_flusher.py PROGRAM ...`.

nfs-ganesha from version 5 on ends if this call fails, and it needs CAP_SYS_RESOURCE, which some containers lack. The
call protects a server of local clients when memory is low; no test depends on that. A seccomp filter answers it.
"""

import ctypes
import os
import platform
import struct
import sys
from pathlib import Path

_CAP_SYS_RESOURCE = 24
_PR_SET_SECCOMP, _PR_SET_IO_FLUSHER, _SECCOMP_MODE_FILTER = 22, 57, 2
# The architecture in seccomp_data, and the number of prctl.
_PRCTL = {"x86_64": (0xC000003E, 157), "aarch64": (0xC00000B7, 167)}
# Operations of BPF: load a word of seccomp_data, compare it, return. Source: seccomp(2), bpf_common.h.
_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16
_ALLOW, _SUCCEED = 0x7FFF0000, 0x00050000  # SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO with 0


def is_needed() -> bool:
    """Return whether this process lacks CAP_SYS_RESOURCE."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("CapEff:"))
    return not int(line.split()[1], 16) >> _CAP_SYS_RESOURCE & 1


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def _filter() -> bytes:
    architecture, number = _PRCTL[platform.machine()]
    comparisons = ((_ARCHITECTURE, architecture), (_NUMBER, number), (_FIRST_ARGUMENT, _PR_SET_IO_FLUSHER))
    code: list[tuple[int, int, int, int]] = []
    for index, (offset, value) in enumerate(comparisons):
        to_allow = 2 * (len(comparisons) - index) - 1
        code += [(_LOAD, 0, 0, offset), (_JUMP_IF_EQUAL, 0, to_allow, value)]
    code += [(_RETURN, 0, 0, _SUCCEED), (_RETURN, 0, 0, _ALLOW)]
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in code)


def main() -> None:
    """Install the filter, which child processes inherit, and execute the program."""
    instructions = _filter()
    program = _Program(len(instructions) // 8, instructions)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    os.execvp(sys.argv[1], sys.argv[1:])  # noqa: S606  the program of the command line


if __name__ == "__main__":
    main()
