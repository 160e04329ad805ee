"""The role `frameworks`: PyTorch in one environment for all users of a workbench."""
