"""The role `gate`: checks of a machine's hardware, at boot and every five minutes."""
