"""The hub of a fleet as its people meet it: a whole machine with volume and bucket, and laptops with an archive."""

import json
import shlex
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess
from tempfile import mkdtemp
from typing import Any

from tests.testlab.machines.container import Machine
from tests.testlab.machines.hub import FILES, HOST
from tests.testlab.machines.node_lab import Node
from tests.testlab.machines.whole import Whole, whole_machine
from tests.testlab.machines.whole_kinds import KINDS
from tests.testlab.network.netlab import SLOWNESS, LabProgram

API = "/api/2.0/mlflow"
# In the block of the laptops of a gateway, whose packets keep their address behind it.
_LAPTOP = "10.121.0.9"
_UNPACK = """set -e
useradd --create-home --shell /bin/bash {account}
install -d -m 700 -o {account} -g {account} {home}/.ssh {home}/work
unzip -q /root/archive.zip -d {home}/.ssh
mv /root/key {home}/.ssh/id_ed25519
chown -R {account}: {home}/.ssh; chmod 600 {home}/.ssh/id_ed25519
"""
# The clock of the programs of a unit, or of a command; the kernel has one clock for all machines of a test.
FAKETIME = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1"
INSTALL_FAKETIME = "apt-get install --yes --quiet --no-install-recommends libfaketime faketime >/dev/null"


@dataclass
class Laptop:
    """A machine with nothing but ssh, git, Python, the archive of a person and the person's key, in an account."""

    node: Node
    account: str = "person"

    @property
    def home(self) -> str:
        """The home of the account."""
        return f"/home/{self.account}"

    def start(self, command: str) -> LabProgram:
        """Start a command of its person, whose output and errors are in files."""
        assert isinstance(self.node.machine, Machine)
        words = (*self.node.machine.console(), f"exec su {self.account} -c {shlex.quote(command)}")
        log = Path(mkdtemp(dir=self.node.ssh_config.parent)) / "output"
        with log.open("wb") as output, log.with_name("errors").open("wb") as errors:
            return LabProgram(subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=output, stderr=errors), log)

    def run(self, command: str, seconds: float = 120) -> CompletedProcess[str]:
        """Run a command as its person."""
        return result_of(self.start(command), seconds)

    def bp(self, *words: str, clock: str = "", seconds: float = 120) -> CompletedProcess[str]:
        """Run a command of bp, whose clock may be off."""
        ahead = f"faketime -f {clock} " if clock else ""
        return self.run(f"{ahead}{self.home}/.ssh/lab/bp {' '.join(words)}", seconds)

    def start_run(self, *words: str) -> LabProgram:
        """Start `bp run` with these words in the folder `work`."""
        return self.start(f"cd {self.home}/work; exec {self.home}/.ssh/lab/bp run {shlex.join(words)}")

    def write(self, name: str, text: str) -> None:
        """Write a file of the folder `work`."""
        (self.node.root / self.home[1:] / "work" / name).write_text(text)
        self.node.run(f"chown {self.account}: {self.home}/work/{name}")

    @property
    def processes(self) -> str:
        """The names of the processes of its person."""
        return self.node.run(f"ps --no-headers --format comm --user {self.account} || true")

    def close(self) -> None:
        """Kill all that its person runs, as when the battery is empty."""
        self.node.run(f"pkill --signal KILL --uid {self.account} || true")

    def checks(self, clock: str = "") -> Mapping[str, Mapping[str, Any]]:
        """Return what `bp doctor` says, by check."""
        return {result["check"]: result for result in json.loads(self.bp("doctor", "--json", clock=clock).stdout)}


def result_of(program: LabProgram, seconds: float = 120) -> CompletedProcess[str]:
    """Return the result of a command of a laptop, after its end."""
    try:
        status = program.popen.wait(seconds * SLOWNESS)
    except subprocess.TimeoutExpired:
        program.end()
        raise
    return CompletedProcess(program.popen.args, status, program.output, program.log.with_name("errors").read_text())


