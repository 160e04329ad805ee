"""Runs of `bp` in a real cluster: API server with the fleet's policies, scheduler, kubelet and containerd."""

import io
import json
import re
import shlex
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest

from bedplate.nodes.invitation import bp_program
from bedplate.programs.bp.cluster import Api
from bedplate.programs.bp.hub import BpError, Settings
from bedplate.programs.bp.jobset import Cluster, jobset_of, secret_of
from bedplate.programs.bp.places import Place
from bedplate.programs.bp.pods import JobSet, Record, follow
from roles.containers.role import container_files
from tests.testlab.fakes.laptop import TOKEN
from tests.testlab.fakes.runs import ARTIFACTS, AgentRun, RunHub
from tests.testlab.fleets.variants import lab_plan
from tests.testlab.kubernetes.control_plane import ControlPlane, wait_until
from tests.testlab.kubernetes.images import FOREIGN_IMAGE, PYTHON_IMAGE, foreign_image, python_image
from tests.testlab.kubernetes.joined_node import CASES, Running, cluster, machine
from tests.testlab.kubernetes.joining import Approvers
from tests.testlab.kubernetes.queues import Queues, queue_folder
from tests.testlab.kubernetes.real_node import HOST, NODE, PODS
from tests.testlab.kubernetes.registry import built_here, need_container_tools, registry

UID = lab_plan().accounts.uids["grace"]
_CASE = CASES["pool"]
_FACTS = {"image": PYTHON_IMAGE, "taints": _CASE.promised.taints, "site": "", "gpus": 0}
_PLACE = Place("cpu", _FACTS, "cpu", {"bedplate/group": _CASE.promised.labels["bedplate/group"]})
# In place of the agent: it shows what it has, waits for a file or SIGTERM, and ends with a code of its own.
_AGENT = """
import json, os, signal, sys, time
def stop(*_):
    print("stopped", flush=True)
    sys.exit(7)
signal.signal(signal.SIGTERM, stop)
files = {name: open(f"/run/bedplate/run/{name}").read() for name in ("token", "certificate", "secrets", "params")}
print(json.dumps([sys.argv[1:], os.getuid(), files, os.environ["BEDPLATE_TREE"], os.environ["HOME"]]), flush=True)
open(os.environ["HOME"] + "/seen", "w").write("seen")
print("written", os.stat("/dev/shm").st_size, flush=True)
if sys.argv[-1] == "wait":
    time.sleep(600)
if sys.argv[-1] == "lost":
    rank, lost = os.environ["BEDPLATE_RANK"], os.environ["HOME"] + "/lost"
    print("rank", rank, "of", os.environ["BEDPLATE_NODES"], os.environ["BEDPLATE_MASTER"], flush=True)
    if os.path.exists(lost + ".both"):
        sys.exit(0)
    open(lost + rank, "w").close()
    while not os.path.exists(lost + "0") or not os.path.exists(lost + "1"):
        time.sleep(0.1)
    time.sleep(1)
    open(lost + ".both", "w").close()
    sys.exit(200)
sys.exit(3)
"""


def _plane(approvers: Approvers) -> ControlPlane:
    """Return the control plane of approvers, which is one with programs here."""
    assert isinstance(approvers.plane, ControlPlane)
    return approvers.plane


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Yield a node of a cluster with the fleet's people, policies and queue, and the image of runs."""
    images = tmp_path_factory.mktemp("images")
    with (
        cluster() as approvers,
        Queues(_plane(approvers), queue_folder(), more={"pod-defaults", "volumes"}),
        machine(approvers, _CASE, tmp_path_factory.mktemp("root")) as running,
    ):
        running.machine.import_image(python_image(images))
        # Pods reach the stand-in of the hub, which answers to their own addresses.
        subprocess.run(("ip", "route", "add", PODS["ipam"]["ranges"][0][0]["subnet"], "via", NODE), check=True)
        running.machine.shell(f"mkdir -p /home/grace /data && chown {UID}:{UID} /home/grace")
        running.join()
        running.pass_gate()
        approvers.plane.wait_for_namespace("grace")
        yield running


@pytest.fixture(scope="module")
def api(running: Running) -> Iterator[Api]:
    """Yield the API as grace reaches it, by her token."""
    plane = running.approvers.plane
    token = plane.kubectl("create", "token", "grace", "-n", "people", "--duration", "1h").strip()
    script = f"echo '{json.dumps({'status': {'token': token}})}'"
    api = Api(Cluster(plane.server, plane.authority.certificate.read_text(), "grace", UID, [UID], script))
    yield api
    api.close()


