"""Joining and leaving without a cluster: the approver's decisions, AWS's side of it, and the worker agent."""

import json
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import pytest

from bedplate.errors import PartialError
from bedplate.kubernetes.approval import (
    ABSENCE,
    CLIENT,
    PATIENCE,
    SERVING,
    Answer,
    CertificateRequest,
    Inventory,
    KnownMachine,
    decide,
    difference,
    ended_nodes,
    gate_taint,
    requested_name,
    track_absences,
)
from bedplate.machine.approver import Rounds
from bedplate.plan.cluster import BOOTSTRAPPERS, WORKERS, joining_plan, machine_group
from bedplate.programs.program import ProgramError
from bedplate.programs.worker.__main__ import Agent
from bedplate.programs.worker.leaving import LEAVING, AwsNotices, Shutdown, drain
from bedplate.programs.worker.leaving import decide as decide_shutdown
from bedplate.programs.worker.machine import Settings
from bedplate.rounds import Reports
from tests.testlab.fleets.variants import lab_plan
from tests.testlab.kubernetes.requests import NodeKey, Texts, certificate

TRAIN, OTHER, TITAN = "train-9f3c21aa.us-west-2", "train-0000ffff.us-west-2", "titan-01.cellar"
KEY, STRANGER = NodeKey(), NodeKey()
INVENTORY = Inventory(
    {
        TRAIN: KnownMachine(frozenset({"10.64.1.5"}), "i-01234569f3c21aa", KEY.hash),
        OTHER: KnownMachine(frozenset({"10.64.1.6"}), "i-01234560000ffff"),
        TITAN: KnownMachine(frozenset({"192.168.40.21"})),
    },
    frozenset({"us-west-2"}),
    frozenset({"us-east-1"}),
)
WITH_TOKEN = frozenset({"system:bootstrappers", BOOTSTRAPPERS, WORKERS, "system:authenticated"})
FOR_TITAN = frozenset({"system:bootstrappers", BOOTSTRAPPERS, machine_group(TITAN), "system:authenticated"})
NODES = frozenset({"system:nodes", "system:authenticated"})


def bootstrap(name: str, key: NodeKey = KEY, groups: frozenset[str] = WITH_TOKEN) -> CertificateRequest:
    """Return a first request with a token."""
    usages = frozenset({"digital signature", "client auth"})
    return CertificateRequest(CLIENT, "system:bootstrap:abcdef", groups, usages, key.request(name), 0.0)


def renewal(name: str, user: str) -> CertificateRequest:
    """Return a request that a node makes with its certificate."""
    return replace(bootstrap(name, STRANGER), user=f"system:node:{user}", groups=NODES)


def serving(name: str, *names: str, user: str = "") -> CertificateRequest:
    """Return a request for a serving certificate."""
    usages = frozenset({"digital signature", "server auth"})
    pem = STRANGER.request(name, names=names)
    return CertificateRequest(SERVING, f"system:node:{user or name}", NODES, usages, pem, 0.0)


