"""Three real members from the output of the roles: init, losses, restore, renewal, encryption.

Containers are replaced by processes: see `tests.testlab.machines.control_plane`. The tests run in this order on one
control plane, because its start takes most of the time.
"""

import json
import shutil
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key

from bedplate.cli import run
from bedplate.kubernetes.members import parse_status
from bedplate.lock import lock_path, read_lock
from tests.testlab.machines.control_plane import NAMES, ControlPlane, control_plane
from tests.testlab.network.netlab import until

pytestmark = pytest.mark.nightly
FIRST, SECOND, THIRD = NAMES


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """Yield the control plane of this module."""
    with pytest.MonkeyPatch.context() as patch:
        yield from control_plane(tmp_path_factory.mktemp("kube"), patch)


def test_one_command_starts_the_cluster(plane: ControlPlane, capsys: pytest.CaptureFixture[str]) -> None:
    """While a member is away nothing starts, because it could have data (exit 6); the second run starts all."""
    plane.kill(THIRD)
    assert run(["kube", "init", str(plane.fleet)]) == 6
    assert f"the first start needs all members, and {THIRD} cannot start" in capsys.readouterr().err
    assert not any(plane.answers(name) for name in (FIRST, SECOND))

    plane.boot(THIRD)
    assert run(["kube", "init", str(plane.fleet)]) == 0

    nodes = plane.kubectl(THIRD, "get nodes --output name --selector node-role.kubernetes.io/control-plane").split()
    assert nodes == [f"node/{name}" for name in NAMES]
    assert plane.kubectl(FIRST, "auth can-i get nodes/proxy --as kube-apiserver-kubelet-client") == "yes\n"


def test_a_second_run_changes_nothing(plane: ControlPlane, capsys: pytest.CaptureFixture[str]) -> None:
    """Members that run are left alone; only the operator can read the kubeconfig."""
    lock = plane.fleet.with_name("fleet.lock").read_bytes()

    assert run(["kube", "init", str(plane.fleet)]) == 0

    output = capsys.readouterr().out
    assert "control plane: runs" in output
    assert "start" not in output
    assert plane.fleet.with_name("fleet.lock").read_bytes() == lock
    assert (plane.config.stat().st_mode & 0o777) == 0o600


def test_two_operators_exclude_each_other(plane: ControlPlane, capsys: pytest.CaptureFixture[str]) -> None:
    """While another operator, on another machine, changes a member, the command ends with exit status 5."""
    hold = "flock /run/lock/bedplate-member sh -c 'touch /run/held; while test -e /run/held; do sleep 0.1; done'"
    operator = threading.Thread(target=plane.shell, args=(FIRST, hold), daemon=True)
    operator.start()
    until(lambda: plane.shell(FIRST, "ls /run").count("held") == 1, 10, "the other operator has the lock")

    assert run(["kube", "restore", str(_snapshot(plane)), "--yes", "--fleet", str(plane.fleet)]) == 5

    assert "another bedplate kube command changes this member" in capsys.readouterr().err
    assert plane.kubectl(FIRST, "get --raw /readyz") == "ok"
    plane.shell(FIRST, "rm /run/held")
    operator.join(10)
    assert not operator.is_alive()


def test_secrets_are_encrypted_in_etcd(plane: ControlPlane) -> None:
    """A Secret is encrypted there, other objects are not."""
    plane.kubectl(FIRST, "create secret generic token --from-literal word=parsnip")
    plane.kubectl(FIRST, "create configmap plain --from-literal word=parsnip")

    assert "parsnip" in _etcd(plane, "get --print-value-only /registry/configmaps/default/plain")
    secret = _etcd(plane, "get --print-value-only /registry/secrets/default/token")
    assert secret.startswith("k8s:enc:secretbox:v1:first:")
    assert "parsnip" not in secret


def test_a_replaced_machine_comes_back_by_itself(plane: ControlPlane) -> None:
    """Without a member the others accept changes; with an empty root disk and its volume it needs no command."""
    plane.kill(SECOND)

    # If the lost member was etcd's leader, changes fail until another one is elected.
    create = "create configmap meanwhile 2>&1 || true"
    until(lambda: "meanwhile" in plane.kubectl(FIRST, create), 60, "a change is accepted", every=1)

    plane.boot(SECOND)

    until(lambda: plane.answers(SECOND), 120, "the member is ready", every=1)
    assert "meanwhile" in plane.kubectl(SECOND, "get configmaps --output name")


