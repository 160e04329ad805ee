"""A Pulumi program run in this process against a simulated AWS: no account, no network, no binary.

The unchanged SDK talks to `monitor`, which stands where Pulumi's engine would; `deployment` decides the steps as
the engine does; `provider` answers as the AWS provider does, from the table of resource kinds in `kinds`; moto,
behind the one door in `simulation`, is the cloud. The rehearsal is never kinder than the real thing: what it does not
know it refuses.
"""
