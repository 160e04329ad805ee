"""S3 buckets on a cloud workbench: people read and write them with the instance role.

S3, the metadata service and IAM's decisions are simulated (tests/testlab/fakes/buckets.py, tests/testlab/fakes/aws.py).
The AWS CLI, its configuration by the role, the packet filter and the network are real.
"""

from collections.abc import Iterator
from hashlib import sha256

import pytest

from bedplate.rehearsal.simulation import running
from bedplate.spec.sites import Use
from roles.hardened.firewall import ruleset
from roles.people.role import People
from roles.storage.role import Storage
from stacks.compute.template import token_hops
from tests.testlab.fakes.buckets import ObjectStore
from tests.testlab.fleets.variants import lab_node
from tests.testlab.machines.cloud import METADATA, serve_buckets, serve_role_credentials
from tests.testlab.machines.container import CommandError
from tests.testlab.machines.node_lab import Node, NodeLab
from tests.testlab.machines.operator import apply_roles
from tests.testlab.rehearsal.programs import EXAMPLES, plan_of
from tests.testlab.run import need_program

pytestmark = pytest.mark.nightly

NAME = "workbench-cpu-1.us-west-2"
LAB = plan_of(EXAMPLES / "lab.yaml")
DATASETS, RESULTS = "lab-datasets-111122223333-us-west-2", "lab-results-111122223333-us-west-2"
FOREIGN = "other-account-data"
# Larger than one part of the AWS CLI's multipart transfers.
PICTURES = bytes(range(256)) * (9 << 12)
ROLE_COMMAND = f"curl -sS --max-time 3 http://{METADATA}/latest/meta-data/iam/security-credentials/"
TOKEN_COMMAND = (
    f"curl -sS --max-time 3 -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 60' http://{METADATA}/latest/api/token"
)
# A network namespace behind the node, like a container behind Docker's bridge.
BOX = """
ip netns add box; ip link add docker0 type veth peer name eth0 netns box
ip address add 172.17.0.1/24 dev docker0; ip link set docker0 up
ip -n box address add 172.17.0.2/24 dev eth0; ip -n box link set eth0 up; ip -n box route add default via 172.17.0.1
sysctl -qw net.ipv4.ip_forward=1
nft 'table ip box { chain post { type nat hook postrouting priority 100; ip saddr 172.17.0.2 masquerade; }; }'
"""


@pytest.fixture(scope="module")
def store() -> Iterator[ObjectStore]:
    """Yield the fleet's buckets with a data set, and a bucket of another account."""
    with running(LAB.account) as simulation:
        buckets = ObjectStore(LAB, simulation.region("us-west-2"), Use.SSH.value, (FOREIGN,))
        buckets.put(DATASETS, "imagenet/labels.txt", b"cat\ndog\n")
        buckets.put(DATASETS, "imagenet/pictures.tar", PICTURES)
        buckets.put(FOREIGN, "secret.txt", b"not yours")
        yield buckets


@pytest.fixture(scope="module")
def node(node_lab: NodeLab, store: ObjectStore) -> Iterator[Node]:
    """Yield a cloud workbench with its packet filter and buckets, without its mounts."""
    need_program("openssl")
    plan = lab_node(NAME)
    booted = node_lab.boot(NAME, "10.64.33.7")
    apply_roles(node_lab, NAME, People(plan.accounts), Storage(buckets=plan.buckets, region=plan.region))
    (booted.root / "root/filter.nft").write_text(ruleset(plan.firewall_rules, plan.roles))
    booted.run("nft -f /root/filter.nft")
    with serve_buckets(booted, store, node_lab.folder):
        yield booted


@pytest.fixture
def workbench(node: Node, store: ObjectStore) -> Iterator[Node]:
    """Yield the workbench with its instance role."""
    with serve_role_credentials(node, store, token_hops(Use.SSH)):
        yield node


@pytest.fixture(scope="module")
def box(node: Node) -> str:
    """Return the command prefix that runs a program in a container of the node."""
    node.run(BOX)
    return "ip netns exec box"


def as_ada(node: Node, script: str) -> str:
    """Run a script in a login shell of ada."""
    return node.run(f"su --login ada <<'END'\nset -e\n{script}\nEND\n")


def test_person_lists_a_data_set_by_variable(workbench: Node) -> None:
    """A person lists a data set with the variable of the login shell, without configuration or keys."""
    output = as_ada(workbench, "aws s3 ls $S3_DATASETS/imagenet/; ls -A ~")

    assert [line.split()[2:] for line in output.splitlines() if ":" in line] == [
        ["8", "labels.txt"],
        [str(len(PICTURES)), "pictures.tar"],
    ]
    assert ".aws" not in output


