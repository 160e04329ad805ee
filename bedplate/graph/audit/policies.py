"""Checks of policies: who may use a resource (S301 to S304, S505), and the rights of identities (S501 to S506)."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase

from bedplate.graph.audit.document import (
    Graph,
    Node,
    Properties,
    StackFault,
    embedded,
    fault,
    is_on,
    is_seen,
    part,
    parts,
    public_names,
    words,
)
from bedplate.graph.audit.exposure import block_of, is_wide
from bedplate.rules import Rule

BUCKET_NOT_SHUT = Rule(
    "S301",
    "Without a public access block, one policy or one object's ACL can make the bucket public.",
    "add a public access block with all four settings on",
    "Amazon S3 user guide, blocking public access",
)
PUBLIC_ACL = Rule("S302", "The ACL grants access to the public.", "remove the ACL; set BucketOwnerEnforced")
POLICY_FOR_EVERYBODY = Rule(
    "S303",
    "Without a principal or a condition, the statement applies to anyone, with or without an AWS account.",
    "name the principals, or restrict the account or network by a condition",
)
PUBLICLY_ACCESSIBLE = Rule(
    "S304", "A database must not be reachable from the internet.", "set `publiclyAccessible: false`"
)
ALL_ON_ALL = Rule("S501", "The identity has full control of the account.", "name the actions and the resources")
SERVICE_ON_ALL = Rule(
    "S502", "The identity has full control of a service.", "name the actions, or restrict the resources"
)
ALLOWED_BY_EXCEPTION = Rule(
    "S503",
    "The statement also allows actions and resources that AWS adds later.",
    "name the allowed actions and resources",
)
PASS_ANY_ROLE = Rule(
    "S504",
    "An identity that can pass any role can start a machine with any role.",
    "name the roles that may be passed",
    "AWS IAM user guide, granting permission to pass a role",
)
TRUSTS_EVERYBODY = Rule(
    "S505", "Anyone with an AWS account can assume the role.", "name the principals, or restrict them by a condition"
)
ADMINISTRATOR = Rule(
    "S506", "The managed policy allows nearly everything.", "write a policy with the actions that are needed"
)

# Condition keys that identify the caller, in lower case. Source: AWS IAM user guide, global condition context keys.
_CALLER = frozenset(
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
# Prefixes of ids: a pattern such as AIDA* matches every user. Source: AWS IAM user guide, unique identifiers.
_ID_PREFIXES = frozenset({"AIDA", "AROA", "o-", "vpc-", "vpce-"})


def narrows(condition: Properties) -> bool:
    """Return whether a condition excludes the public. All tests must hold, so one is enough."""
    return any(
        _is_strict(operator) and key.lower() in _CALLER and _is_specific(key.lower(), value)
        for operator, operands in condition.items()
        for test in parts(operands)
        for key, value in test.items()
    )


def _is_strict(operator: str) -> bool:
    """Return whether the operator fails if the key is missing, and is not negated."""
    name = operator.removeprefix("ForAnyValue:")
    return not (name.startswith("ForAllValues:") or name.endswith("IfExists") or "Not" in name or name == "Null")


def _is_specific(key: str, value: object) -> bool:
    if not is_seen(value):
        return True
    if key == "elasticfilesystem:accessedviamounttarget":
        return value is True or words(value) == ("true",)
    patterns = words(value)
    if key == "aws:sourceip":
        blocks = tuple(map(block_of, patterns))
        return bool(blocks) and not is_wide(block for block in blocks if block is not None)
    return bool(patterns) and all(map(_names_caller, patterns))


def _names_caller(pattern: str) -> bool:
    """Return whether a pattern limits the callers: an ARN with a wildcard as account, or AIDA*, does not."""
    arn = pattern.split(":")
    if arn[0] == "arn":
        is_one_account = len(arn) >= _ARN_PARTS and not {"*", "?"} & set(arn[_ACCOUNT])
        return is_one_account and bool(":".join(arn[_ACCOUNT:]).strip(":*?"))
    return pattern.strip("*?") not in {"", *_ID_PREFIXES}


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement of a policy; `key` is its path in the resource."""

    key: str
    body: Properties

    @property
    def allows(self) -> bool:
        """Whether the effect is Allow."""
        return self.body.get("Effect") == "Allow"

    @property
    def actions(self) -> tuple[str, ...]:
        """The actions, in lower case: IAM ignores case."""
        return tuple(action.lower() for action in words(self.body.get("Action")))

    @property
    def resources(self) -> tuple[str, ...]:
        """The resource patterns."""
        return words(self.body.get("Resource"))

    @property
    def is_public(self) -> bool:
        """Whether the principal is a wildcard."""
        principal = self.body.get("Principal")
        values = principal.values() if isinstance(principal, dict) else (principal,)
        return any("*" in words(names) for names in values) or "NotPrincipal" in self.body

    @property
    def is_narrowed(self) -> bool:
        """Whether a condition limits the callers."""
        return narrows(part(self.body, "Condition"))

    @property
    def denies_clear_text(self) -> bool:
        """Whether it denies all requests without TLS, to all principals, without another condition."""
        condition = part(self.body, "Condition")
        tests = [test for key in ("Bool", "BoolIfExists") for test in part(condition, key).items()]
        return (
            self.body.get("Effect") == "Deny"
            and self.is_public
            and [(key.lower(), _is_false(value)) for key, value in tests] == [("aws:securetransport", True)]
            and len(condition) == 1
        )


