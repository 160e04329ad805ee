"""Other people's judges, run as programs on files: they see what an operator's own policy tools would see."""

import fcntl
import hashlib
import json
import os
import re
import subprocess
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from bedplate.graph.audit.document import kind_of
from bedplate.graph.terraform import plan_document
from tests.testlab.machines.container import call
from tests.testlab.machines.layers import APT_GET, mirror_here
from tests.testlab.run import need_program

ROOT = Path(__file__).parents[3]
PROGRAMS = Path(".venv-judges/bin")  # from the root, where `make judge` sets them up
_ANY_ROLE = "arn:aws:iam::111122223333:role/this-one"


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """What a judge says of one thing; `file` is the name of the file that holds it, without its ending."""

    check: str
    where: str
    says: str
    file: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a judge found wrong and, where it says so, right; `seen` counts the resources that it looked at."""

    failed: tuple[Finding, ...]
    passed: tuple[Finding, ...] = ()
    seen: int = 0
    unread: int = 0


def checkov(folder: Path) -> Verdict:
    """Let checkov judge every Terraform plan in a folder; it has no severities without a network: all count."""
    options = ["--framework", "terraform_plan", "--skip-download", "--output", "json", "--compact"]
    told: dict[str, Any] = json.loads(_told("checkov", "--directory", str(folder), *options))
    results, summary = told["results"], told["summary"]
    return Verdict(
        failed=tuple(_checkov_findings(results["failed_checks"])),
        passed=tuple(_checkov_findings(results["passed_checks"])),
        seen=summary["resource_count"],
        unread=summary["parsing_errors"],
    )


def policies_of(graph: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return every policy of a graph, whatever holds it, by stack, type and name."""
    held = ((node, node["inputs"].get(key)) for node in graph for key in ("policy", "assumeRolePolicy"))
    return {
        f"{node['urn'].split(':')[2]}.{kind_of(node['type'])}.{node['name']}": json.loads(told)
        for node, told in held
        if told
    }


def written(folder: Path, graphs: Mapping[str, list[dict[str, Any]]]) -> Path:
    """Write graphs into a folder as Terraform plans, by their names."""
    for name, graph in graphs.items():
        (folder / f"{name}.json").write_text(json.dumps(plan_document(graph)), encoding="utf-8")
    return folder


def _checkov_findings(rows: list[dict[str, Any]]) -> Iterator[Finding]:
    for row in rows:
        yield Finding(row["check_id"], row["resource"], row["check_name"], Path(row["file_path"]).stem)


def parliament(policies: Mapping[str, Mapping[str, Any]], folder: Path) -> Verdict:
    """Let parliament judge policies by their names: grammar, actions, resources, conditions, ways to more rights."""
    for name, policy in policies.items():
        (folder / f"{name}.json").write_text(json.dumps(_readable(policy)), encoding="utf-8")
    options = ["--include_policy_extension", "json", "--include-community-auditors", "--json"]
    lines = _told("parliament", "--directory", str(folder), *options).splitlines()
    found = {_parliament_finding(json.loads(line)) for line in lines}
    return Verdict(failed=tuple(sorted(found)), seen=len(policies))


def _parliament_finding(row: dict[str, Any]) -> Finding:
    detail, policy = row["detail"], Path(row["location"]["filepath"]).stem
    return Finding(row["issue"], policy, detail if detail and isinstance(detail, str) else row["title"], policy)


def _readable(policy: Mapping[str, Any]) -> dict[str, Any]:
    """Return a policy as parliament 1.6.4 can read it; to IAM it means the same.

    It wants a resource in every statement, which a trust policy has none of, and stumbles over a condition whose one
    value stands in a list.
    """
    statements = policy["Statement"] if isinstance(policy["Statement"], list) else [policy["Statement"]]
    return {**policy, "Statement": [_statement(each) for each in statements]}


def _statement(told: Mapping[str, Any]) -> dict[str, Any]:
    conditions = {
        operator: {key: _alone(value) for key, value in tests.items()}
        for operator, tests in told.get("Condition", {}).items()
    }
    is_trust = "Principal" in told and not {"Resource", "NotResource"} & told.keys()
    return {
        **told,
        **({"Condition": conditions} if conditions else {}),
        **({"Resource": _ANY_ROLE} if is_trust else {}),
    }


def _alone(value: object) -> object:
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def _told(program: str, *arguments: str) -> str:
    """Return what a judge prints; a finding is its exit status 1, anything else is its own fault."""
    need_program(str(PROGRAMS / program))
    ended = subprocess.run([str(PROGRAMS / program), *arguments], capture_output=True, check=False, text=True, cwd=ROOT)
    assert ended.returncode in {0, 1}, ended.stderr
    return ended.stdout


