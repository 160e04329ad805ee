"""The dashboards of Grafana, as code: `make docs` writes roles/grafana/dashboards/*.json. They read the layer only."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, statetimeline, table, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import LegendDisplayMode, LegendPlacement, StackingMode
from grafana_foundation_sdk.models.dashboard import DashboardCursorSync, DataSourceRef, VariableRefresh
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from bedplate.monitoring.layer import INTERVAL
from roles.grafana.role import SOURCE

FOLDER = Path(__file__).parents[2] / "roles" / "grafana" / "dashboards"
_WIDTH, _HEIGHT = 12, 8
_REF = DataSourceRef(type_val="prometheus", uid=SOURCE)
_LEGEND = common.VizLegendOptions().display_mode(LegendDisplayMode.LIST).placement(LegendPlacement.BOTTOM)
_STACK = common.StackingConfig().mode(StackingMode.NORMAL)


@dataclass(frozen=True)
class Panel:
    """A panel: queries by their legend, which names labels as `{instance}`."""

    title: str
    unit: str
    queries: Mapping[str, str]
    kind: str = "lines"
    """lines, stack, number, rows or states."""
    width: int = _WIDTH
    about: str = ""


@dataclass(frozen=True)
class Board:
    """A dashboard: `variables` are the labels that people choose, each with a series that has it."""

    title: str
    about: str
    panels: tuple[Panel, ...]
    variables: Mapping[str, str] = field(default_factory=dict)
    range: str = "now-24h"


def board_text(name: str, board: Board) -> str:
    """Return a dashboard as JSON."""
    built = dashboard.Dashboard(board.title).uid(f"bedplate-{name}").description(board.about).tags(["bedplate"])
    built = (
        built.time(board.range, "now")
        .refresh("1m")
        .timezone("browser")
        .readonly()
        .tooltip(DashboardCursorSync.CROSSHAIR)
    )
    for label, series in board.variables.items():
        query = f"label_values(bedplate:{series}, {label})"
        choice = (
            dashboard.QueryVariable(label)
            .label(label.capitalize())
            .query(query)
            .datasource(_REF)
            .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        )
        # A person has a page; places and groups are shown together.
        is_many = label in {"place", "group"}
        choice = choice.multi(is_many).include_all(is_many)
        built = built.with_variable(choice.all_value(".*") if is_many else choice)
    for panel in board.panels:
        built = built.with_panel(_panel(panel))
    return str(JSONEncoder(sort_keys=True, indent=1).encode(built.build())) + "\n"


def _panel(panel: Panel) -> Any:  # noqa: ANN401  builders of panels have no common base
    builders: Mapping[str, Any] = {"number": stat.Panel, "rows": table.Panel, "states": statetimeline.Panel}
    built: Any = builders.get(panel.kind, timeseries.Panel)().title(panel.title).datasource(_REF).unit(panel.unit)
    built = built.span(panel.width).height(_HEIGHT).description(panel.about or panel.title)
    if panel.kind in {"lines", "stack"}:
        built = (
            built.legend(_LEGEND.show_legend(show_legend=True)).fill_opacity(10 if panel.kind == "lines" else 60).min(0)
        )
    if panel.kind == "stack":
        built = built.stacking(_STACK)
    for letter, (legend, expr) in zip("ABCDEF", panel.queries.items(), strict=False):
        text = legend.replace("{", "{{").replace("}", "}}")
        query = prometheus.Dataquery().expr(expr).ref_id(letter).legend_format(text).datasource(_REF)
        if panel.kind in {"number", "rows"}:
            is_row = panel.kind == "rows"
            query = query.instant().format(PromQueryFormat.TABLE if is_row else PromQueryFormat.TIME_SERIES)
        built = built.with_target(query if panel.kind in {"number", "rows"} else query.range())
    return built


def write(folder: Path = FOLDER) -> None:
    """Write all dashboards."""
    folder.mkdir(exist_ok=True)
    for name, board in BOARDS.items():
        (folder / f"{name}.json").write_text(board_text(name, board), encoding="utf-8")


_MINE, _RUN = '{person="$person"}', '{run="$run"}'
_AT, _IN = '{place=~"$place"}', '{place=~"$place", group=~"$group"}'
_FIRING = 'ALERTS{alertstate="firing"}'
_IDLE = 'bedplate:used_usd_per_hour{state=~"held|stuck", place=~"$place", group=~"$group"}'
_GPU, _STATES = "{instance} {gpu}", "{state}"
_PLACES = {"place": "node_up"}
_GROUPS = {"place": "node_up", "group": "group_usd_per_hour"}


def _top(count: int, expr: str) -> str:
    return f"topk({count}, {expr})"


BOARDS: Mapping[str, Board] = {
    "researcher": Board(
        "My GPUs", "What the GPUs of a person do, and what they have cost.",
        (
            Panel("GPUs by state", "short", {_STATES: f"sum by (state) (bedplate:used_gpus{_MINE})"}, "stack"),
            Panel("Price of my GPUs", "currencyUSD", {
                _STATES: f"sum by (state) (bedplate:used_usd_per_hour{_MINE})",
            }, "stack", about="US dollars per hour by state."),
            Panel("Busy by run", "percentunit", {"{run}": f"bedplate:run_busy{_MINE}"}),
            Panel("State of each GPU", "short", {f"{_GPU} {{state}}": f"bedplate:gpu_state{_MINE}"}, "states"),
            Panel("Busy by GPU", "percentunit", {_GPU: f"bedplate:gpu_busy{_MINE}"}),
            Panel("Memory by GPU", "bytes", {_GPU: f"bedplate:gpu_memory_used_bytes{_MINE}"}),
            Panel("Power by GPU", "watt", {_GPU: f"bedplate:gpu_power_watts{_MINE}"}),
            Panel("Processors of my machines", "percentunit",
                  {"{instance}": f"bedplate:node_cpu_busy and on (instance) bedplate:gpu_state{_MINE}"},
                  about="Processors busy and GPUs idle: the program loads or prepares data."),
        ),
        {"person": "gpu_owner"},
    ),
    "run": Board(
        "Run", "One run: its GPUs beside each other, and its machines.",
        (
            Panel("Busy by GPU", "percentunit", {_GPU: f"bedplate:gpu_busy{_RUN}"}),
            Panel("Memory by GPU", "bytes", {_GPU: f"bedplate:gpu_memory_used_bytes{_RUN}"}),
            Panel("Power by GPU", "watt", {_GPU: f"bedplate:gpu_power_watts{_RUN}"}),
            Panel("Clock by GPU", "hertz", {_GPU: f"bedplate:gpu_clock_hertz{_RUN}"},
                  about="One slow GPU slows all others of the run."),
            Panel("NVLink", "Bps",
                  {_GPU: f"bedplate:gpu_nvlink_bytes_per_second and on (instance, gpu) bedplate:gpu_state{_RUN}"}),
            Panel("EFA of its machines", "Bps",
                  {"{instance}": f"bedplate:node_efa_bytes_per_second and on (instance) bedplate:gpu_state{_RUN}"}),
            Panel("Processors of its machines", "percentunit",
                  {"{instance}": f"bedplate:node_cpu_busy and on (instance) bedplate:gpu_state{_RUN}"}),
            Panel("Alerts of its machines", "short",
                  {"{alertname} {instance}": f"{_FIRING} and on (instance) bedplate:gpu_state{_RUN}"}, "states"),
        ),
        {"run": "run_gpus"},
    ),
    "operator": Board(
        "Operator", "What fires, what is away, and who pays for idle GPUs.",
        (
            Panel("Alerts", "short", {"{alertname}": 'ALERTS{alertstate="firing", place=~"$place"}'}, "rows", 24),
            Panel("Machines that answer", "short", {"{place}": f"sum by (place) (bedplate:node_up{_AT})"}),
            Panel("Machines that are missing", "short",
                  {"{instance}": f"bedplate:node_expected{_AT} unless on (instance) bedplate:node_up == 1"}, "rows"),
            Panel("GPUs by state", "short", {_STATES: f"sum by (state) (bedplate:used_gpus{_AT})"}, "stack"),
            Panel("Idle GPUs by person", "currencyUSD", {
                "{person} {run}":
                    _top(10, "sum by (person, run) (bedplate:used_usd_per_hour{state=~'held|stuck', place=~'$place'})"),
            }, "rows"),
            Panel("Tunnels", "short", {"{instance} {tunnel}": f"bedplate:tunnel_up{_AT}"}, "states"),
            Panel("Days until certificates end", "d", {"{instance} {what}": f"bedplate:certificate_days{_AT}"}, "rows"),
            Panel("Audit, gate and bundles", "short", {
                "{instance} violated rules": f"bedplate:audit_violations{_AT} > 0",
                "{instance} gate: {verdict}": f"bedplate:gate_failed{_AT} == 1",
                "{instance} {version}": f"bedplate:bundle{_AT}",
            }, "rows"),
            Panel("Monitoring itself", "short", {
                "series": "bedplate:hub_series",
                "exporters that are silent": "sum(bedplate:exporter_up == bool 0)",
                "failed rules": "bedplate:rule_failures",
            }, "number"),
        ),
        _PLACES,
    ),
    "gpu-faults": Board(
        "GPU faults", "Errors, heat and links of GPUs.",
        (
            Panel("Xid errors since boot", "short",
                  {"{instance} {gpu} Xid {xid}: {action}": f"bedplate:gpu_xid{_AT}"}, "rows"),
            Panel("SXid errors since boot", "short",
                  {"{instance} SXid {sxid}: {action}": f"bedplate:gpu_sxid{_AT}"}, "rows"),
            Panel("New Xid errors", "short", {"{instance} {gpu} Xid {xid}": f"bedplate:gpu_xid_new{_AT}"}),
            Panel("Missing GPUs", "short",
                  {"{instance}": f"bedplate:gpu_expected{_AT} - bedplate:gpu_seen > 0"}, "rows"),
            Panel("Memory", "short", {
                f"{_GPU} double-bit errors": f"bedplate:gpu_memory_errors{_AT} > 0",
                f"{_GPU} no spare row": f"bedplate:gpu_remap_failed{_AT} > 0",
                f"{_GPU} waits for a reset": f"bedplate:gpu_remap_pending{_AT} > 0",
            }, "rows"),
            Panel("Reduced clocks by cause", "short", {f"{_GPU} {{cause}}": f"bedplate:gpu_throttled{_AT} > 0"}),
            Panel("Hottest GPUs", "celsius", {
                _GPU: _top(20, f"bedplate:gpu_temperature_celsius{_AT}"),
                f"{_GPU} memory": _top(20, f"bedplate:gpu_memory_temperature_celsius{_AT}"),
            }),
            Panel("NVLink errors per second", "short", {_GPU: _top(20, f"bedplate:gpu_nvlink_errors_per_second{_AT}")}),
            Panel("PCIe replays per second", "short", {_GPU: _top(20, f"bedplate:gpu_pcie_replays_per_second{_AT}")}),
        ),
        _PLACES,
    ),
    "capacity": Board(
        "Capacity", "Pools of machines: what the controller wants, and what it gets.",
        (
            Panel("Machines in the cluster by pool", "short", {"{pool}": "bedplate:capacity_joined"}, "stack"),
            Panel("Desired machines by pool", "short", {"{pool}": "bedplate:capacity_desired"}, "stack"),
            Panel("Most machines by pool", "short", {"{pool}": "bedplate:capacity_maximum"}),
            Panel("Machines that are short", "short",
                  {"{pool}": "bedplate:capacity_desired - bedplate:capacity_joined"}),
            Panel("Pods", "short", {"without a machine": "bedplate:capacity_pending_pods",
                                    "that fit no pool": "bedplate:capacity_unplaced_pods",
                                    "that do not end": "bedplate:capacity_stuck_pods"}),
            Panel("Faults", "short", {
                "launches": "bedplate:capacity_faults",
                "silent pools": "bedplate:capacity_silent_pools",
                "machines that are not ready": "bedplate:capacity_not_ready_nodes",
            }),
            Panel("Price by pool", "currencyUSD", {"{pool}": "bedplate:capacity_usd_per_hour"}, "stack"),
            Panel("Age of the last round", "s", {"age": "bedplate:capacity_age_seconds"}),
        ),
    ),
    "storage-network": Board(
        "Storage and network", "Disks, mounts, tunnels, laptops and EFA.",
        (
            Panel("Fullest disks", "percentunit", {
                "{instance} {mount}": f"bottomk(20, bedplate:node_disk_free_ratio{_AT})",
            }, about="Share that is free."),
            Panel("Inodes", "percentunit",
                  {"{instance} {mount}": f"bottomk(20, bedplate:node_inodes_free_ratio{_AT})"}),
            Panel("Mounts that do not answer", "short",
                  {"{instance} {mount}": f"bedplate:mount_answers{_AT} == 0"}, "rows"),
            Panel("Time until mounts answer", "s", {"{instance} {mount}": _top(20, f"bedplate:mount_seconds{_AT}")}),
            Panel("Network", "Bps", {
                "{instance} receives": _top(10, f"bedplate:node_network_receive_bytes_per_second{_AT}"),
                "{instance} sends": _top(10, f"bedplate:node_network_transmit_bytes_per_second{_AT}"),
            }),
            Panel("Tunnels", "Bps", {"{instance} {tunnel} receives": f"bedplate:tunnel_received_bytes_per_second{_AT}",
                                     "{instance} {tunnel} sends": f"bedplate:tunnel_sent_bytes_per_second{_AT}"}),
            Panel("EFA", "Bps", {"{instance}": _top(20, f"bedplate:node_efa_bytes_per_second{_AT}")}),
            Panel("EFA packets that are sent again", "percentunit",
                  {"{instance}": _top(20, f"bedplate:node_efa_retransmit_ratio{_AT}")}),
            Panel("Connected laptops", "short", {"{instance} {transport}": f"bedplate:laptops_sessions{_AT}"}, "stack"),
            Panel("Clocks", "s", {"{instance}": _top(20, f"abs(bedplate:node_clock_offset_seconds{_AT})")},
                  about="Distance from the clock of the hub."),
        ),
        _PLACES,
    ),
    "cost-idle": Board(
        "Cost and idle GPUs", "What machines cost by the hour, by whom, and how much of it is idle.",
        (
            Panel("Price by group", "currencyUSD", {"{place} {group}": f"bedplate:group_usd_per_hour{_IN}"}, "stack"),
            Panel("Price by state", "currencyUSD",
                  {_STATES: f"sum by (state) (bedplate:used_usd_per_hour{_IN})"}, "stack"),
            Panel("Price by person", "currencyUSD", {
                "{person}": f"sum by (person) (bedplate:used_usd_per_hour{_IN})",
            }, "stack", about="Without a name: GPUs that nobody has."),
            Panel("GPUs by state", "short", {_STATES: f"sum by (state) (bedplate:used_gpus{_IN})"}, "stack"),
            Panel("Share of GPUs that are busy", "percentunit",
                  {"{group}": f'sum by (group) (bedplate:used_gpus{{state="busy", place=~"$place", group=~"$group"}})'
                              f" / sum by (group) (bedplate:used_gpus{_IN})"}),
            Panel("Idle cost today by run", "currencyUSD", {
                "{person} {run}": _top(20, f"sum by (person, run) (sum_over_time({_IDLE}[1d])) / {3600 // INTERVAL}"),
            }, "rows"),
        ),
        _GROUPS, "now-7d",
    ),
}  # fmt: skip
