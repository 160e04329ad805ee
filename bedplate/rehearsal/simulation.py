"""The simulated AWS account: moto in this process, with fixed credentials and without access to the network.

`running` starts a `Simulation`; an `Aws` is its client of one region, which resource kinds and lookups use. moto keeps
its data in dictionaries without locks, so a lock makes all calls serial.
"""

import gc
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, Final, Never
from unittest.mock import patch

import boto3
from botocore import UNSIGNED
from botocore.client import BaseClient
from botocore.config import Config
from botocore.exceptions import ClientError, ParamValidationError
from botocore.model import StructureShape
from moto import mock_aws
from pulumi.runtime import resource as sdk
from pulumi.runtime.proto.source_pb2 import StackTrace

from bedplate.rehearsal import environment, no_ambient_aws
from bedplate.rehearsal.faults import Faults
from bedplate.rehearsal.moto import (
    add_images,
    failing_launches,
    has_image,
    load_for_call,
    no_preloaded_images,
    repaired,
)
from bedplate.rehearsal.state import ResourceError

_AMI_ID = re.compile("ami-([0-9a-f]{8}|[0-9a-f]{17})")
_running = threading.Lock()
_running_in: list[int] = []


@contextmanager
def alone() -> Iterator[None]:
    """Allow one simulation at a time in the process; raise RuntimeError in a thread that runs one already."""
    if threading.get_ident() in _running_in:
        raise RuntimeError("this thread already runs a simulation")
    with _running:
        _running_in.append(threading.get_ident())
        try:
            yield
        finally:
            _running_in.clear()


# The heap of a rehearsal is large and long-lived (futures of the SDK, models of moto and botocore). With the default
# thresholds, garbage collection takes a third of the run time.
_GC_THRESHOLDS: Final = (50_000, 20, 100)


@contextmanager
def rare_garbage_collection() -> Iterator[None]:
    """Run the garbage collector rarely in this context, and not on the objects that exist before it."""
    before = gc.get_threshold()
    gc.set_threshold(*_GC_THRESHOLDS)
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)


# No retries: an error of the simulation does not change. No configured endpoint: only moto may answer. No signature and
# a short user agent: nothing reads them, and they take an eighth of the time of a call. moto's S3 reads the signature.
_SIGNED = Config(retries={"total_max_attempts": 1}, ignore_configured_endpoint_urls=True, user_agent="bedplate")
_UNSIGNED = _SIGNED.merge(Config(signature_version=UNSIGNED))


class _NoNetwork:
    """An HTTP session for botocore that fails each request; moto answers the requests that it knows before."""

    def send(self, request: Any) -> Never:  # noqa: ANN401  # botocore's request type is private
        raise ResourceError("NotSimulated", f"moto does not answer {request.method} {request.url.partition('?')[0]}")


@cache
def _session() -> boto3.session.Session:
    return boto3.session.Session("rehearsal", "rehearsal")


@cache
def client_of(service: str, region: str) -> BaseClient:
    """Return the boto3 client of a service in a region; all simulations of the process share it: it is slow to make."""
    client = _session().client(service, region_name=region, config=_SIGNED if service == "s3" else _UNSIGNED)
    client._endpoint.http_session = _NoNetwork()  # noqa: SLF001  # the only place to block a request
    return client


@cache
def _shape(service: str, region: str, operation: str) -> StructureShape:
    """Return the input shape of an operation, which botocore builds on each access."""
    meta = client_of(service, region).meta
    return meta.service_model.operation_model(meta.method_to_api_mapping[operation]).input_shape


