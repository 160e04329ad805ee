"""A fake gateway: scripts for systemctl, nft, ip and ssh that record their calls in the folder $GATEWAY.

In the folder, `calls` lists the calls and `active` the running units. A file `refused` makes nft fail, and a file
`broken` makes each start fail.
"""

import stat
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from bedplate.programs.gateway.paths import ConfigBundle, GatewayPaths, parse_config_bundle
from tests.testlab.fleets.variants import cellar_gateway
from vpn.push import config_bundle_text
from vpn.sites.gateway import Gateway

ROLE_UNITS = ("bedplate-guard.service",)
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
    """Write the three scripts to a folder."""
    for name, text in (("systemctl", _SYSTEMCTL), ("nft", _NFT), ("ip", _IP)):
        program = folder / name
        program.write_text(text)
        program.chmod(program.stat().st_mode | stat.S_IXUSR)


def site_gateway_at(folder: Path) -> Path:
    """Create a gateway with the role `guard` in a folder, and return the folder."""
    units = folder / "etc/systemd/system"
    units.mkdir(parents=True)
    for unit in ROLE_UNITS:
        (units / unit).write_text("")
    (folder / "etc/frr").mkdir()
    return folder


def calls_of(gateway: Path) -> list[str]:
    """Return the calls since the last call of this function, without queries."""
    file = gateway / "calls"
    calls = file.read_text().splitlines() if file.exists() else []
    file.unlink(missing_ok=True)
    queries = ("systemctl is-active", "ip xfrm state")
    return [line for line in calls if not line.startswith(queries) and "probe" not in line]


def tools_before(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Write the scripts to a folder, and put it first in PATH."""
    folder.mkdir()
    tools_in(folder)
    patch.setenv("PATH", f"{folder}:/usr/bin:/bin")


ROOT = Path(__file__).parents[3]
_SHELL = """#!{python} -S
import os, pwd, sys
host, command = sys.argv[-2:]
folder = os.path.join({hosts!r}, host)
agent_commands = ["sudo -n bedplate-vpn " + verb for verb in ("activate", "apply", "status")]
if command not in agent_commands:
    sys.exit(f"{{command}}: not found")
if not os.path.isdir(folder):
    sys.stderr.write(f"ssh: connect to host {{host}} port 22: Connection timed out\\n")
    sys.exit(255)
os.environ["PYTHONPATH"] = {root!r}
os.environ["GATEWAY"] = folder
owner = pwd.getpwuid(os.getuid()).pw_name
places = ["--settings", folder, "--sockets", "/nowhere", "--owner", owner, "--state", folder, "--root", folder]
agent = [sys.executable, "-S", "-m", "bedplate.programs.gateway", *places, command.split()[-1]]
os.execv(sys.executable, agent)
"""


def shell_to(hosts: Path, patch: pytest.MonkeyPatch) -> None:
    """Replace ssh by a script; each folder below `hosts` is a gateway, which answers at its address."""
    patch.setattr("bedplate.operate.login.answering", frozenset)
    tools = hosts.with_name("tools")
    tools_before(tools, patch)
    shell = tools / "ssh"
    shell.write_text(_SHELL.format(python=sys.executable, hosts=str(hosts), root=str(ROOT)))
    shell.chmod(shell.stat().st_mode | stat.S_IXUSR)


SITE = cellar_gateway()
TOGETHER = "bedplate-ipsec-tunnels"
FIRST = "us-west-2-1"


def gateway_place(folder: Path, patch: pytest.MonkeyPatch) -> GatewayPaths:
    """Create a gateway with the role `guard`, and the scripts in PATH."""
    tools_before(folder / "tools", patch)
    root = site_gateway_at(folder / "gateway")
    patch.setenv("GATEWAY", str(root))
    return GatewayPaths(state=root / "var/lib/bedplate-vpn", root=root)


def config_bundle(gateway: Gateway) -> ConfigBundle:
    """Return the configuration bundle of a gateway."""
    bundle = parse_config_bundle(config_bundle_text(gateway))
    assert bundle
    return bundle


def without(gateway: Gateway, name: str) -> Gateway:
    """Return the gateway without a tunnel."""
    return replace(gateway, tunnels=tuple(tunnel for tunnel in gateway.tunnels if tunnel.name != name))


def files_of_gateway(place: GatewayPaths) -> dict[str, tuple[str, int]]:
    """Return text and mode of each file on a gateway, by its path."""
    files = [path for path in place.root.rglob("*") if path.is_file()]
    return {f"/{path.relative_to(place.root)}": (path.read_text(), path.stat().st_mode & 0o777) for path in files}
