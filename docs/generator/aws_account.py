"""docs/aws-account.md: what an AWS account needs before and after a deployment, with policies for deployers."""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from bedplate.catalog import Catalog
from bedplate.catalog.catalog import read_data_file
from bedplate.permissions import Statement, length
from bedplate.spec.text import LONGEST_FLEET_NAME

Resources = tuple[str, ...]
_ANY: Resources = ("*",)
_PARAMETERS = "arn:aws:ssm:*:ACCOUNT:parameter/FLEET/*"
_INSTANCES = "arn:aws:ec2:*:ACCOUNT:instance/*"
_DOCUMENTS = "arn:aws:ssm:*:*:document/AWS"
_IAM_NAMES = ("instance-profile/FLEET-", "oidc-provider/FLEET-", "role/FLEET-", "role/FLEET.")
_ROLES = tuple(f"arn:aws:iam::ACCOUNT:{name}*" for name in _IAM_NAMES)
# By the longest prefix of an action. Keys, zones and most of EC2 have ids that no pattern matches, and AWS allows an
# action without a resource type for `*` only.
_RESOURCES: Mapping[str, Resources] = MappingProxyType(
    {
        "": _ANY,
        "budgets:": ("arn:aws:budgets::ACCOUNT:budget/FLEET",),
        "cloudwatch:": ("arn:aws:cloudwatch:*:ACCOUNT:alarm:FLEET-*",),
        "ecr:": ("arn:aws:ecr:*:ACCOUNT:repository/FLEET/*",),
        "ecr:DescribeRegistry": _ANY,
        "ecr:GetAuthorizationToken": _ANY,
        "ecr:PutReplicationConfiguration": _ANY,
        "iam:": _ROLES,
        "iam:CreateServiceLinkedRole": ("arn:aws:iam::ACCOUNT:role/aws-service-role/*",),
        # `doctor` asks about the deployer, and `up` about roles of services.
        "iam:GetRole": ("arn:aws:iam::ACCOUNT:role/*",),
        "iam:SimulatePrincipalPolicy": ("arn:aws:iam::ACCOUNT:role/*", "arn:aws:iam::ACCOUNT:user/*"),
        "iam:ListOpenIDConnectProviders": _ANY,
        "s3:": ("arn:aws:s3:::FLEET-*",),
        "s3:CreateJob": _ANY,
        "secretsmanager:": ("arn:aws:secretsmanager:*:ACCOUNT:secret:FLEET/*",),
        "sns:": ("arn:aws:sns:*:ACCOUNT:FLEET-*",),
        "sns:GetSubscription": _ANY,
        "sns:ListTopics": _ANY,
        "sns:SetSubscription": _ANY,
        "sns:Unsubscribe": _ANY,
        "ssm:": (_PARAMETERS,),
        "ssm:DescribeParameters": _ANY,
        "ssm:GetCommandInvocation": _ANY,
        "ssm:GetParameter": (_PARAMETERS, "arn:aws:ssm:*::parameter/aws/service/*"),
        "ssm:SendCommand": (f"{_DOCUMENTS}-RunShellScript", _INSTANCES),
        "ssm:StartSession": (f"{_DOCUMENTS}-StartSSHSession", _INSTANCES),
    }
)
# Services whose objects a deployer may list. The lists of the others contain data, or have a resource of the fleet.
_LISTED = ("autoscaling", "cloudwatch", "ec2", "elasticfilesystem", "kms", "logs", "route53", "route53resolver")
_LISTS = ("Describe", "List")
LONGEST_POLICY = 6144  # characters of a managed policy, without white space (IAM and STS quotas)


def needed_actions() -> Mapping[str, tuple[str, ...]]:
    """Return the IAM actions of each resource type, and of each other part of bedplate that calls AWS."""
    rows = (row.split("\t") for row in read_data_file("permissions").rows)
    return {caller: tuple(actions.split()) for caller, actions in rows}


