"""Conditions of a policy: which of them say who is meant, and which only look so."""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from bedplate.graph.audit.document import Graph, Node, Properties, is_on, is_seen, part, parts, words
from bedplate.graph.audit.exposure import block_of, is_wide
from bedplate.graph.audit.rules import StackFault, fault

# Keys of requests that say whose they are, in lower case. Source: AWS IAM user guide, global condition context keys.
_WHO = frozenset(
    {
        "aws:principalaccount",
        "aws:principalarn",
        "aws:principalorgid",
        "aws:principalorgpaths",
        "aws:sourceaccount",
        "aws:sourcearn",
        "aws:sourceip",
        "aws:sourceorgid",
        "aws:sourceorgpaths",
        "aws:sourcevpc",
        "aws:sourcevpce",
        "aws:userid",
        "elasticfilesystem:accessedviamounttarget",
        "kms:calleraccount",
        "s3:dataaccesspointaccount",
        "sns:endpoint",
    }
)
_ARN_PARTS = 6
_ACCOUNT = 4
# How every id of a kind begins: a pattern of no more than that is everybody's. Source: AWS IAM user guide, unique ids.
_KINDS = frozenset({"AIDA", "AROA", "o-", "vpc-", "vpce-"})


def narrows(condition: Properties) -> bool:
    """Whether a condition leaves out the public. Each of its keys must hold, so one that does is enough."""
    return any(
        _is_strict(operator) and key.lower() in _WHO and _means_somebody(key.lower(), value)
        for operator, tests in condition.items()
        for one in parts(tests)
        for key, value in one.items()
    )


def _is_strict(operator: str) -> bool:
    """Whether a test fails where its key is missing, and asks what is so, not what is not."""
    name = operator.removeprefix("ForAnyValue:")
    return not (name.startswith("ForAllValues:") or name.endswith("IfExists") or "Not" in name or name == "Null")


def _means_somebody(key: str, value: object) -> bool:
    if not is_seen(value):
        return True
    if key == "elasticfilesystem:accessedviamounttarget":
        return value is True or words(value) == ("true",)
    told = words(value)
    if key == "aws:sourceip":
        return _is_someplace(told)
    return bool(told) and all(_is_named(word) for word in told)


def _is_someplace(texts: Iterable[str]) -> bool:
    blocks = tuple(map(block_of, texts))
    return bool(blocks) and not is_wide(block for block in blocks if block is not None)


def _is_named(word: str) -> bool:
    """Whether a pattern names somebody: an ARN whose account is any account, or any id of a kind, names nobody."""
    arn = word.split(":")
    if arn[0] == "arn":
        return len(arn) >= _ARN_PARTS and _is_one_account(arn[_ACCOUNT]) and bool(":".join(arn[_ACCOUNT:]).strip(":*?"))
    return word.strip("*?") not in {"", *_KINDS}


