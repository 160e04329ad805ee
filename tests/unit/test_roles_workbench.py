"""The role `workbench`: tools, uv, micromamba, the environment of shells, /scratch and bedplate-scratch."""

import os
import re
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from bedplate.plan.fleet import Account
from bedplate.plan.nodes import Hardware
from roles.base import FileTexts, file_text
from roles.catalog import roles_of
from roles.frameworks.role import InstalledLock
from roles.nvidia.role import Available, GpuState
from roles.storage.mounts import AwsVersion, KernelServes
from roles.system import HeldPackages, UnitStates
from roles.workbench.role import (
    BUILDS,
    CUDA,
    MICROMAMBA,
    MICROMAMBA_NOTE,
    MICROMAMBA_VERSION,
    SCRIPT,
    TOOLS,
    UNIT,
    UV_FOLDER,
    Folders,
    KernelWithoutQuotas,
    LocalDisks,
    Quotas,
    Unreached,
    UvVersion,
    Workbench,
    download_command,
    keeps_quotas,
    uv_version,
    with_program_folder,
)
from roles.workbench.role import TABLE as SCRATCH_TABLE
from tests.testlab.fakes.agent import load_program
from tests.testlab.fakes.node import Entry, Recorded, Recorder, recorded
from tests.testlab.fakes.node_states import NO_STORAGE
from tests.testlab.fleets.variants import lab_node
from tests.testlab.run import need_program

ROOT = Path(__file__).parents[2]
DEBIAN = recorded("debian-12")
UBUNTU = recorded("ubuntu-24.04")
ADA = Account("ada", 20000, admin=False, keys=())
BEN = Account("ben", 20001, admin=False, keys=())
GPUS = Hardware("h100", 8)
BENCH = Workbench((ADA, BEN), None)
# The PATH of Ubuntu's /etc/environment.
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/games:/usr/local/games"


def test_tools_are_installed_in_one_call() -> None:
    """tmux, screen, git, a compiler and htop come from the distribution."""
    command = Recorder(DEBIAN).play(BENCH).step("Install tools").commands[-1]

    assert {"tmux", "screen", "git", "build-essential", "htop", "cmake"} <= set(command.split())


@pytest.mark.parametrize(
    ("table", "gpus", "installed"),
    [(UBUNTU, GPUS, True), (UBUNTU, None, False), (DEBIAN, GPUS, False)],
    ids=["gpus", "no gpus", "debian"],
)
def test_nvtop_is_installed_for_gpus(table: Recorded, gpus: Hardware | None, *, installed: bool) -> None:
    """Only Ubuntu machines with GPUs get nvtop; Debian has it in `contrib`."""
    command = Recorder(table).play(Workbench((), gpus)).step("Install tools").commands[-1]

    assert ("nvtop" in command.split()) is installed


def test_uv_has_the_version_of_our_own_lock() -> None:
    """Version and hashes are those of requirements.lock, updated by `make lock`."""
    lock = (ROOT / "requirements.lock").read_text()
    (own,) = re.findall(r"^uv==.*(?:\n    --hash=.*)*", lock, re.MULTILINE)

    assert file_text("workbench/uv.txt").split() == own.split()


def test_uv_is_installed_with_hashes() -> None:
    """Pip checks hashes, builds nothing from source, and uses the node's CA certificates."""
    played = Recorder(DEBIAN).play(BENCH)

    install = played.step(f"Install uv {uv_version()}").commands[-1]
    assert all(option in install for option in ("--require-hashes", "--only-binary :all:", "--no-deps", "PIP_CERT="))
    assert played.written("/opt/uv.txt") == file_text("workbench/uv.txt")
    assert played.disk.entries["/usr/local/bin/uv"] == Entry("link", "/opt/uv/bin/uv", mode=777)


@pytest.mark.parametrize(("installed", "installs"), [("0.1.0", True), (uv_version(), False)], ids=["older", "same"])
def test_another_version_of_uv_is_replaced(installed: str, *, installs: bool) -> None:
    """The pinned version is installed in place of any other."""
    table = DEBIAN.but({UvVersion.name: (installed,)})

    played = Recorder(table).play(BENCH)

    assert (f"Install uv {uv_version()}" in played.names) is installs


