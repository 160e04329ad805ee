"""Data sets in S3: AWS's own command line, of one version and by its sums, and a list of the buckets that a node reads.

mountpoint-s3 is in neither distribution's archive, and a bucket is no file system: programs stream from it or copy it
to local disks. Credentials are the node's role's, where it has one; none is ever written down.
"""

from collections.abc import Iterable

from pyinfra.api.facts import FactBase
from pyinfra.context import host
from pyinfra.operations import files, server

from bedplate.plan.fleet import BucketPlan
from roles.shipped import Shipped, ship
from roles.template import rendered, text_of
from roles.venv import taken

FOLDER = "/opt/bedplate-aws"
TABLE, SHELL = "/etc/bedplate/buckets", "/etc/profile.d/bedplate-buckets.sh"
_WANTED = text_of("storage/aws.txt")
_LIST = f"{FOLDER}.txt"


class AwsVersion(FactBase[str]):
    """The version of the command line in its folder, nothing where there is none."""

    default = str

    def command(self) -> str:
        """Look at what was installed: to run it takes a second."""
        return f"ls -d {FOLDER}/lib/python3*/site-packages/awscli-*.dist-info 2>/dev/null || true"

    def process(self, output: Iterable[str]) -> str:
        """Take the version out of the folder's name."""
        return next((line.rpartition("/awscli-")[2].removesuffix(".dist-info") for line in output), "")


def version() -> str:
    """Return the version that is wanted."""
    first = next(line for line in _WANTED.splitlines() if line.startswith("awscli=="))
    return first.split()[0].removeprefix("awscli==")


def install_aws() -> None:
    """Declare the command line for everybody."""
    ship(Shipped("AWS's command line by its sums", _LIST, _WANTED))
    if host.get_fact(AwsVersion) != version():
        server.shell(name=f"AWS's command line {version()}", commands=taken(FOLDER, _LIST))
    files.link(name="aws for everybody", path="/usr/local/bin/aws", target=f"{FOLDER}/bin/aws")


def variable(store: str) -> str:
    """Return the variable by which shells know a store's bucket."""
    return f"S3_{store.upper().replace('-', '_')}"


def variables(buckets: Iterable[BucketPlan]) -> tuple[tuple[str, str], ...]:
    """Return the variable and the name of each bucket, in the order of stores."""
    return tuple((variable(each.store), each.name) for each in _by_store(buckets))


def listed(buckets: Iterable[BucketPlan], region: str) -> tuple[Shipped, ...]:
    """Return the list of buckets, and what shells know of it."""
    rows = _by_store(buckets)
    shell = rendered("storage/buckets.sh.j2", known=variables(rows), region=region)
    return (
        Shipped("Buckets", TABLE, "".join(f"{each.store} s3://{each.name} {each.region}\n" for each in rows)),
        Shipped("Buckets for shells", SHELL, shell),
    )


def _by_store(buckets: Iterable[BucketPlan]) -> list[BucketPlan]:
    return sorted(buckets, key=lambda bucket: bucket.store)