PAGE = Path(__file__).parents[3] / "docs" / "judges.md"


@dataclass(frozen=True, slots=True)
class Listed:
    """A finding that is lived with; `where` and `says` are patterns."""

    check: str
    where: str
    says: str
    reason: str

    def covers(self, finding: Finding) -> bool:
        """Whether a finding is this one."""
        told = (finding.where, self.where), (finding.says, self.says)
        return finding.check == self.check and all(fnmatchcase(said, _pattern(form)) for said, form in told)


def _pattern(form: str) -> str:
    """Return a pattern in which the star alone stands for anything."""
    return form.replace("[", "[[]").replace("?", "[?]")


def listed(judge: str, page: str | None = None) -> tuple[Listed, ...]:
    """Return what is listed of a judge."""
    text = PAGE.read_text(encoding="utf-8") if page is None else page
    part = text.partition(f"### {judge}\n")[2]
    rows = re.findall(r"^\|(.+)\|$", part.partition("\n##")[0], re.MULTILINE)
    return tuple(Listed(*(cell.strip().strip("`") for cell in row.split("|"))) for row in rows[2:])


def unlisted(findings: Iterable[Finding], rows: Iterable[Listed]) -> list[Finding]:
    """Return what was found and is not listed."""
    known = tuple(rows)
    return [finding for finding in findings if not any(row.covers(finding) for row in known)]


def unfound(findings: Iterable[Finding], rows: Iterable[Listed]) -> list[Listed]:
    """Return what is listed and was not found."""
    told = tuple(findings)
    return [row for row in rows if not any(row.covers(finding) for finding in told)]


_PACKAGE, _VERSION = "ssg-debderived", "0.1.76-1"
_SHA256 = "dd41637d94ac0f9f3cb5cbb41a6ce17d8f0739673291bdb1763c3f16bc8dbee7"
_CONTENT = "usr/share/xml/scap/ssg/content/ssg-ubuntu2404-ds.xml"
_KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
_PREFIX = "xccdf_org.ssgproject.content_"
PROFILE = f"{_PREFIX}profile_cis_level1_server"
_NAMES = {"x": "http://checklists.nist.gov/xccdf/1.2"}


@dataclass(frozen=True, slots=True)
class Judgement:
    """The score of a profile, of 100, and what became of each rule that was judged."""

    score: float
    results: Mapping[str, str]

    @property
    def failed(self) -> frozenset[str]:
        """The rules that are not kept, or that could not be judged."""
        return frozenset(rule for rule, result in self.results.items() if result in {"fail", "error", "unknown"})


def content() -> Path:
    """Return the content of Ubuntu 24.04; fetches it where it is missing. Raises CommandError."""
    folder = Path(os.environ.get("XDG_CACHE_HOME", "/var/cache")) / "bedplate" / f"{_PACKAGE}-{_VERSION}"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / _CONTENT).exists():
            call("dpkg-deb", "--extract", str(_package(folder)), str(folder), seconds=120)
    return folder / _CONTENT


def judgement(results: str) -> Judgement:
    """Read what the scanner wrote."""
    found = ET.fromstring(results).find(".//x:TestResult", _NAMES)  # noqa: S314  # our own scanner's text
    assert found is not None, "the scanner judged nothing"
    score = found.findtext("x:score", namespaces=_NAMES)
    assert score is not None
    rules = {
        each.attrib["idref"].removeprefix(f"{_PREFIX}rule_"): str(each.findtext("x:result", namespaces=_NAMES))
        for each in found.findall("x:rule-result", _NAMES)
    }
    return Judgement(float(score), rules)


def _package(folder: Path) -> Path:
    """Fetch the package by an apt that has one source and keeps its lists here."""
    state = folder / "apt"
    for name in ("lists/partial", "cache/archives/partial", "parts"):
        (state / name).mkdir(parents=True, exist_ok=True)
    (state / "sources.list").write_text(f"deb [signed-by={_KEYRING}] {mirror_here().debian} trixie main\n")
    own = (
        f"-oDir::Etc::SourceList={state / 'sources.list'}",
        f"-oDir::Etc::SourceParts={state / 'parts'}",
        f"-oDir::State::Lists={state / 'lists'}",
        f"-oDir::Cache={state / 'cache'}",
        "-oAPT::Sandbox::User=root",
    )
    call(*APT_GET, *own, "update", seconds=300)
    call("env", "--chdir", str(folder), *APT_GET, *own, "download", f"{_PACKAGE}={_VERSION}", seconds=300)
    package = folder / f"{_PACKAGE}_{_VERSION}_all.deb"
    assert hashlib.sha256(package.read_bytes()).hexdigest() == _SHA256, f"{package} is another than the one known"
    return package
