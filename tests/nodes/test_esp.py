"""Tunnels whose kernels encrypt, by ESP and XFRM interfaces: what every real gateway runs.

This machine's kernel has neither: all of it runs on one emulated machine, whose own kernel has both. Its clock goes by
what it has computed, so that it is held to the seconds of docs/vpn-sites.md however slow it is.
"""

import json
import pickle
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from roles.guard.role import Guard, KernelLacks
from roles.keeper.role import Keeper
from tests.testlab.fleets.variants import cellar
from tests.testlab.machines.kernel_pair import FAULTS
from tests.testlab.machines.kernel_site import GATEWAY, RESTARTS
from tests.testlab.machines.lab import stop_substituting, substitute_ipsec
from tests.testlab.machines.operator import deployed
from tests.testlab.machines.stand import Node, Stand
from tests.testlab.machines.virtual import MASKED, STOPPED, bring_code, with_tunnels
from tests.testlab.network.sites import REGION
from tests.testlab.run import clock_pace, need_program, need_root

pytestmark = pytest.mark.nightly

NAME = "gate.cellar"
SITE = cellar()
ONE_REGION = replace(SITE, tunnels=tuple(one for one in SITE.tunnels if one.name.startswith(REGION)))
DEVICES = [tunnel.device for tunnel in ONE_REGION.tunnels]
CODE = GATEWAY.parent
# Seconds that a wait may be longer there, for waits go by this machine's clock; and for a whole story to end where this
# machine has nothing else to do.
MARGIN, PATIENCE = 2, 1500
Told = dict[str, Any]


@pytest.fixture(scope="module")
def gate() -> Iterator[Node]:
    """Give the site's gateway with its roles, on a kernel of its own, and this project's code beside it."""
    need_root()
    for program in ("systemd-nspawn", "debootstrap", "slirp4netns", "nft", "ssh", "qemu-system-x86_64", "mke2fs"):
        need_program(program)
    with Stand(with_tunnels()) as stand:
        node = stand.boot(NAME, str(SITE.address))
        substitute_ipsec(node)
        deployed(stand, NAME, Keeper(), Guard(SITE.elsewhere, speaks_bgp=True))
        node.run(f"systemctl disable --quiet --now {' '.join(STOPPED)}; systemctl mask --quiet {' '.join(MASKED)}")
        stop_substituting(node)
        bring_code(node.root / CODE.relative_to("/"))
        (node.root / GATEWAY.relative_to("/")).write_bytes(pickle.dumps(ONE_REGION))
        node.run(f"python3 -m compileall -q {CODE}")
        moved = stand.move(NAME)
        moved.machine.wait()
        yield moved


def story(gate: Node, name: str) -> Told:
    """Let a story of tests/testlab happen on the machine, and return what it tells."""
    told = gate.run(f"cd {CODE}; LAB_SLOWNESS=5 python3 -m tests.testlab.machines.{name}", PATIENCE * clock_pace())
    return dict(json.loads(told))


@pytest.fixture(scope="module")
def pair(gate: Node) -> Told:
    """Give what two gateways told that join each other."""
    return story(gate, "kernel_pair")


@pytest.fixture(scope="module")
def site(gate: Node, pair: Told) -> Told:
    """Give what the site's gateway told, with both tunnels to a region; last, for it ends in AppArmor's bounds.

    The pair's charons lie in folders of a laboratory, where those bounds let none be.
    """
    del pair
    return story(gate, "kernel_site")


def test_the_kernel_lacks_nothing(gate: Node) -> None:
    """The check of the role `guard` finds ESP and XFRM interfaces in Debian's kernel."""
    assert KernelLacks().process(gate.run(KernelLacks().command()).splitlines())[1:] == ()


def test_packets_pass_by_the_tunnels_device_and_in_no_other_form_than_esp(pair: Told) -> None:
    """The device has the id of its tunnel, packets of the tunnel's size pass whole and larger ones do not."""
    wire = pair["wire"]

    assert f"if_id {hex(wire['number'])}" in wire["device"]
    assert (wire["whole"], wire["larger"]) == (True, False)
    assert wire["esp"] >= 2
    assert (wire["clear"], wire["other"]) == (0, [])


@pytest.mark.parametrize(("fault", "limit"), FAULTS.items(), ids=FAULTS)
def test_what_failed_comes_back_soon(fault: str, limit: float, pair: Told) -> None:
    """After a fault packets pass again soon, none was ever in the clear, and one IKE_SA is left."""
    told = pair["faults"][fault]

    assert told["after"] <= limit + MARGIN
    assert told["clear"] == 0
    assert told["passed"] > 0


def test_keys_are_renewed_and_packets_pass_all_the_while(pair: Told) -> None:
    """Of the tunnel and of the IKE_SA, several times."""
    rekeys = pair["rekeys"]

    assert rekeys["children"] >= 2
    assert rekeys["sas"] >= 1
    assert rekeys["lost"] == 0


def test_a_gateway_without_its_guard_leaks(pair: Told) -> None:
    """The captures would have seen packets in the clear."""
    assert pair["leak"] > 0


def test_each_tunnel_of_a_gateway_has_its_own_device(site: Told) -> None:
    """One charon serves both, and laid again they stay as they are."""
    assert sorted(site["laid"]["devices"]["xfrm"]) == sorted(DEVICES)
    assert site["laid"]["devices"]["tun"] == []
    assert not any(site["again"]["done"].values())
    assert site["again"]["devices"] == site["laid"]["devices"]


def test_a_tunnel_that_goes_is_replaced_by_the_other(site: Told) -> None:
    """By BGP, within its hold time, and nothing is in the clear meanwhile."""
    lost = site["lost"]
    (other,) = (device for device in DEVICES if device != lost["tunnel"])

    assert f"dev {other} " in lost["route"]
    assert lost["longest"] <= 15 + MARGIN
    assert lost["clear"] == 0


def test_a_tunnel_that_leaves_takes_its_device_along(site: Told) -> None:
    """The other carries on."""
    assert site["fewer"]["devices"]["xfrm"] == DEVICES[1:]
    assert f"dev {DEVICES[1]} " in site["fewer"]["route"]


@pytest.mark.parametrize("how", RESTARTS)
def test_a_charon_that_ends_is_back_by_its_unit(how: str, site: Told) -> None:
    """Packets pass again within seconds, and none was in the clear."""
    told = site["restarts"][how]

    assert told["longest"] <= 5 + MARGIN
    assert told["clear"] == 0
    assert told["esp"] > 0


def test_daemons_keep_to_the_bounds_that_the_distribution_gives_them(site: Told) -> None:
    """With AppArmor's profiles enforced, and what the role adds to them, tunnels come up and nothing is refused."""
    bounds = site["bounds"]

    assert (bounds["started"], bounds["back"]) == (True, True)
    assert bounds["standing"].endswith("charon-systemd (enforce)")
    assert bounds["denied"] == []


def test_without_what_the_role_adds_no_tunnel_comes_up(site: Told) -> None:
    """Its settings are refused to charon: the bounds are in force, and the additions are needed."""
    bare = site["bounds"]["bare"]

    assert not bare["started"]
    assert any(profile.endswith("charon-systemd") and "/bedplate/" in path for profile, path in bare["denied"])
