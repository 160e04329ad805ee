"""JupyterLab of a session: its command, a kernel with the Python of the run, and whether a kernel works."""

import http.client
import json
import shutil
import socket
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

from ..program import run, write_text
from .sockets import say

_OPTIONS = (
    *("--no-browser", "--allow-root", "--ServerApp.root_dir=."),
    # Only this account enters the folder of the socket.
    *("--ServerApp.sock_mode=0600", "--IdentityProvider.token="),
    # Whoever reaches a port of a kernel reads its output.
    *("--KernelManager.transport=ipc", "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate"),
    "--LabApp.extension_manager=readonly",
)
# Names would be in the notebook, too.
_KERNEL = "__import__('sys').path.append({!r}); __import__('ipykernel.kernelapp').kernelapp.launch_new_instance()"
_VERSION = "import sys; print(sys.version_info[:2])"
_SECONDS = 10.0


class Notebook:
    """JupyterLab of an environment, on a socket in a folder."""

    def __init__(self, environment: Path, folder: Path, told: Mapping[str, str]) -> None:
        self._folder, own = folder, environment / "bin/python"
        path = told.get("PATH", "")
        python = shutil.which("python", path=path) or shutil.which("python3", path=path) or str(own)
        # Packages that are compiled are for one version of Python.
        if run(python, "-c", _VERSION).text != run(str(own), "-c", _VERSION).text:
            say(f"the kernel has the Python of JupyterLab: {python} is of another version")
            python = str(own)
        (packages,) = environment.glob("lib/python*/site-packages")
        kernel = [python, "-c", _KERNEL.format(str(packages)), "-f", "{connection_file}"]
        document = {"argv": kernel, "display_name": f"Python of {python}", "language": "python"}
        # A debugger listens on a port of 127.0.0.1, and any account of the machine can attach to it.
        write_text(folder / "kernels/python3/kernel.json", json.dumps({**document, "metadata": {"debugger": False}}))
        home = Path(told.get("HOME", str(folder))) / ".jupyter/lab"
        # A configuration of the person could open a port.
        self.variables = {"JUPYTER_NO_CONFIG": "1", "JUPYTER_PATH": str(folder), "JUPYTER_RUNTIME_DIR": str(folder)}
        self.variables |= {f"JUPYTERLAB_{name.upper()}_DIR": str(home / name) for name in ("settings", "workspaces")}
        self._python, self._former = str(own), ""

    def command(self, page: str) -> Sequence[str]:
        """Return the command that serves pages on a socket of this name."""
        return [self._python, "-m", "jupyterlab", f"--ServerApp.sock={self._folder / page}", *_OPTIONS]

    def look(self, page: str) -> str:
        """Return what was seen if nothing works: kernels are idle, and have done nothing since the last look."""
        try:
            kernels, terminals = (self._ask(page, kind) for kind in ("kernels", "terminals"))
            former, self._former = self._former, json.dumps([one["last_activity"] for one in (*kernels, *terminals)])
            is_busy = any(kernel["execution_state"] != "idle" for kernel in kernels) or former != self._former
        except (OSError, http.client.HTTPException, ValueError, LookupError, TypeError):
            return ""
        return "" if is_busy else f"{len(kernels)} kernels and {len(terminals)} terminals, none of them busy"

    def _ask(self, page: str, kind: str) -> Sequence[Mapping[str, str]]:
        with closing(http.client.HTTPConnection("localhost", timeout=_SECONDS)) as connection:
            connection.sock = socket.socket(socket.AF_UNIX)
            connection.sock.settimeout(_SECONDS)
            connection.sock.connect(str(self._folder / page))
            connection.request("GET", f"/api/{kind}")
            answer: Sequence[Mapping[str, str]] = json.loads(connection.getresponse().read())
            return answer
