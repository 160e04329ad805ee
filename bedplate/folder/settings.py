"""The settings of Pulumi in a fleet folder: the backend in Pulumi.yaml, and the file of each stack.

Pulumi.<stack>.yaml has what decrypts the secrets of a stack: `encryptionsalt` for a passphrase, or `secretsprovider`
and `encryptedkey`. If it is missing, Pulumi runs with an empty configuration and writes one with another key. So
`bedplate:fleet` in it is required: the program refuses to run without it.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from bedplate.errors import InputError
from bedplate.files import os_errors_as_machine_errors, write_whole
from bedplate.folder.files import FLEET_FILE

PROJECT_FILE = "Pulumi.yaml"
BACKEND_VARIABLE = "PULUMI_BACKEND_URL"
FLEET_KEY = "bedplate:fleet"


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
