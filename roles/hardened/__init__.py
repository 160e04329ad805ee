"""What keeps strangers out of a node and tells who was in: sshd, packet filter, kernel, logins, audit."""
