"""The gateways that join regions by themselves, from the plan: each with a tunnel to every other."""

from bedplate.errors import PartError
from bedplate.plan.fleet import FleetPlan
from bedplate.plan.joint import Joint, joint_of, peers_of
from vpn.sites.gateway import Gateway
from vpn.sites.identity import identity_of
from vpn.sites.pair import Peer, joined
from vpn.sites.proof import PlaceProofs, Proof


def region_gateway(plan: FleetPlan, region: str, proofs: PlaceProofs) -> Gateway:
    """Return a joined region's gateway; PartError where the lock has no address of it or of another one."""
    near, *fars = (_peer(plan, each) for each in (joint_of(plan, region), *peers_of(plan, region)))

    def proof(one: Peer, other: Peer) -> Proof:
        return proofs(one.name, other.name)

    return joined(near, fars, proof)


def _peer(plan: FleetPlan, joint: Joint) -> Peer:
    if joint.public is None:
        told = f"fleet.lock does not say at which address the gateway in {joint.region} is dialled"
        raise PartError(told, fix="run `bedplate vpn record` once the fleet's stacks are up")
    return Peer(
        name=joint.region,
        identity=identity_of(plan, joint.region),
        public=joint.public,
        address=None,
        blocks=joint.blocks,
        echo=joint.echo,
    )
