"""Write one file, between two marks that a tracer sees; argv is the writer, the path, the bytes and their number.

Imports as little as it can: a crash test starts it for every system call that it makes.
"""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))  # noqa: PTH100, PTH120  no pathlib before the marks

from pathlib import Path

from bedplate.errors import BedplateError
from bedplate.writer import write_whole

MODE = 0o600


def write_plainly(path: Path, data: bytes, mode: int) -> None:
    """Write as most programs do: the control, which a crash must tear."""
    with path.open("wb", buffering=0) as stream:
        stream.write(data[: len(data) // 2])
        stream.write(data[len(data) // 2 :])
    path.chmod(mode)


def main() -> int:
    """Write between the marks; return the exit status that bedplate's command line would."""
    writer = {"whole": write_whole, "plain": write_plainly}[sys.argv[1]]
    path, data = Path(sys.argv[2]), sys.argv[3].encode() * int(sys.argv[4])
    os.write(1, b"@@start\n")
    try:
        writer(path, data, MODE)
    except BedplateError as error:
        sys.stderr.write(f"{error.what}; {error.fix}\n")
        return error.exit_code
    finally:
        os.write(1, b"@@end\n")
    return 0


sys.exit(main())
