"""The roles `openvpn` and `keeper`: which machines have them, and what they write there."""

import subprocess
import sys
from pathlib import Path

import pytest

import vpn.keeper
from bedplate.errors import InputError
from roles.catalog import names_of
from roles.keeper.role import FOLDER, Keeper, keeper_files
from roles.openvpn.role import OpenVpn, gateway_files
from tests.support.laptop_plans import lab_gateways, unrecorded
from tests.support.nodes import lab_node
from tests.support.recorded import Recorded
from tests.support.recorder import Recorder


@pytest.mark.parametrize(
    ("name", "roles"),
    [
        ("gate.cellar", {"keeper", "openvpn"}),
        ("laptops.us-west-2", {"keeper", "openvpn"}),
        ("titan-01.cellar", set()),
        ("control-1.us-west-2", set()),
    ],
)
def test_gateways_have_them_and_nobody_else(name: str, roles: set[str]) -> None:
    """A site's gateway has a keeper for its tunnels, too."""
    assert {"keeper", "openvpn"} & set(names_of(lab_node(name))) == roles


def test_a_gateway_is_not_made_before_it_is_known_who_answers_for_names() -> None:
    """Refused before anything is written: laptops would be told to ask nobody."""
    gateway = lab_gateways(unrecorded())[1]

    with pytest.raises(InputError, match="does not say who answers the laptops of cellar"):
        OpenVpn(gateway).configure()


def test_a_gateway_is_made_alike_on_both_systems(system: Recorded) -> None:
    """Files, units and their order are one; a second run writes nothing and restarts nothing."""
    roles = (Keeper(), OpenVpn(lab_gateways()[1]))
    answers = system.but({"server.Which(command=useradd)": ("/usr/sbin/useradd",)})
    played = Recorder(answers).play(*roles)
    again = Recorder(answers, played.disk).play(*roles, stages=["configure", "activate"])

    assert {file.path for file in (*keeper_files(), *gateway_files(lab_gateways()[1]))} <= played.disk.entries.keys()
    assert played.names.index("Guard of laptops") < played.names.index("Laptops over udp at boot")
    assert any("install" in line and "openvpn" in line for line in played.step("Gateway of laptops").commands)
    assert not [line for line in again.commands if line.startswith("upload") or " restart " in line]


def test_no_key_is_in_what_the_role_writes() -> None:
    """Keys come by a sync; a plan, a report and a log of an apply hold none."""
    told = "".join(file.text for gateway in lab_gateways() for file in gateway_files(gateway))

    assert "BEGIN" not in told


def test_the_keeper_runs_by_what_is_written_alone(tmp_path: Path) -> None:
    """Nothing of the project is there but its own files: laid out as on a gateway, it says how to use it."""
    for file in keeper_files():
        if file.path.startswith(FOLDER):
            path = tmp_path / Path(file.path).relative_to(FOLDER)
            path.parent.mkdir(exist_ok=True)
            path.write_text(file.text)
    (program,) = (file.text for file in keeper_files() if file.path.endswith("/bedplate-vpn"))
    (tmp_path / "bedplate-vpn").write_text(program.replace(FOLDER, str(tmp_path)))

    done = subprocess.run(
        [sys.executable, "-I", "-S", "-B", tmp_path / "bedplate-vpn", "--help"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert "take" in done.stdout
    assert len(list((tmp_path / "keeper").iterdir())) == len(list(Path(vpn.keeper.__file__).parent.glob("*.py")))
