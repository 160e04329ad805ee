"""Backups of the hub and their restore, with a real PostgreSQL and the real copies to a folder and to a bucket."""

import hashlib
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bedplate.rehearsal.simulation import running
from tests.testlab.engine.endpoint import aws_environment
from tests.testlab.machines.hub_backup import NODE, Backups, database
from tests.testlab.network.netlab import until


@pytest.fixture(scope="module")
def socket() -> Iterator[Path]:
    """Return the folder of the socket of a PostgreSQL; its path is short, and its owner may enter it."""
    with tempfile.TemporaryDirectory(prefix="hub-") as folder, database(Path(folder)) as path:
        yield path


@pytest.fixture(params=["folder", "bucket"])
def backups(request: pytest.FixtureRequest, tmp_path: Path, socket: Path) -> Iterator[Backups]:
    """Return a hub with a run, whose backups go to a folder or to a bucket."""
    environment = {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "no_proxy": "127.0.0.1"}
    if request.param == "folder":
        (tmp_path / "other").mkdir()
        yield _started(Backups(tmp_path, socket, str(tmp_path / "other"), environment))
        return
    with running("123456789012") as simulation, aws_environment(aws := simulation.region("us-west-2")) as access:
        place = {"LocationConstraint": "us-west-2"}
        aws.call("s3", "create_bucket", Bucket="lab-hub", CreateBucketConfiguration=place)
        options = "provider=Other,env_auth=true,region=us-west-2,no_check_bucket=true"
        target = f':s3,{options},endpoint="{access["AWS_ENDPOINT_URL"]}":lab-hub'
        yield _started(Backups(tmp_path, socket, target, {**environment, **access}))


def _started(hub: Backups) -> Backups:
    hub.start()
    hub.record("one")
    return hub


in_folder = pytest.mark.parametrize("backups", ["folder"], indirect=True)


@pytest.mark.nightly
def test_a_lost_volume_comes_back_with_runs_files_and_keys(backups: Backups) -> None:
    """A new machine has new keys and no runs; the restore brings back those of the backup."""
    backups.record("two")
    backups.write("tokens/removed", "20001\n")
    name = backups.saved()
    backups.new_volume("second")

    assert f"backup {name}" in backups.facts("list")
    assert "runs 0" in backups.facts("list")
    backups.facts("restore", name)

    assert backups.runs == 2
    assert (backups.hub / "keys/tls.crt").read_text() == "first tls.crt\n"
    assert (backups.hub / "keys/tokens").read_text() == "first tokens\n"
    for folder in (backups.hub / "ssh", backups.folder / "ssh"):
        assert (folder / "ssh_host_ed25519_key").read_text() == "first host key\n"
    assert (backups.hub / "tokens/removed").read_text() == "20001\n"
    assert (backups.hub / "artifacts/packs/ada/two.pack").read_text() == "pack"
    assert (backups.folder / "systemctl").read_text().splitlines()[-1] == "start bedplate-hub mlflow nginx"


@pytest.mark.nightly
@in_folder
def test_another_machine_of_a_site_takes_over_the_folders_of_the_first(backups: Backups) -> None:
    """They have the name of the first machine, and no backup is listed before they have that of the other one."""
    name, settings = backups.saved(), backups.folder / "bedplate/hub-backup"
    settings.write_text(settings.read_text().replace(NODE, "spare.cellar"))
    backups.new_volume("second")

    assert [fact for fact in backups.facts("list") if fact.startswith("backup")] == []
    for part in ("dumps", "files"):
        (backups.folder / "other" / part / NODE).rename(backups.folder / "other" / part / "spare.cellar")
    backups.facts("restore", name)

    assert backups.runs == 1
    assert (backups.hub / "artifacts/packs/ada/one.pack").read_text() == "pack"


@pytest.mark.nightly
def test_a_changed_file_is_copied_again(backups: Backups) -> None:
    """Also one of the same size: runs replace the last part of their log."""
    backups.write("artifacts/1/a/artifacts/logs/0/0/000000", "one")
    backups.saved()
    time.sleep(1.1)
    backups.write("artifacts/1/a/artifacts/logs/0/0/000000", "two")
    name = backups.saved()
    backups.new_volume("second")

    backups.facts("restore", name)

    assert (backups.hub / "artifacts/1/a/artifacts/logs/0/0/000000").read_text() == "two"


