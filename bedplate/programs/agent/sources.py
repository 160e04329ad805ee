"""What an environment is built from: files of the code, which bp and the agent read alike."""

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

LOCK, REQUIREMENTS, PROJECT = FILES = "uv.lock", "requirements.txt", "pyproject.toml"
"""What an environment is built from, by the top folder of the code: the first one that is there."""
OWN = "# packages of "
"""How the requirements of a program of bp itself start; its name follows."""
LIST = "environment.txt"
"""What an environment has, as exact versions, and hashes if they are known. It is written last."""
# A file without requirements, and a project without dependencies, or with settings of tools only, needs nothing.
_REQUIREMENT = re.compile(r"^\s*[^\s#]", re.MULTILINE)
_TABLE = re.compile(r"^\[project\][^\n]*\n(.*?)(?=^\[|\Z)", re.MULTILINE | re.DOTALL)
_DEPENDENCIES = re.compile(r"^dependencies\s*=\s*\[(?:\s|#[^\n]*\n)*[\"']", re.MULTILINE)
_INCLUDED = re.compile(r"^\s*(?:-r|-c|--requirement|--constraint)[ =]*(?!\w+://)(\S+)", re.MULTILINE)
# What is installed from a folder of the code, which is another one in each run.
_LOCAL = re.compile(
    r"^\s*((?:(?:-e|--editable)(?![ =]*(?:git|hg|svn|bzr|https?)\S*://)[ =]*|\.|/|file:|[\w.-]+/)\S*"
    r"|[\w.-]+(?:\[[^]\n]*\])? *@ *(?:file:|[./])\S*)",
    re.MULTILINE,
)
_LOCAL_IN_LOCK = re.compile(r'source = \{ (?:editable|directory|path) = "(?!\.")([^"]+)"')


class BuildError(Exception):
    """There is no environment; the text says why."""


def environment_file(folder: Path) -> str:
    """Return the file that an environment is built from; empty without one."""
    texts = {name: _read(folder / name) for name in FILES if (folder / name).is_file()}
    if {LOCK, PROJECT} <= texts.keys():
        return LOCK
    if _REQUIREMENT.search(texts.get(REQUIREMENTS, "")):
        return REQUIREMENTS
    table = _TABLE.search(texts.get(PROJECT, ""))
    return PROJECT if table and _DEPENDENCIES.search(table[1]) else ""


def read_sources(folder: Path, name: str) -> Mapping[str, str]:
    """Return the texts that decide what an environment has, by their names. Raises BuildError or OSError."""
    texts, left = dict[str, str](), [name, *((PROJECT,) if name == LOCK else ())]
    while left:
        file = os.path.normpath(left.pop(0))
        path = folder / file
        # The machine may have a file of an absolute path.
        if file in texts or path == Path(file):
            continue
        if file.startswith("../"):
            raise BuildError(f"{file} is above the folder of the code, and stays behind")
        if not path.is_file():
            raise BuildError(f"the code has no {file}")
        texts[file] = text = _read(path)
        local = None if file == PROJECT else (_LOCAL_IN_LOCK if file == LOCK else _LOCAL).search(text)
        if local:
            raise BuildError(f"{file} installs from the folder of the code: {local[1].strip()}")
        left += [os.path.join(os.path.dirname(file), word) for word in _INCLUDED.findall(text) if file != PROJECT]  # noqa: PTH118, PTH120
    for file in (PROJECT, "uv.toml"):
        with suppress(FileNotFoundError):
            text = _read(folder / file)
            texts.update({file: text} if file != PROJECT or "[tool.uv" in text else {})
    return texts


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")
