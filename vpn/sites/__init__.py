"""IPsec tunnels between gateways: the configuration of strongSwan and FRR. Reads only the files in this folder."""
