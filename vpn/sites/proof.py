"""By what the two ends of a tunnel know each other: a key that both hold, or certificates of one authority.

Neither is shown when a value is printed.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from bedplate.errors import BedplateError
from bedplate.tunnel_key import SHORTEST_KEY


@dataclass(frozen=True, slots=True)
class SharedKey:
    """A key that both ends hold."""

    secret: bytes = field(repr=False)

    def __post_init__(self) -> None:
        """Refuse what is no key; ValueError."""
        if len(self.secret) < SHORTEST_KEY:
            raise ValueError(f"a shared key of fewer than {SHORTEST_KEY} bytes keeps nobody out")

    @property
    def text(self) -> str:
        """The key as strongSwan's settings take it: in hexadecimal, so that no byte of it reaches their parser."""
        return f"0x{self.secret.hex()}"


@dataclass(frozen=True, slots=True)
class Papers:
    """A gateway's certificate and its key, its authorities' certificates and revocation lists; each in PEM.

    An authority under a root needs the root's list too: each certificate of the chain is looked up.
    """

    certificate: str
    key: str = field(repr=False)
    authorities: tuple[str, ...]
    revoked: tuple[str, ...]


Proof = SharedKey | Papers
# By what the gateway of one place, named first, and that of another know each other; raises BedplateError where what
# is kept for them does not serve.
PlaceProofs = Callable[[str, str], Proof]


def given(proof: Proof | BedplateError) -> Proof:
    """Return a proof; raises why there is none."""
    if isinstance(proof, BedplateError):
        raise proof
    return proof
