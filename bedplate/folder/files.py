"""The files of a fleet folder except the fleet file: the Pulumi project, the CI workflow, .gitignore and a README."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from bedplate.errors import InputError
from bedplate.files import os_errors_as_machine_errors

FLEET_FILE = "fleet.yaml"
_TEMPLATES = Path(__file__).parent / "templates"
# By the path in the fleet folder. A template has another name where the name has a meaning for tools in the clone.
_FILES: Mapping[str, str] = MappingProxyType(
    {
        "Pulumi.yaml": "Pulumi.yaml",
        "__main__.py": "main.txt",
        ".gitignore": "gitignore",
        "README.md": "README.md",
        ".github/workflows/fleet.yml": "fleet.yml",
    }
)
_ENVIRONMENT = ".venv"


def folder_files(name: str) -> dict[str, bytes]:
    """Return the content of each file by its path in the folder; `name` is that of the fleet."""
    return {path: (_TEMPLATES / file).read_text().replace("FLEET", name).encode() for path, file in _FILES.items()}


def check_empty(folder: Path) -> None:
    """Raise InputError unless the folder is new, empty or an empty git repository."""
    if folder.exists() and not folder.is_dir():
        raise InputError("is not a folder", where=str(folder), fix="name a new folder")
    with os_errors_as_machine_errors(folder, "read"):
        names = sorted(entry.name for entry in folder.iterdir()) if folder.is_dir() else []
    if extra := [name for name in names if name != ".git"]:
        raise InputError(
            f"the folder is not empty: {', '.join(extra[:3])}{', ...' if len(extra) > 3 else ''}",  # noqa: PLR2004
            where=str(folder),
            fix="name a new folder; `bedplate init --link` prepares an existing fleet folder on this machine",
        )


def link_environment(folder: Path) -> Path:
    """Link the folder's `.venv` to the virtual environment of this bedplate; return the link.

    Raises InputError if `.venv` is something else, MachineError if it cannot be written.
    """
    link, environment = folder / _ENVIRONMENT, Path(sys.prefix)
    if link.resolve() == environment.resolve():
        return link
    if link.exists() and not link.is_symlink():
        raise InputError("is not a link to the environment of bedplate", where=str(link), fix=f"remove {link}")
    with os_errors_as_machine_errors(link):
        link.unlink(missing_ok=True)
        link.symlink_to(environment)
    return link


def find_fleet_file(path: Path) -> Path:
    """Return the path; for a missing `fleet.yaml` that of the nearest parent folder that has one."""
    if path != Path(FLEET_FILE) or path.exists():
        return path
    here = Path.cwd()
    files = (parent / FLEET_FILE for parent in here.parents)
    nearest = next((file for file in files if file.is_file()), None)
    return Path(os.path.relpath(nearest, here)) if nearest else path
