"""What the role `storage` tells a node of the buckets that it reads, and what it reads them by."""

from bedplate.plan.fleet import BucketPlan
from roles.storage.buckets import SHELL, TABLE, version
from roles.storage.notice import NOTICE
from roles.storage.role import Storage
from tests.support.disk import Disk
from tests.support.recorded import recorded
from tests.support.recorder import Recorder
from tests.support.stored import FOUND, HOME, NOTHING, played

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


def test_who_logs_in_reads_how_data_sets_are_had() -> None:
    """Beside the message of the day: the folders, and a command for each store that works as it stands."""
    told = played(Storage(mounts=(HOME,), buckets=BUCKETS, region="us-west-2")).disk.read(NOTICE)

    assert told.splitlines()[:4] == [
        "  shared folders: /home",
        "  data sets in S3:",
        "    aws s3 ls $S3_DATA_SETS/  s3://lab-data-sets-1-eu-north-1",
        "    aws s3 ls $S3_RESULTS/    s3://lab-results-1-us-west-2",
    ]


def test_who_logs_in_where_no_role_is_reads_that_too() -> None:
    """A site's machine is lent nothing by AWS; one that shares nothing says nothing."""
    lent = Storage(buckets=BUCKETS, region="us-west-2", holds_role=False)

    assert "with credentials of your own:\n" in played(lent).disk.read(NOTICE)
    assert NOTICE not in played(Storage()).disk.entries


def test_a_list_that_left_the_file_goes() -> None:
    """A variable for a bucket that is no more would send people to nobody's, or to somebody's."""
    found = tuple(f"told:{path}" for path in (NOTICE, SHELL, TABLE))

    less = played(Storage(mounts=(HOME,)), found=found)
    none = played(Storage(), found=found)

    assert {name for name in less.names if name.startswith("No /")} == {f"No {p} any more" for p in (SHELL, TABLE)}
    assert {step.name for step in none.steps} == {f"No {path} any more" for path in (NOTICE, SHELL, TABLE)}
