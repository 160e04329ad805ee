"""A fleet folder with a stand-in for `pulumi`, a shell script that answers from the files beside it."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

# The runs of replay.py; `$stack` is the last argument.
REPLAY = f"""#!/bin/sh
cd "$(dirname "$0")"
for stack; do :; done
case "$*" in
  version) echo v3.272.0 ;;
  *"stack ls"*) cat stacks.json ;;
  *"stack export"*) cat "$stack.json" ;;
  *"stack output"*) echo '{{}}' ;;
  *"stack history"*) cat history.json ;;
  *--event-log*) exec "{sys.executable}" "{Path(__file__).with_name("replay.py")}" run.jsonl "$@" ;;
esac
"""
HISTORY = [
    {"kind": "update", "startTime": "2026-11-22T12:00:00.000Z", "message": "", "environment": {}, "config": {}}
    | {"result": "succeeded", "endTime": "2026-11-22T12:00:00.000Z"}
]


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


def resources(stack: str, *kinds: str, **outputs: object) -> list[Mapping[str, object]]:
    """Return the state of a stack: its root with outputs, and a resource of each kind; keys are protected."""
    urn = f"urn:pulumi:{stack}::bedplate::"
    root: Mapping[str, object] = {
        "urn": f"{urn}pulumi:pulumi:Stack::bedplate-{stack}",
        "type": "pulumi:pulumi:Stack",
        "outputs": outputs,
    }
    own = (
        {"urn": f"{urn}{kind}::trio", "type": kind, "protect": "kms" in kind, "parent": root["urn"]} for kind in kinds
    )
    return [root, *own]
