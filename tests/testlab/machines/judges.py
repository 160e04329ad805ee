"""External policy scanners, as an operator would run them: checkov, parliament, and OpenSCAP's content for Ubuntu."""

import fcntl
import hashlib
import json
import re
import subprocess
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from bedplate.graph.audit.document import kind_of
from tests.testlab.machines.container import call
from tests.testlab.machines.layers import APT_GET, CACHE, mirror_here
from tests.testlab.rehearsal.terraform import plan_document
from tests.testlab.run import need_program

ROOT = Path(__file__).parents[3]
PROGRAMS = Path(".venv-judges/bin")  # `make judge` installs them
_ANY_ROLE = "arn:aws:iam::111122223333:role/this-one"


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """A finding of a scanner about a resource; `file` is the name of the scanned file, without its suffix."""

    check: str
    where: str
    says: str
    file: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """Failed and, if the scanner reports them, passed checks; `seen` counts the scanned resources."""

    failed: tuple[Finding, ...]
    passed: tuple[Finding, ...] = ()
    seen: int = 0
    unread: int = 0


def checkov(folder: Path) -> Verdict:
    """Scan all Terraform plans of a folder with checkov; all findings count, as severities need a network."""
    options = ["--framework", "terraform_plan", "--skip-download", "--output", "json", "--compact"]
    report: dict[str, Any] = json.loads(_output("checkov", "--directory", str(folder), *options))
    results, summary = report["results"], report["summary"]
    return Verdict(
        failed=tuple(_checkov_findings(results["failed_checks"])),
        passed=tuple(_checkov_findings(results["passed_checks"])),
        seen=summary["resource_count"],
        unread=summary["parsing_errors"],
    )


def policies_of(graph: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return all policies in a graph, by stack, type and name of their resource."""
    policies = ((node, node["inputs"].get(key)) for node in graph for key in ("policy", "assumeRolePolicy"))
    return {
        f"{node['urn'].split(':')[2]}.{kind_of(node['type'])}.{node['name']}": json.loads(policy)
        for node, policy in policies
        if policy
    }


def write_plans(folder: Path, graphs: Mapping[str, list[dict[str, Any]]]) -> Path:
    """Write graphs into a folder as Terraform plans; return the folder."""
    for name, graph in graphs.items():
        (folder / f"{name}.json").write_text(json.dumps(plan_document(graph)), encoding="utf-8")
    return folder


def _checkov_findings(rows: list[dict[str, Any]]) -> Iterator[Finding]:
    for row in rows:
        yield Finding(row["check_id"], row["resource"], row["check_name"], Path(row["file_path"]).stem)


def parliament(policies: Mapping[str, Mapping[str, Any]], folder: Path) -> Verdict:
    """Scan policies with parliament: grammar, actions, resources, conditions and privilege escalation."""
    for name, policy in policies.items():
        (folder / f"{name}.json").write_text(json.dumps(_readable(policy)), encoding="utf-8")
    options = ["--include_policy_extension", "json", "--include-community-auditors", "--json"]
    lines = _output("parliament", "--directory", str(folder), *options).splitlines()
    findings = {_parliament_finding(json.loads(line)) for line in lines}
    return Verdict(failed=tuple(sorted(findings)), seen=len(policies))


def _parliament_finding(row: dict[str, Any]) -> Finding:
    detail, policy = row["detail"], Path(row["location"]["filepath"]).stem
    return Finding(row["issue"], policy, detail if detail and isinstance(detail, str) else row["title"], policy)


def _readable(policy: Mapping[str, Any]) -> dict[str, Any]:
    """Return an equivalent policy that parliament 1.6.4 can read.

    parliament requires a resource in each statement, which trust policies lack, and fails if a condition has its only
    value in a list.
    """
    statements = policy["Statement"] if isinstance(policy["Statement"], list) else [policy["Statement"]]
    return {**policy, "Statement": [_statement(statement) for statement in statements]}


def _statement(statement: Mapping[str, Any]) -> dict[str, Any]:
    conditions = {
        operator: {key: _single(value) for key, value in tests.items()}
        for operator, tests in statement.get("Condition", {}).items()
    }
    is_trust = "Principal" in statement and not {"Resource", "NotResource"} & statement.keys()
    return {
        **statement,
        **({"Condition": conditions} if conditions else {}),
        **({"Resource": _ANY_ROLE} if is_trust else {}),
    }


def _single(value: object) -> object:
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def _output(program: str, *arguments: str) -> str:
    """Return the output of a scanner; exit code 1 means findings, a higher one is an error."""
    need_program(str(PROGRAMS / program))
    done = subprocess.run([str(PROGRAMS / program), *arguments], capture_output=True, check=False, text=True, cwd=ROOT)
    assert done.returncode in {0, 1}, done.stderr
    return done.stdout


PAGE = ROOT / "docs" / "judges.md"


@dataclass(frozen=True, slots=True)
class AcceptedFinding:
    """An accepted finding with its reason; `where` and `says` are patterns."""

    check: str
    where: str
    says: str
    reason: str

    def covers(self, finding: Finding) -> bool:
        """Return whether a finding matches."""
        pairs = (finding.where, self.where), (finding.says, self.says)
        return finding.check == self.check and all(fnmatchcase(text, _pattern(form)) for text, form in pairs)


def _pattern(form: str) -> str:
    """Return an fnmatch pattern in which only the star is special."""
    return form.replace("[", "[[]").replace("?", "[?]")


def accepted_findings(judge: str, page: str | None = None) -> tuple[AcceptedFinding, ...]:
    """Return the accepted findings of a scanner, from docs/judges.md or a given page."""
    text = PAGE.read_text(encoding="utf-8") if page is None else page
    section = text.partition(f"### {judge}\n")[2]
    rows = re.findall(r"^\|(.+)\|$", section.partition("\n##")[0], re.MULTILINE)
    return tuple(AcceptedFinding(*(cell.strip().strip("`") for cell in row.split("|"))) for row in rows[2:])


def unaccepted_findings(findings: Iterable[Finding], rows: Iterable[AcceptedFinding]) -> list[Finding]:
    """Return the findings that are not accepted."""
    accepted = tuple(rows)
    return [finding for finding in findings if not any(row.covers(finding) for row in accepted)]


def obsolete_acceptances(findings: Iterable[Finding], rows: Iterable[AcceptedFinding]) -> list[AcceptedFinding]:
    """Return the accepted findings that no longer occur."""
    present = tuple(findings)
    return [row for row in rows if not any(row.covers(finding) for finding in present)]


_PACKAGE, _VERSION = "ssg-debderived", "0.1.76-1"
_SHA256 = "dd41637d94ac0f9f3cb5cbb41a6ce17d8f0739673291bdb1763c3f16bc8dbee7"
_CONTENT = "usr/share/xml/scap/ssg/content/ssg-ubuntu2404-ds.xml"
_KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
_PREFIX = "xccdf_org.ssgproject.content_"
PROFILE = f"{_PREFIX}profile_cis_level1_server"
_NAMES = {"x": "http://checklists.nist.gov/xccdf/1.2"}


@dataclass(frozen=True, slots=True)
class ScanResult:
    """The score of an OpenSCAP profile, at most 100, and the result of each rule."""

    score: float
    results: Mapping[str, str]

    @property
    def failed(self) -> frozenset[str]:
        """The rules that failed, or that could not be checked."""
        return frozenset(rule for rule, result in self.results.items() if result in {"fail", "error", "unknown"})


def scap_content() -> Path:
    """Return OpenSCAP's content for Ubuntu 24.04, downloaded if missing. Raises CommandError."""
    folder = CACHE / f"{_PACKAGE}-{_VERSION}"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / _CONTENT).exists():
            call("dpkg-deb", "--extract", str(_package(folder)), str(folder), seconds=120)
    return folder / _CONTENT


