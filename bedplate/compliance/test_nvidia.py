"""Rules for machines with GPUs: one driver of the planned branch, loaded, held, in persistence mode."""

import re

import pytest
from testinfra.host import Host

from bedplate.catalog import load_catalog
from bedplate.compliance.subject import applies_if
from bedplate.plan.nodes import NodePlan
from roles.nvidia.role import FABRIC_MANAGER, Available, Driver, driver_of

pytestmark = applies_if(lambda node: node.driver is not None)

_DRIVER_PACKAGE = re.compile(r"(?:lib)?nvidia-|linux-modules-nvidia-")


@pytest.fixture
def driver(host: Host, node: NodePlan) -> Driver:
    """Return the planned driver; the rule is not judged on a distribution without its packages."""
    assert node.driver
    assert node.gpus
    planned = driver_of(node.driver, node.gpus, load_catalog().chips.get(node.gpus.model))
    program = planned.programs[0]
    system = host.system_info.distribution
    if system != "ubuntu" and not host.run(Available().command(program)).stdout:
        pytest.skip(f"{system} has no package {program}: install branch {node.driver} by hand")
    return planned


def test_packages_of_one_driver_are_installed(host: Host, driver: Driver) -> None:
    """The driver's packages have the planned branch and the planned kind of modules."""
    packages = _versions(host)
    missing = [package for package in driver.programs if package not in packages]

    assert not missing, f"{', '.join(missing)} not installed"
    assert any(package.startswith(driver.modules("")) for package in packages), f"no {driver.modules('*')}"
    assert not driver.others(packages), f"also installed: {', '.join(driver.others(packages))}"


def test_programs_and_fabric_manager_have_one_version(host: Host, driver: Driver) -> None:
    """All programs of the driver have the same version; with another one the Fabric Manager refuses the GPUs."""
    packages = _versions(host)
    versions = {package: packages.get(package, "none").partition("-")[0] for package in driver.programs}

    assert len(set(versions.values())) == 1, f"versions {versions}"


def test_loaded_driver_is_the_installed_one(host: Host, driver: Driver) -> None:
    """The kernel has loaded the driver whose programs are installed."""
    installed = _versions(host).get(driver.programs[0], "").partition("-")[0]
    loaded = set(_ask(host, "driver_version"))

    assert loaded == {installed}, f"loaded {', '.join(loaded) or 'no driver'}, installed {installed}: reboot"


@pytest.mark.usefixtures("driver")
def test_every_planned_gpu_works(host: Host, node: NodePlan) -> None:
    """nvidia-smi shows as many GPUs of the planned model as the plan has."""
    assert node.gpus
    words = set(node.gpus.model.lower().split("-"))
    names = [name for name in _ask(host, "name") if words <= set(re.split(r"[ ()-]+", name.lower()))]

    assert len(names) == node.gpus.count, f"{len(names)} GPUs {node.gpus.model}, planned {node.gpus.count}"


@pytest.mark.usefixtures("driver")
def test_persistence_mode_is_enabled(host: Host) -> None:
    """Idle GPUs stay initialised, so that the first use takes no seconds."""
    assert set(_ask(host, "persistence_mode")) == {"Enabled"}


def test_nouveau_is_disabled(host: Host) -> None:
    """The module nouveau is not loaded, and does not load at boot: it would claim the GPUs."""
    assert "blacklist nouveau" in host.run("modprobe --showconfig").stdout.splitlines()
    assert not host.file("/sys/module/nouveau").exists


def test_driver_packages_are_held(host: Host, driver: Driver) -> None:
    """apt changes the driver only with an apply: an upgrade while it is loaded breaks all GPU programs."""
    held = set(host.check_output("apt-mark showhold").split())

    assert {*driver.programs} <= held
    assert any(package.startswith(driver.modules("")) for package in held)


def test_fabric_manager_runs(host: Host, driver: Driver) -> None:
    """The Fabric Manager runs on a machine with NVSwitch: without it no GPU program starts."""
    if not driver.fabric:
        pytest.skip("its GPUs are not connected by NVSwitch")
    assert host.service(FABRIC_MANAGER).is_running
    assert host.service(FABRIC_MANAGER).is_enabled


def _versions(host: Host) -> dict[str, str]:
    """Return the version of each installed package of a driver."""
    lines = host.check_output(
        "dpkg-query --show --showformat '${db:Status-Status} ${Package} ${Version}\\n'"
    ).splitlines()
    rows = (line.split() for line in lines if line.startswith("installed "))
    return {package: version for _, package, version in rows if _DRIVER_PACKAGE.match(package)}


def _ask(host: Host, field: str) -> list[str]:
    """Return a value of each GPU; none if the driver does not work."""
    answer = host.run("nvidia-smi --query-gpu=%s --format=csv,noheader", field)
    return answer.stdout.splitlines() if answer.succeeded else []
