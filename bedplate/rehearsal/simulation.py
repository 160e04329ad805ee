"""The one door to the simulated AWS: moto in this process, under fixed credentials, with no way out of it.

moto's back ends are plain dictionaries without locks, so calls are made one at a time.
"""

import gc
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any, Final, Never

import boto3
from botocore.client import BaseClient
from botocore.config import Config
from botocore.exceptions import ClientError, ParamValidationError
from botocore.model import StructureShape
from moto import mock_aws

from bedplate.rehearsal.ambient import no_ambient_aws
from bedplate.rehearsal.faults import Faults
from bedplate.rehearsal.moto import bring, empty_stock, failing_launches, hold_images, mended
from bedplate.rehearsal.state import Refusal

_running = threading.Lock()
_held_by: list[int] = []


@contextmanager
def alone() -> Iterator[None]:
    """Hold the process's one simulation; RuntimeError in a thread that holds it already."""
    if threading.get_ident() in _held_by:
        raise RuntimeError("this thread runs a simulation already, and would wait for itself")
    with _running:
        _held_by.append(threading.get_ident())
        try:
            yield
        finally:
            _held_by.clear()


# A rehearsal's heap is large and lives long (the SDK's futures, moto's and botocore's models): at the usual thresholds
# a third of its time goes into looking through it again and again.
_SELDOM: Final = (50_000, 20, 100)


@contextmanager
def seldom_collected() -> Iterator[None]:
    """Collect seldom for as long as the context lasts."""
    before = gc.get_threshold()
    gc.set_threshold(*_SELDOM)
    try:
        yield
    finally:
        gc.set_threshold(*before)


# No retries: in a simulation a refusal is an answer. No configured endpoint: only moto may answer.
_CONFIG = Config(retries={"total_max_attempts": 1}, ignore_configured_endpoint_urls=True)


class _NoWayOut:
    """Stands where botocore keeps its HTTP session; only a request that moto let pass arrives here."""

    def send(self, request: Any) -> Never:  # noqa: ANN401  # botocore's request type is private
        raise Refusal("NotSimulated", f"moto does not answer {request.method} {request.url.partition('?')[0]}")


@dataclass
class Simulation:
    """One simulated AWS account in all regions; what was created lives as long as `running` does."""

    account: str
    calls: int = 0
    # What moto has no model of, kept by us: token of the kind -> id -> properties.
    fakes: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    faults: Faults = field(default_factory=Faults)
    elapsed: timedelta = timedelta()
    """How far its clock is ahead of the real one."""
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _clients: dict[tuple[str, str], BaseClient] = field(default_factory=dict)
    _shapes: dict[tuple[str, str], StructureShape] = field(default_factory=dict)

    def region(self, name: str) -> "Aws":
        """Return the door to one region."""
        return Aws(self, name)

    def hold_images(self, images: Mapping[str, str]) -> None:
        """Hold images that the account was given before anything is rehearsed: ids by `region/architecture`."""
        with self._lock:
            hold_images(self.account, images)

    @cached_property
    def _session(self) -> boto3.session.Session:
        """Credentials of a role in `account`: moto tells accounts apart by whose keys sign a request."""
        visitor = boto3.session.Session("rehearsal", "rehearsal", region_name="us-east-1")
        role = f"arn:aws:iam::{self.account}:role/rehearsal"
        keys = visitor.client("sts", config=_CONFIG).assume_role(RoleArn=role, RoleSessionName="rehearsal")
        held = keys["Credentials"]
        return boto3.session.Session(held["AccessKeyId"], held["SecretAccessKey"], held["SessionToken"])

    def client(self, service: str, region: str) -> BaseClient:
        """Return the client of a service in a region; making one is slow, so each is made once."""
        with self._lock:
            if (service, region) not in self._clients:
                made = self._session.client(service, region_name=region, config=_CONFIG)
                made._endpoint.http_session = _NoWayOut()  # noqa: SLF001  # the only place to stop a request
                self._clients[service, region] = made
            return self._clients[service, region]

    def shape(self, service: str, operation: str) -> StructureShape:
        """Return what an operation takes; botocore would build it anew each time."""
        if (service, operation) not in self._shapes:
            meta = self.client(service, "us-east-1").meta
            model = meta.service_model.operation_model(meta.method_to_api_mapping[operation])
            self._shapes[service, operation] = model.input_shape
        return self._shapes[service, operation]

    def call(self, service: str, region: str, operation: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Make one call; raise Refusal with AWS's error code when it fails."""
        with self._lock:
            self.faults.check_region(service, region)
            self.calls += 1
            bring(self.account, region, operation, params)
            try:
                reply: dict[str, Any] = getattr(self.client(service, region), operation)(**params)
            except ClientError as error:
                details = error.response["Error"]
                raise Refusal(details["Code"], details.get("Message", "")) from None
            except ParamValidationError as error:
                raise Refusal("ValidationError", str(error)) from None
            except NotImplementedError as error:
                raise Refusal("NotSimulated", f"moto does not model {service}.{operation}: {error}") from None
            return reply

    def end_faults(self) -> None:
        """End all faults; groups without capacity start their instances, as Auto Scaling retries by itself."""
        with self._lock:
            self.faults.active = frozenset()
            for shortage in self.faults.shortages.values():
                capacity = {"AutoScalingGroupName": shortage.group, "DesiredCapacity": shortage.desired}
                self.call("autoscaling", shortage.region, "set_desired_capacity", capacity)


@dataclass(frozen=True, slots=True)
class Aws:
    """One region of the simulated AWS, as resource kinds see it."""

    simulation: Simulation
    region: str

    @property
    def account(self) -> str:
        """The account's twelve digits."""
        return self.simulation.account

    @property
    def now(self) -> datetime:
        """The time by the simulated clock."""
        return datetime.now(UTC) + self.simulation.elapsed

    def elsewhere(self, region: str) -> "Aws":
        """Return the door to another region of the same account."""
        return Aws(self.simulation, region)

    def call(self, service: str, operation: str, **params: Any) -> dict[str, Any]:  # noqa: ANN401  # boto3's own
        """Make one call, `call("ec2", "create_vpc", CidrBlock="10.0.0.0/16")`; raise Refusal when refused."""
        return self.simulation.call(service, self.region, operation, params)

    def shape(self, service: str, operation: str) -> StructureShape:
        """Return what an operation takes, from botocore's service model."""
        return self.simulation.shape(service, operation)

    def arn(self, service: str, resource: str) -> str:
        """Return the ARN of a resource of this region and account."""
        return f"arn:aws:{service}:{self.region}:{self.account}:{resource}"

    def fakes(self, token: str) -> dict[str, dict[str, Any]]:
        """Return the fakes of one kind, id -> properties."""
        return self.simulation.fakes.setdefault(token, {})


@contextmanager
def running(account: str) -> Iterator[Simulation]:
    """Run a simulated AWS for as long as the context lasts; one at a time in a process, RuntimeError within one.

    The machine's AWS settings (credentials, profiles, endpoints) are out of sight meanwhile, so that not even a
    program that calls boto3 by itself can reach a real account.
    """
    simulation = Simulation(account)
    with (
        alone(),
        no_ambient_aws(),
        seldom_collected(),
        empty_stock(),
        mock_aws(),
        mended(),
        failing_launches(simulation.faults),
    ):
        yield simulation
