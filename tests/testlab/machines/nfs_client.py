"""A client of NFS 4.1 that writes a file as a user id, and reads it, without NFS in the kernel.

`python nfs_client.py SOURCE PORT SERVER UID PATH TEXT`: SOURCE and PORT are its own end, at which servers look.
Source: RFC 8881 and RFC 5531.
"""

import errno
import os
import socket
import struct
import sys
import time

_CREATE_SESSION, _EXCHANGE_ID, _SEQUENCE, _RECLAIM_COMPLETE = 43, 42, 53, 58
_PUTROOTFH, _LOOKUP, _OPEN, _WRITE, _READ, _CLOSE = 24, 15, 18, 38, 25, 4
_OK, _GRACE = 0, 10013
# In a compound: the state that its OPEN has made.
_CURRENT = struct.pack(">I12x", 1)
_CHANNEL = struct.pack(">IIIIIII", 0, 65536, 65536, 65536, 16, 1, 0)


class RefusedError(Exception):
    """The server refused an operation."""


def text(value: bytes) -> bytes:
    """Return an opaque value of XDR."""
    return struct.pack(">I", len(value)) + value + b"\0" * (-len(value) % 4)


class Client:
    """A session with a server, for one user id."""

    def __init__(self, source: tuple[str, int], server: str, uid: int) -> None:
        self._stream = socket.create_connection((server, 2049), 10, source)
        credentials = struct.pack(">I", 0) + text(b"test") + struct.pack(">III", uid, uid, 0)
        self._head = struct.pack(">IIII", 0, 2, 100003, 4) + struct.pack(">II", 1, 1) + text(credentials)
        self._head += struct.pack(">II", 0, 0)
        owner = struct.pack(">d", time.time()) + text(f"test {os.getpid()}".encode())
        reply = self._call([(_EXCHANGE_ID, owner + struct.pack(">III", 0, 0, 0))])
        self.id, sequence = struct.unpack(">QI", reply[8:20])
        flags = struct.pack(">QII", self.id, sequence, 0)
        callbacks = struct.pack(">III", 0x40000000, 1, 0)
        self._session = self._call([(_CREATE_SESSION, flags + _CHANNEL + _CHANNEL + callbacks)])[8:24]
        self._sequence = 0
        self.compound((_RECLAIM_COMPLETE, struct.pack(">I", 0)))

    def compound(self, *operations: tuple[int, bytes]) -> bytes:
        """Run operations in the session; return the results. Raises RefusedError."""
        self._sequence += 1
        sequence = self._session + struct.pack(">IIII", self._sequence, 0, 0, 0)
        return self._call([(_SEQUENCE, sequence), *operations])

    def _call(self, operations: list[tuple[int, bytes]]) -> bytes:
        body = struct.pack(">IIII", 0, 1, len(operations), 0)[:12]
        body += b"".join(struct.pack(">I", code) + arguments for code, arguments in operations)
        message = struct.pack(">I", 7) + self._head + body
        self._stream.sendall(struct.pack(">I", 0x80000000 | len(message)) + message)
        reply = self._read(struct.unpack(">I", self._read(4))[0] & 0x7FFFFFFF)
        _, _, state, _, size = struct.unpack(">IIIII", reply[:20])
        if state:
            raise RefusedError(f"the server denies the call ({size})")
        (accepted,) = struct.unpack(">I", reply[20 + size : 24 + size])
        if accepted:
            raise RefusedError(f"the server rejects the call ({accepted})")
        status, tag, count = struct.unpack(">III", reply[24 + size : 36 + size])
        if status:
            raise RefusedError(f"operation {operations[count - 1][0]} failed: {status}")
        return reply[36 + size + tag :]

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self._stream.recv(size - len(data))
            if not part:
                raise RefusedError("the server closed the connection")
            data += part
        return data


def write_and_read(client: Client, path: str, data: bytes) -> bytes:
    """Write a file, and return what the server then reads from it. Raises RefusedError."""
    *folders, name = path.strip("/").split("/")
    ways = [(_PUTROOTFH, b""), *((_LOOKUP, text(folder.encode())) for folder in folders)]
    # Create it unchecked, without attributes, by its name.
    how = struct.pack(">IIIQ", 0, 3, 0, client.id) + text(b"test") + struct.pack(">IIIII", 1, 0, 0, 0, 0)
    results = client.compound(
        *ways,
        (_OPEN, how + text(name.encode())),
        (_WRITE, _CURRENT + struct.pack(">QI", 0, 2) + text(data)),
        (_READ, _CURRENT + struct.pack(">QI", 0, 4096)),
        (_CLOSE, struct.pack(">I", 0) + _CURRENT),
    )
    position = results.rindex(struct.pack(">II", _READ, _OK)) + 12
    (size,) = struct.unpack(">I", results[position : position + 4])
    return results[position + 4 : position + 4 + size]


def main() -> None:
    """Write and read; in the grace period of a server that has just started, and while the port is kept, try again.

    The kernel keeps the port of a connection that has ended for a minute.
    """
    source, port, server, uid, path, data = sys.argv[1:]
    end = time.monotonic() + 90
    while True:
        try:
            client = Client((source, int(port)), server, int(uid))
            sys.stdout.write(write_and_read(client, path, data.encode()).decode())
        except RefusedError as error:
            if str(_GRACE) not in str(error) or time.monotonic() > end:
                sys.exit(str(error))
        except OSError as error:
            if error.errno != errno.EADDRINUSE or time.monotonic() > end:
                sys.exit(f"cannot connect: {error}")
        else:
            return
        time.sleep(2)


if __name__ == "__main__":
    main()