def statements(holder: Properties, key: str) -> Iterator[Statement]:
    """Yield the statements of the policy under a key; none if it is hidden or invalid."""
    for index, body in enumerate(parts(embedded(holder.get(key)).get("Statement"))):
        yield Statement(f"{key}.Statement.{index}", body)


def _is_false(value: object) -> bool:
    return value is False or words(value) in (("false",), ("False",))


def is_hidden(holder: Properties, key: str) -> bool:
    """Return whether the policy is hidden."""
    return not is_seen(holder.get(key))


_HOLDERS = ("iam.Policy", "iam.RolePolicy", "iam.UserPolicy", "iam.GroupPolicy")
_ATTACHMENTS = (
    "iam.RolePolicyAttachment",
    "iam.UserPolicyAttachment",
    "iam.GroupPolicyAttachment",
    "iam.PolicyAttachment",
)
_ADMIN_POLICIES = frozenset({"AdministratorAccess", "IAMFullAccess", "PowerUserAccess"})
_WILD = "*?"
_REGION, _PERMISSION_ARN_PARTS = 3, 6


def check_permissions(graph: Graph) -> Iterator[StackFault]:
    """Yield a fault for each statement that allows too much."""
    for node, path, holder in _policies(graph):
        for statement in statements(holder, "policy"):
            if statement.allows:
                yield from _excess(node, statement, path)


def _policies(graph: Graph) -> Iterator[tuple[Node, str, Properties]]:
    """Yield the identity policies: the resource, the path of the policy's holder in it, and the holder."""
    for node in graph.of(*_HOLDERS):
        yield node, "", node.inputs
    for node in graph.of("iam.Role"):
        for index, policy in enumerate(parts(node.inputs.get("inlinePolicies"))):
            yield node, f"inlinePolicies.{index}.", policy


def _excess(node: Node, statement: Statement, path: str) -> Iterator[StackFault]:
    for rule, is_excessive, message in _EXCESSES:
        if is_excessive(statement):
            yield fault(rule, node.urn, f"{path}{statement.key}", message)


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
    """Return whether a pattern matches every role, of any path."""
    tail = name.split(":", _PERMISSION_ARN_PARTS - 1)[-1]
    fixed = tail.rstrip(_WILD)
    return fixed != tail and "role/".startswith(fixed)


def _is_on_all(statement: Statement) -> bool:
    return any(map(_is_everything, statement.resources))


def _is_everything(name: str) -> bool:
    """Return whether a pattern matches all resources of a service in every region."""
    arn = name.split(":", _PERMISSION_ARN_PARTS - 1)
    if len(arn) < _PERMISSION_ARN_PARTS:
        return name.endswith("*") and not any(field.strip(_WILD) for field in arn[2:])
    return not arn[_REGION].strip(_WILD) and not arn[-1].strip(f"{_WILD}:/")


_EXCESSES: tuple[tuple[Rule, Callable[[Statement], bool], str], ...] = (
    (ALL_ON_ALL, _grants_all, "it allows every action on every resource"),
    (SERVICE_ON_ALL, _grants_service, "it allows all actions of a service on every resource"),
    (ALLOWED_BY_EXCEPTION, _excepts, "it allows everything except what NotAction or NotResource names"),
    (PASS_ANY_ROLE, _passes_any_role, "it allows iam:PassRole on any role"),
)


def check_attachments(graph: Graph) -> Iterator[StackFault]:
    """Yield a fault for each attached AWS managed policy with administrator rights."""
    for node in graph.of(*_ATTACHMENTS):
        yield from _admin_faults(node, "policyArn")
    for node in graph.of("iam.Role"):
        yield from _admin_faults(node, "managedPolicyArns")


