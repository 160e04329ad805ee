"""The services of a whole machine, each used as its users do; a service that does not work raises an error."""

import json
import shutil
import subprocess
import sys
import tarfile
import traceback
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from subprocess import CompletedProcess, TimeoutExpired
from time import sleep

from bedplate.plan.firewall import EXPORTER_PORT, NFS
from bedplate.plan.hub import HUB_CERTIFICATE, HubPlan
from bedplate.plan.links import API_PORT
from bedplate.plan.mounts import MountKind
from bedplate.plan.nodes import NodeRole
from roles.catalog import names_of, roles_of
from roles.hub.role import BACKUP
from roles.jobs.role import RUNS
from roles.storage.mounts import HOMES, loopback
from tests.testlab.machines import nfs_client
from tests.testlab.machines.cloud import METADATA
from tests.testlab.machines.container import CommandError
from tests.testlab.machines.surroundings import add_address, address_of
from tests.testlab.machines.whole import STRANGER, Whole, config_of_ada
from tests.testlab.machines.whole_worker import wait_until_joined
from tests.testlab.network.netlab import LabError, until

# Hosts of the fleet: a workbench of the home region, and one of no place.
COLLEAGUE, OUTSIDE = "10.64.33.200", "203.0.113.77"
_FOR_PEOPLE = frozenset({NodeRole.WORKBENCH})
ENDS = ("dump", "tar")
Service = Callable[[Whole], None]


def services_of(machine: Whole) -> Mapping[str, Service]:
    """Return the services of a machine by name."""
    return dict(_services(machine))


def _services(machine: Whole) -> Iterator[tuple[str, Service]]:
    planned = machine.planned
    yield "ssh", check_ssh
    if planned.mounts and NodeRole.WORKBENCH in planned.roles:
        yield "homes", check_homes
    if machine.store:
        yield "s3", check_buckets
    if planned.gpus:
        yield "driver", check_driver
    by_role = {"gate": check_gate, "jobs": check_jobs}
    yield from ((name, use) for name, use in by_role.items() if name in names_of(planned))
    if machine.cluster:
        yield "cluster", check_cluster
        yield "pods", check_pods
    if planned.laptops:
        yield "laptop", check_laptop
    if NodeRole.CONTROL in planned.roles:
        yield "volume of etcd", check_volume
        yield "api", check_api_port
    if planned.shares:
        yield "exports", check_exports
    yield from _services_of_hub(planned.hub)
    if machine.has_role:
        yield "metadata", check_metadata
    yield "node exporter", check_metrics
    yield "configuration again", check_again
    yield "audit", check_audit


def _services_of_hub(hub: HubPlan | None) -> Iterator[tuple[str, Service]]:
    if hub:
        yield "records", check_records
    if hub and hub.backup:
        yield "copies", check_copies
        yield "lost tunnel", check_lost_tunnel


def failures_of(machine: Whole, *without: str) -> dict[str, str]:
    """Use each service except some; return the error of each that does not work."""
    used = {name: use for name, use in services_of(machine).items() if name not in without}
    errors = {name: _error_of(machine, use) for name, use in used.items()}
    return {name: error for name, error in errors.items() if error}


def _error_of(machine: Whole, use: Service) -> str:
    """Return the error of a service; empty if it works."""
    try:
        use(machine)
    except (AssertionError, CommandError, LabError, OSError, TimeoutExpired):
        return traceback.format_exc()[-2000:]
    return ""


