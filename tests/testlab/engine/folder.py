"""A fleet folder with a stand-in for `pulumi`, a shell script that answers from the files beside it."""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest


def make_folder(path: Path, monkeypatch: pytest.MonkeyPatch, pulumi: str, files: Mapping[str, str]) -> Path:
    """Fill an empty folder with files, make it the current one, and put the script `pulumi` first on PATH."""
    (path / ".venv/bin").mkdir(parents=True)
    project = {".venv/bin/python": "", "Pulumi.yaml": "name: bedplate\nruntime: python\n", "pulumi": pulumi}
    for name, text in {**project, **files}.items():
        (path / name).write_text(text)
    (path / "pulumi").chmod(0o755)
    monkeypatch.setenv("PATH", str(path), prepend=os.pathsep)
    monkeypatch.chdir(path)
    return path


def edited(file: Path, values: Mapping[str, str]) -> str:
    """Return the text of a file with each key replaced by its value."""
    text = file.read_text(encoding="utf-8")
    for old, new in values.items():
        text = text.replace(old, new)
    return text