def _admin_faults(node: Node, key: str) -> Iterator[StackFault]:
    for arn in words(node.inputs.get(key)):
        name = arn.rpartition("/")[2]
        if arn.startswith("arn:aws") and ":aws:policy/" in arn and name in _ADMIN_POLICIES:
            yield fault(ADMINISTRATOR, node.urn, key, f"the policy {name} is attached")


def check_trust(graph: Graph) -> Iterator[StackFault]:
    """Yield a fault for each role that anyone with an AWS account can assume."""
    for node in graph.of("iam.Role"):
        for statement in statements(node.inputs, "assumeRolePolicy"):
            if statement.allows and statement.is_public and not statement.is_narrowed:
                yield fault(TRUSTS_EVERYBODY, node.urn, statement.key, "any AWS account can assume the role")


SWITCHES = ("blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls", "restrictPublicBuckets")
# Off where a policy makes the objects public that the bucket's tag names.
_POLICY_SWITCHES = frozenset({"blockPublicPolicy", "restrictPublicBuckets"})
_ACLS = ("public-read", "public-read-write", "authenticated-read", "website")
_PUBLIC_GRANTEES = ("/global/AllUsers", "/global/AuthenticatedUsers")
# Resources with a policy of their callers. The policy of an endpoint only restricts, so it is not among them.
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
    """Yield a fault for each bucket that a policy or an ACL can make public."""
    if any(all(is_on(node.inputs, key) for key in SWITCHES) for node in graph.of("s3.AccountPublicAccessBlock")):
        return
    blocks = graph.settings("s3.BucketPublicAccessBlock", "bucket", "s3.Bucket")
    for bucket in graph.of("s3.Bucket"):
        if bucket.urn not in blocks:
            yield fault(BUCKET_NOT_SHUT, bucket.urn, "", "the bucket has no public access block")
    for node in graph.of("s3.BucketPublicAccessBlock"):
        is_public = any(map(public_names, graph.targets(node, "bucket", "s3.Bucket")))
        off = [key for key in SWITCHES if not is_on(node.inputs, key) and not (is_public and key in _POLICY_SWITCHES)]
        if off:
            yield fault(
                BUCKET_NOT_SHUT, node.urn, off[0], f"{', '.join(off)} {'is' if len(off) == 1 else 'are'} not on"
            )


def check_acls(graph: Graph) -> Iterator[StackFault]:
    """Yield a fault for each bucket or object with a public ACL."""
    for node in graph.of("s3.Bucket", "s3.BucketAcl", "s3.BucketObject", "s3.BucketObjectv2"):
        acl = node.inputs.get("acl")
        if acl in _ACLS:
            yield fault(PUBLIC_ACL, node.urn, "acl", f"the ACL is {acl}")
        grants = (*parts(node.inputs.get("grants")), *parts(part(node.inputs, "accessControlPolicy").get("grants")))
        uris = [
            uri for grant in grants for holder in (grant, part(grant, "grantee")) for uri in words(holder.get("uri"))
        ]
        if any(uri.endswith(_PUBLIC_GRANTEES) for uri in uris):
            yield fault(PUBLIC_ACL, node.urn, "grants", "the ACL grants access to all users")


def check_policies(graph: Graph) -> Iterator[StackFault]:
    """Yield a fault for each resource policy that allows the public."""
    for node in graph.of(*_POLICIES):
        public = frozenset(_public_objects(graph, node))
        for statement in statements(node.inputs, "policy"):
            if _reads_only(statement, public):
                continue
            if statement.allows and statement.is_public and not statement.is_narrowed:
                yield fault(POLICY_FOR_EVERYBODY, node.urn, statement.key, "the statement allows any principal")


def _reads_only(statement: Statement, objects: frozenset[str]) -> bool:
    resources = frozenset(statement.resources)
    return statement.actions == ("s3:getobject",) and bool(resources) and resources <= objects


def _public_objects(graph: Graph, policy: Node) -> Iterator[str]:
    """Yield the ARNs of the objects that the tag of a policy's bucket names."""
    for bucket in graph.targets(policy, "bucket", "s3.Bucket"):
        yield from (f"arn:aws:s3:::{bucket.inputs.get('bucket')}/{name}" for name in public_names(bucket))


def check_publicly_accessible(graph: Graph) -> Iterator[StackFault]:
    """Yield a fault for each database or broker with a public address."""
    for node in graph.nodes:
        if node.inputs.get("publiclyAccessible") in (True, "true"):
            yield fault(PUBLICLY_ACCESSIBLE, node.urn, "publiclyAccessible", "it has a public address")
