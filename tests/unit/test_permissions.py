"""The policies of deployers and the lists of permissions in docs: the calls of AWS, compared with AWS's own list."""

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import cache

import pytest

from bedplate.account.objects import FINDERS, REPEATABLE
from bedplate.catalog import load_catalog
from bedplate.catalog.catalog import FOLDER, read_data_file
from bedplate.catalog.tables import write_sheet
from bedplate.permissions import Statement
from bedplate.spec.text import LONGEST_FLEET_NAME
from docs.generator.aws_account import (
    LONGEST_POLICY,
    account_page,
    deployer_policies,
    deployer_statements,
    needed_actions,
)
from tests.conftest import DATA
from tests.testlab.calls import ROOT, actions_in, client_actions, matching, read_authorizations

PUBLISHED = read_authorizations((DATA / "permissions" / "authorization.txt").read_text(encoding="utf-8"))
ACTIONS = frozenset(action for needs in needed_actions().values() for action in needs)
STATEMENTS = deployer_statements(ACTIONS)
READ_LEVELS = {"List", "Read"}
# Needs of variants of calls that bedplate does not use: flow logs of ECS, IPv6 of resolvers, quotas of other services.
UNUSED_NEEDS = (
    "ecs:",
    "ec2:*Ipv6Addresses",
    "*:Describe*Limits",
    "*:Describe*Attributes",
    "*:Get*Summary",
    "*:GetAccountLimit",
)
MOST_POLICIES = 10  # managed policies of a role (IAM and STS quotas)


def grant(actions: tuple[str, ...], resources: tuple[str, ...]) -> Statement:
    """Return a statement of a policy."""
    return Statement(sid="", actions=actions, resources=resources)


def faults(statement: Statement) -> Iterator[str]:
    """Yield what AWS would not understand in a statement, or allow for no resource."""
    for pattern in statement.actions:
        actions = [*matching(pattern, PUBLISHED)]
        if not actions:
            yield f"{pattern}: AWS has no such action"
        if "*" in pattern and any(PUBLISHED[action].level not in READ_LEVELS for action in actions):
            yield f"{pattern}: allows more than reads"
        if "*" not in statement.resources:
            yield from (f"{action}: {arn}" for action in actions for arn in _unmatched(action, statement))


def _unmatched(action: str, statement: Statement) -> tuple[str, ...]:
    """Return the resources of a statement if none of them has a format of the action's resources."""
    formats = PUBLISHED[action].arns
    fitting = [arn for arn in statement.resources if any(_fits(arn, form) for form in formats)]
    return () if fitting else statement.resources


def _fits(arn: str, form: str) -> bool:
    """Return whether a pattern of ARNs has the service and the type of resource of a published format."""
    _, _, service, _, _, name = arn.split(":", 5)
    _, _, published, _, _, kind = form.split(":", 5)
    return service == published and name.startswith(kind.partition("${")[0])


def is_allowed(action: str, resource: str) -> bool:
    """Return whether the policies allow an action for an ARN, or for `*`: a call that names no resource."""
    names = {"ACCOUNT": "111122223333", "FLEET": "lab"}
    return any(
        fnmatchcase(action, pattern) and fnmatchcase(resource, re.sub("ACCOUNT|FLEET", lambda m: names[m[0]], arn))
        for statement in STATEMENTS
        for pattern in statement.actions
        for arn in statement.resources
    )


@pytest.mark.parametrize("statement", STATEMENTS, ids=lambda statement: statement.actions[0])
def test_each_action_exists_and_applies_to_a_resource_of_its_statement(statement: Statement) -> None:
    """AWS denies an action whose statement has only resources of other types; it accepts the policy all the same."""
    assert [*faults(statement)] == []


@pytest.mark.parametrize(
    ("statement", "fault"),
    [
        (grant(("ec2:DescribeVpcz",), ("*",)), "ec2:DescribeVpcz: AWS has no such action"),
        (grant(("sns:Unsubscribe",), ("arn:aws:sns:*:1:lab-*",)), "sns:Unsubscribe: arn:aws:sns:*:1:lab-*"),
        (
            grant(("ssm:StartSession",), ("arn:aws:ssm:*:1:parameter/lab/*",)),
            "ssm:StartSession: arn:aws:ssm:*:1:parameter/lab/*",
        ),
        (grant(("s3:Put*",), ("*",)), "s3:Put*: allows more than reads"),
    ],
)
def test_a_wrong_statement_is_found(statement: Statement, fault: str) -> None:
    """An unknown action, an action without a resource type, a resource of another type, a pattern with writes."""
    assert [*faults(statement)] == [fault]


