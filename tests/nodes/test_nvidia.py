"""The roles `nvidia` and `frameworks` with apt and systemd, on a node with a fake driver and a fake PyTorch.

Placeholder packages have the names and versions of Ubuntu's archive. Their nvidia-smi counts files in /dev, and
`modprobe` and `uname`, first in PATH, pretend that Ubuntu's kernel loads the module. No GPU is involved.
"""

import pytest

from roles.frameworks.role import DIGEST, FOLDER, torch_version
from tests.testlab.machines.defects import Rule, Where, defects_at
from tests.testlab.machines.lab import VIOLATED, WORKBENCH, FleetFolder, check_defects
from tests.testlab.machines.node_lab import Node, NodeLab
from tests.testlab.machines.operator import Operator

pytestmark = pytest.mark.nightly

ROLE = ("--role", "nvidia", "--role", "frameworks")
_DEFECTS = defects_at(Where.GPU)
FAKE_DRIVER = r"""
set -e
pack() { # NAME VERSION: packs /srv/pack
  mkdir -p /srv/pack/DEBIAN /srv/archive
  printf '%s\n' "Package: $1" "Version: $2" 'Architecture: all' 'Maintainer: lab' 'Description: -' \
    >/srv/pack/DEBIAN/control
  dpkg-deb --build /srv/pack "/srv/archive/$1_${2#*:}.deb" >/dev/null
  rm -r /srv/pack
}
unit() { # NAME COMMAND
  mkdir -p /srv/pack/usr/lib/systemd/system /srv/pack/usr/bin
  printf '%s\n' '[Service]' "ExecStart=$2" '[Install]' WantedBy=multi-user.target \
    >"/srv/pack/usr/lib/systemd/system/$1.service"
}
for version in 580.95.05 595.71.05; do
  branch=${version%%.*} release=$version-0ubuntu1
  mkdir -p /srv/pack/usr/bin
  cat >/srv/pack/usr/bin/nvidia-smi <<'SMI'
#!/bin/bash
for gpu in /dev/nvidia?; do
  case $1 in
  *driver_version) cat /sys/module/nvidia/version ;;
  *name) echo NVIDIA H100 80GB HBM3 ;;
  *persistence_mode) if systemctl --quiet is-active nvidia-persistenced; then echo Enabled; else echo Disabled; fi ;;
  esac
done
SMI
  chmod 755 /srv/pack/usr/bin/nvidia-smi
  pack nvidia-utils-$branch-server $release
  unit nvidia-persistenced '/usr/bin/nvidia-persistenced --no-persistence-mode'
  printf '#!/bin/sh\n[ "$3" = --persistence-mode ] && exec sleep infinity\n' >/srv/pack/usr/bin/nvidia-persistenced
  chmod 755 /srv/pack/usr/bin/nvidia-persistenced
  pack nvidia-headless-no-dkms-$branch-server-open $release
  unit nvidia-fabricmanager '/usr/bin/sleep infinity'
  pack nvidia-fabricmanager-$branch $release
  mkdir -p /srv/pack/usr/share/nvidia-module; echo $version >/srv/pack/usr/share/nvidia-module/version
  pack linux-modules-nvidia-$branch-server-open-generic-hwe-24.04 $release
  pack libnvidia-compute-$branch-server $release
done
unit nvidia-fabricmanager '/usr/bin/sleep infinity'; pack nvidia-fabricmanager-580 580.126.20-0ubuntu1
pack datacenter-gpu-manager-4-cuda13 1:4.7.0-1
unit nvidia-dcgm '/usr/bin/sleep infinity'
printf '%s\n' '#!/bin/sh' 'systemctl --quiet is-active nvidia-dcgm && set -- /dev/nvidia? && echo "$# GPUs found."' \
  >/srv/pack/usr/bin/dcgmi; chmod 755 /srv/pack/usr/bin/dcgmi
pack datacenter-gpu-manager-4-core 1:4.7.0-1
cd /srv/archive; apt-ftparchive packages . >Packages
echo 'deb [trusted=yes] file:/srv/archive ./' >/etc/apt/sources.list.d/archive.list
printf '%s\n' 'Package: nvidia-fabricmanager-580' 'Pin: version 580.95.*' 'Pin-Priority: 1001' \
  >/etc/apt/preferences.d/archive
apt-get --quiet update >/dev/null
printf '%s\n' '#!/bin/sh' '[ "$*" = -r ] && echo 6.17.0-8-generic || exec /usr/bin/uname "$@"' >/usr/local/sbin/uname
printf '%s\n' '#!/bin/sh' 'cat /usr/share/nvidia-module/version' >/usr/local/sbin/modinfo
cat >/usr/local/sbin/modprobe <<'MODPROBE'
#!/bin/sh
case "$*" in
nvidia) mkdir -p /sys/module/nvidia && cp /usr/share/nvidia-module/version /sys/module/nvidia/ ;;
"-r nvidia") rm -r /sys/module/nvidia ;;
*) exec /usr/sbin/modprobe "$@" ;;
esac
MODPROBE
chmod 755 /usr/local/sbin/uname /usr/local/sbin/modinfo /usr/local/sbin/modprobe
for folder in /sys/module /sys/bus/pci/devices; do mount -t tmpfs tmpfs $folder; done
mkdir /sys/bus/pci/devices/0000:01:00.0
echo 0x10de >/sys/bus/pci/devices/0000:01:00.0/vendor; echo 0x030200 >/sys/bus/pci/devices/0000:01:00.0/class
touch /dev/nvidia0 /dev/nvidia1 /dev/nvidia2 /dev/nvidia3 /dev/nvidia4 /dev/nvidia5 /dev/nvidia6 /dev/nvidia7
"""
FAKE_PYTORCH = rf"""
mkdir -p {FOLDER}/{DIGEST}/bin; ln -s {DIGEST} {FOLDER}/current; echo {DIGEST} >{FOLDER}/current/complete
cat >{FOLDER}/current/bin/python <<'PYTHON'
#!/bin/sh
case "$2" in *device_count*) set -- /dev/nvidia?; echo $# ;; *) echo {torch_version()}+cu130 ;; esac
PYTHON
chmod 755 {FOLDER}/current/bin/python
"""