@pytest.mark.parametrize(
    "request_",
    [
        bootstrap(TRAIN),
        bootstrap(TITAN, STRANGER, FOR_TITAN),
        renewal(TRAIN, TRAIN),
        serving(TRAIN, "10.64.1.5", TRAIN),
        serving(TITAN, "192.168.40.21"),
    ],
    ids=["instance", "site", "renewal", "serving", "serving at a site"],
)
def test_a_machine_gets_a_certificate_of_its_own_name(request_: CertificateRequest) -> None:
    """Its key, its token or its certificate shows which machine it is."""
    assert decide(request_, INVENTORY).answer is Answer.APPROVE


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (bootstrap(TRAIN, STRANGER), "not the key that i-01234569f3c21aa has published"),
        (bootstrap(TITAN), f"the token is not for {TITAN}"),
        (bootstrap(TRAIN, groups=FOR_TITAN), f"the token is not for {TRAIN}"),
        (bootstrap(TRAIN, groups=NODES), "cannot request"),
        (renewal(TRAIN, OTHER), f"system:node:{OTHER} cannot request"),
        (replace(renewal(TRAIN, TRAIN), groups=frozenset()), "cannot request"),
        (serving(TRAIN, "10.64.1.5", "10.64.1.6"), f"10.64.1.6: not of {TRAIN}"),
        (serving(TRAIN, "10.64.1.5", "kubernetes.lab.internal"), "kubernetes.lab.internal: not of"),
        (serving(TRAIN), f"no address: not of {TRAIN}"),
        (serving(TRAIN, "10.64.1.5", user=OTHER), f"system:node:{OTHER} cannot request"),
        (replace(bootstrap(TRAIN), pem=KEY.request(TRAIN, names=["10.64.1.5"])), "no other names"),
        (replace(bootstrap(TRAIN), pem=KEY.request(TRAIN, group="system:masters")), "the subject must be"),
        (replace(bootstrap(TRAIN), pem=KEY.request("admin", user="")), "the subject must be"),
        (replace(bootstrap(TRAIN), pem=b"no request"), "not a signing request"),
        (replace(bootstrap(TRAIN), usages=frozenset({"client auth", "server auth"})), "the usages must be"),
        (replace(bootstrap(OTHER), age=PATIENCE + 1), "has not published a key"),
        (replace(bootstrap("train-12345678.us-west-2"), age=PATIENCE + 1), "no machine of the fleet has the name"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_no_machine_gets_a_certificate_of_another_name(request_: CertificateRequest, reason: str) -> None:
    """A stolen token, another node's name or address, and another group are refused with a reason."""
    decision = decide(request_, INVENTORY)

    assert (decision.answer, reason in decision.reason) == (Answer.DENY, True), decision


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (bootstrap(OTHER), "has not published a key"),
        (bootstrap("train-12345678.us-west-2"), "no machine of the fleet has the name"),
        (replace(bootstrap("train-12345678.us-east-1"), age=PATIENCE * 10), "EC2 has not answered for us-east-1"),
    ],
)
def test_a_new_machine_waits_until_aws_knows_it(request_: CertificateRequest, reason: str) -> None:
    """EC2 lists an instance some seconds late; without an answer of a region nothing is refused."""
    decision = decide(request_, INVENTORY)

    assert (decision.answer, reason in decision.reason) == (Answer.WAIT, True)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("signer", [CLIENT, SERVING])
def test_only_the_canonical_text_of_a_request_is_approved(signer: str, seed: int) -> None:
    """Of generated texts with changed PEM or DER none ends the approver, and none but the plain one is approved."""
    addresses = ("10.64.1.5",) if signer == SERVING else ()
    texts = Texts(KEY, TRAIN, addresses, ("control-1.us-west-2", ("api.lab.internal",)), seed)
    good = bootstrap(TRAIN) if signer == CLIENT else serving(TRAIN, "10.64.1.5")

    for text, is_plain in [*texts.generate(150), *((text, False) for text in texts.odd())]:
        decision = decide(replace(good, pem=text), INVENTORY)
        assert (decision.answer is Answer.APPROVE) == is_plain, (decision, text.decode(errors="replace"))
        assert requested_name(text).isascii()


@pytest.mark.parametrize(
    ("pem", "reason"),
    [
        (KEY.request(TRAIN, names=[f"10.64.{number}.1" for number in range(20)]), "20 names, at most 16"),
        (KEY.request(TRAIN, names=["x" * 60 + ".lab"] * 150), "larger than 8192 bytes"),
        (KEY.request(TRAIN, names=["a\x1b[2J\nb"]), r"a\x1b[2J\nb: not of"),
        (KEY.request("train\n-1.us-west-2", names=["10.64.1.5"]), "the subject must be"),
    ],
    ids=["names", "size", "control characters", "line break in the name"],
)
def test_what_a_request_makes_the_approver_read_or_write_is_limited(pem: bytes, reason: str) -> None:
    """Size and number of names have limits; no control character of a request reaches the journal."""
    decision = decide(replace(serving(TRAIN, "10.64.1.5"), pem=pem), INVENTORY)

    assert (decision.answer, reason in decision.reason) == (Answer.DENY, True), decision
    assert decision.reason.isprintable()
    assert len(decision.reason) < 400


