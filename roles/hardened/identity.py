"""What a node proves itself with to whoever logs in: its host keys, and primes that are long enough."""

from collections.abc import Iterable, Mapping

from pyinfra.api.command import StringCommand
from pyinfra.api.facts import FactBase
from pyinfra.context import host
from pyinfra.operations import server

from roles.hardened import sshd

_RSA = "/etc/ssh/ssh_host_rsa_key"
_MODULI = "/etc/ssh/moduli"
# Source: ssh-audit's policies ask for both; RSA of 3072 bits is what ssh-keygen makes by itself.
_RSA_BITS = 4096
_PRIME_BITS = 3071


class Strength(FactBase[Mapping[str, int]]):
    """The bits of the RSA host key, none where there is no key, and how many primes are too short."""

    default = dict

    def command(self) -> StringCommand:
        """Ask ssh-keygen, and count."""
        key = f"echo rsa $(ssh-keygen -l -f {_RSA}.pub 2>/dev/null | cut -d' ' -f1)"
        primes = f"echo short $(awk '!/^#/ && $5 < {_PRIME_BITS}' {_MODULI} 2>/dev/null | wc -l)"
        return StringCommand(f"{key}; {primes}")

    def process(self, output: Iterable[str]) -> Mapping[str, int]:
        """Read a word and a number a line."""
        return {name: int(number or 0) for name, _, number in (line.partition(" ") for line in output)}


def prove() -> None:
    """Declare that the RSA key and the primes are long enough; the key of type ed25519 is never touched."""
    found = host.get_fact(Strength)
    if found.get("rsa", 0) < _RSA_BITS:
        server.shell(name="Host key of 4096 bits", commands=[_new_key()])
    if found.get("short", 0):
        shortened = f"awk '/^#/ || $5 >= {_PRIME_BITS}' {_MODULI} > {_MODULI}.new"
        server.shell(name="No short primes", commands=[f"{shortened} && mv {_MODULI}.new {_MODULI}"])


def _new_key() -> str:
    """Return what makes a key, puts it in the old one's place, and has a running sshd read it."""
    new = f"{_RSA}.new"
    return (
        f"rm -f {new} {new}.pub && ssh-keygen -q -t rsa -b {_RSA_BITS} -N '' -C '' -f {new}"
        f" && mv {new}.pub {_RSA}.pub && mv {new} {_RSA}"
        f" && {sshd.RELOAD}"
    )
