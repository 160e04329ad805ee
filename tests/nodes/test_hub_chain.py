"""The hub from user data to the page that a person sees, and what comes back after a lost instance or volume.

AWS is simulated; packages, programs, sshd, packet filter, rclone and the volume's file system are real.
"""

import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from ipaddress import IPv4Address

import pytest

from tests.testlab.machines.hub import FILES
from tests.testlab.machines.whole import replace_machine, status
from tests.testlab.machines.whole_hub import API, Laptop, WholeHub
from tests.testlab.network.netlab import until

pytestmark = pytest.mark.nightly

PACK = f"{'1' * 40}-0.pack"
_GATEWAYS = {"laptops.us-west-2": IPv4Address("10.64.0.4"), "gate.cellar": IPv4Address("192.168.40.1")}


@contextmanager
def pages(laptop: Laptop, words: str = "ui", seconds: float = 30) -> Iterator[str]:
    """Run `bp ui`, or another command that shows pages, and yield the address that it prints."""
    start = "systemd-run --quiet --collect --unit=ui --uid=person --setenv=HOME=/home/person"
    place = "--working-directory=/home/person/work --property=StandardError=file:/tmp/ui.errors"
    streams = f"--property=StandardOutput=truncate:/tmp/ui {place}"
    laptop.node.run(f"{start} {streams} /home/person/.ssh/lab/bp {words}")
    try:
        until(lambda: "/login/" in laptop.node.run("cat /tmp/ui"), seconds, f"bp {words} prints no address")
        yield re.findall(r"http://[0-9.:]+/login/\S+", laptop.node.run("cat /tmp/ui"))[-1]
    finally:
        laptop.node.run("systemctl kill --signal=INT ui; systemctl stop ui 2>&1 || true; rm /tmp/ui")


def open_page(laptop: Laptop, url: str, *words: str) -> tuple[str, str]:
    """Ask as the person's browser does, with its cookies; return status and body."""
    browser = "curl --silent --cookie /tmp/jar --cookie-jar /tmp/jar --max-time 60"
    quoted = " ".join(f"'{word}'" for word in words)
    done = laptop.run(f"{browser} {quoted} --write-out '\\n%{{http_code}}' {url}")
    body, _, code = done.stdout.rpartition("\n")
    return code, body


def test_the_hub_configures_itself(hub: WholeHub) -> None:
    """From user data: it reports once, and its own audit finds nothing."""
    assert hub.machine.run
    run = status(hub.node, "run")

    assert (run["ok"], run["ready"]) == (True, True), run
    assert hub.machine.run.place.reports == [("lab-hub", "ready", "CONTINUE")]
    (audit,) = hub.machine.audited()["nodes"]
    assert [verdict for verdict in audit["verdicts"] if verdict["outcome"] == "failed"] == []


def test_a_person_sees_runs_and_pages_with_the_archive_only(hub: WholeHub, laptop: Laptop) -> None:
    """`bp doctor` finds nothing, `bp runs` finds the run, and the one-time address of `bp ui` opens MLflow's pages."""
    run = hub.record("grace-1127-brave-otter")

    checks = laptop.checks()
    listed = laptop.bp("runs")

    assert [check for check in checks.values() if not check["ok"]] == []
    assert (listed.returncode, "grace-1127-brave-otter" in listed.stdout) == (0, True), listed.stderr
    assert run in laptop.bp("show", run, "--json").stdout
    # Wildcards of SQL are plain characters.
    counts = [len(json.loads(laptop.bp("runs", "--json", "--text", text).stdout)) for text in ("BRAVE-", "brave_")]
    assert counts == [1, 0]
    with pages(laptop) as address:
        server = re.sub("/login/.*", "", address)
        search = ("--json", '{"experiment_ids": ["1"]}')
        assert open_page(laptop, f"{server}/")[0] == "403"
        assert open_page(laptop, address)[0] == "200"
        assert open_page(laptop, address)[0] == "403"
        code, page = open_page(laptop, f"{server}/")
        assert (code, "<title>MLflow</title>" in page) == ("200", True), page
        code, found = open_page(laptop, f"{server}/ajax-api/2.0/mlflow/runs/search", *search)
        assert (code, run in found) == ("200", True), found
        (script,) = re.findall(r'src="(static-files/static/js/main[^"]*)"', page)
        assert open_page(laptop, f"{server}/{script}", "--output", "/dev/null")[0] == "200"


def test_nobody_writes_the_packs_of_another(hub: WholeHub) -> None:
    """Grace cannot write ada's packs; her own she writes once."""
    grace, ada = hub.token(), hub.token("ada")

    assert hub.put(grace, f"packs/ada/{PACK}", "x")[0] == 403
    assert hub.put(grace, f"packs/grace/{PACK}", "mine")[0] == 201
    assert hub.put(grace, f"packs/grace/{PACK}", "changed")[0] == 409
    assert hub.put(ada, f"packs/grace/{PACK}", "x")[0] == 403
    assert hub.ask(ada, f"{FILES}/packs/grace/{PACK}") == (200, "mine")