@pytest.mark.parametrize(
    ("request_", "launched", "answer"),
    [
        (bootstrap(TRAIN), 900.0, Answer.DENY),
        (bootstrap(TRAIN), 1100.0, Answer.APPROVE),
        (bootstrap(TITAN, STRANGER, FOR_TITAN), None, Answer.DENY),
        (renewal(TRAIN, TRAIN), 900.0, Answer.APPROVE),
        (serving(TRAIN, "10.64.1.5"), 900.0, Answer.APPROVE),
    ],
    ids=["second key", "launched later", "site", "renewal", "serving"],
)
def test_a_token_gets_no_certificate_of_a_node_that_is_ready(
    request_: CertificateRequest, launched: float | None, answer: Answer
) -> None:
    """A machine in the cluster has a certificate; only an instance that was launched later needs another one."""
    machine = replace(INVENTORY.machines[TRAIN], launched=launched)
    inventory = replace(INVENTORY, machines={**INVENTORY.machines, TRAIN: machine})

    decision = decide(request_, inventory, {TRAIN: 1000.0, TITAN: 1000.0})

    assert decision.answer is answer, decision
    assert decide(request_, inventory).answer is Answer.APPROVE


def test_a_certificate_for_something_else_than_the_request_is_found() -> None:
    """Names, key, organization and purpose of what was issued are those of what was approved."""
    approved = KEY.request(TRAIN, names=["10.64.1.5"])

    def differs(
        key: NodeKey = KEY,
        name: str = TRAIN,
        names: Sequence[str] = ("10.64.1.5",),
        group: str = "system:nodes",
        purpose: str = "server auth",
    ) -> str:
        return difference(approved, SERVING, certificate(key, name, names, group, purpose))

    assert differs() == ""
    assert "another subject" in differs(name=OTHER)
    assert "another subject" in differs(group="system:masters")
    assert "another key" in differs(key=STRANGER)
    assert "api.lab.internal" in differs(names=["10.64.1.5", "api.lab.internal"])
    assert "another purpose" in differs(purpose="client auth")
    assert "cannot be read" in difference(approved, SERVING, b"no certificate")
    assert "cannot be read" in difference(b"no request", SERVING, certificate(KEY, TRAIN))


@pytest.mark.parametrize(
    ("report", "before", "after"),
    [
        ("passed", "pending", ""),
        ("passed", "hardware", ""),
        ("passed", None, None),
        (None, "pending", None),
        (None, None, None),
        ("pending", "pending", None),
        ("pending", None, "pending"),
        ("hardware", None, "hardware"),
        ("software", "pending", "software"),
        ("software", "software", None),
        ("unknown", "hardware", "unknown"),
        ("PASSED", None, "unknown"),
        ("replace", "pending", "unknown"),
    ],
)
def test_the_taint_of_the_gate_follows_the_report(report: str | None, before: str | None, after: str | None) -> None:
    """Only a passed gate removes the taint; every other one sets it, also later; another word is unknown."""
    annotations = {"other": "passed"} | ({"bedplate/gate": report} if report else {})

    assert gate_taint(annotations, before) == after


class _Broken:
    """The cluster and AWS, of which some parts fail in any way."""

    def __init__(self, **errors: Exception) -> None:
        self.errors, self.done, self.log = errors, list[str](), list[str]()
        self.reports = Reports(self.log.append)
        self.requested = frozenset

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def act(*_: object) -> bool:
            if name in self.errors:
                raise self.errors[name]
            self.done.append(name)
            return True

        return act


def test_an_error_of_one_step_stops_no_other_step_and_no_round() -> None:
    """Whatever a step raises is a line of the journal once, until a round without it."""
    broken: Any = _Broken(inventory=RecursionError("too deep"), verify=PartialError("no answer"))
    rounds = Rounds(broken, broken, broken, _token_due=inf)

    for _ in range(3):
        rounds.run(1.0)

    assert broken.done.count("follow_gates") == 3
    assert broken.log[0] == "no answer"
    assert re.fullmatch(r"RecursionError in test_joining\.py:\d+: too deep; report the defect", broken.log[1])
    assert len(broken.log) == 2
    broken.errors = {"hold": ValueError("\n")}
    rounds.run(1.0)
    broken.errors = {"verify": PartialError("no answer")}
    rounds.run(1.0)
    assert [line.partition(" ")[0] for line in broken.log[2:]] == ["ValueError", "no"]
    assert broken.done.count("answer") == broken.done.count("delete_ended") == 1