def run_of(name: str, *command: str, **values: object) -> Mapping[str, Any]:
    """Return a run that bp has sent."""
    facts: dict[str, Any] = {"id": name, "run": "0" * 32, "experiment": "1", "hub": "https://hub.lab.internal"}
    facts |= {"address": "10.0.0.9", "certificate": "CERT", "token": "TOKEN", "tree": "a" * 40, "packs": ["p"]}
    facts |= {
        "gpus": 0,
        "cpus": 1,
        "memory": 1,
        "for": 600,
        "grace": 10,
        "environment": {"A": "1"},
        "attempt": 0,
        "launch": "",
        "nodes": 1,
        "restarts": 0,
        "scratch_ok": "",
        "priority": "normal",
        "after": "",
        "checkpoints": f"/home/grace/.bedplate/checkpoints/{name}",
    }
    return {**facts, "secrets": {"KEY": "s3cret"}, "params": {}, "command": list(command), **values}


def agent() -> bytes:
    """Return the stand-in of the agent as a program in one file."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("__main__.py", _AGENT)
    return buffer.getvalue()


def _nothing(_: object) -> None:
    """Ignore what is said."""


class Ends(Record):
    """A record whose agents write nothing, and the ends that bp has written."""

    def __init__(self) -> None:
        self.causes = list[str]()

    def code(self) -> int | None:
        """Return that there is no end."""
        return None

    def cause(self) -> str:
        """Return that nothing has interrupted the run."""
        return ""

    def end(self, cause: str) -> None:
        """Note a cause."""
        self.causes.append(cause)


def start(api: Api, run: Mapping[str, Any], place: Place = _PLACE) -> None:
    """Start a run in the cluster."""
    claims = api.claims("")
    jobset = jobset_of(run, place, api.cluster, claims)
    api.start(jobset, lambda uid: secret_of(run, agent(), uid))


def test_a_run_has_its_files_its_home_and_its_end(api: Api, running: Running) -> None:
    """The program runs as the person, with token and secrets as files; output and exit code reach the laptop."""
    output, said, ends = list[bytes](), list[str](), Ends()
    run = run_of("grace-1127-brave-otter", "python", "train.py", "--x=a b")
    start(api, run)
    start(api, run)

    assert follow(api, run["id"], output.append, said.append, ends) == 3

    assert ends.causes == ["its container ended with exit code 3: Error"]
    words, uid, files, tree, home = json.loads(output[0])
    assert words == ["run", "--", "python", "train.py", "--x=a b"]
    assert (uid, tree, home) == (UID, "a" * 40, "/home/grace")
    assert files == {"token": "TOKEN", "certificate": "CERT", "secrets": '{"KEY": "s3cret"}', "params": "{}"}
    assert output[1].startswith(b"written")
    assert "s3cret" not in running.kubectl("get", "jobsets,jobs,pods", "-n", "grace", "-o=json")
    found = json.loads(running.kubectl("get", "secret", run["id"], "-n", "grace", "-o=json"))
    assert [owner["kind"] for owner in found["metadata"]["ownerReferences"]] == ["JobSet"]


@pytest.fixture(scope="module")
def standard_image(running: Running, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the standard image `base` by its digest, in a registry that the node trusts by a file of the role."""
    need_container_tools()
    folder = tmp_path_factory.mktemp("standard")
    built = built_here("base", folder / "base")
    with registry(folder / "registry", HOST) as host:
        for file in container_files({host: f"http://{host}"}):
            if host in file.path:
                write = f"cat >{shlex.quote(file.path)} <<'END'\n{file.text}END"
                running.machine.shell(f"mkdir -p {shlex.quote(str(Path(file.path).parent))}\n{write}")
        target = f"docker://{host}/lab/base:1"
        options = ("--quiet", "--preserve-digests", "--dest-tls-verify=false")
        subprocess.run(("skopeo", "copy", *options, f"oci:{folder}/base", target), check=True)
        yield f"{host}/lab/base@{built.digest}"