def test_an_operator_prunes_what_no_run_needs(hub: WholeHub) -> None:
    """The records say what that is; a new pack stays."""
    grace, names = hub.token(), [f"packs/grace/{digit * 40}-0.pack" for digit in "89"]
    for name in names:
        assert hub.put(grace, name, "code")[0] == 201
    hub.node.run(f"touch --date='100 days ago' /srv/hub/artifacts/{names[0]}")

    done = hub.operator("hub", "prune", "--older", "90d", "--yes")

    assert (done.returncode, names[0] in done.stdout) == (0, True), done.stderr
    assert [hub.ask(grace, f"{FILES}/{name}")[0] for name in names] == [404, 200]


def test_nothing_of_a_removed_person_works_within_a_minute(hub: WholeHub, laptop: Laptop) -> None:
    """Tokens of a cache, of a run and of open pages are refused, also while gateways are silent; no new one is made."""
    run, fleet = hub.record("grace-1127-before"), hub.machine.fleet
    for name, gateway in _GATEWAYS.items():
        fleet.trust(replace(hub.node, name=name))
        hub.node.workstation.cut(gateway)
    of_run, of_person = hub.token(scope=f"run:{run}"), hub.token()
    assert laptop.bp("runs").returncode == 0
    with pages(laptop) as address:
        assert open_page(laptop, address)[0] == "200"
        server = re.sub("/login/.*", "", address)
        start = time.monotonic()

        removed = hub.operator("person", "remove", "grace")

        took = time.monotonic() - start
        code, _ = open_page(laptop, f"{server}/")
    refused = [hub.ask(token, "/bedplate/whoami")[0] for token in (of_run, of_person)]
    bp, new = laptop.bp("runs"), hub.machine.ssh("grace", "bp-token")
    hub.node.run("rm /srv/hub/tokens/removed")
    for gateway in _GATEWAYS.values():
        hub.node.workstation.heal(gateway)

    # The fleet file still declares her.
    assert removed.returncode == 6, removed.stdout + removed.stderr
    assert "hub.us-west-2 refuses the person's tokens" in removed.stdout, removed.stderr
    assert took < 60
    assert (code, refused) == ("403", [403, 403])
    assert (bp.returncode, "no person of the fleet" in bp.stderr) == (4, True), bp.stderr
    assert (new.returncode, new.stdout, "error: no person of the fleet" in new.stderr) == (1, "", True), new.stderr
    assert hub.ask(of_person, "/bedplate/whoami")[0] == 200


def test_an_instance_that_is_lost_needs_no_operator(hub: WholeHub, laptop: Laptop) -> None:
    """Its successor finds the volume: same host key, certificate and tokens, and every record."""
    run, token = hub.record("grace-1127-kept"), hub.token()
    runs, read = hub.runs, hub.read(run)
    laptop.bp("runs")

    replace_machine(hub.machine)

    assert hub.ask(token, f"{API}/runs/get?run_id={run}")[0] == 200
    assert (hub.runs, hub.read(run)) == (runs, read)
    listed = laptop.bp("runs")
    assert (listed.returncode, "grace-1127-kept" in listed.stdout) == (0, True), listed.stderr
    assert [check for check in laptop.checks().values() if not check["ok"]] == []
    assert hub.operator("hub", "status").returncode in {0, 3}


def test_a_lost_volume_comes_back_by_one_command(hub: WholeHub, laptop: Laptop) -> None:
    """All runs up to the last backup are there with packs and logs, and archives of people stay valid."""
    run, token = hub.record("grace-1127-saved"), hub.token()
    runs, read = hub.runs, hub.read(run)
    hub.node.run("systemctl start bedplate-hub-backup", seconds=600)
    hub.record("grace-1127-after")
    replace_machine(hub.machine, is_volume_lost=True)
    lock = hub.machine.fleet.fleet.with_name("fleet.lock")
    before = lock.read_text()
    hub.machine.fleet.trust(hub.node)
    empty = json.loads(hub.operator("hub", "status", "--json").stdout)

    done = hub.operator("hub", "restore", "--yes")
    # The former host key is back.
    lock.write_text(before)

    assert done.returncode == 0, done.stdout + done.stderr
    assert empty["runs"] == "0"
    assert (hub.runs, hub.read(run)) == (runs, read)
    assert hub.ask(token, f"{API}/runs/get?run_id={run}")[0] == 200
    listed = laptop.bp("runs")
    assert (listed.returncode, "grace-1127-saved" in listed.stdout) == (0, True), listed.stderr
    assert [check for check in laptop.checks().values() if not check["ok"]] == []
    assert hub.operator("hub", "status").returncode in {0, 3}
