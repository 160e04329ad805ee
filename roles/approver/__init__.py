"""The role `approver`: approves the certificates of nodes on a member of the control plane."""
