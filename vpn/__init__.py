"""Keys and certificates, and configuration of OpenVPN, strongSwan and FRR. Pure but for `pki`, `push` and `agent`."""
