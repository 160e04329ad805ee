"""Node bundles: archives, wheels, and the buckets and rings of an account in moto. pip is a fake, but for one wheel."""

import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from io import BytesIO
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ConnectTimeoutError
from moto import mock_aws

import bedplate.bundle
from bedplate.account.client import AwsClient
from bedplate.account.machines import LiveMachine
from bedplate.bundle import (
    ENTRIES,
    BundleTarget,
    Cache,
    RingState,
    Source,
    build_bundle,
    code_files,
    contents,
    hash_of,
    install,
    next_state,
    pack,
    pack_wheels,
    targets,
    user_cache,
)
from bedplate.cli import run
from bedplate.cli.options import Terminal
from bedplate.errors import InputError, MachineError
from bedplate.operate import bundle as commands
from bedplate.operate import plan_of
from bedplate.operate.bundle import deliver_bundle, deliver_to_new_region
from bedplate.plan import FleetPlan
from bedplate.plan.node_document import region_documents
from bedplate.spec.groups import Ring
from tests.testlab.fakes.hostile import HOSTILE
from tests.testlab.fleets.sketch import with_group
from tests.testlab.rehearsal.programs import EXAMPLES

ROOT = Path(bedplate.bundle.__file__).parents[1]
X86 = BundleTarget("3.12", "x86_64")
REGIONS = ("us-west-2", "us-east-1", "eu-north-1")
Printed = pytest.CaptureFixture[str]


@dataclass
class Wheels:
    """A fake of pip: it unpacks one package, and counts its runs."""

    runs: list[str] = field(default_factory=list)

    def __call__(self, target: BundleTarget, lock: Path, folder: Path) -> None:
        """Unpack the package, with files that no node needs."""
        self.runs.append(target.name)
        for name in (
            *("demo/__init__.py", "demo-1.0.dist-info/METADATA", "demo-1.0.dist-info/RECORD", "bin/demo"),
            *("gevent/tests/a.py", "demo/__pycache__/a.pyc"),
        ):
            file = folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(lock.read_bytes())


def test_an_archive_depends_only_on_paths_contents_and_programs(tmp_path: Path) -> None:
    """Not on times, owners, or the order of the files."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        for file in ("b", "a"):
            (tmp_path / name / file).write_text(file)
    (tmp_path / "two/a").chmod(0o600)
    os.utime(tmp_path / "two/a", (1, 1))

    first = pack(Source(tmp_path / "one", ("a", "b"), "x/"))

    assert pack(Source(tmp_path / "two", ("b", "a"), "x/")) == first
    (tmp_path / "two/a").chmod(0o700)
    assert pack(Source(tmp_path / "two", ("b", "a"), "x/")) != first
    with tarfile.open(fileobj=BytesIO(first)) as archive:
        entries = archive.getmembers()
    assert [(entry.name, entry.mtime, entry.uid, entry.mode) for entry in entries] == [
        ("x/a", 0, 0, 0o644),
        ("x/b", 0, 0, 0o644),
    ]


def test_wheels_have_no_files_that_differ_between_machines(tmp_path: Path) -> None:
    """Programs name the Python that unpacked them, and RECORD has their hashes. Tests are left out."""
    (tmp_path / "lock").write_text("demo==1.0")

    files = contents(pack_wheels(X86, tmp_path / "lock", Wheels()))

    assert {*files} == {
        "demo/__init__.py",
        "demo-1.0.dist-info/METADATA",
    }


def test_wheels_are_installed_once_for_each_lock_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A damaged archive in the cache is built again."""
    monkeypatch.setattr(bedplate.bundle, "code_files", lambda _root: ("roles/__init__.py",))
    lock, cache, pip = tmp_path / "lock", Cache(tmp_path / "cache"), Wheels()
    lock.write_text("demo==1.0")

    first = build_bundle(cache, unpack=pip, lock=lock)

    assert build_bundle(cache, unpack=pip, lock=lock) == first
    assert sorted(pip.runs) == ["cp312-aarch64", "cp312-x86_64"]
    lock.write_text("demo==1.1")
    assert build_bundle(cache, unpack=pip, lock=lock).hash != first.hash
    lock.write_text("demo==1.0")
    (cache.folder / "blobs" / first.wheels["cp312-x86_64"]).write_bytes(b"damaged")
    assert build_bundle(cache, (X86,), unpack=pip, lock=lock).wheels == {"cp312-x86_64": first.wheels["cp312-x86_64"]}
    assert len(pip.runs) == 5