@pytest.mark.parametrize(
    ("script", "version"),
    [("echo 'uv 1.2.3 (x86_64-unknown-linux-gnu)'", "1.2.3"), ("exit 1", "")],
    ids=["uv", "broken"],
)
def test_the_version_of_uv_is_read_from_uv(script: str, version: str, tmp_path: Path) -> None:
    """An environment whose uv does not start counts as not installed."""
    uv = tmp_path / "bin/uv"
    uv.parent.mkdir()
    uv.write_text(f"#!/bin/sh\n{script}\n")
    uv.chmod(0o755)

    command = UvVersion().command().replace(UV_FOLDER, str(tmp_path))
    output = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True).stdout

    assert UvVersion().process(output.splitlines()) == version


@pytest.mark.parametrize("machine", sorted(BUILDS))
def test_micromamba_matches_the_architecture(machine: str) -> None:
    """Each architecture has its own program and checksum."""
    played = Recorder(DEBIAN.but({"server.Arch": (machine,)})).play(BENCH)

    (command,) = [command for command in played.commands if "micromamba" in command]
    assert BUILDS[machine].digest in command
    assert BUILDS[machine].url in command


@pytest.mark.parametrize(("content", "accepted"), [(b"program", True), (b"other", False)], ids=["right", "wrong"])
def test_micromamba_needs_the_right_checksum(tmp_path: Path, content: bytes, *, accepted: bool) -> None:
    """A download with a wrong checksum is removed."""
    source, target = tmp_path / "source", tmp_path / "micromamba"
    source.write_bytes(content)
    build = BUILDS["x86_64"]
    digest = subprocess.run(["sha256sum"], input=b"program", capture_output=True, check=True).stdout[:64].decode()
    script = download_command(build).replace(build.url, f"file://{source}").replace(MICROMAMBA, str(target))

    process = subprocess.run(["sh", "-c", script.replace(build.digest, digest)], capture_output=True, check=False)

    assert (process.returncode == 0) is accepted
    assert {path.name for path in tmp_path.iterdir()} == ({"source", "micromamba"} if accepted else {"source"})


def test_micromamba_is_skipped_if_unreachable(tmp_path: Path) -> None:
    """A node without internet access is configured without micromamba, and notes the URL."""
    build, note = BUILDS["x86_64"], tmp_path / "state" / "note"
    script = (
        download_command(build)
        .replace(build.url, f"file://{tmp_path}/none")
        .replace(MICROMAMBA, str(tmp_path / "micromamba"))
    )

    process = subprocess.run(["sh", "-c", script.replace(MICROMAMBA_NOTE, str(note))], capture_output=True, check=False)

    assert process.returncode == 0
    assert note.read_text() == f"file://{tmp_path}/none\n"
    assert [path.name for path in tmp_path.iterdir()] == ["state"]


@pytest.mark.parametrize(
    ("noted", "tries"),
    [(None, True), (("https://example.org/older",), True), ((BUILDS["x86_64"].url,), False)],
    ids=["nothing", "another version", "this one"],
)
def test_an_unreachable_download_is_not_retried_the_same_day(noted: tuple[str, ...] | None, *, tries: bool) -> None:
    """A second apply without internet access changes nothing; another version is tried."""
    table = DEBIAN.but({Unreached.name: noted})

    played = Recorder(table).play(BENCH)

    assert (f"Install micromamba {MICROMAMBA_VERSION}" in played.names) is tries


def test_an_unreachable_download_is_retried_after_a_day(tmp_path: Path) -> None:
    """The network may be open again."""
    note = tmp_path / "note"
    command = Unreached().command().replace(MICROMAMBA_NOTE, str(note))
    outputs = []
    for age in (60, 25 * 3600):
        note.write_text("https://example.org/\n")
        os.utime(note, (time.time() - age,) * 2)
        outputs.append(subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True).stdout)

    assert outputs == ["https://example.org/\n", ""]


