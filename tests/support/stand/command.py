"""Programs that a stand runs on this machine; never a shell, and never without looking at how it ended."""

import subprocess
from collections.abc import Mapping


class CommandError(Exception):
    """A program that a test node needs ended badly; the message holds the last of what it said."""


def call(*argv: str, text: str = "", seconds: float = 60, env: Mapping[str, str] | None = None) -> str:
    """Run a program to its end with `text` as its input; return what it said. Raises CommandError."""
    done = subprocess.run(argv, input=text, text=True, capture_output=True, timeout=seconds, env=env, check=False)
    if done.returncode:
        raise CommandError(
            f"{' '.join(argv)}: status {done.returncode}: {(done.stderr or done.stdout).strip()[-2000:]}"
        )
    return done.stdout