def test_nodes_of_ended_instances_are_deleted_after_two_answers() -> None:
    """Nodes of sites, of silent regions and of foreign names stay; a late instance of EC2's list comes back in time."""
    gone = "train-12345678.us-west-2"
    names = [TRAIN, TITAN, gone, "train-12345678.us-east-1", "kwok-node-1", "control-1.us-west-2"]

    first = track_absences(names, INVENTORY, {}, 10.0)
    second = track_absences(names, INVENTORY, first, 10.0 + ABSENCE)

    assert dict(first) == {gone: 10.0}
    assert ended_nodes(first, 10.0) == ()
    assert ended_nodes(second, 10.0 + ABSENCE) == (gone,)


def test_members_know_all_permanent_nodes() -> None:
    """The approver reads names and addresses of members and site workers from the node document of its member."""
    plan = lab_plan()

    joining = joining_plan(plan)

    assert joining.parameter == "/lab.workers/join"
    assert str(joining.fixed[TITAN]) == "192.168.40.21"
    assert {name for name in joining.fixed if name.startswith("control-")} == {
        member.name for member in (plan.control_plane.members if plan.control_plane else ())
    }
    assert "titan-03.cellar" not in joining.fixed


NOW = 1_000_000.0


@pytest.mark.parametrize(
    ("notices", "shutdown"),
    [
        (AwsNotices(), None),
        (AwsNotices(stop=NOW + 120), Shutdown("AWS stops this spot instance", 60)),
        (AwsNotices(stop=NOW + 40, terminating=True), Shutdown("AWS stops this spot instance", 25)),
        (AwsNotices(stop=NOW - 5), Shutdown("AWS stops this spot instance", 1)),
        (AwsNotices(terminating=True, rebalance=True), Shutdown("Auto Scaling ends this machine", 60)),
        (AwsNotices(rebalance=True), Shutdown("AWS may stop this spot instance soon")),
    ],
)
def test_a_notice_decides_how_a_worker_leaves(notices: AwsNotices, shutdown: Shutdown | None) -> None:
    """The stop of a spot instance limits the time; a recommendation to rebalance only cordons."""
    assert decide_shutdown(notices, 60, NOW) == shutdown


def test_a_drain_ends_in_time_when_the_api_does_not_answer() -> None:
    """Kubectl is asked again until the time is over."""
    calls: list[str] = []

    def fail(*arguments: str, seconds: float = 0.0) -> str:
        calls.append(arguments[0])
        raise ProgramError("connection refused")

    started = time.monotonic()

    assert not drain(TRAIN, Shutdown("test", 2.5), calls.append, fail)
    assert 2.0 < time.monotonic() - started < 4.0
    assert calls.count("annotate") >= 2


BOOT = '"boot": "boot-1"'
BAD_GPU = f"""{{"ok": false, {BOOT}, "verdict": "hardware", "action": "reboot", "findings": [
    {{"check": "gpu-errors", "ok": false, "text": "Xid 79 on GPU 18", "action": "reboot", "cause": "hardware"}},
    {{"check": "clock", "ok": true, "text": "synchronised", "action": "none", "cause": null}}]}}"""
NOTICE = f"""{{"ok": true, {BOOT}, "verdict": "passed", "findings": [
    {{"check": "gpu-errors", "ok": true, "text": "Xid 999", "action": "monitor", "cause": "unknown"}},
    {{"check": "gpu-errors", "ok": true, "text": "Xid 31", "action": "monitor", "cause": null}}]}}"""


