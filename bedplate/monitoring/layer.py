"""The normalised layer: recording rules that make series `bedplate:*` of raw metrics, with fixed labels and units.

Dashboards, alerts, `bp top` and reports read nothing else. It absorbs labels that DCGM's exporter has renamed, GPUs
without profiling fields, values that say "unknown", owners from three sources, and metrics of idle controllers.
`device_*` are series of GPUs without their owner: a window over a change of the owner needs them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

INTERVAL = 15
"""Seconds from one scrape to the next, and from one evaluation to the next."""
SAMPLE_LIMIT = 20_000
"""The most samples of one answer of an exporter: a larger one counts as none. 8 GPUs with EFA have 3,000."""
IDLE = 0.02
"""A GPU that is busy for less than this share of the time is idle."""
_MIB = 1024 * 1024
# A driver without programs uses less.
_USED = 1024 * _MIB
_GPU = "instance, place, group, gpu"
_NODE = "instance, place, group, role"
_PLACE = "instance, place, group"
_NVLINK = "DCGM_FI_DEV_NVLINK_{}_ERROR_COUNT_TOTAL"


@dataclass(frozen=True, slots=True)
class Record:
    """A series of the layer: its name without `bedplate:`, its expression, and what its value says."""

    name: str
    expr: str
    about: str

    def rule(self) -> Mapping[str, str]:
        """Return the recording rule."""
        return {"record": f"bedplate:{self.name}", "expr": self.expr}


def groups() -> list[dict[str, Any]]:
    """Return the rule groups, which run beside each other: a rule reads only series of its own group."""
    parts = {"gpus": (*_devices(), *_gpus(), *_costs()), "machines": (*_nodes(), *_network(), *_cluster(), *_hub())}
    return [
        {"name": name, "interval": f"{INTERVAL}s", "rules": [record.rule() for record in records]}
        for name, records in parts.items()
    ]


def _of(labels: str, expr: str) -> str:
    """Return the highest value by labels: for a moment, a GPU is there twice, with its former and its new pod."""
    return f"max by ({labels}) ({expr})"


def _label(expr: str, name: str, value: str, source: str = "", pattern: str = "") -> str:
    return f'label_replace({expr}, "{name}", "{value}", "{source}", "{pattern}")'


def _named(expr: str) -> str:
    """Return a series of the hub about a machine, as one of that machine."""
    return _label(expr, "instance", "$1", "machine", "(.+)")


def _owned(expr: str) -> str:
    """Return a series of GPUs with the labels of their owner."""
    return f"({expr}) * on (instance, gpu) group_left (person, run) bedplate:device_owner"


def _devices() -> Iterator[Record]:
    """Yield series of GPUs without their owner. DCGM says "unknown" by values that no GPU can have."""
    work = '{__name__=~"DCGM_FI_PROF_(SM_ACTIVE|PIPE_TENSOR_ACTIVE|DRAM_ACTIVE)"} <= 1'
    data = '{__name__=~"DCGM_FI_PROF_(PIPE_TENSOR_ACTIVE|DRAM_ACTIVE)"} <= 1'
    yield Record(
        "device_utilisation",
        f"{_of(_GPU, 'DCGM_FI_DEV_GPU_UTIL <= 100')} / 100 or {_of(_GPU, 'DCGM_FI_PROF_GR_ENGINE_ACTIVE <= 1')}",
        "Share of the time with a kernel on the GPU; 1 also in a collective that hangs.",
    )
    yield Record(
        "device_busy",
        f"{_of(_GPU, work)} or bedplate:device_utilisation",
        "Share of the time in which multiprocessors, tensor cores or memory work; without counters, utilisation.",
    )
    yield Record(
        "device_active",
        "bedplate:device_busy > bedplate:device_utilisation or bedplate:device_utilisation or bedplate:device_busy",
        "The higher one of busy and utilisation: a GPU is idle if both are low.",
    )
    yield Record(
        "device_data",
        f"{_of(_GPU, data)} or {_of(_GPU, 'DCGM_FI_DEV_MEM_COPY_UTIL <= 100')} / 100",
        "Share of the time in which tensor cores or memory work.",
    )
    yield Record("device_power_watts", _of(_GPU, "DCGM_FI_DEV_POWER_USAGE < 5000"), "Power.")
    yield Record(
        "device_power_ratio",
        f"bedplate:device_power_watts / {_of(_GPU, '0 < DCGM_FI_DEV_POWER_MGMT_LIMIT < 5000')}",
        "Power by the limit of the GPU.",
    )
    yield Record("device_memory_used_bytes", f"{_of(_GPU, 'DCGM_FI_DEV_FB_USED < 1e7')} * {_MIB}", "Used memory.")
    yield Record(
        "device_spinning",
        "(bedplate:device_utilisation >= bool 0.99) * (bedplate:device_data < bool 0.01)"
        " * (bedplate:device_power_ratio < bool 0.35 or bedplate:device_utilisation ^ 0)",
        "1 if a kernel runs and does no work: tensor cores and memory are idle, and the power is low.",
    )
    yield Record("gpu_owner", _owner(), "1, by person and run: of leases before pods before processes.")
    yield Record(
        "device_owner",
        "bedplate:gpu_owner or on (instance, gpu) bedplate:device_active ^ 0",
        "As `gpu_owner`, with GPUs that have none.",
    )
    claimed = f"bedplate:device_memory_used_bytes > {_USED} or bedplate:device_active >= {IDLE}"
    yield Record(
        "device_claimed",
        f"({claimed} or {_of(_GPU, 'bedplate:gpu_owner')}) ^ 0 or bedplate:device_active * 0",
        "1 if the GPU has an owner, a program in its memory, or work.",
    )
    yield Record("device_state", _state(), "1, by state: busy, held, stuck or free.")


def _owner() -> str:
    """Return who has a GPU: one owner, of the surest source; of several there, one that stays while they do."""
    pods = 'DCGM_FI_DEV_GPU_UTIL{namespace!="", pod!=""}'
    moved = _label(_label('DCGM_FI_DEV_GPU_UTIL{exported_pod!=""}', "namespace", "$1", "exported_namespace", "(.+)"),
                   "pod", "$1", "exported_pod", "(.+)")  # fmt: skip
    mapped = _label(f"({pods} or {moved})", "person", "$1", "namespace", "(.+)")
    # NAME-n-0-RANK-SUFFIX: the pods of a run.
    mapped = _label(mapped, "run", "$1", "pod", "(.+)-n-[0-9]+-[0-9]+-[a-z0-9]+")
    sources = ('bedplate_gpu_owner{source="lease"}', 'bedplate_gpu_owner{source="pod"}', mapped,
               'bedplate_gpu_owner{source="process"}')  # fmt: skip
    ranked = [f"{_of(f'{_GPU}, person, run', source)} ^ 0 * {4 - rank}" for rank, source in enumerate(sources)]
    return f"topk by (instance, gpu) (1, {' or '.join(ranked)}) ^ 0"


def _state() -> str:
    """Return the state of each GPU; half an hour is the pause that a program may make, as for a checkpoint."""
    stuck = "min_over_time(bedplate:device_spinning[10m]) == 1 and bedplate:device_spinning offset 10m == 1"
    busy = f"bedplate:device_claimed == 1 and max_over_time(bedplate:device_active[30m]) >= {IDLE}"
    held, free = "bedplate:device_claimed == 1", "bedplate:device_claimed ^ 0"
    states = {"stuck": stuck, "busy": busy, "held": held, "free": free}
    return " or on (instance, gpu) ".join(_label(expr, "state", state) for state, expr in states.items())


def _gpus() -> Iterator[Record]:
    """Yield what people and operators read about GPUs."""
    memory = '{__name__=~"DCGM_FI_DEV_FB_(USED|FREE|RESERVED)"} < 1e7'
    total = f"sum by ({_GPU}) ({_of(f'{_GPU}, __name__', memory)}) * {_MIB}"
    temperature = _of(_GPU, "DCGM_FI_DEV_GPU_TEMP < 200")
    seen = f"sum by ({_PLACE}) (bedplate_gpu_seen) or count by ({_PLACE}) (bedplate:device_utilisation)"
    yield Record("gpu_busy", _owned("bedplate:device_busy"), "As `device_busy`, with the owner.")
    yield Record("gpu_utilisation", _owned("bedplate:device_utilisation"), "As `device_utilisation`, with the owner.")
    yield Record("gpu_memory_used_bytes", _owned("bedplate:device_memory_used_bytes"), "Used memory.")
    yield Record("gpu_memory_bytes", _owned(total), "Memory.")
    yield Record("gpu_power_watts", _owned("bedplate:device_power_watts"), "Power.")
    yield Record("gpu_temperature_celsius", _owned(temperature), "Temperature.")
    yield Record(
        "gpu_memory_temperature_celsius", _of(_GPU, "0 < DCGM_FI_DEV_MEMORY_TEMP < 200"), "Memory's temperature."
    )
    yield Record(
        "gpu_clock_hertz", _owned(f"{_of(_GPU, 'DCGM_FI_DEV_SM_CLOCK < 1e5')} * 1e6"), "Clock of multiprocessors."
    )
    yield Record("gpu_state", _owned("bedplate:device_state"), "1, by state: busy, held, stuck or free.")
    yield Record("gpu_seen", seen, "GPUs of a machine that its driver shows.")
    yield Record("gpu_expected", _of(_PLACE, _named("bedplate_expected_gpus")), "GPUs of a machine by the plan.")
    xids = (
        ("xid", "bedplate_gpu_xid_total", f"{_GPU}, xid, action"),
        ("sxid", "bedplate_gpu_sxid_total", f"{_PLACE}, sxid, action"),
    )
    for kind, metric, labels in xids:
        yield Record(
            f"gpu_{kind}", _of(labels, metric), f"{kind.capitalize()} errors since boot, by number and action."
        )
    yield Record(
        "gpu_xid_new",
        "bedplate:gpu_xid - (last_over_time(bedplate:gpu_xid[1h] offset 10m) or bedplate:gpu_xid * 0) > 0",
        "Xid errors of the last ten minutes.",
    )
    yield Record("gpu_memory_errors", _of(_GPU, "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL < 1e6"), "Double-bit errors since boot.")
    yield Record("gpu_remap_failed", _of(_GPU, "DCGM_FI_DEV_ROW_REMAP_FAILURE <= 1"), "1 if a row has no spare left.")
    pending = '{__name__=~"DCGM_FI_DEV_(ROW_REMAP|RETIRED)_PENDING"} < 1e6'
    yield Record("gpu_remap_pending", _of(_GPU, pending), "Above 0 if a reset must replace rows or pages.")
    clocks = _label("DCGM_EXP_CLOCK_EVENTS_COUNT", "cause", "$1", "clock_event", "(.+)")
    yield Record(
        "gpu_throttled",
        _of(f"{_GPU}, cause", clocks),
        "Times of the last minutes in which clocks were reduced, by cause.",
    )
    yield Record(
        "gpu_pcie_replays_per_second",
        _of(_GPU, "rate(DCGM_FI_DEV_PCIE_REPLAY_COUNTER[5m])"),
        "Packets that PCIe sent again.",
    )
    kinds = ("CRC_FLIT", "CRC_DATA", "REPLAY", "RECOVERY")
    rates = (_label(_of(_GPU, f"rate({_NVLINK.format(kind)}[5m])"), "kind", kind) for kind in kinds)
    yield Record("gpu_nvlink_errors_per_second", f"sum by ({_GPU}) ({' or '.join(rates)})", "Errors on NVLink.")
    links = (_label(_of(_GPU, f"DCGM_FI_PROF_NVLINK_{way}_BYTES"), "kind", way) for way in ("TX", "RX"))
    yield Record("gpu_nvlink_bytes_per_second", f"sum by ({_GPU}) ({' or '.join(links)})", "Traffic on NVLink.")


def _costs() -> Iterator[Record]:
    price = _of(f"{_PLACE}, market", _named("bedplate_machine_usd_per_hour"))
    own = "sum by (instance) (bedplate:node_usd_per_hour) / on (instance)"
    count = "(sum by (instance) (bedplate:gpu_expected > 0) or sum by (instance) (bedplate:gpu_seen))"
    used = "place, group, person, run, state"
    each = "bedplate:gpu_usd_per_hour * on (instance, gpu) group_left (state) bedplate:gpu_state"
    run = 'bedplate:{}{{run!=""}}'
    yield Record("node_usd_per_hour", price, "List price of a machine, by market.")
    share = f"bedplate:device_active ^ 0 * on (instance) group_left () ({own} {count})"
    yield Record("gpu_usd_per_hour", _owned(share), "Price of the machine by its GPUs.")
    yield Record("group_usd_per_hour", "sum by (place, group) (bedplate:node_usd_per_hour)", "Price of all machines.")
    yield Record("used_gpus", f"count by ({used}) (bedplate:gpu_state)", "GPUs by owner and state.")
    yield Record("used_usd_per_hour", f"sum by ({used}) ({each})", "Price of GPUs by owner and state.")
    yield Record("run_busy", f"avg by (person, run) ({run.format('gpu_busy')})", "Mean of `gpu_busy` of a run.")
    yield Record("run_gpus", f"count by (person, run) ({run.format('gpu_state')})", "GPUs of a run.")
    yield Record("run_clock_hertz", f"quantile by (person, run) (0.5, {run.format('gpu_clock_hertz')})",
                 "Median clock of the GPUs of a run.")  # fmt: skip


def _nodes() -> Iterator[Record]:
    """Yield what operators read about machines."""
    scrapes = (
        ("up", "up", "1 if the exporter has answered"),
        ("samples", "scrape_samples_scraped", "Samples of its answer"),
    )
    yield Record("node_up", _of(_NODE, 'up{job="node"}'), "1 if the machine has answered the hub.")
    yield Record("node_expected", _of(_NODE, _named("bedplate_expected")), "1 for each machine that must be there.")
    for name, metric, about in scrapes:
        yield Record(
            f"exporter_{name}", _of(f"{_NODE}, exporter", _label(metric, "exporter", "$1", "job", "(.+)")), f"{about}."
        )
    yield Record(
        "exporter_refused",
        f"(bedplate:exporter_up == 0) ^ 0 and bedplate:exporter_samples > {SAMPLE_LIMIT}",
        f"1 if the hub refuses an answer of more than {SAMPLE_LIMIT} samples.",
    )
    away = "max by (place) (bedplate:node_up) == 0 and count by (place) (bedplate:node_up) > 1"
    yield Record("place_away", f"({away}) ^ 0", "1 if none of several machines of a place has answered.")
    up = "count by (place, group) (bedplate:node_up == 1)"
    planned = "max by (place, group) (bedplate_expected_machines)"
    yield Record("group_expected", planned, "Machines of a group by the plan.")
    yield Record("group_up", f"{up} or bedplate:group_expected * 0", "Machines of a group that answer.")
    cpus = f'count by ({_NODE}) (node_cpu_seconds_total{{mode="idle"}})'
    idle = f'avg by ({_NODE}) (rate(node_cpu_seconds_total{{mode="idle"}}[5m]))'
    memory = [_of(_NODE, f"node_memory_{name}_bytes") for name in ("MemAvailable", "MemTotal")]
    yield Record("node_load", f"{_of(_NODE, 'node_load5')} / {cpus}", "Load of five minutes by processor.")
    yield Record("node_cpu_busy", f"1 - {idle}", "Share of the time in which processors work.")
    yield Record("node_memory_available_ratio", " / ".join(memory), "Memory that programs can have, by all memory.")
    disk = '{fstype!~"tmpfs|ramfs|vfat", mountpoint!~"/(boot|run|var/lib/kubelet)(/.*)?"}'
    for kind, free, size in (("disk", "avail_bytes", "size_bytes"), ("inodes", "files_free", "files")):
        ratio = _label(
            f"(node_filesystem_{free}{disk} / (node_filesystem_{size}{disk} > 0))", "mount", "$1", "mountpoint", "(.+)"
        )
        yield Record(f"node_{kind}_free_ratio", _of(f"{_NODE}, mount", ratio), f"Free share of {kind} on a mount.")
    yield Record(
        "node_clock_offset_seconds",
        _of(_NODE, "node_time_seconds - timestamp(node_time_seconds)"),
        "Its clock, minus that of the hub.",
    )
    devices = 'device!~"lo|veth.*|cni.*|flannel.*|kube.*"'
    for way in ("receive", "transmit"):
        traffic = f"sum by ({_NODE}) (rate(node_network_{way}_bytes_total{{{devices}}}[5m]))"
        yield Record(f"node_network_{way}_bytes_per_second", traffic, f"Bytes that interfaces {way}.")
    efa = f"sum by ({_NODE}) (rate(node_amazonefa_{{}}[5m]))"
    sent = f"({efa.format('tx_pkts')} > 1000)"
    yield Record(
        "node_efa_retransmit_ratio",
        f"{efa.format('retrans_pkts')} / {sent}",
        "Retransmitted packets by sent ones, under load.",
    )
    ways = ("tx_bytes", "rx_bytes", "rdma_read_bytes", "rdma_write_bytes")
    traffic = " or ".join(_label(efa.format(way), "way", way) for way in ways)
    yield Record("node_efa_bytes_per_second", f"sum by ({_NODE}) ({traffic})", "Traffic on EFA.")
    yield Record("mount_answers", _of(f"{_NODE}, mount", "bedplate_mount_answers"), "1 if a mount answers in time.")
    yield Record("mount_seconds", _of(f"{_NODE}, mount", "bedplate_mount_seconds"), "Time until a mount answers.")
    yield Record(
        "audit_violations", _of(_NODE, "bedplate_audit_violations"), "Rules that the last audit found violated."
    )
    for name in ("audit", "image", "collect"):
        yield Record(
            f"{name}_age_seconds", f"time() - {_of(_NODE, f'bedplate_{name}_time_seconds')}", f"Age of the {name}."
        )
    yield Record("bundle", _of(f"{_NODE}, version", "bedplate_bundle_info"), "1, by version of the bundle.")
    yield Record("collector_ok", _of(f"{_NODE}, collector", "bedplate_collector_ok"), "1 if a collector worked.")
    yield Record(
        "gate_failed",
        _of(f"{_NODE}, verdict", 'bedplate_gate_verdict{verdict!="passed"}'),
        "1 by the cause for which the gate failed.",
    )


def _network() -> Iterator[Record]:
    tunnel, transport = f"{_NODE}, tunnel", f"{_NODE}, transport"
    for name in ("tunnel_up", "tunnel_bgp_up"):
        yield Record(name, _of(tunnel, f"bedplate_{name}"), "1 if the session is established.")
    silent = '{__name__=~"bedplate_tunnel_(idle|unsent)_seconds"}'
    yield Record("tunnel_silent_seconds", _of(tunnel, silent), "Time without a packet in one direction.")
    for way in ("received", "sent"):
        rate = f"rate(bedplate_tunnel_{way}_bytes[5m])"
        yield Record(f"tunnel_{way}_bytes_per_second", _of(tunnel, rate), f"Bytes {way} through a tunnel.")
    yield Record("laptops_serving", _of(_NODE, "bedplate_laptops_serving"), "1 if laptops can connect.")
    yield Record("laptops_sessions", _of(transport, "bedplate_laptops_sessions"), "Connected laptops.")
    yield Record("laptops_owed", _of(_NODE, "bedplate_laptops_owed"), "Pending actions of the VPN's daemons.")
    yield Record(
        "vpn_age_seconds", f"time() - {_of(_NODE, 'bedplate_vpn_written_time_seconds')}", "Age of a gateway's metrics."
    )
    ends = ((f"{kind}-{what}", f"bedplate_{kind}_{what}_end_time_seconds")
            for kind in ("laptops", "tunnels") for what in ("certificate", "crl"))  # fmt: skip
    left = (_label(f"({metric} - time()) / 86400", "what", what) for what, metric in ends)
    yield Record(
        "certificate_days", _of(f"{_NODE}, what", " or ".join(left)), "Days until a gateway's certificate or list ends."
    )


def _cluster() -> Iterator[Record]:
    leader = "and on (instance) bedplate_capacity_leader == 1"
    yield Record(
        "capacity_age_seconds", "time() - max(bedplate_capacity_round_timestamp_seconds)", "Age of the last round."
    )
    counts = (("faults", "Launches that an operator must end."), ("unplaced_pods", "Pods that fit no pool."),
              ("pending_pods", "Pods without a machine."), ("silent_pools", "Pools in regions that do not answer."),
              ("not_ready_nodes", "Machines that are not ready."),
              ("stuck_pods", "Pods that do not end."))  # fmt: skip
    for name, about in counts:
        yield Record(f"capacity_{name}", f"max(bedplate_capacity_{name} {leader})", about)
    pools = (("desired", "Machines that a pool should have."), ("joined", "Machines of a pool in the cluster."),
             ("maximum", "Most machines of a pool."), ("usd_per_hour", "List price of its machines."))  # fmt: skip
    for name, about in pools:
        yield Record(f"capacity_{name}", _of("group, pool", f"bedplate_capacity_{name} {leader}"), about)


def _hub() -> Iterator[Record]:
    failed = " or ".join(
        _label(f"sum by ({_NODE}) (increase({metric}[5m]))", "kind", kind)
        for kind, metric in (
            ("send", "alertmanager_notifications_failed_total"),
            ("hand-over", "prometheus_notifications_errors_total"),
        )
    )
    lost = "increase(prometheus_remote_storage_samples_failed_total[5m])"
    broken = "increase(prometheus_rule_evaluation_failures_total[5m])"
    yield Record("fleet_age_seconds", f"time() - {_of('place', 'bedplate_fleet_time_seconds')}", "Age of `fleet.json`.")
    yield Record("fleet_fault", _of("place", "bedplate_fleet_fault"), "1 for a place that EC2 does not list.")
    yield Record("rule_failures", f"sum by ({_NODE}) ({broken})", "Rules that failed in five minutes.")
    yield Record("notification_failures", f"sum by ({_NODE}) ({failed})", "Notifications that failed in five minutes.")
    yield Record(
        "remote_write_failures", f"sum by ({_NODE}) ({lost})", "Samples that the remote store refused in five minutes."
    )
    yield Record("hub_series", _of(_NODE, "prometheus_tsdb_head_series"), "Series in the memory of Prometheus.")


RECORDS = (*_devices(), *_gpus(), *_costs(), *_nodes(), *_network(), *_cluster(), *_hub())
