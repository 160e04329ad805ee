"""Archives beside the distribution's: one key each, and only what is pinned."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import pytest

from roles.base import NO_CHANGES, Changes, Role
from roles.openpgp import fingerprints
from roles.repository import Pin, Repository, add
from tests.support.recorded import Recorded
from tests.support.recorder import Recorder

KEYS = Path(__file__).parents[1] / "data" / "keys"
ONE, TWO = ((KEYS / f"{name}.asc").read_text() for name in ("one", "two"))
# As gpg told them when it made the keys, of Ed25519 and of RSA with a subkey.
PRINT_OF_ONE = "1AF70BED708390DDD70A6DF367157DB663A3BC3E"
PRINT_OF_TWO = "DFD1D5BDEA029705A60861BD0E0883AB84388B5F"
SAMPLE = Repository(
    name="kubernetes",
    uri="https://packages.lab.example/core",
    suites=("/",),
    components=(),
    key=ONE,
    fingerprint=PRINT_OF_ONE,
    pins=(Pin(("kubelet", "kubectl"), "1.33.*"),),
)


@dataclass(frozen=True)
class Adding(Role):
    """A role that needs another archive."""

    name: ClassVar[str] = "adding"

    def install(self) -> None:
        """Add it."""
        add((SAMPLE,))

    def configure(self) -> Changes:
        """Write nothing."""
        return NO_CHANGES

    def activate(self, changes: Changes) -> None:
        """Start nothing."""


@pytest.mark.parametrize(("key", "told"), [(ONE, PRINT_OF_ONE), (TWO, PRINT_OF_TWO)], ids=["ed25519", "rsa"])
def test_fingerprints_are_those_that_gpg_tells(key: str, told: str) -> None:
    """The primary key counts, its subkeys do not."""
    assert fingerprints(key) == (told,)


def test_every_key_of_a_file_is_told() -> None:
    """A second key that somebody put behind the first does not hide there."""
    assert fingerprints(ONE + TWO) == (PRINT_OF_ONE, PRINT_OF_TWO)


@pytest.mark.parametrize(
    "text",
    ["", "nothing", ONE.replace("PUBLIC", "PRIVATE"), ONE.replace("mDMEaw", "mDMFaw"), ONE.replace("TqOlyd60", "")],
    ids=["empty", "no key", "secret", "another version", "cut"],
)
def test_what_is_no_key_is_refused(text: str) -> None:
    """A key that cannot be read whole has no fingerprint."""
    with pytest.raises(ValueError, match="key"):
        fingerprints(text)


@pytest.mark.parametrize("key", [TWO, ONE + TWO], ids=["another", "one more"])
def test_a_repository_with_another_key_is_refused(key: str) -> None:
    """Whoever exchanges the key, or adds one, is found before anything reaches a node."""
    with pytest.raises(ValueError, match=PRINT_OF_TWO):
        replace(SAMPLE, key=key)


def test_a_fingerprint_may_be_written_as_people_write_it() -> None:
    """Blanks and small letters are the same fingerprint."""
    assert replace(SAMPLE, fingerprint=f"{PRINT_OF_ONE[:20]} {PRINT_OF_ONE[20:]}".lower()).key == ONE


def test_the_source_names_its_own_key() -> None:
    """The key is good for this archive alone."""
    key, source, _ = SAMPLE.files

    assert key.path == "/etc/apt/keyrings/kubernetes.asc"
    assert source.text == (
        "Types: deb\nURIs: https://packages.lab.example/core\nSuites: /\nSigned-By: /etc/apt/keyrings/kubernetes.asc\n"
    )


def test_only_what_is_pinned_comes_from_it() -> None:
    """Named packages in the named version; all else of that archive never."""
    _, _, pins = SAMPLE.files

    assert pins.text.split("\n\n") == [
        "Package: kubelet kubectl\nPin: version 1.33.*\nPin-Priority: 990",
        'Package: *\nPin: origin "packages.lab.example"\nPin-Priority: -1',
        "",
    ]


def test_lists_are_fetched_when_a_repository_is_new(system: Recorded) -> None:
    """What is to be installed from it next is known, and a second run fetches nothing."""
    recorder = Recorder(system)

    first = recorder.play(Adding())
    second = recorder.play(Adding())

    assert first.names[-1] == "Lists of other archives"
    assert first.commands[-1] == "apt-get update"
    assert second.changes == []
