"""The role `nvidia`: which packages a machine with GPUs gets, and when its driver is replaced and loaded."""

import pytest

from bedplate.catalog import load_catalog
from bedplate.errors import InputError
from bedplate.plan.nodes import Hardware, Platform
from roles.catalog import names_of
from roles.nvidia.role import MODPROBE, Available, Driver, GpuState, Nvidia, driver_of, kernel_flavour
from roles.system import HeldPackages
from tests.testlab.fakes.node import Recorded, Recorder, recorded
from tests.testlab.fleets.variants import lab_node

UBUNTU = recorded("ubuntu-24.04")
DEBIAN = recorded("debian-12")
OPEN = Driver("580")
SITE = Nvidia(OPEN, Platform.METAL, profiling=True)
CLOUD = Nvidia(OPEN, Platform.CLOUD, profiling=False)
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
        ("unknown", 1, Driver("580")),
    ],
)
def test_the_driver_fits_the_gpus(model: str, count: int, expected: Driver) -> None:
    """Old GPUs need closed modules, eight GPUs behind NVSwitch the Fabric Manager; an unknown GPU is a new one."""
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
    """Debian's archive lacks these packages: the role installs none, and its rules are not judged."""
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
