"""The resource monitor: what the SDK talks to in place of Pulumi's engine.

Translates requests of the wire into what `Deployment` understands, and its entries into responses.
"""

import asyncio
import gc
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

from bedplate.rehearsal import state as urns
from bedplate.rehearsal.deployment import Deployment
from bedplate.rehearsal.lookups import look_up
from bedplate.rehearsal.provider import kind_of
from bedplate.rehearsal.registration import Transforms, from_request
from bedplate.rehearsal.state import Entry, Refusal
from bedplate.rehearsal.wire import WIRE_MARK, Secret, from_struct, holds_unknown, reveal, to_struct

_FEATURES = (
    resource_pb2.RESOURCE_MONITOR_FEATURE_SECRETS,
    resource_pb2.RESOURCE_MONITOR_FEATURE_RESOURCE_REFERENCES,
    resource_pb2.RESOURCE_MONITOR_FEATURE_ALIAS_SPECS,
    resource_pb2.RESOURCE_MONITOR_FEATURE_DELETED_WITH,
    resource_pb2.RESOURCE_MONITOR_FEATURE_TRANSFORMS,
)


class Monitor(mocks.MockMonitor):
    """Serves one run. Method names are the protocol's."""

    def __init__(self, deployment: Deployment, exports: Mapping[str, Mapping[str, Any]]) -> None:
        super().__init__(_NoMocks())
        self._deployment = deployment
        self._exports = exports
        self._transforms = Transforms()
        self.defect: Exception | None = None
        """A fault of our own, met while serving a request; the SDK would report it as the program's."""

    def GetDeploymentInfo(self, request: Empty) -> resource_pb2.DeploymentInfo:  # noqa: N802, ARG002  # protocol
        """Say which features of the protocol are served; the SDK itself refuses the others."""
        return resource_pb2.DeploymentInfo(supportedFeatures=_FEATURES)

    def RegisterResource(  # noqa: N802  # protocol
        self, request: resource_pb2.RegisterResourceRequest
    ) -> resource_pb2.RegisterResourceResponse:
        """Register a resource; a failed one is reported as such, so that the others go on."""
        urn = self._deployment.urn_of(request.parent, request.type, request.name)
        with self._defects():
            entry = self._registered(request, urn)
        if entry is None:
            return resource_pb2.RegisterResourceResponse(urn=urn, result=resource_pb2.Result.FAIL)
        known = entry.outputs if entry.custom else entry.inputs
        return resource_pb2.RegisterResourceResponse(urn=urn, id=entry.ident, object=to_struct(dict(known)))

    def RegisterResourceOutputs(  # noqa: N802  # protocol
        self, request: resource_pb2.RegisterResourceOutputsRequest
    ) -> Empty:
        """Take the outputs of a component or of the stack."""
        self._deployment.outputs(request.urn, from_struct(request.outputs))
        return Empty()

    def ReadResource(  # noqa: N802  # protocol
        self, request: resource_pb2.ReadResourceRequest
    ) -> resource_pb2.ReadResourceResponse:
        """Read another stack's exports, or a resource that exists."""
        urn = self._deployment.urn_of(request.parent, request.type, request.name)
        # In a preview, what is read may be still to be made.
        ident = "" if request.id == WIRE_MARK else request.id
        entry = Entry(
            urn=urn,
            custom=True,
            ident=ident,
            inputs={"name": ident} if request.type == urns.STACK_REFERENCE_TYPE else {},
            outputs={},
            parent=request.parent,
            provider=request.provider,
            external=True,
        )
        try:
            with self._defects():
                found = replace(entry, outputs=self._read(request))
                self._deployment.read(found)
        except Refusal as refusal:
            self._deployment.fail(urn, refusal)
            return resource_pb2.ReadResourceResponse(urn=urn, result=resource_pb2.Result.FAIL)
        return resource_pb2.ReadResourceResponse(urn=urn, id=ident, properties=to_struct(dict(found.outputs)))

    def Invoke(  # noqa: N802  # protocol
        self, request: resource_pb2.ResourceInvokeRequest
    ) -> resource_pb2.ResourceInvokeResponse:
        """Answer a data function; in a preview, one that asks about unknown things stays unknown."""
        args = reveal(from_struct(request.args))
        if holds_unknown(args):
            return resource_pb2.ResourceInvokeResponse()
        try:
            with self._defects():
                reply = self._looked_up(request, args)
        except Refusal as refusal:
            # The program hears of it, and its run tells of it.
            raise Refusal(refusal.code, f"{request.tok}: {refusal.message}", key=refusal.key) from None
        return _invoke_response(reply)

    def RegisterStackTransform(self, request: callback_pb2.Callback) -> Empty:  # noqa: N802  # protocol
        """Take a transform of every resource of the stack."""
        self._transforms.stack.append(request.token)
        return Empty()

    @contextmanager
    def _defects(self) -> Iterator[None]:
        try:
            yield
        except Refusal:
            raise
        except Exception as defect:
            self.defect = self.defect or defect
            raise

    def _registered(self, request: resource_pb2.RegisterResourceRequest, urn: str) -> Entry | None:
        if request.type != urns.STACK_TYPE:
            self._transforms.apply(request, urn)
        try:
            return self._deployment.register(from_request(request))
        except Refusal as refusal:
            self._deployment.fail(urn, refusal)
            return None

    def _looked_up(self, request: resource_pb2.ResourceInvokeRequest, args: dict[str, Any]) -> dict[str, Any]:
        reference = self._deployment.provider_reference(request.provider, request.tok, request.version)
        return look_up(self._deployment.providers.of(reference).aws, request.tok, args)

    def _read(self, request: resource_pb2.ReadResourceRequest) -> dict[str, Any]:
        if request.type == urns.STACK_REFERENCE_TYPE:
            return self._stack_outputs(request.id)
        reference = self._deployment.provider_reference(request.provider, request.type, request.version)
        provider = self._deployment.providers.of(reference)
        if request.id == WIRE_MARK:
            return provider.expected(kind_of(request.type), {})
        return provider.read(kind_of(request.type), request.id, from_struct(request.properties))

    def _stack_outputs(self, name: str) -> dict[str, Any]:
        if name not in self._exports:
            known = ", ".join(sorted(self._exports)) or "none yet"
            raise Refusal("UnknownStack", f"no stack {name} has exported anything yet; there are: {known}")
        found = self._exports[name]
        secret = sorted(key for key, value in found.items() if isinstance(value, Secret))
        return {"name": name, "outputs": dict(found), "secretOutputNames": secret}


