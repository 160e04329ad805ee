"""The rehearsal's resource models as an AWS provider of Pulumi's real engine, over gRPC.

`python -m tests.testlab.engine.provider PORT ACCOUNT [FOLDER]` serves one simulated AWS until it is killed, and prints
its port once it is ready; PORT 0 takes a free one. The engine uses it with `PULUMI_DEBUG_PROVIDERS=aws:PORT`. All
provider instances of all stacks share the process, and requests do not name their instance, so configurations are
kept by gRPC connection.

With FOLDER tests see the same AWS: `client` is a socket for `tests.testlab.engine.client`, `objects.json` holds the
live objects. If `pause` holds a number n, the engine gets no answer for the n-th new object; `paused` says so.
"""

import json
import re
import sys
import threading
import time
from concurrent import futures
from multiprocessing.connection import Listener
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import empty_pb2
from pulumi.runtime.proto import plugin_pb2, provider_pb2, provider_pb2_grpc

from bedplate.rehearsal.change import Difference, difference
from bedplate.rehearsal.lookups import look_up
from bedplate.rehearsal.provider import AwsProvider, Checked, configured, kind_of
from bedplate.rehearsal.simulation import Aws, Simulation, client_of, running
from bedplate.rehearsal.state import Ledger, ResourceError, parse_urn
from bedplate.rehearsal.wire import from_struct, to_struct

# Where the real, bridged provider keeps the names of the inputs that it filled in.
_DEFAULTS = "__defaults"


def _checked(struct: Any) -> Checked:  # noqa: ANN401  # a protobuf struct
    inputs = from_struct(struct)
    return Checked(inputs, frozenset(inputs.pop(_DEFAULTS, None) or ()))


def _kind(path: str, diff: Difference) -> Any:  # noqa: ANN401  # an enumeration of protobuf
    is_replacing = any(path.startswith(key) for key in diff.replace_keys)
    kinds = provider_pb2.PropertyDiff.Kind
    return kinds.UPDATE_REPLACE if is_replacing else kinds.UPDATE


# The tags of other services have operations of their own.
_EC2_ID = re.compile("[a-z]+(-[a-z]+)*-[0-9a-f]{17}")


def _tags(aws: Aws, ident: str) -> dict[str, str]:
    """Return the live tags of a resource of EC2."""
    tags = aws.call("ec2", "describe_tags", Filters=[{"Name": "resource-id", "Values": [ident]}])["Tags"]
    return {tag["Key"]: tag["Value"] for tag in tags}


def _inputs(checked: Checked) -> dict[str, Any]:
    return {**checked.inputs, _DEFAULTS: sorted(checked.defaults)}


