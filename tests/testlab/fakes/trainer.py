"""A program that trains on several ranks without PyTorch: a sum over all ranks a step, and a checkpoint by rank 0.

trainer.py STEPS SECONDS [EVERY]: it prints the step that it begins with, and the last value, which no restart changes.
FAILS may have a rank and the step at which it fails.
"""

import os
import socket
import sys
import time
from pathlib import Path

STEPS, PAUSE, EVERY = int(sys.argv[1]), float(sys.argv[2]), int((sys.argv[3:] or ["1"])[0])
RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
ADDRESS = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])


def connections() -> list[socket.socket]:
    """Return the connections of rank 0 to the others, or of another rank to it."""
    end = time.monotonic() + 30
    if not RANK:
        with socket.create_server(("", ADDRESS[1]), backlog=WORLD) as listener:
            listener.settimeout(30)
            return [listener.accept()[0] for _ in range(WORLD - 1)]
    while True:
        try:
            return [socket.create_connection(ADDRESS, 5)]
        except ConnectionRefusedError:
            if time.monotonic() > end:
                raise
            time.sleep(0.02)


def number(peer: socket.socket) -> int:
    """Return the number that a peer sends."""
    data = b""
    while not data.endswith(b"\n"):
        part = peer.recv(64)
        if not part:
            raise ConnectionError("Connection closed by peer")
        data += part
    return int(data)


def total(value: int, peers: list[socket.socket]) -> int:
    """Return the sum of a value over all ranks."""
    if RANK:
        peers[0].sendall(b"%d\n" % value)
        return number(peers[0])
    value += sum(number(peer) for peer in peers)
    for peer in peers:
        peer.sendall(b"%d\n" % value)
    return value


def main() -> None:
    """Train."""
    step, value, folder = 0, 1, Path(os.environ["BEDPLATE_CHECKPOINTS"])
    if resume := os.environ.get("BEDPLATE_RESUME"):
        step, value = (int(word) for word in Path(resume).read_text().split())
    sys.stdout.write(f"begin {step}\n")
    # Tests wait for this line.
    sys.stdout.flush()
    peers = connections()
    while step < STEPS:
        value = total(value % 1009 * (RANK + 3), peers)
        step += 1
        if os.environ.get("FAILS") == f"{RANK} {step}":
            sys.exit(3)
        time.sleep(PAUSE)
        if not RANK and step % EVERY == 0:
            new = folder / f"step-{step:06}.tmp"
            new.write_text(f"{step} {value}")
            new.rename(new.with_suffix(""))
    sys.stdout.write(f"end {value}\n")


main()
