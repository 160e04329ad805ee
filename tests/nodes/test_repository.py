"""Archives beside the distribution's, as a real apt takes them: signed by the one key, and only what is pinned."""

from hashlib import sha256

import pytest

from roles.repository import Pin, Repository
from tests.testlab.machines.container import CommandError
from tests.testlab.machines.stand import Node, Stand

pytestmark = pytest.mark.nightly

# Stand-ins: two versions of what is wanted, and one that would replace a package of the distribution.
ARCHIVE = """
export GNUPGHOME=/srv/keys; mkdir -p -m 700 $GNUPGHOME; mkdir -p /srv/archive; cd /srv/archive
for name in own stranger; do gpg --batch --quiet --passphrase '' --quick-generate-key $name@lab.example rsa3072; done
pack() {
  mkdir -p /srv/$1/DEBIAN
  printf '%s\\n' "Package: $1" "Version: $2" 'Architecture: all' 'Maintainer: lab' 'Description: -' \\
    > /srv/$1/DEBIAN/control
  dpkg-deb --build /srv/$1 /srv/archive/$1_$2.deb > /dev/null
}
pack sample 1.33.7; pack sample 1.34.0; pack tmux 99
apt-ftparchive packages . > Packages; apt-ftparchive release . > Release
gpg --batch --local-user own@lab.example --clearsign --output InRelease Release
systemd-run --quiet --working-directory /srv/archive python3 -m http.server --bind 127.0.0.1 8099
timeout 20 bash -c 'until (exec 3<>/dev/tcp/127.0.0.1/8099) 2>/dev/null; do sleep 0.1; done'
"""


@pytest.fixture(scope="module")
def node(stand: Stand) -> Node:
    """Give a machine that is its own mirror."""
    booted = stand.boot("nas.cellar", "192.168.40.5")
    booted.run(ARCHIVE)
    booted.run("rm /etc/apt/sources.list")
    return booted


def added(node: Node, signer: str) -> None:
    """Put the repository on the node, with the key of a signer, and fetch its list."""
    key = node.run(f"GNUPGHOME=/srv/keys gpg --armor --export {signer}@lab.example")
    pins = (Pin(("sample",), "1.33.*"),)
    repository = Repository("sample", "http://127.0.0.1:8099", ("./",), (), key, sha256(key.encode()).hexdigest(), pins)
    for file in repository.files:
        (node.root / file.path[1:]).write_text(file.text)
    node.run("apt-get update --error-on=any")


def test_an_archive_that_a_stranger_signed_is_refused(node: Node) -> None:
    """The signature has to be of the one key, whatever else the machine trusts."""
    with pytest.raises(CommandError, match=r"is not signed|NO_PUBKEY"):
        added(node, "stranger")


def test_only_the_pinned_version_comes(node: Node) -> None:
    """A newer version than the pinned one stays where it is."""
    added(node, "own")

    node.run("apt-get --yes install sample")

    assert node.run("dpkg-query --show --showformat '${Version}' sample") == "1.33.7"


def test_nothing_of_the_distribution_is_replaced(node: Node) -> None:
    """A package that nobody pinned is never taken from there, however new."""
    added(node, "own")

    node.run("apt-get --yes dist-upgrade")

    assert not node.run("dpkg-query --show --showformat '${Version}' tmux").startswith("99")
    assert "Candidate: 99" not in node.run("apt-cache policy tmux")
