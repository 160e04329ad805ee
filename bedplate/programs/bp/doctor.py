"""`bp doctor`: what this laptop needs on its way to the hub; each check names the trouble and its fix."""

import platform
import re
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from .hub import ARCHIVE, BpError, Hub

_OLDEST_SSH = (8, 5)
# Seconds: https and tools for AWS accept a few minutes.
_LARGEST_DIFFERENCE = 60


def checks(hub: Hub) -> Iterator[Mapping[str, Any]]:
    """Yield each check with its result, in order; `ok` is None after a failure of one that it needs."""
    failed: set[str] = set()
    for name, (check, needs) in _CHECKS.items():
        ok, text, fix = None, "not checked", ""
        if not needs & failed:
            try:
                ok, text = True, check(hub)
            except BpError as error:
                ok, text, fix = False, str(error), error.fix
        if not ok:
            failed.add(name)
        yield {"check": name, "ok": ok, "text": text, "fix": fix}


def check_lines(results: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a line for each check, and its fix."""
    for result in results:
        yield f"{_MARKS[result['ok']]:4}  {result['check']:7}  {result['text']}"
        if result["fix"]:
            yield f"  fix  {result['fix']}"


def _version(hub: Hub) -> str:
    return f"bp {hub.settings.version} of {hub.settings.fleet}, Python {platform.python_version()}"


def _ssh(_: Hub) -> str:
    command = ("ssh", "-V")
    try:
        done = subprocess.run(command, capture_output=True, timeout=10, check=False)  # noqa: S603  it only tells
        text = done.stderr.decode(errors="replace").strip()
    except (OSError, subprocess.TimeoutExpired):
        text = "ssh does not start"
    version = re.search(r"OpenSSH_(?:for_Windows_)?(\d+)\.(\d+)", text)
    if version is None or (int(version[1]), int(version[2])) < _OLDEST_SSH:
        raise BpError(f"no OpenSSH 8.5 or newer: {text}", "install a newer OpenSSH client")
    return version[0]


def _vpn(hub: Hub) -> str:
    with suppress(ConnectionError):
        hub.reach().close()
    return f"{hub.settings.address} answers"


def _certificate(hub: Hub) -> str:
    try:
        hub.connect().close()
    except OSError as error:
        raise BpError(f"the hub ends connections: {error}", "try again, or ask your operator") from None
    return f"{hub.settings.host} has the certificate of the archive"


def _key(hub: Hub) -> str:
    hub.new_token()
    return "the hub accepts your SSH key, and gave a token"


def _token(hub: Hub) -> str:
    name = hub.call("/bedplate/whoami").get("name")
    if name != hub.settings.person:
        raise BpError(f"the token is that of {name}, the archive that of {hub.settings.person}", ARCHIVE)
    return f"you are {name}"


def _clock(hub: Hub) -> str:
    difference = time.time() - hub.now
    text = f"{abs(difference):.0f} s {'ahead of' if difference > 0 else 'behind'} the hub's clock"
    if abs(difference) > _LARGEST_DIFFERENCE:
        raise BpError(
            f"the clock of this laptop is {text}", "set it by the network; if it is right, tell your operator"
        )
    return text


_MARKS = {True: "ok", False: "FAIL", None: "-"}
# Each check, and what must be right before it.
_CHECKS: Mapping[str, tuple[Callable[[Hub], str], set[str]]] = {
    "version": (_version, set()),
    "ssh": (_ssh, set()),
    "vpn": (_vpn, set()),
    "hub": (_certificate, {"vpn"}),
    "key": (_key, {"ssh", "vpn"}),
    "token": (_token, {"hub", "key"}),
    "clock": (_clock, {"token"}),
}