def test_data_set_is_copied_completely(workbench: Node) -> None:
    """A data set is copied completely, in parts, and can be streamed."""
    output = as_ada(
        workbench,
        "aws s3 sync --no-progress $S3_DATASETS/imagenet /tmp/imagenet; sha256sum < /tmp/imagenet/pictures.tar\n"
        "aws s3 cp $S3_DATASETS/imagenet/labels.txt - | head -n 1",
    )

    assert sha256(PICTURES).hexdigest() in output
    assert output.endswith("cat\n")


def test_results_are_uploaded(workbench: Node, store: ObjectStore) -> None:
    """Small and large files are uploaded completely."""
    as_ada(
        workbench,
        "echo 0.91 | aws s3 cp - $S3_RESULTS/ada/accuracy.txt\n"
        "head -c 9437184 /dev/zero > /tmp/model; aws s3 cp --no-progress /tmp/model $S3_RESULTS/ada/model",
    )

    assert store.held(RESULTS, "ada/accuracy.txt") == b"0.91\n"
    assert store.held(RESULTS, "ada/model") == bytes(9 << 20)


@pytest.mark.parametrize(
    ("command", "action"),
    [
        pytest.param(f"aws s3 cp s3://{FOREIGN}/secret.txt -", "s3:GetObject", id="read"),
        pytest.param(f"aws s3 ls s3://{FOREIGN}/", "s3:ListBucket", id="list"),
        pytest.param(f"echo x | aws s3 cp - s3://{FOREIGN}/mine.txt", "s3:PutObject", id="write"),
        pytest.param("aws s3 ls", "s3:ListAllMyBuckets", id="all"),
        pytest.param("aws s3api get-bucket-policy --bucket ${S3_RESULTS#s3://}", "s3:Unknown", id="policy"),
    ],
)
def test_other_buckets_are_denied(command: str, action: str, workbench: Node, store: ObjectStore) -> None:
    """Other buckets cannot be read, listed or written, and the error says so."""
    store.calls.clear()

    with pytest.raises(CommandError, match=r"AccessDenied|403|Forbidden"):
        as_ada(workbench, command)

    assert action in {call for call, _ in store.calls}
    assert "mine.txt" not in str(store.aws.call("s3", "list_objects_v2", Bucket=FOREIGN))


def test_calls_stay_in_the_region(workbench: Node, store: ObjectStore) -> None:
    """S3 calls use the bucket and the signature of the node's own region."""
    store.calls.clear()

    as_ada(workbench, "aws s3 ls $S3_DATASETS/imagenet/")

    assert store.calls == [("s3:ListBucket", f"arn:aws:s3:::{DATASETS}")]


def test_credentials_need_a_token(workbench: Node) -> None:
    """The metadata service returns credentials only with a token, which a forwarded request lacks."""
    with_token = f'{ROLE_COMMAND} -H "X-aws-ec2-metadata-token: $({TOKEN_COMMAND})"'
    refused = f"{ROLE_COMMAND} -w '%{{http_code}}'"

    assert as_ada(workbench, refused) == "401"
    assert as_ada(workbench, with_token) == "lab-ssh"


@pytest.mark.parametrize("use", [Use.SSH, Use.KUBERNETES], ids=["container", "pod"])
def test_container_has_the_role_and_pod_does_not(use: Use, node: Node, box: str, store: ObjectStore) -> None:
    """Tokens pass two hops on workbenches, for containers, and one on Kubernetes nodes, so pods have no role."""
    with serve_role_credentials(node, store, token_hops(use)):
        on_node = node.run(TOKEN_COMMAND)
        in_container = node.run(f"{box} {TOKEN_COMMAND} 2>&1 || true")

    assert on_node
    assert (in_container == on_node) == (use is Use.SSH)


def test_login_shows_bucket_commands(node: Node, node_lab: NodeLab) -> None:
    """A login over SSH shows the commands that list the buckets."""
    ssh = ("ssh", "-tt", "-F", str(node_lab.ssh_config), NAME)
    output = node_lab.workstation.run(*ssh, stdin="exit\n", seconds=60).stdout

    assert "aws s3 ls $S3_DATASETS/" in output
    assert f"s3://{DATASETS}" in output


def test_missing_role_is_reported(node: Node) -> None:
    """On a node without a role, the AWS CLI reports missing credentials within seconds."""
    with pytest.raises(CommandError, match="Unable to locate credentials"):
        as_ada(node, "timeout 60 aws s3 ls $S3_DATASETS/")
