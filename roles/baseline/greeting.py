"""What a node says to whoever logs in: what it is, who owns it, until when."""

from bedplate.plan.node import NodePlan
from roles.shipped import Shipped
from roles.template import rendered


def greeting(node: NodePlan) -> tuple[Shipped, ...]:
    """Return the message of the day; Ubuntu's own news are off."""
    what = " and ".join(sorted(duty.value for duty in node.duties)) or "machine"
    return (
        Shipped("Message of the day", "/etc/motd", rendered("baseline/motd.j2", node=node, what=what)),
        Shipped("No news of the distribution", "/etc/default/motd-news", "ENABLED=0\n"),
    )