def test_a_login_shell_keeps_caches_on_scratch(tmp_path: Path) -> None:
    """Caches go to /scratch if the user has a folder there; variables of the user are kept."""
    (tmp_path / "ada").mkdir()
    script = file_text("workbench/shell.sh").replace("/scratch", str(tmp_path))
    say = 'echo "${UV_CACHE_DIR-none} ${PIP_CACHE_DIR-none}"'

    def run_shell(**env: str) -> str:
        command = ["env", "-i", *(f"{key}={value}" for key, value in env.items()), "sh", "-euc", f"{script}\n{say}"]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    assert run_shell(USER="ada") == f"{tmp_path}/ada/.cache/uv {tmp_path}/ada/.cache/pip"
    assert run_shell(USER="ada", PIP_CACHE_DIR="/mine") == f"{tmp_path}/ada/.cache/uv /mine"
    assert run_shell(USER="zoe") == run_shell() == "none none"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", f'PATH="{DEFAULT_PATH}:{CUDA}"\n'),
        ("LANG=C\n", f'LANG=C\nPATH="{DEFAULT_PATH}:{CUDA}"\n'),
        (f'PATH="{DEFAULT_PATH}:/snap/bin"\n', f'PATH="{DEFAULT_PATH}:/snap/bin:{CUDA}"\n'),
        ("PATH=/usr/bin\nLANG=C\n", f'LANG=C\nPATH="/usr/bin:{CUDA}"\n'),
        (f"PATH=/opt/bin:{CUDA}:/usr/bin\n", f"PATH=/opt/bin:{CUDA}:/usr/bin\n"),
    ],
    ids=["debian", "other lines", "ubuntu", "own path", "own path with cuda"],
)
def test_cuda_is_appended_to_the_path_of_sessions(text: str, expected: str) -> None:
    """The folder is added once, after the PATH of the distribution or of the administrator."""
    assert with_program_folder(text, CUDA) == expected
    assert with_program_folder(expected, CUDA) == expected


def test_cuda_is_last_in_the_path_of_a_login_shell(tmp_path: Path) -> None:
    """PATH contains CUDA also before its installation; CUDA_HOME is set only afterwards."""
    script = file_text("workbench/shell.sh").replace("/usr/local/cuda", str(tmp_path / "cuda"))
    say = f'{script}\n{script}\necho "$PATH ${{CUDA_HOME-none}}"'

    def run_shell() -> str:
        command = ["env", "-i", "PATH=/usr/bin:/bin", "sh", "-euc", say]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    before = run_shell()
    (tmp_path / "cuda").mkdir()

    assert before == f"/usr/bin:/bin:{tmp_path}/cuda/bin none"
    assert run_shell() == f"/usr/bin:/bin:{tmp_path}/cuda/bin {tmp_path}/cuda"


def test_a_machine_of_a_group_reports_its_use() -> None:
    """By a timer, from its bundle; a machine of a site has no bucket for reports."""
    played = Recorder(DEBIAN).play(replace(BENCH, reports_use=True))

    assert "-m bedplate.machine.idle" in played.written("/etc/systemd/system/bedplate-idle.service")
    assert "Start the timer of the reports of use" in played.names
    assert "Start the timer of the reports of use" not in Recorder(DEBIAN).play(BENCH).names


def test_a_second_run_changes_nothing() -> None:
    """A second run changes nothing."""
    configured = DEBIAN.but(
        {
            "deb.DebPackages": tuple(f"ii  {name}  0  all  -" for name in TOOLS),
            UvVersion.name: (uv_version(),),
            Unreached.name: (BUILDS["x86_64"].url,),
            Folders.name: ("ada ada:ada 700", "ben ben:ben 700"),
            FileTexts.name: ("==bedplate== /etc/environment", f'PATH="{DEFAULT_PATH}:{CUDA}"'),
            UnitStates.name: ("active", f"multi-user.target.wants/{UNIT}"),
        }
    )
    recorder = Recorder(configured)
    recorder.play(BENCH)

    assert recorder.play(BENCH).changes == []


MOUNTED = "30 25 259:1 / /scratch rw,relatime shared:9 - ext4 /dev/nvme1n1 rw,usrquota"
MOUNTS = "server.Mounts"
WITH_FOLDERS = recorded("debian-12").but(
    {Folders.name: ("ada ada:ada 700", "ben ben:ben 700", "lost+found root:root 700")}
)
A, B = "/dev/disk/by-id/nvme-a", "/dev/disk/by-id/nvme-b"
MODEL = "/sys/block/nvme{}n1"


def scratch_operations(recorder: Recorder, bench: Workbench = BENCH) -> list[str]:
    """Return the names of the operations that run bedplate-scratch."""
    return [step.name for step in recorder.play(bench).steps if SCRIPT in step.commands]


def test_the_scratch_table_lists_disks_and_people() -> None:
    """The unit creates /scratch from the table at each boot."""
    played = Recorder(WITH_FOLDERS).play(Workbench((ADA, BEN), None, (A, B)))

    assert played.written(SCRATCH_TABLE) == f"disk {A}\ndisk {B}\nperson ada 20000\nperson ben 20001\n"
    assert played.step("Start bedplate-scratch.service").commands == (
        f"systemctl --root=/ --quiet enable {UNIT}",
        f"systemctl start {UNIT}",
    )


