"""The authorities of a cluster: their store, the files of members, and the operator's kubeconfig."""

import base64
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from ruamel.yaml import YAML

from bedplate.errors import InputError
from bedplate.kubernetes.authorities import (
    ADMIN_LIFE,
    CLUSTER,
    Authorities,
    admin_config,
    is_usable,
    new_authorities,
    read_authorities,
    write_authorities,
)
from bedplate.plan.cluster import ClusterPlan, cluster_plan
from tests.testlab.fleets.variants import lab_plan
from vpn.pki import FolderKeys

NOW = datetime(2026, 11, 23, tzinfo=UTC)


def no_passphrase() -> bytes:
    """Fail: no key is encrypted."""
    raise AssertionError


@pytest.fixture(scope="module")
def authorities() -> Authorities:
    """Return the authorities of a new cluster."""
    return new_authorities("lab", NOW)


@pytest.fixture(scope="module")
def cluster(authorities: Authorities) -> ClusterPlan:
    """Return the cluster of the lab with these authorities."""
    cluster = cluster_plan(lab_plan())
    assert cluster
    return replace(cluster, authority=authorities.certificate)


@pytest.mark.parametrize("passphrase", [None, b"correct horse battery"])
def test_stored_authorities_are_read_again(authorities: Authorities, tmp_path: Path, passphrase: bytes | None) -> None:
    """Every file of a member is the same again; with a passphrase no key is in the store as it is."""
    store = FolderKeys(tmp_path / "keys")
    write_authorities(store, authorities, passphrase)

    again = read_authorities(store, (lambda: passphrase) if passphrase else no_passphrase)

    assert again
    assert again.files() == authorities.files()
    texts = [file.read_text() for file in store.folder.iterdir()]
    assert len(texts) == 5
    assert all(("ENCRYPTED PRIVATE KEY" in text) == bool(passphrase) for text in texts)


def test_an_incomplete_set_is_made_anew_or_refused(authorities: Authorities, tmp_path: Path) -> None:
    """Without the cluster's own authority, written last, a run was killed; without another one a file is lost."""
    store = FolderKeys(tmp_path / "keys")
    write_authorities(store, authorities, None)
    (store.folder / "kubernetes-etcd.pem").unlink()
    with pytest.raises(InputError, match="the key store lacks kubernetes-etcd"):
        read_authorities(store, no_passphrase)

    (store.folder / f"{CLUSTER}.pem").unlink()

    assert read_authorities(store, no_passphrase) is None


def test_secrets_are_encrypted_first_and_the_file_marks_a_complete_member(authorities: Authorities) -> None:
    """A Secret is written with `secretbox` by a key of 32 bytes; `ca.key`, for which units wait, is the last file."""
    files = authorities.files()
    (resource,) = YAML(typ="safe").load(files["encryption.yaml"])["resources"]

    assert [*files][-1] == "ca.key"
    assert resource["resources"] == ["secrets"]
    assert [*resource["providers"][0]] == ["secretbox"]
    assert len(base64.b64decode(resource["providers"][0]["secretbox"]["keys"][0]["secret"])) == 32


def test_the_operators_certificate_is_short_and_no_master(authorities: Authorities, cluster: ClusterPlan) -> None:
    """It is valid for half a day, in a group that can be unbound; nothing of the authority's key is in the file."""
    config = json.loads(admin_config(cluster, authorities.cluster, "ada", NOW))

    user = config["users"][0]["user"]
    certificate = x509.load_pem_x509_certificate(base64.b64decode(user["client-certificate-data"]))
    certificate.verify_directly_issued_by(authorities.cluster.certificate)
    assert certificate.not_valid_after_utc == NOW + ADMIN_LIFE
    assert certificate.subject.rfc4514_string() == "CN=bedplate:ada,O=kubeadm:cluster-admins"
    assert config["clusters"][0]["cluster"]["server"] == "https://kubernetes.lab.internal:6443"


@pytest.mark.parametrize(("hours", "usable"), [(1, True), (5, True), (7, False), (13, False)])
def test_a_kubeconfig_is_renewed_after_half_of_its_life(
    authorities: Authorities, cluster: ClusterPlan, tmp_path: Path, *, hours: int, usable: bool
) -> None:
    """A command that needs it never gets one that ends within six hours."""
    file = tmp_path / "admin.kubeconfig"
    file.write_text(admin_config(cluster, authorities.cluster, "ada", NOW))

    assert is_usable(file, cluster, cluster.authority, NOW + timedelta(hours=hours)) is usable


def test_a_kubeconfig_of_another_cluster_is_not_used(
    authorities: Authorities, cluster: ClusterPlan, tmp_path: Path
) -> None:
    """Nor is a damaged or missing file."""
    file = tmp_path / "admin.kubeconfig"
    assert not is_usable(file, cluster, cluster.authority, NOW)
    file.write_text("{")
    assert not is_usable(file, cluster, cluster.authority, NOW)
    file.write_text(admin_config(cluster, authorities.cluster, "ada", NOW))

    assert not is_usable(file, cluster, new_authorities("lab", NOW).certificate, NOW)
