"""Changes of nodes and pods, each conditional on the observation, and Events that explain them."""

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from secrets import token_hex
from typing import Any

from lightkube.models.core_v1 import EventSource, ObjectReference
from lightkube.models.meta_v1 import DeleteOptions, ObjectMeta, Preconditions
from lightkube.resources.core_v1 import Event, Node, PersistentVolume, PersistentVolumeClaim, Pod, PodEviction

from bedplate.capacity.observation import (
    Action,
    Cordon,
    CordonNode,
    DrainNode,
    EvictPod,
    Observation,
    Terminate,
    UncordonNode,
)
from bedplate.errors import BedplateError, PartialError
from bedplate.foreign import LARGE, parse_json
from bedplate.kubernetes.client import MANAGER, ClusterClient, Conflict, Missing, ObjectCache, TooManyRequests, key_of
from bedplate.kubernetes.demand import CORDONED, Cluster, cordon_of, instance_of, is_annotated, join, pod_id, work_of
from bedplate.kubernetes.pods import has_ended, is_daemon, is_movable, seconds
from bedplate.kubernetes.queued import QUEUE_NAME, WAITS, followers
from bedplate.kubernetes.queues import HELD, JOB_SET, NORMAL, WORKLOAD

# Seconds for which the memory of a predecessor is used.
_RECENT = 300.0
# Characters in the message of an Event. Source: Kubernetes API reference, Event v1.
_MAX_MESSAGE = 1000
# Changed explanations of queued work in one round: more would delay the next decision.
_MAX_NOTES = 50


