"""Scratch as the role `workbench` declares it: when a node has to do something about it, and what it is told."""

import subprocess
from pathlib import Path

import pytest

from bedplate.plan.accounts import Account
from roles.workbench.found import Folders, Quotas
from roles.workbench.role import Workbench
from roles.workbench.scratch import SCRIPT, TABLE, UNIT, keeps_quotas
from tests.support.recorded import recorded
from tests.support.recorder import Recorder

ADA = Account("ada", 20000, admin=False, keys=())
BEN = Account("ben", 20001, admin=False, keys=())
BENCH = Workbench((ADA, BEN), None)
MOUNTED = "30 25 259:1 / /scratch rw,relatime shared:9 - ext4 /dev/nvme1n1 rw,usrquota"
MOUNTS, FOLDERS = "server.Mounts", "roles.workbench.found.Folders"
QUOTAS, LOCAL = "roles.workbench.found.Quotas", "roles.workbench.found.LocalDisks"
UNCOUNTED = "roles.workbench.found.Uncounted"
DEBIAN = recorded("debian-12").but({FOLDERS: ("ada ada:ada 700", "ben ben:ben 700", "lost+found root:root 700")})
A, B = "/dev/disk/by-id/nvme-a", "/dev/disk/by-id/nvme-b"
MODEL = "/sys/block/nvme{}n1"


def done(recorder: Recorder, bench: Workbench = BENCH) -> list[str]:
    """Return the names of the operations that have the node do something about scratch."""
    return [step.name for step in recorder.play(bench).steps if SCRIPT in step.commands]


def test_a_node_is_told_whose_scratch_is_and_what_it_is_made_of() -> None:
    """It does the rest by itself, at each boot."""
    played = Recorder(DEBIAN).play(Workbench((ADA, BEN), None, (A, B)))

    assert played.written(TABLE) == f"disk {A}\ndisk {B}\nperson ada 20000\nperson ben 20001\n"
    assert played.step("/scratch at each boot").commands == (
        f"systemctl --no-reload --quiet enable {UNIT}",
        f"systemctl start {UNIT}",
    )


def test_what_is_right_is_left_alone() -> None:
    """One question tells of all folders, whoever owns them."""
    assert done(Recorder(DEBIAN)) == []


@pytest.mark.parametrize("wrong", ["ben ben:ben 755", "ben root:root 700", ""], ids=["open", "another's", "none"])
def test_only_those_whose_folder_is_wrong_are_named(wrong: str) -> None:
    """Work that may be lost is its owner's alone, on whatever disk it lies."""
    table = DEBIAN.but({FOLDERS: tuple(line for line in ("ada ada:ada 700", wrong) if line)})

    assert done(Recorder(table)) == ["Scratch of ben"]


@pytest.mark.parametrize("share", ["#20001,ok,ok,4,0,7,,1,0,0,", ""], ids=["another", "none"])
def test_nobody_takes_more_than_half_of_scratch(share: str) -> None:
    """Where the file system counts by user, each person's hard limit is half of its size."""
    told = tuple(line for line in (",,,,,1000000", "#20000,ok,ok,4,0,500000,,1,0,0,", share) if line)

    assert done(Recorder(DEBIAN.but({MOUNTS: (MOUNTED,), QUOTAS: told}))) == ["Scratch of ben"]


def test_scratch_without_quotas_is_shared_without_limits() -> None:
    """A file system that does not count is not asked to: the table has no answer about quotas."""
    assert done(Recorder(DEBIAN.but({MOUNTS: (MOUNTED.replace(",usrquota", ""),)}))) == []


@pytest.mark.parametrize(
    ("disks", "local", "mounts"),
    [((A,), (), True), ((), (MODEL.format(1),), True), ((), (), False)],
    ids=["named", "of the host", "none"],
)
def test_disks_are_mounted_where_there_are_some(
    disks: tuple[str, ...], local: tuple[str, ...], *, mounts: bool
) -> None:
    """Those of the file, or those that a machine of EC2 has of its host."""
    table = DEBIAN.but({LOCAL: local})

    assert (done(Recorder(table), Workbench((ADA, BEN), None, disks)) == ["Disks at /scratch"]) is mounts


def test_what_is_mounted_already_serves() -> None:
    """Whoever mounted it, nothing is mounted over it."""
    table = DEBIAN.but({MOUNTS: (MOUNTED.replace(",usrquota", ""),), LOCAL: (MODEL.format(1),)})

    assert done(Recorder(table), Workbench((ADA, BEN), None, (A,))) == []


@pytest.mark.parametrize(
    ("disks", "local", "striped"),
    [((A,), 0, False), ((A, B), 0, True), ((), 1, False), ((), 8, True), ((A,), 8, False)],
    ids=["one named", "two named", "one of the host", "eight of the host", "one named of many"],
)
def test_only_what_has_several_disks_gets_what_joins_them(disks: tuple[str, ...], local: int, *, striped: bool) -> None:
    """What joins them watches and mails, and most machines have nothing for it."""
    table = DEBIAN.but({LOCAL: tuple(MODEL.format(number) for number in range(local))})

    names = Recorder(table).play(Workbench((ADA,), None, disks)).names

    assert ("One device of several disks" in names) is striped


@pytest.mark.parametrize(
    ("disks", "kernel", "asked"),
    [((A,), "6.8.0-1021-aws", True), ((A,), "", False), ((), "6.8.0-1021-aws", False)],
    ids=["lacking", "able", "no disks"],
)
def test_a_kernel_that_cannot_count_gets_what_it_lacks(disks: tuple[str, ...], kernel: str, *, asked: bool) -> None:
    """Kernels of clouds have rarer modules in a package of their own, for their own release."""
    table = DEBIAN.but({UNCOUNTED: (kernel,) if kernel else ()})

    played = Recorder(table).play(Workbench((ADA, BEN), None, disks))

    assert (f"Quotas of {kernel}" in played.names) is asked
    if asked:
        assert played.step(f"Quotas of {kernel}").arguments["packages"] == [f"linux-modules-extra-{kernel}"]


@pytest.mark.parametrize(
    ("options", "keeps"),
    [(["rw", "usrquota"], True), (["rw", "uquota"], True), (["usrjquota=aquota.user"], True), (["noquota"], False)],
)
def test_the_options_of_the_mount_tell_whether_it_counts(options: list[str], *, keeps: bool) -> None:
    """ext4's words and xfs's words both count."""
    assert keeps_quotas({"/scratch": {"device": "/dev/nvme1n1", "type": "xfs", "options": options}}) is keeps


def test_quotas_are_read_by_number() -> None:
    """Names of people who are gone are numbers all the same."""
    told = [",,,,,5", "#0,ok,ok,20,0,0,,2,0,0,", "#20000,-ok,ok,9,0,7,,1,0,0,", "repquota: noise"]

    assert Quotas().process(told) == {"": 5, "0": 0, "20000": 7}


def test_folders_are_read_by_a_real_find(tmp_path: Path) -> None:
    """Owners and mode of each folder, and nothing of files."""
    (tmp_path / "ada").mkdir(mode=0o700)
    (tmp_path / "file").write_text("")
    asked = Folders().command(str(tmp_path)).get_raw_value()

    told = subprocess.run(["sh", "-c", asked], check=True, capture_output=True, text=True).stdout.splitlines()

    assert Folders().process(told) == {"ada": f"{tmp_path.owner()}:{tmp_path.group()} 700"}
