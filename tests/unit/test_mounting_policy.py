"""A node's way of mounting EFS, and the policy of the file system that it mounts: the one is made for the other."""

import json
from dataclasses import replace

import pytest

from bedplate.plan.node import MountKind
from stacks.transport import mounts_only_by_tls
from tests.support.file_server import rights, way_of
from tests.support.stored import CLOUD

SYSTEM = "arn:aws:elasticfilesystem:us-west-2:111122223333:file-system/fs-0123456789abcdef0"
POLICY = mounts_only_by_tls(SYSTEM)
ALL = {"ClientMount", "ClientWrite", "ClientRootAccess"}
ROLE = {"AWS": "arn:aws:iam::111122223333:role/lab-ssh"}


def test_a_node_mounts_as_the_role_has_it() -> None:
    """It shows no identity, comes by TLS to a mount target, reads, writes, and as root makes homes."""
    assert rights(POLICY, SYSTEM, way_of(CLOUD)) == ALL


def test_nobody_mounts_in_clear_text() -> None:
    """Whoever goes round the tunnel is refused everything."""
    in_the_clear = way_of(replace(CLOUD, kind=MountKind.NFS))

    assert in_the_clear["aws:securetransport"] == "false"
    assert rights(POLICY, SYSTEM, in_the_clear) == set()


def test_nobody_mounts_from_outside_the_network() -> None:
    """What reaches the file system by anything but a mount target of its network has to be somebody."""
    outside = {**way_of(CLOUD), "elasticfilesystem:accessedviamounttarget": "false"}

    assert rights(POLICY, SYSTEM, outside) == set()


def test_the_policy_is_of_its_own_file_system() -> None:
    """It opens no other."""
    assert rights(POLICY, f"{SYSTEM}1", way_of(CLOUD)) == set()


def planted(**changes: object) -> str:
    """Return the policy with its first statement changed; one that is changed to nothing is taken out."""
    allowed, denied = json.loads(POLICY)["Statement"]
    told = {key: value for key, value in {**allowed, **changes}.items() if value}
    return json.dumps({"Statement": [denied, *([told] if told.get("Effect") else [])]})


@pytest.mark.parametrize(
    ("policy", "left"),
    [
        (planted(Effect=None), set()),
        (planted(Principal=ROLE), set()),
        (
            planted(Action=["elasticfilesystem:ClientMount", "elasticfilesystem:ClientWrite"]),
            ALL - {"ClientRootAccess"},
        ),
        (planted(Effect="Deny"), set()),
        (planted(Condition=None), ALL),
    ],
    ids=["nobody-is-allowed", "a-role-alone", "root-is-nobody", "denied", "the-good-twin"],
)
def test_a_policy_that_stops_nodes_is_found(policy: str, left: set[str]) -> None:
    """The stand-in for EFS tells each way of shutting nodes out from a policy that lets them in."""
    assert rights(policy, SYSTEM, way_of(CLOUD)) == left


def test_a_policy_that_bears_clear_text_is_found() -> None:
    """Without its refusal it lets anybody read along."""
    allowed, _ = json.loads(POLICY)["Statement"]

    open_policy = json.dumps({"Statement": [allowed]})
    assert rights(open_policy, SYSTEM, way_of(replace(CLOUD, kind=MountKind.NFS))) == ALL