@dataclass
class LiveCluster:
    """A cluster that a controller observes by watches, and acts on."""

    client: ClusterClient
    since: float
    now: Callable[[], float]
    _ends: dict[str, float] = field(default_factory=dict)
    _queues: ObjectCache | None = None
    _notes: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.pods = ObjectCache(self.client, Pod, self._on_pod)
        self.nodes = ObjectCache(self.client, Node)
        self.claims = ObjectCache(self.client, PersistentVolumeClaim)
        self.volumes = ObjectCache(self.client, PersistentVolume)

    def start(self) -> None:
        """List pods, nodes, claims and volumes, and watch them. Raises BedplateError."""
        # Pods last: one on an unknown node would be left out, one with an unknown claim would start no machine.
        for cache in (self.volumes, self.claims, self.nodes, self.pods):
            cache.start()

    def stop(self) -> None:
        """End the watches, and close their connections."""
        for cache in (self.volumes, self.claims, self.nodes, self.pods):
            cache.stop()
        if self._queues:
            self._queues.stop()
        self.client.api.close()

    def observe(self, cloud: Observation) -> Observation:
        """Return an observation of AWS with pods and nodes. Raises PartialError if a watch has no answer."""
        nodes, pods = self.nodes.objects(), self.pods.objects()
        for name in self._ends.keys() - nodes.keys():
            self._ends.pop(name, None)
        facts = (tuple(pods.values()), tuple(nodes.values()), dict(self._ends), self.since)
        return join(Cluster(*facts, self.claims.objects(), self.volumes.objects(), self._workloads()), cloud)

    def observe_once(self, cloud: Observation) -> Observation:
        """Return the same with list requests, for a command that runs once."""
        pods, _ = self.client.objects(Pod)
        nodes, _ = self.client.objects(Node)
        claims = {key_of(claim): claim for claim in self.client.objects(PersistentVolumeClaim)[0]}
        volumes = {key_of(volume): volume for volume in self.client.objects(PersistentVolume)[0]}
        workloads: tuple[Any, ...] = ()
        with suppress(Missing):
            workloads, _ = self.client.objects(WORKLOAD)
        return join(Cluster(pods, nodes, dict(self._ends), self.since, claims, volumes, workloads), cloud)

    def _workloads(self) -> tuple[Any, ...]:
        """Return the Workloads of Kueue; none in a cluster without it, which may get or lose it at any time."""
        if self._queues:
            try:
                return tuple(self._queues.objects().values())
            except PartialError:
                self._queues.stop()
        cache, self._queues = ObjectCache(self.client, WORKLOAD), None
        with suppress(Missing):
            cache.start()
            self._queues = cache
        return tuple(cache.objects().values()) if self._queues else ()

    def note_waits(self, sentences: Mapping[str, str], queued: Collection[str]) -> None:
        """Write on JobSets why they wait, if that has changed, and remove it from those that wait no more.

        Owners are `NAMESPACE/KIND/NAME`. It only explains, so a failure is not an error.
        """
        notes = {owner: "" for owner in self._notes if owner not in queued}
        notes |= {owner: text for owner, text in sentences.items() if self._notes.get(owner) != text}
        for owner, text in [*notes.items()][:_MAX_NOTES]:
            namespace, kind, name = owner.split("/")
            with suppress(BedplateError):
                if kind == JOB_SET.__name__:
                    change = {"metadata": {"annotations": {WAITS: text or None}}}
                    with suppress(Missing):
                        self.client.patch(JOB_SET, name, change, namespace)
                self._notes[owner] = text
            if not self._notes.get(owner):
                self._notes.pop(owner, None)

    def start_followers(self) -> Iterable[str]:
        """Let runs start whose predecessor has ended, delete those that never will, and yield what is done."""
        held = {item["metadata"]["namespace"] for item in self._workloads() if item["spec"].get("queueName") == HELD}
        for namespace in sorted(held):
            items, _ = self.client.objects(JOB_SET, namespace=namespace)
            for name, is_started in followers(items):
                done = f"{'starts' if is_started else 'is deleted'}: the run before it has ended"
                try:
                    if is_started:
                        self.client.patch(JOB_SET, name, {"metadata": {"labels": {QUEUE_NAME: NORMAL}}}, namespace)
                    else:
                        self.client.delete(JOB_SET, name, namespace)
                except BedplateError as error:
                    # It keeps back no run of others.
                    done = f"is tried again: {error.what}"
                yield f"{namespace}/{name} {done}"

    def state(self) -> str:
        """Return the memory for a successor: when the last pods of nodes ended."""
        idle = {name: round(max(self._ends.get(name, 0.0), self.since)) for name in self.nodes.objects()}
        return json.dumps({"time": round(self.now()), "idle": idle}, sort_keys=True)

    def restore(self, text: str) -> None:
        """Load the times that the previous leader saved; older ones are ignored, as pods may have ended unseen since.

        Text that cannot be read is ignored.
        """
        with suppress(ValueError, TypeError, KeyError, AttributeError):
            state = parse_json(text, LARGE)
            if self.now() - state["time"] > _RECENT:
                return
            for name, end in state["idle"].items():
                # What this controller has seen itself takes precedence.
                self._ends.setdefault(str(name), float(end))

    def _on_pod(self, event: str, pod: Pod) -> None:
        """Keep the time at which a node's last pod ended: pods of DaemonSets do not count."""
        node = pod.spec.nodeName if pod.spec else None
        if node and not is_daemon(pod) and (event == "DELETED" or has_ended(pod)):
            self._ends[node] = max(self._ends.get(node, 0.0), min(_end(pod) or self.now(), self.now()))

    def apply(self, action: Action) -> None:
        """Apply an action on a node or a pod. Raises Conflict if it has changed, TooManyRequests for status 429."""
        match action:
            case CordonNode():
                self._cordon(action.node, action.reason)
            case UncordonNode():
                self._uncordon(action.node)
            case DrainNode():
                self._drain(action.node, action.reason)
            case EvictPod():
                self._evict(_existing(self.pods, action.pod))
            case _:
                raise AssertionError(action)

    def check_empty(self, name: str) -> None:
        """Raise Conflict unless a node is cordoned by the controller and has no work, as the API server says."""
        node = self.client.find(Node, name)
        if node is None:
            return
        if cordon_of(node) is not Cordon.PLANNER:
            raise Conflict(f"{name} is not cordoned by the controller")
        pods, _ = self.client.objects(Pod, fields={"spec.nodeName": name})
        work, _ = work_of(node, [pod for pod in pods if not has_ended(pod)], self.now())
        if work:
            raise Conflict(f"{name} has work: {', '.join(map(pod_id, work[:3]))}")

    def forget_stale_cordons(self) -> None:
        """Remove the controller's annotation from nodes that another client has uncordoned."""
        for node in self.nodes.objects().values():
            if is_annotated(node) and cordon_of(node) is None:
                self._patch(node, None, unschedulable=None)

    def report(self, action: Action, *, failure: str = "") -> None:
        """Write an Event about an action on the object that it concerns."""
        target = self._target(action)
        words = f"{action.reason}: {failure}" if failure else action.reason
        self._write_event(target, type(action).__name__, words, is_warning=bool(failure))

    def report_unplaced(self, pod: str, reason: str) -> None:
        """Write an Event about a pod that fits no pool."""
        self._write_event(_reference(self.pods.objects().get(pod), "Pod"), "NoCapacity", reason, is_warning=True)

    def _write_event(self, target: ObjectReference | None, reason: str, words: str, *, is_warning: bool) -> None:
        """Write an Event; it only explains, so a failure is not an error."""
        if target is None:
            return
        now = datetime.now(UTC)
        event = Event(
            metadata=ObjectMeta(name=f"{target.name}.{token_hex(8)}", namespace=target.namespace or "default"),
            involvedObject=target,
            reason=reason,
            message=words[:_MAX_MESSAGE],
            type="Warning" if is_warning else "Normal",
            firstTimestamp=now,
            lastTimestamp=now,
            count=1,
            source=EventSource(component=MANAGER),
        )
        with suppress(BedplateError):
            self.client.call("create Event", lambda api: api.create(event), attempts=1)

    def _target(self, action: Action) -> ObjectReference | None:
        match action:
            case CordonNode() | UncordonNode() | DrainNode():
                return _reference(self.nodes.objects().get(action.node), "Node")
            case EvictPod():
                return _reference(self.pods.objects().get(action.pod), "Pod")
            case Terminate():
                nodes = self.nodes.objects().values()
                return _reference(next((node for node in nodes if instance_of(node) == action.machine), None), "Node")
            case _:
                return None

    def _cordon(self, name: str, reason: str) -> None:
        node = _existing(self.nodes, name)
        if cordon_of(node) is None:
            self._patch(node, reason, unschedulable=True)

    def _uncordon(self, name: str) -> None:
        node = _existing(self.nodes, name)
        if cordon_of(node) is Cordon.HUMAN:
            raise Conflict(f"{name} was cordoned by a person")
        if cordon_of(node) is Cordon.PLANNER:
            self._patch(node, None, unschedulable=None)

    def _patch(self, node: Node, reason: str | None, *, unschedulable: bool | None) -> None:
        """Cordon or uncordon a node if it is still as it was observed."""
        meta = node.metadata or ObjectMeta()
        name = str(meta.name)
        annotation = None if reason is None else f"{MANAGER}: {reason}"
        observed = {"resourceVersion": meta.resourceVersion, "annotations": {CORDONED: annotation}}
        self.client.patch(Node, name, {"metadata": observed, "spec": {"unschedulable": unschedulable}})

    def _drain(self, name: str, reason: str) -> None:
        self._cordon(name, reason)
        refused = []
        for pod in tuple(self.pods.objects().values()):
            on_node = pod.spec is not None and pod.spec.nodeName == name
            if (
                on_node
                and is_movable(pod)
                and not (is_daemon(pod) or has_ended(pod) or (pod.metadata and pod.metadata.deletionTimestamp))
            ):
                try:
                    self._evict(pod)
                except (TooManyRequests, Missing):
                    refused.append(pod_id(pod))
        if refused:
            raise TooManyRequests(f"{name}: disruption budgets keep {', '.join(refused[:3])}")

    def _evict(self, pod: Pod) -> None:
        meta = pod.metadata or ObjectMeta()
        name = str(meta.name)
        # The pod with this name may be another one now.
        options = DeleteOptions(preconditions=Preconditions(uid=meta.uid))
        eviction = PodEviction(metadata=ObjectMeta(name=name, namespace=meta.namespace), deleteOptions=options)
        try:
            self.client.call(f"evict {pod_id(pod)}", lambda api: api.create(eviction, name), attempts=1)
        except Missing:
            return


def _existing(cache: ObjectCache, name: str) -> Any:  # noqa: ANN401  any kind
    if name not in (objects := cache.objects()):
        raise Conflict(f"{name} does not exist any more")
    return objects[name]


def _reference(item: Any, kind: str) -> ObjectReference | None:  # noqa: ANN401  any kind
    if item is None or item.metadata is None:
        return None
    meta = item.metadata
    # Events about nodes have the node's name as id, as kubelet writes them.
    uid = meta.name if kind == "Node" else meta.uid
    return ObjectReference(apiVersion="v1", kind=kind, name=meta.name, namespace=meta.namespace, uid=uid)


def _end(pod: Pod) -> float | None:
    """Return when the last container of an ended pod ended; None if that is unknown."""
    statuses = (pod.status.containerStatuses if pod.status else None) or ()
    ended = [
        seconds(status.state.terminated.finishedAt) for status in statuses if status.state and status.state.terminated
    ]
    return max(filter(None, ended), default=None)
