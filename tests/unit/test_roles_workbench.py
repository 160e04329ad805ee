"""The role `workbench`: what people find on a machine that they log in to."""

import os
import re
import subprocess
import time
from pathlib import Path
from types import ModuleType

import pytest

from bedplate.plan.fleet import Account
from bedplate.plan.nodes import Hardware
from roles.files import text_of
from roles.workbench.role import (
    BUILDS,
    CUDA,
    NOTE,
    PATH,
    TOOLS,
    VERSION,
    Unreached,
    UvVersion,
    Workbench,
    taken,
    version,
    with_program_folder,
)
from roles.workbench.scratch import SCRIPT, UNIT, Folders, Quotas, keeps_quotas
from roles.workbench.scratch import TABLE as SCRATCH_TABLE
from tests.testlab.fakes.agent import load_program
from tests.testlab.fakes.node import Entry, Recorded, Recorder, recorded
from tests.testlab.run import need_program

ROOT = Path(__file__).parents[2]
DEBIAN = recorded("debian-12")
UBUNTU = recorded("ubuntu-24.04")
ADA = Account("ada", 20000, admin=False, keys=())
BEN = Account("ben", 20001, admin=False, keys=())
GPUS = Hardware("h100", 8)
BENCH = Workbench((ADA, BEN), None)
# What Ubuntu gives every session.
USUAL = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/games:/usr/local/games"


def test_tools_come_in_one_call() -> None:
    """tmux, screen, git, a compiler and htop are there, from the distribution."""
    command = Recorder(DEBIAN).play(BENCH).step("Install tools").commands[-1]

    assert {"tmux", "screen", "git", "build-essential", "htop", "cmake"} <= set(command.split())


@pytest.mark.parametrize(
    ("table", "gpus", "installed"),
    [(UBUNTU, GPUS, True), (UBUNTU, None, False), (DEBIAN, GPUS, False)],
    ids=["gpus", "no gpus", "debian"],
)
def test_nvtop_is_there_for_gpus(table: Recorded, gpus: Hardware | None, *, installed: bool) -> None:
    """A machine without GPUs needs none, and Debian's main archive has none."""
    command = Recorder(table).play(Workbench((), gpus)).step("Install tools").commands[-1]

    assert ("nvtop" in command.split()) is installed


def test_uv_is_the_version_and_the_sums_of_this_projects_own_lock() -> None:
    """One list of sums, for every architecture, renewed with `make lock`."""
    lock = (ROOT / "requirements.lock").read_text()
    (own,) = re.findall(r"^uv==.*(?:\n    --hash=.*)*", lock, re.MULTILINE)

    assert text_of("workbench/uv.txt").split() == own.split()


def test_uv_is_taken_by_its_sum() -> None:
    """Pip takes no wheel whose sum is not on the list, builds nothing, and trusts the machine's authorities."""
    played = Recorder(DEBIAN).play(BENCH)

    install = played.step(f"uv {version()}").commands[-1]
    assert all(option in install for option in ("--require-hashes", "--only-binary :all:", "--no-deps", "PIP_CERT="))
    assert played.written("/opt/uv.txt") == text_of("workbench/uv.txt")
    assert played.disk.entries["/usr/local/bin/uv"] == Entry("link", "/opt/uv/bin/uv", mode=777)


@pytest.mark.parametrize(("found", "installs"), [("0.1.0", True), (version(), False)], ids=["older", "same"])
def test_another_version_of_uv_is_replaced(found: str, *, installs: bool) -> None:
    """What is there is asked, not what was once installed."""
    table = DEBIAN.but({"roles.workbench.role.UvVersion": (f"uv {found} (x86_64-unknown-linux-gnu)",)})

    played = Recorder(table).play(BENCH)

    assert (f"uv {version()}" in played.names) is installs


def test_a_broken_uv_counts_for_none() -> None:
    """A folder that pip left half done is made anew."""
    assert UvVersion().process([]) == ""


