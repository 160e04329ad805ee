"""Tests stay on this machine: what would connect elsewhere fails, here and in the processes that tests start."""

import ipaddress
import os
import socket
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any

import pytest

# Nothing listens on the port of `discard`, so whoever honours these variables is refused at once.
_NOWHERE = "http://127.0.0.1:9"
_HERE = "localhost,127.0.0.1,::1"


def shut_off(environment: MutableMapping[str, str]) -> None:
    """Take away whatever leads to a real account, and put proxies that lead nowhere."""
    for name in [name for name in environment if name.startswith("AWS_")]:
        del environment[name]
    files = dict.fromkeys(("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"), os.devnull)
    proxies = {word: _NOWHERE for name in ("HTTP_PROXY", "HTTPS_PROXY") for word in (name, name.lower())}
    environment.update({**files, **proxies, "AWS_EC2_METADATA_DISABLED": "true", "NO_PROXY": _HERE, "no_proxy": _HERE})


@contextmanager
def kept_in() -> Iterator[None]:
    """Fail the test that would connect to another machine, or ask for its address, from this process."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("connect", "connect_ex"):
            patch.setattr(socket.socket, name, _guarded(getattr(socket.socket, name)))
        patch.setattr(socket, "getaddrinfo", _guarded_lookup(socket.getaddrinfo))
        yield


def _guarded(connect: Any) -> Any:  # noqa: ANN401  the socket's own signatures
    def guarded(self: socket.socket, address: Any) -> Any:  # noqa: ANN401
        if self.family in (socket.AF_INET, socket.AF_INET6):
            _check_is_here(address[0])
        return connect(self, address)

    return guarded


def _guarded_lookup(look: Any) -> Any:  # noqa: ANN401
    def guarded(host: Any, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401
        _check_is_here(host)
        return look(host, *arguments, **named)

    return guarded


def _check_is_here(host: object) -> None:
    name = host.decode() if isinstance(host, bytes) else str(host or "localhost")
    if name != "localhost" and not _is_loopback(name):
        pytest.fail(f"a test would have reached {name}")


def _is_loopback(name: str) -> bool:
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified
