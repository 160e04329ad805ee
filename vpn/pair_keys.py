"""The keys that two gateways of the fleet share, kept where its private keys lie: made here, and sent nowhere.

Each is a random number of 384 bits, drawn and kept as a private key is, so that what locks those locks it too.
"""

from collections.abc import Iterable, Mapping

from bedplate.errors import InputError
from bedplate.hold import held
from vpn.certificate import key_text, new_key
from vpn.passphrase import Passphrase, lock_of, unlocked
from vpn.pki import Pki, opened_issuer
from vpn.sites.proof import SharedKey

# Two gateways, by their regions or sites.
Pair = frozenset[str]
_BYTES = 48


def kept_keys(pki: Pki, pairs: Iterable[Pair], passphrase: Passphrase) -> Mapping[Pair, SharedKey]:
    """Return the key of each pair that has one; InputError where one does not open, or is another pair's too."""
    texts = {pair: pki.store.read(name_of(pair)) for pair in pairs}
    found = {pair: _shared(pair, text, passphrase) for pair, text in texts.items() if text is not None}
    _check_apart(found)
    return found


def make_keys(pki: Pki, pairs: Iterable[Pair], passphrase: Passphrase, *, anew: bool = False) -> tuple[Pair, ...]:
    """Make a key for each pair that has none, or for all of them `anew`, and return whose were made.

    Raises HeldError while somebody else signs, and InputError where the authority's key is not here.
    """
    with held(pki.folder.journal):
        wanted = tuple(pair for pair in pairs if anew or pki.store.read(name_of(pair)) is None)
        if wanted:
            _, lock = opened_issuer(pki, passphrase)
            pki.store.write({name_of(pair): key_text(new_key(), lock) for pair in wanted})
        return wanted


def name_of(pair: Pair) -> str:
    """Return the name under which a pair's key is kept; it has more dots than a laptop's and begins as no gateway's."""
    return f"tunnel.{'.'.join(sorted(pair))}"


def _check_apart(found: Mapping[Pair, SharedKey]) -> None:
    """Raise InputError for two pairs of one key: whoever reads it at one gateway could stand for another."""
    holders: dict[bytes, Pair] = {}
    for pair, key in found.items():
        if (other := holders.setdefault(key.secret, pair)) != pair:
            raise InputError(
                f"{name_of(other)} and {name_of(pair)} are one key",
                fix="`bedplate vpn tunnels --new-keys` makes each its own",
            )


def _shared(pair: Pair, text: str, passphrase: Passphrase) -> SharedKey:
    key = unlocked(text, lock_of(text, passphrase), f"the key between {' and '.join(sorted(pair))}")
    return SharedKey(key.private_numbers().private_value.to_bytes(_BYTES, "big"))