@pytest.mark.parametrize("image", [PYTHON_IMAGE, "standard"], ids=["any image", "standard image"])
def test_the_agent_runs_in_a_pod(
    image: str, api: Api, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes], request: pytest.FixtureRequest
) -> None:
    """It fetches the code, shows the output on the laptop, and gives the hub output, machine and end."""
    name = "tidy-mole" if image == PYTHON_IMAGE else "calm-vole"
    if image == "standard":
        image = request.getfixturevalue("standard_image")
    program, settings = tmp_path / "bp", Settings("lab", "grace", "", "", "", "", "", cluster=vars(api.cluster))
    program.write_bytes(bp_program())
    with RunHub(tmp_path, HOST) as hub:
        script = 'sh run.sh; cat "$BEDPLATE_PARAMS"; echo "$SECRET-$A" >"$BEDPLATE_OUTPUT/file"; exit 4'
        sent = AgentRun(hub, tmp_path / f"grace-1127-{name}", {"run.sh": b"echo from the code\n"}, ["sh", "-c", script])
        secrets = {"SECRET": "s3cret"}
        run = {**sent.given, "address": HOST, "environment": {"A": "1"}, "secrets": secrets, "params": {"lr": "1"}}
        run = {**run_of(run["id"], *run["command"]), **run, "attempt": 0, "token": TOKEN}
        info = {"run_id": run["run"], "status": "FAILED"}
        tags = [{"key": "bedplate.state", "value": "ended"}, {"key": "bedplate.code", "value": "4"}]
        ended = {"info": info, "data": {"tags": tags}}
        of_bp = SimpleNamespace(settings=settings, call=lambda _: {"run": ended})
        place = replace(_PLACE, facts={**_FACTS, "image": image})
        jobset = JobSet(of_bp, place, program, is_followed=True)  # type: ignore[arg-type]  # these methods only

        with closing(jobset):
            code = jobset.run(run)

        assert (code, capfdbinary.readouterr().out) == (4, b'from the code\n{"lr": "1"}')
        assert (hub.tags["state"], hub.tags["machine"], hub.statuses) == ("ended", _CASE.name, ["FAILED"])
        assert hub.files[f"{ARTIFACTS}/output/file"] == b"s3cret-1\n"
        assert hub.log() == b'from the code\n{"lr": "1"}'
        hub.shutdown()


def test_secrets_are_in_the_namespace_until_removed(api: Api, running: Running) -> None:
    """Each has its own time; a second value replaces the first, and the others stay."""
    assert api.secrets({"HF_TOKEN": "first"}) == {}
    api.secrets({"wandb-key": "s3cret\n"})
    api.secrets({"HF_TOKEN": "second"})

    found = api.secrets({})

    assert {name: value for name, (_, value) in found.items()} == {"HF_TOKEN": "second", "wandb-key": "s3cret\n"}
    assert all(re.fullmatch(r"20\d\d-\d\d-\d\dT[\d:]{8}Z", at) for at, _ in found.values())
    kept = json.loads(running.kubectl("get", "secret", "bedplate-secrets", "-n", "grace", "-o=json"))
    assert {*kept["data"]} == {*found}
    api.secrets({"HF_TOKEN": ""})
    assert [*api.secrets({})] == ["wandb-key"]
    api.secrets({"HF_TOKEN": "", "wandb-key": ""})
    assert api.secrets({}) == {}


def test_all_nodes_of_a_run_start_again_together(api: Api, running: Running) -> None:
    """After exit code 200 of an agent its JobSet makes all pods again; bp follows the output."""
    output, said, run = list[bytes](), list[str](), run_of("grace-1127-gang-lynx", "lost", nodes=2, cpus="300m")
    start(api, run)

    assert follow(api, run["id"], output.append, said.append, Ends()) == 0

    host = f"{run['id']}-n-0-0.{run['id']}"
    assert [line for line in output if line.startswith(b"rank")] == [f"rank 0 of 2 {host}\n".encode()] * 2
    assert any("it starts again" in text for text in said)
    jobset = api.jobset(run["id"])
    assert (jobset["status"]["terminalState"], jobset["status"]["restarts"]) == ("Completed", 1)
    addresses = running.kubectl("get", "endpoints", run["id"], "-n", "grace", "-o=json")
    assert json.loads(addresses)["metadata"]["name"] == run["id"]


def test_a_run_that_is_held_starts_when_it_is_released(api: Api, running: Running) -> None:
    """The controller of capacity changes its queue when the run before has ended."""
    run = run_of("grace-1127-held-lynx", "true", after="grace-1127-gang-lynx:ok")
    start(api, run)
    time.sleep(2)
    assert not api.pods(run["id"])

    queue = "kueue.x-k8s.io/queue-name=default"
    running.kubectl("label", "jobset", run["id"], "-n", "grace", "--overwrite", queue)

    assert follow(api, run["id"], _nothing, _nothing, Ends()) == 3


def test_a_run_ends_when_its_person_stops_it(api: Api, running: Running) -> None:
    """The program gets SIGTERM, its JobSet and Secret are deleted, and a second stop finds nothing to do."""
    output = list[bytes]()
    run = run_of("grace-1127-calm-heron", "wait")
    start(api, run)
    thread = Thread(target=_follow_to_the_end, args=(api, run["id"], output))
    thread.start()
    assert wait_until(lambda: any(b"written" in line for line in output), 60)

    api.end(run["id"], now=False)
    api.end(run["id"], now=True)

    thread.join(60)
    assert output[-1] == b"stopped\n"
    assert wait_until(lambda: run["id"] not in running.kubectl("get", "jobsets,jobs,secrets", "-n", "grace"), 60)


