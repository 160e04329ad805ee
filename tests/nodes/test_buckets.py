"""Data sets in S3 on a workbench of the cloud: people read and write them by the machine's role, and no others.

S3, the metadata service and the role's judge are stand-ins (tests/testlab/fakes/buckets.py, tests/testlab/fakes/aws.py);
AWS's command line, what the role wrote for it, the packet filter and the network between are real.
"""

from collections.abc import Iterator
from hashlib import sha256

import pytest

from bedplate.rehearsal.simulation import running
from bedplate.spec.sites import Use
from roles.hardened.firewall import ruleset
from roles.people.role import People
from roles.storage.role import Storage
from stacks.compute.template import HOPS
from tests.testlab.fakes.buckets import ObjectStore
from tests.testlab.fleets.variants import lab_node
from tests.testlab.machines.cloud import METADATA, bucket_side, role_side
from tests.testlab.machines.container import CommandError
from tests.testlab.machines.operator import deployed
from tests.testlab.machines.stand import Node, Stand
from tests.testlab.rehearsal.programs import EXAMPLES, plan_of
from tests.testlab.run import need_program

pytestmark = pytest.mark.nightly

NAME = "workbench-cpu-1.us-west-2"
LAB = plan_of(EXAMPLES / "lab.yaml")
DATASETS, RESULTS = "lab-datasets-111122223333-us-west-2", "lab-results-111122223333-us-west-2"
FOREIGN = "somebody-elses-data"
# More than the command line takes in one piece: it asks for parts, side by side.
PICTURES = bytes(range(256)) * (9 << 12)
ROLE_WORDS = f"curl -sS --max-time 3 http://{METADATA}/latest/meta-data/iam/security-credentials/"
TOKEN_WORDS = (
    f"curl -sS --max-time 3 -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 60' http://{METADATA}/latest/api/token"
)
# A network behind the machine's own, as containers have; its device is named as Docker's.
BOX = """
ip netns add box; ip link add docker0 type veth peer name eth0 netns box
ip address add 172.17.0.1/24 dev docker0; ip link set docker0 up
ip -n box address add 172.17.0.2/24 dev eth0; ip -n box link set eth0 up; ip -n box route add default via 172.17.0.1
sysctl -qw net.ipv4.ip_forward=1
nft 'table ip box { chain post { type nat hook postrouting priority 100; ip saddr 172.17.0.2 masquerade; }; }'
"""


@pytest.fixture(scope="module")
def store() -> Iterator[ObjectStore]:
    """Give the fleet's buckets with a data set in them, and a bucket of somebody else's."""
    with running(LAB.account) as simulation:
        made = ObjectStore(LAB, simulation.region("us-west-2"), Use.SSH.value, (FOREIGN,))
        made.put(DATASETS, "imagenet/labels.txt", b"cat\ndog\n")
        made.put(DATASETS, "imagenet/pictures.tar", PICTURES)
        made.put(FOREIGN, "secret.txt", b"not yours")
        yield made


@pytest.fixture(scope="module")
def node(stand: Stand, store: ObjectStore) -> Iterator[Node]:
    """Give a workbench of the cloud, under its packet filter; what it mounts beside buckets is left out."""
    need_program("openssl")
    plan = lab_node(NAME)
    booted = stand.boot(NAME, "10.64.33.7")
    deployed(stand, NAME, People(plan.accounts), Storage(buckets=plan.buckets, region=plan.region))
    (booted.root / "root/filter.nft").write_text(ruleset(plan.doors, plan.duties))
    booted.run("nft -f /root/filter.nft")
    with bucket_side(booted, store, stand.folder):
        yield booted


@pytest.fixture
def bench(node: Node, store: ObjectStore) -> Iterator[Node]:
    """Let the machine have its role."""
    with role_side(node, store, HOPS[Use.SSH]):
        yield node


@pytest.fixture(scope="module")
def box(node: Node) -> str:
    """Give the command that runs another in a container of the machine's."""
    node.run(BOX)
    return "ip netns exec box"


