"""The catalogue of faults: what each changes on a healthy machine, the alert that names it, and a harmless twin.

Samples are a minute apart, those of SLOW half an hour, those of DAYS six hours. A fault begins at sample `ONSET`;
`after` are the samples until its alert fires. The twin changes the same machine in a way that needs nobody.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.testlab.raw_metrics import PHASE, Change

ONSET, LENGTH = 14, 36
SLOW_ONSET, SLOW_LENGTH = 14, 38
DAYS_ONSET, DAYS_LENGTH = 2, 12
Changes = Mapping[str, Change]


@dataclass(frozen=True)
class Fault:
    """A fault of the machine that `machine` describes; `place` is None for an alert of no place, "" for its own."""

    name: str
    alert: str
    after: int
    changes: Changes
    twin: Changes
    machine: Mapping[str, Any] = field(default_factory=dict)
    place: str | None = ""
    everywhere: bool = False
    until: int | None = None
    """The samples from the onset on until the alert is over, if it ends."""


def _for(minutes: int, normal: float, bad: float, onset: int = ONSET, length: int = LENGTH) -> str:
    """Return samples that are bad for some minutes only."""
    rest = length - onset - minutes
    return f"{normal}+0x{onset - 1} {bad}+0x{minutes - 1} {normal}+0x{rest - 1}"


_CONTROL, _WORKER, _GATEWAY, _HUB = ({"role": role} for role in ("control", "worker", "gateway", "hub"))
_GPUS, _ONE = ({"role": "worker", "gpus": count} for count in (2, 1))
_XID, _SXID = "bedplate_gpu_xid_total{gpu=0,xid=%d,action=%s}", "bedplate_gpu_sxid_total{sxid=%d,action=%s}"
_DAY = 86400
_ROOT, _SCRATCH = (f"node_filesystem_avail_bytes{{mountpoint={mount}}}" for mount in ("/", "/scratch"))
_GONE: Changes = {"*": (), "up": (1, None), "bedplate_expected": (1, None), "bedplate_gpu_seen": (1, None)}
_POOL = "{pool=train-us-west-2-spot,group=train}"
_WORK = {"DCGM_FI_DEV_GPU_UTIL": 97, "DCGM_FI_PROF_SM_ACTIVE": 0.8, "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": 0.5,
         "DCGM_FI_PROF_DRAM_ACTIVE": 0.4, "DCGM_FI_PROF_GR_ENGINE_ACTIVE": 0.9}  # fmt: skip
_IDLE: Changes = {name: (normal, 0) for name, normal in _WORK.items()}
_SPIN: Changes = {"DCGM_FI_DEV_GPU_UTIL": (97, 100), "DCGM_FI_PROF_SM_ACTIVE": (0.8, 0.15),
                  "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": (0.5, 0), "DCGM_FI_PROF_DRAM_ACTIVE": (0.4, 0.002)}  # fmt: skip
_OLD_CARD: Changes = {
    f"DCGM_FI_PROF_{name}_ACTIVE": (None, None) for name in ("SM", "PIPE_TENSOR", "DRAM", "GR_ENGINE")
}
_PAUSE = _for(3, 1, 0)

MACHINES = (
    Fault("machine-down", "MachineDown", 1, {"up{job=node}": (1, 0)}, {"up{job=node}": _for(1, 1, 0)}, _CONTROL),
    Fault("file-server-cut-off", "MachineDown", 1, {"*": (), "up": (1, 0)}, {"up": _for(1, 1, 0)}, {"role": "files"}),
    Fault("workbench-down", "NodeDown", 3, {"up{job=node}": (1, 0)}, _GONE, {"role": "workbench"}),
    Fault("machine-missing", "MachineMissing", 10, {"*": (), "up{job=node}": (1, None)}, _GONE, _WORKER),
    Fault("group-short", "GroupShort", 20, {"bedplate_expected_machines": (2, 3)},
          {"bedplate_expected_machines": (3, 2)}, {"group": "sim"}),
    Fault("tunnel-away-for-an-hour", "PlaceAway", 1, {"*": (), "up": (1, 0)}, {"up": _for(1, 1, 0)}, _ONE,
          everywhere=True),
    Fault("exporter-slow", "ExporterSilent", 5, {"up{job=gpu}": (1, 0)}, {"up{job=gpu}": _PAUSE}, _ONE),
    Fault("exporter-nonsense", "ExporterSilent", 5,
          {"up{job=gpu}": (1, 0), "scrape_samples_scraped{job=gpu}": (400, 12)},
          {"DCGM_FI_DEV_POWER_USAGE{gpu=0}": (600, 9.2e18), "DCGM_FI_DEV_GPU_UTIL{gpu=0}": (97, 2147483600.0)}, _ONE),
    Fault("kubelet-silent", "ExporterSilent", 5, {"up{job=kubelet}": (1, 0)}, {"up{job=kubelet}": _PAUSE}, _CONTROL),
    Fault("label-explosion", "TooManySeries", 2,
          {"up{job=gpu}": (1, 0), "scrape_samples_scraped{job=gpu}": (400, 90000)},
          {"scrape_samples_scraped{job=gpu}": (400, 19000)}, _ONE),
    Fault("huge-node-exporter", "TooManySeries", 2,
          {"*": (), "up{job=node}": (1, 0), "scrape_samples_scraped{job=node}": (900, 90000)},
          {"scrape_samples_scraped{job=node}": (900, 19000)}, _CONTROL),
    Fault("clock-off-by-an-hour", "ClockOff", 2, {"node_time_seconds": ("0+60", "3600+60")},
          {"node_time_seconds": ("0+60", "2+60")}, _WORKER),
    Fault("disk-full", "DiskFull", 2, {_ROOT: (40e9, 3e9)}, {_ROOT: (40e9, 6e9)}, _CONTROL),
    Fault("hub-disk-full", "HubDiskFull", 2, {_ROOT: (40e9, 9e9)}, {_ROOT: (40e9, 11e9)}, _HUB),
    Fault("scratch-full", "DiskNearlyFull", 10, {_SCRATCH: (40e9, 4e9)}, {_SCRATCH: (40e9, 6e9)}, _WORKER),
    Fault("no-inodes", "InodesFull", 10, {"node_filesystem_files_free{mountpoint=/}": (4e6, 1e5)},
          {"node_filesystem_files_free{mountpoint=/}": (4e6, 5e5)}, _WORKER),
    Fault("memory-short", "MemoryShort", 10, {"node_memory_MemAvailable_bytes": (3e10, 2e9)},
          {"node_memory_MemAvailable_bytes": (3e10, 5e9)}, _CONTROL),
    Fault("hanging-home", "MountAway", 1,
          {"bedplate_mount_answers": (1, 0, 1)},
          {"bedplate_mount_seconds": (0.01, 0.8)}, _WORKER, until=PHASE),
    Fault("slow-home", "MountSlow", 10, {"bedplate_mount_seconds": (0.01, 1.5)},
          {"bedplate_mount_seconds": _for(5, 0.01, 1.5)}, _WORKER),
    Fault("failing-collector", "CollectorFailing", 10, {"bedplate_collector_ok{collector=gpus}": (1, 0)},
          {"bedplate_collector_ok{collector=gpus}": _for(5, 1, 0)}, _WORKER),
    Fault("silent-collectors", "CollectorsSilent", 7, {"bedplate_collect_time_seconds": ("0+60", 60 * (ONSET - 1))},
          {"bedplate_collect_time_seconds": ("0+60", "-240+60")}, _WORKER),
    Fault("violated-rule", "AuditViolated", 15, {"bedplate_audit_violations": (0, 2)},
          {"bedplate_audit_violations": _for(10, 0, 2)}, _WORKER),
    Fault("gate-failed", "GateFailed", 2,
          {"bedplate_gate_verdict{verdict=hardware}": (0, 1), "bedplate_gate_verdict{verdict=passed}": (1, 0)},
          {"bedplate_gate_verdict{verdict=passed}": (1, None)}, _WORKER),
)  # fmt: skip
ACCELERATORS = (
    Fault("gpu-missing", "GpuMissing", 1, {"bedplate_gpu_seen{gpu=1}": (1, None)},
          {"DCGM_FI_DEV_GPU_UTIL{gpu=1}": (97, None), "bedplate_gpu_seen{gpu=2}": (None, 1)}, _GPUS),
    Fault("fallen-off-the-bus", "GpuNeedsReboot", 0, {_XID % (79, "reboot"): (None, 1, None)},
          {_XID % (63, "monitor"): (None, 1)}, _ONE, until=PHASE),
    Fault("row-remap-event-failed", "GpuNeedsReplacement", 0, {_XID % (64, "replace"): (None, 1)},
          {_XID % (92, "monitor"): (None, 3)}, _ONE),
    Fault("new-xid", "GpuErrorUnknown", 0, {_XID % (999, "unknown"): (None, 1)},
          {_XID % (999, "unknown"): (5, 5)}, _ONE, until=10),
    Fault("fatal-sxid", "SwitchFailed", 0,
          {_SXID % (20034, "reboot"): (None, 1)},
          {_SXID % (20001, "monitor"): (None, 9)}, _ONE),
    Fault("double-bit-error", "GpuMemoryErrors", 1,
          {"DCGM_FI_DEV_ECC_DBE_VOL_TOTAL{gpu=0}": (0, 1)},
          {"DCGM_FI_DEV_ECC_SBE_VOL_TOTAL{gpu=0}": (0, 40), "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL{gpu=0}": (0, 9.2e18)},
          _ONE),
    Fault("no-spare-row", "GpuRemapFailed", 1, {"DCGM_FI_DEV_ROW_REMAP_FAILURE{gpu=0}": (0, 1)},
          {"DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS{gpu=0}": (0, 2)}, _ONE),
    Fault("row-remap-pending", "GpuRemapPending", 10, {"DCGM_FI_DEV_ROW_REMAP_PENDING{gpu=0}": (0, 1)},
          {"DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS{gpu=0}": (0, 1)}, _ONE),
    Fault("retired-page-pending", "GpuRemapPending", 10, {"DCGM_FI_DEV_RETIRED_PENDING{gpu=0}": (0, 1)},
          {"DCGM_FI_DEV_RETIRED_PENDING{gpu=0}": _for(5, 0, 1)}, _ONE),
    Fault("throttled-by-heat", "GpuHot", 5, {"DCGM_EXP_CLOCK_EVENTS_COUNT{gpu=0,clock_event=hw_thermal}": (0, 20)},
          {"DCGM_EXP_CLOCK_EVENTS_COUNT{gpu=0,clock_event=power_cap}": (0, 20)}, _ONE),
    Fault("throttled-by-power", "GpuPowerBrake", 5,
          {"DCGM_EXP_CLOCK_EVENTS_COUNT{gpu=0,clock_event=hw_power_brake}": (0, 20)},
          {"DCGM_EXP_CLOCK_EVENTS_COUNT{gpu=0,clock_event=hw_power_brake}": _for(3, 0, 20)}, _ONE),
    Fault("nvlink-errors", "NvlinkErrors", 5, {"DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL{gpu=0}": (3, "+600")},
          {"DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL{gpu=0}": (3, 33)}, _ONE),
    Fault("pcie-replays", "PcieReplays", 10, {"DCGM_FI_DEV_PCIE_REPLAY_COUNTER{gpu=0}": (4, "+60")},
          {"DCGM_FI_DEV_PCIE_REPLAY_COUNTER{gpu=0}": (4, 20)}, _ONE),
    Fault("slow-gpu", "Straggler", 15,
          {"DCGM_FI_DEV_SM_CLOCK{gpu=2}": (1900, 1400)},
          {"DCGM_FI_DEV_SM_CLOCK": (1900, 1400)}, {"gpus": 4}),
    Fault("efa-retransmits", "EfaRetransmits", 5, {"node_amazonefa_retrans_pkts": ("0+600", "+600000")},
          {"node_amazonefa_retrans_pkts": ("0+600", "+30000")}, _ONE),
    Fault("hanging-all-reduce", "RunStuck", 11, {**_SPIN, "DCGM_FI_DEV_POWER_USAGE": (600, 150)},
          {**_SPIN, "DCGM_FI_DEV_POWER_USAGE": (600, 500)}, _ONE, None),
    Fault("hanging-on-an-old-card", "RunStuck", 11,
          {**_OLD_CARD, "DCGM_FI_DEV_GPU_UTIL": (97, 100), "DCGM_FI_DEV_MEM_COPY_UTIL": (40, 0),
           "DCGM_FI_DEV_POWER_USAGE": (600, 150)},
          {**_OLD_CARD, "DCGM_FI_DEV_GPU_UTIL": (97, 100), "DCGM_FI_DEV_MEM_COPY_UTIL": (40, 2),
           "DCGM_FI_DEV_POWER_USAGE": (600, 150)}, _ONE, None),
    Fault("illegal-access", "ProgramFault", 0, {_XID % (31, "monitor"): (None, 1)},
          {_XID % (45, "monitor"): (None, 1)}, _ONE, until=10),
)  # fmt: skip
SERVICES = (
    Fault("tunnel-down", "TunnelDown", 1,
          {"bedplate_tunnel_up": (1, 0, 1), "bedplate_tunnel_bgp_up": (1, 0, 1),
           "bedplate_tunnel_idle_seconds": (5, "+60", 5)},
          {"bedplate_tunnel_up": _for(1, 1, 0)}, _GATEWAY, until=PHASE),
    Fault("no-routes", "BgpDown", 2,
          {"bedplate_tunnel_bgp_up": (1, 0)},
          {"bedplate_tunnel_bgp_up": _for(2, 1, 0)}, _GATEWAY),
    Fault("silent-tunnel", "TunnelSilent", 2, {"bedplate_tunnel_idle_seconds": (5, "+60")},
          {"bedplate_tunnel_idle_seconds": (5, 80)}, _GATEWAY),
    Fault("laptops-refused", "LaptopsRefused", 5, {"bedplate_laptops_serving": (1, 0)},
          {"bedplate_laptops_serving": _PAUSE}, _GATEWAY),
    Fault("sessions-to-end", "LaptopsOwed", 10, {"bedplate_laptops_owed": (0, 2)},
          {"bedplate_laptops_owed": _for(5, 0, 2)}, _GATEWAY),
    Fault("certificate-ends", "CertificateEnds", 15,
          {"bedplate_laptops_certificate_end_time_seconds": (20 * _DAY, 4 * _DAY)},
          {"bedplate_laptops_certificate_end_time_seconds": (20 * _DAY, 6 * _DAY)}, _GATEWAY),
    Fault("no-revocation-list", "CertificateEnds", 15, {"bedplate_tunnels_crl_end_time_seconds": (60 * _DAY, 0)},
          {"bedplate_tunnels_crl_end_time_seconds": (60 * _DAY, 15 * _DAY)}, _GATEWAY),
    Fault("old-vpn-metrics", "VpnMetricsOld", 4, {"bedplate_vpn_written_time_seconds": ("0+60", 60 * (ONSET - 1))},
          {"bedplate_vpn_written_time_seconds": ("0+60", "-120+60")}, _GATEWAY),
    Fault("api-server-silent", "ApiServerSilent", 5,
          {"up{job=cluster}": (1, 0)},
          {"up{job=cluster}": _PAUSE}, _CONTROL),
    Fault("failed-launches", "CapacityFault", 2, {"bedplate_capacity_faults": (0, 1)},
          {"bedplate_capacity_pending_pods": (0, 40)}, _CONTROL, None),
    Fault("pods-that-fit-nowhere", "PodsUnplaced", 15, {"bedplate_capacity_unplaced_pods": (0, 3)},
          {"bedplate_capacity_unplaced_pods": _for(10, 0, 3)}, _CONTROL, None),
    Fault("no-spot-capacity", "PoolShort", 20, {f"bedplate_capacity_desired{_POOL}": (4, 6)},
          {f"bedplate_capacity_desired{_POOL}": _for(15, 4, 6)}, _CONTROL, None),
    Fault("ec2-away-for-capacity", "RegionSilent", 5, {"bedplate_capacity_silent_pools": (0, 2)},
          {"bedplate_capacity_silent_pools": _for(3, 0, 2)}, _CONTROL, None),
    Fault("nodes-not-ready", "NodesNotReady", 2, {"bedplate_capacity_not_ready_nodes": (0, 1)},
          # The file of a controller that does not lead any more.
          {"bedplate_capacity_leader": (0, 0), "bedplate_capacity_not_ready_nodes": (0, 1)}, _CONTROL, None),
    Fault("pods-that-do-not-end", "PodsStuck", 15, {"bedplate_capacity_stuck_pods": (0, 1)},
          {"bedplate_capacity_stuck_pods": _for(10, 0, 1)}, _CONTROL, None),
    Fault("ec2-away", "FleetUnknown", 5, {"bedplate_fleet_fault{place=us-west-2}": (0, 1)},
          {"bedplate_fleet_fault{place=us-west-2}": _for(3, 0, 1)}, _HUB, "us-west-2"),
    Fault("expired-role", "FleetUnknown", 5, {"bedplate_fleet_fault{place=eu-north-1}": (0, 1)},
          {"bedplate_fleet_fault{place=eu-north-1}": (0, 0)}, _HUB, "eu-north-1"),
    Fault("old-list-of-machines", "FleetOld", 12, {"bedplate_fleet_time_seconds": ("0+60", 60 * (ONSET - 1))},
          {"bedplate_fleet_time_seconds": ("0+60", "-300+60")}, _HUB),
    Fault("failing-rules", "RulesFailing", 5, {"prometheus_rule_evaluation_failures_total": (3, "+1")},
          {"prometheus_rule_evaluation_failures_total": (3, 4)}, _HUB),
    Fault("endpoint-down", "NotificationsFailing", 2, {"alertmanager_notifications_failed_total": (2, "+3")},
          # A restarted Alertmanager counts from zero.
          {"alertmanager_notifications_failed_total": (2, 0)}, _HUB),
    Fault("alertmanager-down", "ExporterSilent", 5, {"up{job=alertmanager}": (1, 0)},
          {"up{job=alertmanager}": _PAUSE}, _HUB),
    Fault("remote-store-refuses", "RemoteWriteFailing", 10,
          {"prometheus_remote_storage_samples_failed_total": (1, "+50")},
          {"prometheus_remote_storage_samples_failed_total": (1, 20)}, _HUB),
)  # fmt: skip
SLOW = (
    Fault("disk-that-fills", "DiskFullSoon", 6, {_SCRATCH: (39e9, "+-1.5e9", 18e9)}, {_SCRATCH: (39e9, "+-1e8")},
          _WORKER, until=22),
    Fault("old-audit", "AuditOld", 2, {"bedplate_audit_time_seconds": (-3600, -4 * _DAY)},
          {"bedplate_audit_time_seconds": (-3600, -0.5 * _DAY)}, _WORKER),
    Fault("old-image", "ImageOld", 2, {"bedplate_image_time_seconds": (-30 * _DAY, -100 * _DAY)},
          {"bedplate_image_time_seconds": (-30 * _DAY, -80 * _DAY)}, _WORKER),
    Fault("held-and-idle", "GpusHeldIdle", 2, _IDLE,
          # Half an hour of loading data, with all of the memory.
          {name: _for(1, normal, 0, SLOW_ONSET, SLOW_LENGTH) for name, normal in _WORK.items()}, _GPUS, None),
    Fault("free-and-paid", "GpusFree", 4,
          {**_IDLE, "DCGM_FI_DEV_FB_USED": (60000, 400), "bedplate_gpu_owner": (1, None)},
          {**_IDLE, "DCGM_FI_DEV_FB_USED": (60000, 400), "bedplate_gpu_owner": (1, None),
           "bedplate_machine_usd_per_hour": (8, 4)},
          {**_GPUS, "group": "train"}),
)  # fmt: skip
DAYS = (
    Fault("old-bundle", "BundleBehind", 8,
          {"bedplate_bundle_info{version=b-1}": (1, None), "bedplate_bundle_info{version=b-0}": (None, 1)},
          # A ring that gets a bundle a day and a half before the others.
          {"bedplate_bundle_info{version=b-1}": "1+0x1 stale _ _ _ _ _ 1+0x3",
           "bedplate_bundle_info{version=b-2}": "_ _ 1+0x5 stale _ _ _"}, _WORKER),
)  # fmt: skip
# What would hide other faults, together on a fleet of its own.
_BLIND: Changes = {"node_time_seconds": ("0+60", "3600+60"), "up{job=cluster}": (1, 0),
                   "bedplate_capacity_round_timestamp_seconds": ("0+60", 60 * (ONSET - 1))}  # fmt: skip
ALONE = (
    Fault("hub-clock-off", "HubClockOff", 2, _BLIND, {"node_time_seconds": ("0+60", "2+60")}, _CONTROL, None,
          everywhere=True),
    Fault("no-api-server", "ApiServerDown", 1, _BLIND, {"up{job=cluster}": _for(1, 1, 0)}, _CONTROL, None,
          everywhere=True),
    Fault("no-round", "CapacityStalled", 12, _BLIND,
          {"bedplate_capacity_round_timestamp_seconds": ("0+60", "-300+60")}, _CONTROL, None, everywhere=True),
)  # fmt: skip
FAULTS = (*MACHINES, *ACCELERATORS, *SERVICES, *SLOW, *DAYS, *ALONE)
