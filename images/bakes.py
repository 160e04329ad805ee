"""The run of bakes: observe, decide, act, until all are complete; and the lease of commands that change images.

A file lock excludes a second command in one fleet folder; other operators have folders of their own. A lease that its
holder has not renewed, or whose process on this machine has ended, is taken over.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from math import isfinite
from typing import Any

from bedplate.account.bundle import RegionStore
from bedplate.account.capacity import Clock, console_output
from bedplate.account.client import NotThere
from bedplate.errors import BedplateError, HeldError, PartialError
from bedplate.files import Holder, parse_holder, this_process
from bedplate.foreign import LARGEST, parse_json
from images.bake import Bake
from images.published import Leftovers, remove_leftovers
from images.steps import Fail, Observation, Record, Step, Wait, next_steps

KEY = "images/lease.json"
VALID, _RENEW = 600.0, 60.0
"""Seconds after which a lease is abandoned, longer than any step of a bake, and after which its holder renews it."""


@dataclass
class Lease:
    """The lease of this process."""

    store: RegionStore
    clock: Clock
    holder: Holder = field(default_factory=this_process)
    _renewed: float = 0.0
    _tag: str = ""

    def take(self) -> None:
        """Take the lease. Raises HeldError if the process of another operator has it."""
        other, tag = self._read()
        if other and self._is_valid(other):
            holder = parse_holder(json.dumps(other).encode())
            fix = f"wait until it has ended; a lease is valid for {VALID / 60:.0f} minutes after its last renewal"
            raise HeldError(f"images are locked by {holder}", where=f"s3://{self.store.bucket}/{KEY}", fix=fix)
        self._write({"IfMatch": tag} if tag else {"IfNoneMatch": "*"})

    def sleep(self, seconds: float) -> None:
        """Sleep; renew the lease if it is due."""
        if self.clock.now() - self._renewed >= _RENEW:
            self._write({"IfMatch": self._tag})
        self.clock.sleep(seconds)

    def release(self) -> None:
        """Delete the lease."""
        with suppress(BedplateError):  # it expires
            self.store.delete(KEY)

    def _read(self) -> tuple[Mapping[str, Any] | None, str]:
        """Return the current lease, None if it is invalid, and its version."""
        try:
            reply = self.store.client.call("s3", self.store.region, "get_object", Bucket=self.store.bucket, Key=KEY)
        except NotThere:
            return None, ""
        text = reply["Body"].read(LARGEST + 1)
        with suppress(ValueError, TypeError):
            document = parse_json(text)
            if parse_holder(text) and isfinite(float(document.get("renewed", 0))):
                return document, reply["ETag"]
        return None, reply["ETag"]

    def _is_valid(self, other: Mapping[str, Any]) -> bool:
        holder = parse_holder(json.dumps(other).encode())
        if holder is None or (holder.host, holder.pid) == (self.holder.host, self.holder.pid):
            return False
        return not holder.has_ended and self.clock.now() - float(other.get("renewed", 0)) < VALID

    def _write(self, condition: Mapping[str, str]) -> None:
        time = self.clock.now()
        body = json.dumps({**asdict(self.holder), "renewed": time}).encode()
        place = {"Bucket": self.store.bucket, "Key": KEY, "Body": body}
        try:
            reply = self.store.client.call("s3", self.store.region, "put_object", **place, **condition)
        except NotThere:
            return  # without a bucket nothing is baked
        except PartialError as error:
            if "PreconditionFailed" not in error.what and "ConditionalRequestConflict" not in error.what:
                raise
            fix = "run the command again: it continues"
            raise HeldError("another command has taken the lock of images", where=KEY, fix=fix) from None
        self._renewed, self._tag = time, reply["ETag"]


@contextmanager
def leased(store: RegionStore, clock: Clock) -> Iterator[Lease]:
    """Hold the lease while the block runs. Raises HeldError."""
    lease = Lease(store, clock)
    lease.take()
    try:
        yield lease
    finally:
        lease.release()


POLL = 10.0
"""Seconds between two observations."""
_MINUTE, _LOG_LINES = 60.0, 10_000


@dataclass(frozen=True, slots=True)
class Event:
    """The current step of a bake, with the console output of an instance that failed."""

    kind: str
    text: str
    console: tuple[str, ...] = ()


@dataclass
class Progress:
    """A bake and its state: images that this run has recorded, and errors by region; `""` is the bake's own."""

    bake: Bake
    recorded: dict[str, str]
    failures: dict[str, BedplateError] = field(default_factory=dict)
    is_complete: bool = False
    seen: bool = False
    """Whether an earlier observation of this run exists: a failure before it is of an earlier bake."""
    waits: tuple[str, float] = ("", 0.0)
    """The last reason to wait that was reported, and its time."""
    steps: dict[Step, float] = field(default_factory=dict)
    """The steps of this run and their times: EC2 may show what a call has created only after some seconds."""

    @property
    def kind(self) -> str:
        """The name of the kind of image."""
        return self.bake.recipe.kind.name

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to do."""
        return self.is_complete or "" in self.failures


RecordImages = Callable[[Mapping[str, str]], object]
"""Records images by region and kind in fleet.lock."""


def run_bakes(runs: Sequence[Progress], clock: Clock, record: RecordImages, *, keep: bool = False) -> Iterator[Event]:
    """Yield what happens until each bake is complete or has failed; the results are in `runs`.

    A bake can be killed anywhere: the same call continues it. `keep` leaves the instance of a failed install stage.
    """
    while active := [run for run in runs if not run.is_over]:
        is_waiting = True
        for run in active:
            try:
                for event in _advance(run, clock.now(), record, keep=keep):
                    is_waiting = False
                    yield event
            except BedplateError as error:
                run.failures[""] = error
        waiting = [run for run in active if not run.is_over]
        if is_waiting and waiting:
            yield from _waits(waiting, clock.now())
            clock.sleep(POLL)


def _advance(run: Progress, time: float, record: RecordImages, *, keep: bool) -> Iterator[Event]:
    """Observe a bake, make its next steps, and yield each; nothing if it has to wait."""
    now, errors = run.bake.observe(time, run.recorded)
    run.failures |= errors
    home = run.bake.home
    regions = tuple(region for region in run.bake.regions if region not in run.failures)
    decided = next_steps(run.bake.recipe, home, regions, now)
    run.is_complete = not decided
    for step in decided:
        match step:
            case Wait(reason):
                run.waits = (reason, run.waits[1] if reason == run.waits[0] else 0.0)
            case Fail():
                yield from _fail(run, now, step, keep=keep)
            case Record(images):
                yield Event(run.kind, f"recording {len(images)} in fleet.lock")
                record({f"{region}/{run.kind}": ident for region, ident in images.items()})
                run.recorded |= images
            case _ if time - run.steps.get(step, -_MINUTE) < _MINUTE:
                run.waits = (f"EC2 does not show yet: {step.text.format(step)}", run.waits[1])
            case _:
                yield Event(run.kind, step.text.format(step))
                _perform(run, step)
                run.steps[step] = time
    run.seen = True


def _perform(run: Progress, step: Step) -> None:
    """Make a step. An error in another region does not stop the bake."""
    try:
        run.bake.perform(step)
    except BedplateError as error:
        region = getattr(step, "region", run.bake.home)
        if region == run.bake.home:
            raise
        run.failures[region] = error


def _fail(run: Progress, now: Observation, step: Fail, *, keep: bool) -> Iterator[Event]:
    """Remove an instance that cannot become an image; raise PartialError unless it is of an earlier bake."""
    if now.instance is None:
        raise AssertionError(step)
    leftovers = Leftovers(run.bake.home, (now.instance.id,), (now.group,) if now.group else ())
    if not run.seen:
        yield Event(run.kind, f"removing {now.instance.id} of an earlier bake: {step.reason}")
        remove_leftovers(run.bake.client, leftovers)
        run.bake.delete_document()
        return
    try:
        console = console_output(run.bake.client, run.bake.home, now.instance.id, _LOG_LINES)
    except BedplateError as error:  # it is only an explanation
        console = (error.what,)
    yield Event(run.kind, step.reason, console)
    if keep:
        fix = f"`bedplate image sweep` removes {now.instance.id}, and so does the next bake"
        raise PartialError(f"{run.kind}: {step.reason}", fix=fix)
    remove_leftovers(run.bake.client, leftovers)
    run.bake.delete_document()
    raise PartialError(f"{run.kind}: {step.reason}", fix=step.fix)


def _waits(runs: Sequence[Progress], time: float) -> Iterator[Event]:
    """Yield the reasons of waiting bakes, each once a minute."""
    for run in runs:
        reason, reported = run.waits
        if reason and time - reported >= _MINUTE:
            run.waits = (reason, time)
            yield Event(run.kind, reason)
