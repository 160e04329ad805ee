"""The smoke test: a fleet of its own in a real account, twelve checks as stages, and its end with all that it made.

A stage runs commands as an operator does. It has passed if every step of it was right. Nothing of the fleet outlives
the test, unless it is to be kept: it is destroyed after the stages, after Ctrl-C and at the time limit.
"""

import json
import os
import re
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from types import MappingProxyType
from typing import Any

from bedplate.account.capacity import ScalingGroups, terminate_machine
from bedplate.account.client import AwsClient, open_client
from bedplate.account.session import find_instance
from bedplate.account.smoke import KEPT, kind_and_name, remove, role_keys, tagged
from bedplate.capacity.observation import NOT_READY, Activity
from bedplate.errors import BedplateError, InputError, PartialError, ViolationError, error_lines
from bedplate.files import write_whole
from bedplate.folder.example import EXAMPLES
from bedplate.operate import Operator, Result, new_folder, plan_of
from bedplate.plan import FleetPlan, bill
from bedplate.plan.nodes import NodeRole, permanent_nodes
from bedplate.report import smoke as report
from bedplate.report.columns import aligned
from bedplate.report.smoke import AwsError, SmokeReport, StageResult
from bedplate.rounds import run_round, wait

REPORT, LOG, PASSPHRASE = "smoke.json", "smoke.log", "passphrase"
_NAME = "smoke-"
"""What the names of its fleets begin with."""
_PAUSE, _LONGEST = 15.0, 900.0
"""Seconds between two questions, and until the last one."""
_REPORT_IT = f"report it with the files {REPORT} and {LOG}"
Answer = tuple[int, str, str]
"""The exit status of a command, and its output on stdout and stderr."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A check: when it passes, its length in minutes, its steps, and USD for it. docs/smoke.md has what it leaves out.

    A step is a command of bedplate, or a word of STEPS with its arguments.
    """

    number: int
    title: str
    passes: str
    minutes: int
    steps: tuple[str, ...]
    usd: float = 0.0


_BOX, _FAR = "ssh box-1.HOME --", "ssh far-1.AWAY --"
_PING, _READ = f"{_BOX} ping -c 3 -M do -s 8472 far-1.AWAY", f"{_FAR} grep smoke /home/smoke"
_WRITE = f"{_BOX} echo smoke | sudo tee /home/smoke"
_UP, _DESTROY = "up --yes --end-machines", "destroy --yes --end-machines"
STAGES = (
    Stage(1, "documented policy", "no permission is denied to the end", 1, ("quotas",)),
    Stage(2, "facts of the account", "zones and images exist", 3, ("catalog refresh", "image record")),
    Stage(3, "first deployment", "no drift, no lost machine", 30, (_UP, "settled", "refresh --check")),
    Stage(4, "first boot", "host keys agree, shells open", 2, (f"{_BOX} true", f"{_FAR} true")),
    Stage(5, "names", "8 machines have 8 names, also later", 20, ("names",), usd=0.3),
    Stage(6, "network", "packets arrive, a new gateway serves", 20, (_PING, "vpn up", "gateway", "again vpn status")),
    Stage(7, "storage", "both regions read a file and an object", 15, (_WRITE, _READ, "copied")),
    Stage(8, "images", "both markets start them", 45, ("image bake", "promoted", _UP, "started work"), usd=1.0),
    Stage(9, "control plane", "a new member has its data", 20, ("member", "again kube status")),
    Stage(10, "GPUs", "gate and all-reduce pass", 30, ("started efa", "burned efa"), usd=5.0),
    Stage(11, "refused launches", "each text has its code", 20, ("node start climb 1", "texts")),
    Stage(12, "killed deployment", "only data is left", 30, ("killed", _DESTROY, "data")),
)
DEPLOYMENT = (2, 3)
"""The stages that make the fleet, which all later ones need."""
DEFAULT = tuple(stage.number for stage in STAGES if stage.number != 10)  # noqa: PLR2004  it needs a quota for GPUs


def run_command(words: Sequence[str], folder: Path, environment: Mapping[str, str], seconds: float | None) -> Answer:
    """Run a command of bedplate in a fleet folder, for these seconds at most.

    After them, or Ctrl-C, it finishes what it has begun in AWS, and this raises KeyboardInterrupt.
    """
    pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    command = (sys.executable, "-m", "bedplate", *words)
    with subprocess.Popen(  # noqa: S603  bedplate itself
        command, cwd=folder, env=environment, text=True, start_new_session=True, **pipes
    ) as process:
        try:
            output, errors = process.communicate(timeout=seconds)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            process.send_signal(signal.SIGINT)
            process.communicate()
            raise KeyboardInterrupt from None
    return process.returncode, output, errors


