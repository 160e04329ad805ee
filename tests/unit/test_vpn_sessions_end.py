"""Whose sessions a gateway ends when it takes a book: asked of sockets that answer as OpenVPN's management does."""

from pathlib import Path

import pytest

from tests.support.management_ear import daemon
from vpn.keeper.sessions import end_sessions
from vpn.keeper.trouble import Unfinished


def test_who_is_let_in_no_more_is_cut_off_though_nobody_names_them(tmp_path: Path) -> None:
    """A cut that failed once is made up by the next book; who is let in, and who is shaking hands, stays."""
    udp = tmp_path / "udp"

    with daemon(udp, "ada.laptop", "bob.laptop", "UNDEF") as orders:
        ended = end_sessions({udp: {"bob.laptop"}}, ())

    assert (orders, ended) == (["kill ada.laptop"], {"ada.laptop": 1})


def test_a_daemon_that_is_mute_keeps_nobody_in_at_the_other(tmp_path: Path) -> None:
    """All daemons are asked before it is told that one did not answer; one that does not run serves nobody."""
    mute, tcp, gone = tmp_path / "udp", tmp_path / "tcp", tmp_path / "gone"

    with daemon(mute, mute=True), daemon(tcp, "ada.laptop") as orders, pytest.raises(Unfinished, match="udp"):
        end_sessions({mute: (), gone: (), tcp: ()}, ("ada.laptop",))

    assert orders == ["kill ada.laptop"]
