"""Rules for members of the control plane: their configuration, and what kubeadm has made from it."""

import time
from collections.abc import Mapping
from typing import Any

import pytest
from ruamel.yaml import YAML
from testinfra.host import Host

from bedplate.compliance.settings import applies_if, differing_files
from bedplate.plan.cluster import peer_url
from bedplate.plan.nodes import NodePlan
from roles.control.role import ADMISSION, AUDIT, DATA, ENCRYPTION, LOGS, PKI, VOLUME, Control
from roles.kubernetes.role import MANIFESTS

pytestmark = applies_if(lambda node: node.cluster is not None and node.cluster.member is not None)

# The timer runs every hour, up to 15 minutes late.
_LONGEST_AGE = 2 * 3600


def test_member_has_the_planned_configuration(host: Host, node: NodePlan) -> None:
    """kubeadm's configuration, the audit policy, authentication and the member's units are those of the plan."""
    assert node.cluster
    changed = differing_files(host, Control(node.cluster).files())

    assert not changed, f"changed: {', '.join(changed)}"


def test_etcd_has_the_name_of_the_member(host: Host, node: NodePlan) -> None:
    """etcd runs under the member's name and address: the others know it by both."""
    assert node.cluster
    assert node.cluster.member
    etcd = _options(host, "etcd")

    assert (etcd["name"], etcd["initial-advertise-peer-urls"]) == (node.name, peer_url(node.cluster.member))


def test_member_keeps_everything_on_its_volume(host: Host) -> None:
    """Data and certificates of etcd are on the volume, which outlives the machine."""
    etcd = _options(host, "etcd")

    assert etcd["data-dir"] == DATA
    assert all(etcd[key].startswith(PKI) for key in ("cert-file", "peer-cert-file", "trusted-ca-file"))


def test_secrets_are_encrypted_at_rest(host: Host) -> None:
    """The API server encrypts Secrets before etcd stores them: snapshots leave the machine."""
    assert _options(host, "kube-apiserver").get("encryption-provider-config") == ENCRYPTION
    # Only the names of providers leave the machine.
    providers = host.check_output("sed -En 's/^ *- ([a-z0-9]+): *(\\{\\})?$/\\1/p' %s", ENCRYPTION).split()

    assert providers[:1] == ["secretbox"], f"new secrets are stored by {providers[0] if providers else 'no provider'}"


def test_requests_to_the_api_are_logged(host: Host) -> None:
    """The API server writes an audit log by the planned policy."""
    options = _options(host, "kube-apiserver")

    assert (options.get("audit-policy-file"), options.get("audit-log-path")) == (AUDIT, f"{LOGS}/audit.log")


def test_api_server_limits_what_people_create(host: Host) -> None:
    """The API server has the planned admission plug-ins and lifetime of tokens: people cannot redirect addresses."""
    options = _options(host, "kube-apiserver")
    missing = [
        name for name, value in ADMISSION.items() if not set(value.split(",")) <= set(options.get(name, "").split(","))
    ]

    assert not missing, f"without the planned value: {', '.join(missing)}"


def test_private_keys_are_readable_by_root_only(host: Host) -> None:
    """Nobody but root reads the folder of keys and etcd's data."""
    _skip_before_init(host)
    readable = host.check_output("find %s %s -maxdepth 0 -perm /077; find %s -name '*.key' -perm /077", PKI, DATA, PKI)

    assert not readable, f"readable by others: {', '.join(readable.split())}"


def test_latest_snapshot_is_recent(host: Host) -> None:
    """A snapshot of etcd is at most two hours old."""
    if not host.file(f"{DATA}/member").exists:
        pytest.skip("etcd has not started on this member")
    times = host.run("find %s/snapshots -name '*.db' -size +0 -printf '%%T@\\n'", VOLUME).stdout.split()

    assert max(map(float, times), default=0) > time.time() - _LONGEST_AGE, "no recent snapshot"


def _options(host: Host, component: str) -> Mapping[str, str]:
    """Return the options of a component's static pod."""
    _skip_before_init(host)
    pod: Any = YAML(typ="safe").load(host.file(f"{MANIFESTS}/{component}.yaml").content_string)
    words = (word.removeprefix("--").partition("=") for word in pod["spec"]["containers"][0]["command"][1:])
    return {name: value for name, _, value in words}


def _skip_before_init(host: Host) -> None:
    if not host.file(f"{PKI}/ca.key").exists:
        pytest.skip("the cluster has no authorities yet")
