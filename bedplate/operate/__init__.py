"""The operator's workflows: the order of their steps, what they wait for, and what they report.

They take values and an `Operator`, to whom they report their events. `bedplate.cli` prints them; nothing here does.
Here is what they share, from the operator to the plan of their fleet. Some need no plan, so its modules are imported
where they are used: they take a quarter of a second.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bedplate.errors import BedplateError, PartialError, error_lines

if TYPE_CHECKING:  # slow: some commands need neither Pulumi nor SSH
    from bedplate.account.client import AwsClient
    from bedplate.deploy.run import Deployment, Watch
    from bedplate.load import Loaded
    from bedplate.nodes.apply import Event, NodeResult
    from bedplate.plan import FleetPlan


class Views(ABC):
    """How the progress of workflows is shown."""

    @abstractmethod
    def stacks(self, deployment: "Deployment") -> AbstractContextManager["Watch"]:
        """Return what takes the states of a deployment."""

    @abstractmethod
    def applies(self, names: Sequence[str]) -> AbstractContextManager[Callable[["Event", "NodeResult"], None]]:
        """Return what takes the events of applies to these machines, each with the result of its machine so far."""

    @abstractmethod
    def audits(self, names: Sequence[str]) -> AbstractContextManager[Callable[["Event"], None]]:
        """Return what takes the events of audits of these machines."""

    @abstractmethod
    def rehearsal(self, *, in_log: bool) -> AbstractContextManager[Callable[[str, str, bool], None]]:
        """Return what takes the steps of a rehearsal; `in_log` shows them also where no table can be shown.

        A step is the stack, what is done there, and whether AWS has the resource.
        """


@dataclass(frozen=True, slots=True)
class Operator(ABC):
    """Who runs a workflow: their fleet file, how they log in to machines, and how they are told and asked.

    `yes` agrees to every question, but to the end of running machines only together with `end_machines`.
    """

    fleet: Path
    user: str | None = None
    identity: Path | None = None
    ssh_config: Path | None = None
    passphrase_file: Path | None = None
    yes: bool = False
    end_machines: bool = False
    is_attended: bool = True
    """Whether somebody may be asked."""

    @abstractmethod
    def show(self, lines: Iterable[str]) -> None:
        """Report lines of the result."""

    @abstractmethod
    def show_changes(self, lines: Iterable[str]) -> None:
        """Report lines of the result that may have replacements and deletions."""

    @abstractmethod
    def notify(self, lines: Iterable[str]) -> None:
        """Report warnings and progress."""

    def report_errors(self, errors: Sequence[BedplateError], advice: str) -> int:
        """Report errors and how to continue; return the exit status, 6 if there are any."""
        if not errors:
            return 0
        self.notify((*error_lines(*errors), advice))
        return PartialError.exit_code

    @abstractmethod
    def confirm(self, question: str, details: Sequence[str] = ()) -> None:
        """Raise InputError unless the operator agrees, who may ask for details first."""

    @abstractmethod
    def ask(self, question: str, default: str | None) -> str | None:
        """Return the operator's answer; the default if there is nobody to ask."""

    @abstractmethod
    def ask_secret(self, prompt: str) -> bytes:
        """Return a secret of the operator. Raises InputError if there is nobody to ask."""

    @property
    @abstractmethod
    def views(self) -> Views:
        """How progress is shown to them."""


@dataclass(frozen=True, slots=True)
class Result:
    """What a workflow has found: its lines or one JSON document, the exit status, and notes that come after it."""

    lines: Iterable[str]
    document: Any = None
    status: int = 0
    notes: Iterable[str] = ()


def open_fleet(operator: Operator, *, with_warnings: bool = False) -> "Loaded":
    """Return the fleet that the operator's file declares, and report its warnings. Raises FleetFaults for errors."""
    from bedplate.load import load_fleet
    from bedplate.report.diagnostics import fault_lines

    loaded = load_fleet(operator.fleet)
    if with_warnings:
        operator.notify(fault_lines(loaded.faults))
    return loaded


def plan_loaded(loaded: "Loaded") -> "FleetPlan":
    """Return the plan of the fleet and its lock. Raises FleetFaults if they contradict each other."""
    from bedplate.lock import lock_path, read_lock

    return loaded.plan(read_lock(lock_path(loaded.path), loaded.fleet.name))


def plan_of(operator: Operator, *, with_warnings: bool = False) -> "FleetPlan":
    """Return the plan of the operator's fleet file and its lock. Raises FleetFaults for errors in either."""
    return plan_loaded(open_fleet(operator, with_warnings=with_warnings))


def open_account(plan: "FleetPlan") -> "AwsClient":
    """Return the client of the fleet's AWS account. Raises InputError for credentials of another account."""
    # It imports boto3.
    from bedplate.account.client import check_account, open_client

    client = open_client()
    check_account(client, plan.account, plan.home.name)
    return client


def plan_and_account(operator: Operator) -> "tuple[FleetPlan, AwsClient]":
    """Return the plan of the operator's fleet, and the client of its account."""
    plan = plan_of(operator)
    return plan, open_account(plan)
