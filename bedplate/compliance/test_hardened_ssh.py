"""Every node: what ssh asks and lends when somebody goes on from here."""

import re
from collections.abc import Mapping

import pytest
from testinfra.host import Host

from bedplate.compliance.settings import keywords
from bedplate.plan.nodes import Duty, NodePlan
from roles.hardened.logins import README, UNREAD, settings


@pytest.fixture(scope="module")
def client(host: Host) -> Mapping[str, str]:
    """Give what ssh asks for on this machine where its user asks for nothing."""
    return keywords(host.check_output("ssh -F /etc/ssh/ssh_config -G somewhere"))


def test_ssh_from_here_asks_whom_it_reaches(client: Mapping[str, str]) -> None:
    """A host that is not known, or is another than before, is not entered without a word."""
    assert client["stricthostkeychecking"] in {"ask", "true", "yes"}
    assert client["checkhostip"] == "yes"
    assert client["batchmode"] == "no"
    assert (client["port"], client["addressfamily"]) == ("22", "any")


def test_ssh_from_here_speaks_no_old_algorithm(client: Mapping[str, str]) -> None:
    """What people reach from here, they reach by modern means."""
    for keyword in ("kexalgorithms", "ciphers", "macs"):
        names = client[keyword].split(",")
        assert not [name for name in names if any(old in name for old in ("sha1", "cbc", "nistp", "md5", "group14"))]


def test_ssh_from_here_lends_nothing(client: Mapping[str, str]) -> None:
    """Agent, screen, tickets and networks of this machine stay here unless their person says so."""
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
# Asks the daemon itself how somebody may come in, and tries nothing; known to nobody, and without anybody's settings.
_ASKING = (
    "ssh -F none -n -o BatchMode=yes -o PreferredAuthentications=none -o LogLevel=ERROR -o StrictHostKeyChecking=no"
    " -o UserKnownHostsFile=/dev/null -o GlobalKnownHostsFile=/dev/null"
)


@pytest.fixture(scope="module")
def daemon(host: Host) -> Mapping[str, str]:
    """Give what sshd obeys, whatever file says it, by keyword; of several values all, with spaces."""
    return keywords(host.check_output("sshd -T"))


def test_people_come_in_by_key_alone(daemon: Mapping[str, str]) -> None:
    """No password, no question, no empty password opens a session: a key does."""
    assert daemon["authenticationmethods"] == "publickey"
    assert daemon["pubkeyauthentication"] == "yes"
    for way in ("passwordauthentication", "kbdinteractiveauthentication", "permitemptypasswords"):
        assert daemon[way] == "no", way


def test_nobody_comes_in_as_root(daemon: Mapping[str, str]) -> None:
    """Whoever needs root comes in by their own name first, so that it is told who it was."""
    assert daemon["permitrootlogin"] == "no"


def test_keys_lie_where_root_alone_writes(host: Host, daemon: Mapping[str, str]) -> None:
    """A key counts because the fleet file names it, not because it lies in a home."""
    assert daemon["authorizedkeysfile"] == _KEYS
    assert daemon["strictmodes"] == "yes"
    for other in ("authorizedkeyscommand", "trustedusercakeys", "authorizedprincipalscommand"):
        assert daemon.get(other, "none") == "none", other
    assert host.run("find /etc/ssh/authorized_keys.d ! -user root -o -perm /022").stdout == ""


def test_no_host_vouches_for_its_people(daemon: Mapping[str, str]) -> None:
    """Another machine's word that somebody is who they say counts for nothing."""
    assert daemon["hostbasedauthentication"] == "no"
    assert daemon["ignorerhosts"] == "yes"
    assert daemon["ignoreuserknownhosts"] == "yes"


def test_no_ticket_opens_a_session(daemon: Mapping[str, str]) -> None:
    """There is no Kerberos in the fleet, so sshd asks none."""
    assert daemon.get("kerberosauthentication", "no") == "no"
    assert daemon.get("gssapiauthentication", "no") == "no"


