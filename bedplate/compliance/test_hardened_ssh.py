"""Rules for every node: the SSH client and sshd."""

import re
from collections.abc import Mapping

import pytest
from testinfra.host import Host

from bedplate.compliance.settings import installed, parse_keywords
from bedplate.plan.nodes import NodePlan, NodeRole
from roles.hardened.logins import README, UNREAD, settings


@pytest.fixture(scope="module")
def client(host: Host) -> Mapping[str, str]:
    """Return the settings of the SSH client without user configuration."""
    return parse_keywords(host.check_output("ssh -F /etc/ssh/ssh_config -G other-host"))


def test_ssh_client_verifies_host_keys(client: Mapping[str, str]) -> None:
    """The SSH client asks before it accepts an unknown host key, and refuses a changed one."""
    assert client["stricthostkeychecking"] in {"ask", "true", "yes"}
    assert client["checkhostip"] == "yes"
    assert client["batchmode"] == "no"
    assert (client["port"], client["addressfamily"]) == ("22", "any")


def test_ssh_client_uses_modern_algorithms(client: Mapping[str, str]) -> None:
    """The SSH client offers no SHA-1, CBC, MD5 or NIST curve algorithms."""
    for keyword in ("kexalgorithms", "ciphers", "macs"):
        algorithms = client[keyword].split(",")
        assert not [
            name for name in algorithms if any(old in name for old in ("sha1", "cbc", "nistp", "md5", "group14"))
        ]


def test_ssh_client_forwards_nothing(client: Mapping[str, str]) -> None:
    """The SSH client forwards no agent, display, ticket or network unless its user asks for it."""
    for keyword in (
        "forwardagent",
        "forwardx11",
        "hostbasedauthentication",
        "permitlocalcommand",
    ):
        assert client[keyword] == "no", keyword
    assert client["tunnel"] in {"no", "false"}
    for ticket in ("gssapiauthentication", "gssapidelegatecredentials"):
        assert client.get(ticket, "no") == "no", ticket


_OURS = "/etc/ssh/sshd_config.d/00-bedplate.conf"
_KEYS = "/etc/ssh/authorized_keys.d/%u"
# Makes sshd list its login methods, without trying one, and without any client settings or known hosts.
_LIST_METHODS = (
    "ssh -F none -n -o BatchMode=yes -o PreferredAuthentications=none -o LogLevel=ERROR -o StrictHostKeyChecking=no"
    " -o UserKnownHostsFile=/dev/null -o GlobalKnownHostsFile=/dev/null"
)


@pytest.fixture(scope="module")
def daemon(host: Host) -> Mapping[str, str]:
    """Return sshd's effective settings by keyword; several values are joined by spaces."""
    return parse_keywords(host.check_output("sshd -T"))


def test_sshd_refuses_passwords(daemon: Mapping[str, str]) -> None:
    """sshd accepts public keys only: no passwords, and no keyboard-interactive logins."""
    assert daemon["authenticationmethods"] == "publickey"
    assert daemon["pubkeyauthentication"] == "yes"
    for keyword in ("passwordauthentication", "kbdinteractiveauthentication", "permitemptypasswords"):
        assert daemon[keyword] == "no", keyword


def test_sshd_refuses_root(daemon: Mapping[str, str]) -> None:
    """Root cannot log in over SSH; administrators use their own accounts, so logs show who it was."""
    assert daemon["permitrootlogin"] == "no"


def test_sshd_reads_keys_from_root_only(host: Host, daemon: Mapping[str, str]) -> None:
    """sshd reads keys only from /etc/ssh/authorized_keys.d, which only root can change."""
    assert daemon["authorizedkeysfile"] == _KEYS
    assert daemon["strictmodes"] == "yes"
    for other in ("authorizedkeyscommand", "trustedusercakeys", "authorizedprincipalscommand"):
        assert daemon.get(other, "none") == "none", other
    assert host.run("find /etc/ssh/authorized_keys.d ! -user root -o -perm /022").stdout == ""


def test_sshd_refuses_host_based_login(daemon: Mapping[str, str]) -> None:
    """sshd trusts no other host to identify its users."""
    assert daemon["hostbasedauthentication"] == "no"
    assert daemon["ignorerhosts"] == "yes"
    assert daemon["ignoreuserknownhosts"] == "yes"