def test_a_lost_volume_is_replaced(plane: ControlPlane, capsys: pytest.CaptureFixture[str]) -> None:
    """A blank member never forms a cluster: `init` lets it copy the data of the others."""
    plane.kill(THIRD)
    shutil.rmtree(plane.volume(THIRD))
    plane.boot(THIRD)

    assert run(["kube", "init", str(plane.fleet)]) == 0

    members = json.loads(_etcd(plane, "member list --write-out json"))["members"]
    assert sorted(member["name"] for member in members) == [*NAMES]
    assert not any(member.get("isLearner") for member in members)
    assert "meanwhile" in plane.kubectl(THIRD, "get configmaps --output name")
    assert run(["kube", "member", "replace", THIRD, "--fleet", str(plane.fleet)]) == 0
    assert f"{THIRD}: runs" in capsys.readouterr().out


def test_expired_certificates_are_renewed(plane: ControlPlane) -> None:
    """The daily unit replaces them, and the pods that use them restart; a member with valid ones stays as it is."""
    pki, manifest = plane.volume(FIRST) / "pki", "sha256sum /etc/kubernetes/manifests/kube-apiserver.yaml"
    before, other = plane.shell(FIRST, manifest), plane.shell(SECOND, manifest)
    for name in ("apiserver", "etcd/server"):
        _expire(pki, name)

    for member in (FIRST, SECOND):
        plane.shell(member, "systemctl restart bedplate-member.service")

    assert _end(pki / "apiserver.crt") > datetime.now(UTC) + timedelta(days=300)
    assert _end(pki / "etcd" / "server.crt") > datetime.now(UTC) + timedelta(days=300)
    assert plane.shell(FIRST, manifest) != before
    assert plane.shell(SECOND, manifest) == other
    until(lambda: plane.answers(FIRST), 120, "the API server has restarted", every=1)


def test_a_snapshot_restores_a_running_cluster(plane: ControlPlane) -> None:
    """Every object of the snapshot is there, those made later are not."""
    snapshot = _snapshot(plane)
    plane.kubectl(FIRST, "create configmap later")
    plane.kubectl(FIRST, "delete configmap plain")

    assert run(["kube", "restore", str(snapshot), "--yes", "--fleet", str(plane.fleet)]) == 0

    for name in NAMES:
        objects = plane.kubectl(name, "get configmaps,secrets --output name")
        assert "configmap/plain" in objects
        assert "secret/token" in objects
        assert "configmap/later" not in objects