def deployer_statements(needs: Iterable[str]) -> tuple[Statement, ...]:
    """Return the statements that allow actions: reads of all objects first, the others by service and resources."""
    groups: defaultdict[tuple[str, Resources], set[str]] = defaultdict(set)
    for action in needs:
        pattern, resources = _grant(action)
        is_read = resources == _ANY and pattern.partition(":")[2].startswith((*_LISTS, "Get", "Search"))
        groups["" if is_read else pattern.partition(":")[0], resources].add(pattern)
    return tuple(
        Statement(sid="", actions=tuple(sorted(actions)), resources=resources)
        for (_, resources), actions in sorted(groups.items())
    )


def _grant(action: str) -> tuple[str, Resources]:
    """Return the action of the policy, which may be a pattern, and its resources."""
    service, _, name = action.partition(":")
    verb = next((verb for verb in _LISTS if name.startswith(verb)), None)
    if verb and service in _LISTED:
        # A new version of the provider may read more; what exists in the account is no secret of its administrator.
        return f"{service}:{verb}*", _ANY
    return action, _RESOURCES[max((prefix for prefix in _RESOURCES if action.startswith(prefix)), key=len)]


def deployer_policies(needs: Iterable[str]) -> tuple[str, ...]:
    """Return the JSON texts of as many managed policies as the actions need."""
    policies: list[list[str]] = []
    for text in (json.dumps(statement.document()) for statement in deployer_statements(needs)):
        policy = next((policy for policy in policies if _length([*policy, text]) <= LONGEST_POLICY), None)
        if policy is None:
            policies.append([text])
        else:
            policy.append(text)
    return tuple(map(_policy, policies))


def _policy(statements: Iterable[str]) -> str:
    return '{"Version": "2012-10-17", "Statement": [\n' + ",\n".join(f"  {text}" for text in statements) + "\n]}"


def _length(statements: Iterable[str]) -> int:
    """Return the length of a policy for the longest names."""
    names = {"ACCOUNT": "0" * 12, "FLEET": "f" * LONGEST_FLEET_NAME}
    return length([re.sub("|".join(names), lambda match: names[match[0]], _policy(statements))])


def account_page(catalog: Catalog) -> str:
    """Return docs/aws-account.md."""
    names = ("on-demand standard vCPUs", "on-demand G and VT vCPUs", "on-demand P vCPUs")
    requests = "\n".join(f"{_REQUEST} --quota-code {catalog.quotas[name].code}  # {name}" for name in names)
    actions = {action for needed in needed_actions().values() for action in needed}
    policies = "\n\n".join(f"```json\n{policy}\n```" for policy in deployer_policies(actions))
    return _PAGE.replace("%REQUESTS%", requests).replace("%POLICIES%", policies)


