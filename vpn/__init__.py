"""Keys and certificates, and configuration of OpenVPN, strongSwan and FRR. Only `pki` and `push` write files or open connections."""
