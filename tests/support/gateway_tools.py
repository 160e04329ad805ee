"""What a site's gateway would be told, in its stead: systemctl, nft and ip that write down what they are asked.

They act on the folder that $GATEWAY names: `calls` is what was asked, `active` the units that run; a file `refused`
makes nft refuse what it checks, and `broken` lets nothing start.
"""

import stat
from pathlib import Path

import pytest

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
