"""A run in the cluster that is started and followed: why it waits, the output of its first node, and its end."""

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..agent.restarts import NOTICED, PEER_LOST, REPEATED
from ..connection import Connection
from .cluster import Api, api_of, container_of, is_running
from .hub import PARTLY, WRONG, BpError, Hub, say, write
from .jobset import Object, agent_of, jobset_of, secret_of
from .places import Place
from .queue import waiting_lines
from .records import change_run, end_run, find_run, has_run_ended

_POLL, _LONGEST_POLL, _FIRST_POLLS = 0.3, 5.0, 5
# Reasons of a container that never starts. Source: kubelet's pkg/kubelet/images and kuberuntime, Kubernetes 1.36.
_FATAL = frozenset(("InvalidImageName", "ErrImageNeverPull", "CreateContainerConfigError", "StartError"))
_CODES = {"FINISHED": 0, "KILLED": NOTICED}
Tell = Callable[[str], object]


class NotRunningError(BpError):
    """The program of a run does not run, and never will."""


class Record:
    """The record of a run that is followed, which has its end."""

    def __init__(self, hub: Connection, run: str) -> None:
        self._hub, self._run = hub, run

    def code(self) -> "int | None":
        """Return the exit code of a run; None before its end, and while the hub does not answer."""
        with suppress(BpError):
            run = find_run(self._hub, self._run)
            code = str(run["tags"].get("bedplate.code", ""))
            if has_run_ended(run):
                return int(code) if code.isdecimal() else _CODES.get(run["status"], 1)
        return None

    def cause(self) -> str:
        """Return what has interrupted a run."""
        with suppress(BpError):
            return str(find_run(self._hub, self._run)["tags"].get("bedplate.cause", ""))
        return ""

    def end(self, cause: str) -> None:
        """Write the end of a run whose agent has not: that somebody has stopped it, or else this cause."""
        person = find_run(self._hub, self._run)["tags"].get("bedplate.stopped_by")
        end_run(self._hub, self._run, f"stopped by {person}" if person else cause, "KILLED" if person else "FAILED")


class JobSet:
    """A run in the cluster, with the methods of an agent on a machine."""

    def __init__(self, hub: Hub, place: Place, program: Path, *, is_followed: bool) -> None:
        self._api, self._where, self._is_followed = api_of(hub.settings), place, is_followed
        self._hub, self._agent = hub, agent_of(program)

    def run(self, document: Mapping[str, Any]) -> int:
        """Start a run, print its output until it ends, and return the exit code; 0 at once if nobody follows it."""
        api, run, record = self._api, str(document["id"]), Record(self._hub, document["run"])
        # Code of trials writes to the stores of its person. So the driver of a search, which has an account, has none.
        claims = {} if document.get("is_driver") else api.claims(self._where.facts["site"])
        jobset = jobset_of(document, self._where, api.cluster, claims)
        try:
            api.start(jobset, lambda uid: secret_of(document, self._agent, uid))
        except KeyboardInterrupt:
            raise BpError("Ctrl-C before the cluster had all of it", "start it again") from None
        try:
            return follow(api, run, write, say, record) if self._is_followed else 0
        except NotRunningError as error:
            with suppress(BpError):
                record.end(str(error))
                api.end(run, now=True)
            raise
        except BpError as error:
            raise BpError(f"{error}: the run may go on", f"`bp show {run}`", PARTLY) from None

    def look(self, document: Mapping[str, Any]) -> str:
        """Return why no element of an array runs yet; end the record of one whose JobSet has ended without that."""
        api, run = self._api, str(document["id"])
        jobset, pod = api.jobset(run), api.pod(run)
        try:
            if is_over(jobset):
                Record(self._hub, document["run"]).end(never_ran(jobset, {}))
                return ""
            is_pending = pod.get("status", {}).get("phase", "Pending") == "Pending"
            return f"waiting: {_reason(api, jobset, pod, is_asked=True)}" if is_pending else ""
        except NotRunningError as error:
            Record(self._hub, document["run"]).end(str(error))
            api.end(run, now=True)
            return str(error)

    def close(self) -> None:
        """End the connections; the run goes on."""
        self._api.close()


def follow(api: Api, run: str, copy: Callable[[bytes], object], tell: Tell, record: Record) -> int:
    """Write the output of a run's first node over all attempts, say why it waits, and return its exit code.

    Raises NotRunningError, or another BpError if the cluster does not answer.
    """
    node, said, pause, polls = _FirstNode(api, run, copy), "", _POLL, 0
    while True:
        jobset, polls = api.jobset(run), polls + 1
        node.copy_output()
        code = _code(jobset, node, record)
        if code is not None:
            return code
        if node.code in REPEATED:
            # Who was killed has written no cause.
            cause = record.cause() if node.code in {PEER_LOST, NOTICED} else ""
            text = f"{cause or node.cause}; it starts again"
        else:
            text = "" if node.code is not None else _reason(api, jobset, node.pod, is_asked=polls > _FIRST_POLLS)
            text = f"waiting: {text}" if text else ""
        if text and text != said:
            tell(text)
            said = text
        time.sleep(pause)
        pause = _POLL if node.since else min(pause * 1.1, _LONGEST_POLL)


