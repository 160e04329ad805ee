"""The alerts: one table, each with its expression on the normalised layer, its wait, who hears of it, and its text.

`page`: now, also at night. `ticket`: on a working day. `person`: the owner of the GPU. docs/monitoring.md has a section
for each alert; tests/data/monitoring has a fault that each names, and a harmless twin.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from bedplate.monitoring.layer import INTERVAL


class Severity(StrEnum):
    """Who hears of an alert, and when."""

    PAGE = "page"
    TICKET = "ticket"
    PERSON = "person"


@dataclass(frozen=True, slots=True)
class Alert:
    """An alert: `wait` is how long its expression must hold; `text` names labels as `{instance}`, the value as `{}`.

    An alert with a `scope` silences the others of its place, which follow from it.
    """

    name: str
    severity: Severity
    wait: str
    expr: str
    text: str
    scope: str = ""

    def rule(self) -> Mapping[str, Any]:
        """Return the alerting rule."""
        labels = {"severity": str(self.severity)} | ({"scope": self.scope} if self.scope else {})
        annotations = {"summary": _template(self.text), "runbook": self.name.lower()}
        return {"alert": self.name, "expr": self.expr, "for": self.wait, "labels": labels, "annotations": annotations}


def groups() -> list[dict[str, Any]]:
    """Return the rule group of all alerts."""
    return [{"name": "alerts", "interval": f"{INTERVAL}s", "rules": [alert.rule() for alert in ALERTS]}]


def _template(text: str) -> str:
    """Return a text as a template of Prometheus."""
    parts = text.replace("{}", "{_}").split("{")
    fields = (part.partition("}") for part in parts[1:])
    return parts[0] + "".join(f"{{{{ {_FIELDS.get(name, f'$labels.{name}')} }}}}{rest}" for name, _, rest in fields)


_MINE = "{person='%s',run='%s',state=~'held|stuck'}"
_FIELDS = {
    "_": 'printf "%.3g" $value',
    "%": "$value | humanizePercentage",
    "age": "$value | humanizeDuration",
    "usd": f'with printf "sum(sum_over_time(bedplate:used_usd_per_hour{_MINE}[1d])) / {3600 // INTERVAL}"'
    ' $labels.person $labels.run | query }}{{ with first . }}, {{ value . | printf "%.2f" }} USD today{{ end }}{{ end',
}
"""What a text may name besides labels."""
_GPU, _IN = "GPU {gpu} of {instance}", "{instance}"
_AWAY = "unless on (place) bedplate:place_away"
_PLANNED, _COMPUTE = 'role=~"control|gateway|files|hub"', 'role!~"control|gateway|files|hub"'
_UP = "and on (instance) bedplate:node_up == 1"
_NOT_REFUSED = 'unless on (instance) bedplate:exporter_refused{exporter="node"}'
_API = 'bedplate:exporter_up{exporter="cluster"}'
P, T, U = Severity.PAGE, Severity.TICKET, Severity.PERSON
_DISK = "bedplate:node_disk_free_ratio"
_CLOCKS = "quantile(0.5, abs(bedplate:node_clock_offset_seconds)) > 5"

# fmt: off
_MACHINES = (
    Alert("PlaceAway", P, "45s", "bedplate:place_away == 1", "no machine of {place} answers the hub", "place"),
    Alert("MachineDown", P, "1m",
          f"bedplate:node_up{{{_PLANNED}}} == 0 {_NOT_REFUSED} {_AWAY}",
          "{instance} ({role}) does not answer the hub"),
    Alert("NodeDown", T, "3m",
          f"bedplate:node_up{{{_COMPUTE}}} == 0 {_NOT_REFUSED} {_AWAY}",
          "{instance} ({role}) does not answer the hub"),
    Alert("MachineMissing", T, "10m", f"bedplate:node_expected unless on (instance) bedplate:node_up {_AWAY}",
          "{instance} ({role}) is in the fleet file, and the hub does not know where it is"),
    Alert("GroupShort", T, "20m", f"bedplate:group_expected - bedplate:group_up > 0 {_AWAY}",
          "group {group} in {place} has {} machines less than its minimum"),
    Alert("ExporterSilent", T, "5m",
          'bedplate:exporter_up{exporter!~"node|cluster"} == 0 unless on (instance, exporter) bedplate:exporter_refused'
          f" {_UP}",
          "{instance}: the exporter {exporter} does not answer, or with nonsense"),
    Alert("TooManySeries", T, "2m", "bedplate:exporter_refused == 1",
          "{instance}: the exporter {exporter} has more series than the hub takes, so none is kept"),
    Alert("ClockOff", T, "2m", f"abs(bedplate:node_clock_offset_seconds) > 5 unless on () {_CLOCKS}",
          "{instance}: its clock is {} s away from that of the hub"),
    Alert("HubClockOff", P, "2m", _CLOCKS, "the clock of the hub is {} s away from those of most machines"),
    Alert("DiskFull", P, "2m", f'{_DISK}{{{_PLANNED}, role!="hub"}} < 0.05', "{instance}: {mount} has {%} free"),
    Alert("HubDiskFull", P, "2m", f'{_DISK}{{role="hub"}} < 0.1', "the hub {instance}: {mount} has {%} free"),
    Alert("DiskNearlyFull", T, "10m", f"{_DISK}{{{_COMPUTE}}} < 0.05",
          "{instance}: {mount} has {%} free"),
    Alert("DiskFullSoon", T, "30m",
          f"predict_linear({_DISK}[6h], 86400) < 0 and {_DISK} < 0.4 and {_DISK} >= 0.1 and {_DISK} offset 5h",
          "{instance}: {mount} is full within a day at the present rate"),
    Alert("InodesFull", T, "10m", "bedplate:node_inodes_free_ratio < 0.05",
          "{instance}: {mount} has {%} of its inodes free"),
    Alert("MemoryShort", T, "10m", f"bedplate:node_memory_available_ratio{{{_PLANNED}}} < 0.05",
          "{instance} has {%} of its memory free"),
    Alert("MountAway", P, "30s", f"bedplate:mount_answers == 0 {_UP}", "{instance}: {mount} does not answer"),
    Alert("MountSlow", T, "10m", "bedplate:mount_seconds > 1 and bedplate:mount_answers == 1",
          "{instance}: {mount} answers after {} s"),
    Alert("CollectorFailing", T, "10m", f"bedplate:collector_ok == 0 {_UP}",
          "{instance}: the collector {collector} fails"),
    Alert("CollectorsSilent", T, "2m", f"bedplate:collect_age_seconds > 300 {_UP}",
          "{instance}: no collector has run for {age}"),
    Alert("AuditViolated", T, "15m", "bedplate:audit_violations > 0", "{instance}: the audit found {} violated rules"),
    Alert("AuditOld", T, "1h", f"bedplate:audit_age_seconds > 3 * 86400 {_UP}",
          "{instance}: its last audit is {age} old"),
    Alert("ImageOld", T, "1h", f"bedplate:image_age_seconds > 90 * 86400 {_UP}", "{instance}: its image is {age} old"),
    Alert("BundleBehind", T, "2d", "bedplate:bundle unless on (version) topk(1, count by (version) (bedplate:bundle))",
          "{instance}: it has the bundle {version}, and most machines have another one"),
    Alert("GateFailed", T, "2m", "bedplate:gate_failed == 1", "{instance}: the gate failed, cause: {verdict}"),
)
_ACCELERATORS = (
    Alert("GpuMissing", P, "1m", f"bedplate:gpu_expected - bedplate:gpu_seen > 0 {_UP}",
          "{instance} has {} GPUs less than planned"),
    Alert("GpuNeedsReboot", P, "0s", 'bedplate:gpu_xid{action="reboot"} > 0',
          f"{_GPU}: Xid {{xid}}, the machine needs a reboot"),
    Alert("GpuNeedsReplacement", P, "0s", 'bedplate:gpu_xid{action="replace"} > 0',
          f"{_GPU}: Xid {{xid}}, the GPU must be replaced"),
    Alert("GpuErrorUnknown", T, "0s", 'bedplate:gpu_xid_new{action="unknown"} > 0',
          f"{_GPU}: Xid {{xid}}, which has no known action"),
    Alert("SwitchFailed", P, "0s", 'bedplate:gpu_sxid{action=~"reboot|replace"} > 0',
          f"{_IN}: SXid {{sxid}} of an NVSwitch, the machine needs a reboot"),
    Alert("GpuMemoryErrors", P, "1m", "bedplate:gpu_memory_errors > 0",
          f"{_GPU}: {{}} double-bit errors of memory since boot"),
    Alert("GpuRemapFailed", P, "1m", "bedplate:gpu_remap_failed > 0",
          f"{_GPU}: no spare row of memory is left, the GPU must be replaced"),
    Alert("GpuRemapPending", T, "10m", "bedplate:gpu_remap_pending > 0", f"{_GPU}: rows of memory wait for a reset"),
    Alert("GpuHot", T, "5m", 'bedplate:gpu_throttled{cause=~"hw_thermal|sw_thermal"} > 0',
          f"{_GPU}: clocks are reduced by heat ({{cause}})"),
    Alert("GpuPowerBrake", T, "5m", 'bedplate:gpu_throttled{cause="hw_power_brake"} > 0',
          f"{_GPU}: the power supply reduces its clocks"),
    Alert("NvlinkErrors", T, "5m", "bedplate:gpu_nvlink_errors_per_second > 1",
          f"{_GPU}: {{}} errors per second on NVLink"),
    Alert("PcieReplays", T, "10m", "bedplate:gpu_pcie_replays_per_second > 0.1",
          f"{_GPU}: PCIe sends {{}} packets per second again"),
    Alert("Straggler", T, "15m",
          "max without (person) (bedplate:gpu_clock_hertz / on (run) group_left () bedplate:run_clock_hertz) < 0.85"
          ' and on (instance, gpu) bedplate:gpu_state{state="busy"} and on (run) bedplate:run_gpus > 3',
          f"{_GPU} has {{%}} of the clock of the other GPUs of {{run}}"),
    Alert("EfaRetransmits", T, "5m", "bedplate:node_efa_retransmit_ratio > 0.01",
          f"{_IN}: EFA sends {{%}} of its packets again"),
    Alert("GpusFree", T, "2h", 'sum by (place, group) (bedplate:used_usd_per_hour{state="free"}) > 5',
          "GPUs of {group} in {place} that nobody has cost {} USD per hour"),
    Alert("RunStuck", U, "1m", 'sum by (person, run) (bedplate:used_gpus{state="stuck", person!=""}) > 0',
          "{} GPUs of {run} run a kernel and do no work{usd}"),
    Alert("GpusHeldIdle", U, "30m", 'sum by (person, run) (bedplate:used_gpus{state="held", person!=""}) > 0',
          "{} GPUs of {person} are held and idle ({run}){usd}"),
    Alert("ProgramFault", U, "0s",
          'bedplate:gpu_xid_new{action="monitor", xid=~"13|31|43"}'
          " * on (instance, gpu) group_left (person, run) bedplate:gpu_owner",
          f"{_GPU}: a program of {{run}} did an invalid access (Xid {{xid}})"),
)
_SERVICES = (
    Alert("TunnelDown", P, "45s", "bedplate:tunnel_up == 0", "{instance}: the tunnel {tunnel} is down"),
    Alert("BgpDown", P, "2m", "bedplate:tunnel_bgp_up == 0 and on (instance, tunnel) bedplate:tunnel_up == 1",
          "{instance}: no routes through the tunnel {tunnel}"),
    Alert("TunnelSilent", T, "1m", "bedplate:tunnel_silent_seconds > 90 and bedplate:tunnel_up == 1",
          "{instance}: no packet through the tunnel {tunnel} for {age}"),
    Alert("LaptopsRefused", P, "5m", "bedplate:laptops_serving == 0", "{instance}: laptops cannot connect"),
    Alert("LaptopsOwed", T, "10m", "bedplate:laptops_owed > 0",
          "{instance}: {} sessions or certificates wait for the VPN daemons"),
    Alert("CertificateEnds", T, "15m",
          'bedplate:certificate_days{what="laptops-certificate"} < 5'
          ' or bedplate:certificate_days{what!="laptops-certificate"} < 14',
          "{instance}: {what} ends in {} days"),
    Alert("VpnMetricsOld", T, "1m", f"bedplate:vpn_age_seconds > 180 {_UP}",
          "{instance}: the metrics of the VPN are {age} old"),
    Alert("ApiServerDown", P, "45s", f"max({_API}) == 0", "no API server of the cluster answers"),
    Alert("ApiServerSilent", T, "5m", f"{_API} == 0 unless on () (max({_API}) == 0) {_UP}",
          "{instance}: its API server does not answer"),
    Alert("CapacityStalled", P, "2m", "bedplate:capacity_age_seconds > 600",
          "the capacity controller has had no complete round for {age}"),
    Alert("CapacityFault", T, "2m", "bedplate:capacity_faults > 0",
          "{} launches failed in a way that an operator must end"),
    Alert("PodsUnplaced", T, "15m", "bedplate:capacity_unplaced_pods > 0", "{} pods fit no pool"),
    Alert("PoolShort", T, "20m", "bedplate:capacity_desired - bedplate:capacity_joined > 0",
          "pool {pool} of {group} lacks {} machines in the cluster"),
    Alert("RegionSilent", T, "5m", "bedplate:capacity_silent_pools > 0", "AWS does not answer for {} pools"),
    Alert("NodesNotReady", T, "2m", "bedplate:capacity_not_ready_nodes > 0",
          "{} machines of the cluster are not ready"),
    Alert("PodsStuck", T, "15m", "bedplate:capacity_stuck_pods > 0", "{} deleted pods do not end"),
    Alert("FleetUnknown", T, "5m", "bedplate:fleet_fault > 0", "the hub cannot list the machines of {place}"),
    Alert("FleetOld", T, "2m", "bedplate:fleet_age_seconds > 600", "the list of machines on the hub is {age} old"),
    Alert("RulesFailing", T, "5m", "bedplate:rule_failures > 0",
          "{instance}: {} rules of Prometheus failed in 5 minutes"),
    Alert("NotificationsFailing", T, "2m", "sum by (instance, place, group, role) (bedplate:notification_failures) > 0",
          "{instance}: {} notifications failed in 5 minutes"),
    Alert("RemoteWriteFailing", T, "10m", "bedplate:remote_write_failures > 0",
          "{instance}: the remote store refuses samples"),
)
# fmt: on
ALERTS = (*_MACHINES, *_ACCELERATORS, *_SERVICES)
