"""What the baked root of test nodes holds already, so that applies on it spend no time on it.

A package that is missing here costs a download at each apply, and nothing else.
"""

# Installed, as in a baked image: what roles give to many nodes, and what starts nothing by itself.
INSTALLED = (
    *("chrony", "unattended-upgrades", "needrestart", "locales-all", "nftables", "auditd", "apparmor"),
    *("apparmor-utils", "libpam-pwquality", "debsums", "acl", "quota", "tmux", "screen", "git", "build-essential"),
    *("htop", "rsync", "unzip", "gnupg", "python3-apt", "cmake", "git-lfs", "jq", "less", "nano", "ninja-build"),
    *("pkg-config", "python3-dev", "python3-venv", "tree", "vim", "zip"),
)
# Their archives alone: daemons that few nodes run, and that would start at every boot.
ARCHIVED = (
    *("nfs-common", "nfs-ganesha", "nfs-ganesha-vfs", "nfs-kernel-server", "stunnel4", "prometheus-node-exporter"),
    *("strongswan-swanctl", "charon-systemd", "openvpn", "tcpdump", "lynis", "pipx", "awscli"),
)