@pytest.mark.parametrize("machine", sorted(BUILDS))
def test_micromamba_is_taken_for_the_machines_architecture(machine: str) -> None:
    """Each architecture has its own program and its own sum."""
    played = Recorder(DEBIAN.but({"server.Arch": (machine,)})).play(BENCH)

    (command,) = [each for each in played.commands if "micromamba" in each]
    assert BUILDS[machine].digest in command
    assert BUILDS[machine].url in command


@pytest.mark.parametrize(("content", "fine"), [(b"program", True), (b"other", False)], ids=["right", "wrong"])
def test_only_a_program_of_the_right_sum_comes_under_its_name(tmp_path: Path, content: bytes, *, fine: bool) -> None:
    """What was fetched is nothing until its sum is right, and is gone when it is wrong."""
    source, target = tmp_path / "source", tmp_path / "micromamba"
    source.write_bytes(content)
    build = BUILDS["x86_64"]
    digest = subprocess.run(["sha256sum"], input=b"program", capture_output=True, check=True).stdout[:64].decode()
    script = taken(build).replace(build.url, f"file://{source}").replace(PATH, str(target))

    done = subprocess.run(["sh", "-c", script.replace(build.digest, digest)], capture_output=True, check=False)

    assert (done.returncode == 0) is fine
    assert {path.name for path in tmp_path.iterdir()} == ({"source", "micromamba"} if fine else {"source"})


def test_a_node_that_does_not_reach_the_releases_does_without(tmp_path: Path) -> None:
    """A closed network is no reason to leave a machine unconfigured: it notes what it did not reach."""
    build, note = BUILDS["x86_64"], tmp_path / "state" / "note"
    script = taken(build).replace(build.url, f"file://{tmp_path}/none").replace(PATH, str(tmp_path / "micromamba"))

    done = subprocess.run(["sh", "-c", script.replace(NOTE, str(note))], capture_output=True, check=False)

    assert done.returncode == 0
    assert note.read_text() == f"file://{tmp_path}/none\n"
    assert [path.name for path in tmp_path.iterdir()] == ["state"]


@pytest.mark.parametrize(
    ("noted", "tries"),
    [(None, True), (("https://example.org/older",), True), ((BUILDS["x86_64"].url,), False)],
    ids=["nothing", "another version", "this one"],
)
def test_what_was_not_reached_today_is_not_tried_again(noted: tuple[str, ...] | None, *, tries: bool) -> None:
    """The second apply changes nothing on a closed network too; another version is another address."""
    table = DEBIAN.but({"roles.workbench.role.Unreached": noted})

    played = Recorder(table).play(BENCH)

    assert (f"micromamba {VERSION}" in played.names) is tries


def test_a_note_of_yesterday_counts_no_more(tmp_path: Path) -> None:
    """A network that was closed may be open again."""
    note = tmp_path / "note"
    command = Unreached().command().replace(NOTE, str(note))
    told = []
    for age in (60, 25 * 3600):
        note.write_text("https://example.org/\n")
        os.utime(note, (time.time() - age,) * 2)
        told.append(subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True).stdout)

    assert told == ["https://example.org/\n", ""]


def test_a_login_shell_keeps_caches_on_scratch(tmp_path: Path) -> None:
    """Caches fill no home, where a person has scratch; what somebody set himself stays."""
    (tmp_path / "ada").mkdir()
    script = text_of("workbench/shell.sh").replace("/scratch", str(tmp_path))
    say = 'echo "${UV_CACHE_DIR-none} ${PIP_CACHE_DIR-none}"'

    def told(**env: str) -> str:
        command = ["env", "-i", *(f"{key}={value}" for key, value in env.items()), "sh", "-euc", f"{script}\n{say}"]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    assert told(USER="ada") == f"{tmp_path}/ada/.cache/uv {tmp_path}/ada/.cache/pip"
    assert told(USER="ada", PIP_CACHE_DIR="/mine") == f"{tmp_path}/ada/.cache/uv /mine"
    assert told(USER="zoe") == told() == "none none"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", f'PATH="{USUAL}:{CUDA}"\n'),
        ("LANG=C\n", f'LANG=C\nPATH="{USUAL}:{CUDA}"\n'),
        (f'PATH="{USUAL}:/snap/bin"\n', f'PATH="{USUAL}:/snap/bin:{CUDA}"\n'),
        ("PATH=/usr/bin\nLANG=C\n", f'LANG=C\nPATH="/usr/bin:{CUDA}"\n'),
        (f"PATH=/opt/bin:{CUDA}:/usr/bin\n", f"PATH=/opt/bin:{CUDA}:/usr/bin\n"),
    ],
    ids=["debian", "other words", "ubuntu", "a hand's", "a hand's own place"],
)
def test_cudas_folder_is_added_to_what_a_session_is_given(text: str, wanted: str) -> None:
    """Beside what the distribution or somebody says there; nothing is said twice."""
    assert with_program_folder(text, CUDA) == wanted
    assert with_program_folder(wanted, CUDA) == wanted