def test_a_damaged_snapshot_stops_nothing(
    plane: ControlPlane, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It has no signature of a member; with `--unsigned`, each member checks the file before any is stopped."""
    snapshot = tmp_path / "damaged.db"
    snapshot.write_bytes(b"no snapshot")
    command = ["kube", "restore", str(snapshot), "--yes", "--fleet", str(plane.fleet)]

    assert run(command) == 2
    assert "damaged.db is not signed by a control plane member" in capsys.readouterr().err
    assert run([*command, "--unsigned"]) == 6

    assert FIRST in capsys.readouterr().err
    assert plane.kubectl(FIRST, "get --raw /readyz") == "ok"


def test_a_cluster_is_restored_while_a_member_is_away(plane: ControlPlane, capsys: pytest.CaptureFixture[str]) -> None:
    """The others restore it; the old data of the third joins no cluster, and `member replace` gives it the new one."""
    snapshot, before = _snapshot(plane), _recorded(plane)
    plane.kill(THIRD)

    assert run(["kube", "restore", str(snapshot), "--without", THIRD, "--yes", "--fleet", str(plane.fleet)]) == 0

    assert "configmap/plain" in plane.kubectl(FIRST, "get configmaps --output name")
    plane.boot(THIRD)
    assert run(["kube", "init", str(plane.fleet)]) == 6
    what = f"{THIRD} has data of etcd cluster {before}, and the fleet has {_recorded(plane)}"
    assert what in capsys.readouterr().err
    assert run(["kube", "member", "replace", THIRD, "--fleet", str(plane.fleet)]) == 0
    assert {_id(plane, name) for name in NAMES} == {_recorded(plane)}
    assert (plane.volume(THIRD) / "data.before" / "member").exists()


def test_a_lost_majority_never_makes_a_second_cluster(plane: ControlPlane, capsys: pytest.CaptureFixture[str]) -> None:
    """Two blank members wait for the third; when it runs alone, the message names the restore, which ends in one."""
    snapshot, before = _snapshot(plane), _recorded(plane)
    for name in (SECOND, THIRD):
        plane.kill(name)
        shutil.rmtree(plane.volume(name))
        plane.boot(name)
    plane.kill(FIRST)

    assert run(["kube", "init", str(plane.fleet)]) == 6
    fix = f"start {FIRST} first; if their volumes are lost too, run `bedplate kube restore`"
    assert fix in " ".join(capsys.readouterr().err.split())
    plane.boot(FIRST)
    assert run(["kube", "init", str(plane.fleet)]) == 6
    assert "fix  run `bedplate kube restore`" in capsys.readouterr().err
    assert not any((plane.volume(name) / "data").exists() for name in (SECOND, THIRD))
    assert _recorded(plane) == before

    assert run(["kube", "restore", str(snapshot), "--yes", "--fleet", str(plane.fleet)]) == 0

    assert {_id(plane, name) for name in NAMES} == {_recorded(plane)} != {before}
    assert "configmap/plain" in plane.kubectl(SECOND, "get configmaps --output name")


def test_a_cluster_without_volumes_is_restored(plane: ControlPlane) -> None:
    """From a snapshot and the operator's keys; Secrets can be read, because their key is among them."""
    snapshot = _snapshot(plane)
    for name in NAMES:
        plane.kill(name)
        shutil.rmtree(plane.volume(name))
        plane.boot(name)

    assert run(["kube", "restore", str(snapshot), "--yes", "--fleet", str(plane.fleet)]) == 0

    assert plane.kubectl(SECOND, "get secret token --output jsonpath={.data.word}") == "cGFyc25pcA=="


def _recorded(plane: ControlPlane) -> str:
    return read_lock(lock_path(plane.fleet), "lab").etcd


def _id(plane: ControlPlane, name: str) -> str:
    return parse_status(json.loads(plane.shell(name, "bedplate-member status"))).cluster


def _snapshot(plane: ControlPlane) -> Path:
    """Take a snapshot, and return a copy outside the member."""
    plane.shell(FIRST, "systemctl start bedplate-etcd-snapshot.service")
    newest = max((plane.volume(FIRST) / "snapshots").glob("*.db"))
    return Path(shutil.copy(newest, plane.lab.folder))


def _etcd(plane: ControlPlane, command: str) -> str:
    pki = "/var/lib/etcd/pki/etcd"
    keys = f"--cacert {pki}/ca.crt --cert {pki}/server.crt --key {pki}/server.key"
    return plane.shell(FIRST, f"etcdctl {keys} {command} | tr -d '\\000' | iconv -ct ascii")


def _end(file: Path) -> datetime:
    return x509.load_pem_x509_certificate(file.read_bytes()).not_valid_after_utc


def _expire(pki: Path, name: str) -> None:
    """Replace a certificate by one with the same content that has expired."""
    authority = (pki / name).parent / "ca"
    key = load_pem_private_key(authority.with_suffix(".key").read_bytes(), None)
    old = x509.load_pem_x509_certificate((pki / f"{name}.crt").read_bytes())
    builder = (
        x509.CertificateBuilder()
        .subject_name(old.subject)
        .issuer_name(old.issuer)
        .public_key(old.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.now(UTC) - timedelta(days=400))
        .not_valid_after(datetime.now(UTC) - timedelta(days=1))
    )
    for extension in old.extensions:
        builder = builder.add_extension(extension.value, extension.critical)
    certificate = builder.sign(key, SHA256())  # type: ignore[arg-type]  # the key of an authority
    (pki / f"{name}.crt").write_bytes(certificate.public_bytes(Encoding.PEM))
