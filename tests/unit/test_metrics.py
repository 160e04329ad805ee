"""The collectors of metrics: what each says, and that one that fails or hangs says nothing old and delays no other."""

import fcntl
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from bedplate.catalog import load_catalog
from bedplate.plan.firewall import METRICS_PORTS
from bedplate.plan.nodes import find_node
from bedplate.programs.gate.machine import Machine
from bedplate.programs.metrics.__main__ import Collector, collect_all, collectors_of, exposition, write
from bedplate.programs.metrics.gpus import Gpus, KernelLog, Owners
from bedplate.programs.metrics.system import Sample, collect_ages, collect_efa, collect_mounts
from roles.hardened.firewall import ruleset
from tests.testlab.fakes.gpus import program
from tests.testlab.network.netlab import Lab, until
from tests.testlab.rehearsal.programs import EXAMPLES, plan_of
from tests.testlab.run import need_program, need_root

GPUS = "".join(f"{number}, GPU-{number}, 00000000:{0x50 + number:02X}:00.0\n" for number in range(2))
POD = "0aa6ef1c-5f01-4f55-8c5f-2a4a6f2b9f10"


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Return a machine with two GPUs, whose programs are fakes: nobody uses them, and the kernel has logged nothing."""
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    put(tmp_path, "gpus", GPUS)
    put(tmp_path, "uses", "")
    put(tmp_path, "log", "")
    program(tmp_path, "nvidia-smi", f"case $1 in --query-gpu=*) cat {tmp_path}/gpus;; *) cat {tmp_path}/uses;; esac")
    program(tmp_path, "journalctl", f"cat {tmp_path}/log")
    return Machine(tmp_path, timeout=0.5)


def put(root: Path, path: str, text: str) -> None:
    """Write a file of the machine."""
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


def values(samples: Iterable[Sample]) -> dict[tuple[str, ...], float]:
    """Return values by the name of the metric and the values of its labels."""
    return {(name, *labels.values()): value for name, labels, value in samples}


def owners(machine: Machine) -> set[tuple[str, ...]]:
    """Return GPU, person, run and source of each owner."""
    both = Owners(machine, Gpus(machine))
    found = [*both.collect_holders(), *both.collect_users()]
    names = {name[1:] for name in values(found)}
    assert len(names) == len(found), "the same owner twice"
    return names


# --- the file ---------------------------------------------------------------------------------------------------------


def test_prometheus_reads_the_file(machine: Machine) -> None:
    """The file of a machine with everything is what promtool accepts, whatever labels contain."""
    samples = [*collect_all([*collectors_of(machine, ["/home"], has_gpus=True)])]
    samples.append(("bedplate_mount_answers", {"mount": '/a "quoted"\\path\nof two lines'}, 1.0))

    checked = subprocess.run(
        ["promtool", "check", "metrics"], input=exposition(samples), capture_output=True, text=True, check=False
    )

    assert checked.returncode in {0, 3}, checked.stderr  # 3: names or help texts could be better
    assert "error" not in checked.stderr.replace("non-histogram", "")
    assert 'mount="/a \\"quoted\\"\\\\path\\nof two lines"' in exposition(samples)


def test_each_name_is_one_group(machine: Machine) -> None:
    """The samples of a name are together, as the text format demands."""
    text = exposition(collect_all([*collectors_of(machine, ["/", "/none"], has_gpus=True)]))

    names = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
    assert len(names) == len(set(names))
    assert 'bedplate_collector_ok{collector="owners"} 1.0\n' in text


def test_a_file_that_cannot_be_replaced_is_removed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On a full disk no metrics are better than old ones."""
    file = tmp_path / "bedplate-metrics.prom"
    write(file, "bedplate_gpu_seen 8.0\n")
    assert (file.read_text(), file.stat().st_mode & 0o777) == ("bedplate_gpu_seen 8.0\n", 0o644)
    (tmp_path / "bedplate-metrics.new").mkdir()

    write(file, "bedplate_gpu_seen 7.0\n")

    assert not file.exists()
    assert "cannot write" in capsys.readouterr().err


# --- collectors -------------------------------------------------------------------------------------------------------


def collect_one() -> Iterator[Sample]:
    """Yield a sample."""
    yield "bedplate_one", {}, 1.0


