"""This project's code on a machine that has Python and no more: what the stories of kernels of their own run from."""

import shutil
from pathlib import Path

import jinja2
import markupsafe

_ROOT = Path(__file__).parents[3]
_WANTED = ("vpn", "tests/support", "bedplate/errors.py", "bedplate/tunnel_key.py", "bedplate/__init__.py")


def bring_code(folder: Path) -> None:
    """Put it into a folder of the machine."""
    left_out = shutil.ignore_patterns("__pycache__")
    for package in _WANTED:
        whole = _ROOT / package
        (folder / package).parent.mkdir(parents=True, exist_ok=True)
        if whole.is_dir():
            shutil.copytree(whole, folder / package, ignore=left_out)
        else:
            shutil.copy(whole, folder / package)
    for module in (jinja2, markupsafe):
        shutil.copytree(Path(str(module.__file__)).parent, folder / module.__name__, ignore=left_out)
