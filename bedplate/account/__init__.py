"""Read access to a real AWS account, through boto3 with the operator's credentials.

Only Pulumi changes an account, except for the VPN's private keys (`bedplate.account.vpn`).
"""
