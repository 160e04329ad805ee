"""State and drift with Pulumi's real engine: bucket, key, settings files, refresh. Skipped without `pulumi` on PATH."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from moto.iam.access_control import PermissionResult
from moto.s3.models import FakeBucket

from bedplate.cli import run
from bedplate.rehearsal.simulation import Aws, running
from tests.engine.test_deploy import ANSWERS, bedplate
from tests.testlab.engine.command import ACCOUNT, limited_account
from tests.testlab.engine.endpoint import aws_environment
from tests.testlab.engine.lab import replace_gpus
from tests.testlab.engine.provider import start
from tests.testlab.run import need_program

REGION = "us-west-2"


@pytest.fixture
def aws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Aws]:
    """Return an empty AWS account, which the engine and its provider use; Pulumi has no backend."""
    need_program("pulumi")
    need_program("pulumi-language-python")
    # moto ignores the conditions of bucket policies: it would deny requests over TLS too.
    monkeypatch.setattr(FakeBucket, "get_permission", lambda *_: PermissionResult.NEUTRAL)
    with (
        limited_account(),
        running(ACCOUNT) as simulation,
        aws_environment(simulation.region(REGION)) as environment,
    ):
        server, port = start(simulation, 0)
        values = {
            "HOME": str(tmp_path),
            "PULUMI_HOME": str(tmp_path / "pulumi"),
            "PULUMI_DEBUG_PROVIDERS": f"aws:{port}",
        }
        for name, value in {**environment, **values}.items():
            monkeypatch.setenv(name, value)
        assert run(["init", str(tmp_path / "mylab"), "--example", "minimal", *ANSWERS]) == 0
        replace_gpus(tmp_path / "mylab" / "fleet.yaml")
        monkeypatch.chdir(tmp_path / "mylab")
        with Path("fleet.yaml").open("a") as fleet:
            fleet.write("  E418: the zones are the same in this account\n")
        yield simulation.region(REGION)
        server.stop(None)


def test_state_lives_in_a_bucket_and_drift_is_found_and_adopted(aws: Aws, capsys: pytest.CaptureFixture[str]) -> None:
    """`up` makes the bucket, the key and the settings; a lost settings file is restored, and no drift is reported."""
    lines = bedplate(capsys, "up", "--yes")
    assert "created the bucket mylab-pulumi-210987654321" in lines
    assert lines[-2:] == ["mylab.shared up done 26", "mylab.us-west-2 up done 73"]
    assert bedplate(capsys, "backend", "init") == ["nothing to do"]

    settings = Path("Pulumi.mylab.us-west-2.yaml")
    lost = settings.read_text()
    settings.unlink()
    assert run(["preview"]) == 2
    assert "run `bedplate backend init`" in capsys.readouterr().err
    assert bedplate(capsys, "backend", "init")[0] == f"restored {settings}"
    assert settings.read_text().replace('"', "").split() == lost.split()
    assert bedplate(capsys, "refresh", "--check") == ["no drift"]

    (vpc,) = (vpc for vpc in aws.call("ec2", "describe_vpcs")["Vpcs"] if not vpc["IsDefault"])
    aws.call("ec2", "create_tags", Resources=[vpc["VpcId"]], Tags=[{"Key": "owner", "Value": "nobody"}])
    aws.call("ssm", "delete_parameter", Name="/mylab/domain")

    assert run(["refresh", "--check", "--json", "--junit", "drift.xml"]) == 3
    document = json.loads(capsys.readouterr().out)
    found = {stack: check["differences"] for stack, check in document["stacks"].items()}
    assert [(row["resource"], row["key"], row["real"]) for row in found["mylab.shared"]] == [
        ("aws:ssm/parameter:Parameter mylab-domain", "", None)
    ]
    assert [(row["key"], row["recorded"], row["real"]) for row in found["mylab.us-west-2"]] == [
        ("tags.owner", "head@uni.edu", "nobody")
    ]
    assert Path("drift.xml").read_text().count("<failure") == 2

    assert bedplate(capsys, "refresh", "--yes")[-2:] == [
        "mylab.shared refresh done 1",
        "mylab.us-west-2 refresh done 1",
    ]
    assert bedplate(capsys, "refresh", "--check") == ["no drift"]
    assert bedplate(capsys, "up", "--yes")[-2:] == ["mylab.shared up done 1", "mylab.us-west-2 up done 1"]
