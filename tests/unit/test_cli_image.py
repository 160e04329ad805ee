"""The commands under `image`, in moto: a bake in two regions, killed at every call, and what follows."""

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import SimpleNamespace

import boto3
import pytest
from botocore.client import BaseClient
from moto.ec2.models import ec2_backends

from bedplate.account.bundle import RegionStore
from bedplate.account.client import NotThere
from bedplate.catalog import load_catalog
from bedplate.cli import run
from bedplate.cli.options import Terminal
from bedplate.errors import PartialError
from bedplate.files import held
from bedplate.foreign import LARGEST
from bedplate.lock import lock_path, read_lock, record_images
from bedplate.operate import images, plan_of
from bedplate.plan.node_document import pool_document
from bedplate.plan.planner import image_kinds, pool_kind
from bedplate.report.images import by_name
from images.bakes import KEY, VALID
from images.published import PoolRollout, bill_of_materials
from tests.testlab.fakes.aws import ACCOUNT
from tests.testlab.fakes.images import BASE, BakeLab, Killed, KilledClient, add_image, bake_lab

KIND, HOME, AWAY = "worker-x86_64", "us-west-2", "us-east-1"
SESSION = boto3.session.Session("key", "secret")
CLIENTS: dict[tuple[str, str], BaseClient] = {}
NO_CAPACITY = "ec2:RunInstances failed: InsufficientInstanceCapacity: We currently do not have sufficient capacity"

Open = Callable[..., AbstractContextManager[BakeLab]]


@pytest.fixture
def open_account(here: Path, monkeypatch: pytest.MonkeyPatch) -> Open:
    """Return a function that opens an account in which lab.yaml is deployed, with a client that may die."""
    here.write_text(here.read_text().replace(ACCOUNT, "123456789012"))
    record_images(lock_path(here), "lab", {f"{HOME}/x86_64": BASE, f"{AWAY}/x86_64": BASE, "eu-north-1/x86_64": BASE})
    plan, start = plan_of(Terminal(here)), lock_path(here).read_text()

    @contextmanager
    def open_(at: int = 0, *, is_after: bool = False) -> Iterator[BakeLab]:
        lock_path(here).write_text(start)
        with bake_lab(KilledClient(SESSION, _clients=CLIENTS), plan) as aws:
            use(KilledClient(SESSION, _clients=CLIENTS, at=at, is_after=is_after), aws)
            yield aws

    def use(client: KilledClient, lab: BakeLab) -> None:
        lab.client = client
        monkeypatch.setattr("bedplate.account.client.open_client", lambda: client)
        monkeypatch.setattr(images, "time", SimpleNamespace(time=lab.now, monotonic=lab.now, sleep=lab.sleep))
        monkeypatch.setattr("images.published.sleep", lambda _: None)

    return open_


@pytest.fixture
def aws(open_account: Open) -> Iterator[BakeLab]:
    """Yield the account."""
    with open_account() as opened:
        yield opened


def _recorded(fleet: Path) -> dict[str, str]:
    baked = read_lock(lock_path(fleet), "lab").baked
    return {place.partition("/")[0]: ident for place, ident in baked.items() if place.endswith(f"/{KIND}")}


def _published(aws: BakeLab, region: str) -> str:
    name = f"/lab/images/{KIND}"
    return str(aws.client.call("ssm", region, "get_parameter", Name=name)["Parameter"]["Value"])


def _plan(capsys: pytest.CaptureFixture[str], kind: str = KIND) -> dict[str, object]:
    capsys.readouterr()
    assert run(["image", "plan", "--json"]) == 0
    return dict(json.loads(capsys.readouterr().out)[kind])