def _invoke_response(reply: dict[str, Any]) -> resource_pb2.ResourceInvokeResponse:
    response = resource_pb2.ResourceInvokeResponse()
    # The field's name is a word of Python's own.
    getattr(response, "return").CopyFrom(to_struct(reply))
    return response


class _NoMocks(mocks.Mocks):
    """Required by the base class, and never asked."""

    def call(self, args: mocks.MockCallArgs) -> Any:  # noqa: ANN401  # the base class's own
        raise AssertionError(args.token)

    def new_resource(self, args: mocks.MockResourceArgs) -> Any:  # noqa: ANN401  # the base class's own
        raise AssertionError(args.typ)


Task = asyncio.Task[Any]


class Pending(set[Task]):
    """The set of tasks in which the SDK keeps what it waits for; walking it yields one task for all."""

    def __iter__(self) -> Iterator[Task]:
        """Yield a task that ends with the last of the set; nothing where the set is empty."""
        tasks = frozenset(super().__iter__())
        if tasks:
            yield asyncio.ensure_future(_all(tasks))


async def _all(tasks: frozenset[Task]) -> None:
    """Wait for all tasks; raise what the first to fail raises."""
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    for task in done:
        task.result()


_PLACEHOLDER: Final[Any] = object()
# Seconds in which a program that waits for nothing but itself must move on.
_PATIENCE: Final = 0.5
Program = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Setting:
    """Under which names, and with which configuration, a program is run."""

    project: str
    stack: str
    preview: bool
    config: Mapping[str, str]


def evaluate(program: Program, monitor: Monitor, setting: Setting) -> None:
    """Run a program to its end against a monitor; raise what the program raises."""

    async def main() -> None:
        # A failed resource leaves futures that nobody reads; the monitor has told of it already.
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _loop, _told: None)
        # The SDK calls the monitor from the loop's executor; the simulation takes one call at a time anyway.
        loop.set_default_executor(ThreadPoolExecutor(1))
        _settle(monitor, setting)
        try:
            await run_in_stack(program)
        except BaseException:
            # The SDK stops waiting at the first exception; the engine makes what was declared all the same.
            await _quiet()
            raise

    # What a failing program leaves half done; its failure is told.
    warnings.filterwarnings("ignore", r"coroutine 'Output\.\w+' was never awaited", RuntimeWarning)
    # An Output inside an f-string becomes an error instead of a message in the place of the value.
    os.environ["PULUMI_ERROR_OUTPUT_STRING"] = "true"
    asyncio.run(main())


async def _quiet() -> None:
    """Wait until neither the program nor the monitor has anything left to do."""
    loop, own = asyncio.get_running_loop(), {asyncio.current_task()}
    while waiting := asyncio.all_tasks() - own:
        # Comes after every call that the monitor has been sent so far.
        await loop.run_in_executor(None, lambda: None)
        done, _ = await asyncio.wait(waiting, timeout=_PATIENCE, return_when=asyncio.FIRST_COMPLETED)
        if not done:
            return


def tidy() -> None:
    """Drop what a failed program left half done now: found later, it would be taken for another's."""
    gc.collect()


def _settle(monitor: Monitor, setting: Setting) -> None:
    set_all_config(dict(setting.config), [])
    # set_mocks leaves these two as they are, one for the whole process: a second run would wait for the first's tasks.
    SETTINGS.outputs = Pending()
    SETTINGS.lock = threading.Lock()
    # set_mocks makes a root stack where there is none, and there may be only one: that of run_in_stack.
    ROOT.set(_PLACEHOLDER)
    set_mocks(
        monitor.mocks,
        project=setting.project,
        stack=setting.stack,
        preview=setting.preview,
        monitor=monitor,
        organization="organization",
    )
    ROOT.set(None)
