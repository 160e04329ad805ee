"""Environments of runs in pods of a real kubelet: uv builds them in the home of the person, from wheels of the hub."""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from bedplate.nodes.invitation import bp_program
from bedplate.programs.agent.sources import LIST
from bedplate.programs.bp.hub import Settings
from bedplate.programs.bp.jobset import Cluster
from bedplate.programs.bp.places import Place
from bedplate.programs.bp.pods import JobSet
from tests.kubernetes.test_bp_cluster import UID, run_of
from tests.kubernetes.test_search import FACTS, GROUP, node_of_people
from tests.testlab.fakes.laptop import TOKEN
from tests.testlab.fakes.runs import ARTIFACTS, ROOT, AgentRun
from tests.testlab.fakes.wheels import WheelHub, wheel
from tests.testlab.kubernetes.images import python_image
from tests.testlab.kubernetes.joined_node import Running
from tests.testlab.kubernetes.real_node import HOST

_BUILDS = b"bedplate: builds the environment of requirements.txt: minutes, if packages are large\n"
_PROGRAM = 'python -c "import alpha; print(alpha.version)"; alpha'


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Yield a node whose image has Python and uv, and nothing else."""
    # Python finds its own folder, also for environments.
    image = python_image(tmp_path_factory.mktemp("images"), {"PYTHONHOME": ""}, programs=[ROOT / ".venv/bin/uv"])
    with node_of_people(tmp_path_factory.mktemp("root"), image) as running:
        yield running


class Pods:
    """Runs of grace in pods, whose code has requirements, with a hub that has wheels."""

    def __init__(self, running: Running, folder: Path) -> None:
        plane, self._folder, self._count = running.approvers.plane, folder, 0
        token = plane.kubectl("create", "token", "grace", "-n", "people", "--duration", "1h").strip()
        script = f"echo '{json.dumps({'status': {'token': token}})}'"
        cluster = Cluster(plane.server, plane.authority.certificate.read_text(), "grace", UID, [UID], script)
        self._settings = Settings("lab", "grace", "", "", "", "", "", cluster=vars(cluster))
        (folder / "bp").write_bytes(bp_program())

    def run(self, requirements: str, *wheels: tuple[str, bytes]) -> tuple[int, Mapping[str, str], Mapping[str, bytes]]:
        """Run the program; return its exit code, and what the record has: tags, and files."""
        self._count += 1
        folder = self._folder / f"grace-1128-run-{self._count}"
        folder.mkdir()
        with WheelHub(folder, HOST) as hub:
            hub.add(*wheels)
            code = {"requirements.txt": requirements.encode()}
            sent = AgentRun(hub, folder, code, ["sh", "-c", _PROGRAM], environment_file="requirements.txt")
            run = {**sent.given, "address": HOST, "attempt": 0, "token": TOKEN}
            run = {**run_of(run["id"], *run["command"]), **run, "cpus": 0.1, "memory": 0.25}
            of_bp = SimpleNamespace(settings=self._settings, call=lambda _: {"run": _document(hub)})
            place = Place(GROUP, FACTS, GROUP, {"bedplate/group": GROUP})
            jobset = JobSet(of_bp, place, self._folder / "bp", is_followed=True)  # type: ignore[arg-type]  # these only
            with closing(jobset):
                code_of_run = jobset.run(run)
            return code_of_run, dict(hub.tags), dict(hub.files)


def _document(hub: WheelHub) -> object:
    """Return the record as MLflow has it."""
    tags = [{"key": f"bedplate.{name}", "value": value} for name, value in hub.tags.items()]
    return {"info": {"run_id": "0" * 32, "status": [*hub.statuses, "RUNNING"][0]}, "data": {"tags": tags}}


def test_pods_share_an_environment_that_one_has_built(
    running: Running, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """Its build is a line in the log of the pod. What is damaged is built again, and what is missing is named."""
    pods, wheels = Pods(running, tmp_path), (wheel("alpha", "1.0", ["beta"]), wheel("beta", "2.0"))

    code, tags, files = pods.run("alpha\n", *wheels)
    assert (code, capfdbinary.readouterr().out) == (0, _BUILDS + b"1.0\nalpha 1.0\n"), tags.get("cause")
    assert files[f"{ARTIFACTS}/{LIST}"] == b"alpha==1.0\nbeta==2.0\n"
    built = float(re.findall(r"environment=([\d.]+)", tags["times.0"])[0])

    code, tags, _ = pods.run("alpha\n", *wheels)
    assert (code, capfdbinary.readouterr().out) == (0, b"1.0\nalpha 1.0\n"), tags.get("cause")
    assert float(re.findall(r"environment=([\d.]+)", tags["times.0"])[0]) < built

    # As a cleaner of homes, or a full quota, leaves it.
    running.machine.shell("rm /home/grace/.cache/bedplate/environments/*/lib/python3.*/site-packages/alpha/__init__.py")
    code, tags, _ = pods.run("alpha\n", *wheels)
    assert (code, capfdbinary.readouterr().out) == (0, _BUILDS + b"1.0\nalpha 1.0\n"), tags.get("cause")

    code, tags, files = pods.run("gamma\n", *wheels)
    assert code == 203
    assert tags["cause"].startswith("no environment: ")
    assert "gamma" in tags["cause"]
    assert f"{ARTIFACTS}/{LIST}" not in files
