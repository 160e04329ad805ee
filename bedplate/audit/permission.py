"""What identities may do: too much in one statement, or a role that anybody may take on."""

from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase

from bedplate.audit.fault import StackFault, fault
from bedplate.audit.graph import Graph
from bedplate.audit.node import Node
from bedplate.audit.policy import Statement, statements
from bedplate.audit.value import Properties, parts, words

_HOLDERS = ("iam.Policy", "iam.RolePolicy", "iam.UserPolicy", "iam.GroupPolicy")
_ATTACHMENTS = (
    "iam.RolePolicyAttachment",
    "iam.UserPolicyAttachment",
    "iam.GroupPolicyAttachment",
    "iam.PolicyAttachment",
)
_TOO_MUCH = frozenset({"AdministratorAccess", "IAMFullAccess", "PowerUserAccess"})
_WILD = "*?"
_REGION, _ARN_PARTS = 3, 6


def check_permissions(graph: Graph) -> Iterator[StackFault]:
    """Tell statements that grant without naming what."""
    for node, path, holder in _policies(graph):
        for statement in statements(holder, "policy"):
            if statement.allows:
                yield from _excess(node, statement, path)


def _policies(graph: Graph) -> Iterator[tuple[Node, str, Properties]]:
    """Yield what holds a policy of an identity: the resource, the path to the holder in it, and the holder."""
    for node in graph.of(*_HOLDERS):
        yield node, "", node.inputs
    for node in graph.of("iam.Role"):
        for index, policy in enumerate(parts(node.inputs.get("inlinePolicies"))):
            yield node, f"inlinePolicies.{index}.", policy


def _excess(node: Node, statement: Statement, path: str) -> Iterator[StackFault]:
    for code, is_excessive, message in _EXCESSES:
        if is_excessive(statement):
            yield fault(code, node.urn, f"{path}{statement.key}", message)


def _grants_all(statement: Statement) -> bool:
    return any(not action.strip(f"{_WILD}:") for action in statement.actions) and _is_on_all(statement)


def _grants_service(statement: Statement) -> bool:
    named = (action.partition(":") for action in statement.actions if action.strip(f"{_WILD}:"))
    return any(not name.strip(_WILD) for _, _, name in named) and _is_on_all(statement)


def _excepts(statement: Statement) -> bool:
    return any(key in statement.body for key in ("NotAction", "NotResource"))


def _passes_any_role(statement: Statement) -> bool:
    passes = any(fnmatchcase("iam:passrole", action) for action in statement.actions)
    return passes and any(map(_is_any_role, statement.resources))


def _is_any_role(name: str) -> bool:
    """Whether a pattern fits every role, of whatever path."""
    tail = name.split(":", _ARN_PARTS - 1)[-1]
    fixed = tail.rstrip(_WILD)
    return fixed != tail and "role/".startswith(fixed)


def _is_on_all(statement: Statement) -> bool:
    return any(map(_is_everything, statement.resources))


def _is_everything(name: str) -> bool:
    """Whether a pattern fits all that a service has in every region; an identity acts in its own account anyhow."""
    arn = name.split(":", _ARN_PARTS - 1)
    if len(arn) < _ARN_PARTS:
        return name.endswith("*") and not any(field.strip(_WILD) for field in arn[2:])
    return not arn[_REGION].strip(_WILD) and not arn[-1].strip(f"{_WILD}:/")


_EXCESSES: tuple[tuple[str, Callable[[Statement], bool], str], ...] = (
    ("S501", _grants_all, "every action is allowed on every resource"),
    ("S502", _grants_service, "a whole service is allowed on every resource"),
    ("S503", _excepts, "the statement allows all but what it names"),
    ("S504", _passes_any_role, "iam:PassRole is allowed on any role"),
)


def check_attachments(graph: Graph) -> Iterator[StackFault]:
    """Tell managed policies of AWS that make an administrator."""
    for node in graph.of(*_ATTACHMENTS):
        yield from _administrators(node, "policyArn")
    for node in graph.of("iam.Role"):
        yield from _administrators(node, "managedPolicyArns")


def _administrators(node: Node, key: str) -> Iterator[StackFault]:
    for arn in words(node.inputs.get(key)):
        name = arn.rpartition("/")[2]
        if arn.startswith("arn:aws") and ":aws:policy/" in arn and name in _TOO_MUCH:
            yield fault("S506", node.urn, key, f"{name} is attached")


def check_trust(graph: Graph) -> Iterator[StackFault]:
    """Tell roles that anybody with an AWS account may take on."""
    for node in graph.of("iam.Role"):
        for statement in statements(node.inputs, "assumeRolePolicy"):
            if statement.allows and statement.is_for_everybody and not statement.is_narrowed:
                yield fault("S505", node.urn, statement.key, "the role trusts everybody")
