"""The gateway agent's tunnels: config bundles, status of charon and BGP, and the script that watches tunnels."""

import json
import os
import stat
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from signal import SIGTERM

import pytest

from bedplate.programs.gateway import status
from bedplate.programs.gateway.config_bundle import apply_bundle
from bedplate.programs.gateway.paths import GatewayPaths, IncompleteError, RejectedError, parse_config_bundle
from bedplate.programs.gateway.status import Charon, Neighbour, Tunnel, parse_neighbours, read_charon, read_neighbours
from tests.testlab.fakes.gateway import (
    FIRST,
    SITE,
    TOGETHER,
    calls_of,
    config_bundle,
    files_of_gateway,
    gateway_place,
    without,
)
from tests.testlab.fleets.variants import cellar_gateway
from tests.testlab.network.netlab import until
from vpn.push import config_bundle_text
from vpn.sites.files import GUARD_RULES, LAST_ROUTES, files_of, frr_conf_of
from vpn.sites.gateway import Gateway, SharedKey

CHARON = f"{TOGETHER}.service"


@pytest.fixture
def paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GatewayPaths:
    """Return a gateway with the role guard; its programs record their calls."""
    return gateway_place(tmp_path, monkeypatch)


def _apply(paths: GatewayPaths, gateway: Gateway) -> dict[str, tuple[str, ...]]:
    return apply_bundle(paths, config_bundle(gateway))


def test_every_file_is_written_as_rendered(paths: GatewayPaths) -> None:
    """Text and mode match, only root can read keys, and charon is started and enabled."""
    changes = _apply(paths, SITE)

    files = files_of_gateway(paths)
    assert {str(file.path): (file.text, file.mode) for file in files_of(SITE)}.items() <= files.items()
    assert not [path for path, (text, mode) in files.items() if b"key.of".hex() in text and mode != 0o600]
    assert CHARON in changes["started"]
    assert calls_of(paths.root)[-1].startswith("systemctl enable --now bedplate-guard.service")


def test_the_same_bundle_again_changes_nothing(paths: GatewayPaths) -> None:
    """No file is written and no service is reloaded."""
    _apply(paths, SITE)
    calls_of(paths.root)
    before = files_of_gateway(paths)

    changes = _apply(paths, SITE)

    assert not any(changes.values())
    assert all(call.startswith("systemctl enable") for call in calls_of(paths.root))
    assert files_of_gateway(paths) == before


def test_the_guard_is_reloaded_before_charon(paths: GatewayPaths) -> None:
    """No packet may pass before the new rules are loaded."""
    _apply(paths, SITE)

    calls = calls_of(paths.root)
    assert calls.index("systemctl reload-or-restart bedplate-guard.service") < min(
        number for number, call in enumerate(calls) if TOGETHER in call
    )


def test_a_block_that_leaves_the_plan_reloads_only_the_guard(paths: GatewayPaths) -> None:
    """Its unit loads the rules and routes, and charon is not reloaded."""
    _apply(paths, SITE)
    calls_of(paths.root)

    changes = _apply(paths, replace(SITE, remote_blocks=SITE.remote_blocks[1:]))

    assert changes["written"] == (str(GUARD_RULES), str(LAST_ROUTES))
    calls = [call for call in calls_of(paths.root) if call.startswith("systemctl") and "enable" not in call]
    assert calls == ["systemctl reload-or-restart bedplate-guard.service"]


def test_a_new_key_reloads_charon(paths: GatewayPaths) -> None:
    """The agent does not restart charon."""
    _apply(paths, SITE)
    calls_of(paths.root)

    changes = _apply(paths, _with_key(SITE, FIRST, b"another key"))

    assert changes["written"] == ("/etc/bedplate/ipsec/tunnels/swanctl.conf",)
    calls = [call for call in calls_of(paths.root) if "enable" not in call]
    assert calls == [f"systemctl try-reload-or-restart {CHARON}"]


def _with_key(gateway: Gateway, name: str, key: bytes) -> Gateway:
    tunnels = (replace(tunnel, proof=SharedKey(key)) if tunnel.name == name else tunnel for tunnel in gateway.tunnels)
    return replace(gateway, tunnels=tuple(tunnels))


