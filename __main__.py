"""The Pulumi program, for a fleet file in the clone itself: `bedplate init` makes a folder with such a program."""

from pathlib import Path

from bedplate.operate.program import declare_stack

declare_stack(Path(__file__).resolve().parent)
