"""A Pulumi program run in this process against a simulated AWS: no account, no network, no binary.

The unchanged SDK talks to `monitor`, which stands where Pulumi's engine would; `deployment` decides the steps as
the engine does; `provider` answers as the AWS provider does, from the table of resource kinds in `kinds`; moto,
behind the one door in `simulation`, is the cloud. The rehearsal is never kinder than the real thing: what it does not
know it refuses.
"""

from bedplate.rehearsal.ambient import no_ambient_aws

# moto opens a session of its own when it is imported, which ends in an error where the profile of the day is unknown.
with no_ambient_aws():
    import moto.ec2  # noqa: F401  # for the session alone; whoever needs a part of moto imports it
