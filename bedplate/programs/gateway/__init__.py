"""The gateway agent, installed as `bedplate-vpn`: it activates what operators send, and reports the gateway's status.

The role copies this folder to the gateway as it is. It runs on the system's Python with the standard library only,
therefore its imports are relative. It signs nothing and opens no network connection.
"""