def check_ssh(machine: Whole) -> None:
    """Administrators log in and become root, others only where they work, and nobody else or from elsewhere."""
    assert machine.as_person("ada", "sudo -n id -u") == "0\n"
    refused = [STRANGER, "ubuntu"] if machine.planned.platform.value == "cloud" else [STRANGER]
    if machine.planned.roles & _FOR_PEOPLE:
        assert machine.as_person("grace", "id -u") == f"{machine.plan.accounts.uids['grace']}\n"
        assert machine.ssh("grace", "sudo -n id -u").returncode == 1
    elif machine.planned.roles & {NodeRole.CONTROL, NodeRole.HUB}:
        # A token, for which these words are no scope, or of the cluster, which does not run; and nothing else.
        done = machine.ssh("grace", "id -u")
        assert (done.returncode, done.stdout) == (1, ""), done
        assert "error" in done.stderr
    else:
        refused.append("grace")
    for name in refused:
        done = machine.ssh(name, "true")
        assert (done.returncode, "Permission denied" in done.stderr) == (255, True), f"{name} logs in: {done.stderr}"
    add_address(machine.lab, OUTSIDE)
    assert "timed out" in machine.ssh("ada", "true", OUTSIDE).stderr


def check_homes(machine: Whole) -> None:
    """Two people write to their homes, which are those of the store, and neither reads the other's.

    Neither connects to a file server or a tunnel, which would believe any user id.
    """
    homes = next(mount for mount in machine.planned.mounts if mount.path == HOMES)
    folder = machine.files.exports[homes.export]
    for person in ("ada", "grace"):
        uid = machine.plan.accounts.uids[person]
        if homes.kind is MountKind.NFS and not (folder / person).exists():
            # What the file server does.
            (folder / person).mkdir(mode=0o700)
            machine.lab.workstation.host.run("chown", f"{uid}:{uid}", str(folder / person))
        machine.as_person(person, f"echo of {person} >> ~/notes")
        notes = folder / person / "notes"
        assert (notes.stat().st_uid, (folder / person).stat().st_mode & 0o777) == (uid, 0o700)
        assert machine.as_person(person, "cat ~/notes") == notes.read_text()
    assert "Permission denied" in machine.ssh("grace", "cat ~ada/notes").stderr
    for mount in machine.planned.mounts:
        machine.as_person("grace", f"touch {mount.path}/grace/x") if mount.path == HOMES else machine.as_person(
            "grace", f"touch {mount.path}/of-grace"
        )
        tunnel = (loopback(mount.store),) if mount.kind is MountKind.EFS else ()
        for address in (*tunnel, address_of(mount, machine.planned)):
            done = machine.ssh("grace", f"timeout 10 bash -c 'exec 3<>/dev/tcp/{address}/2049'")
            assert "Connection refused" in done.stderr, f"grace at {address}: {done.returncode} {done.stderr}"
    assert {address for address, _ in machine.files.peers} == {str(machine.node.address)}


def check_buckets(machine: Whole) -> None:
    """A result that one person uploads is read by another; the list of all buckets is refused."""
    machine.as_person("ada", "bash -lc 'echo 0.91 | aws s3 cp - $S3_RESULTS/ada/accuracy.txt'")
    assert machine.as_person("grace", "bash -lc 'aws s3 cp $S3_RESULTS/ada/accuracy.txt -'") == "0.91\n"
    assert "AccessDenied" in machine.ssh("grace", "bash -lc 'aws s3 ls'").stderr


def check_metadata(machine: Whole) -> None:
    """Root has the rights of the machine in AWS; people have them where they work, and nobody else."""
    url, header = f"http://{METADATA}/latest/api/token", "X-aws-ec2-metadata-token-ttl-seconds: 60"
    ask = f"curl -sS --noproxy '*' --max-time 5 --request PUT --header '{header}' {url}"
    assert machine.node.run(ask)
    person = f"setpriv --reuid {machine.plan.accounts.uids['grace']} --clear-groups {ask} || true"
    assert bool(machine.node.run(person)) == bool(machine.planned.roles & _FOR_PEOPLE)


def check_driver(machine: Whole) -> None:
    """An administrator, and each person who works here, sees the GPUs of the plan."""
    people = ("ada", "grace") if machine.planned.roles & _FOR_PEOPLE else ("ada",)
    assert machine.planned.gpus
    for person in people:
        names = machine.as_person(person, "nvidia-smi --query-gpu=name").splitlines()
        assert len(names) == machine.planned.gpus.count, names
        if machine.planned.frameworks is not False and "frameworks" in [
            role.name for role in roles_of(machine.planned)
        ]:
            count = machine.as_person(person, "python -c 'import torch; print(torch.cuda.device_count())'")
            assert count == f"{machine.planned.gpus.count}\n"


