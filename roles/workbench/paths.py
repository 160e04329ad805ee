"""Where programs of CUDA are found: by whoever logs in, and by the one command that somebody sends over SSH."""

import re
from functools import partial

from roles.texts import Edit

CUDA = "/usr/local/cuda/bin"
# pam_env reads it for every session, sshd's too, with a shell that logs in or one that does not; a login shell of
# Debian's sets its path anew, and reads profile.d.
ENVIRONMENT = "/etc/environment"
# Where nothing is said: what Ubuntu says there, for it holds for root too.
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/games:/usr/local/games"
_SAID = re.compile(r"^(?:export\s+)?PATH=([\"']?)(.*?)\1\s*$", re.MULTILINE)


def path_of(text: str) -> str:
    """Return the path that a text like /etc/environment gives, of several the last; empty where it gives none."""
    said = _SAID.findall(text)
    return str(said[-1][1]) if said else ""


def with_program_folder(text: str, folder: str) -> str:
    """Return a text like /etc/environment whose path ends with a folder, beside what it says already."""
    path = path_of(text)
    if folder in path.split(":"):
        return text
    said = f'PATH="{path or _PATH}:{folder}"'
    kept = [line for line in text.splitlines() if not _SAID.match(line)]
    return "\n".join((*kept, said)) + "\n"


EDIT = Edit(ENVIRONMENT, partial(with_program_folder, folder=CUDA))
