"""The role `capacity`: the capacity controller on a member of the control plane."""