def test_correct_folders_are_not_changed() -> None:
    """One query reads all folders."""
    assert scratch_operations(Recorder(WITH_FOLDERS)) == []


@pytest.mark.parametrize("wrong", ["ben ben:ben 755", "ben root:root 700", ""], ids=["open", "another's", "none"])
def test_only_people_with_a_wrong_folder_are_named(wrong: str) -> None:
    """A folder must belong to its person, with mode 700."""
    table = WITH_FOLDERS.but({Folders.name: tuple(line for line in ("ada ada:ada 700", wrong) if line)})

    assert scratch_operations(Recorder(table)) == ["Create /scratch folders of ben"]


@pytest.mark.parametrize("share", ["#20001,ok,ok,4,0,7,,1,0,0,", ""], ids=["another", "none"])
def test_a_quota_is_half_of_scratch(share: str) -> None:
    """With user quotas, the hard limit of each person is half of the file system."""
    output = tuple(line for line in (",,,,,1000000", "#20000,ok,ok,4,0,500000,,1,0,0,", share) if line)

    assert scratch_operations(Recorder(WITH_FOLDERS.but({MOUNTS: (MOUNTED,), Quotas.name: output}))) == [
        "Create /scratch folders of ben"
    ]


def test_without_quotas_no_limit_is_read() -> None:
    """For a file system without quotas, quotas are not queried."""
    assert scratch_operations(Recorder(WITH_FOLDERS.but({MOUNTS: (MOUNTED.replace(",usrquota", ""),)}))) == []


@pytest.mark.parametrize(
    ("disks", "local", "mounts"),
    [((A,), (), True), ((), (MODEL.format(1),), True), ((), (), False)],
    ids=["named", "of the host", "none"],
)
def test_disks_are_mounted_if_present(disks: tuple[str, ...], local: tuple[str, ...], *, mounts: bool) -> None:
    """The disks of the plan, or the instance store disks of an EC2 machine."""
    table = WITH_FOLDERS.but({LocalDisks.name: local})

    assert (scratch_operations(Recorder(table), Workbench((ADA, BEN), None, disks)) == ["Mount /scratch"]) is mounts


def test_a_mounted_file_system_is_used() -> None:
    """Nothing is mounted over an existing mount at /scratch."""
    table = WITH_FOLDERS.but({MOUNTS: (MOUNTED.replace(",usrquota", ""),), LocalDisks.name: (MODEL.format(1),)})

    assert scratch_operations(Recorder(table), Workbench((ADA, BEN), None, (A,))) == []


@pytest.mark.parametrize("name", ["workbench-gpu-1.us-west-2", "titan-03.cellar", "nas.cellar", "gate.cellar"])
def test_an_image_fits_machines_with_other_hardware(name: str) -> None:
    """`install` depends on no disk, kernel or address, so an image of one machine has what another one needs."""
    builder = WITH_FOLDERS.but(
        {
            **NO_STORAGE,
            **dict.fromkeys(
                (AwsVersion.name, LocalDisks.name, Available.name, GpuState.name, HeldPackages.name, InstalledLock.name)
            ),
            KernelServes.name: ("yes",),
        }
    )
    other = {LocalDisks.name: (MODEL.format(1),), KernelServes.name: (), KernelWithoutQuotas.name: ("6.8.0-1021-aws",)}

    first, second = (
        Recorder(table).play(*roles_of(lab_node(name)), stages=["install"]) for table in (builder, builder.but(other))
    )

    assert first.commands == second.commands
    assert not [step for step in first.steps if step.kind.startswith("systemd.")]


@pytest.mark.parametrize(
    ("disks", "kernel", "installs"),
    [((A,), "6.8.0-1021-aws", True), ((A,), "", False), ((), "6.8.0-1021-aws", False)],
    ids=["lacking", "able", "no disks"],
)
def test_a_kernel_without_quotas_gets_the_module_package(
    disks: tuple[str, ...], kernel: str, *, installs: bool
) -> None:
    """Cloud kernels have quota modules in a separate package of their release."""
    table = WITH_FOLDERS.but({KernelWithoutQuotas.name: (kernel,) if kernel else ()})

    played = Recorder(table).play(Workbench((ADA, BEN), None, disks))

    assert (f"Install quota modules of kernel {kernel}" in played.names) is installs
    if installs:
        assert played.step(f"Install quota modules of kernel {kernel}").arguments["packages"] == [
            f"linux-modules-extra-{kernel}"
        ]


