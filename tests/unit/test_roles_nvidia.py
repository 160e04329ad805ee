"""The role `nvidia`: which packages a machine with GPUs gets, and when its driver is replaced and loaded."""

import json
import re
from dataclasses import replace
from hashlib import sha256
from ipaddress import IPv4Address

import pytest

from bedplate.catalog import load_catalog
from bedplate.catalog.software import NVIDIA_KEY_SUM
from bedplate.errors import InputError
from bedplate.monitoring import layer
from bedplate.plan.nodes import Hardware, Platform
from roles.base import file_text
from roles.catalog import names_of
from roles.monitoring.role import WEB
from roles.nvidia.exporter import DROP_IN, FIELDS, PACKAGE, Exporter
from roles.nvidia.role import MODPROBE, Available, Driver, GpuState, ImexNodes, Nvidia, Tools, driver_of, kernel_flavour
from roles.system import HeldPackages
from tests.conftest import DATA
from tests.testlab.fakes.node import Recorded, Recorder, recorded
from tests.testlab.fleets.variants import lab_node

UBUNTU = recorded("ubuntu-24.04")
DEBIAN = recorded("debian-12")
OPEN = Driver("580")
SOFTWARE = load_catalog().software_set("2026-11")
TOOLS = Tools("580", SOFTWARE, key="")
SITE = Nvidia(OPEN, Platform.METAL, profiling=True, tools=TOOLS)
CLOUD = Nvidia(OPEN, Platform.CLOUD, profiling=False, tools=TOOLS)
NO_GPU = ("kernel=6.17.0-8-generic",)
UNLOADED = (*NO_GPU, "gpu=")
LOADED = (*UNLOADED, "nvidia=")
INSTALL, LOAD = "Install the driver of GPUs", "Load the driver of GPUs"
MODULES = "linux-modules-nvidia-580-server-open-generic-hwe-24.04"


def machine(table: Recorded, state: tuple[str, ...], *installed: str) -> Recorded:
    """Return the facts of a machine with GPUs in a state, and these packages of its driver, held."""
    packages = tuple(f"ii  {package} 580.95.05-0ubuntu1 amd64" for package in installed)
    listed = table.answers["deb.DebPackages"] or ()
    answers = {"deb.DebPackages": (*listed, *packages), GpuState.name: state, HeldPackages.name: installed or None}
    return table.but({**answers, Available.name: None})


@pytest.mark.parametrize(
    ("model", "count", "expected"),
    [
        ("h100", 8, Driver("580", fabric=True)),
        ("h100", 1, Driver("580")),
        ("l4", 4, Driver("580")),
        ("titan-x", 4, Driver("580", open=False)),
        ("b200", 8, Driver("580", fabric=True, subnets=True)),
        ("gb300", 4, Driver("580", imex=True)),
        ("unknown", 1, Driver("580")),
    ],
)
def test_the_driver_fits_the_gpus(model: str, count: int, expected: Driver) -> None:
    """Old GPUs need closed modules, eight GPUs behind NVSwitch the Fabric Manager, Blackwell NVLSM or IMEX."""
    assert driver_of("580", Hardware(model, count), load_catalog().chips.get(model)) == expected


def test_only_machines_with_gpus_have_the_role() -> None:
    """A workbench without GPUs and a gateway get no driver."""
    assert "nvidia" in names_of(lab_node("titan-01.cellar"))
    assert "nvidia" in names_of(lab_node("workbench-gpu-1.us-west-2"))
    assert "nvidia" not in names_of(lab_node("workbench-cpu-1.us-west-2"))
    assert "nvidia" not in names_of(lab_node("gate.cellar"))


def test_an_image_gets_the_modules_of_the_clouds_kernel() -> None:
    """An image build installs AWS's modules, whatever kernel builds it, and loads nothing."""
    played = Recorder(machine(UBUNTU, NO_GPU)).play(CLOUD)

    packages = set(played.step(INSTALL).commands[-1].split())
    assert {"linux-modules-nvidia-580-server-open-aws", *OPEN.programs} <= packages
    assert LOAD not in played.names


def test_a_sites_machine_gets_the_modules_of_its_kernel() -> None:
    """A physical machine gets the modules of its running kernel, which are then loaded."""
    played = Recorder(machine(UBUNTU, UNLOADED)).play(SITE)

    assert MODULES in played.step("Install the kernel modules of GPUs").commands[-1]
    assert played.names[-1] == LOAD
    assert "NVreg_RestrictProfilingToAdminUsers=0" in played.written(MODPROBE)


def test_a_loaded_driver_is_not_touched() -> None:
    """With the driver installed, held and loaded, nothing is installed or loaded."""
    played = Recorder(machine(UBUNTU, LOADED, MODULES, *OPEN.programs)).play(SITE)

    assert played.step(INSTALL).commands == ()
    assert LOAD not in played.names


