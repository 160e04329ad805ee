"""Alertmanager posts alerts, and people hear of them. The packet filter admits it, and nobody else."""

import json
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import TCPServer
from typing import Any

from .messages import Facts, Outbox, read_settings

# Bytes of a request: 10,000 alerts. Seconds between two attempts of a message, and after which an idle program ends.
_LARGEST, _PAUSE, _IDLE = 32 << 20, 5, 60
_PATH = "/bedplate/alerts"


def recipients_of(alert: Facts, settings: Facts) -> Sequence[str]:
    """Return who gets an alert: the person whom it is about, or those of the fleet file."""
    labels = alert["labels"]
    names = [labels.get("person")] if labels.get("severity") == "person" else settings["alerts"]
    return [name for name in names if name in settings["people"]]


def news_of(alert: Facts, now: float) -> Facts:
    """Return what to tell about an alert."""
    labels, notes = alert["labels"], alert.get("annotations", {})
    name, text = labels["alertname"], notes.get("summary") or labels["alertname"]
    facts = {"alert": name, "state": alert["status"], "runbook": notes.get("runbook", ""), "time": int(now)}
    return {**facts, "text": f"{'ended' if alert['status'] == 'resolved' else labels.get('severity', 'alert')}: {text}"}


class AlertServer(TCPServer):
    """A server on a socket that systemd has opened, with the outbox of alerts."""

    timeout = _PAUSE

    def __init__(self, listener: socket.socket, outbox: Outbox) -> None:
        super().__init__(("", 0), _Request, bind_and_activate=False)
        self.socket.close()
        self.socket, self.outbox, self.last = listener, outbox, time.monotonic()

    def take(self, alerts: Sequence[Facts]) -> None:
        """Put the alerts that have changed into the outbox, which is on the disk afterwards."""
        now, (settings, _) = time.time(), read_settings()
        states = {alert["fingerprint"]: f"{alert['status']} {alert['startsAt']}" for alert in alerts}
        changed = self.outbox.add_changed(states, now)
        self.outbox.add(_addressed([one for one in alerts if one["fingerprint"] in changed], settings, now))
        self.last = time.monotonic()


def _addressed(alerts: Sequence[Facts], settings: Facts, now: float) -> Iterator[tuple[str, Facts]]:
    for alert in alerts:
        news = news_of(alert, now)
        yield from ((name, news) for name in recipients_of(alert, settings))


class _Request(BaseHTTPRequestHandler):
    server: AlertServer
    timeout = 10

    def do_POST(self) -> None:
        """Take a notification of Alertmanager, which repeats it unless the answer is 200."""
        try:
            length = int(self.headers["Content-Length"])
            is_ours = self.path == _PATH and length <= _LARGEST
            document: Mapping[str, Any] = json.loads(self.rfile.read(length)) if is_ours else {}
            self.server.take(document["alerts"])
            status = 200
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            status = 400
        except OSError:
            status = 507
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Log nothing: messages that fail are logged."""


def serve_alerts(file: Path, listener: socket.socket) -> None:
    """Take alerts, and send them at once; end when nothing waits. systemd starts the program for the next ones."""
    outbox = Outbox(file)
    server = AlertServer(listener, outbox)
    while True:
        server.handle_request()
        outbox.deliver(*read_settings(), time.time())
        if outbox.is_empty and time.monotonic() - server.last >= _IDLE:
            return
