"""Machines as series of raw metrics, in the notation of promtool: healthy ones, and what a fault changes on them."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

PHASE = 14
Labels = Mapping[str, str]
Value = float | str | None
"""A constant, `START+STEP` of a value that grows each minute, `+STEP` of one that goes on so, or None."""
Change = str | Sequence[Value]


@dataclass(frozen=True)
class Series:
    """A series with the labels of its target."""

    metric: str
    labels: Labels
    values: str

    def entry(self) -> Mapping[str, str]:
        """Return it for promtool."""
        labels = ",".join(f'{name}="{value}"' for name, value in sorted(self.labels.items()) if value)
        return {"series": f"{self.metric}{{{labels}}}", "values": self.values}


def values(value: Value, count: int, first: float = 0, former: float = 0) -> str:
    """Return `count` samples; `first` are the steps before them, `former` is the value from which `+STEP` goes on."""
    if value is None:
        return " ".join(["stale", *["_"] * (count - 1)])
    if isinstance(value, str):
        start, step = value.split("+")
        base = former + float(step) if not start else float(start) + float(step) * first
        return f"{_number(base)}+{_number(float(step))}x{count - 1}".replace("+-", "-")
    return f"{_number(value)}+0x{count - 1}"


def family(metric: str) -> str:
    """Return what series of one kind begin with: free and all bytes of a file system belong together."""
    return "_".join(metric.partition("{")[0].split("_")[:2])


def _number(value: float) -> str:
    """Return a number without an exponent, whose sign promtool reads as that of a step."""
    return f"{value:.6f}".rstrip("0").rstrip(".")


@dataclass(frozen=True)
class Machine:
    """A machine: its raw metrics in `length` samples, `minutes` apart. `person` has its GPUs, by a run."""

    name: str
    place: str
    role: str = "worker"
    group: str = ""
    gpus: int = 0
    person: str = ""
    run: str = ""
    length: int = 72
    minutes: int = 1
    families: frozenset[str] | None = None
    """Which series of its system it has, besides those of its role and its GPUs; all if it is None."""

    @property
    def instance(self) -> str:
        """Return its name in the fleet."""
        return f"{self.name}.{self.place}"

    def series(self) -> Iterator[Series]:
        """Yield all series of the healthy machine."""
        rows = [*_CORE, *(row for row in _SYSTEM if self.families is None or family(row[0]) in self.families)]
        rows += [*_GATEWAY] if self.role == "gateway" else []
        rows += [*_CONTROL] if self.role == "control" else []
        rows += [*_HUB] if self.role == "hub" else []
        if self.gpus:
            rows += [("bedplate_expected_gpus", {}, self.gpus), *_EFA, ("up", {"job": "gpu"}, 1)]
            rows += [(m, {**labels, "gpu": str(g)}, v) for g in range(self.gpus) for m, labels, v in _GPU]
            owner = {"person": self.person, "run": self.run, "source": "lease"}
            each = ({**owner, "gpu": str(gpu)} for gpu in range(self.gpus if self.person else 0))
            rows += [("bedplate_gpu_owner", labels, 1) for labels in each]
        yield from (self.one(metric, labels, value) for metric, labels, value in rows)

    def one(self, metric: str, labels: Labels, value: Value) -> Series:
        """Return a series of the machine; one of the hub about it has its name besides."""
        about = {"place": self.place, "group": self.group, "role": self.role}
        by_hub = metric.startswith(("bedplate_expected", "bedplate_machine"))
        target = {"instance": "hub.home", "machine": self.instance} if by_hub else {"instance": self.instance}
        if metric.startswith("DCGM"):
            target |= {
                "Hostname": self.name,
                "UUID": f"GPU-{self.instance}-{labels['gpu']}",
                "modelName": "NVIDIA H100",
            }
        if isinstance(value, str):
            start, step = value.split("+")
            value = f"{start}+{_number(float(step) * self.minutes)}"
        job = "gpu" if metric.startswith("DCGM") else "node"
        return Series(metric, {**about, **target, "job": job, **labels}, values(value, self.length))


def changed(machine: Machine, changes: Mapping[str, Change], onset: int) -> Iterator[Series]:
    """Yield the series of a machine with changes: `METRIC{LABEL=VALUE}` to the values before and from `onset` on.

    A third value begins `PHASE` samples later; a text has all samples. A selector without series of the healthy
    machine makes one. `*` ends all series at the onset but `up` and what the hub says about the machine.
    """
    series = list(machine.series())
    for selector, parts in changes.items():
        metric, labels = _parse(selector)
        if metric == "*":
            series = [row if row.metric == "up" or "machine" in row.labels else _ended(row, onset) for row in series]
            continue
        hits = [n for n, row in enumerate(series) if row.metric == metric and labels.items() <= row.labels.items()]
        if not hits:
            series.append(machine.one(metric, labels, None))
            hits = [len(series) - 1]
        text = parts if isinstance(parts, str) else _phases(parts, onset, machine.length)
        for hit in hits:
            series[hit] = replace(series[hit], values=text)
    yield from series


def _phases(parts: Sequence[Value], onset: int, length: int) -> str:
    """Return the samples of the phases of a change."""
    starts = [0, onset, onset + PHASE][: len(parts)]
    texts, former = list[str](), 0.0
    for value, start, end in zip(parts, starts, [*starts[1:], length], strict=True):
        texts.append(values(value, end - start, start, former))
        if match := re.fullmatch(r"(-?[\d.]+)([+-][\d.]+)x\d+", texts[-1]):
            former = float(match[1]) + float(match[2]) * (end - start - 1)
    return " ".join(texts)


def _ended(row: Series, onset: int) -> Series:
    return replace(row, values=re.sub(r"x\d+$", f"x{onset - 1} stale", row.values))


def _parse(selector: str) -> tuple[str, dict[str, str]]:
    metric, _, rest = selector.partition("{")
    return metric, dict(re.findall(r"([a-z_A-Z]+)=([^,}]*)", rest))


_Row = tuple[str, dict[str, str], Value]
_GIB = 2.0**30
_ROOT, _SCRATCH = ({"mountpoint": mount, "fstype": "ext4", "device": "/dev/a"} for mount in ("/", "/scratch"))
_CORE: tuple[_Row, ...] = (
    ("up", {"job": "node"}, 1),
    ("scrape_samples_scraped", {"job": "node"}, 900),
    ("bedplate_expected", {}, 1),
    ("bedplate_machine_usd_per_hour", {"market": "on-demand"}, 8),
)
_SYSTEM: tuple[_Row, ...] = (
    ("node_load5", {}, 2),
    ("node_cpu_seconds_total", {"mode": "idle", "cpu": "0"}, "0+30"),
    ("node_cpu_seconds_total", {"mode": "idle", "cpu": "1"}, "0+45"),
    ("node_memory_MemAvailable_bytes", {}, 30 * _GIB),
    ("node_memory_MemTotal_bytes", {}, 64 * _GIB),
    *(("node_filesystem_avail_bytes", mount, 40e9) for mount in (_ROOT, _SCRATCH)),
    *(("node_filesystem_size_bytes", mount, 100e9) for mount in (_ROOT, _SCRATCH)),
    *(("node_filesystem_files_free", mount, 4e6) for mount in (_ROOT, _SCRATCH)),
    *(("node_filesystem_files", mount, 6e6) for mount in (_ROOT, _SCRATCH)),
    # A boot partition is full by design, and memory is no disk.
    ("node_filesystem_avail_bytes", {"mountpoint": "/boot/efi", "fstype": "vfat", "device": "/dev/b"}, 1),
    ("node_filesystem_size_bytes", {"mountpoint": "/boot/efi", "fstype": "vfat", "device": "/dev/b"}, 1e8),
    ("node_filesystem_avail_bytes", {"mountpoint": "/run/lock", "fstype": "tmpfs", "device": "tmpfs"}, 0),
    ("node_filesystem_size_bytes", {"mountpoint": "/run/lock", "fstype": "tmpfs", "device": "tmpfs"}, 5e6),
    ("node_time_seconds", {}, "0+60"),
    ("node_network_receive_bytes_total", {"device": "ens5"}, "0+6e7"),
    ("node_network_transmit_bytes_total", {"device": "ens5"}, "0+6e7"),
    ("bedplate_mount_answers", {"mount": "/home"}, 1),
    ("bedplate_mount_seconds", {"mount": "/home"}, 0.004),
    ("bedplate_audit_violations", {}, 0),
    ("bedplate_audit_time_seconds", {}, -3600),
    ("bedplate_image_time_seconds", {}, -30 * 86400),
    ("bedplate_collect_time_seconds", {}, "0+60"),
    ("bedplate_bundle_info", {"version": "b-1"}, 1),
    *(("bedplate_collector_ok", {"collector": name}, 1) for name in ("mounts", "gpus", "kernel-log")),
    *(("bedplate_gate_verdict", {"verdict": name}, int(name == "passed"))
      for name in ("passed", "hardware", "software", "unknown")),
)  # fmt: skip
_GPU: tuple[_Row, ...] = (
    ("bedplate_gpu_seen", {}, 1),
    ("DCGM_FI_DEV_GPU_UTIL", {}, 97),
    ("DCGM_FI_DEV_MEM_COPY_UTIL", {}, 40),
    ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", {}, 0.96),
    ("DCGM_FI_PROF_SM_ACTIVE", {}, 0.8),
    ("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", {}, 0.5),
    ("DCGM_FI_PROF_DRAM_ACTIVE", {}, 0.4),
    ("DCGM_FI_DEV_FB_USED", {}, 60000),
    ("DCGM_FI_DEV_FB_FREE", {}, 20000),
    ("DCGM_FI_DEV_FB_RESERVED", {}, 1000),
    ("DCGM_FI_DEV_POWER_USAGE", {}, 600),
    ("DCGM_FI_DEV_POWER_MGMT_LIMIT", {}, 700),
    ("DCGM_FI_DEV_SM_CLOCK", {}, 1900),
    ("DCGM_FI_DEV_GPU_TEMP", {}, 60),
    ("DCGM_FI_DEV_MEMORY_TEMP", {}, 70),
    ("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", {}, 0),
    ("DCGM_FI_DEV_ROW_REMAP_FAILURE", {}, 0),
    ("DCGM_FI_DEV_ROW_REMAP_PENDING", {}, 0),
    ("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", {}, 4),
    ("DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", {}, 3),
    ("DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL", {}, 0),
    ("DCGM_FI_PROF_NVLINK_TX_BYTES", {}, 2e9),
    ("DCGM_FI_PROF_NVLINK_RX_BYTES", {}, 2e9),
    *(
        ("DCGM_EXP_CLOCK_EVENTS_COUNT", {"clock_event": cause}, 0)
        for cause in ("hw_thermal", "hw_power_brake", "power_cap")
    ),
)
_EFA: tuple[_Row, ...] = tuple(
    (f"node_amazonefa_{name}", {"device": "rdmap0", "port": "1"}, f"0+{rate}")
    for name, rate in (("tx_pkts", 6e6), ("retrans_pkts", 600), ("tx_bytes", 6e9), ("rx_bytes", 6e9),
                       ("rdma_read_bytes", 6e9), ("rdma_write_bytes", 6e9))
)  # fmt: skip
_GATEWAY: tuple[_Row, ...] = (
    ("bedplate_tunnel_up", {"tunnel": "cellar-1"}, 1),
    ("bedplate_tunnel_bgp_up", {"tunnel": "cellar-1"}, 1),
    ("bedplate_tunnel_idle_seconds", {"tunnel": "cellar-1"}, 5),
    ("bedplate_tunnel_unsent_seconds", {"tunnel": "cellar-1"}, 5),
    ("bedplate_tunnel_received_bytes", {"tunnel": "cellar-1"}, "0+6e6"),
    ("bedplate_tunnel_sent_bytes", {"tunnel": "cellar-1"}, "0+6e6"),
    ("bedplate_laptops_serving", {}, 1),
    ("bedplate_laptops_sessions", {"transport": "udp"}, 3),
    ("bedplate_laptops_owed", {}, 0),
    ("bedplate_vpn_written_time_seconds", {}, "0+60"),
    ("bedplate_laptops_certificate_end_time_seconds", {}, 20 * 86400),
    ("bedplate_laptops_crl_end_time_seconds", {}, 60 * 86400),
    ("bedplate_tunnels_certificate_end_time_seconds", {}, 90 * 86400),
    ("bedplate_tunnels_crl_end_time_seconds", {}, 60 * 86400),
)
_POOL = {"group": "train", "pool": "train-us-west-2-spot"}
_CONTROL: tuple[_Row, ...] = (
    ("up", {"job": "cluster"}, 1),
    ("up", {"job": "kubelet"}, 1),
    ("bedplate_capacity_leader", {}, 1),
    ("bedplate_capacity_round_timestamp_seconds", {}, "0+60"),
    *((f"bedplate_capacity_{name}", {}, 0) for name in (
        "faults", "unplaced_pods", "pending_pods", "silent_pools", "not_ready_nodes", "stuck_pods")),
    *((f"bedplate_capacity_{name}", _POOL, 4) for name in ("desired", "joined")),
    ("bedplate_capacity_maximum", _POOL, 8),
    ("bedplate_capacity_usd_per_hour", _POOL, 32),
)  # fmt: skip
_HUB: tuple[_Row, ...] = (
    ("up", {"job": "prometheus"}, 1),
    ("up", {"job": "alertmanager"}, 1),
    ("bedplate_fleet_time_seconds", {}, "0+60"),
    ("bedplate_fleet_fault", {"place": "us-west-2"}, 0),
    ("prometheus_rule_evaluation_failures_total", {"job": "prometheus", "rule_group": "layer"}, 3),
    ("prometheus_notifications_errors_total", {"job": "prometheus"}, 2),
    ("prometheus_remote_storage_samples_failed_total", {"job": "prometheus"}, 1),
    ("prometheus_tsdb_head_series", {"job": "prometheus"}, 90000),
    ("alertmanager_notifications_failed_total", {"job": "alertmanager", "integration": "webhook"}, 2),
)
