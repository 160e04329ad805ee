"""User data of every node: what it does by itself when it first starts, as a list of steps.

The script lies beside this file and is shipped as it is; all that differs between nodes are the quoted words in
front of it. It holds no secret: whoever may describe a template can read it.
"""

from collections.abc import Mapping
from pathlib import Path
from shlex import quote

from bedplate.plan.fleet import FleetPlan, Member
from bedplate.plan.hostnames import highest, ssh_name
from bedplate.plan.pool import PoolPlan
from bedplate.spec.network import Egress
from bedplate.spec.site import Use

_SCRIPT = Path(__file__).with_suffix(".sh")


def first_boot(plan: FleetPlan, pool: PoolPlan) -> str:
    """Return the script that a pool's machines run when they first start."""
    group = {"SCALING_GROUP": f"{plan.name}-{pool.name}"}
    if pool.use is Use.KUBERNETES:
        return _script(plan, ("take_ec2_name", "let_admins_in", "report_ready"), group)
    place = ssh_name(plan, pool, 1).partition(".")[2]
    names = {"LABEL": pool.group, "PLACE": place, "HIGHEST": str(highest(plan, pool))}
    steps = ("claim_name", "take_claimed_name", "let_admins_in", "watch_for_end", "report_ready")
    return _script(plan, steps, group | names)


def member_boot(plan: FleetPlan, member: Member, volume_id: str) -> str:
    """Return the script that a machine of the control plane runs when it first starts; etcd's data is on the volume."""
    words = {
        "SCALING_GROUP": f"{plan.name}-{member.name.partition('.')[0]}",
        "HOST_NAME": f"{member.name}.{plan.domain}",
        "VOLUME": volume_id,
    }
    return _script(plan, ("take_fixed_name", "let_admins_in", "attach_volume", "mount_volume", "report_ready"), words)


def _script(plan: FleetPlan, steps: tuple[str, ...], words: Mapping[str, str]) -> str:
    """Return the script with its words; without a way to AWS a node takes the steps that need none."""
    able = steps if plan.egress is not Egress.NONE else tuple(step for step in steps if step in _OFFLINE)
    known = {"STEPS": " ".join(able), "FLEET": plan.name, "HOME_REGION": plan.home.name, **words}
    head = [f"readonly {name}={quote(value)}" for name, value in known.items()]
    return "\n".join(("#!/bin/bash", *head, _SCRIPT.read_text(encoding="utf-8")))


_OFFLINE = ("take_ec2_name", "take_fixed_name")