def test_sshd_refuses_kerberos(daemon: Mapping[str, str]) -> None:
    """sshd accepts no Kerberos tickets; the fleet has no Kerberos."""
    assert daemon.get("kerberosauthentication", "no") == "no"
    assert daemon.get("gssapiauthentication", "no") == "no"


def test_sshd_uses_modern_algorithms(daemon: Mapping[str, str], node: NodePlan) -> None:
    """sshd offers exactly the algorithms of the role: no SHA-1, no CBC, no NIST curves for session keys."""
    planned = parse_keywords(settings(node.roles).partition("\nMatch ")[0])

    for keyword in ("kexalgorithms", "ciphers", "macs", "hostkeyalgorithms", "requiredrsasize"):
        assert daemon[keyword] == planned[keyword], keyword


def test_host_keys_are_strong(host: Host, daemon: Mapping[str, str]) -> None:
    """Host keys are Ed25519 and RSA of at least 4,096 bits, readable by root only."""
    paths = daemon["hostkey"].split()

    assert paths == ["/etc/ssh/ssh_host_ed25519_key", "/etc/ssh/ssh_host_rsa_key"]
    assert [host.file(path).mode for path in paths] == [0o600, 0o600]
    assert int(host.check_output("ssh-keygen -l -f /etc/ssh/ssh_host_rsa_key.pub").split()[0]) >= 4096


def test_key_exchange_primes_are_long(host: Host) -> None:
    """Key exchange uses no Diffie-Hellman group below 3,071 bits."""
    assert host.check_output("awk '!/^#/ && $5 < 3071' /etc/ssh/moduli | wc -l") == "0"


@installed
def test_sshd_has_no_command_line_settings(host: Host) -> None:
    """No command-line option overrides sshd's configuration files."""
    words = host.check_output("ps -o args= -C sshd | grep -v 'sshd: .*@' || true").split()

    assert {word for word in words if word.startswith("-")} <= {"-D", "-R"}


def test_sshd_has_read_its_files(host: Host) -> None:
    """sshd runs with its current files: neither settings nor keys changed after it last read them."""
    unread = host.check_output(UNREAD)

    assert not unread, f"changed after sshd read them: {', '.join(unread.split())}; run `systemctl reload ssh`"


def test_sshd_offers_only_keys(host: Host, node: NodePlan) -> None:
    """The running sshd offers only public key login, for root and for each person."""
    for name in ("root", *node.accounts.uids):
        answer = host.run(f"{_LIST_METHODS} %s@127.0.0.1 true", name).stderr.strip()
        assert answer.endswith("Permission denied (publickey)."), (name, answer)


def test_only_sshd_listens_on_port_22(host: Host) -> None:
    """The process on port 22 is the sshd of systemd, or, on Ubuntu, systemd's own socket."""
    command = "ss --no-header --listening --tcp --numeric --processes 'sport = :22' | grep -o 'pid=[0-9]*' | sort -u"
    daemon = host.check_output("systemctl show --property=MainPID --value ssh.service")

    assert set(host.check_output(command).splitlines()) <= {"pid=1", f"pid={daemon}"}


def test_sshd_has_no_other_settings(host: Host, node: NodePlan) -> None:
    """sshd_config includes only the role's file, so no user or address has other settings."""
    lines = host.check_output("grep -iE '^[[:space:]]*\"?(match|include)' /etc/ssh/sshd_config || true")

    assert lines.splitlines() == [f"Include {_OURS}"]
    assert host.file(_OURS).content_string == settings(node.roles, node.accounts.administrators)


def test_sshd_config_folder_has_a_readme(host: Host) -> None:
    """A README in sshd's folder says that sshd does not read the other files there."""
    assert host.file(README.path).content_string == README.text


def test_sshd_settings_apply_to_everyone(host: Host, node: NodePlan) -> None:
    """sshd applies the same login rules to root and to each person, from any address."""
    for name in ("root", *node.accounts.uids):
        daemon = parse_keywords(host.check_output("sshd -T -C user=%s,host=elsewhere,addr=192.0.2.1", name))
        assert daemon["permitrootlogin"] == "no", name
        assert daemon["authenticationmethods"] == "publickey", name
        assert daemon["authorizedkeysfile"] == _KEYS, name
        for other in ("authorizedkeyscommand", "trustedusercakeys", "authorizedprincipalscommand"):
            assert daemon.get(other, "none") == "none", (name, other)


