"""Rules for machines with GPUs: one driver of the planned branch, loaded, held, in persistence mode; and DCGM."""

import re
from ipaddress import ip_address

import pytest
from testinfra.host import Host

from bedplate.catalog.catalog import load_chips
from bedplate.compliance.settings import applies_if, installed, listening_addresses
from bedplate.plan.firewall import GPU_EXPORTER_PORT
from bedplate.plan.nodes import NodePlan
from roles.nvidia.exporter import UNIT
from roles.nvidia.role import (
    DCGM,
    FABRIC_MANAGER,
    IMEX,
    Available,
    Driver,
    GpuState,
    ImexNodes,
    Tools,
    driver_of,
    needs_fabric_manager,
)

pytestmark = applies_if(lambda node: node.driver is not None)

_DRIVER_PACKAGE = re.compile(r"(?:lib)?nvidia-|linux-modules-nvidia-|datacenter-gpu-manager-|nvlsm$")


@pytest.fixture
def driver(host: Host, node: NodePlan) -> Driver:
    """Return the planned driver; the rule is skipped on a distribution without its packages."""
    assert node.driver
    assert node.gpus
    planned = driver_of(node.driver, node.gpus, load_chips().get(node.gpus.model))
    program = planned.programs[0]
    system = host.system_info.distribution
    if system != "ubuntu" and not host.run(Available().command(program)).stdout:
        pytest.skip(f"{system} has no package {program}: install branch {node.driver} by hand")
    return planned


@installed
def test_packages_of_one_driver_are_installed(host: Host, driver: Driver) -> None:
    """The driver's packages have the planned branch and the planned kind of modules."""
    packages = _versions(host)
    missing = [package for package in driver.programs if package not in packages]

    assert not missing, f"{', '.join(missing)} not installed"
    assert any(package.startswith(driver.modules("")) for package in packages), f"no {driver.modules('*')}"
    assert not driver.others(packages), f"also installed: {', '.join(driver.others(packages))}"


@installed
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


@installed
def test_driver_packages_are_held(host: Host, driver: Driver) -> None:
    """apt changes the driver only with an apply: an upgrade while it is loaded breaks all GPU programs."""
    held = set(host.check_output("apt-mark showhold").split())

    assert {*driver.programs} <= held
    assert any(package.startswith(driver.modules("")) for package in held)


def test_fabric_manager_runs(host: Host, node: NodePlan, driver: Driver) -> None:
    """The Fabric Manager runs with NVSwitch: without it no GPU program starts. So does IMEX with a list."""
    has_imex = driver.imex and host.run(ImexNodes().command()).stdout
    state = GpuState().process(host.run(GpuState().command()).stdout.splitlines())
    has_switch = needs_fabric_manager(driver, node.platform, state)
    services = [name for name, is_needed in ((FABRIC_MANAGER, has_switch), (IMEX, has_imex)) if is_needed]
    if not services:
        pytest.skip("its GPUs are not connected by NVSwitch, or not to listed machines")
    for service in services:
        assert host.service(service).is_running
        assert host.service(service).is_enabled


@pytest.fixture
def tools(host: Host, node: NodePlan, driver: Driver) -> Tools:
    """Return the planned DCGM; its rules are skipped where nothing provides its packages."""
    planned = Tools(driver.branch, node.software, node.nvidia_key, driver.subnets, node.is_observed)
    if not planned.is_trusted and not host.run(Available().command(planned.packages[0])).stdout:
        pytest.skip(f"the key of its repository is not verified in software set {planned.software.name}")
    return planned


@installed
def test_dcgm_has_the_version_of_the_set(host: Host, tools: Tools) -> None:
    """DCGM is that of the software set, for the driver's CUDA version, and held; with NVLSM where the GPUs need it."""
    versions, held = _versions(host), set(host.check_output("apt-mark showhold").split())
    wrong = {package: versions.get(package, "none") for package in tools.dcgm}

    assert {version.partition("-")[0] for version in wrong.values()} == {f"1:{tools.version}"}, f"versions {wrong}"
    assert {*tools.packages} <= held & versions.keys()


@pytest.mark.usefixtures("tools")
def test_dcgm_sees_every_gpu(host: Host, node: NodePlan) -> None:
    """The daemon of DCGM runs and manages as many GPUs as the plan has."""
    assert node.gpus
    assert host.service(DCGM).is_running
    assert f"{node.gpus.count} GPUs found." in host.run("dcgmi discovery --list").stdout.splitlines()


@applies_if(lambda node: node.driver is not None and node.is_observed)
@pytest.mark.usefixtures("tools")
def test_exporter_of_gpus_serves_metrics(host: Host, node: NodePlan) -> None:
    """The DCGM exporter runs with a limit of memory, and serves each GPU over TLS on the address of the machine."""
    addresses = [ip_address(address) for address in listening_addresses(host, GPU_EXPORTER_PORT)]

    assert host.service(UNIT).is_enabled
    assert host.check_output("systemctl show --property MemoryMax --value %s", UNIT) == str(1 << 30)
    assert addresses == [node.address or addresses[0]], f"it listens on {addresses}"
    assert not addresses[0].is_unspecified
    url = f"https://{addresses[0]}:{GPU_EXPORTER_PORT}/metrics"
    metrics = host.check_output("curl --insecure -fsS --max-time 20 %s", url)
    assert "\nDCGM_FI_DEV_FB_USED{" in metrics


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