class _FirstNode:
    """The newest pod of a run's first node: how far its output is copied, and how its container has ended."""

    def __init__(self, api: Api, run: str, copy: Callable[[bytes], object]) -> None:
        self._api, self._run, self._copy = api, run, copy
        self.pod: Object = {}
        self.name = self.since = self.cause = ""
        self.code: int | None = None

    def copy_output(self) -> None:
        """Look at the pod, and copy what it writes until its container ends, or the connection does."""
        self.pod = self._api.pod(self._run)
        if not self.pod or self.pod["metadata"]["name"] != self.name:
            self.name = self.since = self.cause = ""
            self.code = None
        if self.code is None and container_of(self.pod).keys() & {"running", "terminated"}:
            self.name = self.pod["metadata"]["name"]
            line = self._copy_log()
            pod = self._api.pod(self._run)
            if pod and pod["metadata"]["name"] == self.name and "terminated" in container_of(pod):
                # A log may end before the last lines of a container that has ended meanwhile.
                line = self._copy_log() or line
                self.pod, self.code = pod, exit_code(pod)
                reason = container_of(pod)["terminated"].get("reason")
                self.cause = f"its container ended with exit code {self.code}: {reason}"
                if b": exec format error" in line:
                    self.cause = "its image is for another architecture than the machine"

    def _copy_log(self) -> bytes:
        """Copy what the container has written since the last time; return the last line."""
        line = b""
        for time_of_line, line in self._api.log(self.name, self.since):
            self.since = time_of_line
            self._copy(line)
        return line


def is_over(jobset: Object) -> bool:
    """Return whether a JobSet has ended, or is gone."""
    return not jobset or "terminalState" in jobset.get("status", {})


def _code(jobset: Object, node: _FirstNode, record: Record) -> "int | None":
    """Return the exit code of a run that has ended, by its record, or else by its container; None before."""
    has_ended = is_over(jobset)
    # The agent writes the end of the run before its own, and the controller of JobSets needs a moment to see that.
    code = record.code() if has_ended or node.code not in {None, *REPEATED} else None
    if code is not None or not has_ended or is_running(node.pod):
        return code
    cause = node.cause or never_ran(jobset, node.pod)
    record.end(cause)
    if node.code is None:
        raise NotRunningError(cause, "", PARTLY)
    return node.code


def _reason(api: Api, jobset: Object, pod: Object, *, is_asked: bool) -> str:
    """Return why a run has no running pod, by kubelet or the scheduler, the line of its queue, or an event."""
    if pod or not jobset:
        return wait_reason(pod) if pod else ""
    if jobset["spec"].get("suspend"):
        # It may leave the queue while it is read, and the next look says where it is.
        with suppress(BpError):
            return " ".join(f"{line.rstrip('.')}." for line in waiting_lines(api, jobset["metadata"]["name"]))
    return api.reason(jobset) if is_asked else ""


def never_ran(jobset: Object, pod: Object) -> str:
    """Return why a JobSet has ended without an end of its first container."""
    if pod.get("status", {}).get("phase") == "Failed":
        exit_code(pod)
    if not jobset:
        return "its JobSet was deleted"
    messages = [item["message"] for item in jobset["status"].get("conditions", ()) if item["type"] == "Failed"]
    return f"its pods have ended: {', '.join(messages)}"


def wait_reason(pod: Object) -> str:
    """Return why a pod does not run yet. Raises NotRunningError if it never will."""
    waiting = container_of(pod).get("waiting", {})
    reason, message = str(waiting.get("reason", "")), str(waiting.get("message", ""))
    if reason in _FATAL:
        what = f"the container cannot start: {message or reason}"
        raise NotRunningError(what, "see `jobs.images` of the fleet", WRONG)
    if reason:
        return f"{reason}: {message}" if message else reason
    conditions = {item["type"]: item for item in pod["status"].get("conditions", ())}
    return str(conditions.get("PodScheduled", {}).get("message", ""))


def exit_code(pod: Object) -> int:
    """Return the exit code of a pod that has ended. Raises NotRunningError if its program has not run."""
    ended = container_of(pod).get("terminated", {})
    message = str(ended.get("message", ""))
    if ended.get("reason") in _FATAL:
        missing = "python3" in message and "not found" in message
        what = "the image has no python3" if missing else f"the container cannot start: {message}"
        raise NotRunningError(what, "name an image with Python 3.9 or newer in `jobs.images`", WRONG)
    if "exitCode" not in ended:
        reason, message = pod["status"].get("reason", "unknown"), pod["status"].get("message", "")
        raise NotRunningError(f"the pod has ended: {reason}: {message}", "run it again")
    return int(ended["exitCode"])


def stop_pods(hub: Connection, api: Api, run: Mapping[str, Any], by: str, *, is_now: bool = False) -> None:
    """Delete the JobSet of a run by its name. Its agents write the end, unless none runs, or they are killed."""
    # By this an agent knows that its SIGTERM is no notice of its machine.
    change_run(hub, run["run"], tags={"bedplate.stopped_by": by})
    has_agents = any(is_running(pod) for pod in api.pods(run["name"]))
    api.end(run["name"], now=is_now)
    # The agents of elements write their own ends only.
    if is_now or not has_agents or "bedplate.array" in run["tags"]:
        end_run(hub, run["run"], f"stopped by {by}", "KILLED")
