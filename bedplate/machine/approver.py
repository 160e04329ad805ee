"""`python3 -m bedplate.machine.approver --kubeconfig FILE`: the approver of nodes, on each member of the control plane.

Of all members one acts. It answers requests for the certificates of nodes, removes the taint of the gate, deletes the
Node objects of ended instances, and renews the token of workers in the cloud.
"""

import argparse
import sys
import time
from collections.abc import Collection
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from bedplate.account.client import AwsClient, open_client
from bedplate.account.workers import PublishedKeys, put_token, read_workers
from bedplate.errors import BedplateError, InputError
from bedplate.kubernetes.approval import Inventory, KnownMachine
from bedplate.kubernetes.approver import LEASE, Approver
from bedplate.kubernetes.client import open_cluster
from bedplate.kubernetes.lease import Leadership
from bedplate.machine.state import State
from bedplate.plan.cluster import JoiningPlan
from bedplate.rounds import run_round

_PAUSE = 1.0
# EC2 is asked at most this often while a request waits, and this often otherwise.
_URGENT, _USUAL = 5.0, 30.0
_TOKEN_RENEWAL, _TOKEN_RETRY = 1800.0, 60.0


@dataclass
class Cloud:
    """The workers in AWS, asked anew after some seconds."""

    client: AwsClient
    plan: JoiningPlan
    _asked: float | None = None
    _inventory: Inventory = field(default_factory=lambda: Inventory({}, frozenset()))

    def __post_init__(self) -> None:
        self._keys = PublishedKeys(self.client, self.plan)

    def inventory(self, now: float, requested: Collection[str]) -> Inventory:
        """Return the machines that exist, with the published keys of those whose requests wait."""
        if self._asked is None or now - self._asked >= (_URGENT if requested else _USUAL):
            self._inventory, self._asked = self._ask(requested), now
        return self._inventory

    def _ask(self, requested: Collection[str]) -> Inventory:
        answers = read_workers(self.client, self.plan)
        machines = {name: KnownMachine(frozenset({str(address)})) for name, address in self.plan.fixed.items()}
        for region, workers in answers.successes.items():
            waiting = {worker.instance for worker in workers if worker.name in requested}
            keys = self._keys.read(region, waiting) if waiting else {}
            machines |= {
                worker.name: KnownMachine(worker.addresses, worker.instance, keys.get(worker.instance), worker.launched)
                for worker in workers
            }
        return Inventory(machines, frozenset(answers.successes), frozenset(answers.failures))


@dataclass
class Rounds:
    """The rounds of one approver."""

    approver: Approver
    cloud: Cloud
    leadership: Leadership
    _token_due: float = 0.0

    def run(self, now: float) -> None:
        """Do what is due if this is the leader; an error of one step does not stop the others."""
        self.approver.reports.begin_round()
        run_round(partial(self._lead, now), self.approver.reports)

    def _lead(self, now: float) -> None:
        if self.leadership.hold():
            approver, own = self.approver, (partial(self._answer, now), partial(self._renew, now))
            for step in (approver.follow_gates, approver.verify, *own):
                run_round(step, approver.reports)

    def _answer(self, now: float) -> None:
        inventory = self.cloud.inventory(now, self.approver.requested())
        self.approver.answer(inventory)
        self.approver.delete_ended(inventory, now)

    def _renew(self, now: float) -> None:
        if now >= self._token_due:
            self._token_due = now + _TOKEN_RETRY
            put_token(self.cloud.client, self.cloud.plan, self.approver.make_token())
            self._token_due = now + _TOKEN_RENEWAL
            log("renewed the token of workers")


def log(line: str) -> None:
    """Write a line to the journal."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(kubeconfig: Path, state: State) -> int:
    """Approve until this process is ended; an error before the first round ends it."""
    node = state.node()
    if node.joining is None:
        raise InputError("the node document has no plan for joining", fix="run `bedplate bundle push`")
    cluster = open_cluster(kubeconfig)
    leadership = Leadership(cluster, node.name, name=LEASE)
    approver = Approver(cluster, log)
    approver.start()
    rounds = Rounds(approver, Cloud(open_client(), node.joining), leadership)
    while True:
        rounds.run(time.monotonic())
        time.sleep(_PAUSE)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="bedplate-approver")
    parser.add_argument("--kubeconfig", type=Path, required=True)
    try:
        sys.exit(main(parser.parse_args().kubeconfig, State()))
    except BedplateError as fatal:
        log(f"{fatal.what}{f'; {fatal.fix}' if fatal.fix else ''}")
        sys.exit(1)
