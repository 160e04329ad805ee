"""Runs Pulumi programs in this process against a simulated AWS: no account, no network, no Pulumi binary.

The program uses the unchanged Pulumi SDK. The modules follow the path of a resource from the program to the cloud:

- `rehearse`: run all stacks in waves: create, run again, change, destroy; the report of that.
- `stack`: one stack, and one run of its program.
- `monitor`: evaluation of a program. It implements the resource monitor, the gRPC service of Pulumi's engine.
- `registration`: one resource as the program registers it: its options, aliases and provider.
- `deployment`: the state of one run: registers resources, skips dependents of failed ones, deletes the rest.
- `change`: diff of old and new inputs, and the steps of one resource: create, update, replace, delete.
- `provider`: the AWS provider's part: checks inputs, applies defaults and tags, calls the resource kind.
- `kind`, `kinds`: one resource type each: its inputs, and how it is created, read, updated and deleted.
- `lookups`: data functions such as `aws.get_region`. `kinds.calls`: Pulumi inputs as parameters of AWS calls.
- `schema`: names and types of inputs and outputs, from the SDK. `quotas`: AWS's default quotas.
- `simulation`: the simulated AWS account and its boto3 clients. `moto`: repairs of moto. `faults`: injected faults.
- `state`, `wire`: state entries, steps and errors; values on the wire, unknown values and secrets.

The rehearsal never accepts more than AWS does. Input that it does not model is an error.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager


@contextmanager
def environment(values: Mapping[str, str | None]) -> Iterator[None]:
    """Set environment variables in this context, remove those with the value None; restore them at the end."""
    before = {name: os.environ.get(name) for name in values}
    _set_variables(values)
    try:
        yield
    finally:
        _set_variables(before)


def _set_variables(values: Mapping[str, str | None]) -> None:
    for name, value in values.items():
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value


def no_ambient_aws() -> AbstractContextManager[None]:
    """Hide the AWS credentials, profiles and endpoints of the machine in a context, those in ~/.aws included."""
    ambient = dict.fromkeys(name for name in os.environ if name.startswith("AWS_"))
    return environment({**ambient, "AWS_CONFIG_FILE": os.devnull, "AWS_SHARED_CREDENTIALS_FILE": os.devnull})


# moto opens a boto3 session on import. The session fails if AWS_PROFILE names an unknown profile.
with no_ambient_aws():
    import moto.ec2  # noqa: F401  # imported for this session only; modules import the parts of moto that they use