@pytest.mark.parametrize(
    ("options", "keeps"),
    [(["rw", "usrquota"], True), (["rw", "uquota"], True), (["usrjquota=aquota.user"], True), (["noquota"], False)],
)
def test_mount_options_show_quotas(options: list[str], *, keeps: bool) -> None:
    """The options of ext4 and xfs are recognised."""
    assert keeps_quotas({"/scratch": {"device": "/dev/nvme1n1", "type": "xfs", "options": options}}) is keeps


def test_quotas_are_read_by_user_id() -> None:
    """Ids of removed accounts are read as well."""
    output = [",,,,,5", "#0,ok,ok,20,0,0,,2,0,0,", "#20000,-ok,ok,9,0,7,,1,0,0,", "repquota: noise"]

    assert Quotas().process(output) == {"": 5, "0": 0, "20000": 7}


def test_folders_are_read_by_a_real_find(tmp_path: Path) -> None:
    """The command prints owner and mode of folders, and skips files."""
    (tmp_path / "ada").mkdir(mode=0o700)
    (tmp_path / "file").write_text("")
    command = Folders().command(str(tmp_path)).get_raw_value()

    output = subprocess.run(["sh", "-c", command], check=True, capture_output=True, text=True).stdout.splitlines()

    assert Folders().process(output) == {"ada": f"{tmp_path.owner()}:{tmp_path.group()} 700"}


PROGRAM = "workbench/bedplate-scratch"
MIB = 1 << 20
TABLE = "disk /dev/disk/by-id/a\nperson ada 20000\nperson ben 20001\n"
# An MBR entry of a Linux partition from sector 2048.
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
    """Return the program with folders of the test; it records mounts and quotas in `calls` instead."""
    module, real_run = load_program(PROGRAM), load_program(PROGRAM).run
    places = {"SYS": "sys", "SCRATCH": "scratch", "TABLE": "table", "MOUNTS": "mounts", "DEV": "dev"}
    module.__dict__.update({name: str(tmp_path / place) for name, place in places.items()})
    module.__dict__.update(PATIENCE=0, calls=[], kernel_has_quotas=lambda: True)
    (tmp_path / "mounts").write_text("")

    def run(*command: str) -> str:
        module.calls.append(command)
        return "" if command[0] in ("mount", "setquota", "mdadm") else str(real_run(*command))

    module.__dict__["run"] = run
    return module


def disk(tmp_path: Path, name: str) -> str:
    """Return a blank disk of 16 MiB."""
    path = tmp_path / name
    with path.open("wb") as stream:
        stream.truncate(16 * MIB)
    return str(path)


def array(program: ModuleType, *members: str) -> None:
    """Make the kernel report that disks form one device."""
    slaves = Path(program.SYS) / "class/block/md7/slaves"
    slaves.mkdir(parents=True)
    for member in members:
        (slaves / member).touch()
        (Path(program.SYS) / f"class/block/{member}/holders/md7").mkdir(parents=True)


def test_a_blank_disk_gets_a_file_system_with_quotas(program: ModuleType, tmp_path: Path) -> None:
    """Quotas are part of the file system, and enabled when it is mounted."""
    need_program("mkfs.ext4")
    blank = disk(tmp_path, "blank")

    program.mount([blank])

    features = subprocess.run(["dumpe2fs", "-h", blank], capture_output=True, text=True, check=True).stdout
    assert "User quota inode" in features
    assert program.probed(blank, "LABEL") == "scratch"
    assert program.calls[-1][:5] == ("mount", "-t", "ext4", "-o", "noatime,nosuid,nodev,usrquota")


def test_an_earlier_scratch_is_mounted_unchanged(program: ModuleType, tmp_path: Path) -> None:
    """A reboot keeps the content."""
    need_program("mkfs.ext4")
    kept = disk(tmp_path, "kept")
    program.mount([kept])
    before = Path(kept).read_bytes()

    program.mount([kept])

    assert Path(kept).read_bytes() == before
    assert [command[0] for command in program.calls] == ["mkfs.ext4", *["dumpe2fs", "mount"] * 2]


@pytest.mark.parametrize("first", [True, False], ids=["with quotas", "without quotas"])
def test_a_disk_is_mounted_by_any_kernel(
    program: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], *, first: bool
) -> None:
    """A kernel without quotas disables them with a warning; the next kernel with quotas enables them."""
    need_program("mkfs.ext4")
    kept = disk(tmp_path, "kept")
    mounts = []
    for supported in (first, not first, first):
        program.__dict__["kernel_has_quotas"] = lambda supported=supported: supported
        program.mount([kept])
        mounts.append(("usrquota" in program.calls[-1][4], program.has_quotas(kept)))

    assert mounts == [(supported, supported) for supported in (first, not first, first)]
    assert capsys.readouterr().err.count("/scratch has no quotas: kernel module quota_v2 is missing") == 2 - first
    assert subprocess.run(["e2fsck", "-fn", kept], capture_output=True, check=False).returncode == 0


