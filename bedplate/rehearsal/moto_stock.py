"""What is there before a rehearsal makes anything: public images, AWS's own policies, images that the account holds.

AWS's own is brought in when it is asked for. moto would load all of it at once: 3 s and 70 MB for three regions.
"""

import json
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from moto.ec2.models import ec2_backends
from moto.ec2.models.amis import Ami
from moto.iam.aws_managed_policies import aws_managed_policies_data
from moto.iam.models import AWSManagedPolicy, iam_backends

_SWITCH: Final = "MOTO_EC2_LOAD_DEFAULT_AMIS"
_AWS_OWN: Final = ":iam::aws:policy/"
_AMAZON: Final = "amazon"


@contextmanager
def empty_stock() -> Iterator[None]:
    """Keep moto from loading images by itself."""
    before = os.environ.get(_SWITCH)
    os.environ[_SWITCH] = "false"
    try:
        yield
    finally:
        os.environ.pop(_SWITCH)
        if before is not None:
            os.environ[_SWITCH] = before


def bring(account: str, region: str, operation: str, params: Mapping[str, Any]) -> None:
    """Bring in what a call is about to ask for."""
    if operation == "describe_images":
        _bring_images(account, region, params.get("ImageIds") or [])
    for value in params.values():
        if isinstance(value, str) and _AWS_OWN in value:
            _bring_policy(account, value)


def hold_images(account: str, images: Mapping[str, str]) -> None:
    """Hold images that an account was given before: their ids by `region/architecture`."""
    for place, ident in images.items():
        region, _, arch = place.partition("/")
        backend = ec2_backends[account][region]
        if ident not in backend.amis:
            own = Ami(backend, ident, owner_id=account, name=ident, architecture=arch, root_device_type="ebs")
            backend.amis[ident] = own


def _bring_images(account: str, region: str, idents: Collection[str]) -> None:
    backend = ec2_backends[account][region]
    known = bool(idents) and all(ident in backend.amis for ident in idents)
    if not known and not any(image.owner_alias == _AMAZON for image in backend.amis.values()):
        os.environ[_SWITCH] = "true"
        backend._load_amis()  # noqa: SLF001  # what its constructor would have done
        os.environ[_SWITCH] = "false"


def _bring_policy(account: str, arn: str) -> None:
    backend = iam_backends[account]["aws"]
    name = arn.rpartition("/")[2]
    if arn not in backend.managed_policies:
        found = json.loads(aws_managed_policies_data).get(name)
        if found is not None:
            policy = AWSManagedPolicy.from_data(name, account, "aws", found)
            backend.managed_policies[policy.arn] = policy
