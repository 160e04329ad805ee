"""What a site's gateway would be told, in its stead: systemctl, nft and ip that write down what they are asked.

They act on the folder that $GATEWAY names: `calls` is what was asked, `active` the units that run; a file `refused`
makes nft refuse what it checks, and `broken` lets nothing start.
"""

import stat
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.testlab.fleets.variants import cellar
from vpn.keeper.place import Place, Shipment, parse_shipment
from vpn.push import shipment_text
from vpn.sites.gateway import Gateway

GROUND = ("bedplate-guard.service",)
_SYSTEMCTL = r"""#!/bin/sh
echo "systemctl $*" >>"$GATEWAY/calls"
verb=$1
case $verb in
is-active)
  shift
  for unit; do grep -qx "$unit" "$GATEWAY/active" 2>/dev/null && echo active || echo inactive; done ;;
enable)
  shift 2
  [ ! -e "$GATEWAY/broken" ] || { echo "Job for $1 failed" >&2; exit 1; }
  for unit; do grep -qx "$unit" "$GATEWAY/active" 2>/dev/null || echo "$unit" >>"$GATEWAY/active"; done ;;
disable)
  shift 2
  for unit; do sed -i "/^$unit\$/d" "$GATEWAY/active"; done ;;
esac
"""
_NFT = """#!/bin/sh
echo "nft $*" >>"$GATEWAY/calls"
[ ! -e "$GATEWAY/refused" ] || { echo "syntax error" >&2; exit 1; }
"""
_IP = """#!/bin/sh
case "$*" in
"-brief link show type xfrm") cat "$GATEWAY/devices" 2>/dev/null ;;
*) echo "ip $*" >>"$GATEWAY/calls" ;;
esac
"""


def tools_in(folder: Path) -> None:
    """Put the three into a folder of programs."""
    for name, text in (("systemctl", _SYSTEMCTL), ("nft", _NFT), ("ip", _IP)):
        program = folder / name
        program.write_text(text)
        program.chmod(program.stat().st_mode | stat.S_IXUSR)


def site_gateway_at(folder: Path) -> Path:
    """Make a folder a gateway that has the role `guard`, and return it."""
    units = folder / "etc/systemd/system"
    units.mkdir(parents=True)
    for unit in GROUND:
        (units / unit).write_text("")
    (folder / "etc/frr").mkdir()
    return folder


def calls_of(gateway: Path) -> list[str]:
    """Return what was asked of its programs, but questions, since this was called last."""
    file = gateway / "calls"
    told = file.read_text().splitlines() if file.exists() else []
    file.unlink(missing_ok=True)
    questions = ("systemctl is-active", "ip xfrm state")
    return [line for line in told if not line.startswith(questions) and "probe" not in line]


def tools_before(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Make a folder of programs, with the three in it, the first that is searched."""
    folder.mkdir()
    tools_in(folder)
    patch.setenv("PATH", f"{folder}:/usr/bin:/bin")


ROOT = Path(__file__).parents[3]
_SHELL = """#!{python} -S
import os, pwd, sys
host, command = sys.argv[-2:]
folder = os.path.join({hosts!r}, host)
keeper = ["sudo -n bedplate-vpn " + verb for verb in ("take", "lay", "status")]
if command not in keeper:
    sys.exit(f"{{command}}: not found")
if not os.path.isdir(folder):
    sys.stderr.write(f"ssh: connect to host {{host}} port 22: Connection timed out\\n")
    sys.exit(255)
os.environ["PYTHONPATH"] = {root!r}
os.environ["GATEWAY"] = folder
owner = pwd.getpwuid(os.getuid()).pw_name
places = ["--settings", folder, "--sockets", "/nowhere", "--owner", owner, "--memory", folder, "--root", folder]
keeper = [sys.executable, "-S", "-m", "vpn.keeper", *places, command.split()[-1]]
os.execv(sys.executable, keeper)
"""


def shell_to(hosts: Path, patch: pytest.MonkeyPatch) -> None:
    """Put the stand-in before the operator's ssh; each folder below `hosts` is a gateway."""
    tools = hosts.with_name("tools")
    tools_before(tools, patch)
    shell = tools / "ssh"
    shell.write_text(_SHELL.format(python=sys.executable, hosts=str(hosts), root=str(ROOT)))
    shell.chmod(shell.stat().st_mode | stat.S_IXUSR)


SITE = cellar()
TOGETHER = "bedplate-ipsec-tunnels"
FIRST = "us-west-2-1"


def gateway_place(folder: Path, patch: pytest.MonkeyPatch) -> Place:
    """Make a gateway that has the role, and programs that write down what they are asked."""
    tools_before(folder / "tools", patch)
    root = site_gateway_at(folder / "gateway")
    patch.setenv("GATEWAY", str(root))
    return Place(memory=root / "var/lib/bedplate-vpn", root=root)


def shipment(gateway: Gateway) -> Shipment:
    """Return what is sent to a gateway."""
    found = parse_shipment(shipment_text(gateway))
    assert found
    return found


def without(gateway: Gateway, name: str) -> Gateway:
    """Return a gateway that has a tunnel less."""
    return replace(gateway, tunnels=tuple(one for one in gateway.tunnels if one.name != name))


def lying_in(place: Place) -> dict[str, tuple[str, int]]:
    """Return text and mode of each file on a gateway, by its path."""
    found = [each for each in place.root.rglob("*") if each.is_file()]
    return {f"/{each.relative_to(place.root)}": (each.read_text(), each.stat().st_mode & 0o777) for each in found}