def _is_one_account(account: str) -> bool:
    return not {"*", "?"} & set(account)


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement of a policy; `key` is where it stands in its resource."""

    key: str
    body: Properties

    @property
    def allows(self) -> bool:
        """Whether it grants something."""
        return self.body.get("Effect") == "Allow"

    @property
    def actions(self) -> tuple[str, ...]:
        """The actions, in lower case: IAM does not tell cases apart."""
        return tuple(action.lower() for action in words(self.body.get("Action")))

    @property
    def resources(self) -> tuple[str, ...]:
        """The resources, as they are written."""
        return words(self.body.get("Resource"))

    @property
    def is_for_everybody(self) -> bool:
        """Whether any principal at all is meant."""
        told = self.body.get("Principal")
        kinds = told.values() if isinstance(told, dict) else (told,)
        return any("*" in words(names) for names in kinds) or "NotPrincipal" in self.body

    @property
    def is_narrowed(self) -> bool:
        """Whether a condition says who is meant."""
        return narrows(part(self.body, "Condition"))

    @property
    def refuses_clear_text(self) -> bool:
        """Whether it denies everybody everything that does not come over TLS, on more than the thing itself."""
        condition = part(self.body, "Condition")
        told = [test for key in ("Bool", "BoolIfExists") for test in part(condition, key).items()]
        return (
            self.body.get("Effect") == "Deny"
            and self.is_for_everybody
            and [(key.lower(), _is_false(value)) for key, value in told] == [("aws:securetransport", True)]
            and len(condition) == 1
        )


def statements(holder: Properties, key: str) -> Iterator[Statement]:
    """Yield the statements of the policy under a key; none where it cannot be seen or is no policy."""
    document = _document(holder.get(key))
    for index, body in enumerate(parts(document.get("Statement"))):
        yield Statement(f"{key}.Statement.{index}", body)


def _is_false(value: object) -> bool:
    return value is False or words(value) in (("false",), ("False",))


def is_hidden(holder: Properties, key: str) -> bool:
    """Whether there is a policy and it cannot be seen."""
    return not is_seen(holder.get(key))


def _document(value: object) -> dict[str, Any]:
    if isinstance(value, str) and is_seen(value):
        try:
            value = json.loads(value)
        except (json.JSONDecodeError, RecursionError):
            return {}
    return value if isinstance(value, dict) else {}


_HOLDERS = ("iam.Policy", "iam.RolePolicy", "iam.UserPolicy", "iam.GroupPolicy")
_ATTACHMENTS = (
    "iam.RolePolicyAttachment",
    "iam.UserPolicyAttachment",
    "iam.GroupPolicyAttachment",
    "iam.PolicyAttachment",
)
_TOO_MUCH = frozenset({"AdministratorAccess", "IAMFullAccess", "PowerUserAccess"})
_WILD = "*?"
_REGION, _PERMISSION_ARN_PARTS = 3, 6


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
    tail = name.split(":", _PERMISSION_ARN_PARTS - 1)[-1]
    fixed = tail.rstrip(_WILD)
    return fixed != tail and "role/".startswith(fixed)


def _is_on_all(statement: Statement) -> bool:
    return any(map(_is_everything, statement.resources))


def _is_everything(name: str) -> bool:
    """Whether a pattern fits all that a service has in every region; an identity acts in its own account anyhow."""
    arn = name.split(":", _PERMISSION_ARN_PARTS - 1)
    if len(arn) < _PERMISSION_ARN_PARTS:
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


SWITCHES = ("blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls", "restrictPublicBuckets")
_ACLS = ("public-read", "public-read-write", "authenticated-read", "website")
_STRANGERS = ("/global/AllUsers", "/global/AuthenticatedUsers")
# Kinds with a policy of their own that says who may come; an endpoint's is not among them, for it opens nothing.
_POLICIES = (
    "ecr.RepositoryPolicy",
    "efs.FileSystemPolicy",
    "kms.Key",
    "kms.KeyPolicy",
    "kms.ReplicaKey",
    "s3.Bucket",
    "s3.BucketPolicy",
    "secretsmanager.Secret",
    "secretsmanager.SecretPolicy",
    "sns.Topic",
    "sns.TopicPolicy",
    "sqs.Queue",
    "sqs.QueuePolicy",
)


def check_bucket_blocks(graph: Graph) -> Iterator[StackFault]:
    """Tell buckets that a policy or an ACL could make public."""
    if any(all(is_on(node.inputs, key) for key in SWITCHES) for node in graph.of("s3.AccountPublicAccessBlock")):
        return
    blocks = graph.guards("s3.BucketPublicAccessBlock", "bucket", "s3.Bucket")
    for bucket in graph.of("s3.Bucket"):
        if bucket.urn not in blocks:
            yield fault("S301", bucket.urn, "", "no public access block guards the bucket")
    for node in graph.of("s3.BucketPublicAccessBlock"):
        off = [key for key in SWITCHES if not is_on(node.inputs, key)]
        if off:
            yield fault("S301", node.urn, off[0], f"{', '.join(off)}: not on")


def check_acls(graph: Graph) -> Iterator[StackFault]:
    """Tell buckets and objects whose ACL names strangers."""
    for node in graph.of("s3.Bucket", "s3.BucketAcl", "s3.BucketObject", "s3.BucketObjectv2"):
        acl = node.inputs.get("acl")
        if acl in _ACLS:
            yield fault("S302", node.urn, "acl", f"the ACL is {acl}")
        grants = (*parts(node.inputs.get("grants")), *parts(part(node.inputs, "accessControlPolicy").get("grants")))
        uris = [
            uri for grant in grants for holder in (grant, part(grant, "grantee")) for uri in words(holder.get("uri"))
        ]
        if any(uri.endswith(_STRANGERS) for uri in uris):
            yield fault("S302", node.urn, "grants", "the ACL grants something to strangers")


def check_policies(graph: Graph) -> Iterator[StackFault]:
    """Tell policies that let everybody in."""
    for node in graph.of(*_POLICIES):
        for statement in statements(node.inputs, "policy"):
            if statement.allows and statement.is_for_everybody and not statement.is_narrowed:
                yield fault("S303", node.urn, statement.key, "the statement is for everybody")


def check_publicly_accessible(graph: Graph) -> Iterator[StackFault]:
    """Tell databases and brokers that ask for a public address."""
    for node in graph.nodes:
        if node.inputs.get("publiclyAccessible") in (True, "true"):
            yield fault("S304", node.urn, "publiclyAccessible", "it has a public address")