def check_jobs(machine: Whole) -> None:
    """A unit of a person outlives the login and has limits; its GPUs are leased until it ends, and others wait.

    Eight logins at once, as of a search, are let in.
    """
    gpus = machine.planned.gpus.count if machine.planned.gpus else 0
    limits = "--property=CPUQuota=50% --property=MemoryMax=1G"
    show, wish = "bedplate-gpus show --json", f"bedplate-gpus run --gpus {gpus} --wait 1 -- true"
    unit = f"systemd-run --user --quiet --unit=bp-grace-1127 {limits}"
    machine.as_person("grace", f"{unit} bedplate-gpus run --gpus {gpus} -- sleep 600")
    sleep(3)
    uid = machine.plan.accounts.uids["grace"]
    own = f"user.slice/user-{uid}.slice/user@{uid}.service/app.slice/bp-grace-1127.service"
    assert machine.node.run(f"cat /sys/fs/cgroup/{own}/cgroup.procs"), "the unit ended with the login"
    assert "Permission denied" in machine.ssh("ada", f"ls {RUNS}/{uid}").stderr
    machine.as_person("grace", f"touch {RUNS}/{uid}/mine")
    if gpus:
        state = json.loads(machine.as_person("ada", show))
        holders = [(gpu["state"], gpu["person"], gpu["run"]) for gpu in state["gpus"]]
        assert holders == [("leased", "grace", "grace-1127")] * gpus, state
        assert machine.ssh("ada", wish).returncode == 202
        assert f"0 of {gpus} GPUs have no lease" in machine.as_person("ada", "bash -lic true")
    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(lambda _: machine.as_person("grace", "id -un"), range(8))) == {"grace\n"}
    machine.as_person("grace", "systemctl --user stop bp-grace-1127")
    machine.as_person("ada", wish)


def check_gate(machine: Whole) -> None:
    """The health gate passes, and has seen each mount and GPU."""
    verdict = json.loads(machine.node.run("/usr/local/sbin/bedplate-gate --json"))
    assert verdict["ok"], verdict
    texts = [finding["text"] for finding in verdict["findings"]]
    for mount in machine.planned.mounts:
        assert f"{mount.path} answers" in texts, texts
    if gpus := machine.planned.gpus:
        assert f"{gpus.count} {gpus.model}, planned {gpus.count}" in texts, texts


def check_metrics(machine: Whole) -> None:
    """The hub reads metrics over TLS; other machines of the fleet and other hosts read none."""
    assert machine.plan.hub
    hub = {} if machine.planned.hub else {str(machine.plan.hub.address): True}
    readers = {**hub, COLLEAGUE: False, OUTSIDE: False}
    url = f"https://{machine.node.address}:{EXPORTER_PORT}/metrics"
    for address, may in readers.items():
        add_address(machine.lab, address)
        words = ("-sSk", "--noproxy", "*", "--interface", address, "--max-time", "30" if may else "3", url)
        done = machine.lab.workstation.run("curl", *words)
        assert ("node_memory_MemTotal_bytes" in done.stdout) == may, f"{address}: {done.stdout[:100]}{done.stderr}"
    here = machine.as_person("ada", f"curl -sSk --noproxy '*' --max-time 30 {url}")
    assert "node_memory_MemTotal_bytes" in here


def check_again(machine: Whole) -> None:
    """Another configuration run, or an apply at a site, changes nothing; a member starts what waits for the cluster."""
    waiting = {"Start the approver of nodes", "Start the capacity controller"}
    assert set(machine.again()) - (waiting if NodeRole.CONTROL in machine.planned.roles else set()) == set()


