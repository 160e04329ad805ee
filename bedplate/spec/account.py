"""Accounts and groups that a node has before any person: nobody, and no group, may be called like one of them."""

# Words to a line: Debian's and Ubuntu's base system and its packages; logins and groups of cloud images; services.
_NAMES = (
    "root daemon bin sys sync games man lp mail news uucp proxy www-data backup list irc gnats nobody",
    "messagebus syslog uuidd tcpdump sshd landscape pollinate lxd chrony dnsmasq",
    "systemd-network systemd-resolve systemd-timesync",
    "ubuntu debian admin ec2-user ssm-user sudo adm wheel dialout",
    "docker kvm etcd kube openvpn strongswan munge slurm nvidia nvidia-persistenced",
    "tty disk kmem fax voice cdrom floppy tape audio dip operator src shadow utmp video sasl plugdev staff",
    "users nogroup input sgx render netdev crontab ssl-cert systemd-journal _ssh _chrony _rpc statd tss polkitd",
    "prometheus stunnel4 efs rdma bedplate sugroup frr frrvty",
)
RESERVED_USERS = frozenset(name for line in _NAMES for name in line.split())
