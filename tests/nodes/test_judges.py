"""Results of ssh-audit, lynis and OpenSCAP for a node before and after its roles (docs/judges-nodes.md)."""

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass

import pytest

from tests.testlab.machines.judges import PROFILE, PROGRAMS, ScanResult, parse_scan, scap_content
from tests.testlab.machines.lab import write_recorded_fleet
from tests.testlab.machines.layers import APT_GET, APT_INSTALL, RELEASE
from tests.testlab.machines.node_lab import Node, NodeLab
from tests.testlab.machines.operator import ROOT, Operator
from tests.testlab.run import need_program

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(RELEASE != "bookworm", reason="docs/judges-nodes.md has the results of Debian 12"),
]

PAGE = ROOT / "docs" / "judges-nodes.md"
POLICY = "Hardened Debian 12 (version 2)"
# Packages of Ubuntu's image that the Debian root lacks, and the two scanners that run on the node.
TOOLS = "cron rsyslog linux-base lynis openscap-scanner"
NOBLE = "DISTRIB_ID=Ubuntu\nDISTRIB_RELEASE=24.04\nDISTRIB_CODENAME=noble\n"


@dataclass(frozen=True)
class ScanResults:
    """The results of all scanners for a node."""

    policy: str
    audit: Mapping[str, object]
    lynis: int
    cis: ScanResult


@pytest.fixture(scope="module")
def node(node_lab: NodeLab) -> Node:
    """Return a file server with the scanners, and without roles."""
    need_program(str(ROOT / PROGRAMS / "ssh-audit"))
    node = node_lab.boot("nas.cellar", "192.168.40.5")
    install = f"DEBIAN_FRONTEND=noninteractive {shlex.join(APT_INSTALL)} {TOOLS}"
    node.run(f"{shlex.join(APT_GET)} update && {install}", seconds=600)
    return node


@pytest.fixture(scope="module")
def fresh(node: Node) -> ScanResults:
    """Return the results for the fresh node."""
    return _scan(node)


@pytest.fixture(scope="module")
def hardened(node: Node, node_lab: NodeLab, fresh: ScanResults) -> ScanResults:
    """Return the results after the roles are applied."""
    done = Operator(node_lab, write_recorded_fleet(node_lab.folder, node_lab.public)).apply(node.name)
    assert done.returncode == 0, done.stdout + done.stderr
    assert node.ssh("sudo bedplate-trial confirm").stdout.strip() == "nothing to confirm"
    return _scan(node)


def test_ssh_audit_finds_no_failure(fresh: ScanResults, hardened: ScanResults) -> None:
    """After the roles, ssh-audit's policy passes and no algorithm is a failure; a fresh node has both."""
    assert "Failed" in fresh.policy
    assert _failures(fresh.audit)
    assert "Passed" in hardened.policy
    assert _failures(hardened.audit) == []


def test_lynis_index_is_at_least_80(fresh: ScanResults, hardened: ScanResults) -> None:
    """After the roles, lynis's hardening index is at least 80; on a fresh node it is below 70."""
    assert fresh.lynis < 70
    assert hardened.lynis >= 80


def test_cis_level_1_score_is_at_least_85(fresh: ScanResults, hardened: ScanResults) -> None:
    """After the roles, OpenSCAP's score for CIS level 1 is at least 85; on a fresh node it is below 80."""
    assert fresh.cis.score < 80
    assert hardened.cis.score >= 85


def test_remaining_failures_are_documented(fresh: ScanResults, hardened: ScanResults) -> None:
    """The rules that still fail are those of docs/judges-nodes.md; a fresh node fails others."""
    documented = set(_reasons(PAGE.read_text()))

    assert fresh.cis.failed - documented
    assert {rule: hardened.cis.results.get(rule) for rule in hardened.cis.failed ^ documented} == {}


def _scan(node: Node) -> ScanResults:
    program, address = str(ROOT / PROGRAMS / "ssh-audit"), str(node.address)
    policy = node.workstation.run(program, "--no-colors", "--policy", POLICY, address).stdout
    audit_report = json.loads(node.workstation.run(program, "--json", address).stdout)
    node.run("lynis audit system --quick --no-colors --quiet", seconds=600)
    index = node.run("grep ^hardening_index= /var/log/lynis-report.dat")
    return ScanResults(policy, audit_report, int(index.partition("=")[2]), _scanned(node))


def _scanned(node: Node) -> ScanResult:
    """Run OpenSCAP, with the release name of its content in /etc/lsb-release."""
    (node.root / "root/content.xml").write_bytes(scap_content().read_bytes())
    shim = node.root / "etc/lsb-release"
    shim.write_text(NOBLE)
    # Exit code 2 means that some rules fail.
    node.run(f"oscap xccdf eval --profile {PROFILE} --results /root/found.xml /root/content.xml || [ $? -eq 2 ]", 600)
    shim.unlink()
    return parse_scan((node.root / "root/found.xml").read_text())


def _failures(report: Mapping[str, object]) -> list[str]:
    """Return the algorithms that ssh-audit reports as failures."""
    algorithms = [entry for kind in ("kex", "key", "enc", "mac") for entry in _list(report[kind])]
    return [str(entry["algorithm"]) for entry in algorithms if entry.get("notes", {}).get("fail")]


def _list(value: object) -> list[dict[str, dict[str, object]]]:
    assert isinstance(value, list)
    return value


def _reasons(page: str) -> dict[str, str]:
    """Return the documented reason of each rule that fails."""
    return dict(re.findall(r"^\| `([\w-]+)` \| (\S.+) \|$", page, re.MULTILINE))
