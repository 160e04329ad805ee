"""A TCP proxy in user space whose far end is so many seconds away, for kernels without netem. It imports nothing.

    python3 delay.py PORT SECONDS

nftables redirects connections to the port; each goes on to where it was meant for. Bytes of both directions arrive
after half of the seconds, and the first ones after a whole round trip more, which is the handshake.
"""

import asyncio
import socket
import struct
import sys
from contextlib import suppress

_ORIGINAL_DESTINATION = 80  # linux/netfilter_ipv4.h
_PART = 1 << 18


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay: float) -> None:
    """Copy until the end; each part is written when it has been under way for the delay."""
    parts: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    async def write() -> None:
        while True:
            due, part = await parts.get()
            await asyncio.sleep(due - loop.time())
            if not part:
                writer.write_eof()
                return
            writer.write(part)
            await writer.drain()

    writing = asyncio.create_task(write())
    part = b"-"
    while part:
        part = b""
        with suppress(OSError):
            part = await reader.read(_PART)
        parts.put_nowait((loop.time() + delay, part))
    with suppress(OSError):
        await writing


async def main(port: int, seconds: float) -> None:
    """Serve until the end of the process."""

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        near: socket.socket = writer.get_extra_info("socket")
        place = near.getsockopt(socket.SOL_IP, _ORIGINAL_DESTINATION, 16)
        to_port, address = struct.unpack("!2xH4s8x", place)
        await asyncio.sleep(seconds)
        far_reader, far_writer = await asyncio.open_connection(socket.inet_ntoa(address), to_port)
        for end in (near, far_writer.get_extra_info("socket")):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.gather(copy(reader, far_writer, seconds / 2), copy(far_reader, writer, seconds / 2))
        for end in (writer, far_writer):
            end.close()

    server = await asyncio.start_server(connect, "127.0.0.1", port)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), float(sys.argv[2])))
