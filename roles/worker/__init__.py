"""The role `worker`: the agent that joins a machine to the cluster, reports its gate, and drains it before it ends."""
