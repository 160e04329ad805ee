"""Roles of people's pods, and the issuer of their tokens: the bucket with its public keys, and the provider of IAM.

Decision: docs/adr/0035-issuer-in-a-bucket.md.
"""

from functools import partial

import pulumi
from pulumi_aws.iam.open_id_connect_provider import OpenIdConnectProvider, OpenIdConnectProviderArgs
from pulumi_aws.s3.bucket import Bucket, BucketArgs
from pulumi_aws.s3.bucket_objectv2 import BucketObjectv2, BucketObjectv2Args
from pulumi_aws.s3.bucket_policy import BucketPolicy

from bedplate.permissions import Statement, arn, bucket_arn, pod_permissions, policy
from bedplate.plan.cluster import KEY_SET, person_name
from bedplate.plan.fleet import FleetPlan
from bedplate.plan.issuer import AUDIENCE, DISCOVERY, issuer_documents, pod_role_name, pod_subject
from stacks.identity.policy import EVERYONE, FleetRole
from stacks.options import PUBLIC, child_options, name_tag
from stacks.storage.buckets import BucketSettings
from stacks.storage.files import require_tls


def issuer_policy(plan: FleetPlan) -> str:
    """Return the policy of the issuer's bucket: everybody reads two objects over TLS."""
    bucket = plan.issuer_bucket.name
    public = Statement(
        sid="PublishKeys",
        principals=EVERYONE,
        actions=("s3:GetObject",),
        resources=tuple(f"{bucket_arn(bucket)}/{key}" for key in (DISCOVERY, KEY_SET)),
    )
    return policy(*require_tls(bucket), public)


class TokenIssuer(pulumi.ComponentResource):
    """The public keys of the cluster's tokens, and the provider by which IAM trusts them.

    AWS trusts whoever owns the bucket. So the provider is created after it and deleted before it.
    """

    def __init__(self, plan: FleetPlan, opts: pulumi.ResourceOptions) -> None:
        bucket = plan.issuer_bucket
        self._label = f"{plan.name}-{bucket.store}"
        super().__init__("bedplate:stacks:TokenIssuer", self._label, None, opts)
        tags = {**name_tag(bucket.name), PUBLIC: f"{DISCOVERY} {KEY_SET}"}
        name = Bucket(self._label, BucketArgs(bucket=bucket.name, tags=tags), child_options(self)).id
        settings = BucketSettings(self._label, name, partial(child_options, self))
        # A customer's key would hide the objects.
        settings.encrypt(None)
        access = settings.restrict(issuer_policy(plan), is_public=True)
        documents = [self._document(name, key, text, access) for key, text in issuer_documents(plan).items()]
        provider = OpenIdConnectProviderArgs(
            url=f"https://{plan.issuer_bucket.host}", client_id_lists=[AUDIENCE], tags=name_tag(self._label)
        )
        self.provider = OpenIdConnectProvider(self._label, provider, child_options(self, after=tuple(documents)))
        self.register_outputs({})

    def _document(self, bucket: pulumi.Output[str], key: str, text: str, access: BucketPolicy) -> BucketObjectv2:
        args = BucketObjectv2Args(
            bucket=bucket, key=key, content=text, content_type="application/json", tags=name_tag(key)
        )
        return BucketObjectv2(f"{self._label}-{key.rpartition('/')[2]}", args, child_options(self, after=(access,)))


def pod_trust(plan: FleetPlan, person: str) -> Statement:
    """Return the trust statement: pods of the person's namespace assume the role, by tokens for AWS."""
    host = plan.issuer_bucket.host
    subject = {f"{host}:aud": (AUDIENCE,), f"{host}:sub": (pod_subject(person),)}
    return Statement(
        sid="BeAPod",
        principals={"Federated": (arn(plan, "iam", "", f"oidc-provider/{host}"),)},
        actions=("sts:AssumeRoleWithWebIdentity",),
        conditions={"StringEquals": subject},
    )


class PodRoles(pulumi.ComponentResource):
    """The roles of people's pods, one for each person: IAM knows no other claim of a token than its subject."""

    def __init__(self, plan: FleetPlan, issuer: TokenIssuer, opts: pulumi.ResourceOptions) -> None:
        super().__init__("bedplate:stacks:PodRoles", plan.name, None, opts)
        for person in plan.accounts.people:
            namespace = person_name(person.name)
            name, label = pod_role_name(plan, namespace), f"{plan.name}-pods-{namespace}"
            about = f"pods of {person.name} in the fleet {plan.name}"
            role = FleetRole(name, about, pod_trust(plan, person.name), pod_permissions(plan, person.name))
            role.declare(plan, self, label=label, after=(issuer.provider,))
        self.register_outputs({})
