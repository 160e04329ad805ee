"""All that a run passes: laptops with an archive, the hub, and a workbench of a site with all roles and four GPUs."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import OK
from pathlib import Path
from typing import Any

from bedplate.plan.node_document import node_document
from roles.hub.role import FLEET
from tests.testlab.machines.whole import Whole, find_plan, machine_beside
from tests.testlab.machines.whole_hub import API, Laptop, WholeHub, whole_hub
from tests.testlab.machines.whole_kinds import KINDS, planned_node
from tests.testlab.network.netlab import until

_FIND = f"{API}/experiments/get-by-name?experiment_name=jobs"
MACHINE = "titan-03.cellar"
RECORD = "nginx bedplate-hub mlflow postgresql@$(ls /usr/lib/postgresql)-main"
"""The services of the hub."""


@dataclass
class WholeRuns:
    """The hub, the workbench, and the laptop of each person."""

    hub: WholeHub
    bench: Whole
    laptops: Mapping[str, Laptop]

    def bp(self, person: str, *words: str, seconds: float = 120) -> str:
        """Return what a command of bp prints; it must succeed."""
        done = self.laptops[person].bp(*words, seconds=seconds)
        assert done.returncode == 0, f"bp {' '.join(words)}: {done.returncode}: {done.stdout}{done.stderr}"
        return done.stdout

    def records(self, word: str) -> Sequence[Mapping[str, Any]]:
        """Return the records of the runs whose names end with a word, with their tags."""
        words = {"experiment_ids": ["1"], "filter": f"attributes.run_name LIKE '%-{word}'"}
        found = self.hub.call(self.hub.token("ada"), "runs/search", **words).get("runs", ())
        return [
            {
                **{name: run["info"][name] for name in ("run_id", "run_name", "status")},
                **{tag["key"].removeprefix("bedplate."): tag["value"] for tag in run["data"]["tags"]},
            }
            for run in found
        ]

    def record(self, word: str) -> Mapping[str, Any]:
        """Return the record of a run, of which there is one."""
        (record,) = self.records(word)
        return record

    def name_of(self, word: str) -> str:
        """Return the name of a run, which ends with a word."""
        return str(self.record(word)["run_name"])

    def wait_for_end(self, word: str, seconds: float = 120) -> Mapping[str, Any]:
        """Return the record of a run after its end."""
        until(lambda: self.record(word).get("state") == "ended", seconds, f"no end of {word}", every=1)
        return self.record(word)

    def folder(self, person: str, name: str) -> str:
        """Return the folder of a run on the workbench, which has fast disks."""
        return f"/scratch/{person}/runs/{name}"

    def has(self, path: str) -> bool:
        """Return whether the workbench has a file."""
        return self.bench.node.run(f"test -e {path} && echo yes || true") == "yes\n"

    @property
    def leases(self) -> Mapping[str, Any]:
        """What the leases of the workbench say."""
        document: Mapping[str, Any] = json.loads(self.bench.node.run("bedplate-gpus show --json"))
        return document

    @property
    def units(self) -> str:
        """The units of runs that the workbench has."""
        return self.bench.node.run("find /run/user -name 'bp-*.service'")

    def kill_hub(self, units: str = RECORD) -> None:
        """Kill services of the hub; systemd starts them again."""
        self.hub.node.run(f"systemctl kill --signal=KILL {units}")

    def stop_hub(self) -> None:
        """Stop the services of the hub."""
        self.hub.node.run(f"systemctl stop {RECORD}")

    def start_hub(self) -> None:
        """Start the services of the hub, and wait until it answers."""
        self.hub.node.run(f"systemctl start --no-block {RECORD}")
        until(self._serves, 300, "the hub does not serve", every=1)

    def _serves(self) -> bool:
        done = self.hub.machine.ssh("ada", "bp-token")
        return done.returncode == 0 and self.hub.ask(done.stdout.strip(), _FIND)[0] == OK


@contextmanager
def whole_runs(folder: Path) -> Iterator[WholeRuns]:
    """Yield hub, workbench and laptops, which are accounts of one machine. The hub knows the key of the workbench."""
    (kind,) = (kind for kind in KINDS if kind.name == "site-workbench")
    with whole_hub(folder) as hub:
        machine, run = hub.machine, hub.machine.run
        assert run
        bench = machine_beside(machine, kind)
        homes = bench.files.exports["/srv/home"]
        for person in ("ada", "grace"):
            # What the file server of the site does.
            (homes / person).mkdir(mode=0o700)
            uid = bench.plan.accounts.uids[person]
            machine.lab.workstation.host.run("chown", f"{uid}:{uid}", str(homes / person))
        run.documents = {machine.planned.name: node_document(planned_node(machine.kind, find_plan(machine.fleet)))}
        run.promote()
        run.run()
        hub.node.run(f"systemctl start {FLEET}", 300)
        yield WholeRuns(hub, bench, {"grace": hub.invite("grace"), "ada": hub.invite("ada", "other")})
