"""The state of deployments: bucket and key in moto, settings files, errors of access; drift from recorded events."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import boto3
import pytest
from moto import mock_aws
from pulumi.automation.events import EngineEvent, StepEventMetadata

from bedplate.account.backend import StateStore, bucket_settings, prepare_store
from bedplate.account.client import AwsClient
from bedplate.cli import run
from bedplate.deploy.engine import Engine, access_error, check_provider, open_engine
from bedplate.deploy.progress import Difference, Operation, Progress, differences
from bedplate.errors import InputError, MachineError, PartialError
from bedplate.operate import Result, deploy, plan_of, recover
from bedplate.operate.deploy import ensure_backend
from bedplate.report.deploy import drift_lines
from tests.conftest import DATA
from tests.testlab.engine.folder import edited, make_folder
from tests.testlab.fakes.aws import StubbedSession, client_of
from tests.testlab.fakes.reports import Recorder
from tests.testlab.rehearsal.programs import EXAMPLES

ACCOUNT = "123456789012"
STORE = StateStore("lab", "head@uni.edu", ACCOUNT, "us-west-2")
KEY = f"awskms:///arn:aws:kms:us-west-2:{ACCOUNT}:alias/lab-pulumi?region=us-west-2"


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Iterator[AwsClient]:
    """Yield the client of an empty account."""
    with mock_aws():
        session = boto3.session.Session("key", "secret")
        monkeypatch.setattr("bedplate.account.client.open_session", lambda: session)
        yield AwsClient(session)


def test_bucket_and_key_are_created_once_and_their_settings_restored(client: AwsClient) -> None:
    """A second run changes nothing; a changed setting is corrected. The key is rotated each year."""
    assert "created the bucket lab-pulumi-123456789012" in list(prepare_store(client, STORE))
    assert list(prepare_store(client, STORE)) == []

    bucket = {"Bucket": STORE.bucket}
    client.call("s3", "us-west-2", "put_bucket_versioning", **bucket, VersioningConfiguration={"Status": "Suspended"})
    client.call("s3", "us-west-2", "delete_bucket_policy", **bucket)

    corrected = ["set bucket versioning of lab-pulumi-123456789012", "set bucket policy of lab-pulumi-123456789012"]
    assert list(prepare_store(client, STORE)) == corrected
    key = client.call("kms", "us-west-2", "describe_key", KeyId=STORE.alias)["KeyMetadata"]
    assert client.call("kms", "us-west-2", "get_key_rotation_status", KeyId=key["KeyId"])["KeyRotationEnabled"]
    encryption = client.call("s3", "us-west-2", "get_bucket_encryption", **bucket)["ServerSideEncryptionConfiguration"]
    assert encryption == bucket_settings(STORE, key["Arn"])["bucket_encryption"][1]


def test_a_bucket_of_another_region_and_a_disabled_key_are_refused(client: AwsClient) -> None:
    """The fixes name the region of the bucket, and the command for the key."""
    list(prepare_store(client, STORE))
    with pytest.raises(InputError, match="is in us-west-2, the home region of the fleet is us-east-1") as error:
        list(prepare_store(client, StateStore("lab", "head@uni.edu", ACCOUNT, "us-east-1")))
    assert f"s3://{STORE.bucket}?region=us-west-2" in error.value.fix
    key = client.call("kms", "us-west-2", "describe_key", KeyId=STORE.alias)["KeyMetadata"]["KeyId"]
    client.call("kms", "us-west-2", "schedule_key_deletion", KeyId=key)
    with pytest.raises(InputError, match="PendingDeletion") as error:
        list(prepare_store(client, STORE))
    assert "aws kms cancel-key-deletion" in error.value.fix


def test_a_bucket_of_another_account_is_refused() -> None:
    """S3 answers as it does without a permission; no key is created before."""
    session = StubbedSession()
    session.refuses("s3", "us-west-2", "head_bucket", "403", 403)
    with pytest.raises(InputError, match="another account owns it, or s3:ListBucket is not allowed") as error:
        list(prepare_store(client_of(session), STORE))
    assert "s3://BUCKET?region=REGION" in error.value.fix


# https://github.com/crytic/cloudexec/issues/48
_S3 = "could not list bucket: blob (code=Unknown): operation error S3: ListObjectsV2, https response error"
_S3_403 = f"{_S3} StatusCode: 403, RequestID: X, api error"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ('unable to open state directory "file:///x": stat /x: no such file or directory', "does not exist"),
        ("error listing stacks: could not list bucket: ... NoSuchBucket: The specified bucket", "does not exist"),
        ('read ".pulumi/meta.yaml": ... failed to refresh cached credentials, no EC2 IMDS role', "no AWS credentials"),
        ('read ".pulumi/meta.yaml": ... request send failed, Get "http://x": dial tcp: refused', "cannot connect"),
        ("failed to load checkpoint: ... StatusCode: 403, ... AccessDenied", "no permission for the state"),
        ("getting stack configuration: get stack secrets manager: secrets (code=Unknown): ... dial tcp", "the secrets"),
        (
            f"{_S3_403} RequestTimeTooSkewed: The difference",
            "clock of this machine",
        ),
        (
            f"{_S3_403} SignatureDoesNotMatch: The request",
            "not know the credentials",
        ),
        (f"{_S3_403} InvalidAccessKeyId: The AWS", "not know the credentials"),
        (f"{_S3_403} Forbidden: Forbidden", "no permission for the state"),
        (f"{_S3} StatusCode: 301, RequestID: X, api error PermanentRedirect: The bucket", "in another region"),
        ("failed to save snapshot: write /x/stack.json: no space left on device", "the disk is full"),
        # https://github.com/pulumi/pulumi/issues/2801, https://github.com/pulumi/pulumi/issues/19452
        (
            "failed to load checkpoint: blob (code=Unknown): ExpiredToken: The provided token",
            "credentials have expired",
        ),
        (
            "post-step event returned an error: failed to save snapshot: ... ExpiredToken: The",
            "credentials have expired",
        ),
        # https://github.com/pulumi/pulumi/issues/4679, of another cloud
        ("failed to save snapshot: ... SlowDown: Please reduce your request rate. status code: 503", "too many calls"),
        ("failed to load checkpoint: unsupported checkpoint version 9", "a newer Pulumi wrote the state"),
        ("state store unsupported: 'meta.yaml' version (7) is not supported by this version", "a newer Pulumi"),
    ],
)
def test_errors_of_the_state_have_one_sentence(text: str, what: str) -> None:
    """The texts are those of Pulumi 3.272, shortened at the dots."""
    error = access_error(f"code: 255\nstdout: \nstderr: error: {text}")
    assert error
    assert what in error.what
    assert error.fix


def test_an_error_of_a_resource_is_not_one_of_the_state() -> None:
    """The provider's errors have the same words."""
    assert access_error("error: creating S3 Bucket (x): operation error S3: CreateBucket, 403, AccessDenied") is None


