"""The role `hub`: nginx, the program that checks and makes tokens, and their units."""

import re
from dataclasses import replace
from ipaddress import IPv4Address
from pathlib import Path

from bedplate.plan.fleet import Accounts
from bedplate.plan.hub import HUB_FLEET, HubPlan
from bedplate.plan.stores import ExportPlan
from bedplate.programs.hub import rules
from bedplate.programs.hub.rules import LARGEST
from roles.base import file_text
from roles.catalog import names_of, roles_of
from roles.hub.role import NGINX, PROGRAM, SERVICE, SITE, Hub, hub_role
from tests.testlab.fakes.node import Recorded, Recorder
from tests.testlab.fleets.variants import lab_node
from tests.testlab.machines.hub import HOST, PEOPLE, role_text

HUB = Hub(HOST, PEOPLE)


def test_the_hub_alone_has_the_role() -> None:
    """People are those of the fleet file, administrators too; the packet filter remains last."""
    (role,) = (role for role in roles_of(lab_node("hub.us-west-2")) if isinstance(role, Hub))

    assert role.host == HOST
    assert {"ada", "grace"} <= set(role.people.values())
    assert names_of(lab_node("hub.us-west-2"))[-1] == "hardened"
    assert "hub" not in names_of(lab_node("control-1.us-west-2"))


def test_keys_are_copied_to_the_bucket_only() -> None:
    """Other machines of a site mount the folder; without one, dumps stay on the hub."""
    (role,) = (role for role in roles_of(lab_node("hub.us-west-2")) if isinstance(role, Hub))
    at_site = HubPlan("vault.cellar", "lab.internal", IPv4Address("192.168.1.9"))
    export = ExportPlan("spare", "cellar", "nas", "/srv/spare", "/mnt/spare")
    nobody = Accounts((), {})

    assert role.backup["WITH"] == "(keys tokens ssh)"
    assert role.backup["TARGET"].startswith(
        ":s3,provider=AWS,env_auth=true,region=us-west-2,no_check_bucket=true:lab-hub-"
    )
    settings = hub_role(replace(at_site, backup=export), nobody).backup
    assert settings == {"NODE": "vault.cellar", "TARGET": "/mnt/spare", "WITH": "(tokens)"}
    assert hub_role(at_site, nobody).backup["TARGET"] == ""


def test_the_fleet_is_published_every_minute_in_a_region(system: Recorded) -> None:
    """At a site the role writes what the plan knows: there is no AWS, and a folder instead of a volume."""
    played = Recorder(system).play(HUB)
    at_site = HubPlan("vault.cellar", "lab.internal", IPv4Address("192.168.1.9"), published={"schema": 1})
    other = Recorder(system).play(hub_role(at_site, Accounts((), {})))

    assert "-m bedplate.machine.fleet" in played.written("/etc/systemd/system/bedplate-hub-fleet.service")
    assert played.step("Publish the fleet every minute").commands
    assert HUB_FLEET not in played.disk.entries
    assert other.written(HUB_FLEET) == '{"schema": 1}'
    assert not any("bedplate-hub-fleet" in path for path in other.disk.entries)


def test_the_program_knows_people_by_user_id(system: Recorded) -> None:
    """A line for each person; no file of the role holds a secret."""
    played = Recorder(system).play(HUB)

    assert played.written("/etc/bedplate/hub-people") == "20000 ada\n20001 grace\n"
    assert not any("/srv/hub/keys" in path for path in played.disk.entries)


def test_the_sweep_sends_messages(system: Recorded) -> None:
    """It reaches the network but not the metadata service, gets the addresses of webhooks, and writes to one folder."""
    at_site = HubPlan("vault.cellar", "lab.internal", IPv4Address("192.168.1.9"), messages={"people": {"ada": ""}})
    played = Recorder(system).play(hub_role(at_site, Accounts((), {})))
    unit = played.written("/etc/systemd/system/bedplate-hub-sweep.service")

    assert played.written("/etc/bedplate/hub-messages") == '{"people": {"ada": ""}}'
    assert "OnUnitActiveSec=60" in played.written("/etc/systemd/system/bedplate-hub-sweep.timer")
    assert played.step("End lost runs every minute").commands
    expected = {"IPAddressDeny=link-local fd00:ec2::/32", "ReadWritePaths=/srv/hub/tokens", "User=bedplate-hub"}
    expected |= {"LoadCredential=messages:/srv/hub/keys/messages", "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6"}
    assert expected <= {*unit.splitlines()}
    assert "PrivateNetwork" not in unit


def test_a_second_run_changes_nothing(system: Recorded) -> None:
    """A changed program restarts the check, and changed settings restart nginx; nothing else does."""
    first = Recorder(system).play(HUB)
    again = Recorder(system, first.disk).play(HUB, stages=["configure", "activate"])
    other = Recorder(system, first.disk).play(Hub("hub.other.internal", PEOPLE), stages=["configure", "activate"])

    restarts = {f"Restart {SERVICE}", f"Restart {NGINX}"}
    assert {name for name in restarts if first.step(name).commands} == restarts
    assert {name for name in restarts if again.step(name).commands} == set()
    assert {name for name in restarts if other.step(name).commands} == {f"Restart {NGINX}"}


def test_nginx_lets_every_request_be_checked() -> None:
    """No location of the hub's name is open, but those between nginx and the check, which are internal."""
    text = next(file.text for file in HUB.files() if file.path == SITE)
    _, hub = text.split(f"server_name {HOST};")
    before, *locations = re.split(r"\n {8}location ", hub)

    assert "auth_request /check;" in before
    for location in locations:
        if "auth_request off" in location:
            assert location.startswith("@") or "internal;" in location
    assert f"client_max_body_size {LARGEST >> 30}g;" in text


def test_nginx_knows_every_status_of_the_check() -> None:
    """It answers a status that it does not know with 403, which clients would not repeat or understand."""
    programs = Path(rules.__file__).parent
    texts = "".join((programs / name).read_text() for name in ("rules.py", "tokens.py"))
    raised = {int(status) for status in re.findall(r"RefusedError\((\d+)", texts)}
    answered = {int(status) for status in re.findall(r"return (\d+) \$", role_text(SITE))}

    assert raised
    assert raised <= answered


def test_the_program_has_the_key_and_no_other_secret() -> None:
    """It runs as an account of its own, gets the key of tokens from systemd, and writes to one folder."""
    unit = file_text("hub/bedplate-hub.service")

    assert "User=bedplate-hub" in unit
    assert re.findall(r"^LoadCredential=\S+:(\S+)", unit, re.MULTILINE) == [
        "/srv/hub/keys/tokens",
        "/srv/hub/keys/tokens.former",
    ]
    assert re.findall(r"^ReadWritePaths=(.+)", unit, re.MULTILINE) == ["/srv/hub/tokens"]
    assert f"ExecStart={PROGRAM}" in unit
    assert Path(PROGRAM).name in unit