def test_an_additional_tunnel_does_not_interrupt_others(paths: GatewayPaths) -> None:
    """Charon is reloaded, and the service that dials is restarted to read the new table."""
    _apply(paths, without(SITE, FIRST))
    calls_of(paths.root)

    _apply(paths, SITE)

    calls = [call for call in calls_of(paths.root) if TOGETHER in call and "enable" not in call]
    dial = f"systemctl try-restart {TOGETHER}-dial.service"
    assert calls == [f"systemctl try-reload-or-restart {CHARON}", dial]


def test_files_that_were_not_loaded_are_loaded_by_the_next_run(paths: GatewayPaths) -> None:
    """After a power failure between both steps charon is restarted, although its files are unchanged."""
    _apply(paths, SITE)
    path = "/etc/bedplate/ipsec/tunnels/swanctl.conf"
    paths.pending_files.write_text(json.dumps([path]))
    calls_of(paths.root)

    changes = _apply(paths, SITE)

    assert changes["written"] == ()
    assert f"systemctl try-restart {CHARON}" in calls_of(paths.root)
    assert not paths.pending_files.exists()


def test_a_unit_that_does_not_start_is_an_error(paths: GatewayPaths) -> None:
    """The exit status is 6, and the next run starts the unit."""
    (paths.root / "broken").touch()

    with pytest.raises(IncompleteError, match="systemctl enable failed: Job for bedplate-guard"):
        _apply(paths, SITE)
    (paths.root / "broken").unlink()

    assert CHARON in _apply(paths, SITE)["started"]


def test_a_unit_that_was_stopped_manually_is_started(paths: GatewayPaths) -> None:
    """The operator gets a note of it."""
    _apply(paths, SITE)
    active = paths.root / "active"
    active.write_text(active.read_text().replace(f"{CHARON}\n", ""))

    assert _apply(paths, SITE) == {"written": (), "removed": (), "started": (CHARON,)}


def test_a_removed_tunnel_is_closed(paths: GatewayPaths) -> None:
    """A reload would leave it open: charon is restarted, and the tunnel's device is deleted."""
    _apply(paths, SITE)
    removed = next(tunnel for tunnel in SITE.tunnels if tunnel.name == FIRST)
    devices = "".join(f"{tunnel.device}@NONE UNKNOWN <NOARP,UP>\n" for tunnel in SITE.tunnels)
    (paths.root / "devices").write_text(devices)
    calls_of(paths.root)

    _apply(paths, without(SITE, FIRST))

    calls = calls_of(paths.root)
    assert [call for call in calls if call.startswith("ip ")] == [f"ip link delete {removed.device}"]
    assert f"systemctl try-restart {CHARON}" in calls


def test_with_the_last_tunnel_all_but_the_guard_is_removed(paths: GatewayPaths) -> None:
    """No unit, no BGP neighbour and no device is left."""
    _apply(paths, SITE)
    (paths.root / "devices").write_text(f"{SITE.tunnels[0].device}@NONE UNKNOWN <NOARP,UP>\n")
    calls_of(paths.root)

    _apply(paths, replace(SITE, tunnels=()))

    calls = calls_of(paths.root)
    assert not list((paths.root / "etc/bedplate/ipsec").iterdir())
    assert not list((paths.root / "etc/systemd/system").glob("bedplate-ipsec-*"))
    assert "neighbor" not in (paths.root / "etc/frr/frr.conf").read_text()
    assert f"ip link delete {SITE.tunnels[0].device}" in calls
    assert (paths.root / str(GUARD_RULES).lstrip("/")).exists()


def test_rules_that_nftables_rejects_change_nothing(paths: GatewayPaths) -> None:
    """The agent checks the rules first, and writes no key."""
    (paths.root / "refused").touch()
    before = files_of_gateway(paths)

    with pytest.raises(RejectedError, match="invalid packet filter"):
        _apply(paths, SITE)

    after = files_of_gateway(paths)
    after.pop("/calls")
    assert after == before


