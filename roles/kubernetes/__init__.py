"""The role `kubernetes`: kubelet with the settings of this machine, and kubeadm."""