def collect_broken() -> Iterator[Sample]:
    """Yield a sample, then fail."""
    yield "bedplate_half", {}, 1.0
    raise OSError("no device")


def collect_endless() -> Iterator[Sample]:
    """Yield samples of ever new labels."""
    number = 0
    while True:
        number += 1
        yield "bedplate_many", {"name": str(number)}, 1.0


def test_a_failed_collector_leaves_nothing() -> None:
    """An error in the middle leaves no sample, and nothing of the round before; the other collectors answer."""
    answers = iter([collect_one(), collect_broken(), collect_one()])
    collectors = [Collector("varying", answers.__next__), Collector("one", collect_one)]

    rounds = [values(collect_all(collectors)) for _ in range(3)]

    assert [found["bedplate_collector_ok", "varying"] for found in rounds] == [1, 0, 1]
    assert not [name for found in rounds for name in found if "half" in name[0]]
    assert all(found["bedplate_collector_ok", "one"] for found in rounds)


def test_the_error_of_a_collector_is_told() -> None:
    """The text of the error is kept for the journal."""
    broken = Collector("broken", collect_broken)

    list(collect_all([broken]))

    assert broken.error == "OSError: no device"


def test_a_hanging_collector_delays_no_other() -> None:
    """It has the time of a round, is not started twice, and what it says late is dropped."""
    started, gate = list[float](), list[bool]()

    def hang() -> Iterator[Sample]:
        started.append(time.monotonic())
        while not gate:
            time.sleep(0.01)
        yield "bedplate_late", {}, 1.0

    collectors = [Collector("hanging", hang), Collector("one", collect_one)]
    start = time.monotonic()
    hung = [values(collect_all(collectors, limit=0.2)) for _ in range(2)]
    assert time.monotonic() - start < 2
    assert len(started) == 1
    assert all(("bedplate_late",) not in found and found["bedplate_one",] for found in hung)
    assert [found["bedplate_collector_ok", "hanging"] for found in hung] == [0, 0]

    gate.append(True)
    time.sleep(0.1)
    assert values(collect_all(collectors, limit=5))["bedplate_collector_ok", "hanging"] == 1
    assert len(started) == 2


def test_an_explosion_of_labels_is_cut_off() -> None:
    """More samples than any machine has are none, and the collector says so: Prometheus keeps each series for hours."""
    endless = Collector("endless", collect_endless)

    found = values(collect_all([endless]))

    assert found["bedplate_collector_ok", "endless"] == 0
    assert "more than 2000 samples" in endless.error
    assert not [name for name in found if name[0] == "bedplate_many"]


def test_collectors_use_less_than_a_hundredth_of_a_core(machine: Machine) -> None:
    """A round takes less than 1 % of a processor of its 15 seconds, with its programs; a fake stands for nvidia-smi."""
    collectors = [*collectors_of(machine, ["/", "/none"], has_gpus=True)]
    rounds = 5

    def used() -> float:
        own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
        return sum(usage.ru_utime + usage.ru_stime for usage in (own, children))

    before = used()
    for _ in range(rounds):
        exposition(collect_all(collectors))

    assert (used() - before) / rounds < 0.15


# --- GPUs -------------------------------------------------------------------------------------------------------------


def test_lost_gpus_are_not_counted(machine: Machine) -> None:
    """nvidia-smi fails for one GPU, and lists the others: these are seen."""
    lost = "Unable to determine the device handle for GPU1: 0000:51:00.0: GPU is lost."
    program(machine.root, "nvidia-smi", f"head -1 {machine.root}/gpus; echo '{lost}'; exit 15")

    assert values(Gpus(machine).collect()) == {("bedplate_gpu_seen",): 1}


@pytest.mark.parametrize("script", ["echo no driver; exit 9", "sleep 60"], ids=["fails", "hangs"])
def test_without_an_answer_no_gpu_is_counted(machine: Machine, script: str) -> None:
    """No number is better than 0, which would say that GPUs are missing; leases and kernel log are still read."""
    program(machine.root, "nvidia-smi", script)
    put(machine.root, "log", line(79))

    found = values(collect_all([*collectors_of(machine, [], has_gpus=True)]))

    assert ("bedplate_gpu_seen",) not in found
    assert found["bedplate_collector_ok", "gpus"] == found["bedplate_collector_ok", "users"] == 0
    assert found["bedplate_collector_ok", "owners"] == 1
    assert found["bedplate_gpu_xid_total", "0000:51:00", "79", "reboot"] == 1