@pytest.mark.nightly
@in_folder
def test_a_kept_volume_keeps_its_keys_its_files_and_who_was_removed(backups: Backups) -> None:
    """A key of before a rotation would accept what the rotation has ended."""
    name = backups.saved()
    backups.record("two")
    backups.record("one", "newer")
    backups.write("tokens/removed", "20000\n")
    backups.facts("rotate", "now")
    key = (backups.hub / "keys/tokens").read_text()
    (backups.folder / "ssh/ssh_host_ed25519_key").write_text("of now\n")

    backups.facts("restore", name)

    assert backups.runs == 1
    assert (backups.hub / "keys/tokens").read_text() == key != "first tokens\n"
    assert (backups.folder / "ssh/ssh_host_ed25519_key").read_text() == "of now\n"
    assert (backups.hub / "tokens/removed").read_text() == "20000\n"
    assert (backups.hub / "artifacts/packs/ada/one.pack").read_text() == "newer"


@pytest.mark.nightly
@in_folder
def test_the_records_of_before_serve_again_if_mlflow_does_not_answer(backups: Backups) -> None:
    """The restore fails, with both databases whole."""
    name = backups.saved()
    backups.record("two")
    (backups.folder / "silent").touch()

    done = backups.call("restore", name)

    assert done.returncode == 1
    assert "the records of before serve again" in done.stderr
    assert backups.runs == 2


def test_a_damaged_backup_is_refused_before_anything_stops(backups: Backups) -> None:
    """The sums are those of the night; nothing has changed on the hub."""
    name = backups.saved()
    with (backups.hub / f"dumps/nightly/{name}.dump").open("r+b") as file:
        file.truncate(100)
    backups.record("two")

    done = backups.call("restore", name)

    assert done.returncode == 1
    assert f"the backup {name} is damaged" in done.stderr
    assert backups.runs == 2
    assert not (backups.folder / "systemctl").exists()


@pytest.mark.nightly
@in_folder
def test_a_dump_that_is_cut_off_is_no_backup(backups: Backups) -> None:
    """Killed in the middle of the dump, and with a full disk: no such backup is listed, and the next one succeeds."""
    first = backups.saved()
    time.sleep(1)
    cut = backups.folder / "cut"
    cut.write_text("echo half; sleep 30")
    process = subprocess.Popen([backups.folder / "hub-backup", "save"], env=backups.environment, start_new_session=True)
    until(lambda: any((backups.hub / "dumps/nightly").glob("*.new")), 20, "no dump")
    os.killpg(process.pid, 9)
    process.wait()
    cut.write_text("echo half; echo 'No space left on device' >&2; exit 1")

    assert backups.call("save").returncode != 0

    assert (backups.hub / "dumps/failed").read_text() == "the dump of the records failed\n"
    assert [fact for fact in backups.facts("list") if fact.startswith("backup")] == [f"backup {first}"]
    cut.unlink()
    backups.saved()
    assert not (backups.hub / "dumps/failed").exists()
    assert {path.suffix for path in (backups.hub / "dumps/nightly").iterdir()} == {".dump", ".tar", ".sha256"}
    assert len(list((backups.folder / f"other/dumps/{NODE}").glob("*.sha256"))) == 2


@in_folder
def test_a_purge_leaves_nothing_of_a_run(backups: Backups) -> None:
    """Neither record, files and token, nor a backup with it: the folder of the site has none either; others stay."""
    run, other = (hashlib.md5(name.encode()).hexdigest() for name in ("one", "two"))  # noqa: S324  names of runs
    backups.record("two")
    for owner in (run, other):
        backups.write(f"artifacts/1/{owner}/artifacts/logs/0/0/000000", "secret")
        for table in ("tags", "params", "metrics", "latest_metrics"):
            backups.sql(f"insert into {table} values ('{owner}', 'key', 'secret')")  # noqa: S608  names of tests
    backups.write("dumps/former.dump", "secret")
    backups.saved()
    place = backups.folder / "other"
    known = backups.facts("leaked", run)
    assert {fact.split("/")[-1] for fact in known} == {run, f"run {run}"}
    assert len([fact for fact in known if fact.startswith("file ")]) == 2

    backups.facts("purge", run)

    assert backups.facts("leaked", run) == [f"ended run:{run}"]
    for root in (backups.hub / "artifacts", place):
        assert not [path for path in root.rglob("*") if run in path.name]
        assert [path for path in root.rglob("*") if other in path.name]
    for table in ("runs", "tags", "params", "metrics", "latest_metrics"):
        assert backups.sql(f"select run_uuid from {table}") == other  # noqa: S608  names of tests
    dumps = [*(backups.hub / "dumps").rglob("*.dump"), *(place / "dumps").rglob("*")]
    assert not [path for path in dumps if path.is_file()]


