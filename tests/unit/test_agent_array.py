"""Arrays: elements as text, and their agents as processes with a stand-in for the hub that has a record for each."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from bedplate.programs.elements import codes_of, elements_of, end_of, progress, text_of
from tests.testlab.fakes.laptop import Answer, oldest_python
from tests.testlab.fakes.runs import _MAIN, ARTIFACTS, RUN_ID, AgentRun, RunHub, wait_for

_API = "/api/2.0/mlflow/runs/"
ID = "ada-1127-brave-otter"


class ArrayHub(RunHub):
    """Keeps the record of an array as that of a run, and those of its elements by their names."""

    def __init__(self, folder: Path) -> None:
        self.children: dict[str, dict[str, Any]] = {}
        self.lost_answers = 0
        super().__init__(folder)

    def respond(self, method: str, path: str, body: bytes) -> Answer:
        """Answer for the record of an element, or as for the run."""
        url = urlsplit(path)
        document = json.loads(body) if body and url.path.startswith(_API) else {}
        run = document.get("run_id") or parse_qs(url.query).get("run_id", [""])[0]
        own = next((child for child in self.children.values() if child["id"] == run), None)
        if url.path == f"{_API}search":
            found = [child for name, child in self.children.items() if f"'{name}'" in document["filter"]]
            assert f"'{RUN_ID}'" in document["filter"]
            return 200, {}, json.dumps({"runs": [_document(child) for child in found]}).encode()
        if url.path == f"{_API}create":
            name = document["run_name"]
            assert name not in self.children
            tags = {tag["key"]: tag["value"] for tag in document["tags"]}
            assert tags["bedplate.parent"] == tags["mlflow.parentRunId"] == RUN_ID
            own = {"id": f"{len(self.children):032x}", "tags": tags, "statuses": []}
            self.children[name] = own
            if self.lost_answers:
                self.lost_answers -= 1
                return 503, {}, b"{}"
            return 200, {}, json.dumps({"run": _document(own)}).encode()
        if own and url.path == f"{_API}log-batch":
            own["tags"] |= {tag["key"]: tag["value"] for tag in document["tags"]}
            return 200, {}, b"{}"
        if own and url.path == f"{_API}get":
            return 200, {}, json.dumps({"run": _document(own)}).encode()
        if own and url.path == f"{_API}update":
            own["statuses"].append(document["status"])
            return 200, {}, b"{}"
        return super().respond(method, path, body)

    def child(self, element: int) -> Any:  # noqa: ANN401  a record
        """Return the tags of an element, and its statuses."""
        return self.children[f"{ID}-{element}"]

    def output(self, element: int, attempt: int = 0) -> str:
        """Return the output of an element."""
        return self.files.get(f"{ARTIFACTS}/logs/{attempt}/{element}/000000", b"").decode()


def _document(child: dict[str, Any]) -> dict[str, Any]:
    tags = [{"key": key, "value": value} for key, value in child["tags"].items()]
    return {"info": {"run_id": child["id"]}, "data": {"tags": tags}}


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[ArrayHub]:
    """Yield a hub with the record of an array."""
    with ArrayHub(tmp_path) as hub:
        yield hub


class ArrayRun(AgentRun):
    """An array on a machine whose leases are no obstacle; `script` is that of each element."""

    def __init__(self, hub: ArrayHub, folder: Path, script: str, **given: object) -> None:
        shared = {"elements": "1-3", "at_once": 2, "grace": 2, **given}
        super().__init__(hub, folder / ID, {"a": b""}, ["sh", "-c", script], **shared)
        gpus, agent, code = (folder / name for name in ("gpus", "agent", "agent.py"))
        gpus.write_text('#!/bin/sh\necho "$2" >> "$0.log"\nwhile [ "$1" != -- ]; do shift; done\nshift\nexec "$@"\n')
        pauses = {"_REPORT": 0.2, "_REPEAT": 0.2, "_UPLOAD": 0.1}
        before = "import bedplate.programs.agent.array as a\na._PAUSE = 0.1"
        code.write_text(_MAIN.format(pauses=pauses, cgroup="/nonexistent", before=before))
        agent.write_text(f'#!/bin/sh\nexec {oldest_python()} {code} "$@"\n')
        for file in (gpus, agent):
            file.chmod(0o755)
        self.leases = folder / "gpus.log"
        self.pauses = pauses
        self.before = (
            "import bedplate.programs.agent.__main__ as m, bedplate.programs.agent.array as a\n"
            f"m.AGENT, a.GPUS, a._AGAIN = {str(agent)!r}, {str(gpus)!r}, 0.1\nmain = m.main"
        )


@pytest.mark.parametrize(
    ("text", "elements", "short"),
    [("3", [3], "3"), ("1-3,7", [1, 2, 3, 7], "1-3,7"), ("7,2,1,2", [1, 2, 7], "1-2,7"), ("0-1999", None, "0-1999")],
)
def test_elements_are_numbers_in_their_order(text: str, elements: list[int] | None, short: str) -> None:
    """Each once; the same as text is as short as it can be."""
    assert elements_of(text) == (elements or [*range(2_000)])
    assert text_of(elements_of(text)) == short


@pytest.mark.parametrize("text", ["3-1", "0-2000", "0-999999,0-999999", ",".join(map(str, range(0, 4_000, 2)))])
def test_wrong_elements_are_refused(text: str) -> None:
    """Ranges that fall, and more than a record can have, at once."""
    start = time.monotonic()
    with pytest.raises(ValueError, match="elements"):
        elements_of(text)
    assert time.monotonic() - start < 1


def test_an_array_has_succeeded_if_all_elements_have() -> None:
    """One that never ran has not."""
    codes = codes_of({"bedplate.exit.0.1": "0", "exit.0.3": "7", "cause.0.3": "x", "exit.1.2": "0"})

    assert codes == {1: "0", 3: "7"}
    assert end_of([1, 2, 3], codes) == (1, "2 of 3 elements have not succeeded: 2-3")
    assert end_of([1], codes) == (0, "all 1 elements have succeeded")
    assert progress({"bedplate.elements": "3", "bedplate.exit.0.3": "7"}) == "1 of 3 ended, 1 failed"


def test_a_machine_runs_the_elements_so_many_at_a_time(hub: ArrayHub, tmp_path: Path) -> None:
    """Each with its number, lease, record, log and output; one that fails does not end the others."""
    script = "echo $BEDPLATE_ELEMENT $MLFLOW_RUN_ID; echo x > $BEDPLATE_OUTPUT/f; [ $BEDPLATE_ELEMENT != 2 ]"
    run = ArrayRun(hub, tmp_path, script, gpus=2, launch="program")

    assert run.run() == 1

    for element in (1, 2, 3):
        child = hub.child(element)
        assert hub.output(element).startswith(f"{element} {child['id']}\n")
        assert child["statuses"] == ["FAILED" if element == 2 else "FINISHED"]
        assert hub.files[f"{ARTIFACTS}/output/{element}/f"] == b"x\n"
        assert child["tags"]["bedplate.state"] == "ended"
    assert {name: hub.tags[f"exit.0.{name}"] for name in (1, 2, 3)} == {1: "0", 2: "1", 3: "0"}
    assert hub.tags["cause.0.2"] == "the program ended with exit code 1"
    assert not {"cause.0.1", "cause.0.3"} & hub.tags.keys()
    assert (hub.tags["state"], hub.tags["cause"]) == ("ended", "1 of 3 elements have not succeeded: 2")
    assert (hub.statuses[-1], hub.ends) == ("FAILED", 1)
    assert run.leases.read_text() == "--gpus=2\n" * 3
    assert not [*run.folder.glob("elements/*/work")]


def test_no_more_elements_run_than_allowed(hub: ArrayHub, tmp_path: Path) -> None:
    """Of five, two at the same time."""
    script = f"cd {tmp_path}; f=on-$BEDPLATE_ELEMENT; touch $f; ls | grep -c on-; sleep 0.3; rm $f"

    assert ArrayRun(hub, tmp_path, script, elements="1-5").run() == 0

    assert {hub.output(element) for element in range(1, 6)} <= {"1\n", "2\n"}
    assert hub.tags["cause"] == "all 5 elements have succeeded"


def test_a_lost_answer_makes_no_second_record(hub: ArrayHub, tmp_path: Path) -> None:
    """The stand-in refuses a second one of the same name."""
    hub.lost_answers = 1

    assert ArrayRun(hub, tmp_path, "true", elements="4").run() == 0

    assert [*hub.children] == [f"{ID}-4"]


def test_a_stop_ends_all_elements(hub: ArrayHub, tmp_path: Path) -> None:
    """Those that run get their time; those that wait never run; the record says who has stopped it."""
    run = ArrayRun(hub, tmp_path, "trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.05; done")
    process = run.start()
    wait_for(lambda: hub.output(1) == hub.output(2) == "ready\n")
    (run.folder / "stop.json").write_text('{"by": "ada", "now": false}')

    process.send_signal(signal.SIGTERM)

    assert run.end_of(process) == 201
    assert hub.output(1) == hub.output(2) == "ready\nbye\n"
    assert sorted(hub.children) == [f"{ID}-1", f"{ID}-2"]
    assert hub.child(1)["statuses"] == ["KILLED"]
    assert (hub.tags["cause.0.1"], "exit.0.3" in hub.tags) == ("stopped by ada", False)
    assert (hub.tags["cause"], hub.statuses[-1]) == ("stopped by ada", "KILLED")


def test_an_element_whose_agent_was_killed_has_failed(hub: ArrayHub, tmp_path: Path) -> None:
    """Its program ends with it, for it has the GPUs; the other element is left alone."""
    script = "echo $PPID $$; [ $BEDPLATE_ELEMENT = 2 ] || sleep 600"
    run = ArrayRun(hub, tmp_path, script, elements="1-2", secrets={"KEY": "k"})
    process = run.start()
    wait_for(lambda: hub.output(1))
    agent, program = map(int, hub.output(1).split())

    os.kill(agent, signal.SIGKILL)

    assert run.end_of(process) == 1
    assert not Path(f"/proc/{program}").exists()
    assert hub.tags["cause.0.1"] == "its agent ended before its program, with status -9"
    assert (hub.tags["exit.0.2"], hub.child(1)["statuses"]) == ("0", ["FAILED"])
    assert not [*run.folder.rglob("secrets")]


def test_a_restarted_agent_goes_on_with_what_has_not_ended(hub: ArrayHub, tmp_path: Path) -> None:
    """As systemd starts it after a kill: no element runs twice that has ended, and no record is doubled."""
    script = 'echo run $PPID $$; [ $BEDPLATE_ELEMENT = 1 ] || [ "$BEDPLATE_ATTEMPT" = 1 ] || sleep 600'
    run = ArrayRun(hub, tmp_path, script, elements="1-2", at_once=1, scratch_ok="1")
    process = run.start()
    wait_for(lambda: hub.output(2))
    # The processes of a unit end with it.
    for number in (process.pid, *map(int, hub.output(2).split()[1:])):
        os.kill(number, signal.SIGKILL)
    process.communicate(timeout=20)

    assert run.end_of(run.agent("run", "--folder", str(run.folder))) == 0

    outputs = hub.output(1), hub.output(1, 1), hub.output(2, 1)
    assert [text.partition(" ")[0] for text in outputs] == ["run", "", "run"]
    assert hub.statuses[-1] == "FINISHED"


def pod(hub: ArrayHub, folder: Path, index: int, script: str, elements: str = "5-6") -> subprocess.Popen[bytes]:
    """Start the agent of a pod of an array."""
    run = ArrayRun(hub, folder, script)
    if not run.folder.exists():
        run.prepare()
    # Those of a pod cannot be removed.
    (run.folder / "secrets").write_text("{}")
    work = folder / f"pod-{index}"
    work.mkdir(exist_ok=True)
    facts = {name: run.given[name.lower()] for name in ("HUB", "RUN", "TREE", "GPUS", "GRACE", "ADDRESS", "EXPERIMENT")}
    facts |= {"CERT": run.folder / "certificate", "TOKEN_FILE": run.folder / "token", "WORK": work / "tree"}
    facts |= {"PACKS": ",".join(run.given["packs"]), "ARTIFACTS": ARTIFACTS, "ARRAY": ID, "ELEMENTS": elements}
    run.environment = {f"BEDPLATE_{name}": str(value) for name, value in {**facts, "INDEX": index}.items()}
    return run.agent("run", "--", "sh", "-c", script, stdout=subprocess.PIPE)


def test_the_last_element_in_the_cluster_ends_the_array(hub: ArrayHub, tmp_path: Path) -> None:
    """Pods know their elements by their index; the token ends with the array, not before."""
    script = "echo $BEDPLATE_ELEMENT; [ $BEDPLATE_ELEMENT = 5 ]"
    first = pod(hub, tmp_path, 0, script)
    assert first.communicate(timeout=60)[0] == b"5\n"
    assert (first.returncode, hub.ends, hub.tags["state"]) == (0, 0, "running")

    second = pod(hub, tmp_path, 1, script)
    assert second.communicate(timeout=60)[0] == b"6\n"

    assert (second.returncode, hub.ends) == (1, 1)
    assert (hub.tags["exit.0.5"], hub.tags["exit.0.6"], hub.tags["state"]) == ("0", "1", "ended")
    assert hub.tags["cause"] == "1 of 2 elements have not succeeded: 6"
    assert hub.statuses[-1] == "FAILED"
    # Each pod is paid for.
    assert sorted(name.split(".")[1] for name in hub.tags if name.startswith("ran.")) == ["5", "6"]


def test_an_element_that_has_ended_is_not_repeated(hub: ArrayHub, tmp_path: Path) -> None:
    """Kubernetes makes a pod again whose end it has not seen; the array gets that end."""
    pod(hub, tmp_path, 0, "exit 3").communicate(timeout=60)
    del hub.tags["exit.0.5"]
    (tmp_path / "pod-0" / "end.json").unlink()

    process = pod(hub, tmp_path, 0, "echo again")

    assert process.communicate(timeout=60)[0] == b""
    assert (process.returncode, hub.tags["exit.0.5"]) == (1, "3")
    assert hub.child(5)["statuses"] == ["FAILED"]