def line(number: int, device: str = "0000:51:00", seconds: float = 1795000000.5, kind: str = "Xid") -> str:
    """Return a line of the kernel log, as journalctl prints it."""
    return f"{seconds:.6f} kernel: NVRM: {kind} (PCI:{device}): {number}, pid=871, name=python, details\n"


def test_errors_are_counted_by_gpu_number_and_action(machine: Machine) -> None:
    """The actions are those of the gate's table, the GPU is that of nvidia-smi."""
    put(machine.root, "log", line(31) + line(31) + line(79, "0000:50:00") + line(64) + "1795000001.0 kernel: hello\n")

    found = values(KernelLog(machine).collect(Gpus(machine)))

    assert {name[1:]: value for name, value in found.items() if name[0] == "bedplate_gpu_xid_total"} == {
        ("1", "31", "monitor"): 2,
        ("0", "79", "reboot"): 1,
        ("1", "64", "replace"): 1,
    }
    assert found["bedplate_gpu_xid_time_seconds", "0", "79", "reboot"] == 1795000000.5


def test_errors_of_switches_are_counted(machine: Machine) -> None:
    """SXid are counted over all NVSwitches."""
    put(machine.root, "log", line(20034, "0000:c4:00.0", kind="SXid") + line(20034, "0000:c5:00.0", kind="SXid"))

    found = values(KernelLog(machine).collect(Gpus(machine)))

    assert found["bedplate_gpu_sxid_total", "20034", "reboot"] == 2


def test_the_log_is_read_once(machine: Machine) -> None:
    """Later looks read what is new, and counts go on; a look that fails reads it again."""
    script = f'case "$*" in *--after-cursor=s=2*) cat {machine.root}/new;; *) cat {machine.root}/log;; esac'
    put(machine.root, "log", f"{line(31)}{line(31)}-- cursor: s=2\n")
    put(machine.root, "new", line(31, seconds=1795000060.0))
    program(machine.root, "journalctl", script)
    log, gpus = KernelLog(machine), Gpus(machine)

    counts = [values(log.collect(gpus))["bedplate_gpu_xid_total", "1", "31", "monitor"] for _ in range(2)]
    program(machine.root, "journalctl", "echo 'no journal' >&2; exit 1")
    broken = Collector("kernel", lambda: log.collect(gpus))
    list(collect_all([broken]))
    program(machine.root, "journalctl", script)

    assert counts == [2, 3]
    assert broken.error == "journalctl --dmesg failed: no journal"
    assert values(log.collect(gpus))["bedplate_gpu_xid_total", "1", "31", "monitor"] == 4


@contextmanager
def leased(root: Path, gpu: int) -> Iterator[int]:
    """Lease a GPU in another process, as `bedplate-gpus run` does."""
    put(root, f"run/bedplate/gpus/gpu-{gpu}", f"GPU-{gpu}")
    ready, told = os.pipe()
    child = os.fork()
    if not child:
        handle = os.open(root / f"run/bedplate/gpus/gpu-{gpu}", os.O_RDONLY)
        fcntl.flock(handle, fcntl.LOCK_EX)
        os.write(told, b".")
        signal.pause()
    os.read(ready, 1)
    try:
        yield child
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_a_lease_owns_a_gpu_without_a_process(machine: Machine) -> None:
    """The owner is the person of the process with the lease, even if the driver hangs; without the lease nobody."""
    person = Path("/proc/self").owner()
    with leased(machine.root, 1):
        assert owners(machine) == {("1", person, "", "lease")}
        program(machine.root, "nvidia-smi", "sleep 60")
        assert {name[1:] for name in values(Owners(machine, Gpus(machine)).collect_holders())} == {
            ("1", person, "", "lease")
        }
        program(machine.root, "nvidia-smi", "true")
    assert owners(machine) == set()


def test_the_process_of_a_lease_is_no_second_owner(machine: Machine) -> None:
    """A process of another person, or without a lease, is an owner by itself."""
    person = Path("/proc/self").owner()
    put(machine.root, "uses", f"GPU-0, {os.getpid()}\nGPU-1, {os.getpid()}\nGPU-9, 1\n")
    with leased(machine.root, 1):
        assert owners(machine) == {("1", person, "", "lease"), ("0", person, "", "process")}


