"""A root over layers that stay as they are: what is written goes to a folder of its own."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.stand.command import call


@contextmanager
def mounted(layers: tuple[Path, ...], folder: Path) -> Iterator[Path]:
    """Mount the layers, the uppermost first, under an empty one; unmount them at the end. `folder` stays."""
    shutil.rmtree(folder, ignore_errors=True)
    upper, work, root = (folder / name for name in ("upper", "work", "root"))
    for made in (upper, work, root):
        made.mkdir(parents=True)
    lower = ":".join(str(layer) for layer in layers)
    call("mount", "-t", "overlay", "-o", f"lowerdir={lower},upperdir={upper},workdir={work}", "overlay", str(root))
    try:
        yield root
    finally:
        call("umount", "--recursive", str(root))