def test_cudas_programs_come_last_in_a_login_shell(tmp_path: Path) -> None:
    """Before they are installed, too; where there is no CUDA, nothing says where it lies."""
    script = text_of("workbench/shell.sh").replace("/usr/local/cuda", str(tmp_path / "cuda"))
    say = f'{script}\n{script}\necho "$PATH ${{CUDA_HOME-none}}"'

    def told() -> str:
        command = ["env", "-i", "PATH=/usr/bin:/bin", "sh", "-euc", say]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    before = told()
    (tmp_path / "cuda").mkdir()

    assert before == f"/usr/bin:/bin:{tmp_path}/cuda/bin none"
    assert told() == f"/usr/bin:/bin:{tmp_path}/cuda/bin {tmp_path}/cuda"


def test_a_second_run_changes_nothing() -> None:
    """What is in force is left alone."""
    settled = DEBIAN.but(
        {
            "deb.DebPackages": tuple(f"ii  {name}  0  all  -" for name in TOOLS),
            "roles.workbench.role.UvVersion": (f"uv {version()} (x)",),
            "roles.workbench.role.Unreached": (BUILDS["x86_64"].url,),
            "roles.workbench.scratch.Folders": ("ada ada:ada 700", "ben ben:ben 700"),
            "roles.files.Texts": ("==bedplate== /etc/environment", f'PATH="{USUAL}:{CUDA}"'),
            "roles.system.States": ("active", f"multi-user.target.wants/{UNIT}"),
        }
    )
    recorder = Recorder(settled)
    recorder.play(BENCH)

    assert recorder.play(BENCH).changes == []


MOUNTED = "30 25 259:1 / /scratch rw,relatime shared:9 - ext4 /dev/nvme1n1 rw,usrquota"
MOUNTS, FOLDERS = "server.Mounts", "roles.workbench.scratch.Folders"
QUOTAS, LOCAL = "roles.workbench.scratch.Quotas", "roles.workbench.scratch.LocalDisks"
UNCOUNTED = "roles.workbench.scratch.Uncounted"
ROLES_WORKBENCH_SCRATCH_DEBIAN = recorded("debian-12").but(
    {FOLDERS: ("ada ada:ada 700", "ben ben:ben 700", "lost+found root:root 700")}
)
A, B = "/dev/disk/by-id/nvme-a", "/dev/disk/by-id/nvme-b"
MODEL = "/sys/block/nvme{}n1"


def done(recorder: Recorder, bench: Workbench = BENCH) -> list[str]:
    """Return the names of the operations that have the node do something about scratch."""
    return [step.name for step in recorder.play(bench).steps if SCRIPT in step.commands]


def test_a_node_is_told_whose_scratch_is_and_what_it_is_made_of() -> None:
    """It does the rest by itself, at each boot."""
    played = Recorder(ROLES_WORKBENCH_SCRATCH_DEBIAN).play(Workbench((ADA, BEN), None, (A, B)))

    assert played.written(SCRATCH_TABLE) == f"disk {A}\ndisk {B}\nperson ada 20000\nperson ben 20001\n"
    assert played.step("Start bedplate-scratch.service").commands == (
        f"systemctl --no-reload --quiet enable {UNIT}",
        f"systemctl start {UNIT}",
    )


def test_what_is_right_is_left_alone() -> None:
    """One question tells of all folders, whoever owns them."""
    assert done(Recorder(ROLES_WORKBENCH_SCRATCH_DEBIAN)) == []