def kill_deployment(folder: Path, environment: Mapping[str, str]) -> None:
    """Start `bedplate up`, and kill it and Pulumi's engine once the engine has locked a stack in the folder's state."""
    command = (sys.executable, "-m", "bedplate", "up", "--yes", "--no-machines")
    locks = (folder / "state/.pulumi/locks").rglob
    with subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL) as process:  # noqa: S603
        try:
            late = PartialError("no stack was changed", fix="`bedplate up` shows why")
            wait(lambda: any(locks("*.json")), 600, 1.0, late)
            os.kill(int(json.loads(next(locks("*.json")).read_bytes())["pid"]), signal.SIGKILL)
        finally:
            process.kill()


@dataclass(slots=True)
class Run:
    """A run of the test on its fleet, and what the current stage has found. Its commands use the keys of a role."""

    operator: Operator
    client: AwsClient
    regions: tuple[str, ...]
    role: str | None = None
    end: float | None = None
    ended: str = ""
    """Why no other stage is run."""
    facts: dict[str, str] = field(default_factory=dict)
    errors: list[AwsError] = field(default_factory=list)

    @property
    def plan(self) -> FleetPlan:
        """The plan of the fleet file and its lock as they are now."""
        return plan_of(self.operator)

    def environment(self) -> Mapping[str, str]:
        """Return the environment of commands: the passphrase of the state, and the keys of the role."""
        own = {
            "PULUMI_CONFIG_PASSPHRASE_FILE": str(self.operator.fleet.with_name(PASSPHRASE)),
            "PULUMI_BACKEND_URL": "",
        }
        return {**os.environ, **own, **(role_keys(self.client, self.regions[0], self.role) if self.role else {})}

    def command(self, text: str) -> str:
        """Run a command and return its output. Raises ViolationError with its error and fix."""
        self.operator.notify([f"bedplate {text}"])
        folder, started = self.operator.fleet.parent, time.monotonic()
        seconds = None if self.end is None else max(0.0, self.end - started)
        status, output, errors = run_command(text.split(), folder, self.environment(), seconds)
        with (folder / LOG).open("a", encoding="utf-8") as log:
            log.write(f"$ bedplate {text}\n{output}{errors}")
        self.facts[text] = f"{time.monotonic() - started:.0f} s"
        self.errors += report.aws_errors(errors, f"bedplate {text}")
        what, fix = (re.findall(f"^{lead} +(.*)", errors, re.MULTILINE) for lead in ("error:", " +fix:?"))
        cause = (what or [f"exit status {status}"])[-1]
        require(not status, f"`bedplate {text}`: {cause}", (fix or [f"read {folder / LOG}"])[0])
        return output

    def machines(self, group: str) -> dict[str, str]:
        """Return the names of a group's machines in service, and their instances."""
        machines = json.loads(self.command("node list --live --json"))["machines"]
        found = (machine for machine in machines if (machine["group"], machine["state"]) == (group, "InService"))
        return {machine["name"] or machine["instance"]: machine["instance"] for machine in found}

    def launches(self, group: str = "") -> tuple[Activity, ...]:
        """Return the launches of a group, or of all."""
        pools = tuple(pool for pool in self.plan.pools if group in ("", pool.group))
        return ScalingGroups(self.client, self.plan.name, pools).observe(time.time()).activities


def require(is_met: object, what: str, fix: str = _REPORT_IT) -> None:
    """Raise ViolationError unless a condition is met."""
    if not is_met:
        raise ViolationError(what, fix=fix)


def until(is_done: Callable[[], object], what: str) -> None:
    """Ask until something is done, also if asking fails. Raises ViolationError after a quarter of an hour."""

    def ask() -> bool:
        with suppress(PartialError, ViolationError):
            return bool(is_done())
        return False

    wait(ask, _LONGEST, _PAUSE, ViolationError(f"not within 15 minutes: {what}", fix=_REPORT_IT))


def _repeat(run: Run, command: str) -> None:
    """Run a command until it succeeds."""
    until(lambda: run.command(command) is not None, f"`bedplate {command}` succeeds")


def _settle(run: Run, _: str) -> None:
    stacks = json.loads(run.command("preview --json"))["stacks"]
    require(not any(stacks.values()), "a second `up` would change something", "`bedplate preview` shows what")
    lost = [str(launch.machine) for launch in run.launches() if launch.code == NOT_READY]
    require(not lost, f"machines were abandoned at their first boot: {', '.join(lost)}", "read their console output")


def _keep_names(run: Run, _: str) -> None:
    run.command("node start box 8")
    before = sorted(run.machines("box"))
    for name in before[:2]:
        run.command(f"node stop {name} --yes")
    run.command("node start box 8")
    after = sorted(run.machines("box"))
    require(len(before) == 8 and before == after, f"8 names {before} became {after}")  # noqa: PLR2004