def test_a_command_runs_beside_the_program(api: Api) -> None:
    """It has the standard input of the laptop, and all that the program has; its exit code is that of `bp attach`."""
    output = list[bytes]()
    run = run_of("grace-1127-glad-ibex", "wait")
    start(api, run)
    thread = Thread(target=_follow_to_the_end, args=(api, run["id"], output))
    thread.start()
    assert wait_until(lambda: any(b"written" in line for line in output), 60)
    facts = {**vars(api.cluster), "gids": [UID]}
    script = (
        "import sys, json; from bedplate.programs.bp.cluster import Api; "
        "from bedplate.programs.bp.jobset import Cluster; "
        "from bedplate.programs.bp.terminal import attach; "
        "sys.exit(attach(Api(Cluster(**json.loads(sys.argv[1]))), sys.argv[2], sys.argv[3:]))"
    )
    command = (sys.executable, "-c", script, json.dumps(facts), run["id"], "sh", "-c", "id -u; wc -c; exit 5")

    done = subprocess.run(command, input=b"x" * 300_000, capture_output=True, check=False, timeout=60)

    assert (done.returncode, done.stdout.split(), done.stderr) == (5, [str(UID).encode(), b"300000"], b"")
    terminal = shlex.join((*command[:-1], "tty; stty size; exit 6"))
    script_of_terminal = ("script", "--quiet", "--return", "--command", terminal, "/dev/null")
    typed = subprocess.run(script_of_terminal, input=b"", capture_output=True, check=False, timeout=60)
    assert typed.returncode == 6, typed.stdout
    assert b"/dev/pts/0" in typed.stdout
    api.end(run["id"], now=True)
    thread.join(60)
    done = subprocess.run(command, capture_output=True, check=False, timeout=60)
    assert b"no running container" in done.stderr


def _follow_to_the_end(api: Api, run: str, output: list[bytes]) -> None:
    with suppress(BpError):
        follow(api, run, output.append, _nothing, Ends())


def test_an_image_without_python_is_said(api: Api) -> None:
    """The sentence names Python, and the key of the fleet file."""
    run = run_of("grace-1127-dry-newt", "true")
    start(api, run, replace(_PLACE, facts={**_FACTS, "image": "localhost/waits:1"}))

    with pytest.raises(BpError, match="no python3"):
        follow(api, run["id"], _nothing, _nothing, Ends())


def test_an_image_of_another_architecture_is_said(api: Api, running: Running, tmp_path: Path) -> None:
    """The kernel cannot run its Python: this is the cause in the record."""
    running.machine.import_image(foreign_image(tmp_path))
    run, ends = run_of("grace-1127-far-crow", "true"), Ends()
    start(api, run, replace(_PLACE, facts={**_FACTS, "image": FOREIGN_IMAGE}))

    assert follow(api, run["id"], _nothing, _nothing, ends) != 0

    assert ends.causes == ["its image is for another architecture than the machine"]


def test_a_run_says_why_it_waits(api: Api) -> None:
    """Its place in the line and the queue's reason reach the laptop, also for a run that fits nowhere."""
    said = list[str]()
    run = run_of("grace-1127-odd-wren", "true", cpus=4000)
    start(api, run)

    def say(text: str) -> None:
        said.append(text)
        api.end(run["id"], now=True)

    with pytest.raises(BpError):
        follow(api, run["id"], _nothing, say, Ends())
    assert said[0].startswith("waiting: place 1 in the line, with priority normal. couldn't assign flavors")


def test_seconds_to_the_first_line(api: Api) -> None:
    """A run of a ready node writes its first line within ten seconds, also on a busy machine of tests."""
    run, first = run_of("grace-1127-fast-lynx", "true"), list[float]()
    started = time.monotonic()
    start(api, run)
    follow(api, run["id"], lambda _: first.append(time.monotonic() - started), _nothing, Ends())
    assert first[0] < 10


def test_a_person_without_token_is_told(tmp_path: Path, api: Api) -> None:
    """A script that fails is a VPN that is not connected."""
    broken = Api(Cluster(api.cluster.server, api.cluster.authority, "grace", UID, [UID], f"cd {tmp_path}/none"))
    with pytest.raises(BpError, match="no token by ssh"):
        broken.claims("")
