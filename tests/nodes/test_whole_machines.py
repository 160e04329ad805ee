"""Whole machines: one of each kind of the examples, configured with all its roles, and used as its users do.

docs/testing.md lists the services, and what stands in for what cannot run here. On each push one kind runs.
"""

from pathlib import Path
from typing import Any

import pytest

pytest.register_assert_rewrite("tests.testlab.machines.services")

from tests.testlab.machines.layers import RELEASE  # noqa: E402
from tests.testlab.machines.services import failures_of, undetected_defects  # noqa: E402  after the line above
from tests.testlab.machines.whole import status, whole_machine  # noqa: E402
from tests.testlab.machines.whole_kinds import KINDS, Kind  # noqa: E402
from tests.testlab.run import need_program, need_root  # noqa: E402

_ON_PUSH = "file-server"
# nfs-ganesha of Debian 13 exports no tmpfs; the other kinds have not passed there yet.
_ON_DEBIAN_13 = frozenset({"laptop-gateway", "site-gateway"})


def _cases(*, nightly: bool) -> list[Any]:
    """Return the kinds as cases; with `nightly` all of them, else that of a push."""
    names = {kind.name for kind in KINDS} if nightly else {_ON_PUSH}
    if RELEASE != "bookworm":
        names = set(_ON_DEBIAN_13)
    return [pytest.param(kind, id=kind.name) for kind in KINDS if kind.name in names]


@pytest.fixture(autouse=True)
def _requirements() -> None:
    need_root()
    for program in ("systemd-nspawn", "mmdebstrap", "slirp4netns", "nft", "ssh", "dnsmasq", "openssl"):
        need_program(program)


@pytest.mark.parametrize("kind", _cases(nightly=False))
def test_a_configured_machine_serves_its_users(kind: Kind, tmp_path: Path) -> None:
    """Each service of a machine with all its roles works as its users use it, through its packet filter."""
    with whole_machine(kind, tmp_path) as machine:
        # Its own audit, without another login.
        machine.audited = lambda: status(machine.node, "audit")
        assert failures_of(machine, "configuration again") == {}


@pytest.mark.nightly
@pytest.mark.parametrize("kind", _cases(nightly=True))
def test_a_machine_serves_its_users_after_a_reboot(kind: Kind, tmp_path: Path) -> None:
    """Each service works before and after a reboot, and each seeded defect is seen as a service that does not."""
    with whole_machine(kind, tmp_path) as machine:
        failures = {"first": failures_of(machine)}
        machine.restart()
        failures["after a reboot"] = failures_of(machine)
        undetected = undetected_defects(machine)

    assert failures == {"first": {}, "after a reboot": {}}
    assert undetected == []
