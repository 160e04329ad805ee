"""The roles of a node: what pyinfra configures. A role takes values of the plan and never reads the fleet file."""