@in_folder
def test_a_purge_of_a_tree_takes_the_packs_that_need_it(backups: Backups) -> None:
    """The runs that lose their code are named before; their records and all dumps stay."""
    tree, next_tree, other = ("1" * 40, "2" * 40, "3" * 40)
    for name in (f"{tree}-0", f"{next_tree}-{tree}", f"{other}-0"):
        backups.write(f"artifacts/packs/ada/{name}.pack", "secret")
    run = backups.sql("select run_uuid from runs")
    for owner, value in ((run, next_tree), ("x", other)):
        backups.sql(f"insert into tags values ('{owner}', 'bedplate.tree', '{value}')")  # noqa: S608  names of tests
    name = backups.saved()

    known = backups.facts("leaked", tree)
    backups.facts("purge", tree)

    assert f"run {run}" in known
    assert len([fact for fact in known if fact.startswith("file ")]) == 4
    left = [path.name for path in backups.folder.rglob("*.pack") if "one" not in path.name]
    assert set(left) == {f"{other}-0.pack"}
    assert (backups.runs, backups.facts("leaked", "4" * 40)) == (1, [])
    assert (backups.hub / f"dumps/nightly/{name}.dump").exists()


DAY = 86_400
_TREES = {name: str(number) * 40 for number, name in enumerate(("old", "kept", "base", "going", "new", "next"), 1)}
_LOGS = "artifacts/logs/0/0/000000"


def old_run(backups: Backups, name: str, days: float, status: str = "FINISHED", **tags: str) -> str:
    """Record a run that started and ended so many days ago, with its logs; return its id."""
    run = hashlib.md5(name.encode()).hexdigest()  # noqa: S324  names of runs
    at = int((time.time() - days * DAY) * 1000)
    backups.sql(f"insert into runs values ('{run}', 'active', {at}, {at}, '{status}')")  # noqa: S608  names of tests
    for key, value in tags.items():
        backups.sql(f"insert into tags values ('{run}', 'bedplate.{key}', '{value}')")  # noqa: S608  names of tests
    backups.write(f"artifacts/1/{run}/{_LOGS}", "loss")
    backups.write(f"artifacts/1/{run}/artifacts/output/packs/artifacts/logs/model.pack", "model")
    return run


def age(backups: Backups) -> None:
    """Let all files and folders of the volume be of 100 days ago."""
    for path in (backups.hub / "artifacts").rglob("*"):
        os.utime(path, (time.time() - 100 * DAY,) * 2)


def left(backups: Backups) -> set[str]:
    """Return the packs, and the ids of the runs with logs, that the hub has."""
    logs = {path.parents[1].name for path in (backups.hub / "artifacts").glob("*/*/artifacts/logs")}
    return logs | {path.stem for path in (backups.hub / "artifacts/packs").rglob("*.pack")}


@in_folder
def test_only_what_older_runs_need_is_pruned(backups: Backups) -> None:
    """Runs that go on, have ended since, or have a tag that says so keep packs, base and logs; artefacts stay."""
    tree, base, files = _TREES, _TREES["base"], backups.hub / "artifacts"
    old = old_run(backups, "old", 95, state="ended", tree=tree["old"], base=base)
    kept = {
        old_run(backups, "kept", 80, state="ended", tree=tree["kept"], base=base),
        old_run(backups, "going", 99, "RUNNING", state="running", tree=tree["going"], base=tree["going"]),
        old_run(backups, "said", 99, state="running"),
    }
    packs = {f"{tree['kept']}-{base}", f"{base}-0", f"{tree['going']}-0"}
    for name in (*packs, f"{tree['old']}-{base}", "one"):
        backups.write(f"artifacts/packs/ada/{name}.pack", "12345")
    age(backups)

    until, *sizes = backups.facts("old", "90")
    assert left(backups) >= {old, *kept, *packs}
    backups.facts("prune", until.removeprefix("until "))

    assert left(backups) == {*kept, *packs}
    assert {line.partition(" ")[2] for line in sizes} == {
        f"{files}/packs/ada/{tree['old']}-{base}.pack",
        f"{files}/packs/ada/one.pack",
        f"{files}/1/{old}/artifacts/logs",
        "total",
    }
    assert len([*files.rglob("model.pack")]) == 4
    assert backups.facts("old", "90")[1:] == ["0 total"]


