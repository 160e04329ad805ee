"""Decisions about restarts, without effects: the first cause of an attempt, and what follows from it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

DONE, PROGRAM, MACHINE, NOTICE = "done", "program", "machine", "notice"
FABRIC, UNKNOWN, STOP = "fabric", "unknown", "stop"
"""Kinds of causes. Nobody stopped an attempt of the kind UNKNOWN: it was killed from outside. STOP is for good."""
AGAIN, MADE_AGAIN, OVER = "again", "made again", "over"
"""What follows: an attempt in place, one of new agents, or the end of the run."""
_ABORTED, _KILLED, _TERMINATED, _SIGNALS = 134, 137, 143, range(129, 193)
_OWN = PEER_LOST, NOTICED, NO_LEASE, NO_CODE, WRONG_SETTINGS, REFUSED = range(200, 206)
"""Exit codes of the agent, in this order: a peer is lost, it was told to end, and the hub refuses the run."""
REPEATED = _KILLED, _TERMINATED, PEER_LOST, NOTICED, 255
"""Exit codes of containers that are made again; 255 is that of one whose machine has restarted."""
FINAL = 78
"""The exit code of a program that no repeat can help: EX_CONFIG of sysexits.h."""
_STOPPED = {NOTICED, REFUSED}
# Seconds: by which the loss of a machine is seen later than its effects, between a killed rank and the errors of its
# peers, and in which one end may be the effect of another.
_LATE, _KILL_FIRST, _EFFECT = 2.0, 1.0, 5.0
_MOST_STALE = 3
# Characters that a tag of MLflow has at most, and of a cause among them.
_LONGEST, _LONGEST_CAUSE = 5_000, 300
# What gloo, NCCL, MPI and Python print when a peer, or the network to it, has failed.
_PEER_ERRORS = tuple(
    text.encode()
    for text in (
        *("connection closed by peer", "connection reset by peer", "broken pipe", "connection refused"),
        *("ncclremoteerror", "ncclsystemerror", "remote process exited", "nccl communicator was aborted"),
        *("watchdog caught collective", "socket timeout", "timed out waiting", "connection was likely closed"),
        *("application timeout caused pair closure", "rendezvous", "store is not reachable", "heartbeat monitor"),
    )
)


def kind_of(code: int, tail: bytes, *, is_out_of_memory: bool = False) -> str:
    """Return the kind of a rank's end, by its exit code and the last bytes of its output."""
    if code in {0, FINAL}:
        return STOP if code else DONE
    if code in {_KILLED, _TERMINATED}:
        return PROGRAM if is_out_of_memory else UNKNOWN
    text = tail.lower()
    return FABRIC if any(error in text for error in _PEER_ERRORS) else PROGRAM


@dataclass(frozen=True)
class Cause:
    """Why an attempt has ended: kind, exit code of the run, a sentence, and the machine that is to blame, if one is.

    `at` is a time of the coordinator's clock. A rank that is torn down has ended after it was stopped.
    """

    kind: str
    code: int
    text: str
    machine: str = ""
    at: float = 0.0
    is_torn_down: bool = False


def first_cause(ends: Sequence[Cause], events: Sequence[Cause]) -> Cause:
    """Return the cause of an attempt, by the ends of its ranks, and by losses, notices and stops. Victims are none."""
    failures = sorted((end for end in ends if end.code and not end.is_torn_down), key=lambda end: end.at)
    first = failures[0].at if failures else float("inf")
    early = sorted((event for event in events if event.at <= first + _LATE), key=lambda event: event.at)
    if early:
        return early[0]
    if not failures:
        torn_down = [end for end in ends if end.code]
        return min([*events, *torn_down], key=lambda cause: cause.at, default=Cause(DONE, 0, _done(ends)))
    near = [end for end in failures if end.at <= first + _EFFECT]
    own = [end for end in near if end.kind != FABRIC and end.code != _ABORTED] or [
        end for end in near if end.kind != FABRIC
    ]
    killed = [end for end in own if end.code in _SIGNALS and end.at <= own[0].at + _KILL_FIRST]
    cause = (killed or own or near)[0]
    return replace(cause, text=f"{cause.text}: it lost a peer, or the network") if cause.kind == FABRIC else cause


def _done(ends: Sequence[Cause]) -> str:
    return ends[0].text if len(ends) == 1 else "all ranks ended with exit code 0"


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint: its name, and a number that grows with each change of it."""

    name: str
    stamp: int

    @property
    def key(self) -> str:
        """What no other content of this name has."""
        return f"{self.stamp}/{self.name}"


@dataclass(frozen=True)
class History:
    """What must be known of former attempts. `is_open`: the last one has no end yet.

    `failures` counts the program's own, `stale` attempts in a row without a new checkpoint, `first` has the seconds
    until the first checkpoint, `used` those of all attempts. `end` has the exit code of a run that is over, and whether
    it is the agent's.
    """

    attempt: int = -1
    is_open: bool = False
    has_run: bool = False
    failures: int = 0
    stale: int = 0
    cause: str = ""
    newest: str = ""
    resumed: str = ""
    first: float = 0.0
    used: float = 0.0
    skipped: Sequence[str] = ()
    end: "tuple[int, bool] | None" = None
    blamed: Mapping[str, int] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The text from which `history_of` makes it again, no longer than a tag: of lists the least is left out."""
        blamed, skipped = dict(self.blamed), [*self.skipped]
        facts = {**asdict(self), "cause": self.cause[:_LONGEST_CAUSE], "blamed": blamed, "skipped": skipped}
        while len(text := json.dumps(facts)) > _LONGEST and (blamed or skipped):
            if blamed:
                del blamed[min(blamed, key=lambda machine: blamed[machine])]
            else:
                del skipped[0]
        return text