def test_a_right_statement_has_no_fault() -> None:
    """Buckets and their objects have the same pattern."""
    assert not [*faults(grant(("s3:GetObject", "s3:ListBucket"), ("arn:aws:s3:::lab-*",)))]


INSTANCE = "arn:aws:ec2:us-west-2:111122223333:instance/i-0123456789abcdef0"
DOCUMENT = "arn:aws:ssm:us-west-2::document/AWS-"


@pytest.mark.parametrize(
    ("action", "resource"),
    [
        ("cloudwatch:DescribeAlarms", "arn:aws:cloudwatch:us-west-2:111122223333:alarm:*"),
        ("sns:GetSubscriptionAttributes", "*"),
        ("sns:Unsubscribe", "*"),
        ("sns:ListTopics", "*"),
        ("ssm:StartSession", INSTANCE),
        ("ssm:StartSession", f"{DOCUMENT}StartSSHSession"),
        ("ssm:SendCommand", INSTANCE),
        ("ssm:SendCommand", f"{DOCUMENT}RunShellScript"),
        ("ssm:GetCommandInvocation", "*"),
        ("pricing:GetProducts", "*"),
        ("s3:CreateJob", "*"),
        ("ec2:GetConsoleOutput", INSTANCE),
        ("iam:SimulatePrincipalPolicy", "arn:aws:iam::111122223333:role/deployer"),
        ("iam:GetRole", "arn:aws:iam::111122223333:role/deployer"),
    ],
)
def test_a_deployer_may_make_the_calls_of_a_first_deployment(action: str, resource: str) -> None:
    """AWS checks a read of alarms for all alarms, a session for its instance and its document, and others for `*`."""
    assert is_allowed(action, resource)


@pytest.mark.parametrize(
    ("action", "resource"),
    [
        ("s3:PutObject", "arn:aws:s3:::other-data/key"),
        ("s3:DeleteBucket", "*"),
        ("iam:PutRolePolicy", "arn:aws:iam::111122223333:role/admin"),
        ("ssm:GetParameter", "arn:aws:ssm:us-west-2:111122223333:parameter/other/secret"),
        ("ssm:StartSession", f"{DOCUMENT}StartInteractiveCommand"),
        ("secretsmanager:GetSecretValue", "arn:aws:secretsmanager:us-west-2:111122223333:secret:other"),
        ("cloudwatch:DeleteAlarms", "arn:aws:cloudwatch:us-west-2:111122223333:alarm:other"),
        ("iam:CreateUser", "*"),
    ],
)
def test_a_deployer_may_not_change_what_has_another_name(action: str, resource: str) -> None:
    """Where AWS has resources with names, the policies allow those of the fleet only."""
    assert not is_allowed(action, resource)


def test_actions_that_others_need_are_allowed() -> None:
    """AWS checks some calls with several actions, such as `iam:PassRole` for the role of an instance."""
    needs = {need for action in ACTIONS for need in PUBLISHED[action].needs}
    unused = {need for need in needs for pattern in UNUSED_NEEDS if fnmatchcase(need, f"{pattern}*")}
    allowed = {pattern for statement in STATEMENTS for pattern in statement.actions}

    assert not [need for need in needs - unused if not any(fnmatchcase(need, pattern) for pattern in allowed)]


def test_the_policies_are_within_the_limits_of_iam() -> None:
    """With the longest fleet name each is a managed policy, and one role has all."""
    policies = deployer_policies(ACTIONS)
    longest = [text.replace("ACCOUNT", "0" * 12).replace("FLEET", "f" * LONGEST_FLEET_NAME) for text in policies]

    assert max(len("".join(text.split())) for text in longest) <= LONGEST_POLICY
    assert len(policies) < MOST_POLICIES


def test_the_account_page_is_current() -> None:
    """`make docs` generates it."""
    assert (ROOT / "docs" / "aws-account.md").read_text(encoding="utf-8") == account_page(load_catalog())


def test_every_resource_type_has_its_actions() -> None:
    """The types are those that `recover` knows: all that stacks may create."""
    assert {*FINDERS, *REPEATABLE} == {
        caller for caller in needed_actions() if caller.startswith("aws:") and "/" in caller
    }


def test_every_call_of_a_client_is_in_the_table(request: pytest.FixtureRequest) -> None:
    """The table has the calls of the source; `--rewrite` writes them."""
    sheet = read_data_file("permissions")
    calls = {path: " ".join(sorted(actions)) for path, actions in client_actions().items()}
    if request.config.getoption("--rewrite"):
        others = [row for row in sheet.rows if not row.partition("\t")[0].endswith(".py")]
        rows = (*others, *(f"{path}\t{actions}" for path, actions in calls.items()))
        (FOLDER / "permissions.txt").write_text(write_sheet(sheet.heading, rows), encoding="utf-8")

    assert calls == {path: " ".join(needs) for path, needs in needed_actions().items() if path.endswith(".py")}


