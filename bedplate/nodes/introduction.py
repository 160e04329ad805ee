"""How a machine's host key comes to be known, in words for an operator: from AWS, or from the machine's console."""

from bedplate.plan.node import Duty, Ground, NodePlan


def tells_its_key(node: NodePlan) -> bool:
    """Tell whether a machine writes its host key into the fleet's zone when it first starts."""
    return node.ground is Ground.CLOUD and Duty.WORKBENCH in node.duties


def introduction(node: NodePlan) -> str:
    """Return what to do so that the lock knows a machine's host key."""
    if tells_its_key(node):
        return f"`bedplate node trust {node.name}` asks AWS for it, and the machine"
    if Duty.WORKER in node.duties and node.ground is Ground.CLOUD:
        return "it has no name that could be recorded: name its key in a configuration of your own, --ssh-config"
    return f"read the fingerprint at its console, then `bedplate node trust {node.name} SHA256:...`"
