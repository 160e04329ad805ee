"""How the two ends of a line speak: frames of a JSON object and bytes, the sizes of both before them."""

import json
import struct
from typing import IO

READY = b"bedplate-agent 1\n"
"""Comes before the first frame; whatever a login shell says before it is not for us."""
_SIZES = struct.Struct(">II")
_LARGEST = 1 << 30

Header = dict[str, object]


def send(stream: IO[bytes], header: Header, body: bytes = b"") -> None:
    """Write one frame."""
    text = json.dumps(header).encode()
    stream.write(_SIZES.pack(len(text), len(body)) + text + body)
    stream.flush()


def receive(stream: IO[bytes]) -> tuple[Header, bytes]:
    """Read one frame; raises EOFError where there is no whole one."""
    sizes = _SIZES.unpack(_exactly(stream, _SIZES.size))
    if max(sizes) > _LARGEST:
        raise EOFError
    header: Header = json.loads(_exactly(stream, sizes[0]))
    return header, _exactly(stream, sizes[1])


def _exactly(stream: IO[bytes], count: int) -> bytes:
    found = b""
    while len(found) < count:
        more = stream.read(count - len(found))
        if not more:
            raise EOFError
        found += more
    return found