@dataclass
class Simulation:
    """One simulated AWS account in all regions; its resources exist until `running` ends."""

    account: str
    calls: int = 0
    fakes: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    """Resources of types that moto does not model: type token -> id -> properties."""
    lasting: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    """Descriptions of resources by region and id, for what never changes; a call that deletes the id removes them."""
    faults: Faults = field(default_factory=Faults)
    assumed_images: list[tuple[str, str]] | None = None
    """The AMIs that the account is assumed to have, with their regions; None if all its AMIs are known."""
    image_keys: Mapping[str, str] = field(default_factory=dict)
    """The keys that encrypt AMIs of the account: an alias by the id of the image."""
    elapsed: timedelta = timedelta()
    """The offset of the simulated clock from the real one."""
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def region(self, name: str) -> "Aws":
        """Return the client of one region."""
        return Aws(self, name)

    def hold_images(self, images: Mapping[str, str] | None) -> None:
        """Add AMIs of the account: ids by `region/architecture`. None: its AMIs are unknown, and any id is accepted."""
        with self._lock:
            if images is None:
                self.assumed_images = self.assumed_images or []
            else:
                add_images(self.account, images)

    def assume_image(self, region: str, ident: str) -> None:
        """Add an AMI that a program names, if the AMIs of the account are unknown."""
        with self._lock:
            if self.assumed_images is None or not _AMI_ID.fullmatch(ident):
                return
            if not has_image(self.account, region, ident):
                add_images(self.account, {f"{region}/x86_64": ident})
                self.assumed_images.append((region, ident))

    def call(self, service: str, region: str, operation: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Call an operation; raise ResourceError with the AWS error code if it fails."""
        with self._lock:
            self.faults.check_region(service, region)
            self.calls += 1
            load_for_call(self.account, region, operation, params)
            try:
                reply: dict[str, Any] = getattr(client_of(service, region), operation)(**params)
            except ClientError as error:
                details = error.response["Error"]
                raise ResourceError(details["Code"], details.get("Message", "")) from None
            except ParamValidationError as error:
                raise ResourceError("ValidationError", str(error)) from None
            except NotImplementedError as error:
                raise ResourceError("NotSimulated", f"moto does not model {service}.{operation}: {error}") from None
            if operation.startswith("delete_"):
                for value in params.values():
                    self.lasting.pop((region, str(value)), None)
            return reply

    def end_faults(self) -> None:
        """End all faults; Auto Scaling groups that had no capacity start their instances, as AWS retries by itself."""
        with self._lock:
            self.faults.active = frozenset()
            for shortage in self.faults.shortages.values():
                capacity = {"AutoScalingGroupName": shortage.group, "DesiredCapacity": shortage.desired}
                self.call("autoscaling", shortage.region, "set_desired_capacity", capacity)


@dataclass(frozen=True, slots=True)
class Aws:
    """The client of one region of the simulated AWS."""

    simulation: Simulation
    region: str

    @property
    def account(self) -> str:
        """The account id."""
        return self.simulation.account

    @property
    def now(self) -> datetime:
        """The time of the simulated clock."""
        return datetime.now(UTC) + self.simulation.elapsed

    def in_region(self, region: str) -> "Aws":
        """Return the client of another region of the same account."""
        return Aws(self.simulation, region)

    def call(self, service: str, operation: str, **params: Any) -> dict[str, Any]:  # noqa: ANN401  # boto3's own
        """Call an operation: `call("ec2", "create_vpc", CidrBlock="10.0.0.0/16")`; raise ResourceError if it fails."""
        return self.simulation.call(service, self.region, operation, params)

    def shape(self, service: str, operation: str) -> StructureShape:
        """Return the input shape of an operation, from botocore's service model."""
        return _shape(service, self.region, operation)

    def arn(self, service: str, resource: str) -> str:
        """Return the ARN of a resource in this region and account."""
        return f"arn:aws:{service}:{self.region}:{self.account}:{resource}"

    def fakes(self, token: str) -> dict[str, dict[str, Any]]:
        """Return the fakes of one type: id -> properties."""
        return self.simulation.fakes.setdefault(token, {})


@contextmanager
def running(account: str) -> Iterator[Simulation]:
    """Run a simulated AWS in this context; one at a time in a process, and RuntimeError inside another one.

    The context hides the AWS credentials, profiles and endpoints of the machine, so that a program that calls boto3
    itself cannot reach a real account either.
    """
    simulation = Simulation(account)
    with (
        alone(),
        no_ambient_aws(),
        environment({"MOTO_ACCOUNT_ID": account}),  # of all requests, whatever their credentials
        rare_garbage_collection(),
        no_preloaded_images(),
        mock_aws(),
        repaired(),
        # The source position of each resource, which nothing reads here, takes a twelfth of a run.
        patch.object(sdk, "_get_stack_trace", StackTrace),
        failing_launches(simulation.faults),
    ):
        yield simulation
