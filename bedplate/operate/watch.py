"""Figures and alerts of the hub, over SSH: the fleet now, reports of use and cost, silences, and test alerts."""

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from time import monotonic, sleep
from typing import Any

from bedplate.errors import InputError, PartialError, nearest_fix
from bedplate.files import login_name
from bedplate.foreign import LARGE, parse_json
from bedplate.kubernetes.members import Connection
from bedplate.monitoring.alerts import ALERTS, Alert, Severity
from bedplate.operate import Operator, Result, plan_of
from bedplate.operate.hub import connected_hub
from bedplate.plan.hub import ALERTMANAGER_PORT, PROMETHEUS_PORT
from bedplate.report.usage import cost_lines, fleet_lines, idle_lines, uses_of
from bedplate.spec.text import seconds_of

_PROMETHEUS = f"http://127.0.0.1:{PROMETHEUS_PORT}/api/v1/query"
_ALERTMANAGER = f"http://127.0.0.1:{ALERTMANAGER_PORT}/api/v2"
_METRICS = f"http://127.0.0.1:{ALERTMANAGER_PORT}/metrics"
# Seconds for an answer; for a test alert, which waits for others of its group; and between two looks.
_SECONDS, _TEST, _PAUSE = 120, 90, 3.0
_WEBHOOK = re.compile(r'alertmanager_notification_requests_(failed_)?total\{[^}]*integration="webhook"[^}]*\} (\S+)')
LABELS = {"person": "person", "run": "person, run", "group": "place, group"}
"""By what a report adds up, and the labels of that."""
FLEET = {
    "machines": "count by (place, group) (bedplate:node_up or on (instance) bedplate:node_expected)",
    "up": "sum by (place, group) (bedplate:node_up)",
    "gpus": "sum by (place, group, state) (bedplate:used_gpus)",
    "usd": "sum by (place, group) (bedplate:group_usd_per_hour)",
    "alerts": 'count by (alertname, severity, place) (ALERTS{alertstate="firing"})',
    "idle_usd": 'sum by (person, run, state) (bedplate:used_usd_per_hour{state=~"held|stuck"})',
    "idle_gpus": 'sum by (person, run, state) (bedplate:used_gpus{state=~"held|stuck"})',
}
"""What `bedplate top` asks for."""
Figures = Mapping[str, Sequence[tuple[Mapping[str, str], float]]]


def top(operator: Operator) -> Result:
    """Return what the machines and GPUs of the fleet do, firing alerts, and who has idle GPUs."""
    with connected_hub(operator, plan_of(operator)) as hub:
        figures = _figures(hub, FLEET)
    document = {name: [{**labels, "value": value} for labels, value in rows] for name, rows in figures.items()}
    return Result(fleet_lines(figures), document)


def report(operator: Operator, by: str, days: int, *, shows_cost: bool) -> Result:
    """Return the GPU hours of each person, run or group by what the GPUs did, and the cost."""
    if by not in LABELS:
        raise InputError(f"cannot add up by {by}", fix=nearest_fix(by, LABELS))
    with connected_hub(operator, plan_of(operator)) as hub:
        figures = _figures(hub, report_parts(by, days))
    uses = uses_of(figures["gpu_hours"], figures["usd"], LABELS[by].split(", "))
    bill, known = (sum(value for _, value in figures[name]) for name in ("bill", "known"))
    other = max(bill - sum(sum(use.usd.values()) for use in uses), 0.0)
    document = {
        "days": days,
        "known": known,
        "by": by,
        "uses": [{**use.labels, "gpu_hours": use.hours, "usd": use.usd} for use in uses],
        "other_usd": other,
        "bill_usd": bill,
    }
    lines = cost_lines(uses, other, bill) if shows_cost else idle_lines(uses)
    part = f"the hub has figures of {known:.1%} of the last {days * 24} hours"
    return Result(lines, document, notes=[part] if known < 0.99 else [])  # noqa: PLR2004  a restart is no gap


def report_parts(by: str, days: int) -> Mapping[str, str]:
    """Return what a report asks for, by steps of a minute; `known` is the part of the time that has figures."""
    used = f"sum by ({LABELS[by]}, state) (sum_over_time(bedplate:{{}}[{days}d:1m])) / 60"
    return {
        "gpu_hours": used.format("used_gpus"),
        "usd": used.format("used_usd_per_hour"),
        "bill": f"sum(sum_over_time(bedplate:group_usd_per_hour[{days}d:1m])) / 60",
        "known": f"count_over_time(count(bedplate:used_gpus)[{days}d:1m]) / {days * 1440}",
    }


def query_of(parts: Mapping[str, str]) -> str:
    """Return one query for several expressions; the label `what` has the name of each."""
    return " or ".join(f'label_replace({text}, "what", "{name}", "", "")' for name, text in parts.items())


def _figures(hub: Connection, parts: Mapping[str, str]) -> Figures:
    """Return the labels and values of each expression, by one request. Raises PartialError."""
    answer = _ask(hub, f"--data-urlencode query@- {_PROMETHEUS}", query_of(parts))
    figures: dict[str, list[tuple[Mapping[str, str], float]]] = {name: [] for name in parts}
    try:
        for item in answer["data"]["result"]:
            labels = {str(name): str(value) for name, value in item["metric"].items()}
            figures[labels.pop("what")].append((labels, float(item["value"][1])))
    except (LookupError, TypeError, ValueError, AttributeError):
        raise _no_answer(hub, str(answer)) from None
    return figures


