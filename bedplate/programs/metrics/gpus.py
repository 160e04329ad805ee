"""Collectors of GPUs: which nvidia-smi sees, who owns them, and their errors in the kernel log."""

import json
import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any

from ..gate.kernel_log import ERRORS, Entry, Key, action_of, add_errors, complete, read_rules
from ..gate.machine import Machine
from ..gpus import facts_of, gpu_files, holder_of, is_locked
from ..program import ProgramError
from .system import Sample

_PODS = "/var/log/pods"
# Kubelet's record of devices. It may have pods that have ended. Source: kubernetes, pkg/kubelet/cm/devicemanager.
_DEVICES = "/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint"
_SLICES = ("", "-burstable", "-besteffort")
_POD_OF_CGROUP = re.compile(r"kubepods[^/]*-pod([0-9a-f_-]{32,36})\.slice")
# The name of a pod of a run: JobSet, replicated job, two indexes, and five letters of the Job's controller.
_RUN_OF_POD = re.compile(r"(.+)-n-\d+-\d+-\w{5}")


class Gpus:
    """The GPUs of the machine by UUID and by address on the PCI bus, as nvidia-smi has seen them last."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.by_uuid: dict[str, str] = {}
        self.by_address: dict[str, str] = {}

    def collect(self) -> Iterator[Sample]:
        """Yield the number of GPUs that answer: of a machine with a lost one, the others."""
        yield "bedplate_gpu_seen", {}, float(self._read())

    def know(self) -> None:
        """Ask nvidia-smi unless it has answered before; without an answer no GPU is known."""
        if not self.by_uuid:
            with suppress(ProgramError):
                self._read()

    def _read(self) -> int:
        query = "--query-gpu=index,uuid,pci.bus_id"
        result = self._machine.run("nvidia-smi", query, "--format=csv,noheader")
        rows = [line.split(", ") for line in result.text.splitlines()]
        gpus = [row for row in rows if len(row) == len(("index", "uuid", "address")) and row[0].isdecimal()]
        if result.error and not gpus:
            raise ProgramError(result.error)
        self.by_uuid.update({uuid: index for index, uuid, _ in gpus})
        self.by_address.update({_address(bus): index for index, _, bus in gpus})
        return len(gpus)


def _address(text: str) -> str:
    """Return an address as the kernel writes it: 0000:53:00 for nvidia-smi's 00000000:53:00.0."""
    domain, _, rest = text.lower().partition(":")
    return f"{domain[-4:]}:{rest.partition('.')[0]}"