def kubelet(root: Path, devices: Mapping[str, list[str]], pod: str = POD) -> None:
    """Write what kubelet records of the devices of a pod."""
    entry = {"PodUID": pod, "ContainerName": "run", "ResourceName": "nvidia.com/gpu", "DeviceIDs": devices}
    document = {"Data": {"PodDeviceEntries": [entry], "RegisteredDevices": {}}, "Checksum": 1}
    put(root, "var/lib/kubelet/device-plugins/kubelet_internal_checkpoint", json.dumps(document))


@pytest.mark.parametrize(
    ("pod_name", "run"), [("ada-1128-brave-otter-n-0-3-x7k2p", "ada-1128-brave-otter"), ("notebook-0", "")]
)
def test_a_pod_owns_the_gpus_that_kubelet_has_given_it(machine: Machine, pod_name: str, run: str) -> None:
    """The person is the namespace, the run is that of the JobSet; a pod that has ended owns nothing."""
    kubelet(machine.root, {"0": ["GPU-0"], "1": ["GPU-1::2"]})
    slice_name = f"kubepods-burstable-pod{POD.replace('-', '_')}.slice"
    cgroup = machine.root / "sys/fs/cgroup/kubepods.slice/kubepods-burstable.slice" / slice_name
    cgroup.mkdir(parents=True)
    (machine.root / "var/log/pods" / f"ada_{pod_name}_{POD}").mkdir(parents=True)

    assert owners(machine) == {("0", "ada", run, "pod"), ("1", "ada", run, "pod")}
    cgroup.rmdir()
    assert owners(machine) == set()


def test_a_process_in_a_pod_belongs_to_the_pod(machine: Machine) -> None:
    """Pods with GPUs by another way than kubelet's are found by their processes."""
    slices = f"kubepods.slice/kubepods-pod{POD.replace('-', '_')}.slice"
    put(machine.root, "uses", "GPU-1, 4242\n")
    put(machine.root, "proc/4242/cgroup", f"0::/{slices}/cri-containerd-{'e' * 64}.scope\n")
    (machine.root / "var/log/pods" / f"grace_grace-1128-n-0-0-abcde_{POD}").mkdir(parents=True)

    assert owners(machine) == {("1", "grace", "grace-1128", "pod")}


def test_another_form_of_kubelets_record_is_an_error(machine: Machine) -> None:
    """A record that this program does not know leaves no owner, rather than half of them."""
    put(machine.root, "var/lib/kubelet/device-plugins/kubelet_internal_checkpoint", '{"V2": []}')

    found = values(collect_all([Collector("owners", Owners(machine, Gpus(machine)).collect_holders)]))

    assert found["bedplate_collector_ok", "owners"] == 0


# --- the machine ------------------------------------------------------------------------------------------------------


def test_a_hanging_mount_does_not_answer(machine: Machine) -> None:
    """The program that asks a dead file server is killed; the other mounts answer meanwhile."""
    put(machine.root, "proc/self/mounts", "nas:/home /home nfs4 rw 0 0\nnas:/data /data nfs4 rw 0 0\n")
    program(machine.root, "stat", 'case "$*" in */home/.) exec sleep 60;; *) exit 0;; esac')
    start = time.monotonic()

    found = values(collect_mounts(machine, ["/home", "/data", "/scratch"]))

    assert time.monotonic() - start < 5
    assert {name[1]: value for name, value in found.items() if name[0] == "bedplate_mount_answers"} == {
        "/home": 0,
        "/data": 1,
        "/scratch": 0,  # nothing is mounted there: the folder of the root disk answers
    }
    assert [name[1] for name in found if name[0] == "bedplate_mount_seconds"] == ["/data"]


def test_efa_devices_have_their_counters(machine: Machine) -> None:
    """Each counter of a port is a metric; other devices, and files without a number, are none."""
    for device, driver in (("rdmap0s6", "efa"), ("mlx5_0", "mlx5_core")):
        put(machine.root, f"sys/class/infiniband/{device}/device/uevent", f"DRIVER={driver}\n")
        counters = f"sys/class/infiniband/{device}/ports/1/hw_counters"
        for name, text in {"retrans_pkts": "7", "tx_bytes": "123", "lifespan": "10", "state": "active"}.items():
            put(machine.root, f"{counters}/{name}", f"{text}\n")

    assert values(collect_efa(machine)) == {
        ("node_amazonefa_retrans_pkts", "rdmap0s6", "1"): 7,
        ("node_amazonefa_tx_bytes", "rdmap0s6", "1"): 123,
    }