def test_sshd_speaks_no_old_algorithm(daemon: Mapping[str, str], node: NodePlan) -> None:
    """What sshd offers is the list of the role: no SHA-1, no CBC, no NIST curve for the keys of a session."""
    wanted = keywords(settings(node.duties).partition("\nMatch ")[0])

    for keyword in ("kexalgorithms", "ciphers", "macs", "hostkeyalgorithms", "requiredrsasize"):
        assert daemon[keyword] == wanted[keyword], keyword


def test_host_keys_are_strong(host: Host, daemon: Mapping[str, str]) -> None:
    """The machine proves itself by Ed25519, or by RSA of 4,096 bits, readable by root alone."""
    paths = daemon["hostkey"].split()

    assert paths == ["/etc/ssh/ssh_host_ed25519_key", "/etc/ssh/ssh_host_rsa_key"]
    assert [host.file(path).mode for path in paths] == [0o600, 0o600]
    assert int(host.check_output("ssh-keygen -l -f /etc/ssh/ssh_host_rsa_key.pub").split()[0]) >= 4096


def test_primes_are_long(host: Host) -> None:
    """No exchange of keys happens in a group that can be broken beforehand."""
    assert host.check_output("awk '!/^#/ && $5 < 3071' /etc/ssh/moduli | wc -l") == "0"


def test_sshd_is_told_nothing_but_by_its_files(host: Host) -> None:
    """No option of the command line, and no file of its own, overrides what is checked here."""
    words = host.check_output("ps -o args= -C sshd | grep -v 'sshd: .*@' || true").split()

    assert {word for word in words if word.startswith("-")} <= {"-D", "-R"}


def test_sshd_has_read_what_its_files_say(host: Host) -> None:
    """What is checked here is what the daemon obeys: neither its files nor its keys changed since it last read them."""
    unread = host.check_output(UNREAD)

    assert not unread, f"sshd has not read these since they changed: {unread.split()}; reload ssh.service"


def test_the_daemon_itself_offers_nothing_but_keys(host: Host, node: NodePlan) -> None:
    """Whoever asks what listens at the port hears that a key is the only way in, whatever any file says."""
    for name in ("root", *node.accounts.uids):
        heard = host.run(f"{_ASKING} %s@127.0.0.1 true", name).stderr.strip()
        assert heard.endswith("Permission denied (publickey)."), (name, heard)


def test_nothing_but_sshd_listens_in_its_place(host: Host) -> None:
    """Who answers at the port is the daemon that systemd keeps, or on Ubuntu systemd, which hands connections over."""
    asked = "ss --no-header --listening --tcp --numeric --processes 'sport = :22' | grep -o 'pid=[0-9]*' | sort -u"
    daemon = host.check_output("systemctl show --property=MainPID --value ssh.service")

    assert set(host.check_output(asked).splitlines()) <= {"pid=1", f"pid={daemon}"}


def test_no_session_has_settings_of_its_own(host: Host, node: NodePlan) -> None:
    """What is checked here holds for everybody: no file but the role's tells people or places apart."""
    found = host.check_output("grep -iE '^[[:space:]]*\"?(match|include)' /etc/ssh/sshd_config || true")

    assert found.splitlines() == [f"Include {_OURS}"]
    assert host.file(_OURS).content_string == settings(node.duties)


def test_settings_that_sshd_leaves_unread_are_known_for_it(host: Host) -> None:
    """Beside what cloud-init or somebody put into sshd's folder lies the word that it says nothing."""
    assert host.file(README.path).content_string == README.text


def test_nobody_is_let_in_by_another_way_than_all(host: Host, node: NodePlan) -> None:
    """What sshd itself says of root and of each person, from wherever they come, is what it says of all."""
    for name in ("root", *node.accounts.uids):
        daemon = keywords(host.check_output("sshd -T -C user=%s,host=elsewhere,addr=192.0.2.1", name))
        assert daemon["permitrootlogin"] == "no", name
        assert daemon["authenticationmethods"] == "publickey", name
        assert daemon["authorizedkeysfile"] == _KEYS, name
        for other in ("authorizedkeyscommand", "trustedusercakeys", "authorizedprincipalscommand"):
            assert daemon.get(other, "none") == "none", (name, other)


