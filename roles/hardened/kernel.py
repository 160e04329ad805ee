"""What the kernel of a node refuses: settings, and modules that nobody needs."""

from collections.abc import Iterator

from bedplate.plan.node import Duty
from roles.hardened.filter import FORWARDERS, HOSTS
from roles.shipped import Shipped
from roles.sysctl import hold
from roles.template import rendered, text_of

# After 99-protect-links.conf of both distributions, which loosens one of these at each boot.
SYSCTL = "/etc/sysctl.d/99-zz-bedplate-hardened.conf"


def settings(duties: frozenset[Duty], *, fabric: bool) -> str:
    """Return the settings as sysctl reads them.

    Answers may leave by another interface than questions came in by where packets are forwarded, and where a machine
    has several interfaces on one network, as those with a fabric have: the filter of reverse paths is loose there.
    Where people run containers, forwarding is left as it is: off, until Docker or Podman turns it on.
    """
    forwards = bool(duties & FORWARDERS)
    hosts = bool(duties & HOSTS)
    return rendered("hardened/sysctl.conf.j2", forwards=forwards, hosts=hosts, loose=forwards or fabric)


def shipped(text: str) -> tuple[Shipped, ...]:
    """Return the files that the kernel's loaders read at boot."""
    return (
        Shipped("Settings of the kernel against strangers", SYSCTL, text),
        Shipped("Modules refused", "/etc/modprobe.d/bedplate-hardened.conf", text_of("hardened/modprobe.conf")),
        Shipped("No core dumps", "/etc/systemd/coredump.conf.d/bedplate.conf", text_of("hardened/coredump.conf")),
    )


def values(text: str) -> Iterator[tuple[str, str]]:
    """Yield each setting of a text with its value."""
    for line in text.splitlines():
        key, equals, value = line.partition(" = ")
        if equals and not key.startswith("#"):
            yield key, value


def enforce(text: str) -> None:
    """Declare that the running kernel has them too."""
    hold("Kernel refuses strangers", SYSCTL, dict(values(text)))