@pytest.mark.parametrize("wrong", ["ben ben:ben 755", "ben root:root 700", ""], ids=["open", "another's", "none"])
def test_only_those_whose_folder_is_wrong_are_named(wrong: str) -> None:
    """Work that may be lost is its owner's alone, on whatever disk it lies."""
    table = ROLES_WORKBENCH_SCRATCH_DEBIAN.but({FOLDERS: tuple(line for line in ("ada ada:ada 700", wrong) if line)})

    assert done(Recorder(table)) == ["Scratch of ben"]


@pytest.mark.parametrize("share", ["#20001,ok,ok,4,0,7,,1,0,0,", ""], ids=["another", "none"])
def test_nobody_takes_more_than_half_of_scratch(share: str) -> None:
    """Where the file system counts by user, each person's hard limit is half of its size."""
    told = tuple(line for line in (",,,,,1000000", "#20000,ok,ok,4,0,500000,,1,0,0,", share) if line)

    assert done(Recorder(ROLES_WORKBENCH_SCRATCH_DEBIAN.but({MOUNTS: (MOUNTED,), QUOTAS: told}))) == ["Scratch of ben"]


def test_scratch_without_quotas_is_shared_without_limits() -> None:
    """A file system that does not count is not asked to: the table has no answer about quotas."""
    assert done(Recorder(ROLES_WORKBENCH_SCRATCH_DEBIAN.but({MOUNTS: (MOUNTED.replace(",usrquota", ""),)}))) == []


@pytest.mark.parametrize(
    ("disks", "local", "mounts"),
    [((A,), (), True), ((), (MODEL.format(1),), True), ((), (), False)],
    ids=["named", "of the host", "none"],
)
def test_disks_are_mounted_where_there_are_some(
    disks: tuple[str, ...], local: tuple[str, ...], *, mounts: bool
) -> None:
    """Those of the file, or those that a machine of EC2 has of its host."""
    table = ROLES_WORKBENCH_SCRATCH_DEBIAN.but({LOCAL: local})

    assert (done(Recorder(table), Workbench((ADA, BEN), None, disks)) == ["Mount /scratch"]) is mounts


def test_what_is_mounted_already_serves() -> None:
    """Whoever mounted it, nothing is mounted over it."""
    table = ROLES_WORKBENCH_SCRATCH_DEBIAN.but({MOUNTS: (MOUNTED.replace(",usrquota", ""),), LOCAL: (MODEL.format(1),)})

    assert done(Recorder(table), Workbench((ADA, BEN), None, (A,))) == []


@pytest.mark.parametrize(
    ("disks", "local", "striped"),
    [((A,), 0, False), ((A, B), 0, True), ((), 1, False), ((), 8, True), ((A,), 8, False)],
    ids=["one named", "two named", "one of the host", "eight of the host", "one named of many"],
)
def test_only_what_has_several_disks_gets_what_joins_them(disks: tuple[str, ...], local: int, *, striped: bool) -> None:
    """What joins them watches and mails, and most machines have nothing for it."""
    table = ROLES_WORKBENCH_SCRATCH_DEBIAN.but({LOCAL: tuple(MODEL.format(number) for number in range(local))})

    names = Recorder(table).play(Workbench((ADA,), None, disks)).names

    assert ("Install mdadm" in names) is striped


@pytest.mark.parametrize(
    ("disks", "kernel", "asked"),
    [((A,), "6.8.0-1021-aws", True), ((A,), "", False), ((), "6.8.0-1021-aws", False)],
    ids=["lacking", "able", "no disks"],
)
def test_a_kernel_that_cannot_count_gets_what_it_lacks(disks: tuple[str, ...], kernel: str, *, asked: bool) -> None:
    """Kernels of clouds have rarer modules in a package of their own, for their own release."""
    table = ROLES_WORKBENCH_SCRATCH_DEBIAN.but({UNCOUNTED: (kernel,) if kernel else ()})

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
    module, really = load_program(PROGRAM), load_program(PROGRAM).told
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

    assert load_program(PROGRAM).can_count() is False


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