def test_a_gateway_without_the_role_guard_is_an_error(paths: GatewayPaths) -> None:
    """Nothing is written, and the message names the role."""
    (paths.root / "etc/systemd/system/bedplate-guard.service").unlink()

    with pytest.raises(RejectedError, match="apply the role guard first"):
        _apply(paths, SITE)

    assert not (paths.root / "etc/bedplate").exists()


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda text: text[:-20], id="cut-short"),
        pytest.param(lambda _: "", id="nothing"),
        pytest.param(lambda _: '{"files": []}', id="no-files"),
        pytest.param(lambda text: text.replace(str(GUARD_RULES), "/etc/shadow"), id="elsewhere"),
        pytest.param(lambda text: text.replace("/etc/frr/frr.conf", "/etc/bedplate/ipsec/../../shadow"), id="upwards"),
        pytest.param(lambda text: text.replace('"mode": 384', '"mode": 2541'), id="setuid"),
    ],
)
def test_an_invalid_bundle_is_rejected(change: Callable[[str], str], paths: GatewayPaths) -> None:
    """Nothing is written, and the message contains nothing of the bundle."""
    with pytest.raises(RejectedError) as error:
        apply_bundle(paths, parse_config_bundle(change(config_bundle_text(SITE))))

    assert "key" not in str(error.value)
    assert not (paths.root / "etc/bedplate").exists()


# Hangs if its state is `hung`, fails without a state, and else prints the files of its state.
_STATUS_SWANCTL = """#!/bin/sh
[ ! -e "{state}/hung" ] || exec sleep 30
cat "{state}/$1" 2>/dev/null
"""
_CONN = "list-conn event {%s {version=IKEv2 children {net {mode=TUNNEL}}}}\n"
_SA = "list-sa event {%s {state=ESTABLISHED established=30 child-sas {net-1 {bytes-in=9 use-in=4 bytes-out=8}}}}\n"


@pytest.fixture
def charon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder with the state of a fake swanctl."""
    program = tmp_path / "swanctl"
    program.write_text(_STATUS_SWANCTL.format(state=tmp_path))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(status, "SWANCTL", program)
    monkeypatch.setattr(status, "_TIMEOUT_S", 1)
    return tmp_path


def _write_table(charon: Path, *tunnels: str) -> None:
    (charon / "table").write_text("".join(f"{tunnel} 7 169.254.64.2/30 1400 -\n" for tunnel in tunnels))


def _report(charon: Path, connections: str, associations: str) -> None:
    (charon / "--list-conns").write_text(connections)
    (charon / "--list-sas").write_text(associations)


def test_a_gateway_without_tunnels_has_no_charon(charon: Path) -> None:
    """Without a table and without an answer nothing is reported."""
    assert read_charon(charon / "table") == Charon(None, None)


def test_tunnels_of_a_stopped_charon_are_down(charon: Path) -> None:
    """The gateway's own table names them."""
    _write_table(charon, "one", "two")

    assert read_charon(charon / "table") == Charon(
        answers=False, tunnels=(Tunnel("one", None, 0, 0, None), Tunnel("two", None, 0, 0, None))
    )


def test_a_charon_that_hangs_does_not_answer(charon: Path) -> None:
    """The status is reported after the timeout."""
    _write_table(charon, "one")
    (charon / "hung").touch()

    assert read_charon(charon / "table") == Charon(answers=False, tunnels=(Tunnel("one", None, 0, 0, None),))


def test_a_tunnel_that_charon_did_not_load_is_down(charon: Path) -> None:
    """Such a tunnel is in the table, but carries no packets."""
    _write_table(charon, "one", "two")
    _report(charon, _CONN % "one", _SA % "one")

    assert read_charon(charon / "table") == Charon(
        answers=True, tunnels=(Tunnel("one", 30, 9, 8, 4), Tunnel("two", None, 0, 0, None))
    )


def test_a_charon_without_a_table_is_reported(charon: Path) -> None:
    """Its tunnels are not in the plan, but they exist."""
    _report(charon, _CONN % "one", "")

    assert read_charon(charon / "table") == Charon(answers=True, tunnels=(Tunnel("one", None, 0, 0, None),))


