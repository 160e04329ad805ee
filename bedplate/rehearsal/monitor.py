"""Evaluation of a program: `evaluate` runs it, and `Monitor` answers the SDK in place of Pulumi's engine.

`Monitor` implements the resource monitor service: it passes registrations, reads and function calls to a `Deployment`
and returns its entries. `PendingTasks` replaces a set in the SDK that is slow for large programs.
"""

import asyncio
import os
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

from google.protobuf.empty_pb2 import Empty
from pulumi.runtime import mocks, set_all_config, set_mocks
from pulumi.runtime.proto import callback_pb2, resource_pb2
from pulumi.runtime.settings import ROOT, SETTINGS
from pulumi.runtime.stack import run_in_stack

from bedplate.rehearsal.deployment import Deployment
from bedplate.rehearsal.lookups import look_up
from bedplate.rehearsal.provider import kind_of
from bedplate.rehearsal.registration import from_request
from bedplate.rehearsal.state import STACK_REFERENCE_TYPE, Entry, ResourceError, UnsupportedError
from bedplate.rehearsal.wire import WIRE_MARK, Secret, from_struct, holds_unknown, reveal, to_struct

_FEATURES = (
    resource_pb2.RESOURCE_MONITOR_FEATURE_SECRETS,
    resource_pb2.RESOURCE_MONITOR_FEATURE_RESOURCE_REFERENCES,
    resource_pb2.RESOURCE_MONITOR_FEATURE_ALIAS_SPECS,
    resource_pb2.RESOURCE_MONITOR_FEATURE_DELETED_WITH,
    resource_pb2.RESOURCE_MONITOR_FEATURE_TRANSFORMS,
)


class Monitor(mocks.MockMonitor):
    """The resource monitor of one run; it has the methods of the gRPC service."""

    def __init__(self, deployment: Deployment, exports: Mapping[str, Mapping[str, Any]]) -> None:
        super().__init__(_NoMocks())
        self._deployment = deployment
        self._exports = exports
        self.defect: Exception | None = None
        """An internal error in a request; the SDK would report it as an error of the program."""

    def GetDeploymentInfo(self, request: Empty) -> resource_pb2.DeploymentInfo:  # noqa: N802, ARG002  # protocol
        """Return the supported features of the protocol; the SDK refuses the others."""
        return resource_pb2.DeploymentInfo(supportedFeatures=_FEATURES)

    def RegisterResource(  # noqa: N802  # protocol
        self, request: resource_pb2.RegisterResourceRequest
    ) -> resource_pb2.RegisterResourceResponse:
        """Register a resource; a failed one gets the result FAIL, so that the program continues."""
        urn = self._deployment.urn_of(request.parent, request.type, request.name)
        with self._defects():
            entry = self._registered(request, urn)
        if entry is None:
            return resource_pb2.RegisterResourceResponse(urn=urn, result=resource_pb2.Result.FAIL)
        properties = entry.outputs if entry.custom else entry.inputs
        return resource_pb2.RegisterResourceResponse(urn=urn, id=entry.ident, object=to_struct(dict(properties)))

    def RegisterResourceOutputs(  # noqa: N802  # protocol
        self, request: resource_pb2.RegisterResourceOutputsRequest
    ) -> Empty:
        """Store the outputs of a component or of the stack."""
        self._deployment.register_outputs(request.urn, from_struct(request.outputs))
        return Empty()

    def ReadResource(  # noqa: N802  # protocol
        self, request: resource_pb2.ReadResourceRequest
    ) -> resource_pb2.ReadResourceResponse:
        """Read the exports of another stack, or an existing resource."""
        urn = self._deployment.urn_of(request.parent, request.type, request.name)
        # In a preview, the resource may not exist yet.
        ident = "" if request.id == WIRE_MARK else request.id
        entry = Entry(
            urn=urn,
            custom=True,
            ident=ident,
            inputs={"name": ident} if request.type == STACK_REFERENCE_TYPE else {},
            outputs={},
            parent=request.parent,
            provider=request.provider,
            external=True,
        )
        try:
            with self._defects():
                entry = replace(entry, outputs=self._read(request))
                self._deployment.read(entry)
        except ResourceError as refusal:
            self._deployment.fail(urn, refusal)
            return resource_pb2.ReadResourceResponse(urn=urn, result=resource_pb2.Result.FAIL)
        return resource_pb2.ReadResourceResponse(urn=urn, id=ident, properties=to_struct(dict(entry.outputs)))

    def Invoke(  # noqa: N802  # protocol
        self, request: resource_pb2.ResourceInvokeRequest
    ) -> resource_pb2.ResourceInvokeResponse:
        """Return the result of a data function; it is unknown if an argument is unknown."""
        args = reveal(from_struct(request.args))
        if holds_unknown(args):
            return resource_pb2.ResourceInvokeResponse()
        try:
            with self._defects():
                result = self._invoke(request, args)
        except ResourceError as refusal:
            # The SDK raises this in the program, and the run reports the exception.
            raise ResourceError(refusal.code, f"{request.tok}: {refusal.message}", key=refusal.key) from None
        return _invoke_response(result)

    def RegisterStackTransform(self, request: callback_pb2.Callback) -> Empty:  # noqa: N802, ARG002  # protocol
        """Refuse a transform of every resource of the stack, as registrations refuse those of one resource."""
        raise UnsupportedError("the rehearsal does not model transforms")

    @contextmanager
    def _defects(self) -> Iterator[None]:
        try:
            yield
        except ResourceError:
            raise
        except Exception as defect:
            self.defect = self.defect or defect
            raise

    def _registered(self, request: resource_pb2.RegisterResourceRequest, urn: str) -> Entry | None:
        try:
            return self._deployment.register(from_request(request))
        except ResourceError as refusal:
            self._deployment.fail(urn, refusal)
            return None

    def _invoke(self, request: resource_pb2.ResourceInvokeRequest, args: dict[str, Any]) -> dict[str, Any]:
        reference = self._deployment.provider_reference(request.provider, request.tok, request.version)
        return look_up(self._deployment.providers.of(reference).aws, request.tok, args)

    def _read(self, request: resource_pb2.ReadResourceRequest) -> dict[str, Any]:
        if request.type == STACK_REFERENCE_TYPE:
            return self._stack_outputs(request.id)
        reference = self._deployment.provider_reference(request.provider, request.type, request.version)
        provider = self._deployment.providers.of(reference)
        if request.id == WIRE_MARK:
            return provider.expected(kind_of(request.type), {})
        return provider.read(kind_of(request.type), request.id, from_struct(request.properties))

    def _stack_outputs(self, name: str) -> dict[str, Any]:
        if name not in self._exports:
            stack_names = ", ".join(sorted(self._exports)) or "none"
            raise ResourceError("UnknownStack", f"no stack {name} with exports; stacks with exports: {stack_names}")
        exports = self._exports[name]
        secret = sorted(key for key, value in exports.items() if isinstance(value, Secret))
        return {"name": name, "outputs": dict(exports), "secretOutputNames": secret}