def _replace(run: Run, role: NodeRole) -> None:
    """Terminate the instance of a permanent machine, and wait for another one."""
    node = next(node for node in permanent_nodes(run.plan) if role in node.roles)
    old = find_instance(run.client, run.plan, node)
    terminate_machine(run.client, old.region, old.instance, replaced=True)
    until(lambda: find_instance(run.client, run.plan, node).instance != old.instance, f"another {node.name}")


def _copy(run: Run, _: str) -> None:
    names = {bucket.region: bucket.name for bucket in run.plan.buckets if bucket.store == "data"}
    home, away = run.regions
    run.client.call("s3", home, "put_object", Bucket=names[home], Key="smoke", Body=b"smoke")
    until(lambda: run.client.find("s3", away, "head_object", Bucket=names[away], Key="smoke"), f"a copy in {away}")


def _promote(run: Run, _: str) -> None:
    for image in json.loads(run.command("image list --json"))["images"]:
        run.command(f"image promote {image['name']}")


def _start(run: Run, group: str) -> None:
    """Start a machine in each pool of a group; one is in service once its gate has passed."""
    fleet, pools = run.plan.name, [pool for pool in run.plan.pools if pool.group == group]
    for pool in pools:
        size = {"AutoScalingGroupName": f"{fleet}-{pool.name}", "DesiredCapacity": 1}
        run.client.call("autoscaling", pool.region, "set_desired_capacity", **size)
    until(lambda: len(run.machines(group)) == len(pools), f"a machine in each pool of {group}")


def _burn_in(run: Run, group: str) -> None:
    for instance in run.machines(group).values():
        run.command(f"node burn-in {instance}")


def _know_texts(run: Run, _: str) -> None:
    failed = [launch for launch in run.launches("climb") if not launch.ok]
    run.errors += (AwsError(launch.code or "", launch.text, "a launch") for launch in failed)
    unknown = [launch.text for launch in failed if not launch.code]
    require(failed, "AWS refused no launch at 0.001 USD an hour")
    require(not unknown, f"the table of launch failures lacks {'; '.join(unknown)}")


def _kill(run: Run, _: str) -> None:
    fleet = run.operator.fleet
    hours = "  climb:\n    schedule: {start: '00:00', stop: '00:30'}"
    write_whole(fleet, fleet.read_text().replace("  climb:", hours).encode())
    kill_deployment(fleet.parent, run.environment())
    run.command("recover --yes")
    run.command(_UP)


def _leave_data(run: Run, _: str) -> None:
    arns = tagged(run.client, run.plan.name, run.regions)
    left = {kind_and_name(arn)[0] for arn in arns} - KEPT.keys()
    require(not left, f"`bedplate destroy` has left objects of the kinds {', '.join(sorted(left))}")


STEPS: Mapping[str, Callable[[Run, str], None]] = MappingProxyType(
    {
        "again": _repeat,
        "burned": _burn_in,
        "copied": _copy,
        "data": _leave_data,
        "gateway": lambda run, _: _replace(run, NodeRole.LAPTOPS),
        "killed": _kill,
        "member": lambda run, _: _replace(run, NodeRole.CONTROL),
        "names": _keep_names,
        "promoted": _promote,
        "settled": _settle,
        "started": _start,
        "texts": _know_texts,
    }
)


def show_plan(operator: Operator, minutes: int) -> Result:
    """Return the stages with their length, price and condition, the price of the fleet, and the limit of time."""
    plan = plan_of(replace(operator, fleet=EXAMPLES / "smoke.yaml"))
    hourly = bill(plan, plan.catalog).hourly.min
    rows = [(f"{s.number:>2}", s.title, f"{s.minutes} min", f"{s.usd:.2f} USD", s.passes) for s in STAGES]
    price = f"the fleet costs {hourly:.2f} USD an hour at its minimum; it is destroyed after {minutes} minutes at most"
    return Result((*aligned(rows, right=(2, 3)), price))