def check_audit(machine: Whole) -> None:
    """An audit of the machine, by itself in the cloud and by an administrator elsewhere, finds no failure."""
    document = machine.audited()
    assert document, "the machine has written no audit"
    (audit,) = document["nodes"]
    assert not audit.get("unreached"), audit
    verdicts = audit["verdicts"]
    assert [(verdict["rule"], verdict["words"]) for verdict in verdicts if verdict["outcome"] == "failed"] == []


def check_laptop(machine: Whole) -> None:
    """A laptop connects, and reaches a page behind the gateway, and it by SSH, but nothing outside of the plan."""
    laptop = machine.laptop
    assert laptop
    laptop.connect()
    assert laptop.fetch() == "page"
    assert laptop.fetch_outside() == ""
    ssh = ("ssh", "-F", str(config_of_ada(machine)), str(machine.node.address), "hostname")
    assert laptop.host.run(*ssh).strip() == machine.planned.host


def check_volume(machine: Whole) -> None:
    """The member's volume is mounted where etcd writes, and has what was written before."""
    kind = machine.node.run("findmnt --noheadings --output FSTYPE /var/lib/etcd").strip()
    assert kind == "ext4"
    machine.node.run("[ -e /var/lib/etcd/kept ] || [ ! -e /root/restarted ]; touch /var/lib/etcd/kept /root/restarted")


def check_api_port(machine: Whole) -> None:
    """Machines of the fleet reach the port of the API, and no other host; a page stands for the API server."""
    serve = f"python3 -m http.server --directory /srv --bind {machine.node.address} {API_PORT}"
    machine.node.run(f"systemctl is-active --quiet api || systemd-run --quiet --unit=api {serve}")
    for address, may in ((COLLEAGUE, True), (OUTSIDE, False)):
        add_address(machine.lab, address)
        limit = "30" if may else "3"
        words = ("-sSf", "--noproxy", "*", "--retry", "5", "--retry-connrefused", "--interface", address)
        url = f"http://{machine.node.address}:{API_PORT}/"
        done = machine.lab.workstation.run("curl", *words, "--max-time", limit, url)
        assert (done.returncode == 0) == may, f"{address}: {done.stderr}"
    # The audit would see it.
    machine.node.run("systemctl stop api")


def check_exports(machine: Whole) -> None:
    """A client of the plan writes and reads as a person in the own home, not in that of another; other hosts cannot.

    The NFS client is tests/testlab/machines/nfs_client.py. An unprivileged port is not served.
    """
    uids, host = machine.plan.accounts.uids, machine.lab.workstation.host
    client, other = "192.168.40.23", "192.168.40.99"
    for address in (client, other):
        add_address(machine.lab, address)

    def write(source: str, port: int, person: str, path: str) -> str:
        end = (source, str(port), str(machine.node.address), str(uids[person]), path, f"of {person}")
        command = ("ip", "netns", "exec", host.namespace, sys.executable, "-P", nfs_client.__file__, *end)
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        return done.stdout + done.stderr.strip()

    for number, person in enumerate(uids):
        assert write(client, 800 + number, person, f"/srv/home/{person}/notes") == f"of {person}"
    assert write(client, 810, "grace", "/srv/data/of-grace") == "of grace"
    assert "failed: 13" in write(client, 811, "grace", "/srv/home/ada/notes")
    assert "of grace" not in write(client, 20811, "grace", "/srv/data/of-grace")
    assert "cannot connect" in write(other, 812, "grace", "/srv/data/of-grace")


def check_records(machine: Whole) -> None:
    """A person gets a token by SSH, and reaches the records from a machine of the fleet; other hosts do not."""
    (machine.folder / "tls.crt").write_text(machine.node.run(f"cat {HUB_CERTIFICATE}"))
    token = machine.ssh("grace", "bp-token").stdout.strip()
    for address, may in ((COLLEAGUE, True), (OUTSIDE, False)):
        add_address(machine.lab, address)
        words = ("-sS", "--noproxy", "*", "--interface", address, "--max-time", "60" if may else "3")
        header = f"Authorization: Bearer {token}"
        done = machine.lab.workstation.run("curl", *words, *_to_hub(machine), "--header", header)
        assert ("experiment_id" in done.stdout) == may, f"{address}: {done.stdout[:300]}{done.stderr}"


