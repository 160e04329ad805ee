"""Keys and certificates, and configuration of OpenVPN, strongSwan and FRR; only `pki` and `push` have effects."""
