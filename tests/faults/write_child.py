"""Write one file, between two marks for a tracer; the arguments are the writer, the path, the text and its repetitions.

It imports little: a crash test starts it once for each system call.
"""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))  # noqa: PTH100, PTH120  no pathlib before the marks

from pathlib import Path

from bedplate.errors import BedplateError
from bedplate.files import write_whole

MODE = 0o600


def write_in_place(path: Path, data: bytes, mode: int) -> None:
    """Write as most programs do; the control case, in which a crash must damage the file."""
    with path.open("wb", buffering=0) as stream:
        stream.write(data[: len(data) // 2])
        stream.write(data[len(data) // 2 :])
    path.chmod(mode)


def main() -> int:
    """Write between the marks; return the exit status of the command line."""
    writer = {"whole": write_whole, "plain": write_in_place}[sys.argv[1]]
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
