"""Transforms: functions of the program that change a resource's inputs and options before it is registered.

They live in the SDK, behind tokens, and run on the program's own loop.
"""

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.message import Message
from pulumi.runtime._callbacks import _CallbackServicer
from pulumi.runtime.proto import resource_pb2

from bedplate.rehearsal.refusal import Refusal

# What a transform may change, in the request's terms and in the transform's: name there -> name here.
_PLAIN = {
    "protect": "protect",
    "retain_on_delete": "retainOnDelete",
    "provider": "provider",
    "version": "version",
    "deleted_with": "deletedWith",
}
_LISTS = {
    "depends_on": "dependencies",
    "ignore_changes": "ignoreChanges",
    "replace_on_changes": "replaceOnChanges",
    "additional_secret_outputs": "additionalSecretOutputs",
    "aliases": "aliases",
}


@dataclass(slots=True)
class Transforms:
    """The transforms of one run: the stack's, and each resource's, which its children inherit."""

    stack: list[str] = field(default_factory=list)
    _of: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def apply(self, asked: resource_pb2.RegisterResourceRequest, urn: str) -> None:
        """Change a request as the resource's own transforms want, then its ancestors', then the stack's."""
        own = tuple(callback.token for callback in asked.transforms)
        inherited = self._of.get(asked.parent, ())
        self._of[urn] = (*own, *inherited)
        for token in (*own, *inherited, *self.stack):
            _merge(asked, _call(token, _question(asked)))


def _question(asked: resource_pb2.RegisterResourceRequest) -> resource_pb2.TransformRequest:
    options = resource_pb2.TransformResourceOptions(
        **{theirs: getattr(asked, ours) for theirs, ours in {**_PLAIN, **_LISTS}.items()}
    )
    if asked.deleteBeforeReplaceDefined:
        options.delete_before_replace = asked.deleteBeforeReplace
    return resource_pb2.TransformRequest(
        type=asked.type,
        name=asked.name,
        custom=asked.custom,
        parent=asked.parent,
        properties=asked.object,
        options=options,
    )


def _merge(asked: resource_pb2.RegisterResourceRequest, answer: resource_pb2.TransformResponse) -> None:
    asked.object.CopyFrom(answer.properties)
    if not answer.HasField("options"):
        return
    for theirs, ours in _PLAIN.items():
        setattr(asked, ours, getattr(answer.options, theirs))
    for theirs, ours in _LISTS.items():
        field = getattr(asked, ours)
        del field[:]
        field.extend(getattr(answer.options, theirs))
    if answer.options.HasField("delete_before_replace"):
        asked.deleteBeforeReplace, asked.deleteBeforeReplaceDefined = (
            answer.options.delete_before_replace,
            True,
        )


def _call(token: str, question: resource_pb2.TransformRequest) -> Any:  # noqa: ANN401  # the SDK types it as Message
    for servicer in list(_CallbackServicer._servicers):  # noqa: SLF001  # a contract test watches these names
        if callback := servicer._callbacks.get(token):  # noqa: SLF001
            answer = _awaited(callback(question.SerializeToString()))
            waiting = asyncio.run_coroutine_threadsafe(answer, servicer._loop)  # noqa: SLF001
            try:
                return waiting.result()
            except Exception as error:  # whatever a program's function raises is its own fault
                raise Refusal("TransformFailed", f"{type(error).__name__}: {error}") from error
    raise Refusal("TransformFailed", "the program ended before it could be asked")


async def _awaited(answer: Awaitable[Message]) -> Message:
    return await answer