@installed
def test_openssh_is_recent(host: Host) -> None:
    """OpenSSH is version 9.2 or newer."""
    version = re.match(r"SSH-2\.0-OpenSSH_(\d+)\.(\d+)", _greeting(host))

    assert version
    assert tuple(int(number) for number in version.groups()) >= (9, 2)


def test_sshd_limits_login_attempts(daemon: Mapping[str, str]) -> None:
    """Unauthenticated connections are few, of one host fewer, end after 30 s, and can try three keys."""
    assert int(daemon["logingracetime"]) <= 30
    assert int(daemon["maxauthtries"]) <= 3
    assert daemon["maxstartups"] == "10:30:60"
    assert daemon["persourcemaxstartups"] == "8"
    assert daemon["maxsessions"] == "10"


def test_sshd_ends_dead_sessions(daemon: Mapping[str, str]) -> None:
    """sshd ends a session if its client does not answer three encrypted probes, five minutes apart."""
    assert (daemon["clientaliveinterval"], daemon["clientalivecountmax"]) == ("300", "3")
    assert daemon["tcpkeepalive"] == "no"


def test_sshd_forwards_ports_only_if_needed(daemon: Mapping[str, str], node: NodePlan) -> None:
    """sshd forwards ports only on workbenches and gateways, and opens no port for other hosts."""
    passed = node.roles & {NodeRole.WORKBENCH, NodeRole.TUNNELS, NodeRole.LAPTOPS}

    assert daemon["allowtcpforwarding"] == ("local" if passed else "no")
    assert daemon["gatewayports"] == "no"
    assert daemon["permittunnel"] == "no"


def test_sshd_forwards_no_agent_or_display(daemon: Mapping[str, str]) -> None:
    """sshd forwards neither SSH agents nor displays, so the node's root cannot use them."""
    assert daemon["allowagentforwarding"] == "no"
    assert daemon["x11forwarding"] == "no"
    assert daemon["x11uselocalhost"] == "yes"


def test_sshd_ignores_user_environments(daemon: Mapping[str, str]) -> None:
    """sshd ignores environment and rc files in homes."""
    assert daemon["permituserenvironment"] == "no"
    assert daemon["permituserrc"] == "no"


def test_sshd_logs_keys(daemon: Mapping[str, str]) -> None:
    """sshd logs which key opened each session."""
    assert daemon["loglevel"] == "VERBOSE"
    assert daemon["syslogfacility"] == "AUTH"


def test_banners_hide_the_system(host: Host, daemon: Mapping[str, str]) -> None:
    """Login banners say that the system is private, and show neither its distribution nor its name."""
    assert not [word for word in ("Debian", "Ubuntu") if word in _greeting(host)]
    assert daemon["printmotd"] == "no"
    assert daemon["banner"] == "/etc/issue.net"
    for path in ("/etc/issue", "/etc/issue.net"):
        text = host.file(path).content_string
        assert "private system" in text
        assert not [
            word for word in ("Debian", "Ubuntu", "\\n", "\\r", "\\s", "\\m") if word in text.replace("\n", " ")
        ]


def test_sshd_listens_on_port_22(host: Host, daemon: Mapping[str, str]) -> None:
    """sshd listens on port 22, which the packet filter opens."""
    command = "! systemctl --quiet is-active ssh.socket || systemctl show --property=Listen --value ssh.socket"
    # On Ubuntu, systemd listens and passes connections to sshd.
    sockets = host.check_output(command).splitlines()

    assert daemon["port"] == "22"
    assert [line for line in sockets if not line.endswith(":22 (Stream)")] == []
    assert daemon["addressfamily"] in {"any", "inet"}


@pytest.mark.parametrize(
    ("path", "mode"),
    [("/etc/ssh", 0o755), ("/etc/ssh/sshd_config", 0o600), ("/etc/ssh/ssh_config", 0o644)],
    ids=["folder", "daemon", "client"],
)
def test_ssh_settings_belong_to_root(host: Host, path: str, mode: int) -> None:
    """Only root can change the settings of SSH."""
    file = host.file(path)

    assert (file.user, file.group, file.mode) == ("root", "root", mode)


def _greeting(host: Host) -> str:
    """Return the version line that sshd sends to each client."""
    return str(host.check_output("bash -c 'exec 3<>/dev/tcp/127.0.0.1/22; head -n 1 <&3'"))
