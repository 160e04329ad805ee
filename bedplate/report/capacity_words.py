"""Words of the reports on capacity: times, failures, sizes, and actions, without the state of a fleet."""

from collections.abc import Mapping
from datetime import UTC, datetime

from bedplate.capacity.breaker import Breaker
from bedplate.capacity.controller import subject_of
from bedplate.capacity.observation import (
    FAILURES,
    NOT_READY,
    Action,
    Machine,
    Observation,
    Pod,
    Pool,
    SetDesired,
    Size,
    Terminate,
    verb_of,
)
from bedplate.capacity.shrink import idle_end, keep_reason

_MINUTE, _HOUR = 60.0, 3600.0


def misfit(pod: Pod, pool: Pool) -> str:
    """Return why a machine of a pool cannot run a pod; empty if it can."""
    for key, value in pod.selector.items():
        if pool.labels.get(key) != value and not (len(pool.zones) > 1 and value in pool.zones):
            return f"its machines do not have the label {key}={value}"
    taints = sorted(pool.taints - pod.tolerations)
    if taints:
        return f"the pod does not tolerate the taint {taints[0]}"
    for name, unit in _UNITS.items():
        needed, size = getattr(pod.size, name), getattr(pool.size, name)
        if needed > size:
            return f"the pod asks for {needed:g} {unit}, a machine has {size:g}"
    return ""


_UNITS = {
    "gpus": "GPUs",
    "cpus": "CPUs",
    "memory": "GiB of memory",
    "efa": "EFA interfaces",
    "ephemeral": "GiB of ephemeral storage",
}


def size_words(size: Size) -> str:
    """Return what a pod asks for."""
    words = [f"{getattr(size, name):g} {unit}" for name, unit in _UNITS.items() if getattr(size, name)]
    return ", ".join(words) or "nothing"


def breaker_sentences(breaker: Breaker, now: float) -> str:
    """Return why a rung launches nothing, when one machine probes it, and what an operator can change."""
    code = f" ({breaker.code})" if breaker.code else ""
    known = FAILURES.get(breaker.code or "")
    fix = f" To change that: {known.fix}." if known else ""
    result = "when its machine is a node" if breaker.code == NOT_READY else "when AWS launches its machine"
    if breaker.probe is not None:
        probe = f"One machine was asked for at {clock(breaker.probe)} as a probe; the rung is open {result}."
    elif breaker.until > now:
        probe = f"From {clock(breaker.until)} a pending pod can start one machine as a probe."
    else:
        probe = "The next pending pod starts one machine as a probe."
    return f"closed at {clock(breaker.opened)}: {breaker.cause}{code}. Pods use the next rungs. {probe}{fix}"


def use_sentence(observation: Observation, machine: Machine, pool: Pool) -> str:
    """Return a sentence about the use of a machine for people, and its end."""
    now, reason = observation.time, keep_reason(machine, pool, observation)
    end = idle_end(machine, pool)
    if end is None or pool.idle is None:
        return f"not ended: {reason}." if reason else "in use."
    unused = f"idle for {age(now - end + pool.idle)}"
    if reason:
        return f"{unused}; not ended: {reason}."
    return f"{unused}; it ends in {age(end - now)}." if end > now else f"{unused}; it ends now."


def action_sentence(action: Action, desired: Mapping[str, int]) -> str:
    """Return what an action does and why; `desired` has the desired number of each pool."""
    match action:
        case SetDesired():
            verb = "raise" if action.count > desired.get(action.pool, 0) else "lower"
            before = desired.get(action.pool, 0)
            words = f"{verb} the desired number of {action.pool} from {before} to {action.count}"
        case Terminate():
            words = f"end the machine {action.machine}"
        case _:
            words = f"{verb_of(action)} {subject_of(action)}"
    return f"{words}: {action.reason}."


def clock(time: float) -> str:
    """Return a time of day."""
    return f"{datetime.fromtimestamp(time, UTC):%H:%M} UTC"


def age(seconds: float) -> str:
    """Return a duration in its two largest units at most."""
    if seconds < _MINUTE:
        return f"{max(0, seconds):.0f} s"
    if seconds < _HOUR:
        return f"{seconds / _MINUTE:.0f} min"
    hours, minutes = divmod(round(seconds / _MINUTE), 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"
