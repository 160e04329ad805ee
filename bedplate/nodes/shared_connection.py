"""One SSH connection to a machine for all that is asked of it: OpenSSH's own multiplexing, in a folder of ours."""

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bedplate.nodes.ssh_config import Login

# The first value counts: nothing that is included may trust a key that it does not know, or ask at a terminal.
_TEXT = """\
Host *
  StrictHostKeyChecking yes
  BatchMode yes
  LogLevel ERROR
  ControlMaster auto
  ControlPath "{folder}/%C"
  ControlPersist 60
{login}
Include "{config}"
"""
_CLOSING_SECONDS = 10


@contextmanager
def shared_connection(node: str, config: Path, login: Login) -> Iterator[Path]:
    """Give a configuration that adds to `config` who logs in and that connections are shared; close them at the end."""
    with tempfile.TemporaryDirectory(prefix="bedplate-") as folder:
        file = Path(folder) / "ssh_config"
        text = _TEXT.format(folder=folder, login="\n".join(_lines(login)), config=config.absolute())
        file.write_text(text, encoding="utf-8")
        try:
            yield file
        finally:
            command = ("ssh", "-F", str(file), "-O", "exit", node)
            subprocess.run(command, capture_output=True, timeout=_CLOSING_SECONDS, check=False)  # noqa: S603


def _lines(login: Login) -> Iterator[str]:
    if login.user:
        yield f"  User {login.user}"
    if login.identity:
        yield f'  IdentityFile "{login.identity.absolute()}"'
        yield "  IdentitiesOnly yes"
