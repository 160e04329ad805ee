"""Stands in for `pulumi up`, `preview` and `destroy`: sends the recorded events of one operation of a stack.

`replay.py RUN OPERATION ... --stack STACK --event-log tcp://ADDRESS`, as Pulumi's Automation API calls it. RUN has
lines of several stacks, recorded from the real engine without events that change nothing: an event, an error, or
`"wait": "SIGINT"` where the operator pressed Ctrl-C.
"""

import json
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
from pulumi.runtime.proto.events_pb2 import EventRequest
from pulumi.runtime.proto.events_pb2_grpc import EventsStub


def replay(run: Path, operation: str, stack: str, address: str, interrupt: threading.Event) -> str:
    """Send the events of an operation; return its error, or an empty text."""
    lines = (json.loads(line) for line in run.read_text().splitlines())
    own = [line for line in lines if (line["stack"], line["operation"]) == (stack, operation)]
    with grpc.insecure_channel(address) as channel:
        EventsStub(channel).StreamEvents(_events(own, interrupt))
    return next((line["error"] for line in own if "error" in line), "")


def _events(lines: list[dict[str, Any]], interrupt: threading.Event) -> Iterator[EventRequest]:
    for line in lines:
        if "wait" in line and not interrupt.wait(timeout=30):
            raise TimeoutError(line["wait"])
        if "event" in line:
            yield EventRequest(event=json.dumps(line["event"]))
    summary = {"maybeCorrupt": False, "durationSeconds": 1, "resourceChanges": {}, "policyPacks": {}}
    yield EventRequest(event=json.dumps({"sequence": len(lines), "summaryEvent": summary}))


def main(arguments: list[str]) -> int:
    """Replay the operation that the arguments name."""
    interrupt = threading.Event()
    signal.signal(signal.SIGINT, lambda *_: interrupt.set())
    stack, address = (arguments[arguments.index(option) + 1] for option in ("--stack", "--event-log"))
    run, operation = Path(arguments[0]), next(word for word in arguments if word in ("up", "preview", "destroy"))
    with (run.parent / "calls").open("a") as calls:
        calls.write(f"{operation} {stack}\n")
    error = replay(run, operation, stack, address.removeprefix("tcp://"), interrupt)
    if error:
        sys.stderr.write(f"error: {error}\n")
    return 255 if error else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