@pytest.fixture(scope="module")
def operator(node_lab: NodeLab, fleet_folder: FleetFolder) -> Operator:
    """Return the operator of a fleet whose workbench has eight H100."""
    fleet_folder.edit(r"(titan-03: \{)", r"\1gpus: {model: h100, count: 8}, ")
    fleet_folder.record()
    return Operator(node_lab, fleet_folder.fleet)


@pytest.fixture(scope="module")
def applied(node: Node, operator: Operator) -> list[str]:
    """Apply the role to a node without a driver; return the changes."""
    node.run(FAKE_DRIVER)
    node.run(FAKE_PYTORCH)
    return operator.changes(WORKBENCH, *ROLE)[WORKBENCH]


def test_a_second_apply_changes_nothing(applied: list[str], operator: Operator) -> None:
    """The driver is installed, held and loaded by the first apply; a second one changes nothing."""
    assert any("driver" in change for change in applied)
    assert operator.changes(WORKBENCH, *ROLE) == {WORKBENCH: []}


@pytest.fixture(scope="module")
def rule_outcomes(
    applied: list[str], node: Node, fleet_folder: FleetFolder, tmp_path_factory: pytest.TempPathFactory
) -> dict[Rule, str]:
    """Return the outcome of each rule with its defect."""
    assert applied
    return check_defects(fleet_folder, node, _DEFECTS, tmp_path_factory.mktemp("defects"))


@pytest.mark.parametrize("rule", _DEFECTS, ids="-".join)
def test_rule_detects_its_defect(rule: Rule, rule_outcomes: dict[Rule, str]) -> None:
    """The rule is kept on the applied node, and violated with its defect."""
    assert rule_outcomes[rule] == VIOLATED


def test_a_used_gpu_keeps_its_driver(
    rule_outcomes: dict[Rule, str], node: Node, operator: Operator, fleet_folder: FleetFolder
) -> None:
    """Another branch replaces the driver once no program uses a GPU, and is then loaded."""
    assert rule_outcomes
    fleet_folder.edit(r'driver: "580"', 'driver: "595"')
    node.run("systemd-run --quiet --unit job sh -c 'exec sleep infinity </dev/nvidia0'")
    operator.changes(WORKBENCH, *ROLE)
    assert node.run("cat /sys/module/nvidia/version") == "580.95.05\n"

    node.run("systemctl stop job")
    operator.changes(WORKBENCH, *ROLE)

    assert node.run("cat /sys/module/nvidia/version") == "595.71.05\n"
    assert "-580" not in node.run("dpkg-query --show --showformat '${Package} ' '*nvidia*'")
