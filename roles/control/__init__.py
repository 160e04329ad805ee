"""The role `control`: a member of the control plane."""
