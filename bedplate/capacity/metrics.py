"""The controller's metrics, as text for the node exporter of Prometheus."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from bedplate.capacity.actions import verb_of
from bedplate.capacity.controller import Round

_PREFIX = "bedplate_capacity"
_HELP = {
    "leader": ("gauge", "Whether this controller acts"),
    "round_timestamp_seconds": ("gauge", "Time of the last round that observed everything"),
    "round_seconds": ("gauge", "Duration of the last round"),
    "errors_total": ("counter", "Rounds that could not observe"),
    "actions_total": ("counter", "Actions by their result"),
    "desired": ("gauge", "Desired machines"),
    "maximum": ("gauge", "Most machines now"),
    "machines": ("gauge", "Machines that are paid for"),
    "joined": ("gauge", "Machines that are nodes"),
    "usd_per_hour": ("gauge", "List price of the machines"),
    "pending_pods": ("gauge", "Pods without a node"),
    "unplaced_pods": ("gauge", "Pods that fit no pool, in the last round"),
}
Sample = tuple[str, Mapping[str, str], float]


@dataclass
class Metrics:
    """Counts since the start of the controller, and the last round."""

    actions: Counter[tuple[str, str]] = field(default_factory=Counter)
    errors: int = 0
    seconds: float = 0.0
    is_leader: bool = False
    last: Round | None = None

    def add(self, result: Round | None, seconds: float) -> None:
        """Count a round; None is one in which another controller was the leader."""
        self.is_leader, self.seconds = result is not None, seconds
        if result is not None:
            self.last = result
            self.actions.update((verb_of(o.action), "failed" if o.failure else "done") for o in result.outcomes)

    def text(self) -> str:
        """Return all metrics in the text format."""
        lines: list[str] = []
        last_name = ""
        # All samples of a metric must be together.
        for name, labels, value in sorted(self._samples(), key=lambda sample: sample[0]):
            if name != last_name:
                kind, about = _HELP[name]
                lines += [f"# HELP {_PREFIX}_{name} {about}.", f"# TYPE {_PREFIX}_{name} {kind}"]
                last_name = name
            shown = ",".join(f'{key}="{text}"' for key, text in labels.items())
            lines.append(f"{_PREFIX}_{name}{f'{{{shown}}}' if shown else ''} {value:.15g}")
        return "\n".join(lines) + "\n"

    def _samples(self) -> Iterator[Sample]:
        yield "leader", {}, float(self.is_leader)
        yield "errors_total", {}, float(self.errors)
        yield "round_seconds", {}, self.seconds
        for (verb, result), count in sorted(self.actions.items()):
            yield "actions_total", {"do": verb, "result": result}, float(count)
        if self.last:
            yield from _round_samples(self.last)


def _round_samples(result: Round) -> Iterator[Sample]:
    observation = result.observation
    machines = Counter(machine.pool for machine in observation.machines)
    joined = Counter(machine.pool for machine in observation.machines if machine.node)
    for pool in observation.pools:
        labels, count = {"group": pool.group, "pool": pool.name}, machines[pool.name]
        yield "desired", labels, float(pool.desired)
        yield "maximum", labels, float(pool.maximum)
        yield "machines", labels, float(count)
        yield "joined", labels, float(joined[pool.name])
        yield "usd_per_hour", labels, count * pool.price
    yield "pending_pods", {}, float(sum(pod.node is None for pod in observation.pods))
    yield "unplaced_pods", {}, float(len(result.decision.unplaced))
    yield "round_timestamp_seconds", {}, observation.time
