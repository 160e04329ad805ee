"""What this machine and the AWS account lack for the commands of bedplate."""

import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from shutil import which
from types import MappingProxyType

from bedplate.account.client import AwsClient, Denied, Unreachable, require_all
from bedplate.account.facts import read_quotas
from bedplate.deploy.engine import open_engine
from bedplate.errors import BedplateError, InputError, MachineError, PartialError, ViolationError
from bedplate.folder.files import backend_url
from bedplate.nodes.host_keys import PLUGIN, check_plugin
from bedplate.operate import Operator, Result, open_account, plan_of
from bedplate.plan import FleetPlan
from bedplate.plan.cost import quota_needs
from bedplate.report.columns import counted
from bedplate.report.cost import unmet_needs
from bedplate.rounds import ask_within

# The option that prints the version, and what needs the program.
_PROGRAMS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "ssh": ("-V", "up, ssh, node, vpn, kube"),
        PLUGIN: ("--version", "up, ssh and node without a VPN"),
        "git": ("--version", "init, and the history of the fleet folder"),
        "gpg": ("--version", "catalog refresh"),
        "openvpn": ("--version", "a laptop in the VPN"),
    }
)
_OPTIONAL = ("git", "gpg", "openvpn")
"""`up` does without these."""
# One or two of each service that the stacks need.
_RIGHTS = (
    *("autoscaling:CreateAutoScalingGroup", "ec2:CreateVpc", "ec2:RunInstances", "iam:CreateRole", "iam:PassRole"),
    *("kms:CreateKey", "logs:CreateLogGroup", "route53:CreateHostedZone", "s3:CreateBucket", "ssm:PutParameter"),
)


def examine(operator: Operator, seconds: float, began: float) -> Result:
    """Return what is there, missing and unknown; the exit status is 4 if `up` lacks something, else 6 if unknown."""
    plan = plan_of(operator)
    checks: dict[str, Callable[[], str]] = {
        **{name: partial(_program, name) for name in _PROGRAMS},
        "pulumi": partial(_pulumi, operator.fleet.absolute().parent),
        "credentials": lambda: _credentials(open_account(plan), plan),
        "rights": lambda: _rights(open_account(plan), plan),
        "quotas": lambda: _quotas(open_account(plan), plan),
    }
    answers, errors = ask_within(checks, seconds, began)
    if "credentials" in errors:
        errors |= dict.fromkeys(("rights", "quotas"), PartialError("unknown without credentials"))
    rows = {name: _row(answers.get(name, ""), errors.get(name)) for name in checks}
    needed = {row["state"] for name, row in rows.items() if name not in _OPTIONAL}
    code = MachineError.exit_code if _MISSING in needed else PartialError.exit_code if _UNKNOWN in needed else 0
    return Result(_lines(rows), rows, code)


_MISSING, _UNKNOWN = "missing", "unknown"


def _row(answer: str, error: BedplateError | None) -> dict[str, str]:
    if error is None:
        return {"state": "ok", "what": answer, "fix": ""}
    is_known = isinstance(error, InputError | MachineError | ViolationError)
    state = _MISSING if is_known and not isinstance(error, Denied | Unreachable) else _UNKNOWN
    return {"state": state, "what": error.what, "fix": error.fix}


def _lines(rows: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    for name, row in rows.items():
        yield f"{row['state']:<8} {name:<23} {row['what']}"
        yield from (f"  fix  {row['fix']}",) if row["fix"] else ()


def _program(name: str) -> str:
    option, purpose = _PROGRAMS[name]
    if name == PLUGIN:
        check_plugin()
    if which(name) is None:
        raise MachineError(f"not installed: {purpose}", fix=f"install {name} from the packages of your system")
    version = re.search(r"\d[.\d]+\w*", _output(name, option))
    return f"{version[0] if version else 'unknown version'}: {purpose}"


def _output(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)  # noqa: S603  constant
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PartialError(f"`{' '.join(command)}` gives no answer: {error}") from None
    return done.stdout or done.stderr


def _pulumi(folder: Path) -> str:
    engine = open_engine(folder)
    if not backend_url(folder) and not engine.has_login():
        raise InputError("there is no backend for the state", fix="run `bedplate backend init`, or `up`, which asks")
    return f"{engine.command.version}: up, preview, refresh, destroy; its backend is configured"


def _credentials(client: AwsClient, plan: FleetPlan) -> str:
    """Return whose they are."""
    return str(client.call("sts", plan.home.name, "get_caller_identity")["Arn"])


def _rights(client: AwsClient, plan: FleetPlan) -> str:
    """Return that IAM allows what a deployment needs. Raises BedplateError if not, or if IAM may not be asked."""
    source: str = client.call("sts", plan.home.name, "get_caller_identity")["Arn"]
    if ":assumed-role/" in source:
        source = client.call("iam", plan.home.name, "get_role", RoleName=source.split("/")[1])["Role"]["Arn"]
    query = {"PolicySourceArn": source, "ActionNames": list(_RIGHTS)}
    results = client.call("iam", plan.home.name, "simulate_principal_policy", **query)["EvaluationResults"]
    if denied := [result["EvalActionName"] for result in results if result["EvalDecision"] != "allowed"]:
        fix = "add the permissions of a deployer, docs/aws-account.md of bedplate"
        raise MachineError(f"not allowed: {', '.join(denied)}", fix=fix)
    return f"{counted(len(results), 'action')} of a deployment allowed"


def _quotas(client: AwsClient, plan: FleetPlan) -> str:
    needs = quota_needs(plan, plan.catalog)
    answers = require_all(read_quotas(client, needs), "quotas unknown")
    granted = {key: value for values in answers.values() for key, value in values.items()}
    if unmet := unmet_needs(needs, granted):
        names = ", ".join(f"{need.quota.name} in {need.region}" for need in unmet)
        raise MachineError(f"too small for the minimum: {names}", fix="`bedplate quotas` prints the requests")
    if unknown := sum((need.region, need.quota.code) not in granted for need in needs):
        raise PartialError(f"AWS does not say {counted(unknown, 'quota')}", fix="run `bedplate quotas`")
    return "enough for the minimum of machines"
