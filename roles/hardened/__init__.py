"""Hardening of every node: packet filter, sshd, PAM, audit, sysctls and file modes."""