_REQUEST = "aws service-quotas request-service-quota-increase --region REGION --service-code ec2 --desired-value N"
_PAGE = """\
# The AWS account

Generated by `make docs`. Nothing on this page was tested on AWS. Replace ACCOUNT, FLEET and REGION with your values.

## Before the first `pulumi up`

`bedplate up` creates the service-linked roles of EC2 Auto Scaling, spot instances, EFS and transit gateways that the
fleet needs. With plain `pulumi up`, create that of Auto Scaling. Otherwise AWS creates it together with the first
groups, and a group can fail; then run `pulumi up` again. AWS creates the others, and that of AWS Backup, with the first
resource.

```
aws iam create-service-linked-role --aws-service-name autoscaling.amazonaws.com
```

Request quotas: a new account has 5 standard vCPUs and no GPU. `bedplate quotas` prints the N that a fleet needs in each
region, and `bedplate up` warns of quotas that are too small. AWS answers within hours to days. Spot has quotas of its
own.

```
%REQUESTS%
```

`bedplate up` reads the default key of EBS in each region (`ec2:GetEbsDefaultKmsKeyId`): root volumes and those of etcd
have that key. It refuses a customer key in the home region of a cluster, because members attach their volumes with a
role that may use no such key. Elsewhere the policy of the key must allow `kms:CreateGrant` to
`AWSServiceRoleForAutoScaling`, and with spot to `AWSServiceRoleForEC2Spot`, by name. Otherwise no instance would start.
Return to AWS's key with `aws ec2 reset-ebs-default-kms-key-id`.

A fleet with a cluster has one bucket with two public objects, the keys of the cluster's tokens
([ADR 35](adr/0035-issuer-in-a-bucket.md)). If the account or the organization blocks public policies of all buckets,
`up` fails with `AccessDenied` at `s3:PutBucketPolicy`. Then turn off `BlockPublicPolicy` and `RestrictPublicBuckets`
for the account: each other bucket of bedplate has its own block. Or write `pod_roles: false` in the section
`kubernetes`.

## Permissions of a deployer

Generated from the calls of AWS: those of the Pulumi AWS provider for each resource type of the stacks, and those in the
source of bedplate. A test compares each action and its resources with AWS's list of actions. Treat a deployer as an
administrator: it can create roles with any permission and pass them to instances.

A managed policy has at most 6,144 characters, so there are several. Attach all of them to the role of the deployer:

```
aws iam create-policy --policy-name FLEET-deployer-1 --policy-document file://deployer-1.json
aws iam attach-role-policy --role-name DEPLOYER --policy-arn arn:aws:iam::ACCOUNT:policy/FLEET-deployer-1
```

They include the bucket and the key of [the state](state.md), the commands of [images](images.md), Session Manager for
`up`, `pricing:GetProducts` for `catalog refresh`, and the batch job below.

%POLICIES%

## Permissions of single commands

An operator without those policies needs these, for one command. AWS always permits `sts:GetCallerIdentity`.
Other pages have those of [images](images.md#permissions), [logins](ssh.md#permissions),
[the state](state.md#permissions) and [the VPN](vpn.md).

### Status and doctor

`status` needs the permissions of the commands whose results it shows. `doctor` needs those of `quotas`, and
`iam:GetRole` and `iam:SimulatePrincipalPolicy` for its rights.

### Facts of the account

| command | permissions |
| --- | --- |
| `bedplate quotas` | `servicequotas:ListServiceQuotas`, `servicequotas:GetAWSDefaultServiceQuota` |
| `bedplate image record` | `ssm:GetParameter` of public parameters |
| `bedplate catalog refresh` | `ec2:DescribeInstanceTypes`, `ec2:DescribeInstanceTypeOfferings`, `pricing:GetProducts` |

### Deployments

Commands that end running machines read them with `autoscaling:DescribeAutoScalingGroups`, `ec2:DescribeInstances`,
`route53:ListHostedZonesByName` and `route53:ListResourceRecordSets`; without the last two, lines have no names.

### Recover

`recover` searches for objects with `autoscaling:DescribeAutoScalingGroups`, `budgets:ViewBudget`,
`cloudwatch:DescribeAlarms`, `ec2:Describe*`, `ec2:GetSubnetCidrReservations`,
`ec2:GetTransitGatewayRouteTableAssociations`, `ec2:SearchTransitGatewayRoutes`, `ecr:DescribeRepositories`,
`elasticfilesystem:DescribeFileSystems`, `elasticfilesystem:DescribeMountTargets`, `iam:GetInstanceProfile`,
`iam:GetOpenIDConnectProvider`, `iam:GetRole`, `iam:ListOpenIDConnectProviders`, `kms:DescribeKey`, `kms:ListAliases`,
`kms:ListKeys`, `kms:ListResourceTags`, `logs:DescribeLogGroups`, `route53:GetHostedZone`, `route53:ListHostedZones`,
`route53:ListResourceRecordSets`, `route53resolver:ListResolverEndpoints`, `route53resolver:ListResolverRules`,
`route53resolver:ListResolverRuleAssociations`, `s3:ListBucket`, `secretsmanager:DescribeSecret`, `sns:ListTopics` and
`ssm:GetParameter`, each only for a resource of its type. It then reads resources as `pulumi refresh` does.

### Nodes

`node start` and `node stop` need these permissions besides those of `node list --live`
(`autoscaling:DescribeAutoScalingGroups`, `ec2:DescribeInstances`, `route53:ListHostedZonesByName`,
`route53:ListResourceRecordSets`; for the status `s3:ListBucket` and `s3:GetObject` on the buckets `<fleet>-nodes-*`,
and `kms:Decrypt` with the data keys):

- `node start`: `autoscaling:DescribeScalingActivities`, `autoscaling:DescribeScheduledActions`, `ec2:GetConsoleOutput`;
  on the fleet's groups `autoscaling:SetDesiredCapacity`, `autoscaling:PutScheduledUpdateGroupAction`,
  `autoscaling:DeleteScheduledAction`, `autoscaling:CreateOrUpdateTags`.
- `node stop`: `autoscaling:DescribeScalingActivities`, `autoscaling:DescribeScheduledActions`; on the fleet's groups
  `autoscaling:TerminateInstanceInAutoScalingGroup`, `autoscaling:DeleteScheduledAction`.

Limit the changing actions to groups of the fleet with the condition `aws:ResourceTag/bedplate:fleet`.

### Capacity

`status` and `explain` need `autoscaling:DescribeAutoScalingGroups`, `autoscaling:DescribeScalingActivities`,
`ec2:DescribeInstances`, `ec2:DescribeSpotInstanceRequests` and `ec2:DescribeSubnets`; `pause` and `resume` also
`autoscaling:CreateOrUpdateTags` and `autoscaling:DeleteTags` on the fleet's groups; `run` what members have:
`autoscaling:SetDesiredCapacity`, `autoscaling:SetInstanceProtection`, `autoscaling:UpdateAutoScalingGroup` and
`autoscaling:TerminateInstanceInAutoScalingGroup` there. For groups with `use: ssh` and `idle`, `status` and `explain`
read the status of machines, with the permissions of `node list --live` for it.

### Bundles

On the buckets `<fleet>-nodes-*` the commands of `bundle` need `s3:ListBucket`, `s3:GetObject` and `s3:PutObject`; on
the parameters `/<fleet>/nodes/*` `ssm:GetParameter` and `ssm:PutParameter`; on the data keys `kms:Decrypt` and
`kms:GenerateDataKey`; and to read the status of canary machines `autoscaling:DescribeAutoScalingGroups` and
`ec2:DescribeInstances`. Give `ssm:PutParameter` there to those only who may run code as root on all machines.

## Copy objects that existed before replication

S3 replicates only objects that are written after `links` is deployed. It does not retry failed ones, which an alarm
reports. After you add a region to a store, or after a failure, copy the others with a batch job in the region of the
source bucket. The policies above allow it (`s3:CreateJob`, and `iam:PassRole` for the role).

```
aws s3control create-job --region REGION --account-id ACCOUNT --priority 1 --no-confirmation-required \\
  --operation '{"S3ReplicateObject": {}}' --report '{"Enabled": false}' \\
  --role-arn arn:aws:iam::ACCOUNT:role/FLEET-replication \\
  --manifest-generator '{"S3JobManifestGenerator": {"SourceBucket": "arn:aws:s3:::FLEET-STORE-ACCOUNT-REGION",
    "EnableManifestOutput": false, "Filter": {"EligibleForReplication": true,
    "ObjectReplicationStatuses": ["NONE", "FAILED", "COMPLETED"]}}}'
```

Without `COMPLETED`, the job skips objects that have a copy in another region.

## After `pulumi destroy`

Buckets, file systems and keys are retained. AWS Backup keeps recovery points of file systems in the vault
`aws/efs/automatic-backup-vault` for 35 days; they cost until they expire or you delete them.
"""