def test_the_code_of_a_bundle_is_complete(tmp_path: Path) -> None:
    """Roles, compliance rules and the controllers on members import only what a node gets: neither typer nor rich.

    The roles of every document read no facts but the list of GPUs: others may be those of one operator's account.
    """
    files = tuple(code_files(ROOT))
    with tarfile.open(fileobj=BytesIO(pack(Source(ROOT, files)))) as archive:
        archive.extractall(tmp_path, filter="data")
    plan = plan_of(Terminal(EXAMPLES / "lab.yaml"))
    documents = [
        text for region in REGIONS for text in region_documents(plan, region, Ring.STABLE, plan.catalog).values()
    ]
    (tmp_path / "documents.json").write_text(json.dumps(documents))
    command = (
        f"import roles.engine.node_run, roles.catalog, bedplate.compliance.conftest, {', '.join(ENTRIES)}; "
        "import json, sys; from bedplate.plan.node_document import read_node_document; "
        "[roles.catalog.roles_of(read_node_document(text)) for text in json.load(open('documents.json'))]; "
        "print({*sys.modules} & {'typer', 'rich'})"
    )

    result = subprocess.run([sys.executable, "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False)

    assert (result.returncode, result.stdout) == (0, "set()\n"), result.stderr
    assert {"bedplate/catalog/data/gpus.txt", "roles/hardened/sudoers", "bedplate/programs/gate/smi.txt"} <= {*files}
    assert [file for file in files if file.startswith("bedplate/catalog/data/")] == ["bedplate/catalog/data/gpus.txt"]
    assert not [file for file in files if file.endswith(".pyc") or file.startswith("bedplate/rehearsal/")]


def test_files_on_machines_start_only_names_that_every_bundle_has() -> None:
    """A machine with files of an earlier bundle starts the current one by the same names."""
    files = (*(ROOT / "roles").rglob("*"), ROOT / "bedplate/nodes/bootstrap.sh")
    texts = [file.read_text(encoding="utf-8") for file in files if file.is_file() and file.suffix != ".pyc"]
    named = {name for text in texts for name in re.findall(r"\bbedplate\.machine(?:\$\{STAGE:\+)?[.\w]*", text)}

    assert {name.replace("${STAGE:+", "") for name in named} | {"bedplate.machine"} == set(ENTRIES)
    assert not [text for text in texts if re.search(r"-m bedplate\.(?!machine)", text)]


def test_pip_installs_wheels_of_another_platform(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real pip, without an index: the hash of the lock file must match. An error names the target."""
    wheel = tmp_path / "demo-1.0-cp312-cp312-manylinux_2_28_aarch64.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("demo.py", "")
        archive.writestr("demo-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n")
        archive.writestr("demo-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: false\n")
        archive.writestr("demo-1.0.dist-info/RECORD", "")
    lock = tmp_path / "lock"
    lock.write_text(f"demo==1.0 --hash=sha256:{hash_of(wheel.read_bytes())}\n")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))

    assert "demo.py" in contents(pack_wheels(BundleTarget("3.12", "aarch64"), lock, install))
    with pytest.raises(MachineError, match=r"wheels for cp312-x86_64: No matching distribution found for demo==1\.0"):
        pack_wheels(X86, lock, install)


def test_a_python_that_the_lock_does_not_cover_is_refused() -> None:
    """The default is that of Ubuntu 24.04, on both architectures."""
    assert [target.name for target in targets(("3.11",))][2:] == ["cp311-x86_64", "cp311-aarch64"]
    with pytest.raises(InputError, match=r"invalid Python version 3\.9"):
        targets(("3.9",))


A, B = RingState("a", 4), RingState("b", 4)


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ((None, None), RingState("a", 1)),
        ((B, B), RingState("a", 5)),
        ((A, A), A),
        ((A, None), A),
        ((A, RingState("b", 3)), A),
        ((A, RingState("b", 5)), RingState("a", 6)),
        ((A, B), RingState("a", 5)),
    ],
)
def test_a_sequence_rises_over_that_of_every_region(states: tuple[RingState | None, ...], expected: RingState) -> None:
    """A repeated promotion completes an interrupted one with the same sequence."""
    assert next_state(states, "a") == expected


class _Unreachable:
    def __getattr__(self, operation: str) -> Any:  # noqa: ANN401  any operation of a client
        raise ConnectTimeoutError(endpoint_url="https://aws")


@dataclass
class Account:
    """A boto3 session over moto; regions that are `down` do not answer."""

    plan: FleetPlan
    file: Path
    down: set[str] = field(default_factory=set)
    region_name: str | None = None

    def client(self, service_name: str, *, region_name: str, config: Config) -> Any:  # noqa: ANN401, ARG002
        """Return a client of moto."""
        return _Unreachable() if region_name in self.down else boto3.client(service_name, region_name)

    def keys(self, region: str, folder: str) -> list[str]:
        """Return the keys of the objects in a folder of a region's bucket."""
        reply = boto3.client("s3", region).list_objects_v2(Bucket=self.plan.nodes_bucket(region).name, Prefix=folder)
        return [item["Key"] for item in reply.get("Contents", [])]

    def ring(self, region: str, ring: str) -> dict[str, Any] | None:
        """Return the value of a ring's parameter."""
        reply = boto3.client("ssm", region).get_parameters(Names=[f"/lab/nodes/{ring}"])["Parameters"]
        return json.loads(reply[0]["Value"]) if reply else None

    def report(self, instance: str, **status: object) -> None:
        """Write the status of an instance."""
        document = {"sentence": "", "time": 1, **status}
        self.write(f"status/AROA:{instance}/run.json", json.dumps(document).encode())

    def write(self, key: str, text: bytes) -> None:
        """Write an object as a machine does."""
        bucket = self.plan.nodes_bucket("us-west-2").name
        boto3.client("s3", "us-west-2").put_object(Bucket=bucket, Key=key, Body=text)


@pytest.fixture
def account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Account]:
    """Yield the deployed lab, and a small bundle in the cache; the fleet file is in the current folder."""
    file = tmp_path / "fleet.yaml"
    text = (EXAMPLES / "lab.yaml").read_text(encoding="utf-8").replace("111122223333", "123456789012")
    file.write_text(text.replace("  workbench-cpu:\n", "  workbench-cpu:\n    ring: canary\n"), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(bedplate.bundle, "code_files", lambda _root: ("roles/__init__.py", "roles/base.py"))
    build_bundle(user_cache(), unpack=Wheels())
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "key")
    with mock_aws():
        account = Account(plan_of(Terminal(file)), file)
        monkeypatch.setattr("bedplate.account.client.open_session", lambda: account)
        for region in REGIONS:
            settings = {"CreateBucketConfiguration": {"LocationConstraint": region}} if region != "us-east-1" else {}
            boto3.client("s3", region).create_bucket(Bucket=account.plan.nodes_bucket(region).name, **settings)
        yield account


def change_code(monkeypatch: pytest.MonkeyPatch) -> str:
    """Change the code of the installation; return the hash of its bundle."""
    monkeypatch.setattr(bedplate.bundle, "code_files", lambda _root: ("roles/__init__.py", "roles/system.py"))
    return build_bundle(user_cache()).hash


def test_push_uploads_what_is_missing_to_every_region(account: Account, capsys: Printed) -> None:
    """A manifest names the archives. Nodes of a ring without a bundle get their documents."""
    assert run(["bundle", "push"]) == 0

    bundle = build_bundle(user_cache())
    for region in REGIONS:
        assert {*account.keys(region, "blobs/")} == {f"blobs/{name}" for name in bundle.blobs}
        assert account.keys(region, "bundles/") == [f"bundles/{bundle.hash}.json"]
    assert "nodes/control-1.us-west-2.json" in account.keys("us-west-2", "nodes/")
    assert "us-west-2: bundle" in capsys.readouterr().out
    assert run(["bundle", "push"]) == 0
    assert ", 0 archives uploaded" in capsys.readouterr().out


def test_documents_of_a_ring_wait_for_its_bundle(account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    """The code that machines of a ring run may not read documents of other code."""
    key = {"Bucket": account.plan.nodes_bucket("us-west-2").name, "Key": "nodes/control-1.us-west-2.json"}
    s3 = boto3.client("s3", "us-west-2")
    assert run(["bundle", "push"]) == run(["bundle", "promote", "stable", build_bundle(user_cache()).hash]) == 0
    s3.put_object(**key, Body=b"old")
    bundle = change_code(monkeypatch)

    assert run(["bundle", "push"]) == 0
    assert s3.get_object(**key)["Body"].read() == b"old"
    assert run(["bundle", "promote", "stable", bundle]) == 0
    assert s3.get_object(**key)["Body"].read() != b"old"


def test_promote_list_and_diff(account: Account, monkeypatch: pytest.MonkeyPatch, capsys: Printed) -> None:
    """A promoted bundle has the same sequence in all regions; a second promotion changes nothing."""
    first = build_bundle(user_cache()).hash
    assert run(["bundle", "push"]) == run(["bundle", "promote", "canary"]) == 0
    assert {str(account.ring(region, "canary")) for region in REGIONS} == {str({"bundle": first, "sequence": 1})}
    capsys.readouterr()

    assert run(["bundle", "promote", "canary", first[:8]]) == 0
    assert f"canary already follows {first[:12]}: nothing to do" in capsys.readouterr().out

    assert run(["bundle", "diff", "canary"]) == 0
    assert capsys.readouterr().out == "no differences\n"

    change_code(monkeypatch)
    assert run(["bundle", "diff", "canary"]) == 0
    assert capsys.readouterr().out == "removed   roles/base.py\nadded     roles/system.py\n"
    assert run(["bundle", "push"]) == run(["bundle", "promote", "canary"]) == 0
    assert run(["bundle", "promote", "canary", first]) == 0
    capsys.readouterr()

    assert run(["bundle", "list", "--json"]) == 0
    rings = json.loads(capsys.readouterr().out)["rings"]
    assert [(row["bundle"], row["sequence"]) for row in rings if row["ring"] == "canary"] == [(first, 3)] * 3
    assert {row["bundle"] for row in rings if row["ring"] == "stable"} == {None}
    assert run(["bundle", "list"]) == 0
    assert f"canary   us-west-2    {first[:12]}          3" in capsys.readouterr().out


def test_a_region_that_does_not_answer_gets_the_bundle_by_the_same_command(account: Account, capsys: Printed) -> None:
    """Status 6 lists the region; the other regions keep their sequence."""
    assert run(["bundle", "push"]) == 0
    account.down.add("us-east-1")

    assert run(["bundle", "promote", "canary"]) == 6
    errors = capsys.readouterr().err
    assert "us-east-1: cannot connect to s3" in errors
    assert "run `bedplate bundle promote canary" in errors
    account.down.update(REGIONS)
    assert run(["bundle", "list"]) == 4
    account.down.clear()
    assert run(["bundle", "promote", "canary"]) == 0
    assert {account.ring(region, "canary")["sequence"] for region in REGIONS} == {1}  # type: ignore[index]


def test_a_bundle_that_a_region_lacks_is_not_promoted(account: Account, capsys: Printed) -> None:
    """Nothing is changed, in no region."""
    account.down.add("us-east-1")
    assert run(["bundle", "push"]) == 6
    account.down.clear()

    assert run(["bundle", "promote", "canary"]) == 2
    assert "is not in us-east-1" in capsys.readouterr().err
    assert run(["bundle", "promote", "canary", "f" * 64]) == 2
    assert "no bundle fff" in capsys.readouterr().err
    assert run(["bundle", "diff", "beta"]) == 2
    assert "beta is neither a ring nor a hash" in capsys.readouterr().err
    assert [account.ring(region, "canary") for region in REGIONS] == [None] * 3


def test_a_region_that_is_not_deployed_names_the_command(account: Account, capsys: Printed) -> None:
    """Its bucket does not exist yet."""
    boto3.client("s3", "eu-north-1").delete_bucket(Bucket=account.plan.nodes_bucket("eu-north-1").name)

    assert run(["bundle", "push"]) == 6
    assert "`bedplate up --stack eu-north-1`" in capsys.readouterr().err


def test_a_promotion_of_somebody_else_is_reported(account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    """SSM has no conditional write: the number of the new version shows it."""
    assert run(["bundle", "push"]) == 0
    ssm = boto3.client("ssm", "us-west-2")

    def interfere(store: Any, _ring: Ring) -> None:  # noqa: ANN401  a store of documents
        if store.region == "us-west-2":
            ssm.put_parameter(Name="/lab/nodes/canary", Value='{"bundle": "b", "sequence": 1}', Type="String")

    monkeypatch.setattr(commands, "_write_documents", interfere)
    assert run(["bundle", "promote", "canary"]) == 6
    assert account.ring("eu-north-1", "canary") is not None


@pytest.mark.parametrize("words", [["push"], ["promote", "canary"], ["list"], ["diff", "stable"]])
def test_without_credentials_the_status_is_4(words: list[str], lab: Path, capsys: Printed) -> None:
    """Nothing is built or uploaded."""
    assert run(["bundle", *words, "--fleet", str(lab)]) == 4
    assert "no AWS credentials found" in capsys.readouterr().err


MACHINE = LiveMachine(
    "i-1", "workbench-cpu", "workbench-cpu-us-west-2", "us-west-2", "us-west-2a", "m7i.large", "InService", None
)


@pytest.fixture
def canaries(account: Account, monkeypatch: pytest.MonkeyPatch) -> list[LiveMachine]:
    """Return the running machines of the ring `canary`; a bundle is promoted in both rings."""
    machines: list[LiveMachine] = []
    results = type("Results", (), {"successes": {"us-west-2": machines}, "failures": {}})()
    monkeypatch.setattr(commands, "read_pool_machines", lambda _client, _plan, _pools, _claims: results)
    assert deliver_bundle(Terminal(account.file), account.plan, AwsClient(account)) == []
    machines.append(MACHINE)
    return machines


@pytest.mark.usefixtures("canaries")
def test_up_promotes_to_stable_when_every_canary_machine_has_passed(
    account: Account, monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    """A machine that has not run the bundle holds it back without an error, a failed one with its sentence."""
    old, client = account.ring("us-west-2", "stable"), AwsClient(account)
    bundle = change_code(monkeypatch)

    account.report("i-1", bundle="another", ok=True)
    assert deliver_bundle(Terminal(account.file), account.plan, client) == []
    assert "not yet run on i-1" in capsys.readouterr().err
    account.report("i-1", bundle=bundle, ok=False, sentence="role people failed")
    assert "failed on canary" in str(deliver_bundle(Terminal(account.file), account.plan, client))
    assert "i-1 (canary) failed: role people failed" in capsys.readouterr().err
    assert run(["bundle", "promote", "stable"]) == 3
    assert account.ring("us-west-2", "stable") == old

    account.report("i-1", bundle=bundle, ok=True)
    assert deliver_bundle(Terminal(account.file), account.plan, client) == []
    assert account.ring("us-west-2", "stable") == {"bundle": bundle, "sequence": 2}


def test_a_new_region_gets_a_bundle_as_soon_as_its_stack_is_there(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rings follow this installation, with the sequence that the whole delivery continues; others stay."""
    client, first = AwsClient(account), build_bundle(user_cache()).hash
    deliver_to_new_region(account.plan, client, "us-west-2")
    assert account.ring("us-west-2", "stable") == account.ring("us-west-2", "canary")
    assert account.ring("us-west-2", "stable") == {"bundle": first, "sequence": 1}
    assert "nodes/control-1.us-west-2.json" in account.keys("us-west-2", "nodes/")

    second = change_code(monkeypatch)
    for region in ("us-west-2", "eu-north-1"):
        deliver_to_new_region(account.plan, client, region)

    assert account.ring("us-west-2", "stable") == {"bundle": first, "sequence": 1}
    assert account.ring("eu-north-1", "stable") == {"bundle": second, "sequence": 2}
    assert account.keys("eu-north-1", "bundles/") == [f"bundles/{second}.json"]


@pytest.mark.usefixtures("canaries")
def test_one_hostile_status_is_one_failed_machine(account: Account, capsys: Printed) -> None:
    """`bundle promote stable` names the machine; a key further below its folder is no status of it."""
    for text in HOSTILE.values():
        account.write("status/AROA:i-1/run.json", text)
        assert run(["bundle", "promote", "stable"]) == 3
        assert "i-1 (canary) failed: unreadable status" in capsys.readouterr().err
    account.report("i-1", bundle=str((account.ring("us-west-2", "canary") or {})["bundle"]), ok=True)
    account.write("status/AROA:i-1/z/run.json", b"{}")
    assert run(["bundle", "promote", "stable"]) == 0


def test_without_canary_groups_up_promotes_to_both_rings(account: Account) -> None:
    """Also the first bundle of a fleet, which no machine can have run."""
    plan = replace(account.plan, pools=tuple(with_group(pool, ring=Ring.STABLE) for pool in account.plan.pools))

    assert deliver_bundle(Terminal(account.file), plan, AwsClient(account)) == []
    assert account.ring("eu-north-1", "stable") == account.ring("eu-north-1", "canary")


def test_a_machine_of_a_site_fetches_from_its_folder(account: Account, tmp_path: Path, capsys: Printed) -> None:
    """`--folder` writes what the bootstrap script needs to configure a machine without a network path to AWS."""
    python = "{}.{}".format(*sys.version_info)
    build_bundle(user_cache(), targets((python,)), unpack=Wheels())
    words = [
        "node",
        "bootstrap",
        "titan-01.cellar",
        "--folder",
        "stick",
        "--python",
        python,
        "--fleet",
        str(account.file),
    ]

    assert run(words) == 0
    assert "as root: `bash titan-01.sh`" in capsys.readouterr().out
    fetched = subprocess.run(
        ["bash", "stick/titan-01.sh", "fetch"], env={**os.environ, "ROOT": str(tmp_path / "root")}, check=False
    )

    assert fetched.returncode == 0
    document = json.loads((tmp_path / "root/var/lib/bedplate/document.json").read_text())
    assert document["node"]["name"] == "titan-01.cellar"
    assert (tmp_path / "root/opt/bedplate/current/code/roles/base.py").exists()
    assert (tmp_path / "root/opt/bedplate/current/wheels/demo/__init__.py").exists()
    assert run(words) == 2
    assert "is not an empty folder" in capsys.readouterr().err


def test_user_data_of_a_folder_runs_the_script_of_its_seed(account: Account, tmp_path: Path) -> None:
    """cloud-init runs it from another folder; without a disk of the label, the seed of the image has the script."""
    assert run(["node", "bootstrap", "titan-01.cellar", "--folder", "stick", "--fleet", str(account.file)]) == 0
    text = (tmp_path / "stick/user-data").read_text().replace("/var/lib/cloud/seed/nocloud", str(tmp_path / "stick"))
    (tmp_path / "stick/titan-01.sh").write_text("echo ran")
    (tmp_path / "blkid").write_text("#!/bin/sh\nexit 2\n")
    (tmp_path / "blkid").chmod(0o755)

    path = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", text], env=path, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout) == (0, "ran\n"), done.stderr


@pytest.mark.usefixtures("account")
def test_a_build_reports_what_takes_minutes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A line on stderr for each download; packages in the cache need none."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "empty"))
    monkeypatch.setattr("bedplate.operate.bundle.install", Wheels())

    assert run(["bundle", "build"]) == 0
    assert "cp312-x86_64: download packages" in capsys.readouterr().err
    assert run(["bundle", "build"]) == 0

    assert capsys.readouterr().err == ""
