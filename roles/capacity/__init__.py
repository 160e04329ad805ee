"""The role `capacity`: the controller of capacity on a member of the control plane."""