class KernelLog:
    """The errors of GPUs and NVSwitches since boot; each look reads what the log has got since the last one."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._rules = read_rules(ERRORS.read_text(encoding="utf-8").splitlines())
        self._entries: dict[Key, Entry] = {}
        self._cursor = ""

    def collect(self, gpus: Gpus) -> Iterator[Sample]:
        """Yield how often each error is in the log, and when it was the last time."""
        self._read()
        gpus.know()
        totals, times = Counter[tuple[str, ...]](), dict[tuple[str, ...], float]()
        for key, entry in complete(self._entries).items():
            kind, device, number, _ = key
            if kind not in {"xid", "sxid"}:
                continue
            where = (gpus.by_address.get(_address(device), device),) if kind == "xid" else ()
            name = (kind, *where, str(number), action_of(key, entry, self._rules))
            totals[name] += entry.count
            times[name] = max(times.get(name, 0.0), entry.last)
        for name, total in sorted(totals.items()):
            keys = ("gpu", "xid", "action") if name[0] == "xid" else ("sxid", "action")
            labels = dict(zip(keys, name[1:], strict=True))
            yield f"bedplate_gpu_{name[0]}_total", labels, float(total)
            yield f"bedplate_gpu_{name[0]}_time_seconds", labels, times[name]

    def _read(self) -> None:
        options = ("--dmesg", "--boot", "--output=short-unix", "--no-hostname", "--no-pager", "--show-cursor")
        after = (f"--after-cursor={self._cursor}",) if self._cursor else ()
        lines = self._machine.output("journalctl", *options, *after).splitlines()
        add_errors(self._entries, lines, self._rules)
        cursors = [line.partition(": ")[2] for line in lines if line.startswith("-- cursor: ")]
        self._cursor = cursors[-1] if cursors else self._cursor


# Seconds: less than between two rounds, more than between the threads of one.
_ROUND = 10.0
Owner = tuple[str, str, str, str]
"""GPU, person, run, and how they have it."""


class Owners:
    """The owners of GPUs. Both collectors need who has leases and pods: that is read once a round."""

    def __init__(self, machine: Machine, gpus: Gpus) -> None:
        self._machine, self._gpus = machine, gpus
        self._lock, self._time = Lock(), -_ROUND
        self._allocations: Mapping[Owner, None] = {}

    def collect_holders(self) -> Iterator[Sample]:
        """Yield who has a lease of a GPU, and whose pod has it."""
        yield from map(_sample, self._read())

    def collect_users(self) -> Iterator[Sample]:
        """Yield who uses a GPU that they have in no other way."""
        owners = self._read()
        holders = {(gpu, person) for gpu, person, _, source in owners if source == "lease"}
        pods, users = _pods(self._machine), dict[Owner, None]()
        for gpu, process in _uses(self._machine, self._gpus):
            uid = _POD_OF_CGROUP.search(self._machine.read(f"/proc/{process}/cgroup"))
            if uid and (pod := pods.get(uid[1].replace("_", "-"))):
                users[gpu, *pod, "pod"] = None
                continue
            person, run = _owner(facts_of(process))
            if (gpu, person) not in holders:
                users[gpu, person, run, "process"] = None
        yield from map(_sample, users.keys() - owners.keys())

    def _read(self) -> Mapping[Owner, None]:
        with self._lock:
            if time.monotonic() - self._time >= _ROUND:
                self._allocations = _allocations(self._machine, self._gpus)
                self._time = time.monotonic()
            return self._allocations


def _sample(owner: Owner) -> Sample:
    return "bedplate_gpu_owner", dict(zip(("gpu", "person", "run", "source"), owner, strict=True)), 1.0


def _allocations(machine: Machine, gpus: Gpus) -> Mapping[Owner, None]:
    gpus.know()
    owners, pods = dict[Owner, None](), _pods(machine)
    for index, path in gpu_files(machine.root / "run/bedplate/gpus").items():
        if is_locked(path):
            owners[str(index), *_owner(holder_of(path)), "lease"] = None
    for uuid, pod in _devices_of_pods(machine):
        if pod in pods and uuid in gpus.by_uuid:
            owners[gpus.by_uuid[uuid], *pods[pod], "pod"] = None
    return owners


def _owner(facts: Mapping[str, Any]) -> tuple[str, str]:
    """Return a person and the run; other units are none."""
    person, run = facts["person"], facts["run"]
    return person, run if run.startswith(f"{person}-") else ""


def _uses(machine: Machine, gpus: Gpus) -> Iterator[tuple[str, int]]:
    """Yield a GPU and a process that computes on it, for each. Raises ProgramError."""
    text = machine.output("nvidia-smi", "--query-compute-apps=gpu_uuid,pid", "--format=csv,noheader")
    for line in text.splitlines():
        uuid, _, process = line.partition(", ")
        if process.isdecimal() and uuid in gpus.by_uuid:
            yield gpus.by_uuid[uuid], int(process)


def _pods(machine: Machine) -> Mapping[str, tuple[str, str]]:
    """Return the namespace and the run of each pod of the machine, by its uid; that of a run's JobSet is its name."""
    parts = (name.split("_") for name in machine.names(_PODS))
    pods = (part for part in parts if len(part) == len(("namespace", "name", "uid")))
    return {uid: (namespace, run[1] if (run := _RUN_OF_POD.fullmatch(name)) else "") for namespace, name, uid in pods}


def _devices_of_pods(machine: Machine) -> Iterator[tuple[str, str]]:
    """Yield the UUID of a GPU and the uid of the pod that kubelet has given it to, if it has not ended."""
    text = machine.read(_DEVICES)
    for entry in json.loads(text)["Data"]["PodDeviceEntries"] or () if text else ():
        if entry["ResourceName"].startswith("nvidia.com/") and _runs(machine.root, entry["PodUID"]):
            for devices in entry["DeviceIDs"].values():
                # A GPU that is shared has a number behind.
                yield from ((device.partition("::")[0], entry["PodUID"]) for device in devices)


def _runs(root: Path, pod: str) -> bool:
    """Return whether a pod has a control group."""
    cgroups, name = root / "sys/fs/cgroup/kubepods.slice", f"pod{pod.replace('-', '_')}.slice"
    paths = (cgroups / f"kubepods{kind}.slice" if kind else cgroups for kind in _SLICES)
    return any((path / f"kubepods{kind}-{name}").exists() for path, kind in zip(paths, _SLICES, strict=True))
