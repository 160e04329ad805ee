"""The agent as it is sent to a node."""

import subprocess
import sys
from io import BytesIO
from pathlib import Path

from roles.engine.agent.frame import READY, receive, send
from roles.engine.sent import agent_program


def test_a_node_needs_nothing_but_its_python(tmp_path: Path) -> None:
    """The whole agent goes over the line: it runs where nothing of this project, and of nobody else's, is installed."""
    said = BytesIO()
    places = {"folder": str(tmp_path / "run"), "memory": str(tmp_path / "memory")}
    send(said, {"lock": "alone", "who": "ada", "patience": 0, **places})
    send(said, {"do": "put", "path": str(tmp_path / "file"), "note": "A file"}, b"text")

    lonely = (sys.executable, "-I", "-S", "-c", agent_program().decode())
    done = subprocess.run(lonely, input=said.getvalue(), capture_output=True, check=True, cwd=tmp_path)

    answers = BytesIO(done.stdout.removeprefix(READY))
    assert [receive(answers)[0] for _ in range(2)] == [{"held": "", "unfinished": []}, {}]
    assert (tmp_path / "file").read_bytes() == b"text"
    assert (tmp_path / "memory/unfinished").read_text() == "A file\n"