def test_an_unknown_code_of_aws_keeps_its_text() -> None:
    """A refusal is not taken for a missing permission because of its status."""
    assert access_error(f"error: {_S3_403} AllAccessDisabled: All access") is None


def test_a_state_of_a_newer_clone_is_refused() -> None:
    """An older AWS provider cannot read resources that a newer one wrote."""
    deployment = {"resources": [{"type": "pulumi:providers:aws", "inputs": {"version": "7.60.0"}}]}
    check_provider("lab.shared", deployment, "7.60.0")
    with pytest.raises(MachineError, match="and this clone of bedplate has 7") as error:
        check_provider("lab.shared", deployment, "7.9.1")
    assert "git pull" in error.value.fix


# Answers from files, and makes a settings file as the real command does.
PULUMI = """#!/bin/sh
cd "$(dirname "$0")"
echo "$*" >> calls
case "$*" in
  version) echo v3.272.0 ;;
  *whoami*) [ -e login ] || { echo "error: PULUMI_ACCESS_TOKEN must be set" >&2; exit 3; }; echo '{"user": "x"}' ;;
  *"stack ls"*) cat stacks.json ;;
  *"stack export"*) cat export.json ;;
  *" up "*) echo "error: stopped by the test" >&2; exit 255 ;;
  *"stack select"*) [ -e Pulumi.$5.yaml ] || { echo "error: no stack named '$5' found" >&2; exit 255; } ;;
  *"stack init"*) echo "secretsprovider: $6" > Pulumi.$4.yaml ;;
esac
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a fleet folder with a stand-in for `pulumi`, which has no backend."""
    values = {"name: solo": "name: lab", "111122223333": ACCOUNT, "lab.example": "lab.internal"}
    files = {"fleet.yaml": edited(EXAMPLES / "minimal.yaml", values), "stacks.json": "[]", "export.json": "{}"}
    monkeypatch.delenv("PULUMI_BACKEND_URL", raising=False)
    return make_folder(tmp_path, monkeypatch, PULUMI, files)


def test_an_answer_that_is_no_json_is_an_error(folder: Path) -> None:
    """A wrapper of pulumi may print a warning first."""
    (folder / "login").touch()
    (folder / "pulumi").write_text(PULUMI.replace('echo \'{"user": "x"}\'', "echo 'new version'"))
    with pytest.raises(MachineError, match="pulumi printed 'new version"):
        open_engine(folder).has_login()