def _to_hub(machine: Whole) -> tuple[str, ...]:
    """Return the words of curl that ask the hub for the experiment of runs, with its certificate."""
    assert machine.planned.hub
    name = machine.planned.hub.host
    url = f"https://{name}/api/2.0/mlflow/experiments/get-by-name?experiment_name=jobs"
    return ("--cacert", str(machine.folder / "tls.crt"), "--resolve", f"{name}:443:{machine.node.address}", url)


def check_copies(machine: Whole) -> None:
    """The backup of a night is on another machine, without keys."""
    (mount,) = machine.planned.mounts
    machine.node.run(f"systemctl start {BACKUP}", 300)
    dumps = machine.files.exports[mount.export] / "dumps" / machine.planned.name
    (*_, newest) = sorted(dumps.glob("*.sha256"))
    assert {line.split()[1] for line in newest.read_text().splitlines()} == {f"{newest.stem}.{end}" for end in ENDS}
    with tarfile.open(newest.with_suffix(".tar")) as archive:
        assert {member.partition("/")[0] for member in archive.getnames()} == {"tokens"}


def check_lost_tunnel(machine: Whole) -> None:
    """While no packet arrives, bp says which machine is away, and requests wait; then nobody has to act."""
    bp, token = bp_of_grace(machine), machine.ssh("grace", "bp-token").stdout.strip()
    assert bp("runs").returncode == 0, bp("runs").stderr
    words = (
        "--silent",
        "--noproxy",
        "*",
        "--retry",
        "60",
        "--retry-delay",
        "1",
        "--retry-all-errors",
        "--max-time",
        "60",
    )
    command = (
        "curl",
        *words,
        "--connect-timeout",
        "3",
        *_to_hub(machine),
        "--header",
        f"Authorization: Bearer {token}",
    )
    machine.node.cut()
    with ThreadPoolExecutor(1) as pool:
        try:
            refused = bp("runs")
            asked = pool.submit(machine.lab.workstation.run, *command)
            sleep(5)
            is_waiting = not asked.done()
        finally:
            machine.node.heal()
        answer = asked.result().stdout
    assert (refused.returncode, f"the hub does not answer at {machine.node.address}" in refused.stderr) == (4, True)
    assert (is_waiting, "experiment_id" in answer) == (True, True), answer
    assert bp("runs").returncode == 0, bp("runs").stderr


def bp_of_grace(machine: Whole) -> Callable[..., CompletedProcess[str]]:
    """Return bp of the archive of a person, with the person's key in an agent."""
    folder = machine.folder / "laptop"
    host, socket = machine.lab.workstation.host, folder / "agent"
    if not folder.exists():
        folder.mkdir()
        for words in (("vpn", "init"), ("person", "invite", "grace", "--write", str(folder / "archive.zip"))):
            done = machine.bedplate(*words) if words[0] == "person" else machine.fleet.bedplate(*words)
            assert done.returncode == 0, done.stderr
        shutil.unpack_archive(folder / "archive.zip", folder)
        host.start("ssh-agent", "-D", "-a", str(socket), log="agent.log")
        until(socket.exists, 10, "no agent")
        host.run("env", f"SSH_AUTH_SOCK={socket}", "ssh-add", "-q", str(machine.keys["grace"]))
    settings = (f"SSH_AUTH_SOCK={socket}", f"HOME={folder}", f"XDG_CACHE_HOME={folder}")
    command = ("env", *settings, sys.executable, str(folder / machine.plan.name / "bp"))
    return lambda *words: machine.lab.workstation.run(*command, *words)