def _ask(hub: Connection, words: str, text: str = "") -> Any:  # noqa: ANN401  JSON
    """Return the answer of a program of the hub to a request of curl, which gets a text. Raises PartialError."""
    answer = hub.shell(f"curl --silent --show-error --max-time {_SECONDS} {words}", _SECONDS + 10, text.encode())
    try:
        return parse_json(answer, LARGE) if answer else None
    except ValueError:
        raise _no_answer(hub, answer) from None


def _no_answer(hub: Connection, answer: str) -> PartialError:
    fix = "`bedplate hub status` shows what runs, `bedplate hub logs prometheus` why"
    return PartialError(f"{hub.name}: the answer of the hub's monitoring is no figure: {answer[:200]}", fix=fix)


def silences(operator: Operator) -> Result:
    """Return the silences that hold."""
    with connected_hub(operator, plan_of(operator)) as hub:
        found = _silences(hub)
    lines = (f"{_words(item)} until {item['endsAt'][:16]}, by {item['createdBy']}: {item['comment']}" for item in found)
    return Result([*lines] or ["no alert is silenced"], found)


def _silences(hub: Connection) -> list[Mapping[str, Any]]:
    return [item for item in _ask(hub, f"{_ALERTMANAGER}/silences") if item["status"]["state"] != "expired"]


def _words(item: Mapping[str, Any]) -> str:
    return " ".join(str(matcher["value"]) for matcher in item["matchers"])


def silence(operator: Operator, alert: str, labels: Mapping[str, str | None], time: str, why: str | None) -> Result:
    """Keep an alert back for some time, if it has these labels. Raises InputError."""
    _alert(alert)
    if not re.fullmatch("[1-9][0-9]{0,3}[mhd]", time):
        raise InputError(f"no time: {time}", fix="write a number and m, h or d, such as 4h")
    if not (why or "").strip():
        raise InputError("no reason for the silence", fix="add --why TEXT: others will read it")
    now = datetime.now(UTC)
    end = now + timedelta(seconds=seconds_of(time))
    wanted = {"alertname": alert, **{name: value for name, value in labels.items() if value}}
    matchers = [{"name": name, "value": value, "isRegex": False} for name, value in wanted.items()]
    times = {"startsAt": now.isoformat(), "endsAt": end.isoformat()}
    with connected_hub(operator, plan_of(operator)) as hub:
        _send(hub, "silences", {"matchers": matchers, **times, "createdBy": login_name(), "comment": why})
    document = {"labels": wanted, "until": times["endsAt"]}
    return Result([f"{' '.join(wanted.values())} is silent until {end:%Y-%m-%d %H:%M} UTC"], document)


def end_silences(operator: Operator, alert: str) -> Result:
    """End the silences of an alert. Raises InputError if there is none."""
    _alert(alert)
    with connected_hub(operator, plan_of(operator)) as hub:
        found = [item for item in _silences(hub) if alert in _words(item).split()]
        if not found:
            raise InputError(f"{alert} is not silent", fix="`bedplate watch silence` lists what is")
        for item in found:
            _ask(hub, f"--request DELETE {_ALERTMANAGER}/silence/{shlex.quote(str(item['id']))}")
    return Result([f"{_words(item)} is no longer silent" for item in found], found)


def send_test(operator: Operator, alert: str, person: str | None) -> Result:
    """Send an alert without its fault, and wait until the hub has taken its message. Raises PartialError if not."""
    severity, plan, now = _alert(alert).severity, plan_of(operator), datetime.now(UTC)
    if (severity is Severity.PERSON) is not bool(person):
        fix = "add --person NAME" if severity is Severity.PERSON else "leave --person out"
        raise InputError(f"{alert} goes to {'a person' if severity is Severity.PERSON else 'the operators'}", fix=fix)
    if person and person not in plan.accounts.uids:
        raise InputError(f"no person named {person} in the fleet file", fix=nearest_fix(person, plan.accounts.uids))
    labels = {"alertname": alert, "severity": severity.value, "place": "test", **({"person": person} if person else {})}
    text = {"summary": f"a test of {alert} by {login_name()}: nothing is wrong"}
    times = {"startsAt": now.isoformat(), "endsAt": (now + timedelta(seconds=_TEST)).isoformat()}
    with connected_hub(operator, plan) as hub:
        former = _delivered(hub)
        _send(hub, "alerts", [{"labels": labels, "annotations": text, **times}])
        end = monotonic() + _TEST
        while _delivered(hub) <= former:
            if monotonic() > end:
                fix = "`bedplate watch silence` lists what is silent, `bedplate hub logs` says what fails"
                raise PartialError(f"{hub.name}: no message about {alert} within {_TEST} s", fix=fix)
            sleep(_PAUSE)
    return Result([f"the hub has taken the message: {person or 'the people of `monitoring.notify`'} will get it"])


def _alert(name: str) -> Alert:
    """Return an alert by its name. Raises InputError for none."""
    alerts = {alert.name: alert for alert in ALERTS}
    if name not in alerts:
        raise InputError(f"no alert is named {name}", fix=nearest_fix(name, alerts))
    return alerts[name]


def _send(hub: Connection, path: str, document: object) -> None:
    words = "--fail-with-body --header 'Content-Type: application/json' --data-binary @-"
    _ask(hub, f"{words} {_ALERTMANAGER}/{path}", json.dumps(document))


def _delivered(hub: Connection) -> float:
    """Return how many messages Alertmanager has delivered since its start."""
    text = hub.shell(f"curl --silent --show-error {_METRICS}", _SECONDS)
    return sum(float(count) * (-1 if failed else 1) for failed, count in _WEBHOOK.findall(text))
