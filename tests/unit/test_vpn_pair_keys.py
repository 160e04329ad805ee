"""The keys that two gateways share: made once, locked as all private keys are, renewed when asked."""

from pathlib import Path

import pytest

from bedplate.errors import HeldError, InputError
from bedplate.hold import held
from tests.support.authority import begun_in, pki_in, unasked
from vpn.pair_keys import kept_keys, make_keys, name_of
from vpn.passphrase import is_locked
from vpn.sites.proof import SharedKey
from vpn.subject import laptop

ONE, OTHER = frozenset({"us-west-2", "eu-north-1"}), frozenset({"us-west-2", "us-east-1"})
THIRD = frozenset({"eu-north-1", "us-east-1"})
LOCK = b"a passphrase of some length"


def test_a_key_is_made_once(tmp_path: Path) -> None:
    """The second run makes the key of a new pair alone; no two pairs share one."""
    pki = pki_in(begun_in(tmp_path))

    assert make_keys(pki, [ONE], unasked) == (ONE,)
    first = kept_keys(pki, [ONE, OTHER], unasked)
    assert make_keys(pki, [ONE, OTHER], unasked) == (OTHER,)

    both = kept_keys(pki, [ONE, OTHER], unasked)
    assert first == {ONE: both[ONE]}
    assert both[ONE] != both[OTHER]
    assert {len(each.secret) for each in both.values() if isinstance(each, SharedKey)} == {48}


def test_keys_are_renewed_when_asked(tmp_path: Path) -> None:
    """All that are named, and no key is ever another's."""
    pki = pki_in(begun_in(tmp_path))
    make_keys(pki, [ONE, OTHER], unasked)
    before = kept_keys(pki, [ONE, OTHER], unasked)

    assert set(make_keys(pki, [ONE], unasked, anew=True)) == {ONE}

    after = kept_keys(pki, [ONE, OTHER], unasked)
    assert after[ONE] != before[ONE]
    assert after[OTHER] == before[OTHER]


def test_a_key_is_locked_where_the_authoritys_is(tmp_path: Path) -> None:
    """By the same passphrase; without it nothing is read or made."""
    pki = pki_in(begun_in(tmp_path, lock=LOCK))

    make_keys(pki, [ONE], lambda: LOCK)

    text = pki.store.read(name_of(ONE))
    assert text is not None
    assert is_locked(text)
    assert set(kept_keys(pki, [ONE], lambda: LOCK)) == {ONE}
    (refused,) = kept_keys(pki, [ONE], lambda: b"another passphrase").values()
    assert isinstance(refused, InputError)
    assert refused.what == "the passphrase does not open the key between eu-north-1 and us-west-2"
    with pytest.raises(InputError, match="the passphrase does not open"):
        make_keys(pki, [OTHER], lambda: b"another passphrase")


def test_one_key_for_two_pairs_is_refused(tmp_path: Path) -> None:
    """Both are named, a third has its own; new keys are the way out, and nothing of the key is told."""
    pki = pki_in(begun_in(tmp_path))
    make_keys(pki, [ONE, OTHER, THIRD], unasked)
    text = pki.store.read(name_of(ONE)) or ""
    pki.store.write({name_of(OTHER): text})

    found = kept_keys(pki, [ONE, OTHER, THIRD], unasked)

    told = "tunnel.eu-north-1.us-west-2 and tunnel.us-east-1.us-west-2 are one key"
    assert [str(found[pair]) for pair in (ONE, OTHER)] == [told, told]
    assert isinstance(found[THIRD], SharedKey)
    assert make_keys(pki, [ONE, OTHER], unasked, anew=True) == (ONE, OTHER)
    assert all(isinstance(each, SharedKey) for each in kept_keys(pki, [ONE, OTHER], unasked).values())


def test_a_damaged_key_costs_no_other_pair_its_own(tmp_path: Path) -> None:
    """It is named by its two gateways, and not shown."""
    pki = pki_in(begun_in(tmp_path))
    make_keys(pki, [ONE, OTHER], unasked)
    pki.store.write({name_of(ONE): "half of a\n"})

    found = kept_keys(pki, [ONE, OTHER], unasked)

    assert str(found[ONE]) == "nothing can be read as the key between eu-north-1 and us-west-2"
    assert isinstance(found[OTHER], SharedKey)


def test_two_who_make_keys_take_turns(tmp_path: Path) -> None:
    """While somebody else signs nothing is made: two keys for one pair would be none."""
    pki = pki_in(begun_in(tmp_path))

    with held(pki.folder.journal), pytest.raises(HeldError):
        make_keys(pki, [ONE], unasked)


def test_a_key_has_the_name_of_both_its_gateways() -> None:
    """In one order, whoever asks; and no laptop or gateway can be called so."""
    assert name_of(ONE) == "tunnel.eu-north-1.us-west-2"
    for user, device in (("tunnel", "eu-north-1.us-west-2"), ("tunnel.eu-north-1", "us-west-2")):
        with pytest.raises(InputError):
            laptop(user, device)