def as_ada(node: Node, script: str) -> str:
    """Run a script as a person does who has just logged in."""
    return node.run(f"su --login ada <<'END'\nset -e\n{script}\nEND\n")


def test_a_person_finds_a_data_set_by_its_name(bench: Node) -> None:
    """By the variable that a login brings; nobody configured anything, and nobody has keys."""
    told = as_ada(bench, "aws s3 ls $S3_DATASETS/imagenet/; ls -A ~")

    assert [line.split()[2:] for line in told.splitlines() if ":" in line] == [
        ["8", "labels.txt"],
        [str(len(PICTURES)), "pictures.tar"],
    ]
    assert ".aws" not in told


def test_a_data_set_is_copied_whole(bench: Node) -> None:
    """In parts, to a local disk, and read on from there or streamed."""
    told = as_ada(
        bench,
        "aws s3 sync --no-progress $S3_DATASETS/imagenet /tmp/imagenet; sha256sum < /tmp/imagenet/pictures.tar\n"
        "aws s3 cp $S3_DATASETS/imagenet/labels.txt - | head -n 1",
    )

    assert sha256(PICTURES).hexdigest() in told
    assert told.endswith("cat\n")


def test_results_are_written_back(bench: Node, store: ObjectStore) -> None:
    """Small ones at once, large ones in parts; both arrive as they were."""
    as_ada(
        bench,
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
def test_what_is_not_the_nodes_is_refused_in_words(command: str, action: str, bench: Node, store: ObjectStore) -> None:
    """Nothing of another bucket is read, listed or written, and whoever tries is told why."""
    store.asked.clear()

    with pytest.raises(CommandError, match=r"AccessDenied|403|Forbidden"):
        as_ada(bench, command)

    assert action in {asked for asked, _ in store.asked}
    assert "mine.txt" not in str(store.aws.call("s3", "list_objects_v2", Bucket=FOREIGN))


def test_calls_stay_in_the_machines_region(bench: Node, store: ObjectStore) -> None:
    """The bucket of a store is the region's own, and its calls are signed for it: nothing crosses to another."""
    store.asked.clear()

    as_ada(bench, "aws s3 ls $S3_DATASETS/imagenet/")

    assert store.asked == [("s3:ListBucket", f"arn:aws:s3:::{DATASETS}")]


def test_credentials_are_told_to_nobody_without_a_token(bench: Node) -> None:
    """A fooled program that only passes a request on is told nothing; a person's own, which asks for a token, is."""
    with_token = f'{ROLE_WORDS} -H "X-aws-ec2-metadata-token: $({TOKEN_WORDS})"'
    refused = f"{ROLE_WORDS} -w '%{{http_code}}'"

    assert as_ada(bench, refused) == "401"
    assert as_ada(bench, with_token) == "lab-ssh"


@pytest.mark.parametrize("use", [Use.SSH, Use.KUBERNETES], ids=["container", "pod"])
def test_a_container_has_the_role_where_people_work_and_a_pod_has_none(
    use: Use, node: Node, box: str, store: ObjectStore
) -> None:
    """A token passes as many networks as the launch template says: two where people run containers, one for pods."""
    with role_side(node, store, HOPS[use]):
        here = node.run(TOKEN_WORDS)
        there = node.run(f"{box} {TOKEN_WORDS} 2>&1 || true")

    assert here
    assert (there == here) == (use is Use.SSH)


def test_who_logs_in_reads_what_to_type(node: Node, stand: Stand) -> None:
    """Over SSH, before the first prompt, and it is what works."""
    ssh = ("ssh", "-tt", "-F", str(stand.ssh_config), NAME)
    told = stand.desk.run(*ssh, told="exit\n", seconds=60).stdout

    assert "aws s3 ls $S3_DATASETS/" in told
    assert f"s3://{DATASETS}" in told


def test_a_machine_without_a_role_says_so(node: Node) -> None:
    """As a site's has none: whoever has no keys of their own is told within seconds."""
    with pytest.raises(CommandError, match="Unable to locate credentials"):
        as_ada(node, "timeout 60 aws s3 ls $S3_DATASETS/")
