"""One SSH connection to a machine for all that is asked of it: OpenSSH's own multiplexing, in a folder of ours."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_USERS = (Path("~/.ssh/config"), Path("/etc/ssh/ssh_config"))
_TEXT = """\
{included}
Host *
  ControlMaster auto
  ControlPath "{folder}/%C"
  ControlPersist 60
  BatchMode yes
  ConnectTimeout 10
"""
_CLOSING_SECONDS = 10


@contextmanager
def shared_connection(folder: Path, node: str, config: Path | None) -> Iterator[Path]:
    """Give a configuration like `config`, or the user's own, by which connections are shared; close them at the end."""
    included = (config.absolute(),) if config else tuple(path.expanduser() for path in _USERS)
    file = folder / "ssh_config"
    lines = "\n".join(f'Include "{path}"' for path in included)
    file.write_text(_TEXT.format(included=lines, folder=folder), encoding="utf-8")
    try:
        yield file
    finally:
        command = ("ssh", "-F", str(file), "-O", "exit", node)
        subprocess.run(command, capture_output=True, timeout=_CLOSING_SECONDS, check=False)  # noqa: S603