def parse_scan(results: str) -> ScanResult:
    """Parse the scanner's results file."""
    test_result = ET.fromstring(results).find(".//x:TestResult", _NAMES)  # noqa: S314  # our own scanner's text
    assert test_result is not None, "the scanner has no result"
    score = test_result.findtext("x:score", namespaces=_NAMES)
    assert score is not None
    rules = {
        result.attrib["idref"].removeprefix(f"{_PREFIX}rule_"): str(result.findtext("x:result", namespaces=_NAMES))
        for result in test_result.findall("x:rule-result", _NAMES)
    }
    return ScanResult(float(score), rules)


def _package(folder: Path) -> Path:
    """Download the package with an apt whose only source is Debian trixie, and whose lists are in the folder."""
    state, mirror = folder / "apt", mirror_here()
    for name in ("lists/partial", "cache/archives/partial", "parts"):
        (state / name).mkdir(parents=True, exist_ok=True)
    (state / "sources.list").write_text(f"deb [signed-by={_KEYRING}] {mirror.debian} trixie main\n")
    options = (
        f"-oDir::Etc::SourceList={state / 'sources.list'}",
        f"-oDir::Etc::SourceParts={state / 'parts'}",
        f"-oDir::State::Lists={state / 'lists'}",
        f"-oDir::Cache={state / 'cache'}",
        "-oAPT::Sandbox::User=root",
    )
    download = ("env", "--chdir", str(folder), *APT_GET, *options, "download", f"{_PACKAGE}={_VERSION}")
    call(*APT_GET, *options, "update", seconds=300, env=mirror.environment)
    call(*download, seconds=300, env=mirror.environment)
    package = folder / f"{_PACKAGE}_{_VERSION}_all.deb"
    assert hashlib.sha256(package.read_bytes()).hexdigest() == _SHA256, f"{package} has another checksum than expected"
    return package
