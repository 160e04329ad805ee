"""What tests on booted machines share: the programs they need, and a stand of nodes for each module that asks."""

from collections.abc import Iterator

import pytest

from tests.support.needs import need_program, need_root
from tests.support.stand.stand import Stand


@pytest.fixture(scope="module")
def stand() -> Iterator[Stand]:
    """Give a stand without nodes yet; what is booted in it stands until the module ends."""
    need_root()
    for program in ("systemd-nspawn", "debootstrap", "slirp4netns", "nft", "ssh"):
        need_program(program)
    with Stand() as opened:
        yield opened
