"""When a worker leaves: decisions from what AWS announces, and the drain."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from ..program import ProgramError, output
from .machine import Metadata, Settings, kubectl

LEAVING = "bedplate/leaving"
"""The annotation with the reason for which the agent has cordoned its node."""
# What remains after the drain for kubelet to end other pods, and for the reply to the lifecycle hook.
_RESERVE = 15.0
_RETRY = 2.0


@dataclass(frozen=True)
class AwsNotices:
    """Notices of AWS: when a spot instance stops (Unix time), a higher risk of that, the end of the instance."""

    stop: float | None = None
    rebalance: bool = False
    terminating: bool = False


@dataclass(frozen=True)
class Shutdown:
    """Why a worker leaves. Without `seconds` it only takes no new pods; else its pods have this time to leave."""

    reason: str
    seconds: float | None = None


def decide(notices: AwsNotices, settings_drain: float, now: float) -> Shutdown | None:
    """Return what to do; None to go on.

    A recommendation to rebalance only cordons: Auto Scaling starts a replacement, and ends this machine by its hook.
    """
    if notices.stop is not None:
        left = max(notices.stop - now - _RESERVE, 1.0)
        return Shutdown("AWS stops this spot instance", min(left, settings_drain))
    if notices.terminating:
        return Shutdown("Auto Scaling ends this machine", settings_drain)
    if notices.rebalance:
        return Shutdown("AWS may stop this spot instance soon")
    return None


def read_notices(metadata: Metadata) -> AwsNotices:
    """Return what the metadata service announces; nothing if it does not answer."""
    try:
        return AwsNotices(
            stop=_stop_time(metadata.read("spot/instance-action")),
            rebalance=bool(metadata.read("events/recommendations/rebalance")),
            terminating=metadata.read("autoscaling/target-lifecycle-state") == "Terminated",
        )
    except OSError:
        return AwsNotices()


def _stop_time(text: str) -> float | None:
    """Return the time in an interruption notice, `{"action": "terminate", "time": "2026-11-23T08:22:00Z"}`."""
    if not text:
        return None
    try:
        return datetime.strptime(json.loads(text)["time"], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC).timestamp()
    except (ValueError, KeyError, TypeError):
        return time.time() + 120.0  # a notice of another form: AWS's usual time


Kubectl = Callable[..., str]


def cordon(node: str, reason: str, run: Kubectl = kubectl) -> None:
    """Take no new pods, and record why. Raises ProgramError."""
    run("annotate", "node", node, f"{LEAVING}={reason}", "--overwrite")
    run("cordon", node)


def drain(node: str, shutdown: Shutdown, log: Callable[[str], None], run: Kubectl = kubectl) -> bool:
    """Evict the pods within the time, as disruption budgets permit; return whether all have left.

    kubectl repeats evictions that a budget refuses. If the API server does not answer, it is asked again.
    """
    deadline = time.monotonic() + (shutdown.seconds or 0.0)
    while (left := deadline - time.monotonic()) > 0:
        options = ("--ignore-daemonsets", "--delete-emptydir-data", "--force", f"--timeout={left:.0f}s")
        try:
            cordon(node, shutdown.reason, run)
            run("drain", node, *options, seconds=left + _RETRY)
        except ProgramError as error:
            log(f"drain: {error}")
            time.sleep(min(_RETRY, max(deadline - time.monotonic(), 0.0)))
        else:
            return True
    return False


def answer_hook(settings: Settings) -> None:
    """Let Auto Scaling end this machine. Raises ProgramError."""
    output(settings.bootstrap, "report_drained")


def uncordon_self(node: str, run: Kubectl = kubectl) -> bool:
    """Uncordon the node if this agent has cordoned it, as after a reboot; return whether it had."""
    document = json.loads(run("get", "node", node, "--output=json"))
    if LEAVING not in document["metadata"].get("annotations", {}):
        return False
    run("uncordon", node)
    run("annotate", "node", node, f"{LEAVING}-")
    return True