@in_folder
def test_a_new_pack_keeps_its_base(backups: Backups) -> None:
    """Packs travel before the record of their run; tags that are no ids keep and delete nothing else."""
    tree = _TREES
    run = old_run(backups, "odd", 0, state="ended", tree="pack", base=f"../{'9' * 40}\n")
    for name in (f"{tree['base']}-0", f"{tree['old']}-0"):
        backups.write(f"artifacts/packs/ada/{name}.pack", "12345")
    age(backups)
    backups.write(f"artifacts/packs/ada/{tree['new']}-{tree['base']}.pack", "12345")

    backups.facts("prune", backups.facts("old", "90")[0].removeprefix("until "))

    assert left(backups) == {run, f"{tree['new']}-{tree['base']}", f"{tree['base']}-0"}


@in_folder
def test_without_records_nothing_is_pruned(backups: Backups) -> None:
    """What no run seems to need may be needed by runs that the database does not answer for."""
    backups.write(f"artifacts/packs/ada/{_TREES['old']}-0.pack", "12345")
    age(backups)
    backups.sql("alter table runs rename to hidden")

    assert backups.call("old", "90").returncode != 0
    assert backups.call("prune", "1").returncode != 0
    assert backups.call("prune", "9999999999").returncode != 0

    assert left(backups) == {"one", f"{_TREES['old']}-0"}


@in_folder
def test_a_folder_that_is_not_mounted_takes_nothing(backups: Backups) -> None:
    """The dump is on the hub, and status names the copy that failed; an older success remains the last one."""
    backups.saved()
    for path in (backups.folder / "other").rglob("*.*"):
        path.unlink() if path.is_file() else None
    (backups.folder / "unmounted").touch()

    assert backups.call("save").returncode == 1

    assert not [path for path in (backups.folder / "other").rglob("*") if path.is_file()]
    facts = backups.facts("status")
    assert any(fact.startswith("fault the copy to ") for fact in facts)
    assert "fault no backup of the last two nights: see bedplate hub logs bedplate-hub-backup" not in facts


@pytest.mark.parametrize("backups", ["bucket"], indirect=True)
def test_a_bucket_that_is_away_is_a_failed_backup(backups: Backups) -> None:
    """The dump is kept on the hub, so a restore needs no bucket for it."""
    settings = backups.folder / "bedplate/hub-backup"
    settings.write_text(settings.read_text().replace(":lab-hub", ":lab-gone"))

    assert backups.call("save").returncode != 0

    assert "fault the copy to " in "".join(backups.facts("status"))
    assert len(list((backups.hub / "dumps/nightly").glob("*.sha256"))) == 1


@in_folder
def test_a_file_that_cannot_be_copied_keeps_no_records_from_the_backup(backups: Backups) -> None:
    """Dump, other files and keys are saved; the backup has failed, which `status` says."""
    backups.write("artifacts/1/a/artifacts/bad", "x")
    (backups.folder / f"other/files/{NODE}/1/a/artifacts/bad/folder").mkdir(parents=True)

    assert backups.call("save").returncode != 0

    saved = {path.name: path for path in (backups.folder / "other").rglob("*") if path.is_file()}
    assert {Path(name).suffix for name in saved} == {".dump", ".tar", ".sha256", ".pack"}
    assert any(fact.startswith("fault the copy to ") for fact in backups.facts("status"))


