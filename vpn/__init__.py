"""Virtual private networks: keys, and the text by which OpenVPN and strongSwan are told what the plan says.

Pure but for the key store and the daemons' own control sockets, each behind one module.
"""