class Provider(provider_pb2_grpc.ResourceProviderServicer):
    """The provider protocol for one simulated AWS. The server has one thread, because moto is not thread-safe."""

    def __init__(self, simulation: Simulation, folder: Path | None = None) -> None:
        self._simulation = simulation
        self._folder = folder
        self._ledger = Ledger()
        self._providers: dict[str, AwsProvider] = {}

    def Handshake(self, request: Any, context: Any) -> Any:  # noqa: ANN401, ARG002, N802
        """Accept secrets, so that the engine passes them on."""
        return provider_pb2.ProviderHandshakeResponse(accept_secrets=True, accept_resources=False, accept_outputs=False)

    def Attach(self, request: Any, context: Any) -> Any:  # noqa: ANN401, ARG002, N802
        """Accept the engine's address: the provider logs nothing to it."""
        return empty_pb2.Empty()

    def GetPluginInfo(self, request: Any, context: Any) -> Any:  # noqa: ANN401, ARG002, N802
        """Return the version of the provider that the SDK was generated from."""
        return plugin_pb2.PluginInfo(version="7.51.1")

    def CheckConfig(self, request: Any, context: Any) -> Any:  # noqa: ANN401, ARG002, N802
        """Accept every configuration; `Configure` refuses unknown inputs."""
        return provider_pb2.CheckResponse(inputs=request.news)

    def DiffConfig(self, request: Any, context: Any) -> Any:  # noqa: ANN401, ARG002, N802
        """Replace a provider that moves to another region."""
        is_moved = from_struct(request.olds).get("region") != from_struct(request.news).get("region")
        kind = provider_pb2.DiffResponse.DIFF_SOME if is_moved else provider_pb2.DiffResponse.DIFF_NONE
        return provider_pb2.DiffResponse(changes=kind, replaces=["region"] if is_moved else [])

    def Configure(self, request: Any, context: Any) -> Any:  # noqa: ANN401, N802
        """Keep the configuration of this connection."""
        with _refusals(context):
            self._providers[context.peer()] = configured(self._simulation, self._ledger, from_struct(request.args))
        return provider_pb2.ConfigureResponse(acceptSecrets=True, supportsPreview=True)

    def Cancel(self, request: Any, context: Any) -> Any:  # noqa: ANN401, ARG002, N802
        """Continue: other instances use the process."""
        return empty_pb2.Empty()

    def Invoke(self, request: Any, context: Any) -> Any:  # noqa: ANN401, N802
        """Answer a lookup of a program."""
        with _refusals(context):
            answer = look_up(self._provider(context).aws, request.tok, from_struct(request.args))
            return provider_pb2.InvokeResponse(**{"return": to_struct(answer)})  # type: ignore[arg-type]  # a keyword

    def Check(self, request: Any, context: Any) -> Any:  # noqa: ANN401, N802
        """Return the inputs with names, defaults and default tags."""
        old = _checked(request.olds) if request.olds.fields else None
        try:
            kind = kind_of(parse_urn(request.urn).type)
            salt = bytes(request.randomSeed).hex()
            checked = self._provider(context).check(kind, request.urn, _checked(request.news).inputs, old, salt=salt)
        except ResourceError as error:
            failure = provider_pb2.CheckFailure(property=error.key, reason=str(error))
            return provider_pb2.CheckResponse(inputs=request.news, failures=[failure])
        return provider_pb2.CheckResponse(inputs=to_struct(_inputs(checked)))

    def Diff(self, request: Any, context: Any) -> Any:  # noqa: ANN401, ARG002, N802
        """Compare the inputs as the rehearsal does."""
        kind = kind_of(parse_urn(request.urn).type)
        old, new = _checked(request.old_inputs).inputs, _checked(request.news).inputs
        ignored = set(request.ignoreChanges)
        diff = difference(kind, old, {**new, **{key: old.get(key) for key in ignored if key in old}})
        automatic = _checked(request.old_inputs).defaults
        keeps_name = kind.naming is not None and kind.naming.key not in (*automatic, *diff.keys)
        return provider_pb2.DiffResponse(
            changes=provider_pb2.DiffResponse.DIFF_SOME if diff.keys else provider_pb2.DiffResponse.DIFF_NONE,
            diffs=diff.keys,
            hasDetailedDiff=True,
            detailedDiff={path: provider_pb2.PropertyDiff(kind=_kind(path, diff)) for path in diff.paths},
            replaces=diff.replace_keys,
            deleteBeforeReplace=bool(diff.replace_keys) and (kind.delete_first or keeps_name),
        )

    def Create(self, request: Any, context: Any) -> Any:  # noqa: ANN401, N802
        """Create a resource in the simulated AWS."""
        kind, checked = kind_of(parse_urn(request.urn).type), _checked(request.properties)
        provider = self._provider(context)
        if request.preview:
            return provider_pb2.CreateResponse(properties=to_struct(provider.expected(kind, checked.inputs)))
        with _refusals(context):
            before = self._object_count()
            ident, outputs = provider.create(kind, checked)
            self._write_objects()
            # A setting that is set again is no new object: it would be killed for ever.
            if self._object_count() > before:
                self._pause(context)
            return provider_pb2.CreateResponse(id=ident, properties=to_struct(outputs))

    def Update(self, request: Any, context: Any) -> Any:  # noqa: ANN401, N802
        """Update a resource in place."""
        kind, provider = kind_of(parse_urn(request.urn).type), self._provider(context)
        new = _checked(request.news)
        if request.preview:
            expected = provider.expected_update(kind, from_struct(request.olds), new.inputs)
            return provider_pb2.UpdateResponse(properties=to_struct(expected))
        with _refusals(context):
            outputs = provider.update(kind, request.id, _checked(request.old_inputs).inputs, new)
            return provider_pb2.UpdateResponse(properties=to_struct(outputs))

    def Read(self, request: Any, context: Any) -> Any:  # noqa: ANN401, N802
        """Return the live outputs; an empty id says that the resource does not exist."""
        kind, checked = kind_of(parse_urn(request.urn).type), _checked(request.inputs)
        provider = self._provider(context)
        try:
            outputs = kind.read(provider.aws, request.id, checked.inputs)
        except (ResourceError, LookupError):
            return provider_pb2.ReadResponse()
        state = {**from_struct(request.properties), **outputs}
        inputs = from_struct(request.inputs)
        if _EC2_ID.fullmatch(request.id) and "tags" in inputs:
            inputs["tags"] = _tags(provider.aws, request.id)
        return provider_pb2.ReadResponse(id=request.id, properties=to_struct(state), inputs=to_struct(inputs))

    def Delete(self, request: Any, context: Any) -> Any:  # noqa: ANN401, N802
        """Delete a resource."""
        kind = kind_of(parse_urn(request.urn).type)
        with _refusals(context):
            self._provider(context).delete(kind, request.id, from_struct(request.properties))
        self._write_objects()
        return empty_pb2.Empty()

    def _object_count(self) -> int:
        return sum(map(len, self._ledger._rows.values()))  # noqa: SLF001  # as below

    def _write_objects(self) -> None:
        if self._folder:
            rows = self._ledger._rows  # noqa: SLF001  # nothing else lists all objects
            objects = [(token, ident) for (token, _), idents in rows.items() for ident in idents]
            (self._folder / "objects.json").write_text(json.dumps(objects))

    def _pause(self, context: Any) -> None:  # noqa: ANN401
        """Lose the answer of a create whose turn it is: wait until the engine is dead."""
        pause = self._folder and self._folder / "pause"
        if not pause or not pause.exists():
            return
        left = int(pause.read_text()) - 1
        pause.write_text(str(left))
        if not left:
            pause.rename(pause.with_name("paused"))
            while context.is_active():
                time.sleep(0.02)

    def _provider(self, context: Any) -> AwsProvider:  # noqa: ANN401
        return self._providers[context.peer()]