def _invoke_response(result: dict[str, Any]) -> resource_pb2.ResourceInvokeResponse:
    response = resource_pb2.ResourceInvokeResponse()
    # The name of the field is a keyword in Python.
    getattr(response, "return").CopyFrom(to_struct(result))
    return response


class _NoMocks(mocks.Mocks):
    """Required by the constructor of MockMonitor, and never called."""

    def call(self, args: mocks.MockCallArgs) -> Any:  # noqa: ANN401  # the base class's own
        raise AssertionError(args.token)

    def new_resource(self, args: mocks.MockResourceArgs) -> Any:  # noqa: ANN401  # the base class's own
        raise AssertionError(args.typ)


Task = asyncio.Task[Any]


class PendingTasks(set[Task]):
    """The set of tasks that the SDK waits for; iteration yields one task that waits for all of them."""

    def __iter__(self) -> Iterator[Task]:
        """Yield a task that ends with the last task of the set; nothing if the set is empty."""
        tasks = frozenset(super().__iter__())
        if tasks:
            yield asyncio.ensure_future(_all(tasks))


async def _all(tasks: frozenset[Task]) -> None:
    """Wait for all tasks; raise the first exception."""
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    for task in done:
        task.result()


_PLACEHOLDER: Final[Any] = object()
# Seconds without progress after which a program that waits only for its own tasks counts as finished.
_IDLE_SECONDS: Final = 0.5
Program = Callable[[], None]


@dataclass(frozen=True, slots=True)
class RunSettings:
    """The project, stack and configuration of a program run."""

    project: str
    stack: str
    preview: bool
    config: Mapping[str, str]


def evaluate(program: Program, monitor: Monitor, settings: RunSettings) -> None:
    """Run a program with a monitor; an exception of the program is raised here."""

    async def main() -> None:
        # A failed resource leaves futures that nothing awaits; the monitor has reported the failure.
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _loop, _context: None)
        # The SDK calls the monitor in this executor. One thread is enough: calls of the simulation are serial.
        loop.set_default_executor(ThreadPoolExecutor(1))
        _configure_sdk(monitor, settings)
        try:
            await run_in_stack(program)
        except BaseException:
            # The SDK stops at the first exception; the engine still creates the resources declared before it.
            await _wait_until_idle()
            raise

    # A failing program leaves coroutines behind; its failure is reported.
    warnings.filterwarnings("ignore", r"coroutine 'Output\.\w+' was never awaited", RuntimeWarning)
    # An Output in an f-string raises an error instead of inserting a message.
    os.environ["PULUMI_ERROR_OUTPUT_STRING"] = "true"
    asyncio.run(main())


async def _wait_until_idle() -> None:
    """Wait until the program and the monitor have no task left, or none makes progress."""
    loop, own = asyncio.get_running_loop(), {asyncio.current_task()}
    while waiting := asyncio.all_tasks() - own:
        # Runs after every call that the SDK has sent to the monitor so far.
        await loop.run_in_executor(None, lambda: None)
        done, _ = await asyncio.wait(waiting, timeout=_IDLE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        if not done:
            return


def _configure_sdk(monitor: Monitor, settings: RunSettings) -> None:
    set_all_config(dict(settings.config), [])
    # set_mocks keeps these two for the whole process: a second run would wait for the tasks of the first.
    SETTINGS.outputs = PendingTasks()
    SETTINGS.lock = threading.Lock()
    # set_mocks creates a root stack if there is none, but only run_in_stack may create it.
    ROOT.set(_PLACEHOLDER)
    set_mocks(
        monitor.mocks,
        project=settings.project,
        stack=settings.stack,
        preview=settings.preview,
        monitor=monitor,
        organization="organization",
    )
    ROOT.set(None)
