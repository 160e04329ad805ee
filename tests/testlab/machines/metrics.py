"""Prometheus and Alertmanager on this machine with the settings of the hub, and exporters that speak TLS."""

import json
import shutil
import socket
import ssl
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import urlencode

from bedplate.monitoring.settings import alertmanager_settings, prometheus_settings, rules_text
from bedplate.plan.hub import ALERTMANAGER_PORT, ALERTS_PORT, PROMETHEUS_PORT
from tests.testlab.machines.hub import make_certificate
from tests.testlab.network.netlab import until

HUB = "hub.us-west-2"


class Exporter(ThreadingHTTPServer):
    """An exporter with a certificate of its own, which answers with `text`."""

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Metrics)
        for name in ("keys", "uploads"):
            (folder / name).mkdir(exist_ok=True)
        make_certificate(folder)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "keys/tls.crt", folder / "keys/tls.key")
        self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)
        self.text = "node_load1 1\n"
        Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def target(self) -> str:
        """Its address and port."""
        return f"127.0.0.1:{self.server_address[1]}"

    def end(self) -> None:
        """Stop it; its port refuses connections then."""
        self.shutdown()
        self.server_close()


class _Metrics(BaseHTTPRequestHandler):
    server: Exporter

    def do_GET(self) -> None:
        """Answer."""
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write(self.server.text.encode())

    def log_message(self, *_: object) -> None:
        """Log nothing."""


def free_port() -> int:
    """Return a port of loopback on which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


@dataclass
class Watch:
    """The folder and ports of both daemons. Intervals are a second, and the settings are otherwise those of the hub."""

    folder: Path
    alerts_port: int
    port: int = field(default_factory=free_port)
    alertmanager_port: int = field(default_factory=free_port)

    def write(self, rules: Sequence[dict[str, Any]] = (), remote_write: str | None = None) -> None:
        """Write the settings and rules."""
        for name in ("rules", "targets"):
            (self.folder / name).mkdir(exist_ok=True)
        (self.folder / "rules/test.json").write_text(rules_text(rules))
        folder = str(self.folder)
        text = prometheus_settings("lab", HUB, folder, f"{folder}/targets", remote_write)
        text = text.replace('"15s"', '"1s"').replace('"10s"', '"1s"').replace('"1m"', '"1s"')
        (self.folder / "prometheus.json").write_text(self._ports(text))
        text = alertmanager_settings().replace('"10s"', '"1s"').replace('"2m"', '"1s"')
        (self.folder / "alertmanager.json").write_text(self._ports(text))

    def _ports(self, text: str) -> str:
        ports = {PROMETHEUS_PORT: self.port, ALERTMANAGER_PORT: self.alertmanager_port, ALERTS_PORT: self.alerts_port}
        for port, own in ports.items():
            text = text.replace(f":{port}", f":{own}")
        return text

    def set_targets(self, job: str, **targets: tuple[str, dict[str, str]]) -> None:
        """Write the targets of a job: address and labels by name; __ in a name is a dot."""
        entries = [
            {"targets": [address], "labels": {"instance": name.replace("__", "."), **labels}}
            for name, (address, labels) in targets.items()
        ]
        new = self.folder / "targets.new"
        new.write_text(json.dumps(entries))
        new.replace(self.folder / f"targets/{job}.json")

    def query(self, text: str) -> list[tuple[dict[str, str], float]]:
        """Return the labels and the value of each series of a query."""
        query = urlencode({"query": text})
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/api/v1/query?{query}", timeout=10) as answer:
            result = json.load(answer)["data"]["result"]
        return [(series["metric"], float(series["value"][1])) for series in result]

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run both daemons."""
        commands = (
            (
                "prometheus",
                f"--config.file={self.folder}/prometheus.json",
                f"--storage.tsdb.path={self.folder}/data",
                f"--web.listen-address=127.0.0.1:{self.port}",
            ),
            (
                "prometheus-alertmanager",
                f"--config.file={self.folder}/alertmanager.json",
                f"--storage.path={self.folder}/alertmanager",
                f"--web.listen-address=127.0.0.1:{self.alertmanager_port}",
                "--cluster.listen-address=",
            ),
        )
        with (self.folder / "log").open("a") as log:
            daemons = [
                subprocess.Popen([str(shutil.which(name)), *options], stdout=log, stderr=log)
                for name, *options in commands
            ]
            try:
                until(lambda: self._is_ready(self.port), 20, "Prometheus does not answer")
                until(lambda: self._is_ready(self.alertmanager_port), 20, "Alertmanager does not answer")
                yield
            finally:
                for daemon in daemons:
                    daemon.terminate()
                for daemon in daemons:
                    daemon.wait(20)

    def _is_ready(self, port: int) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/-/ready", timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            time.sleep(0.05)
            return False
