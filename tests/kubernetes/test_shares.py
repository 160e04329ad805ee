"""Shares of people over a week, scaled: a week is two minutes, and runs of some hours last two seconds."""

import json
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from lightkube.resources.core_v1 import Pod, PodStatus

from bedplate.kubernetes.queues import JOB_SET
from tests.testlab.fleets.variants import lab_plan
from tests.testlab.kubernetes.binaries import find_programs
from tests.testlab.kubernetes.control_plane import ControlPlane
from tests.testlab.kubernetes.queues import Queues, job_set, queue_folder
from tests.testlab.run import lack

_WEEK, _RUN, _WAITING = 120.0, 2.0, 6
_SHARES = {"ada": 2, "grace": 1}
_FAIR = {
    "usageHalfLifeTime": f"{_WEEK:.0f}s",
    "usageSamplingInterval": "1s",
    "resourceWeights": {"cpu": 0, "memory": 0},
}


@dataclass
class Week:
    """People who always have waiting runs, kubelets that end them, and the seconds that each person had GPUs."""

    client: Any
    numbers: Any = field(default_factory=count)
    since: dict[str, float] = field(default_factory=dict)
    used: dict[str, float] = field(default_factory=lambda: dict.fromkeys(_SHARES, 0.0))
    sent: Counter[str] = field(default_factory=Counter)
    ended: Counter[str] = field(default_factory=Counter)

    def step(self) -> None:
        """Send runs, and end those whose time is over."""
        for person in _SHARES:
            while self.sent[person] - self.ended[person] < _WAITING + 4:
                self.client.create(JOB_SET(job_set(f"r{next(self.numbers)}", person)))
                self.sent[person] += 1
            for pod in self.client.list(Pod, namespace=person):
                if pod.status.phase == "Running":
                    self._age(person, pod.metadata.name)

    def _age(self, person: str, name: str) -> None:
        begin, now = self.since.setdefault(name, time.monotonic()), time.monotonic()
        if now - begin > _RUN:
            self.client.patch(PodStatus, name, {"status": {"phase": "Succeeded"}}, namespace=person)
            self.used[person] += now - begin
            self.ended[person] += 1


def test_people_have_their_share_while_all_have_work() -> None:
    """Somebody with a share of 2 has twice the GPU hours of the other person, within 10 % of each share."""
    programs, folder = find_programs(), queue_folder()
    if programs is None:
        lack("needs the programs of Kubernetes: `python -m tests.testlab.kubernetes` builds them")
    plan = replace(lab_plan(), jobs=lab_plan().jobs.model_copy(update={"shares": _SHARES}))
    with (
        ControlPlane(programs) as plane,
        Queues(plane, folder, plan, settings={"admissionFairSharing": _FAIR}) as queues,
    ):
        plane.start_kwok()
        plane.add_nodes(3, {"nvidia.com/gpu": "8"}, {"bedplate/group": "train"})
        week, begin = Week(queues.plane.client()), time.monotonic()

        while time.monotonic() - begin < _WEEK:
            week.step()
            time.sleep(0.2)

    total = sum(week.used.values())
    shares = {person: week.used[person] / total for person in _SHARES}
    parts = sum(_SHARES.values())
    assert total > 20 * _RUN, "too few runs for a share"
    wrong = {person: share for person, share in shares.items() if abs(share * parts / _SHARES[person] - 1) > 0.1}
    assert not wrong, json.dumps(shares)
