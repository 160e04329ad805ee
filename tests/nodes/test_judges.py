"""What ssh-audit, lynis and OpenSCAP say of a machine before and after its roles (docs/judges-nodes.md)."""

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass

import pytest

from tests.testlab.machines.judges import PROFILE, PROGRAMS, Judgement, content, judgement
from tests.testlab.machines.lab import recorded_lab
from tests.testlab.machines.layers import APT_GET, APT_INSTALL
from tests.testlab.machines.operator import ROOT, Operator
from tests.testlab.machines.stand import Node, Stand
from tests.testlab.run import need_program

pytestmark = pytest.mark.nightly

PAGE = ROOT / "docs" / "judges-nodes.md"
POLICY = "Hardened Debian 12 (version 2)"
# What Ubuntu's image has and Debian's smallest root has not, and the two judges that look from within.
TOOLS = "cron rsyslog linux-base lynis openscap-scanner"
RELEASE = "DISTRIB_ID=Ubuntu\nDISTRIB_RELEASE=24.04\nDISTRIB_CODENAME=noble\n"


@dataclass(frozen=True)
class Seen:
    """What each judge says of a machine at one time."""

    policy: str
    audit: Mapping[str, object]
    lynis: int
    cis: Judgement


@pytest.fixture(scope="module")
def node(stand: Stand) -> Node:
    """Give a file server that has the judges' tools and nothing else."""
    need_program(str(ROOT / PROGRAMS / "ssh-audit"))
    node = stand.boot("nas.cellar", "192.168.40.5")
    install = f"DEBIAN_FRONTEND=noninteractive {shlex.join(APT_INSTALL)} {TOOLS}"
    node.run(f"{shlex.join(APT_GET)} update && {install}", seconds=600)
    return node


@pytest.fixture(scope="module")
def fresh(node: Node) -> Seen:
    """Give what is said of the machine as it comes."""
    return _seen(node)


@pytest.fixture(scope="module")
def hardened(node: Node, stand: Stand, fresh: Seen) -> Seen:
    """Give what is said of it once its roles are applied."""
    done = Operator(stand, recorded_lab(stand.folder, stand.public)).apply(node.name)
    assert done.returncode == 0, done.stdout + done.stderr
    assert node.ssh("sudo bedplate-trial confirm").stdout.strip() == "nothing to confirm"
    return _seen(node)


def test_ssh_audit_finds_no_fault(fresh: Seen, hardened: Seen) -> None:
    """The policy is passed and no algorithm is a failure; a machine as it comes has both."""
    assert "Failed" in fresh.policy
    assert _failures(fresh.audit)
    assert "Passed" in hardened.policy
    assert _failures(hardened.audit) == []


def test_lynis_counts_eighty(fresh: Seen, hardened: Seen) -> None:
    """The index is at least 80 of 100, and was well below."""
    assert fresh.lynis < 70
    assert hardened.lynis >= 80


def test_cis_level_1_scores_eighty_five(fresh: Seen, hardened: Seen) -> None:
    """The score is at least 85 of 100, and was below."""
    assert fresh.cis.score < 80
    assert hardened.cis.score >= 85


def test_each_failure_that_is_left_has_its_reason(fresh: Seen, hardened: Seen) -> None:
    """No rule fails but those of the page; a machine as it comes fails others too."""
    known = _reasons(PAGE.read_text())

    assert fresh.cis.failed - set(known)
    assert {rule: hardened.cis.results.get(rule) for rule in hardened.cis.failed ^ set(known)} == {}


def _seen(node: Node) -> Seen:
    audit = (str(ROOT / PROGRAMS / "ssh-audit"), str(node.address))
    policy = node.desk.run(audit[0], "--no-colors", "--policy", POLICY, audit[1]).stdout
    told = json.loads(node.desk.run(audit[0], "--json", audit[1]).stdout)
    node.run("lynis audit system --quick --no-colors --quiet", seconds=600)
    index = node.run("grep ^hardening_index= /var/log/lynis-report.dat")
    return Seen(policy, told, int(index.partition("=")[2]), _scanned(node))


def _scanned(node: Node) -> Judgement:
    """Let OpenSCAP look, with the name of a release that its content knows."""
    found = content()
    (node.root / "root/content.xml").write_bytes(found.read_bytes())
    shim = node.root / "etc/lsb-release"
    shim.write_text(RELEASE)
    # Status 2: some rules fail.
    node.run(f"oscap xccdf eval --profile {PROFILE} --results /root/found.xml /root/content.xml || [ $? -eq 2 ]", 600)
    shim.unlink()
    return judgement((node.root / "root/found.xml").read_text())


def _failures(told: Mapping[str, object]) -> list[str]:
    """Return the algorithms with which ssh-audit finds a fault that it calls a failure."""
    kinds = [each for kind in ("kex", "key", "enc", "mac") for each in _list(told[kind])]
    return [str(each["algorithm"]) for each in kinds if each.get("notes", {}).get("fail")]


def _list(found: object) -> list[dict[str, dict[str, object]]]:
    assert isinstance(found, list)
    return found


def _reasons(page: str) -> dict[str, str]:
    """Return the reason of each rule that is expected to fail."""
    return dict(re.findall(r"^\| `([\w-]+)` \| (\S.+) \|$", page, re.MULTILINE))
