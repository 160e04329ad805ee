"""People hear what became of their runs, and of alerts, by chat or e-mail. Colleagues can write every text of a run."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from datetime import timedelta
from email.utils import formatdate
from pathlib import Path
from typing import Any

from .records import Lines, replace_text
from .sweep import Record

SETTINGS = Path("/etc/bedplate/hub-messages")
# Seconds since a run was sent, from which its start and its end are worth a message.
_WAITED, _LONG = 120, 300
# Seconds for which a message is tried, and between two to a person.
_TRIED, _PAUSE = 3_600, 60
# Seconds until an alert that goes on is sent again, and until one that has ended is forgotten.
_AGAIN, _FORGOTTEN = 11 * 3_600, 3 * 86_400
# Runs in a message, characters of each (Discord takes 2,000), and seconds of a run.
_MOST, _LONGEST, _LONGEST_TIME = 8, 240, 10**9
# Options come from stdin, which no list of processes shows. A redirect is an error, and so is a connection without TLS.
_CURL = (
    *("curl", "--disable", "--silent", "--globoff", "--proto", "=https,smtp", "--ssl-reqd", "--max-time", "10"),
    *("--fail", "--location", "--max-redirs", "0", "--max-filesize", "65536"),
    *("--output", "/dev/null", "--write-out", "%{http_code}", "--config", "-"),
)
_SUBMISSION = 587  # RFC 6409
_ENDS = {"FINISHED": "ended", "FAILED": "failed", "KILLED": "was stopped"}
# What is left is no markup and no mention in any chat, and without `//` no link.
_UNSAFE = re.compile(r"[^A-Za-z0-9 .,:;()=+%/'_-]|(?<=/)/")
Facts = Mapping[str, Any]


def state_of(run: Facts) -> str:
    """Return what people hear of: `running`, or one of the ends; else nothing."""
    return _ENDS.get(str(run["status"]), "" if run.get("state") in {None, "sent", "queued"} else "running")


def news_of(run: Facts, now: float) -> Facts:
    """Return what to tell about a run whose state has changed; nothing if it is of no interest."""
    state, age, place = state_of(run), now - run["start"], run.get("machine") or run.get("group") or "unknown"
    # The run that drives a search stands for its trials.
    if not state or "study" in run or age < (_WAITED if state == "running" else 0 if "notify" in run else _LONG):
        return {}
    words = {"run": run["run"], "name": run.get("id", run["name"]), "machine": place, "cause": run.get("cause", "")}
    facts = {key: _UNSAFE.sub("?", str(text))[:_LONGEST] for key, text in words.items()}
    took = timedelta(seconds=min(max(int((run["end"] or now) - run["start"]), 0), _LONGEST_TIME))
    end = f"after {took}: {facts['cause'] or 'the cause is unknown'}"
    text = f"{facts['name']} {state} on {facts['machine']} {f'{took} after it was sent' if state == 'running' else end}"
    return {**facts, "state": state, "time": int(now), "text": text[:_LONGEST]}


class Outbox:
    """The known states of runs; when each person got a message, and what waits for them. Methods raise OSError."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._runs, self._sent, self._news = json.loads(file.read_text()) if file.exists() else ({}, {}, {})

    def _save(self) -> None:
        replace_text(self._file, json.dumps((self._runs, self._sent, self._news)))

    def add(self, news: Iterable[tuple[str, Facts]]) -> None:
        """Add news for people."""
        for person, one in news:
            text = _UNSAFE.sub("?", one["text"])[:_LONGEST]
            self._news.setdefault(person, []).append({**one, "text": text})
        self._save()

    def add_changed(self, alerts: Mapping[str, str], now: float) -> frozenset[str]:
        """Note the states of alerts; return new ones, and those last sent half a day ago.

        Alertmanager names all alerts of a group each time.
        """
        known = {ident: (state, sent) for ident, (state, sent) in self._runs.items() if sent > now - _FORGOTTEN}
        old = {ident for ident, (state, sent) in known.items() if state == alerts.get(ident) and sent > now - _AGAIN}
        changed = frozenset(alerts.keys() - old)
        self._runs = known | {ident: (alerts[ident], now) for ident in changed}
        return changed

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits."""
        return not any(self._news.values())

    def note(self, record: Record, owners: Mapping[str, str], now: float) -> None:
        """Add what has changed to the news of the owners of runs. Raises HTTPException, too."""
        conditions = ["attributes.status = 'RUNNING'", f"attributes.end_time > {int((now - _TRIED) * 1000)}"]
        # The sweep ends a run at its last sign of life, which may be days ago.
        if going_on := [f"'{run}'" for run, state in self._runs.items() if state not in _ENDS.values()]:
            conditions.append(f"attributes.run_id IN ({', '.join(going_on)})")
        runs = {run["run"]: run for condition in conditions for run in record.search(condition)}
        for ident in owners.keys() & runs.keys():
            if state_of(runs[ident]) != self._runs.get(ident) and (news := news_of(runs[ident], now)):
                self._news.setdefault(owners[ident], []).append(news)
        self._runs = {ident: state_of(run) for ident, run in runs.items()}
        self._save()

    def deliver(self, settings: Facts, secrets: Mapping[str, str], now: float) -> None:
        """Send people what waits, to all at the same time: a slow receiver delays nobody."""
        self._news = {name: [one for one in news if one["time"] > now - _TRIED] for name, news in self._news.items()}
        due = [name for name, news in self._news.items() if news and self._sent.get(name, 0) <= now - _PAUSE]
        with ThreadPoolExecutor(max(len(due), 1)) as pool:
            calls = {pool.submit(_call, request_of(settings, secrets, name, self._news[name])): name for name in due}
            for call in as_completed(calls):
                if refusal := call.result():
                    sys.stderr.write(f"no message to {calls[call]}: {refusal}\n")
                else:
                    self._news[calls[call]], self._sent[calls[call]] = [], now
                    self._save()


def _call(options: str) -> str:
    """Send a message; return why it was not taken."""
    done = subprocess.run(_CURL, input=options, stdout=subprocess.PIPE, text=True, check=False)  # noqa: S603  as above
    return f"exit code {done.returncode} of curl, status {done.stdout}" if done.returncode else ""


def request_of(settings: Facts, secrets: Mapping[str, str], person: str, news: Sequence[Facts]) -> str:
    """Return the options of curl for a message. The address of a webhook is a secret."""
    what, page = ("alerts", "bp ui grafana") if "alert" in news[0] else ("runs", "bp runs")
    more = [f"and {len(news) - _MOST} more: {page}"] if len(news) > _MOST else []
    lines, address = [*(one["text"] for one in news[:_MOST]), *more], settings["people"].get(person)
    text, relay = "\n".join(lines), settings["relay"]
    if address:
        subject = lines[0] if len(lines) == 1 else f"{len(news)} {what}"
        headers = {"From": settings["sender"], "To": address, "Date": formatdate(), "Subject": f"bedplate: {subject}"}
        options = [("url", f"smtp://{relay}:{_SUBMISSION}"), ("mail-from", settings["sender"]), ("mail-rcpt", address)]
        options += [("user", secrets[relay])] if relay in secrets else []
        options += [("form-string", f"={text}"), ("header", "Auto-Submitted: auto-generated")]
    else:
        headers = {"Content-Type": "application/json"}
        options = [("url", secrets.get(person, "")), ("data-raw", json.dumps({"text": text, what: news[:_MOST]}))]
    options += [("header", f"{name}: {value}") for name, value in headers.items()]
    return "".join(f"{name} = {json.dumps(value)}\n" for name, value in options)


def read_settings() -> tuple[Facts, Mapping[str, str]]:
    """Return who gets messages and how, and the addresses of webhooks and the password of the relay."""
    text = (Path(os.environ["CREDENTIALS_DIRECTORY"]) / "messages").read_text(errors="replace")
    return json.loads(SETTINGS.read_text()), dict(re.findall(r"^(\S+)[ \t]+(\S+)", text, re.MULTILINE))


def main(volume: Path, people: Path, news: Iterable[tuple[str, Facts]] = ()) -> None:
    """Tell people these news, and what became of their runs. Whoever first asked for the token of a run owns it."""
    (settings, secrets), now, outbox = read_settings(), time.time(), Outbox(volume / "tokens/messages")
    names, runs = Lines(people).read(), Lines(volume / "tokens/runs").read()
    owners = {run: names[uid] for run, uid in runs.items() if names.get(uid) in settings["people"]}
    outbox.add((person, one) for person, one in news if person in settings["people"])
    outbox.note(Record(), owners, now)
    outbox.deliver(settings, secrets, now)