CONFIGURED = [("169.254.64.1", "us-west-2-1"), ("169.254.64.5", "us-west-2-2")]
# The output of FRR 8.4.4 for both commands, with a stray brace at the end of the second.
OUTPUT = """{
  "routerId":"192.168.40.1",
  "peers":{
    "169.254.64.1":{"remoteAs":64600, "peerUptimeMsec":5900, "pfxRcd":1, "state":"Established"},
    "169.254.64.5":{"remoteAs":64600, "peerUptimeMsec":0, "pfxRcd":0, "state":"Active"}
  },
  "totalPeers":2
}
{
 "vrfName": "default",
 "routes": { "10.64.0.0/16": [{"valid":true,"peerId":"169.254.64.1"},{"valid":true,"peerId":"169.254.64.9"}]
,"192.168.40.0/22": [{"valid":true,"peerId":"(unspec)"}]}
 }  }
"""
DOWN = tuple(Neighbour(tunnel, None, ()) for _, tunnel in CONFIGURED)


def test_neighbours_have_their_session_and_routes() -> None:
    """A neighbour without a session is down; the gateway's own blocks belong to no neighbour."""
    assert parse_neighbours(CONFIGURED, OUTPUT) == (Neighbour("us-west-2-1", 5, ("10.64.0.0/16",)), DOWN[1])


@pytest.mark.parametrize(
    "output", ["", "Exiting: failed to connect to any daemons.\n", "{}\n{}\n", OUTPUT[:200], '{"peers": []}', "{"]
)
def test_neighbours_without_output_are_down(output: str) -> None:
    """Missing or incomplete output does not count as an established session."""
    assert parse_neighbours(CONFIGURED, output) == DOWN


def test_neighbours_are_those_of_the_gateways_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neighbours have the name of their tunnel; a gateway without the file has none."""
    site = cellar_gateway()
    file, frr_conf = tmp_path / "frr.conf", frr_conf_of(site)
    assert frr_conf
    file.write_text(frr_conf.text)
    monkeypatch.setenv("PATH", str(tmp_path))

    assert read_neighbours(file) == tuple(Neighbour(tunnel.name, None, ()) for tunnel in site.tunnels)
    assert read_neighbours(tmp_path / "nothing") == ()


SCRIPTS = Path(__file__).parents[2] / "vpn/sites"
# Records every command. The file `state.NAME` is a tunnel's state; with `slow.NAME` dialling takes long.
_WATCH_SWANCTL = r"""#!/bin/bash
echo "$*" >>"$STATE/commands"
case $1 in
--list-sas) cat "$STATE/state.$3" 2>/dev/null; exit 0 ;;
--initiate) [[ ! -e $STATE/slow.$3 ]] || sleep 30; echo "[IKE] many"; echo "initiate failed: no answer"; exit 1 ;;
esac
"""
ESTABLISHED = "{0}: #{1}, ESTABLISHED, IKEv2, 1_i* 2_r\n  local  'a' @ 192.0.2.1[500]\n"
INSTALLED = "  {0}: #{1}, reqid 1, INSTALLED, TUNNEL, ESP:AES_GCM_16-256\n"


def _up(ike: int, child: int | None = None, name: str = "attic") -> str:
    """Return swanctl's output for an association, with a child if it has one."""
    return ESTABLISHED.format(name, ike) + ("" if child is None else INSTALLED.format(name, child))


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder with the state of tunnels and the recorded commands."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name, text in (("swanctl", _WATCH_SWANCTL), ("ping", '#!/bin/sh\necho "ping $*" >>"$STATE/commands"\n')):
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    for script in ("ipsec-look", "ipsec-watch"):
        (tools / script).write_text((SCRIPTS / f"{script}.sh").read_text())
        (tools / script).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
    monkeypatch.setenv("STATE", str(tmp_path))
    return tmp_path


def _commands(state: Path, word: str) -> list[str]:
    file = state / "commands"
    return [line for line in file.read_text().splitlines() if line.startswith(word)] if file.exists() else []


