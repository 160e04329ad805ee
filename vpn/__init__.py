"""Virtual private networks: keys and certificates, and the configuration of OpenVPN, strongSwan and FRR.

Pure except for `vpn.pki` (the key folder), `vpn.push` (ssh) and the gateway agent `vpn.agent`.
"""