@pytest.mark.parametrize("state", [(*LOADED, "outdated="), (*UNLOADED, "nouveau="), UNLOADED])
def test_another_driver_is_unloaded(state: tuple[str, ...]) -> None:
    """An older driver in memory, nouveau, or none at all: the installed driver is loaded, else a reboot is required."""
    load = Recorder(machine(UBUNTU, state, MODULES, *OPEN.programs)).play(SITE).step(LOAD)

    assert "modprobe -r $m" in load.commands[0]
    assert "else touch /run/reboot-required" in load.commands[0]


@pytest.mark.parametrize(
    ("role", "state", "starts"),
    [
        (SITE, LOADED, False),
        (SITE, (*LOADED, "switch="), True),
        (replace(SITE, driver=replace(OPEN, fabric=True, subnets=True)), LOADED, True),
        (CLOUD, LOADED, True),
    ],
    ids=["cards", "NVSwitch", "Blackwell", "cloud"],
)
def test_the_fabric_manager_starts_where_an_nvswitch_is(role: Nvidia, state: tuple[str, ...], *, starts: bool) -> None:
    """Eight cards in PCIe slots have none, and it would fail there."""
    role = replace(role, driver=replace(role.driver, fabric=True))
    played = Recorder(machine(UBUNTU, state, MODULES, *role.driver.programs)).play(role)

    assert ("Start the Fabric Manager" in played.names) == starts


def test_another_branch_waits_for_idle_gpus() -> None:
    """Another branch is removed before the planned one is installed, but not while a program uses a GPU."""
    old = ("nvidia-utils-570-server", "libnvidia-compute-570-server", "linux-modules-nvidia-570-server-open-generic")
    idle = Recorder(machine(UBUNTU, LOADED, *old)).play(SITE)
    used = Recorder(machine(UBUNTU, (*LOADED, "busy="), *old)).play(SITE)

    purge = idle.step("Remove other branches than 580").commands[0]
    assert set(old) <= set(purge.split())
    assert idle.names.index("Remove other branches than 580") < idle.names.index(INSTALL)
    assert INSTALL not in used.names


def test_debian_has_no_driver() -> None:
    """Debian's archive lacks these packages: the role installs none, and its rules are skipped."""
    assert INSTALL not in Recorder(machine(DEBIAN, UNLOADED)).play(SITE).names


@pytest.mark.parametrize(
    ("release", "flavour"),
    [
        ("6.8.0-45-generic", "generic"),
        ("6.17.0-8-generic", "generic-hwe-24.04"),
        ("6.14.0-1018-aws", "aws"),
        ("6.8.0-1030-nvidia", "nvidia"),
    ],
)
def test_flavours_of_kernels(release: str, flavour: str) -> None:
    """Ubuntu's first generic kernel and the newer ones have packages of their own."""
    assert kernel_flavour(release) == flavour


def test_a_kernel_without_modules_is_an_error() -> None:
    """A kernel that is not Ubuntu's has no prebuilt modules; the message names kernels that have."""
    with pytest.raises(InputError, match=r"no NVIDIA modules for the kernel 6\.1\.0-28-amd64"):
        kernel_flavour("6.1.0-28-amd64")


KEY = (DATA / "keys" / "one.asc").read_text()
TRUSTED = Tools("580", SOFTWARE.with_checksum(NVIDIA_KEY_SUM, sha256(KEY.encode()).hexdigest()), KEY, switched=True)


def test_dcgm_comes_from_nvidias_repository() -> None:
    """Of that repository apt installs only DCGM in the set's version, and NVLSM where NVSwitch needs it."""
    role = replace(SITE, driver=Driver("580", fabric=True, subnets=True), tools=TRUSTED)

    played = Recorder(machine(UBUNTU, UNLOADED)).play(role)

    install = set(played.step("Install DCGM").commands[-1].split())
    assert {"datacenter-gpu-manager-4-core", "datacenter-gpu-manager-4-cuda13", "nvlsm"} <= install
    pins = played.written("/etc/apt/preferences.d/nvidia")
    assert "Package: datacenter-gpu-manager-4-*\nPin: version 1:4.7.0-*\n" in pins
    assert "/ubuntu2404/x86_64/" in played.written("/etc/apt/sources.list.d/nvidia.sources")
    assert played.written("/etc/modules-load.d/bedplate-nvlsm.conf") == "ib_umad\n"
    assert "Start DCGM" in played.names


def test_without_a_verified_key_there_is_no_dcgm() -> None:
    """Nothing is installed from a repository whose key nobody compared; a driver of CUDA 12 has another package."""
    played = Recorder(machine(UBUNTU, UNLOADED)).play(SITE)

    assert not {"Install DCGM", "Start DCGM", "Write the key of repository nvidia"} & {*played.names}
    assert replace(TOOLS, branch="570").packages[1] == "datacenter-gpu-manager-4-cuda12"