def test_ages_of_audit_image_and_bundle(machine: Machine) -> None:
    """They are those of the machine's own files; what it does not have is no metric."""
    assert values(collect_ages(machine)) == {}
    verdicts = [{"outcome": "failed"}, {"outcome": "passed"}, {"outcome": "failed"}, {"outcome": "skipped"}]
    audit = {"version": 1, "time": 1795000000, "ok": False, "nodes": [{"verdicts": verdicts}]}
    put(machine.root, "var/lib/bedplate/status/audit.json", json.dumps(audit))
    put(machine.root, "var/lib/bedplate/node.json", json.dumps({"bundle": "9f2c"}))
    put(machine.root, "usr/share/bedplate/image.json", "{}")
    os.utime(machine.root / "usr/share/bedplate/image.json", (1794000000, 1794000000))

    assert values(collect_ages(machine)) == {
        ("bedplate_audit_violations",): 2,
        ("bedplate_audit_time_seconds",): 1795000000,
        ("bedplate_image_time_seconds",): 1794000000,
        ("bedplate_bundle_info", "9f2c"): 1,
    }


# --- packets ----------------------------------------------------------------------------------------------------------


_SERVER = """
import select, socket, sys
servers = [socket.create_server(("", int(port))) for port in sys.argv[1:]]
print("ready", flush=True)
while True:
    for server in select.select(servers, [], [])[0]:
        with server.accept()[0] as client:
            client.recv(1000)
            client.sendall(b"HTTP/1.0 200 OK\\r\\nContent-Length: 0\\r\\n\\r\\n")
"""


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """Return a laboratory of network namespaces."""
    need_root()
    for name in ("ip", "nft", "curl"):
        need_program(name)
    with Lab("metrics") as laboratory:
        yield laboratory


@pytest.mark.parametrize("name", ["workbench-gpu-1.us-west-2", "titan-01.cellar"])
def test_the_kernel_admits_the_hub_to_metrics_and_no_neighbour(name: str, lab: Lab) -> None:
    """A machine that admits all of its neighbours, and on a worker all pods, has two ports for the hub alone."""
    plan = plan_of(EXAMPLES / "lab.yaml")
    node = find_node(plan, name, load_catalog())
    blocks = [rule.block for rule in node.firewall_rules if not rule.port]
    # The second of a range of addresses, or the only one.
    neighbours = [block[min(1, block.num_addresses - 1)] for block in blocks if block[0] != node.address]
    assert plan.hub
    assert neighbours
    short = name.partition(".")[0][:8]
    here, there = lab.host(short), lab.host(f"{short}-n")
    address = str(node.address or "10.64.33.7")
    lab.wire((here, "eth0", f"{address}/32"), (there, "eth0", ""))
    for host in (here, there):
        host.run("ip", "route", "add", "default", "dev", "eth0")
        host.run("sysctl", "-qw", "net.ipv4.conf.eth0.proxy_arp=1")
    for source in (plan.hub.address, *neighbours):
        there.run("ip", "address", "replace", f"{source}/32", "dev", "lo")
    here.load_rules(ruleset(node.firewall_rules, node.roles, node.pod_rules))
    ports = (*METRICS_PORTS, 8000)
    server = here.start(sys.executable, "-c", _SERVER, *map(str, ports), log="server")
    until(lambda: "ready" in server.output, 10, "a server")

    def reads(source: object, port: int) -> bool:
        words = ("--silent", "--noproxy", "*", "--max-time", "0.5", "--interface", str(source))
        return there.tries("curl", *words, f"http://{address}:{port}/")

    assert {port: reads(plan.hub.address, port) for port in METRICS_PORTS} == dict.fromkeys(METRICS_PORTS, True)
    for source in (neighbours[0], neighbours[-1]):
        assert {port: reads(source, port) for port in ports} == {**dict.fromkeys(METRICS_PORTS, False), 8000: True}
