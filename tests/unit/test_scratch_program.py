"""The program that makes scratch, as it runs on a node: which disks it takes, and which it never writes to."""

import os
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

from tests.support.loaded import loaded
from tests.support.needs import need_program

PROGRAM = "workbench/bedplate-scratch"
MIB = 1 << 20
TABLE = "disk /dev/disk/by-id/a\nperson ada 20000\nperson ben 20001\n"
# A partition of Linux from sector 2048 on, as a table of the old kind has it.
PARTITION = r"\0\0\0\0\203\0\0\0\0\010\0\0\0\020\0\0"
FOREIGN = {
    "a file system": 'mke2fs -q -t ext4 -L data "$0"',
    "swap": 'mkswap "$0"',
    "partitions": rf"""
        printf '{PARTITION}' | dd of="$0" bs=1 seek=446 conv=notrunc
        printf '\125\252' | dd of="$0" bs=1 seek=510 conv=notrunc""",
}


@pytest.fixture
def program(tmp_path: Path) -> ModuleType:
    """Give the program with folders of its own; what it mounts and limits is noted in `asked`, and not done."""
    module, really = loaded(PROGRAM), loaded(PROGRAM).told
    places = {"SYS": "sys", "SCRATCH": "scratch", "TABLE": "table", "MOUNTS": "mounts", "DEV": "dev"}
    module.__dict__.update({name: str(tmp_path / place) for name, place in places.items()})
    module.__dict__.update(PATIENCE=0, asked=[], can_count=lambda: True)
    (tmp_path / "mounts").write_text("")

    def told(*command: str) -> str:
        module.asked.append(command)
        return "" if command[0] in ("mount", "setquota", "mdadm") else str(really(*command))

    module.__dict__["told"] = told
    return module


def disk(tmp_path: Path, name: str) -> str:
    """Return a disk of 16 MiB on which there is nothing."""
    path = tmp_path / name
    with path.open("wb") as stream:
        stream.truncate(16 * MIB)
    return str(path)


def array(program: ModuleType, *members: str) -> None:
    """Let the kernel say that disks are one device."""
    slaves = Path(program.SYS) / "class/block/md7/slaves"
    slaves.mkdir(parents=True)
    for member in members:
        (slaves / member).touch()
        (Path(program.SYS) / f"class/block/{member}/holders/md7").mkdir(parents=True)


def test_a_blank_disk_gets_a_file_system_that_counts(program: ModuleType, tmp_path: Path) -> None:
    """The kernel keeps account of everybody from the first byte, and limits count once it is mounted."""
    need_program("mkfs.ext4")
    blank = disk(tmp_path, "blank")

    program.mount([blank])

    told = subprocess.run(["dumpe2fs", "-h", blank], capture_output=True, text=True, check=True).stdout
    assert "User quota inode" in told
    assert program.probed(blank, "LABEL") == "scratch"
    assert program.asked[-1][:5] == ("mount", "-t", "ext4", "-o", "noatime,nosuid,nodev,usrquota")


def test_scratch_of_before_is_mounted_as_it_is(program: ModuleType, tmp_path: Path) -> None:
    """A boot that was no stop keeps what people have there."""
    need_program("mkfs.ext4")
    kept = disk(tmp_path, "kept")
    program.mount([kept])
    before = Path(kept).read_bytes()

    program.mount([kept])

    assert Path(kept).read_bytes() == before
    assert [command[0] for command in program.asked] == ["mkfs.ext4", *["dumpe2fs", "mount"] * 2]


@pytest.mark.parametrize("began", [True, False], ids=["counting", "uncounted"])
def test_a_disk_is_mounted_by_whatever_kernel_comes_up(
    program: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], *, began: bool
) -> None:
    """One that cannot count mounts nothing that counts by itself: it is told, and the next that can counts again."""
    need_program("mkfs.ext4")
    kept = disk(tmp_path, "kept")
    counted = []
    for able in (began, not began, began):
        program.__dict__["can_count"] = lambda able=able: able
        program.mount([kept])
        counted.append(("usrquota" in program.asked[-1][4], program.has_count(kept)))

    assert counted == [(able, able) for able in (began, not began, began)]
    assert capsys.readouterr().err.count("/scratch is shared without limits: this kernel has no quota_v2") == 2 - began
    assert subprocess.run(["e2fsck", "-fn", kept], capture_output=True, check=False).returncode == 0


