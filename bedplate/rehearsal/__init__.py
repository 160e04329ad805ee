"""Runs Pulumi programs in this process against a simulated AWS: no account, no network, no Pulumi binary.

The program uses the unchanged Pulumi SDK. The modules follow the path of a resource from the program to the cloud:

- `rehearse`: run all stacks in waves: create, run again, change, destroy; the report of that.
- `stack`: one stack, and one run of its program.
- `monitor`: evaluation of a program. It implements the resource monitor, the gRPC service of Pulumi's engine.
- `registration`: one resource as the program registers it: its options, aliases, transforms and provider.
- `deployment`: the state of one run: registers resources, skips dependents of failed ones, deletes the rest.
- `change`: diff of old and new inputs, and the steps of one resource: create, update, replace, delete.
- `provider`: the AWS provider's part: checks inputs, applies defaults and tags, calls the resource kind.
- `kind`, `kinds`: one resource type each: its inputs, and how it is created, read, updated and deleted.
- `lookups`: data functions such as `aws.ec2.get_ami`. `placement`: Pulumi inputs as parameters of AWS calls.
- `schema`: names and types of inputs and outputs, from the SDK. `quotas`: AWS's default quotas.
- `simulation`: the simulated AWS account and its boto3 clients. `moto`: repairs of moto. `faults`: injected faults.
- `state`, `wire`: state entries, steps and errors; values on the wire, unknown values and secrets.

The rehearsal never accepts more than AWS does. Input that it does not model is an error.
"""

from bedplate.rehearsal.ambient import no_ambient_aws

# moto opens a boto3 session on import. The session fails if AWS_PROFILE names an unknown profile.
with no_ambient_aws():
    import moto.ec2  # noqa: F401  # imported for this session only; modules import the parts of moto that they use
