"""Programs that run on machines by themselves, with the standard library only: they import nothing else of bedplate.

`gate`, `worker`, `gateway` and `hub` are copied to machines by roles, each with `program`, which all share.
`apply_agent` is sent over SSH. `idle` and `probe` run from the bundle of the machine. `bp` runs on laptops.
"""
