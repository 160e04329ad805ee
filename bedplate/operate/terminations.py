"""Running machines that a command ends: read from AWS, and named before it asks.

`--yes` does not agree to their end. If AWS does not answer, machines may run.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from bedplate.account.capacity import LEAVING
from bedplate.account.client import AwsClient
from bedplate.account.machines import Claim, LiveMachine, read_claims, read_group_machines
from bedplate.errors import BedplateError, InputError
from bedplate.files import login_name
from bedplate.nodes.ssh import Login, NodeLocation, logged_in, login_account, write_ssh_config
from bedplate.operate import Operator
from bedplate.plan import FleetPlan
from bedplate.plan.nodes import find_node
from bedplate.report.columns import counted
from bedplate.report.nodes import age_of
from bedplate.rounds import ask_each

_AT_A_TIME = 8


@dataclass(frozen=True, slots=True)
class Termination:
    """Machines of an Auto Scaling group, each described, of which `count` end; `unknown` is why AWS named none."""

    group: str
    region: str
    machines: tuple[str, ...] = ()
    count: int = 0
    unknown: str = ""

    @property
    def line(self) -> str:
        """What ends, in one line."""
        if self.unknown:
            return f"{self.group} in {self.region}: may end running machines, which are unknown: {self.unknown}"
        total = counted(len(self.machines), "running machine")
        number = total if self.count == len(self.machines) else f"{self.count} of {total}"
        return f"{self.group} in {self.region}: ends {number} (local disks are lost): {'; '.join(self.machines)}"


def find_terminations(
    client: AwsClient,
    plan: FleetPlan,
    kept: Mapping[str, Mapping[str, int]],
    concerns: Callable[[LiveMachine], bool] = lambda _machine: True,
) -> tuple[Termination, ...]:
    """Return what ends if Auto Scaling groups keep these numbers of machines, by region and name of the group.

    `concerns` chooses the machines that count.
    """
    if not kept:
        return ()
    claims: tuple[Claim, ...] = ()
    with suppress(BedplateError):  # without them machines have no names
        claims = read_claims(client, plan)
    answers = read_group_machines(client, plan, {region: [*groups] for region, groups in kept.items()}, claims)
    groups = defaultdict[tuple[str, str], list[LiveMachine]](list)
    for machine in (machine for machines in answers.successes.values() for machine in machines):
        if concerns(machine) and not machine.state.startswith(LEAVING):
            groups[machine.region, machine.pool].append(machine)
    ends = {place: len(found) - kept[place[0]][f"{plan.name}-{place[1]}"] for place, found in groups.items()}
    return (
        *(
            Termination(groups[place][0].group, place[0], tuple(_descriptions(plan, groups[place])), count)
            for place, count in ends.items()
            if count > 0
        ),
        *(
            Termination(name.removeprefix(f"{plan.name}-"), region, unknown=error.what)
            for region, error in answers.failures.items()
            for name in kept[region]
        ),
    )


def _descriptions(plan: FleetPlan, machines: Sequence[LiveMachine]) -> Iterator[str]:
    by_instance = {machine.instance: machine for machine in machines}
    people, _ = ask_each(by_instance, lambda instance: people_on(plan, by_instance[instance]), _AT_A_TIME)
    for machine in machines:
        users = people.get(machine.instance)
        logins = "logins unknown" if users is None else f"logged in: {', '.join(users) or 'nobody'}"
        yield f"{machine.label} ({machine.instance}), up {age_of(machine, datetime.now(UTC))}, {logins}"


def people_on(plan: FleetPlan, machine: LiveMachine) -> tuple[str, ...] | None:
    """Return who is logged in to a machine; None without a recorded host key or a connection."""
    if machine.name is None or not plan.record.host_keys.get(machine.name):
        return None
    node = find_node(plan, machine.name, plan.catalog)
    login = Login(login_account(plan.accounts, login_name()), connect_timeout=5)
    with TemporaryDirectory() as folder:
        location = NodeLocation(node, machine.address)
        (target,) = write_ssh_config(Path(folder), [location], plan.record.host_keys, login).targets
        return logged_in(target)


def confirm(
    operator: Operator, question: str, terminations: Sequence[Termination], details: Sequence[str] = ()
) -> None:
    """Ask; raise InputError unless the operator agrees, with `--yes` also to the end of machines."""
    if terminations and operator.yes and not operator.end_machines:
        groups = ", ".join(dict.fromkeys(termination.group for termination in terminations))
        raise InputError(
            f"this ends running machines of {groups}, and --yes does not agree to that",
            fix="add --end-machines, or omit --yes",
        )
    operator.confirm(question, details)
