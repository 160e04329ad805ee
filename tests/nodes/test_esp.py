"""Tunnels with kernel encryption (ESP, XFRM interfaces), as on real gateways.

The tests run on one QEMU machine, because this machine's kernel may lack both. Its clock counts instructions, so the
times of docs/vpn-sites.md hold although it is slow.
"""

import json
import pickle
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from roles.guard.role import Guard, KernelLacks
from roles.vpnagent.role import VpnAgent
from tests.testlab.fleets.variants import cellar_gateway
from tests.testlab.machines.kernel_pair import FAULTS
from tests.testlab.machines.kernel_site import GATEWAY, RESTARTS
from tests.testlab.machines.lab import stop_substituting, substitute_ipsec
from tests.testlab.machines.node_lab import Node, NodeLab
from tests.testlab.machines.operator import apply_roles
from tests.testlab.machines.virtual import MASKED, STOPPED, copy_code, gateway_layers
from tests.testlab.network.sites import REGION
from tests.testlab.run import clock_pace, need_program, need_root

pytestmark = pytest.mark.nightly

NAME = "gate.cellar"
SITE = cellar_gateway()
ONE_REGION = replace(SITE, tunnels=tuple(tunnel for tunnel in SITE.tunnels if tunnel.name.startswith(REGION)))
DEVICES = [tunnel.device for tunnel in ONE_REGION.tunnels]
CODE = GATEWAY.parent
MODULES = "tests.testlab.machines"
# Extra seconds, because waits use this machine's clock; and the timeout of a test program on an idle machine.
MARGIN, PATIENCE = 2, 1500
Results = dict[str, Any]


@pytest.fixture(scope="module")
def gate() -> Iterator[Node]:
    """Yield the site's gateway with its roles and its own kernel, and with this project's code."""
    need_root()
    for program in ("systemd-nspawn", "mmdebstrap", "slirp4netns", "nft", "ssh", "qemu-system-x86_64", "mke2fs"):
        need_program(program)
    with NodeLab(gateway_layers()) as node_lab:
        node = node_lab.boot(NAME, str(SITE.address))
        substitute_ipsec(node)
        apply_roles(node_lab, NAME, VpnAgent(), Guard(SITE.remote_blocks, speaks_bgp=True))
        node.run(f"systemctl disable --quiet --now {' '.join(STOPPED)}; systemctl mask --quiet {' '.join(MASKED)}")
        stop_substituting(node)
        copy_code(node.root / CODE.relative_to("/"))
        (node.root / GATEWAY.relative_to("/")).write_bytes(pickle.dumps(ONE_REGION))
        node.run(f"python3 -m compileall -q {CODE}")
        moved = node_lab.move(NAME)
        moved.machine.wait()
        yield moved


def run_program(gate: Node, name: str) -> Results:
    """Run a test program of tests/testlab/machines on the gateway, and return its results."""
    output = gate.run(
        f"cd {CODE}; LAB_SLOWNESS=5 python3 -m {MODULES}.guest_imports {MODULES}.{name}", PATIENCE * clock_pace()
    )
    return dict(json.loads(output))


@pytest.fixture(scope="module")
def pair(gate: Node) -> Results:
    """Return the results of two gateways with a tunnel between them."""
    return run_program(gate, "kernel_pair")


@pytest.fixture(scope="module")
def site(gate: Node, pair: Results) -> Results:
    """Return the results of the site's gateway with both tunnels to a region.

    It runs after `pair`, because it enforces AppArmor, which blocks the pair's charons and their folders.
    """
    del pair
    return run_program(gate, "kernel_site")


def test_kernel_has_esp_and_xfrm(gate: Node) -> None:
    """The kernel check of the role `guard` finds ESP and XFRM interfaces in Debian's kernel."""
    assert KernelLacks().process(gate.run(KernelLacks().command()).splitlines())[1:] == ()


def test_packets_pass_the_interface_as_esp_only(pair: Results) -> None:
    """The interface has the ID of its tunnel, packets up to its MTU pass, and only ESP is on the wire."""
    wire = pair["wire"]

    assert f"if_id {hex(wire['number'])}" in wire["device"]
    assert (wire["whole"], wire["larger"]) == (True, False)
    assert wire["esp"] >= 2
    assert (wire["clear"], wire["other"]) == (0, [])


@pytest.mark.parametrize(("fault", "limit"), FAULTS.items(), ids=FAULTS)
def test_tunnel_recovers_from_a_fault(fault: str, limit: float, pair: Results) -> None:
    """After a fault, packets pass again within the promised time, and none was unencrypted."""
    result = pair["faults"][fault]

    assert result["after"] <= limit + MARGIN
    assert result["clear"] == 0
    assert result["passed"] > 0


def test_rekeys_lose_no_packets(pair: Results) -> None:
    """Rekeys of CHILD_SAs and IKE_SAs lose no packets."""
    rekeys = pair["rekeys"]

    assert rekeys["children"] >= 2
    assert rekeys["sas"] >= 1
    assert rekeys["lost"] == 0


def test_gateway_without_guard_leaks(pair: Results) -> None:
    """Without the guard, the captures contain unencrypted packets."""
    assert pair["leak"] > 0


def test_each_tunnel_has_its_own_interface(site: Results) -> None:
    """One charon serves both tunnels, each with its own interface; a second push changes nothing."""
    assert sorted(site["pushed"]["devices"]["xfrm"]) == sorted(DEVICES)
    assert site["pushed"]["devices"]["tun"] == []
    assert not any(site["again"]["done"].values())
    assert site["again"]["devices"] == site["pushed"]["devices"]


def test_traffic_moves_to_the_other_tunnel(site: Results) -> None:
    """If a tunnel is lost, BGP moves the traffic to the other within its hold time, and nothing is unencrypted."""
    lost = site["lost"]
    (other,) = (device for device in DEVICES if device != lost["tunnel"])

    assert f"dev {other} " in lost["route"]
    assert lost["longest"] <= 15 + MARGIN
    assert lost["clear"] == 0


def test_removed_tunnel_loses_its_interface(site: Results) -> None:
    """A removed tunnel loses its interface, and the other keeps working."""
    assert site["fewer"]["devices"]["xfrm"] == DEVICES[1:]
    assert f"dev {DEVICES[1]} " in site["fewer"]["route"]


@pytest.mark.parametrize("command", RESTARTS)
def test_charon_restarts(command: str, site: Results) -> None:
    """After charon restarts or is killed, packets pass again within seconds, and none was unencrypted."""
    result = site["restarts"][command]

    assert result["longest"] <= 5 + MARGIN
    assert result["clear"] == 0
    assert result["esp"] > 0


def test_tunnels_work_with_apparmor_enforced(site: Results) -> None:
    """With AppArmor enforced and the role's additions, tunnels start and nothing is denied."""
    result = site["apparmor"]

    assert (result["started"], result["restored"]) == (True, True)
    assert result["confinement"].endswith("charon-systemd (enforce)")
    assert result["denied"] == []


def test_apparmor_blocks_tunnels_without_the_additions(site: Results) -> None:
    """Without the role's additions, AppArmor denies charon its settings, and no tunnel starts."""
    bare = site["apparmor"]["bare"]

    assert not bare["started"]
    assert any(profile.endswith("charon-systemd") and "/bedplate/" in path for profile, path in bare["denied"])