@dataclass
class WholeHub:
    """The hub, and how its people and its operator reach it."""

    machine: Whole

    @property
    def node(self) -> Node:
        """Its machine, which may be replaced."""
        return self.machine.node

    def operator(self, *words: str) -> CompletedProcess[str]:
        """Run a command of bedplate as ada, the administrator."""
        return self.machine.bedplate(*words)

    def lose_power(self) -> None:
        """End the machine without a shutdown, and boot it, without waiting for its services."""
        machine = self.node.machine
        assert isinstance(machine, Machine)
        machine.crash()
        machine.boot(waits=False)

    def invite(self, person: str, account: str = "person") -> Laptop:
        """Return the laptop of a person, with the archive that the operator makes; accounts share one machine."""
        archive = self.machine.folder / f"{person}.zip"
        done = self.operator("person", "invite", person, "--write", str(archive))
        assert done.returncode == 0, done.stdout + done.stderr
        nodes = self.machine.lab.nodes
        node = nodes["laptop"] if "laptop" in nodes else self.machine.lab.boot("laptop", _LAPTOP)
        (node.root / "root/archive.zip").write_bytes(archive.read_bytes())
        (node.root / "root/key").write_bytes(Path(self.machine.keys[person]).read_bytes())
        node.run(_UNPACK.format(account=account, home=f"/home/{account}"))
        return Laptop(node, account)

    def token(self, person: str = "grace", scope: str = "") -> str:
        """Return a token that a person gets by ssh."""
        done = self.machine.ssh(person, f"bp-token {scope}".strip())
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def ask(self, token: str, target: str, *words: str, seconds: float = 30) -> tuple[int, str]:
        """Send a request of a machine of the fleet; return status and body, or 0 and the error of curl."""
        trusted = self.machine.folder / "tls.crt"
        options = ("--silent", "--show-error", "--noproxy", "*", "--max-time", str(seconds), "--cacert", str(trusted))
        to = ("--resolve", f"{HOST}:443:{self.node.address}", "--header", f"Authorization: Bearer {token}")
        url = f"https://{HOST}{target}"
        done = self.node.workstation.run("curl", *options, *to, *words, "--write-out", "\n%{http_code}", url)
        body, _, status = done.stdout.rpartition("\n")
        return int(status), body + done.stderr

    def trust_certificate(self) -> None:
        """Trust the certificate of the hub, as each archive does."""
        (self.machine.folder / "tls.crt").write_text(self.node.run("cat /srv/hub/keys/tls.crt"))

    def call(self, token: str, path: str, **values: object) -> Any:  # noqa: ANN401  the document of the answer
        """Return the answer of MLflow to a call, which must succeed."""
        words = ("--json", json.dumps(values)) if values else ()
        status, body = self.ask(token, f"{API}/{path}", *words)
        assert status == 200, f"{path}: {status}: {body}"
        return json.loads(body)

    def put(self, token: str, path: str, text: str) -> tuple[int, str]:
        """Write a file; return status and body."""
        return self.ask(token, f"{FILES}/{path}", "--request", "PUT", "--data-binary", text)

    def record(self, name: str, person: str = "grace") -> str:
        """Record a run of a person with a metric, a pack and a part of a log; return its id."""
        token = self.token(person)
        experiment = self.call(token, "experiments/get-by-name?experiment_name=jobs")["experiment"]["experiment_id"]
        values = {"id": name, "owner": person, "command": "python train.py", "state": "running"}
        tags = [{"key": f"bedplate.{key}", "value": value} for key, value in values.items()]
        start = int(time.time() * 1000)
        created = self.call(token, "runs/create", experiment_id=experiment, run_name=name, start_time=start, tags=tags)
        run: str = created["run"]["info"]["run_id"]
        of_run = self.token(person, f"run:{run}")
        metrics = [{"key": "loss", "value": 0.5, "timestamp": 1, "step": 1}]
        self.call(of_run, "runs/log-batch", run_id=run, metrics=metrics)
        assert self.put(token, f"packs/{person}/{run}{run[:8]}-0.pack", f"pack of {name}") == (201, "")
        assert self.put(of_run, self.log(run), f"log of {name}") == (201, "")
        return run

    def log(self, run: str) -> str:
        """Return the path of the first part of a log of a run of the experiment of runs."""
        return f"1/{run}/artifacts/logs/0/0/000000"

    def read(self, run: str, person: str = "grace") -> tuple[str, float, str, str]:
        """Return the name, the metric, the pack and the log of a recorded run."""
        token = self.token(person)
        found = self.call(token, f"runs/get?run_id={run}")["run"]
        paths = (f"packs/{person}/{run}{run[:8]}-0.pack", self.log(run))
        texts = [self.ask(token, f"{FILES}/{path}") for path in paths]
        assert [status for status, _ in texts] == [200, 200], texts
        return found["info"]["run_name"], found["data"]["metrics"][0]["value"], texts[0][1], texts[1][1]

    @property
    def runs(self) -> set[str]:
        """The names of all runs."""
        answer = self.call(self.token(), "runs/search", experiment_ids=["1"], max_results=1000)
        return {run["info"]["run_name"] for run in answer.get("runs", ())}


@contextmanager
def whole_hub(folder: Path) -> Iterator[WholeHub]:
    """Yield a hub that has configured itself, in a fleet with certificates of laptops."""
    (kind,) = (kind for kind in KINDS if kind.name == "hub")
    with whole_machine(kind, folder) as machine:
        hub = WholeHub(machine)
        hub.trust_certificate()
        done = machine.fleet.bedplate("vpn", "init")
        assert done.returncode == 0, done.stderr
        yield hub