class _Node:
    """A Node behind the agent's kubectl, with kubelet behind systemctl; `object` is None once it was deleted."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.object: dict[str, str] | None = {}
        self.conditions: list[dict[str, str]] = []
        self.calls: list[str] = []
        self.verdict = root / "var/lib/bedplate/gate.json"
        self.boot = root / "proc/sys/kernel/random/boot_id"
        for file in (self.verdict, self.boot):
            file.parent.mkdir(parents=True)
        self.boot.write_text("boot-1\n")
        self.agent = Agent(Settings("", cloud=False, drain=1, bootstrap=""), TITAN, root, period=0.0)
        self.agent.kubectl = self.kubectl  # type: ignore[assignment]  # a function in place of a partial one
        monkeypatch.setattr("bedplate.programs.worker.__main__.output", self.systemctl)

    def kubectl(self, *words: str, text: str = "") -> str:
        if self.object is None:
            return ""
        if words[0] == "get":
            return json.dumps({"metadata": {"annotations": self.object}})
        self.calls.append(" ".join(words[:1]))
        for key, _, value in (word.partition("=") for word in words[3:] if words[0] == "annotate"):
            self.object |= {key: value} if value else {}
        if text:
            self.conditions = json.loads(text)["status"]["conditions"]
        return ""

    def delete(self) -> None:
        self.object = None

    def systemctl(self, *words: str) -> str:
        self.calls.append(" ".join(words))
        self.object = {}
        return ""


@pytest.mark.parametrize(
    ("verdict", "report", "condition"),
    [
        (f'{{"ok": true, {BOOT}}}', "passed", ("False", "Passed", "")),
        ("", "pending", ("Unknown", "Pending", "")),
        ('{"ok": true, "boot": "boot-0"}', "pending", ("Unknown", "Pending", "")),
        ('{"ok": true, "boot": ""}', "pending", ("Unknown", "Pending", "")),
        (NOTICE, "passed", ("False", "Passed", "gpu-errors: Xid 999 (monitor)")),
        (BAD_GPU, "hardware", ("True", "Hardware", "gpu-errors: Xid 79 on GPU 18 (reboot)")),
        ('{"ok": false, "boot": "", "verdict": "software"}', "software", ("True", "Software", "")),
        (f'{{"ok": false, {BOOT}, "verdict": "unknown"}}', "unknown", ("True", "Unknown", "")),
        (f'{{"ok": false, {BOOT}, "verdict": "melted"}}', "unknown", ("True", "Unknown", "")),
        (f'{{"ok": false, {BOOT}, "action": "replace"}}', "unknown", ("True", "Unknown", "the verdict cannot be read")),
        ("[" * 100, "unknown", ("True", "Unknown", "the verdict cannot be read")),
    ],
    ids=[
        *("passed", "none", "of another boot", "of no boot", "notice", "hardware", "no plan", "unknown", "other word"),
        *("of an older gate", "no JSON"),
    ],
)
def test_the_node_reports_the_gate_of_this_boot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verdict: str, report: str, condition: tuple[str, str, str]
) -> None:
    """An annotation says what is broken, a condition the failed checks; without a gate since boot it waits."""
    node = _Node(tmp_path, monkeypatch)
    if verdict:
        node.verdict.write_text(verdict)

    for _ in range(3):
        node.agent.step()

    (entry,) = node.conditions
    assert node.object == {"bedplate/gate": report}
    assert (entry["type"], entry["status"], entry["reason"], entry["message"]) == ("GateFailed", *condition)
    assert node.calls == ["apply", "annotate"]


def test_a_deleted_node_comes_back_with_its_gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Missing at two looks, kubelet restarts and registers it; the gate is reported again, also to an older Node."""
    node = _Node(tmp_path, monkeypatch)
    node.verdict.write_text(f'{{"ok": true, {BOOT}}}')
    node.agent.step()
    node.delete()
    node.agent.step()
    assert node.calls == ["apply", "annotate"]

    node.agent.step()
    assert node.calls[2:] == ["systemctl restart kubelet.service"]
    node.agent.step()
    assert node.object == {"bedplate/gate": "passed"}
    # As after a restore of an older snapshot.
    node.object = {}
    node.agent.step()
    assert node.object == {"bedplate/gate": "passed"}
    node.delete()
    node.agent.has_answered = True
    for _ in range(4):
        node.agent.step()
    assert node.object is None


def test_a_node_takes_pods_after_the_gate_of_this_boot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent removes its own cordon when the gate has ended; a failed one has its taint then."""
    node = _Node(tmp_path, monkeypatch)
    node.object = {LEAVING: "this machine shuts down"}
    node.agent.step()
    assert "uncordon" not in node.calls

    node.verdict.write_text(f'{{"ok": false, {BOOT}, "verdict": "software"}}')
    node.agent.step()

    assert node.calls.index("uncordon") > node.calls.index("annotate")
    assert node.object["bedplate/gate"] == "software"


def test_the_condition_follows_the_checks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another check may fail with the same verdict: the Node shows the present one."""
    node = _Node(tmp_path, monkeypatch)
    for text in ("Xid 79 on GPU 18", "Xid 95 on GPU 18"):
        node.verdict.write_text(BAD_GPU.replace("Xid 79 on GPU 18", text))
        node.agent.step()

    assert node.conditions[0]["message"] == "gpu-errors: Xid 95 on GPU 18 (reboot)"