def test_openssh_is_recent(host: Host) -> None:
    """It is 9.2 or newer: without protocol 1, roaming, or a daemon that is root throughout."""
    version = re.match(r"SSH-2\.0-OpenSSH_(\d+)\.(\d+)", _greeting(host))

    assert version
    assert tuple(int(number) for number in version.groups()) >= (9, 2)


def test_who_waits_is_shown_the_door(daemon: Mapping[str, str]) -> None:
    """Strangers hold few places, briefly, and try few keys."""
    assert int(daemon["logingracetime"]) <= 30
    assert int(daemon["maxauthtries"]) <= 3
    assert daemon["maxstartups"] == "10:30:60"
    assert daemon["maxsessions"] == "10"


def test_sessions_whose_far_end_died_end(daemon: Mapping[str, str]) -> None:
    """The daemon asks inside the encryption, every five minutes, three times; forged packets do not count."""
    assert (daemon["clientaliveinterval"], daemon["clientalivecountmax"]) == ("300", "3")
    assert daemon["tcpkeepalive"] == "no"


def test_ports_are_forwarded_only_where_people_pass(daemon: Mapping[str, str], node: NodePlan) -> None:
    """Notebooks of a workbench and hosts behind a gateway are reached through it; nobody listens there for others."""
    passed = node.duties & {Duty.WORKBENCH, Duty.TUNNELS, Duty.LAPTOPS}

    assert daemon["allowtcpforwarding"] == ("local" if passed else "no")
    assert daemon["gatewayports"] == "no"
    assert daemon["permittunnel"] == "no"


def test_nothing_of_the_person_s_own_machine_is_lent(daemon: Mapping[str, str]) -> None:
    """Neither keys nor screen of whoever logs in are open to the node's root."""
    assert daemon["allowagentforwarding"] == "no"
    assert daemon["x11forwarding"] == "no"
    assert daemon["x11uselocalhost"] == "yes"


def test_nobody_brings_an_environment(daemon: Mapping[str, str]) -> None:
    """No file of a home changes what sshd starts."""
    assert daemon["permituserenvironment"] == "no"
    assert daemon["permituserrc"] == "no"


def test_logins_are_told(daemon: Mapping[str, str]) -> None:
    """The log says with which key somebody came in."""
    assert daemon["loglevel"] == "VERBOSE"
    assert daemon["syslogfacility"] == "AUTH"


def test_strangers_learn_little(host: Host, daemon: Mapping[str, str]) -> None:
    """They read that the system is private, and neither its distribution nor its name."""
    assert not [word for word in ("Debian", "Ubuntu") if word in _greeting(host)]
    assert daemon["printmotd"] == "no"
    assert daemon["banner"] == "/etc/issue.net"
    for path in ("/etc/issue", "/etc/issue.net"):
        text = host.file(path).content_string
        assert "private system" in text
        assert not [
            word for word in ("Debian", "Ubuntu", "\\n", "\\r", "\\s", "\\m") if word in text.replace("\n", " ")
        ]


def test_sshd_listens_where_it_is_expected(host: Host, daemon: Mapping[str, str]) -> None:
    """The port is the one that the packet filter opens, and it is said."""
    asked = "! systemctl --quiet is-active ssh.socket || systemctl show --property=Listen --value ssh.socket"
    # On Ubuntu systemd listens in sshd's place, and hands connections over.
    sockets = host.check_output(asked).splitlines()

    assert daemon["port"] == "22"
    assert [line for line in sockets if not line.endswith(":22 (Stream)")] == []
    assert daemon["addressfamily"] in {"any", "inet"}


@pytest.mark.parametrize(
    ("path", "mode"),
    [("/etc/ssh", 0o755), ("/etc/ssh/sshd_config", 0o600), ("/etc/ssh/ssh_config", 0o644)],
    ids=["folder", "daemon", "client"],
)
def test_only_root_writes_what_ssh_reads(host: Host, path: str, mode: int) -> None:
    """Settings of SSH are root's."""
    file = host.file(path)

    assert (file.user, file.group, file.mode) == ("root", "root", mode)


def _greeting(host: Host) -> str:
    """Return the line by which sshd greets whoever connects."""
    return str(host.check_output("bash -c 'exec 3<>/dev/tcp/127.0.0.1/22; head -n 1 <&3'"))
