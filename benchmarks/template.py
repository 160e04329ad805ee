"""The launch template of every instance type, rendered and held against the schema, beside its floor.

The floor is what the SDK costs by itself: one plain template of its argument classes, built as often. The target is
5 s for the whole catalogue.
"""

import sys
from collections.abc import Callable
from dataclasses import replace
from time import perf_counter

from pulumi_aws.ec2._inputs import LaunchTemplateNetworkInterfaceArgs
from pulumi_aws.ec2.launch_template import LaunchTemplateArgs

from bedplate.catalog import load_catalog
from bedplate.rehearsal import schema_check
from tests.support.pooled import pooled, template_of
from tests.support.rendered import rendered

TOKEN = "aws:ec2/launchTemplate:LaunchTemplate"  # noqa: S105  # the name of a type, no secret
MOST_SECONDS = 5.0


def timed(name: str, work: Callable[[], object]) -> float:
    """Run one piece of work; print and return its seconds."""
    start = perf_counter()
    work()
    seconds = perf_counter() - start
    print(f"{name:<44} {seconds:6.2f} s")
    return seconds


def render() -> list[dict[str, object]]:
    """Return the template of each type of the catalogue, on the fabric where it has one."""
    plans = {True: pooled("p5.48xlarge"), False: pooled("m7i.4xlarge")}
    made = []
    for name, facts in load_catalog().types.items():
        plan = plans[bool(facts.efa)]
        pool = plan.pools[0]
        made.append(template_of(plan, replace(pool, offer=replace(pool.offer, types=(name,)))))
    return made


def floor() -> list[dict[str, object]]:
    """Return as many plain templates of the SDK."""
    return [
        rendered(
            LaunchTemplateArgs(
                image_id="ami-0123456789abcdef0",
                instance_type=name,
                network_interfaces=[LaunchTemplateNetworkInterfaceArgs(device_index=0)],
            )
        )
        for name in load_catalog().types
    ]


def main() -> int:
    """Print the figures; return 1 where the target is missed or the schema is."""
    made = render()
    rendering = timed(f"render {len(made):,} templates", render)
    faults: list[object] = []
    checking = timed("hold them against the schema", lambda: faults.extend(_faults(made)))
    least = timed("floor: as many plain ones of the SDK", floor)
    total = rendering + checking
    print(f"all: {total:.2f} s, {rendering / least:.1f} x the floor to render; {len(faults)} complaints")
    return 0 if total < MOST_SECONDS and not faults else 1


def _faults(made: list[dict[str, object]]) -> list[object]:
    return [fault for one in made for fault in schema_check.complaints(TOKEN, one)]


sys.exit(main())