STACK = {"urn": "urn:pulumi:lab.shared::bedplate::pulumi:pulumi:Stack::bedplate", "type": "pulumi:pulumi:Stack"}


def stacks(folder: Path, *names: str) -> None:
    """Put stacks with resources into the backend of the stand-in."""
    rows = [{"name": name, "current": False, "resourceCount": 9} for name in names]
    (folder / "stacks.json").write_text(json.dumps(rows))
    (folder / "export.json").write_text(json.dumps({"version": 3, "deployment": {"resources": [STACK]}}))


@pytest.mark.usefixtures("client")
def test_init_records_the_bucket_and_creates_every_stack(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """New stacks get the key by an option: Pulumi ignores `secretsprovider` of a file. A second run does nothing."""
    assert run(["backend", "init"]) == 0
    assert f'url: "{STORE.url}"' in (folder / "Pulumi.yaml").read_text()
    calls = (folder / "calls").read_text()
    assert f"stack init lab.us-west-2 --secrets-provider {KEY}" in calls
    assert "config set bedplate:fleet --plaintext --stack lab.us-west-2 --non-interactive -- fleet.yaml" in calls

    stacks(folder, "lab.shared", "lab.us-west-2")
    capsys.readouterr()
    assert run(["backend", "init"]) == 0
    assert capsys.readouterr().out == "nothing to do\n"
    assert run(["backend", "init", "--json"]) == 0
    output, errors = capsys.readouterr()
    assert json.loads(output) == {"changes": []}
    assert errors.endswith("nothing to do\n")
    assert run(["backend", "init", "--file", "state"]) == 2
    assert f"the state is in {STORE.url} already" in capsys.readouterr().err


def test_a_file_backend_needs_a_passphrase(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is written without one. A folder inside the fleet folder has a relative URL."""
    before = (folder / "Pulumi.yaml").read_text()
    assert run(["backend", "init", "--file", "state"]) == 4
    assert "PULUMI_CONFIG_PASSPHRASE" in capsys.readouterr().err
    assert (folder / "Pulumi.yaml").read_text() == before

    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "correct horse")
    assert run(["backend", "init", "--file", "state"]) == 0
    assert (folder / "Pulumi.yaml").read_text() == f'{before}backend:\n  url: "file://./state"\n'


def test_a_deployed_fleet_keeps_the_backend_of_the_login(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In a new backend `up` would create everything again. A lost settings file changes nothing about that."""
    (folder / "login").touch()
    stacks(folder, "lab.shared")

    assert run(["backend", "init"]) == 2

    assert "the state of lab is in the backend of your `pulumi login`" in capsys.readouterr().err
    assert "backend" not in (folder / "Pulumi.yaml").read_text()


@pytest.mark.parametrize(
    ("provider", "settings"),
    [
        ({"type": "passphrase", "state": {"salt": "v1:x"}}, 'encryptionsalt: "v1:x"\n'),
        ({"type": "service", "state": {}}, ""),
        (
            {"type": "cloud", "state": {"url": KEY, "encryptedkey": "YQ=="}},
            f'secretsprovider: "{KEY}"\nencryptedkey: "YQ=="\n',
        ),
    ],
)
def test_a_lost_settings_file_is_restored_from_the_state(
    folder: Path, monkeypatch: pytest.MonkeyPatch, provider: object, settings: str
) -> None:
    """Pulumi would write one with another key."""
    monkeypatch.setenv("PULUMI_BACKEND_URL", "s3://mine")
    stacks(folder, "lab.shared", "lab.us-west-2")
    (folder / "Pulumi.lab.us-west-2.yaml").write_text("kept: true\n")
    (folder / "export.json").write_text(json.dumps({"version": 3, "deployment": {"secrets_providers": provider}}))

    assert run(["backend", "init"]) == 0

    assert (folder / "Pulumi.lab.shared.yaml").read_text() == f"{settings}config:\n  bedplate:fleet: fleet.yaml\n"
    assert (folder / "Pulumi.lab.us-west-2.yaml").read_text() == "kept: true\n"
    assert "stack init" not in (folder / "calls").read_text()


def test_a_stack_of_a_new_region_gets_the_key_of_the_others(folder: Path) -> None:
    """`up` creates it; Pulumi's default is a passphrase."""
    (folder / "Pulumi.lab.shared.yaml").write_text(f"secretsprovider: {KEY}\n")

    with pytest.raises(PartialError, match="stopped by the test"):
        open_engine(folder).run("lab.eu-north-1", Operation.UP, lambda _event: None)

    assert f"stack init lab.eu-north-1 --secrets-provider {KEY}" in (folder / "calls").read_text()


@pytest.mark.usefixtures("client")
def test_up_asks_before_it_makes_a_backend(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a terminal and without --yes it stops."""
    assert run(["plan", "--write"]) == 0
    operator = Recorder(folder / "fleet.yaml")
    plan = plan_of(operator)

    with pytest.raises(InputError, match="create the bucket lab-pulumi-123456789012"):
        ensure_backend(operator, plan)
    (folder / "login").touch()
    ensure_backend(operator, plan)
    capsys.readouterr()


def events() -> list[EngineEvent]:
    """Return the recorded events of a preview of a refresh: a changed tag, a new tag and a deleted parameter."""
    lines = (DATA / "engine/drift.jsonl").read_text().splitlines()
    return [EngineEvent.from_json(json.loads(line)) for line in lines]


@pytest.fixture
def drifted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Operation]]:
    """Return the operations that the engine runs; a check of lab.shared replays the recorded events."""
    operations: list[tuple[str, Operation]] = []

    def replay(_engine: Engine, stack: str, operation: Operation, watch: Callable[[EngineEvent], object]) -> None:
        operations.append((stack, operation))
        for event in events() if stack == "lab.shared" else ():
            watch(event)

    stacks(folder, "lab.shared", "lab.us-west-2")
    for stack in ("lab.shared", "lab.us-west-2"):
        (folder / f"Pulumi.{stack}.yaml").touch()
    monkeypatch.setattr(Engine, "run", replay)
    for module in (deploy, recover):
        monkeypatch.setattr(module, "open_account", lambda _plan: None)
    return operations


def test_check_shows_what_differs_and_changes_nothing(
    drifted: list[tuple[str, Operation]], capsys: pytest.CaptureFixture[str]
) -> None:
    """One row for each property; a resource that AWS no longer has is one row."""
    assert run(["refresh", "--check", "--junit", "drift.xml"]) == 3

    assert [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()] == [
        "stack resource key recorded value real value",
        "lab.shared aws:ssm/parameter:Parameter lab-domain - /lab/domain deleted",
        "lab.shared aws:ec2/vpc:Vpc lab tags.extra - x",
        "lab.shared aws:ec2/vpc:Vpc lab tags.owner head@uni.edu nobody",
        "3 differences",
    ]
    assert {operation for _, operation in drifted} == {Operation.CHECK}
    assert Path("drift.xml").read_text().count("<failure") == 1
    assert run(["refresh", "--check", "--stack", "us-west-2"]) == 0
    assert capsys.readouterr().out == "no drift\n"


def test_refresh_adopts_after_a_confirmation(
    drifted: list[tuple[str, Operation]], capsys: pytest.CaptureFixture[str]
) -> None:
    """Only the stacks that differ."""
    assert run(["refresh"]) == 2
    assert "add --yes" in capsys.readouterr().err
    drifted.clear()
    assert run(["refresh", "--yes"]) == 0
    assert drifted[2:] == [("lab.shared", Operation.REFRESH)]
    assert run(["refresh", "--json"]) == 2


@pytest.mark.usefixtures("drifted")
@pytest.mark.parametrize(("part", "status"), [("us-west-2", 6), ("shared", 3)])
def test_nodes_are_audited_too(monkeypatch: pytest.MonkeyPatch, part: str, status: int) -> None:
    """The exit status is 3 for drift anywhere, else that of the audit."""
    monkeypatch.setattr(
        "bedplate.operate.apply.audit", lambda operator: Result((), status=6 if operator.fleet.is_file() else 0)
    )
    assert run(["refresh", "--check", "--nodes", "--stack", part]) == status


def test_secrets_are_not_shown() -> None:
    """The engine masks them; their mark is not a value."""
    urn = "urn:pulumi:lab.shared::bedplate::aws:ssm/parameter:Parameter::lab-domain"
    secret = {"4dabf18193072939515e22adb298388d": "1b47061264138c4ac30d75fd1eb44270", "ciphertext": "[secret]"}
    document = {"op": "update", "urn": urn, "detailedDiff": {"value": {"diffKind": "update"}}}
    states = {key: {"inputs": {"value": secret}} for key in ("old", "new")}
    drift = list(differences(StepEventMetadata.from_json({**document, **states})))
    assert drift == [Difference(urn, "value", "[secret]", "[secret]")]


def test_a_difference_without_two_values_is_named() -> None:
    """The provider reports a tag that AWS does not return, with the recorded value on both sides."""
    state = Progress("lab.shared", Operation.CHECK)
    drift = Difference("urn:pulumi:lab.shared::bedplate::aws:s3/bucket:Bucket::data", "tags", "a", "a")

    (_, row, _) = drift_lines([replace(state, differences=(drift,))])

    assert row.endswith("a                missing, or not shown")