def check_cluster(machine: Whole) -> None:
    """The machine is a ready node with the labels of its plan, whose gate has opened it for pods."""
    assert machine.cluster
    node = wait_until_joined(machine.cluster, machine.planned.name)
    assert machine.planned.cluster
    kinds, types = machine.planned.cluster.kinds, machine.planned.types
    labels = kinds[types[0] if types else ""].registration.labels
    assert labels.items() <= node["metadata"]["labels"].items()


# A network namespace behind the bridge of pods stands for the network of a pod.
_POD = """
ip netns list | grep -qw pod && exit
ip netns add pod; ip link add cni0 type veth peer name eth0 netns pod
ip address add {gateway}/24 dev cni0; ip link set cni0 up; ip -n pod link set lo up
ip -n pod address add {pod}/24 dev eth0; ip -n pod link set eth0 up; ip -n pod route add default via {gateway}
sysctl -qw net.ipv4.ip_forward=1
nft 'table ip pods {{ chain post {{ type nat hook postrouting priority 100; oifname eth0 masquerade; }}; }}'
"""


def check_pods(machine: Whole) -> None:
    """A pod's container writes to its person's home, and reaches the API, but no file server and no metadata.

    The container is a process with the id of the person, in the network of a pod; the claim is its volume's folder.
    """
    planned, uid = machine.planned, machine.plan.accounts.uids["grace"]
    assert machine.cluster
    assert machine.plan.pods
    block = next(machine.plan.pods.subnets(new_prefix=24))
    machine.node.run(_POD.format(gateway=block[1], pod=block[2]))
    inside_pod = f"ip netns exec pod setpriv --reuid {uid} --regid {uid} --clear-groups"

    def tries(address: str, port: int) -> str:
        return machine.node.run(
            f"{inside_pod} timeout 5 bash -c 'exec 3<>/dev/tcp/{address}/{port}' 2>&1 && echo yes || true"
        )

    homes = [mount for mount in planned.mounts if mount.path == HOMES]
    for mount in homes:
        home = machine.files.exports[mount.export] / "grace"
        if not home.exists():
            home.mkdir(mode=0o700)
            machine.lab.workstation.host.run("chown", f"{uid}:{uid}", str(home))
        machine.node.run(f"{inside_pod} sh -c 'echo of a pod > /home/grace/job'")
        assert (home / "job").stat().st_uid == uid
        assert "Permission denied" in machine.node.run(
            f"setpriv --reuid {uid + 1} --regid {uid + 1} --clear-groups cat /home/grace/job 2>&1 || true"
        )
        for address in (*((loopback(mount.store),) if mount.kind is MountKind.EFS else ()), address_of(mount, planned)):
            assert "yes" not in tries(address, 2049), address
    assert "yes" in tries(machine.cluster.plane.address, 6443)


# Shell commands that break a service, by its name: mistakes that roles and filters could make.
_FLUSH = "nft flush chain inet bedplate output"
_DEFECTS: Mapping[str, str] = {
    "homes": _FLUSH,
    "pods": f"{_FLUSH}; nft flush chain inet bedplate forward",
    "laptop": "nft insert rule inet bedplate_laptops forward oifname eth0 drop",
    "api": f"nft insert rule inet bedplate input tcp dport {API_PORT} accept",
    "exports": f"nft insert rule inet bedplate input tcp dport {NFS} accept",
    "records": "nft insert rule inet bedplate input tcp dport 443 accept",
    "copies": "umount --recursive /copies; systemctl stop copies.automount",
    "node exporter": f"nft insert rule inet bedplate input tcp dport {EXPORTER_PORT} accept",
}


def undetected_defects(machine: Whole) -> list[str]:
    """Break each service that has a defect in the table; return the names of those that then still seem to work."""
    undetected = []
    for name, use in services_of(machine).items():
        if name in _DEFECTS:
            machine.node.run(_DEFECTS[name])
            undetected += [name] if _error_of(machine, use) == "" else []
    return undetected
