"""The keys that two gateways of the fleet share, kept where its private keys lie: made here, and sent nowhere.

Each is a random number of 384 bits, drawn and kept as a private key is, so that what locks those locks it too.
"""

from collections.abc import Iterable, Mapping

from bedplate.errors import BedplateError, InputError
from bedplate.hold import held
from vpn.certificate import key_text, new_key
from vpn.passphrase import Passphrase, lock_of, unlocked
from vpn.pki import Pki, opened_issuer
from vpn.sites.proof import SharedKey

# Two gateways, by their regions or sites.
Pair = frozenset[str]
_BYTES = 48


def kept_keys(pki: Pki, pairs: Iterable[Pair], passphrase: Passphrase) -> Mapping[Pair, SharedKey | BedplateError]:
    """Return the key of each pair that has one, or why it serves nobody: it does not open, or is another pair's too."""
    texts = {pair: pki.store.read(name_of(pair)) for pair in pairs}
    found = {pair: _shared(pair, text, passphrase) for pair, text in texts.items() if text is not None}
    return {**found, **_alike(found)}


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


def _alike(found: Mapping[Pair, SharedKey | BedplateError]) -> Mapping[Pair, BedplateError]:
    """Return why pairs of one key have none: whoever reads it at one gateway could stand for another."""
    holders: dict[bytes, list[Pair]] = {}
    for pair, key in found.items():
        if isinstance(key, SharedKey):
            holders.setdefault(key.secret, []).append(pair)
    shared = [each for each in holders.values() if len(each) > 1]
    return {pair: _one_key(each) for each in shared for pair in each}


def _one_key(pairs: Iterable[Pair]) -> InputError:
    told = " and ".join(sorted(map(name_of, pairs)))
    return InputError(f"{told} are one key", fix="`bedplate vpn tunnels --new-keys` makes each its own")


def _shared(pair: Pair, text: str, passphrase: Passphrase) -> SharedKey | BedplateError:
    try:
        key = unlocked(text, lock_of(text, passphrase), f"the key between {' and '.join(sorted(pair))}")
    except BedplateError as error:
        return error
    return SharedKey(key.private_numbers().private_value.to_bytes(_BYTES, "big"))
