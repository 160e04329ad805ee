"""Archives beside the distribution's: one key each, and only what is pinned."""

from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import ClassVar

import pytest

from roles.base import NO_CHANGES, Changes, Role
from roles.repository import Pin, Repository, add
from tests.support.recorded import Recorded
from tests.support.recorder import Recorder

ONE = (Path(__file__).parents[1] / "data" / "keys" / "one.asc").read_text()
SAMPLE = Repository(
    name="kubernetes",
    uri="https://packages.lab.example/core",
    suites=("/",),
    components=(),
    key=ONE,
    key_sum=sha256(ONE.encode()).hexdigest(),
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


def test_a_repository_with_another_key_is_refused() -> None:
    """A key file that was changed, or to which a key was added, never reaches a node."""
    with pytest.raises(ValueError, match="kubernetes: the key has the SHA-256"):
        replace(SAMPLE, key=ONE + ONE)


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
