"""The files of a fleet folder except the fleet file: Pulumi project and settings, CI workflow, .gitignore, README."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from bedplate.errors import InputError
from bedplate.files import os_errors_as_machine_errors, write_whole

FLEET_FILE = "fleet.yaml"
PROJECT_FILE = "Pulumi.yaml"
BACKEND_VARIABLE = "PULUMI_BACKEND_URL"
FLEET_KEY = "bedplate:fleet"
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


def git_output(folder: Path, *words: str) -> str | None:
    """Return the output of a command of git in a folder; None if it fails, is not UTF-8, or without git."""
    command = ("git", *words)
    try:
        done = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True, timeout=20)  # noqa: S603
    except (OSError, UnicodeDecodeError, subprocess.SubprocessError):
        return None
    return done.stdout


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


def backend_url(folder: Path) -> str:
    """Return the URL of the backend that the environment or Pulumi.yaml names; empty without one."""
    require_project(folder)
    backend = _read(folder / PROJECT_FILE).get("backend") or {}
    return os.environ.get(BACKEND_VARIABLE) or (backend.get("url") if isinstance(backend, Mapping) else "") or ""


def require_project(folder: Path) -> None:
    """Raise InputError if the folder has no Pulumi.yaml."""
    if not (folder / PROJECT_FILE).is_file():
        fix = "use a folder made by `bedplate init`, or the clone"
        raise InputError("Pulumi.yaml is missing", where=str(folder), fix=fix)


def record_backend(folder: Path, url: str) -> None:
    """Add the backend to Pulumi.yaml: all who use the folder have the same state."""
    file = folder / PROJECT_FILE
    if "backend" in _read(file):
        raise InputError("`backend` has no `url`", where=str(file), fix="remove `backend`")
    text = file.read_text(encoding="utf-8").rstrip()
    write_whole(file, f"{text}\nbackend:\n  url: {json.dumps(url)}\n".encode())


def file_url(folder: Path, state: Path) -> str:
    """Return the URL of a backend in a folder: relative to the fleet folder if it lies inside."""
    path, inside = state.resolve(), folder.resolve()
    return f"file://./{path.relative_to(inside)}" if path.is_relative_to(inside) else f"file://{path}"


def settings_file(folder: Path, stack: str) -> Path:
    """Return the settings file of a stack."""
    return folder / f"Pulumi.{stack}.yaml"


def write_settings(folder: Path, stack: str, provider: Mapping[str, Any]) -> None:
    """Write the settings of a stack; `provider` is `secrets_providers` of its state, empty if it has no key."""
    state = provider.get("state") or {}
    names = {"encryptionsalt": "salt", "secretsprovider": "url", "encryptedkey": "encryptedkey"}
    lines = [f"{name}: {json.dumps(state[key])}\n" for name, key in names.items() if key in state]
    lines.append(f"config:\n  {FLEET_KEY}: {FLEET_FILE}\n")
    write_whole(settings_file(folder, stack), "".join(lines).encode())


def secrets_provider(folder: Path, fleet: str) -> str:
    """Return the secrets provider of the fleet's stacks, as new stacks must have it; empty for Pulumi's default."""
    settings = (_read(file) for file in sorted(folder.glob(f"Pulumi.{fleet}.*.yaml")))
    return next((str(values["secretsprovider"]) for values in settings if values.get("secretsprovider")), "")


def _read(file: Path) -> Mapping[str, Any]:
    with os_errors_as_machine_errors(file, "read"):
        content = file.read_bytes()
    try:
        values = YAML(typ="safe").load(content) or {}
    except YAMLError as error:
        line = str(error).strip().splitlines()[-1].strip()
        raise InputError(f"invalid YAML: {line}", where=str(file), fix="restore the file from git") from None
    if not isinstance(values, Mapping):
        raise InputError("must be a mapping", where=str(file), fix="restore the file from git")
    return values
