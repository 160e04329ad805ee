"""The role `containers`: containerd, and GPUs in containers."""