@pytest.mark.parametrize(
    ("source", "actions"),
    [
        ('c.call("s3", r, "head_bucket")', {"s3:ListBucket"}),
        ('c.items("efs", r, "describe_file_systems", "FileSystems")', {"elasticfilesystem:DescribeFileSystems"}),
        ('def f(o): c.call("ec2", r, o)\nf("stop_instances")', {"ec2:StopInstances"}),
        ('c.call("s3", r, f"get_{n}")\nf("bucket_policy")', {"s3:GetBucketPolicy"}),
        ('c.read_object(r, "b", "k")', {"s3:GetObject"}),
        (
            'c.call("ec2", r, "delete_tags"); c.call("autoscaling", r, "put_warm_pool")',
            {"ec2:DeleteTags", "autoscaling:PutWarmPool"},
        ),
        ('cluster.call("read the version", f)', set()),
    ],
)
def test_calls_are_found_in_source(source: str, actions: set[str]) -> None:
    """An operation may be a constant, a variable with a constant elsewhere, or made of a prefix and a constant."""
    assert actions_in(source) == actions


# Where an operator reads which permissions the calls of a module need. Only members call the others, with their role.
DOCUMENTED = {
    "bedplate/account/backend.py": ("docs/state.md ## Permissions", "docs/aws-account.md ## Permissions of a deployer"),
    "bedplate/account/bundle.py": (
        "docs/aws-account.md ### Bundles",
        "docs/images.md ## Permissions",
        "docs/hub.md ### Purge",
    ),
    "bedplate/account/capacity.py": ("docs/aws-account.md ### Nodes", "docs/aws-account.md ### Capacity"),
    "bedplate/account/client.py": ("docs/ssh.md ## Permissions", "docs/aws-account.md ### Bundles"),
    "bedplate/account/facts.py": ("docs/aws-account.md ### Facts of the account",),
    "bedplate/account/groups.py": ("docs/aws-account.md ### Capacity",),
    "bedplate/account/machines.py": ("docs/aws-account.md ### Nodes", "docs/aws-account.md ### Capacity"),
    "bedplate/account/objects.py": ("docs/aws-account.md ### Recover",),
    "bedplate/account/session.py": ("docs/ssh.md ## Permissions",),
    "bedplate/account/vpn.py": ("docs/vpn.md", "docs/vpn-keys.md", "docs/vpn-sites.md"),
    "bedplate/operate/containers.py": ("docs/containers.md ### Permissions",),
    "bedplate/operate/hub.py": ("docs/hub.md ### Purge",),
    "bedplate/operate/doctor.py": ("docs/aws-account.md ### Status and doctor", "docs/ssh.md ## Permissions"),
    "bedplate/operate/status.py": ("docs/aws-account.md ### Status and doctor",),
    "images/bake.py": ("docs/images.md ## Permissions",),
    "images/bakes.py": ("docs/images.md ## Permissions",),
    "images/published.py": ("docs/images.md ## Permissions",),
}
MEMBERS_ONLY = {"bedplate/account/workers.py"}


@cache
def listed_actions(place: str) -> frozenset[str]:
    """Return the actions in a page, in a section of it, or in the paragraph that begins with some words."""
    page, _, start = place.partition(" ")
    text = (ROOT / page).read_text(encoding="utf-8")
    begin = text.index(f"\n{start}") + 1 if start else 0
    end = rf"\n#{{2,{len(start.partition(' ')[0])}}} " if start.startswith("##") else r"\n\n"
    part = re.split(end, text[begin:])[0] if start else text
    return frozenset(re.findall(r"[`\"]([a-z0-9]+:[A-Za-z*]+)[`\"]", part))


@pytest.mark.parametrize("module", sorted(client_actions()))
def test_the_docs_list_the_permissions_of_each_command(module: str) -> None:
    """An operator without the deployer's policies gets what the page of the command says."""
    if module in MEMBERS_ONLY:
        return
    listed = {action for place in DOCUMENTED[module] for action in listed_actions(place)}

    assert not [
        action for action in client_actions()[module] if not any(fnmatchcase(action, pattern) for pattern in listed)
    ]


def test_documented_permissions_exist() -> None:
    """A misspelt action in a page would allow nothing."""
    places = {place for places in DOCUMENTED.values() for place in places}
    listed = {action for place in places for action in listed_actions(place)}
    known = {action.partition(":")[0] for action in PUBLISHED}

    assert not [action for action in listed if action.partition(":")[0] in known and not [*matching(action, PUBLISHED)]]
