"""What one gateway or laptop needs to prove who it is: certificate, private key, and its tls-crypt-v2 key."""

import re
from dataclasses import dataclass

from bedplate.errors import InputError

_BLOCK = re.compile(r"-----BEGIN ([A-Za-z0-9 -]+)-----\n.*?-----END \1-----\n", re.DOTALL)


@dataclass(frozen=True, slots=True, repr=False)
class Bundle:
    """Three PEM texts; gateways share one tls-crypt-v2 key, and ends of sites' tunnels have none.

    Has no repr: it would be a secret in whatever is printed.
    """

    certificate: str
    key: str
    tls_crypt: str = ""

    @property
    def text(self) -> str:
        """All of it as one text, the form in which it is kept: the parts can never be of different certificates."""
        return self.certificate + self.key + self.tls_crypt


def parse_bundle(text: str) -> Bundle:
    """Return the bundle of a text; InputError for anything else, without a word of what it holds."""
    blocks = {found[1]: found[0] for found in _BLOCK.finditer(text)}
    if "".join(blocks.values()) != text:
        raise InputError(
            "it is no certificate with its key in PEM",
            fix="renew a laptop's certificate; a gateway's file is taken away, then `bedplate vpn sync` makes another",
        )
    keys = [block for kind, block in blocks.items() if kind.endswith("PRIVATE KEY")]
    hidden = [block for kind, block in blocks.items() if kind.startswith("OpenVPN")]
    if "CERTIFICATE" not in blocks or len(keys) != 1:
        raise InputError(
            "it is no certificate with its key in PEM",
            fix="renew a laptop's certificate; a gateway's file is taken away, then `bedplate vpn sync` makes another",
        )
    return Bundle(blocks["CERTIFICATE"], keys[0], "".join(hidden))
