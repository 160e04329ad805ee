"""IPsec tunnels between gateways: values from the plan and AWS, and the configuration of strongSwan and FRR.

Pure: reads only the templates and scripts in this folder.
"""
