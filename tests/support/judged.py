"""Other people's judges, run as programs on files: they see what an operator's own policy tools would see."""

import json
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bedplate.audit.node import kind_of
from bedplate.terraform.plan import plan_document
from tests.support.needs import need_program

ROOT = Path(__file__).parents[2]
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
