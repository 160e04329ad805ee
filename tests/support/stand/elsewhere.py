"""Sockets of this process that listen in another network namespace: for what a test itself answers."""

import ctypes
import os
from concurrent.futures import ThreadPoolExecutor
from ipaddress import IPv4Address
from pathlib import Path
from socket import SO_REUSEADDR, SOL_SOCKET, socket

from tests.support.netlab import LabHost

_CLONE_NEWNET = 0x40000000


def bound(host: LabHost, address: IPv4Address | str, port: int) -> socket:
    """Return a socket that is bound at an address which the host has. Raises OSError."""
    # A namespace is a thread's own: this one ends with it.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(_bound, Path("/run/netns", host.namespace), (str(address), port)).result()


def _bound(namespace: Path, at: tuple[str, int]) -> socket:
    libc = ctypes.CDLL(None, use_errno=True)
    with namespace.open("rb") as there:
        if libc.setns(there.fileno(), _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(namespace))
    made = socket()
    made.setsockopt(SOL_SOCKET, SO_REUSEADDR, 1)
    made.bind(at)
    return made
