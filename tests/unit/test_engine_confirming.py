"""Changes that may shut us out, confirmed over a second connection: real agents, in folders of a test."""

from pathlib import Path

import pytest

from bedplate.nodes.event import Kind, Step
from tests.support.engine_work import Notebook, carried_out, order_of, starts


def test_what_waits_for_a_second_connection_gets_it(tmp_path: Path) -> None:
    """A change that may shut us out is confirmed over a connection that is opened after it."""
    confirm = tmp_path / "run/unconfirmed/trial"
    script = f"#!/bin/sh\\nmv $0 {tmp_path}/confirmed\\n"
    trial = f"mkdir -p {confirm.parent}; printf '{script}' > {confirm}; chmod 700 {confirm}"

    events = carried_out(order_of(tmp_path), Notebook(tmp_path / "node", failing=trial))

    assert events[-1].step is Step.DONE
    assert (tmp_path / "confirmed").exists()


def test_whoever_confirms_knocks_again(tmp_path: Path) -> None:
    """A daemon that takes nobody while it reads its settings anew is not yet a node that shuts everybody out."""
    door, confirm = tmp_path / "door", tmp_path / "run/unconfirmed/trial"
    first = f"test ! -e {confirm} || test -e {tmp_path}/knocked || {{ touch {tmp_path}/knocked; exit 255; }}"
    door.write_text(f'#!/bin/sh\n{first}\nexec sh -c "$1"\n')
    door.chmod(0o755)
    trial = f"mkdir -p {confirm.parent}; printf '#!/bin/sh\\nrm $0\\n' > {confirm}; chmod 700 {confirm}"

    events = carried_out(order_of(tmp_path, command=(str(door),)), Notebook(tmp_path / "node", failing=trial))

    assert events[-1].step is Step.DONE
    assert (tmp_path / "knocked").exists()


def test_a_change_after_which_nobody_can_log_in_ends_the_work_on_the_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node goes back by itself; who applied is told which operation it was."""
    monkeypatch.setattr("roles.engine.work.KNOCKING", 1.0)
    door = tmp_path / "door"
    door.write_text(f'#!/bin/sh\ntest ! -e {tmp_path}/run/unconfirmed/trial || exit 255\nexec sh -c "$1"\n')
    door.chmod(0o755)
    trial = f"mkdir -p {tmp_path}/run/unconfirmed; touch {tmp_path}/run/unconfirmed/trial"

    events = carried_out(order_of(tmp_path, command=(str(door),)), Notebook(tmp_path / "node", failing=trial))

    assert events[-1].kind is Kind.FAILED
    assert "A step between: after it nobody can log in" in events[-1].words
    assert starts(tmp_path / "node") == 0
