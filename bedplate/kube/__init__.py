"""The control plane from the operator's machine: authorities, what members report, and the steps of changes."""