def test_a_bake_records_and_publishes_its_copies(aws: BakeLab, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing else is left, and an unchanged recipe bakes nothing."""
    assert _plan(capsys)["state"] == "bake"

    assert run(["image", "bake", KIND]) == 0

    assert _recorded(here) == {HOME: aws.image_ids()[HOME], AWAY: aws.image_ids()[AWAY]}
    assert {region: _published(aws, region) for region in (HOME, AWAY)} == _recorded(here)
    assert aws.left() == ()
    assert _plan(capsys)["state"] == "unchanged"
    before = len(aws.client.calls)
    assert run(["image", "bake", KIND]) == 0
    assert len(aws.client.calls) == before


def test_a_bake_gets_the_images_of_its_groups(here: Path, open_account: Open) -> None:
    """The document of its instance names them; those of machines do not."""
    image = f"123456789012.dkr.ecr.us-west-2.amazonaws.com/lab/base@sha256:{'0' * 64}"
    group = next(
        pool.group
        for pool in plan_of(Terminal(here)).pools
        if pool_kind(plan_of(Terminal(here)), pool, load_catalog()).name == KIND
    )
    here.write_text(re.sub(r"(  images: .*\n)", rf"\1    {group}: {image}\n", here.read_text()))
    with open_account(4, is_after=True) as aws:
        with pytest.raises(Killed):
            run(["image", "bake", KIND])
        aws.client.dead.clear()
        plan = plan_of(Terminal(here))
        document = json.loads(RegionStore(aws.client, plan, HOME).get(f"nodes/_image-{KIND}.json"))
    pool = next(pool for pool in plan.pools if pool.group == group)

    assert document["node"]["images"] == [image]
    assert json.loads(pool_document(plan, pool, plan.catalog))["node"]["images"] == []


def test_an_instance_is_encrypted_closed_and_tagged(open_account: Open) -> None:
    """Its disk has the fleet's key, its group has no inbound rule; instance, disk and group have the tags."""
    with open_account(4, is_after=True) as aws:
        with pytest.raises(Killed):
            run(["image", "bake", KIND])
        aws.client.dead.clear()
        instance = aws.client.call("ec2", HOME, "describe_instances")["Reservations"][0]["Instances"][0]
        volume = aws.client.call("ec2", HOME, "describe_volumes")["Volumes"][0]
        ids = [group["GroupId"] for group in instance["SecurityGroups"]]
        (group,) = aws.client.call("ec2", HOME, "describe_security_groups", GroupIds=ids)["SecurityGroups"]
    assert (volume["Encrypted"], volume["KmsKeyId"]) == (True, "alias/lab-data")
    assert group["IpPermissions"] == []
    assert instance["MetadataOptions"]["HttpTokens"] == "required"
    for tags in (instance["Tags"], volume["Tags"], group["Tags"]):
        assert {"bedplate:fleet", "bedplate:bake", "bedplate:commit", "owner"} <= {tag["Key"] for tag in tags}


@pytest.mark.nightly
@pytest.mark.parametrize("is_swept", [True, False])
def test_a_killed_bake_is_swept_or_continues(open_account: Open, here: Path, *, is_swept: bool) -> None:
    """At each call that changes something, after the reply and a sweep, or before the request and without one.

    A process that is dead knows no replies, so the state after a call is that before the next one: both cover all.
    """
    at = killed = 0
    while killed == at:
        at += 1
        with open_account(at, is_after=is_swept) as aws:
            try:
                assert run(["image", "bake", KIND]) == 0
            except Killed:
                killed = at
                aws.client.dead.clear()
            calls = list(aws.client.calls)
            # It dies at no later call.
            aws.client.calls.extend(["after"] * at)
            if is_swept:
                assert run(["image", "sweep"]) == 0
                assert aws.left() == (), calls
            assert run(["image", "bake", KIND]) == 0, calls
            # A process that died before it deleted its lease leaves it: the next run has nothing to do, and it expires.
            assert aws.left() in ((), (KEY,) if calls[-1] == "delete_object" else ()), calls
            assert _recorded(here).keys() == {HOME, AWAY}, calls
            assert _published(aws, AWAY) == _recorded(here)[AWAY]
    assert at > 12


def test_a_zone_without_capacity_is_passed(aws: BakeLab, capsys: pytest.CaptureFixture[str]) -> None:
    """The next zone gets the instance; a quota stops the bake with its own fix."""
    aws.client.errors[HOME, "run_instances"] = PartialError(NO_CAPACITY)
    assert run(["image", "bake", KIND]) == 0

    aws.client.errors[HOME, "run_instances"] = PartialError("ec2:RunInstances failed: VcpuLimitExceeded: no")
    assert run(["image", "bake", "worker-x86_64-580-open"]) == 6
    assert "`bedplate quotas` shows the quotas" in capsys.readouterr().err


def test_a_region_that_refuses_the_copy_gets_it_later(
    aws: BakeLab, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The other regions are complete: status 6, and the same command completes it."""
    aws.client.errors[AWAY, "copy_image"] = PartialError("ec2:CopyImage failed: ResourceLimitExceeded: quota")

    assert run(["image", "bake", KIND]) == 6

    assert f"{KIND} {AWAY}: ec2:CopyImage failed: ResourceLimitExceeded" in capsys.readouterr().err
    assert _recorded(here).keys() == {HOME}
    assert _plan(capsys)["state"] == f"copy to {AWAY}"
    assert run(["image", "bake", KIND]) == 0
    assert _recorded(here).keys() == {HOME, AWAY}
    assert "run_instances" not in aws.client.calls[aws.client.calls.index("copy_image") :]


@pytest.mark.parametrize("is_kept", [False, True])
def test_a_failed_install_stage_shows_why(
    aws: BakeLab, here: Path, capsys: pytest.CaptureFixture[str], *, is_kept: bool
) -> None:
    """Nothing is left, or with --keep the instance, which the next bake replaces."""
    aws.ok = False

    assert run(["image", "bake", KIND, *(["--keep"] if is_kept else [])]) == 6

    errors = capsys.readouterr().err
    assert "the install stage failed: apt failed" in errors
    assert f"bake-{KIND}.log" in errors
    assert bool(aws.instances()) == is_kept
    aws.ok = True
    assert run(["image", "bake", KIND]) == 0
    assert aws.left() == ()


def test_a_bundle_that_was_promoted_meanwhile_is_not_frozen(aws: BakeLab, capsys: pytest.CaptureFixture[str]) -> None:
    """The name of the image has the hash of the other bundle."""
    aws.bundle = "c" * 64

    assert run(["image", "bake", KIND]) == 6

    assert "the instance has the bundle cccccccccccc, the recipe bbbbbbbbbbbb" in capsys.readouterr().err
    assert aws.left() == ()


@pytest.mark.parametrize(
    ("image", "message"),
    [
        ({"owner": "210987654321"}, "belongs to account 210987654321, not to Canonical"),
        ({"arch": "arm64"}, "has the architecture arm64, not x86_64"),
        ({"name": "ubuntu/images/hvm-ssd/ubuntu-jammy"}, "is ubuntu/images/hvm-ssd/ubuntu-jammy, not"),
        (None, f"the base image {BASE} does not exist in {HOME}"),
    ],
)
def test_a_wrong_base_image_is_refused(
    aws: BakeLab, capsys: pytest.CaptureFixture[str], image: dict[str, str] | None, message: str
) -> None:
    """The command refuses it before it creates anything."""
    aws.client.call("ec2", HOME, "deregister_image", ImageId=BASE)
    if image:
        add_image(HOME, BASE, **image)
    before = len(aws.client.calls)

    assert run(["image", "bake", KIND]) == 2

    assert message in capsys.readouterr().err
    assert len(aws.client.calls) == before


def test_a_second_command_is_excluded(aws: BakeLab, here: Path) -> None:
    """Status 5, as for other locks."""
    with held(here.with_name("images")):
        assert run(["image", "bake", KIND]) == 5
        assert run(["image", "sweep"]) == 5


def test_a_bake_of_another_operator_is_not_swept(aws: BakeLab, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Status 5 with the operator's name, until the lease was not renewed for ten minutes."""
    holder = {"user": "grace", "host": "laptop", "pid": 7, "since": aws.now(), "command": "bedplate image bake"}
    store = {"Bucket": aws.plan.nodes_bucket(HOME).name, "Key": KEY}
    body = json.dumps({**holder, "renewed": aws.now()})
    aws.client.call("s3", HOME, "put_object", **store, Body=body)

    assert run(["image", "sweep"]) == 5
    assert "images are locked by grace on laptop, process 7" in capsys.readouterr().err
    assert run(["image", "bake", KIND]) == 5

    aws.time += VALID
    assert run(["image", "bake", KIND]) == 0
    assert aws.left() == ()


@pytest.mark.parametrize("size", [9, LARGEST + 1])
def test_an_invalid_lease_is_replaced(aws: BakeLab, here: Path, size: int) -> None:
    """What no command has written locks nothing."""
    store = {"Bucket": aws.plan.nodes_bucket(HOME).name, "Key": KEY}
    aws.client.call("s3", HOME, "put_object", **store, Body=b"{" * size)

    assert run(["image", "sweep"]) == 0
    with pytest.raises(NotThere):
        aws.client.call("s3", HOME, "head_object", **store)


def _deploy_workers(aws: BakeLab, image: str, *, is_mixed: bool) -> str:
    """Create the group of a pool of the kind in the home region, with two machines; return its name."""
    pools = next(pools for kind, pools in image_kinds(aws.plan, load_catalog()).items() if kind.name == KIND)
    group = f"lab-{next(pool.name for pool in pools if pool.region == HOME)}"
    data = {"ImageId": image, "InstanceType": "m7i.large"}
    template = {"LaunchTemplateName": group, "LaunchTemplateData": data}
    ident = aws.client.call("ec2", HOME, "create_launch_template", **template)["LaunchTemplate"]["LaunchTemplateId"]
    spec = {"LaunchTemplateId": ident, "Version": "1"}
    policy = {"LaunchTemplate": {"LaunchTemplateSpecification": spec, "Overrides": [{"InstanceType": "m7i.large"}]}}
    source = {"MixedInstancesPolicy": policy} if is_mixed else {"LaunchTemplate": spec}
    size = {"MinSize": 0, "MaxSize": 2, "DesiredCapacity": 2, "AvailabilityZones": [f"{HOME}a"]}
    aws.client.call("autoscaling", HOME, "create_auto_scaling_group", AutoScalingGroupName=group, **size, **source)
    return group


def test_a_group_whose_image_is_a_parameter_has_no_rollback(
    aws: BakeLab, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """AWS refuses a refresh with rollback if the group's own template names its image by a parameter."""
    assert run(["image", "bake", KIND]) == 0
    group = _deploy_workers(aws, aws.image_ids()[HOME], is_mixed=False)
    name = _bake_another(aws)
    # moto starts no machines from a parameter, so the template gets it after they have started.
    (template,) = ec2_backends[aws.plan.account][HOME].launch_templates.values()
    template.versions[0].data["ImageId"] = "resolve:ssm:/aws/service/canonical/ubuntu/server/24.04/stable/current"

    assert run(["image", "promote", name, "--yes", "--end-machines"]) == 0

    assert "without rollback: its old image is a parameter" in capsys.readouterr().out
    assert not aws.client.refreshes[group]["Preferences"]["AutoRollback"]


@pytest.mark.parametrize("is_mixed", [False, True])
def test_a_promoted_image_is_rolled_out_to_workers(
    aws: BakeLab, here: Path, capsys: pytest.CaptureFixture[str], *, is_mixed: bool
) -> None:
    """Named first, workers are replaced by an instance refresh with checkpoints; `rollback` of a kind ends it."""
    assert run(["image", "bake", KIND]) == 0
    group = _deploy_workers(aws, aws.image_ids()[HOME], is_mixed=is_mixed)
    name = _bake_another(aws)

    recorded = _recorded(here)
    assert run(["image", "promote", name, "--yes"]) == 2
    output, errors = capsys.readouterr()
    assert "sim in us-west-2: ends 2 running machines (local disks are lost): sim-" in output
    assert "--end-machines" in errors
    assert (_recorded(here), group in aws.client.refreshes) == (recorded, False)
    assert run(["image", "promote", name, "--yes", "--end-machines"]) == 0

    assert "replacing 2 of 2 machines, rolls back if a new one fails" in capsys.readouterr().out
    refresh = aws.client.refreshes[group]
    assert (refresh["Preferences"]["AutoRollback"], refresh["Preferences"]["CheckpointPercentages"][-1]) == (True, 100)
    desired = refresh["DesiredConfiguration"]
    launch = desired["MixedInstancesPolicy"]["LaunchTemplate"] if is_mixed else desired
    spec = launch["LaunchTemplateSpecification" if is_mixed else "LaunchTemplate"]
    assert not is_mixed or launch["Overrides"]
    query = {"LaunchTemplateId": spec["LaunchTemplateId"], "Versions": [spec["Version"]]}
    (version,) = aws.client.call("ec2", HOME, "describe_launch_template_versions", **query)["LaunchTemplateVersions"]
    assert version["LaunchTemplateData"]["ImageId"] == _recorded(here)[HOME]
    assert run(["image", "promote", name, "--yes", "--end-machines"]) == 6
    assert "a roll-out is in progress" in capsys.readouterr().err
    assert run(["image", "list"]) == 0
    assert "roll-out InProgress, 0 % replaced" in capsys.readouterr().out

    assert run(["image", "rollback", KIND]) == 0
    assert refresh["Status"] == "RollbackInProgress"


def test_an_interrupted_promotion_has_reported_what_has_begun(
    aws: BakeLab, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The roll-out of each pool is reported when AWS has begun it, so Ctrl-C at the last one hides no other."""
    assert run(["image", "bake", KIND]) == 0
    name = _bake_another(aws)
    *_, last = next(pools for kind, pools in image_kinds(aws.plan, load_catalog()).items() if kind.name == KIND)

    class Interrupted(PoolRollout):
        def start(self, image: str) -> str:
            if self.pool == last:
                raise KeyboardInterrupt
            return super().start(image)

    monkeypatch.setattr(images, "PoolRollout", Interrupted)

    assert run(["image", "promote", name]) == 130

    assert "no machine runs on another image" in capsys.readouterr().out


def test_a_failed_roll_out_is_reported(aws: BakeLab, capsys: pytest.CaptureFixture[str]) -> None:
    """The report has AWS's reason, and the command that returns to the previous image."""
    assert run(["image", "bake", KIND]) == 0
    group = _deploy_workers(aws, BASE, is_mixed=False)
    reason = "an instance failed its lifecycle hook"
    status = {"Status": "RollbackSuccessful", "PercentageComplete": 10, "StatusReason": reason}
    aws.client.refreshes[group] = status

    assert run(["image", "list"]) == 0

    assert f"RollbackSuccessful, 10 % replaced: {reason}; `bedplate image rollback KIND`" in capsys.readouterr().out


def test_debsbom_makes_the_bill_of_materials() -> None:
    """A package of dpkg's database is a component with its version, as Ubuntu's."""
    fields = {"Package": "jq", "Status": "install ok installed", "Architecture": "arm64", "Version": "1.7-1"}
    status = "".join(f"{name}: {value}\n" for name, value in {**fields, "Maintainer": "A <a@b.c>"}.items())

    document = json.loads(bill_of_materials("lab-worker", "arm64", status))

    purls = {component["purl"] for component in document["components"]}
    assert document["bomFormat"] == "CycloneDX"
    assert "pkg:deb/ubuntu/jq@1.7-1?arch=arm64" in purls


def test_without_a_bundle_or_network_nothing_starts(aws: BakeLab, capsys: pytest.CaptureFixture[str]) -> None:
    """The messages name the command that is missing."""
    aws.client.call("ssm", HOME, "delete_parameter", Name="/lab/nodes/stable")
    assert run(["image", "bake", KIND]) == 2
    assert "`bedplate bundle promote stable`" in capsys.readouterr().err
    assert run(["image", "bake", "worker-x86"]) == 2
    assert "write one of" in capsys.readouterr().err


def _bake_another(aws: BakeLab) -> str:
    """Bake the image of another bundle, and return its name."""
    # EC2 gives the time of an image in seconds.
    time.sleep(1)
    aws.bundle = "d" * 64
    value = json.dumps({"bundle": aws.bundle, "sequence": 2})
    aws.client.call("ssm", HOME, "put_parameter", Name="/lab/nodes/stable", Value=value, Overwrite=True)
    assert run(["image", "bake", KIND]) == 0
    return next(iter(by_name(images.images_of(aws.client, aws.plan))))


def test_a_rolled_back_image_stays_so_until_it_is_promoted(
    aws: BakeLab, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its recipe would give the same image, so a bake does not use it again."""
    assert run(["image", "rollback", KIND]) == 2
    assert run(["image", "bake", KIND]) == 0
    first = _recorded(here)
    assert run(["image", "rollback", KIND]) == 2
    name = _bake_another(aws)
    second = _recorded(here)

    assert run(["image", "rollback", KIND]) == 0
    assert _recorded(here) == first
    assert _published(aws, AWAY) == first[AWAY]
    assert _plan(capsys)["state"] == "withdrawn"
    assert run(["image", "bake", KIND]) == 0
    assert _recorded(here) == first

    assert run(["image", "promote", name]) == 0
    assert _recorded(here) == second
    assert _plan(capsys)["state"] == "unchanged"


def test_old_images_are_deleted_unless_they_are_in_use(aws: BakeLab, here: Path) -> None:
    """In use: by the lock, a parameter, an instance or a launch template. Snapshots go with their image."""
    assert run(["image", "bake", KIND]) == 0
    first = _recorded(here)
    name = _bake_another(aws)
    place = {"MinCount": 1, "MaxCount": 1, "InstanceType": "m7i.large"}
    instance = aws.client.call("ec2", AWAY, "run_instances", ImageId=first[AWAY], **place)["Instances"][0]["InstanceId"]

    assert run(["image", "prune", "--keep", "1"]) == 0
    assert aws.client.call("ec2", HOME, "describe_images", ImageIds=[first[HOME]])["Images"]

    aws.client.call("ec2", AWAY, "terminate_instances", InstanceIds=[instance])
    assert run(["image", "prune", "--keep", "1"]) == 0
    assert {image.name for image in images.images_of(aws.client, aws.plan)} == {name}
    assert aws.left() == ()


def test_images_are_listed_and_compared(aws: BakeLab, capsys: pytest.CaptureFixture[str]) -> None:
    """The list has age, size, regions and use; the difference names the bundles."""
    assert run(["image", "bake", KIND]) == 0
    second = _bake_another(aws)
    capsys.readouterr()

    assert run(["image", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[:2]] == ["name", second]
    assert "us-east-1, us-west-2" in lines[1]
    assert "in use in us-east-1, us-west-2" in lines[1]
    assert run(["image", "diff", lines[2].split()[0], second]) == 0
    differences = " ".join(capsys.readouterr().out.split())
    assert "package A B linux b d" in differences
    assert f"bundle {'b' * 64} {'d' * 64}" in differences
    assert "files of roles: unknown: no bundle bbbbbbbbbbbb in us-west-2" in differences
    assert run(["image", "diff", "lab-worker", second]) == 2