class _refusals:  # noqa: N801
    """Passes a refusal of the simulated AWS to the engine as the error of the call."""

    def __init__(self, context: Any) -> None:  # noqa: ANN401
        self._context = context

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, ResourceError):
            self._context.abort(grpc.StatusCode.UNKNOWN, str(error))


def start(simulation: Simulation, port: int, folder: Path | None = None) -> tuple[grpc.Server, int]:
    """Serve a simulated AWS on a port of the loopback device; return the server and its port."""
    server = grpc.server(futures.ThreadPoolExecutor(1), options=[("grpc.so_reuseport", 0)])
    provider_pb2_grpc.add_ResourceProviderServicer_to_server(Provider(simulation, folder), server)
    bound = server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    return server, bound


def serve(port: int, account: str, folder: Path | None = None) -> None:
    """Serve one simulated AWS on a port of the loopback device; print the port."""
    with running(account) as simulation:
        if folder:
            threading.Thread(target=_serve_clients, args=(folder,), daemon=True).start()
        server, bound = start(simulation, port, folder)
        sys.stdout.write(f"{bound}\n")
        sys.stdout.flush()
        server.wait_for_termination()


def _serve_clients(folder: Path) -> None:
    """Answer calls of `tests.testlab.engine.client`, one connection each."""
    with Listener(str(folder / "client")) as listener:
        while True:
            with listener.accept() as connection:
                service, region, operation, params, is_listing = connection.recv()
                client = client_of(service, region)
                try:
                    if is_listing:
                        connection.send(list(client.get_paginator(operation).paginate(**params)))
                    else:
                        connection.send(getattr(client, operation)(**params))
                except Exception as error:  # noqa: BLE001  # the test's process raises it
                    connection.send(error)


if __name__ == "__main__":
    serve(int(sys.argv[1]), sys.argv[2], *(Path(name) for name in sys.argv[3:]))
