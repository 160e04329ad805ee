"""Room for test nodes on this machine: what killed processes have left is cleared away, and a limit is raised."""

import re
import shutil
from contextlib import suppress
from pathlib import Path
from tempfile import gettempdir

from bedplate.writer import is_alive
from tests.support.stand.cgroup import groups, remove_group
from tests.support.stand.command import CommandError, call

# Each systemd watches a dozen files and folders; 128 in all is the kernel's default. It stays raised.
_WATCHERS = Path("/proc/sys/fs/inotify/max_user_instances")
_ENOUGH = 2048
_NAME = re.compile(r"stand(\d+)x\d+-.*")


def make_room() -> None:
    """Clear away what the stands of dead processes have left, and let many nodes run."""
    if int(_WATCHERS.read_text()) < _ENOUGH:
        _WATCHERS.write_text(str(_ENOUGH))
    for folder in _left(Path(gettempdir())):
        _remove(folder)
    for name in _left(Path("/run/netns")):
        with suppress(CommandError):
            call("ip", "netns", "delete", name.name)
    for folder in _left(Path("/etc/netns")):
        shutil.rmtree(folder, ignore_errors=True)
    for group in filter(_is_left, groups()):
        remove_group(group)


def _left(place: Path) -> list[Path]:
    """Return what stands that nobody keeps any more have in a folder."""
    entries = sorted(place.iterdir()) if place.is_dir() else []
    return [entry for entry in entries if _is_left(entry.name)]


def _is_left(name: str) -> bool:
    """Tell whether something is by its name a stand's that nobody keeps any more."""
    return bool((named := _NAME.fullmatch(name)) and not is_alive(int(named[1])))


def _remove(folder: Path) -> None:
    for mount in folder.glob("*/disk/root"):
        with suppress(CommandError):
            call("umount", "--recursive", str(mount))
    shutil.rmtree(folder, ignore_errors=True)