def history_of(text: str) -> History:
    """Return a history. Raises ValueError or TypeError if the text is none."""
    return History(**json.loads(text)) if text else History()


@dataclass(frozen=True)
class Policy:
    """What the person allows: repeats of the program's own failures, and attempts from scratch; and the folder."""

    restarts: int
    is_scratch_ok: bool
    folder: str


@dataclass(frozen=True)
class Step:
    """What follows: an action, a sentence why, exit code, history, and the checkpoint of the next attempt.

    `is_own`: the exit code is the agent's, not that of a program.
    """

    action: str
    text: str
    code: int
    history: History
    resume: str = ""
    is_own: bool = False

    @property
    def is_stopped(self) -> bool:
        """Whether the agent has stopped the program, and the run is no failure."""
        return self.is_own and self.code in _STOPPED

    @property
    def status(self) -> int:
        """The exit code of the agent: its own ones, on which others act, are not those of a program."""
        return 1 if self.code in _OWN and not self.is_own else self.code


def begin(history: History, checkpoints: Sequence[Checkpoint], policy: Policy) -> Step:
    """Return the first step of new agents: former ones may be lost in an attempt, or before they wrote the end."""
    if history.end:
        code, is_own = history.end
        return Step(OVER, history.cause, code, history, is_own=is_own)
    if not history.is_open:
        return first_step(history, checkpoints, policy)
    cause = Cause(MACHINE, 137, "the agent of node 0 ended before its program")
    return decide(history, cause, frozenset(), checkpoints, policy)


def decide(
    history: History, cause: Cause, kinds: frozenset[str], checkpoints: Sequence[Checkpoint], policy: Policy
) -> Step:
    """Return what follows an attempt, by its cause, the kinds of all its events, and the checkpoints, newest first."""
    history, is_suspected = _counted(history, cause, checkpoints)
    if cause.kind in {DONE, STOP} or STOP in kinds:
        return Step(OVER, cause.text, cause.code, history, is_own=cause.kind == STOP)
    if cause.kind == PROGRAM and not is_suspected:
        if history.failures >= policy.restarts:
            return Step(OVER, cause.text, cause.code, history)
        history = replace(history, failures=history.failures + 1)
    # `--restarts` is explicit, so it also counts without new checkpoints.
    elif history.stale >= _MOST_STALE:
        loop = f"restart loop: {history.stale} attempts have written no checkpoint in {policy.folder}"
        return Step(OVER, f"{cause.text}; {loop}", cause.code, history)
    action = MADE_AGAIN if kinds & {NOTICE, MACHINE} else AGAIN
    return first_step(history, checkpoints, policy, cause, action)


def first_step(
    history: History,
    checkpoints: Sequence[Checkpoint],
    policy: Policy,
    cause: Cause = Cause(DONE, 0, ""),
    action: str = AGAIN,
) -> Step:
    """Return the step to the next attempt, whose number the history has then: never from scratch silently."""
    text = cause.text or history.cause
    usable = [one for one in checkpoints if one.key not in history.skipped]
    if not usable and history.has_run and not policy.is_scratch_ok:
        lacks = f"not repeated: {policy.folder} has no complete checkpoint, and --scratch-ok is not given"
        return Step(OVER, f"{text}; {lacks}", cause.code, history)
    name = usable[0].name if usable else ""
    source = f"from checkpoint {name}" if name else "from the beginning, as --scratch-ok allows"
    if not name and not history.has_run:
        source = "from the beginning: no program had run"
    after = replace(history, resumed=usable[0].key if usable else "")
    return Step(action, f"{text}: attempt {history.attempt + 1} goes on {source}", cause.code, after, name)


def _counted(history: History, cause: Cause, checkpoints: Sequence[Checkpoint]) -> tuple[History, bool]:
    """Return the history with an attempt, and whether its checkpoint may be damaged: an older one is tried then."""
    newest = checkpoints[0].key if checkpoints else ""
    is_ahead = newest not in {"", history.newest}
    # A notice before the program has run says nothing of it.
    counts = history.has_run or cause.kind != NOTICE
    stale = 0 if is_ahead else history.stale + counts
    usable = [one.key for one in checkpoints if one.key not in history.skipped]
    # Nobody is to blame who was stopped, and who was killed only the second time.
    is_blamed = cause.kind == PROGRAM or (cause.kind in {FABRIC, UNKNOWN} and stale > 1)
    is_suspected = is_blamed and not is_ahead and usable[:1] == [history.resumed] and len(usable) > 1
    blamed = dict(history.blamed)
    if cause.machine:
        blamed[cause.machine] = blamed.get(cause.machine, 0) + 1
    skipped = (*history.skipped, history.resumed) if is_suspected else tuple(history.skipped)
    history = replace(history, is_open=False, stale=stale, newest=newest, skipped=skipped, blamed=blamed)
    history = replace(history, cause=cause.text)
    return history, is_suspected and cause.kind == PROGRAM


def suspects(history: History) -> str:
    """Return the machines that were blamed twice."""
    return ",".join(sorted(machine for machine, count in history.blamed.items() if count > 1))
