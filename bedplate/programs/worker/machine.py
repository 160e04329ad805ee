"""The agent's machine: settings from the plan, kubelet's name, programs and the metadata service."""

import json
import shlex
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..program import ProgramError, output

ROOT = Path("/")
KUBECONFIG, AUTHORITY = Path("etc/kubernetes/kubelet.conf"), Path("etc/kubernetes/pki/ca.crt")
SETTINGS, STARTED = Path("etc/bedplate/worker.json"), Path("run/bedplate/kubelet.env")
# The service is link-local: it answers within milliseconds or not at all.
_IMDS_SECONDS = 2.0
_EXPIRED = 401


@dataclass(frozen=True)
class Settings:
    """`server` is the URL of the API. `drain` is how many seconds pods have to leave before the machine ends."""

    server: str
    cloud: bool
    drain: int
    bootstrap: str
    """The script that calls AWS with the rights of this machine."""
    metadata: str = "http://169.254.169.254/latest"


def read_settings(root: Path = ROOT) -> Settings:
    """Return the settings that the role has written. Raises ProgramError."""
    try:
        return Settings(**json.loads((root / SETTINGS).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise ProgramError(f"cannot read /{SETTINGS}: {error}; apply the role worker") from None


def node_name(root: Path = ROOT) -> str:
    """Return the name under which kubelet registers. Raises ProgramError."""
    try:
        words = shlex.split((root / STARTED).read_text(encoding="utf-8").partition("=")[2])
        return next(word.partition("=")[2] for word in words if word.startswith("--hostname-override="))
    except (OSError, ValueError, StopIteration):
        raise ProgramError(f"/{STARTED} has no name: `systemctl status kubelet` shows the reason") from None


def kubectl(*arguments: str, root: Path = ROOT, seconds: float = 30.0, text: str = "") -> str:
    """Run kubectl with kubelet's own certificate. Raises ProgramError."""
    return output("kubectl", *arguments, f"--kubeconfig={root / KUBECONFIG}", seconds=seconds, text=text)


class Metadata:
    """The instance metadata service, with a session token that is renewed."""

    def __init__(self, address: str) -> None:
        self._address, self._token = address, ""
        # A proxy for the internet does not lead to the machine's own service.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def read(self, path: str) -> str:
        """Return a value; empty if there is none. Raises OSError if the service does not answer."""
        for _ in range(2):
            self._token = self._token or self._ask("api/token", {"X-aws-ec2-metadata-token-ttl-seconds": "300"}, "PUT")
            try:
                return self._ask(f"meta-data/{path}", {"X-aws-ec2-metadata-token": self._token}, "GET")
            except urllib.error.HTTPError as error:
                if error.code != _EXPIRED:
                    return ""
                self._token = ""
        return ""

    def _ask(self, path: str, headers: Mapping[str, str], method: str) -> str:
        request = urllib.request.Request(f"{self._address}/{path}", headers=dict(headers), method=method)  # noqa: S310
        with self._opener.open(request, timeout=_IMDS_SECONDS) as reply:
            return str(reply.read().decode(errors="replace")).strip()
