"""The floor of evaluation: a program run by the SDK, with mocks that answer every request at once."""

import asyncio
import threading
from typing import Any

from pulumi import Output
from pulumi.runtime import mocks, set_all_config, set_mocks
from pulumi.runtime.settings import ROOT, SETTINGS, get_root_resource
from pulumi.runtime.stack import Stack, run_in_stack

from bedplate.rehearsal import schema
from bedplate.rehearsal import stack as stacks


class AtOnce(mocks.Mocks):
    """Gives back the inputs as outputs, and another stack's exports as they were left."""

    def __init__(self) -> None:
        self.exports: dict[str, dict[str, Any]] = {}

    def call(self, args: mocks.MockCallArgs) -> Any:  # noqa: ANN401  # the base class's own
        """Answer a data function with what it was asked."""
        return args.args

    def new_resource(self, args: mocks.MockResourceArgs) -> tuple[str, dict[str, Any]]:
        """Answer a registration with an id, its own inputs, and a word for each other output."""
        if args.typ == "pulumi:pulumi:StackReference":
            return args.name, {"name": args.name, "outputs": self.exports[args.name], "secretOutputNames": []}
        known = schema.outputs(args.typ) if args.typ.startswith("aws:") else ()
        return f"{args.name}-id", {**dict.fromkeys(known, args.name), **args.inputs}


def evaluate_with_null_mocks(stack: stacks.Stack, at_once: AtOnce) -> None:
    """Run one stack's program to its end."""

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, _told: None)
        set_all_config(dict(stack.config), [])
        SETTINGS.outputs = set()
        SETTINGS.lock = threading.Lock()
        ROOT.set(object())  # type: ignore[arg-type]  # else set_mocks makes a root of its own
        set_mocks(at_once, organization="organization", project=stack.project, stack=stack.name, preview=False)
        ROOT.set(None)
        await run_in_stack(stack.program)
        root = get_root_resource()
        assert isinstance(root, Stack)
        exports = {key: await Output.from_input(value).future() for key, value in root.outputs.items()}
        at_once.exports[stack.full_name] = exports

    asyncio.run(main())
