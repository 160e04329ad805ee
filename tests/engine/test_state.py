"""State and drift with Pulumi's real engine: bucket, key, settings files, refresh. Skipped without `pulumi` on PATH."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from bedplate.cli import run
from bedplate.rehearsal.simulation import Aws
from tests.engine.test_deploy import bedplate
from tests.testlab.engine.lab import empty_account, init_fleet


@pytest.fixture
def aws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Aws]:
    """Return an empty AWS account; Pulumi has no backend. A new fleet folder is the current folder."""
    with empty_account(tmp_path, monkeypatch) as account:
        init_fleet(tmp_path / "mylab", "minimal", monkeypatch)
        yield account


def test_state_lives_in_a_bucket_and_drift_is_found_and_adopted(aws: Aws, capsys: pytest.CaptureFixture[str]) -> None:
    """`up` makes the bucket, the key and the settings; a lost settings file is restored, and no drift is reported."""
    lines = bedplate(capsys, "up", "--yes")
    assert "created the bucket mylab-pulumi-210987654321" in lines
    assert lines[-2:] == ["mylab.shared up done 26", "mylab.us-west-2 up done 82"]
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
    differences = {stack: check["differences"] for stack, check in document["stacks"].items()}
    assert [(row["resource"], row["key"], row["real"]) for row in differences["mylab.shared"]] == [
        ("aws:ssm/parameter:Parameter mylab-domain", "", None)
    ]
    assert [(row["key"], row["recorded"], row["real"]) for row in differences["mylab.us-west-2"]] == [
        ("tags.owner", "head@uni.edu", "nobody")
    ]
    assert Path("drift.xml").read_text().count("<failure") == 2

    assert bedplate(capsys, "refresh", "--yes")[-2:] == [
        "mylab.shared refresh done 1",
        "mylab.us-west-2 refresh done 1",
    ]
    assert bedplate(capsys, "refresh", "--check") == ["no drift"]
    assert bedplate(capsys, "up", "--yes")[-2:] == ["mylab.shared up done 1", "mylab.us-west-2 up done 1"]
