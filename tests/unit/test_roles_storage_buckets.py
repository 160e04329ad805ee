"""What the role `storage` tells a node of the buckets that it reads, and what it reads them by."""

from bedplate.plan.fleet import BucketPlan
from roles.storage.buckets import version
from roles.storage.role import Storage
from tests.support.disk import Disk
from tests.support.recorded import recorded
from tests.support.recorder import Recorder
from tests.support.stored import FOUND, NOTHING, played

BUCKETS = (
    BucketPlan("results", "us-west-2", "lab-results-1-us-west-2", None),
    BucketPlan("data-sets", "eu-north-1", "lab-data-sets-1-eu-north-1", None),
)


def test_a_node_knows_the_buckets_that_it_reads() -> None:
    """By the store's name, with the region that each is in; no credential is written down."""
    disk = played(Storage(buckets=BUCKETS, region="us-west-2")).disk

    assert disk.read("/etc/bedplate/buckets").splitlines() == [
        "data-sets s3://lab-data-sets-1-eu-north-1 eu-north-1",
        "results s3://lab-results-1-us-west-2 us-west-2",
    ]
    assert "export S3_DATA_SETS=s3://lab-data-sets-1-eu-north-1\n" in disk.read("/etc/profile.d/bedplate-buckets.sh")


def test_the_command_line_of_aws_comes_by_its_sums() -> None:
    """Of one version on every node, once; what is there is not fetched again."""
    wanted = Storage(buckets=BUCKETS, region="us-west-2")
    folder = "/opt/bedplate-aws/lib/python3.11/site-packages"
    there = {"roles.storage.buckets.AwsVersion": (f"{folder}/awscli-{version()}.dist-info",), **NOTHING, FOUND: None}

    fresh, again = (
        Recorder(recorded("ubuntu-24.04").but(answers), Disk.of({})).play(wanted, stages=("install",))
        for answers in ({**there, "roles.storage.buckets.AwsVersion": None}, there)
    )

    (_, pip) = fresh.step(f"AWS's command line {version()}").commands
    assert "--require-hashes" in pip
    assert f"AWS's command line {version()}" not in again.names