def smoke(operator: Operator, chosen: Collection[int], role: str | None, minutes: int, *, keep: bool) -> Result:
    """Make a fleet in the operator's new folder, run these stages with those that they need, and destroy the fleet."""
    wanted = {*chosen, *(number for number in DEPLOYMENT if number < max(chosen))}
    folder = operator.fleet.parent
    operator.show(show_plan(operator, minutes).lines)
    operator.confirm("make this fleet, and destroy it with all its data?")
    name = f"{_NAME}{secrets.token_hex(2)}"
    values = {**dict.fromkeys(new_folder.TEXTS), "name": name, "domain": f"{name}.internal"}
    operator.notify(new_folder.make_folder(operator, folder, "smoke", values).lines)
    write_whole(folder / PASSPHRASE, secrets.token_urlsafe(24).encode(), 0o600)
    run = _run_of(operator)
    run.command("backend init --file state")
    run.role, run.end = role, time.monotonic() + minutes * 60
    result = SmokeReport(name, run.regions, f"{datetime.now(UTC):%Y-%m-%dT%H:%MZ}")
    for stage in STAGES:
        result = replace(result, stages=(*result.stages, _run_stage(run, stage, wanted, result.stages)))
        write_whole(folder / REPORT, result.text.encode())
    left = () if keep else destroy(operator)
    result = replace(result, stages=tuple(_with_denials(result.stages)), left=left)
    write_whole(folder / REPORT, result.text.encode())
    notes = [f"{name} costs money until `bedplate smoke --destroy {folder}` has ended it"] if keep or left else ()
    return Result(report.result_lines(result), status=result.exit_status, notes=notes)


def _run_of(operator: Operator) -> Run:
    """Return a run on a fleet with the operator's own keys and without a limit of time."""
    plan = plan_of(operator)
    regions = sorted((region.name for region in plan.regions), key=lambda name: name != plan.home.name)
    return Run(operator, open_client(), tuple(regions))


def _run_stage(run: Run, stage: Stage, wanted: Collection[int], earlier: Sequence[StageResult]) -> StageResult:
    """Run the steps of a stage; return what they have found."""
    result = StageResult(stage.number, stage.title, "not chosen")
    if stage.number not in wanted:
        return result
    missing = [other for other in earlier if other.number in DEPLOYMENT and other.verdict != "passed"]
    if run.ended or missing or (stage.number == 1 and not run.role):
        reason = run.ended or (f"stage {missing[0].number} has not passed" if missing else "it needs --role ARN")
        return replace(result, verdict="not run", what=reason, fix="remove the cause, and run the test again")
    run.facts, run.errors, failures = {}, [], list[BedplateError]()
    try:
        run_round(lambda: _run_steps(run, stage.steps), failures.append)
    except KeyboardInterrupt:
        is_late = run.end is not None and time.monotonic() >= run.end
        run.ended = "the time limit is over" if is_late else "the test was interrupted"
        failures = [PartialError(run.ended, fix="allow more --minutes" if is_late else "run it again")]
    found = replace(result, verdict="passed", facts=run.facts, errors=tuple(run.errors))
    for failure in failures:
        return replace(found, verdict="failed", what=failure.what, fix=failure.fix or _REPORT_IT)
    return found


def _run_steps(run: Run, steps: Sequence[str]) -> None:
    for step in steps:
        word, _, argument = step.partition(" ")
        if word in STEPS:
            STEPS[word](run, argument)
        else:
            run.command(step.replace("HOME", run.regions[0]).replace("AWAY", run.regions[-1]))


def _with_denials(results: Sequence[StageResult]) -> Iterator[StageResult]:
    """Yield the results; the documented policy has failed if any stage was denied anything."""
    texts = [text for result in results for text in (result.what, *(f"{e.code} {e.text}" for e in result.errors))]
    denied = next((text for text in texts if report.DENIED.search(text)), "")
    for result in results:
        is_refuted = denied and result.number == 1 and result.verdict == "passed"
        yield replace(result, verdict="failed", what=denied, fix="add it to the policy") if is_refuted else result


def destroy(operator: Operator) -> tuple[str, ...]:
    """Delete all that the operator's fleet has, data too; return what is left, as far as AWS says."""
    folder = operator.fleet.parent
    if not (folder / PASSPHRASE).is_file() or not plan_of(operator).name.startswith(_NAME):
        fix = "name the folder that `bedplate smoke DIR` has made"
        raise InputError(f"{folder.name} has no fleet of the smoke test", fix=fix)
    run = _run_of(operator)

    def report_error(error: BedplateError) -> None:
        operator.notify(error_lines(error))

    try:
        for command in ("recover --yes", _DESTROY, "image sweep"):
            run_round(lambda: run.command(command), report_error)  # noqa: B023  called at once
        end = inf
        while left := tagged(run.client, run.plan.name, run.regions):
            if time.monotonic() > end:
                return tuple(left)
            end = min(end, time.monotonic() + _LONGEST)
            for arn, region in left.items():
                if kind_and_name(arn)[0] in KEPT:
                    run_round(lambda: remove(run.client, region, arn), report_error)  # noqa: B023
            time.sleep(_PAUSE)
    except BedplateError as error:
        return (f"unknown: {error.what}",)
    except KeyboardInterrupt:
        return ("unknown: interrupted",)
    return ()