def test_without_modprobe_there_are_no_quotas(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing modprobe means no quota support."""
    monkeypatch.setenv("PATH", "/nowhere")

    assert load_program(PROGRAM).kernel_has_quotas() is False


@pytest.mark.parametrize("content", sorted(FOREIGN))
def test_a_used_disk_is_not_changed(program: ModuleType, tmp_path: Path, content: str) -> None:
    """A wrong disk name in the fleet file destroys no data."""
    for needed in ("mkswap", "mke2fs", "blkid"):
        need_program(needed)
    used = disk(tmp_path, "used")
    subprocess.run(["sh", "-ec", FOREIGN[content], used], check=True, capture_output=True)
    before = Path(used).read_bytes()

    with pytest.raises(SystemExit, match="neither blank nor an earlier /scratch"):
        program.mount([used])

    assert Path(used).read_bytes() == before
    assert program.calls == []


def test_an_unreadable_disk_is_not_blank(program: ModuleType) -> None:
    """Blkid would report it as blank."""
    with pytest.raises(SystemExit, match="cannot read /dev/nowhere"):
        program.mount(["/dev/nowhere"])


def test_blank_disks_are_joined(program: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disks form a RAID 0 with a name that the next boot finds."""
    disks = [disk(tmp_path, "a"), disk(tmp_path, "b")]
    for name in ("a", "b"):
        (Path(program.SYS) / f"class/block/{name}/holders").mkdir(parents=True)
    record = program.run

    def join(*words: str) -> None:
        record(*words)
        array(program, "a", "b")

    monkeypatch.setattr(program, "run", join)

    assert program.array_of(disks) == "/dev/md7"
    assert program.calls[0][:3] == ("mdadm", "--create", "/dev/md/scratch")
    assert {"--level=0", "--raid-devices=2", *disks} <= set(program.calls[0])


def test_an_assembled_array_is_used(program: ModuleType) -> None:
    """Udev assembles the array before the program starts."""
    array(program, "a", "b")

    assert program.array_of(["/dev/a", "/dev/b"]) == "/dev/md7"
    assert program.calls == []


def test_an_array_with_other_disks_is_refused(program: ModuleType) -> None:
    """If the fleet file names two of three disks, the program changes nothing."""
    array(program, "a", "b", "c")

    with pytest.raises(SystemExit, match="md7 has other disks than /dev/a, /dev/b"):
        program.array_of(["/dev/a", "/dev/b"])


def test_instance_store_disks_are_found_by_model(program: ModuleType) -> None:
    """EBS volumes are also NVMe and never used, nor are disks of a container's host."""
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


def test_a_missing_disk_is_reported(program: ModuleType, tmp_path: Path) -> None:
    """No folders are created on the root disk instead."""
    Path(program.TABLE).write_text(f"disk {tmp_path}/gone\nperson me {os.getuid()}\n")

    with pytest.raises(SystemExit, match="gone: no such disk"):
        program.main()

    assert list(Path(program.SCRATCH).iterdir()) == []


@pytest.mark.parametrize(
    ("options", "limited"),
    [("rw,usrquota", True), ("rw,noquota", False), ("rw", False)],
    ids=["quotas", "disabled", "no quotas"],
)
def test_people_get_private_folders_and_quotas(program: ModuleType, options: str, *, limited: bool) -> None:
    """The quota is half of the file system in KiB, set by user id."""
    uid = os.getuid()
    Path(program.TABLE).write_text(f"person me {uid}\n")
    Path(program.MOUNTS).write_text(f"30 25 8:1 / {program.SCRATCH} rw,nodev - ext4 /dev/a {options}\n")

    program.main()

    folder = (Path(program.SCRATCH) / "me").stat()
    size = os.statvfs(program.SCRATCH)
    half = size.f_blocks * size.f_frsize // 2048
    assert (folder.st_mode & 0o777, folder.st_uid) == (0o700, uid)
    limit = ("setquota", "--user", str(uid), "0", str(half), "0", "0", program.SCRATCH)
    assert program.calls == ([limit] if limited else [])
