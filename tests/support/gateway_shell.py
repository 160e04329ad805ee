"""A stand-in for the operator's ssh: what is sent to a gateway's name is done here, by the gateway's real keeper.

Each host is a folder; one that is not there is a host that cannot be reached.
"""

import stat
import sys
from pathlib import Path

import pytest

from tests.support.gateway_tools import tools_before

ROOT = Path(__file__).parents[2]
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
