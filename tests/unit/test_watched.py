"""What the hub watches: targets and expectations from the plan and EC2, and the settings of its daemons."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from bedplate.monitoring.settings import alertmanager_settings, prometheus_settings
from bedplate.monitoring.targets import METRICS, TARGETS, watch_files
from bedplate.plan.nodes import permanent_nodes
from roles.prometheus.role import FOLDER, Prometheus
from tests.testlab.fakes.node import Recorded, Recorder
from tests.testlab.fleets.variants import lab_node, lab_plan
from tests.testlab.run import need_program

FLEET, HUB = "lab", "hub.us-west-2"


def document(**machines: dict[str, Any]) -> dict[str, Any]:
    """Return `fleet.json` with machines in two regions, of which one does not answer."""
    groups = {"train": {"regions": ["us-west-2", "us-east-1"]}}
    members = {"laptops.us-west-2": {"place": "us-west-2", "address": "10.64.0.4"}}
    sources = {"us-west-2": 100, "us-east-1": 40}
    return {"time": 100, "groups": groups, "sources": sources, "members": members, "machines": machines}


def machine(address: str, **facts: Any) -> dict[str, Any]:  # noqa: ANN401
    """Return a machine of a group."""
    place = {"place": "us-west-2", "group": "train", "ssh": False, "gpus": 0, "price": None}
    return {**place, "address": address, **facts}


def test_the_plan_names_every_permanent_machine_and_its_role() -> None:
    """Each has its address in the plan, but gateways of laptops, whose address AWS assigns."""
    plan = lab_plan()
    hub = lab_node(HUB).hub
    assert hub
    machines = hub.watched["machines"]

    assert machines.keys() == {node.name for node in permanent_nodes(plan)}
    roles = {name: facts["role"] for name, facts in machines.items()}
    assert roles[HUB] == "hub"
    assert (roles["control-1.us-west-2"], roles["laptops.us-west-2"], roles["gate.cellar"]) == (
        "control",
        "gateway",
        "gateway",
    )
    assert (roles["titan-01.cellar"], roles["titan-03.cellar"], roles["nas.cellar"]) == ("worker", "workbench", "files")
    assert [name for name, facts in machines.items() if facts["address"] is None] == ["laptops.us-west-2"]
    assert machines["titan-03.cellar"] == {"place": "cellar", "address": "192.168.40.23", "role": "workbench"}


def test_each_machine_is_a_target_and_is_expected() -> None:
    """Machines with GPUs have a second exporter. Prices are those of EC2; a region that did not answer is a fault."""
    box = machine("10.64.1.5", gpus=8, price=55.5, market="spot")
    watched = {
        "machines": {
            HUB: {"place": "us-west-2", "address": "10.64.32.17", "role": "hub"},
            "laptops.us-west-2": {"place": "us-west-2", "address": None, "role": "gateway"},
            "laptops.us-east-1": {"place": "us-east-1", "address": None, "role": "gateway"},
        },
        "groups": [
            {"group": "train", "place": "us-west-2", "min": 2},
            {"group": "train", "place": "us-west-2", "min": 1},
        ],
    }
    files = watch_files(document(**{"train-0a.us-west-2": box}), watched)

    nodes, gpus = (json.loads(files[f"{TARGETS}/{job}.json"]) for job in ("node", "gpu"))
    assert [target["targets"] for target in nodes] == [["10.64.32.17:9100"], ["10.64.0.4:9100"], ["10.64.1.5:9100"]]
    labels = {"instance": "train-0a.us-west-2", "place": "us-west-2", "group": "train", "role": "worker"}
    assert gpus == [{"targets": ["10.64.1.5:9400"], "labels": labels}]
    lines = files[METRICS].splitlines()
    where = 'machine="train-0a.us-west-2",place="us-west-2",group="train"'
    assert f'bedplate_expected{{{where},role="worker"}} 1' in lines
    assert f"bedplate_expected_gpus{{{where}}} 8" in lines
    assert f'bedplate_machine_usd_per_hour{{{where},market="spot"}} 55.5' in lines
    assert 'bedplate_expected_machines{place="us-west-2",group="train"} 3' in lines
    assert {'bedplate_fleet_fault{place="us-west-2"} 0', 'bedplate_fleet_fault{place="us-east-1"} 1'} <= {*lines}
    assert "bedplate_fleet_time_seconds{} 100" in lines
    assert sum(line.startswith("bedplate_expected{") for line in lines) == 3


def test_prometheus_reads_what_is_expected() -> None:
    """Promtool parses the text without an objection to a name or a value."""
    need_program("promtool")
    hub = lab_node(HUB).hub
    assert hub
    text = watch_files({**hub.published, "time": 5}, hub.watched)[METRICS]

    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True, check=False)

    assert "error" not in done.stderr
    assert {line.split()[1] for line in done.stderr.splitlines()} <= {"no", "non-histogram", "metric", "use"}


@pytest.mark.parametrize("remote_write", [None, "https://metrics.lab.example/api/v1/write"])
def test_the_daemons_accept_their_settings(remote_write: str | None, tmp_path: Path) -> None:
    """Promtool and amtool of the distribution read them as they are on the hub."""
    need_program("promtool")
    (tmp_path / "p.json").write_text(prometheus_settings(FLEET, HUB, str(tmp_path), TARGETS, remote_write))
    (tmp_path / "a.json").write_text(alertmanager_settings())

    for command in (["promtool", "check", "config", "p.json"], ["amtool", "check-config", "a.json"]):
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        # The file of the token is a credential of the unit.
        assert done.returncode == 0 or "/run/credentials/prometheus.service/remote-write" in done.stderr, done


def test_both_daemons_listen_on_loopback_only(system: Recorded) -> None:
    """From their first start by the package on, and with data on the kept volume, whose share is limited."""
    hub = lab_node(HUB).hub
    assert hub
    played = Recorder(system).play(Prometheus(FLEET, hub))
    arguments = [played.written(f"/etc/default/{name}") for name in ("prometheus", "prometheus-alertmanager")]

    assert [re.findall(r"listen-address=(\S*?)[ \"]", text) for text in arguments] == [
        ["127.0.0.1:9090"],
        ["127.0.0.1:9093", ""],
    ]
    assert "--storage.tsdb.path=/srv/hub/metrics/prometheus" in arguments[0]
    assert {"--storage.tsdb.retention.time=90d", "--storage.tsdb.retention.size=43GB"} <= {*arguments[0].split()}
    names = [step.name for step in played.steps]
    assert names.index("Write the arguments of prometheus") < names.index("Install Prometheus and Alertmanager")
    unit = played.written("/etc/systemd/system/prometheus.service.d/60-bedplate.conf")
    assert {"User=bedplate-metrics", "ReadWritePaths=-/srv/hub/metrics", "ProtectSystem=strict"} <= {*unit.splitlines()}
    assert "LoadCredential" not in unit
    assert f"{FOLDER}/prometheus.json" in played.disk.entries


def test_changed_settings_are_read_without_a_restart(system: Recorded) -> None:
    """A restart loses the newest samples of a scrape; changed arguments need one."""
    hub = lab_node(HUB).hub
    assert hub
    first = Recorder(system).play(Prometheus(FLEET, hub))
    again = Recorder(system, first.disk).play(Prometheus(FLEET, hub), stages=["configure", "activate"])
    other = Recorder(system, first.disk).play(Prometheus("other", hub), stages=["configure", "activate"])

    names = ("Restart prometheus", "Reload prometheus")
    assert [bool(again.step(name).commands) for name in names] == [False, False]
    assert [bool(other.step(name).commands) for name in names] == [False, True]