def test_a_machine_that_has_no_modules_cannot_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing there that could load one is an answer, too."""
    monkeypatch.setenv("PATH", "/nowhere")

    assert loaded(PROGRAM).can_count() is False


@pytest.mark.parametrize("what", sorted(FOREIGN))
def test_a_disk_with_anything_on_it_is_left_as_it_is(program: ModuleType, tmp_path: Path, what: str) -> None:
    """A name that was written down wrong costs nobody's data."""
    for needed in ("mkswap", "mke2fs", "blkid"):
        need_program(needed)
    theirs = disk(tmp_path, "theirs")
    subprocess.run(["sh", "-ec", FOREIGN[what], theirs], check=True, capture_output=True)
    before = Path(theirs).read_bytes()

    with pytest.raises(SystemExit, match="neither blank nor scratch of before"):
        program.mount([theirs])

    assert Path(theirs).read_bytes() == before
    assert program.asked == []


def test_a_disk_that_cannot_be_read_is_no_blank_one(program: ModuleType) -> None:
    """Blkid would take it for one."""
    with pytest.raises(SystemExit, match="/dev/nowhere cannot be read"):
        program.mount(["/dev/nowhere"])


def test_blank_disks_become_one(program: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Striped, under the name by which the next boot knows it."""
    disks = [disk(tmp_path, "a"), disk(tmp_path, "b")]
    for name in ("a", "b"):
        (Path(program.SYS) / f"class/block/{name}/holders").mkdir(parents=True)
    noting = program.told

    def joined(*words: str) -> None:
        noting(*words)
        array(program, "a", "b")

    monkeypatch.setattr(program, "told", joined)

    assert program.array_of(disks) == "/dev/md7"
    assert program.asked[0][:3] == ("mdadm", "--create", "/dev/md/scratch")
    assert {"--level=0", "--raid-devices=2", *disks} <= set(program.asked[0])


def test_disks_that_are_one_already_are_taken_as_they_are(program: ModuleType) -> None:
    """Udev puts them together before the program starts."""
    array(program, "a", "b")

    assert program.array_of(["/dev/a", "/dev/b"]) == "/dev/md7"
    assert program.asked == []


def test_disks_that_are_one_with_others_are_left_as_they_are(program: ModuleType) -> None:
    """The file names two of three: which it means, somebody has to say."""
    array(program, "a", "b", "c")

    with pytest.raises(SystemExit, match="md7 is not of /dev/a, /dev/b alone"):
        program.array_of(["/dev/a", "/dev/b"])


def test_disks_of_the_host_are_known_by_their_model(program: ModuleType) -> None:
    """Volumes of EBS are NVMe too, and are never taken; nor is what a container sees of its host."""
    models = {"nvme0n1": "Amazon Elastic Block Store", "nvme1n1": program.LOCAL, "nvme2n1": f"{program.LOCAL}  "}
    Path(program.DEV).mkdir()
    for name, model in models.items():
        (Path(program.DEV) / name).touch()
        folder = Path(program.SYS) / "block" / name / "device"
        folder.mkdir(parents=True)
        (folder / "model").write_text(f"{model}\n")

    assert program.local_disks() == [f"{program.DEV}/nvme1n1", f"{program.DEV}/nvme2n1"]
    (Path(program.DEV) / "nvme2n1").unlink()
    assert program.local_disks() == [f"{program.DEV}/nvme1n1"]


def test_a_disk_that_does_not_come_is_named(program: ModuleType, tmp_path: Path) -> None:
    """And /scratch on the root disk is not taken for it."""
    Path(program.TABLE).write_text(f"disk {tmp_path}/gone\nperson me {os.getuid()}\n")

    with pytest.raises(SystemExit, match="gone: no such disk"):
        program.main()

    assert list(Path(program.SCRATCH).iterdir()) == []


@pytest.mark.parametrize(
    ("options", "asked"),
    [("rw,usrquota", True), ("rw,noquota", False), ("rw", False)],
    ids=["counted", "switched off", "uncounted"],
)
def test_everybody_gets_a_private_folder_and_a_share_where_it_is_counted(
    program: ModuleType, options: str, *, asked: bool
) -> None:
    """Half of what the file system holds, in KiB, by number: names may be unknown while a server is gone."""
    uid = os.getuid()
    Path(program.TABLE).write_text(f"person me {uid}\n")
    Path(program.MOUNTS).write_text(f"30 25 8:1 / {program.SCRATCH} rw,nodev - ext4 /dev/a {options}\n")

    program.main()

    found = (Path(program.SCRATCH) / "me").stat()
    room = os.statvfs(program.SCRATCH)
    half = room.f_blocks * room.f_frsize // 2048
    assert (found.st_mode & 0o777, found.st_uid) == (0o700, uid)
    limit = ("setquota", "--user", str(uid), "0", str(half), "0", "0", program.SCRATCH)
    assert program.asked == ([limit] if asked else [])