def _look(state: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    command = [str(state / "tools/ipsec-look"), "unix:///s", *words]
    return subprocess.run(command, text=True, capture_output=True, check=False)


@contextmanager
def _watching(state: Path, *rows: str) -> Iterator[Path]:
    """Watch a table at intervals of tenths of a second, and yield the log file."""
    (state / "table").write_text("".join(f"{row}\n" for row in rows))
    log = state / "log"
    intervals = ("0", "0.1", "0", "1.5")
    with log.open("wb") as sink:
        command = [str(state / "tools/ipsec-watch"), str(state / "table"), "unix:///s", *intervals]
        with subprocess.Popen(command, stdout=sink, stderr=sink, start_new_session=True) as program:
            yield log
            os.killpg(program.pid, SIGTERM)


@pytest.mark.parametrize(
    ("associations", "ended"),
    [
        (_up(7, 1), []),
        (_up(7, 1) + _up(9, 2), ["7"]),
        (_up(7, 1) + _up(9), ["9"]),
        (_up(9) + _up(10), ["9"]),
        (_up(7).replace("ESTABLISHED", "REKEYED") + _up(9, 2), []),
    ],
    ids=["once", "newest-carries", "older-carries", "none-carries", "renewed"],
)
def test_duplicate_associations_end_except_the_newest_with_a_child(
    associations: str, ended: list[str], state: Path
) -> None:
    """The end that dials terminates the others; the end that waits terminates none."""
    (state / "state.attic").write_text(associations)

    _look(state, "attic", "waits")
    ended_by_waiting = _commands(state, "--terminate")
    _look(state, "attic", "dials")

    assert ended_by_waiting == []
    assert [line.split()[2] for line in _commands(state, "--terminate")] == ended


def test_a_tunnel_that_is_down_is_dialled_once(state: Path) -> None:
    """The reason of a failure is printed in one line; charon's journal has the details."""
    done = _look(state, "attic", "waits")

    assert done.returncode == 1
    assert done.stdout == "attic is down: dialling\nattic: initiate failed: no answer\n"
    assert len(_commands(state, "--initiate")) == 1


def test_only_tunnels_that_are_up_are_pinged(state: Path) -> None:
    """A tunnel that is being negotiated is left alone."""
    (state / "state.attic").write_text(_up(7, 1))
    (state / "state.cellar").write_text("cellar: #1, CONNECTING, IKEv2\n")

    assert [_look(state, name, "dials", "10.0.0.1").returncode for name in ("attic", "cellar", "barn")] == [0, 2, 1]

    assert len(_commands(state, "ping")) == 1
    assert [line.split()[2] for line in _commands(state, "--initiate")] == ["barn"]


def test_each_tunnel_is_checked_at_its_own_interval(state: Path) -> None:
    """A tunnel without an answer delays no other, and the end that waits checks less often."""
    for name in ("attic", "barn"):
        (state / f"state.{name}").write_text(_up(7, 1, name))
    (state / "slow.silent").touch()

    def checks(name: str) -> int:
        return len(_commands(state, f"--list-sas --ike {name} "))

    with _watching(state, "silent 1 - 1400 - dials", "attic 2 - 1400 - dials", "barn 3 - 1400 - waits"):
        until(lambda: checks("attic") >= 12, 30, "attic is not checked repeatedly")
        counts = {name: checks(name) for name in ("silent", "attic", "barn")}

    assert counts["silent"] <= 2
    assert counts["barn"] < counts["attic"] / 2


def test_only_changes_of_a_tunnels_state_are_logged(state: Path) -> None:
    """A tunnel that is down for hours has two lines, one more when it is up, and none while it is negotiated."""
    with _watching(state, "attic 2 - 1400 - dials") as log:
        until(lambda: len(_commands(state, "--initiate")) >= 5, 30, "attic is not dialled repeatedly")
        (state / "state.attic").write_text("attic: #6, CONNECTING, IKEv2\n")
        checks = len(_commands(state, "--list-sas"))
        until(lambda: len(_commands(state, "--list-sas")) > checks + 3, 30, "attic is not checked repeatedly")
        while_down = log.read_text()
        (state / "state.attic").write_text(_up(7, 1))
        until(lambda: "attic is up\n" in log.read_text(), 30, "the log does not say that attic is up")
        when_up = log.read_text()

    assert while_down == "attic is down: dialling\nattic: initiate failed: no answer\n"
    assert when_up == f"{while_down}attic is up\n"