@in_folder
def test_no_keys_come_from_the_folder_of_a_site(backups: Backups) -> None:
    """An administrator of a machine that mounts it could put own keys there, and then sign tokens of everybody."""
    name = backups.saved()
    settings = backups.folder / "bedplate/hub-backup"
    settings.write_text(settings.read_text().replace("(keys tokens ssh)", "(tokens)"))
    backups.new_volume("second")

    backups.facts("restore", name)

    assert backups.runs == 1
    assert (backups.hub / "keys/tokens").read_text() == "second tokens\n"


def test_a_hub_of_a_region_whose_fleet_json_is_old_has_a_fault(backups: Backups) -> None:
    """The hub of a region writes it every minute; that of a site gets it when a person applies a change.

    A new volume has as long for its first one.
    """
    is_of_region = not (backups.folder / "other").exists()

    def is_told() -> bool:
        return "fault fleet.json is older than 15 minutes: see bedplate hub logs bedplate-hub-fleet" in backups.facts(
            "status"
        )

    assert not is_told()
    os.utime(backups.hub / "keys/tls.crt", (1, 1))
    assert is_told() == is_of_region
    backups.write("public/fleet.json", "{}")
    assert not is_told()
    os.utime(backups.hub / "public/fleet.json", (1, 1))
    assert is_told() == is_of_region


@in_folder
def test_a_hub_without_a_backup_for_two_nights_has_a_fault(backups: Backups) -> None:
    """A new volume has as long for its first one; a newer backup ends the fault."""
    fault = "fault no backup of the last two nights: see bedplate hub logs bedplate-hub-backup"
    assert fault not in backups.facts("status")
    os.utime(backups.hub / "keys/tls.crt", (1, 1))
    assert fault in backups.facts("status")

    backups.saved()

    assert fault not in backups.facts("status")
    os.utime(backups.hub / "dumps/succeeded", (1, 1))
    assert fault in backups.facts("status")


@in_folder
def test_seven_dumps_stay_on_the_hub_and_those_of_35_days_in_the_folder(backups: Backups) -> None:
    """The oldest go; parts of one that was interrupted go too."""
    for day in range(10, 20):
        for suffix in ("dump", "tar", "sha256"):
            backups.write(f"dumps/nightly/202601{day}T020000Z.{suffix}", "")
    backups.write("dumps/nightly/20260301T020000Z.dump", "half")
    old = backups.folder / f"other/dumps/{NODE}/20260101T020000Z.dump"
    old.parent.mkdir(parents=True)
    old.touch()
    os.utime(old, (1, 1))

    name = backups.saved()

    kept = sorted(path.stem for path in (backups.hub / "dumps/nightly").glob("*.dump"))
    assert kept == [*(f"202601{day}T020000Z" for day in range(14, 20)), name]
    assert not old.exists()


@in_folder
def test_rotation_keeps_the_former_key_unless_now(backups: Backups) -> None:
    """The former key is that of before, and with `now` there is none; a backup of the new key starts at once."""
    keys = backups.hub / "keys"

    backups.facts("rotate")
    first = (keys / "tokens").read_text()
    assert (keys / "tokens.former").read_text() == "first tokens\n"
    assert len(first.strip()) == 64
    backups.facts("rotate", "now")

    assert (keys / "tokens.former").read_text() == ""
    assert (keys / "tokens").read_text() not in {first, "first tokens\n"}
    assert "start --no-block bedplate-hub-backup" in (backups.folder / "systemctl").read_text()


@in_folder
def test_status_counts_the_requests_of_the_last_hour(backups: Backups) -> None:
    """By person and address, with those that failed; older lines do not count."""
    now, earlier = (time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(time.time() - ago)) for ago in (60, 7200))
    line = '{} 10.0.0.5 {} person GET "/api/2.0/mlflow/runs/search" {} 400 2000 0.01\n'
    text = line.format(earlier, "ada", 200) + line.format(now, "ada", 200) + line.format(now, "grace", 502)
    (backups.folder / "log/nginx/access.log").write_text(text)
    backups.environment = {**backups.environment, "TZ": "UTC"}

    facts = backups.facts("status")

    assert {"requests 2", "requests.failed 1", "client.ada@10.0.0.5 1", "client.grace@10.0.0.5 1"} <= set(facts)
    assert {"version.mlflow 3.5.1", "version.nginx 1.24.0", "runs 1", "unit.nginx active", "bytes.ada 5"} <= set(facts)
    assert "fault schema is unknown" in facts