EXPORTER = Exporter(IPv4Address("192.168.40.21"), of_pods=False)


def test_the_exporter_of_gpus_is_that_of_nvidia() -> None:
    """With a hub, the package comes with DCGM, and its unit serves own fields over TLS on the private address."""
    role = replace(SITE, tools=replace(TRUSTED, is_observed=True), exporter=EXPORTER)

    played = Recorder(machine(UBUNTU, UNLOADED)).play(role)

    install = set(played.step("Install DCGM").commands[-1].split())
    profiling = {f"datacenter-gpu-manager-4-{name}" for name in ("proprietary", "proprietary-cuda13")}
    assert {PACKAGE, *profiling} <= install
    assert f"Package: nvlsm {PACKAGE}\nPin: version *\n" in played.written("/etc/apt/preferences.d/nvidia")
    unit = played.written(DROP_IN)
    (start,) = [line for line in unit.splitlines() if line.startswith("ExecStart=/")]
    assert "--address 192.168.40.21:9400 " in start
    assert f"--web-config-file {WEB}" in start
    assert f"--collectors {FIELDS} " in start
    assert "--kubernetes" not in start
    assert {"MemoryMax=1G", "ExecStart=", "Restart=always"} <= {*unit.splitlines()}
    assert {"Start the exporter of GPUs", "Restart the exporter of GPUs"} <= {*played.changes}


def test_the_exporter_of_a_worker_knows_its_pods() -> None:
    """It asks the kubelet which pod has a GPU; on a machine without an address of the plan it reads the route."""
    role = replace(SITE, tools=replace(TRUSTED, is_observed=True), exporter=Exporter(None, of_pods=True))

    played = Recorder(machine(UBUNTU, UNLOADED)).play(role)

    assert re.search(r"--address 10\.64\.33\.7:9400 .* --kubernetes$", played.written(DROP_IN), re.MULTILINE)


def test_without_a_hub_nobody_installs_the_exporter() -> None:
    """Nobody would read it; nor does a machine without NVIDIA's repository start what it cannot install."""
    alone = Recorder(machine(UBUNTU, UNLOADED)).play(replace(SITE, tools=TRUSTED))
    without = Recorder(machine(UBUNTU, UNLOADED)).play(replace(SITE, exporter=EXPORTER))

    assert not [line for line in alone.commands if PACKAGE in line and "install" in line]
    assert DROP_IN not in alone.disk.entries
    assert "Start the exporter of GPUs" not in {*alone.names, *without.names}


def test_fields_of_gpus_are_what_rules_read() -> None:
    """Each field of DCGM that the normalised layer reads is collected, and each line has a field, a kind and a help."""
    rows = [line.split(", ", 2) for line in file_text("nvidia/gpu-metrics.csv").splitlines() if line[0] != "#"]
    read = {
        f"{start}{part}{end}"
        for start, parts, end in re.findall(r"(DCGM_\w+)(?:\(([A-Z_|]+)\)(\w*))?", json.dumps(layer.groups()))
        for part in parts.split("|")
    }

    assert all(len(row) == 3 and row[1] in {"gauge", "counter"} and "," not in row[2] for row in rows)
    assert len({row[0] for row in rows}) == len(rows)
    assert read <= {row[0] for row in rows}


@pytest.mark.parametrize(("nodes", "starts"), [(("10.0.0.7",), True), ((), False)], ids=["listed", "not listed"])
def test_imex_starts_once_its_nodes_are_listed(nodes: tuple[str, ...], *, starts: bool) -> None:
    """All machines of a domain have the same list, which only an administrator or Kubernetes can know."""
    role = replace(SITE, driver=Driver("580", imex=True))

    played = Recorder(machine(UBUNTU, UNLOADED).but({ImexNodes.name: nodes})).play(role)

    assert ("Start IMEX" in played.names) is starts
    assert "nvidia-imex-580" in played.step(INSTALL).commands[-1]
    assert "NVreg_CreateImexChannel0=1" in played.written(MODPROBE)


@pytest.mark.parametrize(("version", "replaces"), [("1:4.5.3-1", True), ("1:4.7.0-1", False)])
def test_another_version_of_dcgm_is_replaced(version: str, *, replaces: bool) -> None:
    """It is held, so only an apply with another software set changes it."""
    packages = tuple(f"ii  {package} {version} amd64" for package in TOOLS.packages)
    table = machine(UBUNTU, UNLOADED)
    table = table.but({"deb.DebPackages": (*(table.answers["deb.DebPackages"] or ()), *packages)})

    played = Recorder(table).play(replace(SITE, tools=TRUSTED))

    assert ("Replace DCGM by version 4.7.0" in played.names) is replaces
