"""Which tunnels a gateway tells of: those of its own files, whether their daemons answer or not."""

import stat
from pathlib import Path

import pytest

from vpn.keeper import answering
from vpn.keeper.answering import Answers, answers
from vpn.keeper.tunnels import Tunnel

# A charon is mute where its socket's name says so, and answers where a folder of that name holds what it says.
_SWANCTL = """#!/bin/sh
for uri; do :; done
charon=$(basename "$uri" .vici)
[ "$charon" != hung ] || exec sleep 30
cat "{told}/$charon$1" 2>/dev/null
"""
_CONN = "list-conn event {%s {version=IKEv2 children {net {mode=TUNNEL}}}}\n"
_SA = "list-sa event {%s {state=ESTABLISHED established=30 child-sas {net-1 {bytes-in=9 use-in=4 bytes-out=8}}}}\n"


@pytest.fixture
def gateway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give a gateway with a stand-in for swanctl, and no charon yet."""
    for folder in ("files", "sockets", "told"):
        (tmp_path / folder).mkdir()
    program = tmp_path / "swanctl"
    program.write_text(_SWANCTL.format(told=tmp_path / "told"))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(answering, "SWANCTL", program)
    monkeypatch.setattr(answering, "_SECONDS", 1)
    return tmp_path


def _files(gateway: Path, charon: str, *tunnels: str) -> None:
    (gateway / "files" / charon).mkdir()
    table = "".join(f"{each} 7 169.254.64.2/30 1400 -\n" for each in tunnels)
    (gateway / "files" / charon / "table").write_text(table)


def _says(gateway: Path, charon: str, conns: str, sas: str) -> None:
    (gateway / "sockets" / f"{charon}.vici").touch()
    (gateway / "told" / f"{charon}--list-conns").write_text(conns)
    (gateway / "told" / f"{charon}--list-sas").write_text(sas)


def _asked(gateway: Path) -> Answers:
    return answers(gateway / "files", gateway / "sockets")


def test_a_gateway_without_tunnels_says_so() -> None:
    """It has no files of any, and no daemon; that is no fault of its own."""
    assert answers(Path("/nowhere"), Path("/nowhere")) == Answers({}, None)


def test_tunnels_of_a_daemon_that_is_dead_are_told_as_down(gateway: Path) -> None:
    """By the gateway's own files; the others are told as they are."""
    _files(gateway, "one", "one")
    _files(gateway, "two", "two")
    _says(gateway, "one", _CONN % "one", _SA % "one")

    found = _asked(gateway)

    assert found.charons == {"one": True, "two": False}
    assert found.tunnels == (Tunnel("one", 30, 9, 8, 4, "one"), Tunnel("two", None, 0, 0, None, "two"))


def test_a_daemon_that_hangs_holds_nobody_up(gateway: Path) -> None:
    """It is told as one that does not answer, and what was to be told besides is told."""
    _files(gateway, "hung", "one", "two")
    (gateway / "sockets" / "hung.vici").touch()

    found = _asked(gateway)

    assert found.charons == {"hung": False}
    assert [(each.name, each.age) for each in found.tunnels or ()] == [("one", None), ("two", None)]


def test_a_tunnel_that_its_daemon_was_not_told_of_is_down(gateway: Path) -> None:
    """A file that was laid and never read is a tunnel that carries nothing."""
    _files(gateway, "tunnels", "one", "two")
    _says(gateway, "tunnels", _CONN % "one", _SA % "one")

    assert [(each.name, each.age) for each in _asked(gateway).tunnels or ()] == [("one", 30), ("two", None)]


def test_a_socket_that_nobody_listens_at_is_no_daemon(gateway: Path) -> None:
    """One that went left it behind: an alarm that it does not answer would never end; of the others all is told."""
    (gateway / "sockets" / "gone.vici").touch()
    _says(gateway, "unknown", _CONN % "one", "")

    found = _asked(gateway)

    assert found.charons == {"unknown": True}
    assert [each.name for each in found.tunnels or ()] == ["one"]
