"""Additional package repositories with a real apt: only packages signed by their key, and only pinned versions."""

from hashlib import sha256

import pytest

from roles.system import Pin, Repository
from tests.testlab.machines.container import CommandError
from tests.testlab.machines.node_lab import Node, NodeLab

pytestmark = pytest.mark.nightly

# Empty packages: two versions of a pinned one, and a newer version of a package of the distribution.
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
def node(node_lab: NodeLab) -> Node:
    """Return a node that is its own package mirror."""
    booted = node_lab.boot("nas.cellar", "192.168.40.5")
    booted.run(ARCHIVE)
    booted.run("rm /etc/apt/sources.list")
    return booted


def add_repository(node: Node, signer: str) -> None:
    """Add the repository with the key of a signer, and update the package lists."""
    key = node.run(f"GNUPGHOME=/srv/keys gpg --armor --export {signer}@lab.example")
    pins = (Pin(("sample",), "1.33.*"),)
    repository = Repository("sample", "http://127.0.0.1:8099", ("./",), (), key, sha256(key.encode()).hexdigest(), pins)
    for file in repository.files:
        (node.root / file.path[1:]).write_text(file.text)
    node.run("apt-get update --error-on=any")


def test_archive_with_another_signature_is_refused(node: Node) -> None:
    """Apt refuses an archive that is not signed with the repository's key."""
    with pytest.raises(CommandError, match=r"is not signed|NO_PUBKEY"):
        add_repository(node, "stranger")


def test_only_the_pinned_version_is_installed(node: Node) -> None:
    """Apt installs the pinned version, not a newer one."""
    add_repository(node, "own")

    node.run("apt-get --yes install sample")

    assert node.run("dpkg-query --show --showformat '${Version}' sample") == "1.33.7"


def test_distribution_packages_are_not_replaced(node: Node) -> None:
    """Apt takes no package from the repository that is not pinned, even a newer one."""
    add_repository(node, "own")

    node.run("apt-get --yes dist-upgrade")

    assert not node.run("dpkg-query --show --showformat '${Version}' tmux").startswith("99")
    assert "Candidate: 99" not in node.run("apt-cache policy tmux")
