"""The health gate: each check passes on a healthy machine, and fails with one defect. The driver is a fake."""

import json
import shutil
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from bedplate.catalog import load_catalog
from bedplate.catalog.catalog import load_chips
from bedplate.programs.gate import __main__ as gate
from bedplate.programs.gate.__main__ import check_new_boot, judge, read_last, read_verdict
from bedplate.programs.gate.diagnosis import burn_in
from bedplate.programs.gate.kernel_log import check_kernel_log
from bedplate.programs.gate.machine import Expected, Gpus, Machine, read_expected
from bedplate.programs.gate.smi import check_states, read_leaves, read_rules, rule_of
from bedplate.programs.gate.verdict import Action, Cause, Finding, Verdict, hardware, unknown
from roles.gate.role import EXPECTED, Gate, expectations
from tests.testlab.fakes.gpus import EIGHT_H100, WIDTH, Situation, build, gpu, program, remarks, verdict_of
from tests.testlab.fakes.node import Recorder, recorded
from tests.testlab.fleets.variants import lab_node

REPLACE, REBOOT = (Cause.HARDWARE, Action.REPLACE), (Cause.HARDWARE, Action.REBOOT)
SOFTWARE, NOTED = (Cause.SOFTWARE, Action.REPAIR), (None, Action.MONITOR)
UNKNOWN, UNDECIDED = (Cause.UNKNOWN, Action.MONITOR), (Cause.UNKNOWN, Action.REPAIR)
RELOAD = (Cause.SOFTWARE, Action.REBOOT)
PLANNED = replace(EIGHT_H100, efa=2, mounts=("/home",))
SLOW = {"clocks_event_reasons/clocks_event_reason_hw_slowdown": "Active"}
HEALTHY = Situation(
    planned=PLANNED,
    files={
        "sys/class/infiniband/rdmap16s27/device/uevent": "DRIVER=efa\n",
        "sys/class/infiniband/rdmap32s27/device/uevent": "DRIVER=efa\n",
    },
)
Remark = tuple[Cause | None, Action]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Return a healthy machine with fake programs."""
    machine = build(tmp_path, HEALTHY, monkeypatch, timeout=5)
    program(tmp_path, "stat", "echo nfs")
    program(tmp_path, "findmnt", "echo /home")
    return machine


def failed(machine: Machine, planned: Expected = PLANNED) -> Mapping[str, Remark]:
    """Return the cause and the action of each failed check."""
    return remarks([finding for finding in judge(machine, planned).findings if not finding.ok])


def test_a_healthy_machine_passes(machine: Machine) -> None:
    """Every check has a finding, and none fails."""
    verdict = judge(machine, PLANNED)

    assert verdict.ok
    assert {finding.check for finding in verdict.findings} == {
        *("clock", "root-disk", "mounts", "efa", "gpu-errors", "driver", "gpus", "nvlink")
    }
    assert verdict.lines() == ["gate passed"]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"product_name": "NVIDIA A100-SXM4-80GB"}, {"gpus": UNDECIDED}),
        ({"fb_memory_usage/total": "40536 MiB"}, {"gpu-memory": REPLACE}),
        ({"ecc_errors/volatile/dram_uncorrectable": "2"}, {"gpu-ecc": REBOOT}),
        ({"ecc_errors/volatile/sram_correctable": "3", "ecc_errors/aggregate/dram_uncorrectable": "7"}, {}),
        ({"ecc_errors/aggregate/sram_threshold_exceeded": "Yes"}, {"gpu-ecc": REPLACE}),
        ({"ecc_errors/channel_repair_pending": "Yes"}, {"gpu-ecc": REBOOT}),
        ({"ecc_errors/tpc_repair_pending": "Yes"}, {"gpu-ecc": REBOOT}),
        ({"remapped_rows/remapped_row_failure": "Yes"}, {"gpu-rows": REPLACE}),
        ({"remapped_banks/bank_remapper_pending": "Yes"}, {"gpu-rows": REBOOT}),
        ({"retired_pages/pending_retirement": "Yes"}, {"gpu-rows": REBOOT}),
        ({"fabric/status": "Failure"}, {"nvlink": REBOOT}),
        ({"fabric/health/bandwidth": "Degraded"}, {"nvlink": REBOOT}),
        ({"fabric/health/incorrect_configuration": "Incorrect SysGUID"}, {"nvlink": SOFTWARE}),
        ({"ecc_mode/current_ecc": "Disabled", "ecc_mode/pending_ecc": "Disabled"}, {"gpu-ecc": SOFTWARE}),
        ({"ecc_mode/current_ecc": "Disabled"}, {"gpu-ecc": RELOAD}),
        ({"ecc_mode/pending_ecc": "Disabled"}, {"gpu-ecc": SOFTWARE}),
        ({"ecc_mode/current_ecc": "Disabled", "product_brand": "NVIDIA RTX"}, {}),
        ({"mig_mode/pending_mig": "Enabled"}, {"gpu-mig": RELOAD}),
        ({"compute_mode": "Prohibited"}, {"gpu-mode": SOFTWARE}),
        ({"compute_mode": "Exclusive_Process"}, {}),
        ({WIDTH: "8x"}, {"gpu-pcie": REPLACE}),
        ({"ecc_errors/volatile/dram_uncorrectable": "Unknown Error"}, {}),
    ],
)
def test_a_fault_that_the_driver_reports_fails_its_check(
    machine: Machine, changes: Mapping[str, str], expected: Mapping[str, Remark]
) -> None:
    """Each element has its cause and its action; corrected errors and errors of earlier boots are no fault."""
    (machine.root / "smi.xml").write_text(replace(HEALTHY, gpus={3: changes}).text)

    assert failed(machine) == expected


@pytest.mark.parametrize(
    ("name", "script", "expected"),
    [
        ("nvidia-smi", "echo No devices were found >&2; exit 6", {"gpus": (Cause.UNKNOWN, Action.REBOOT)}),
        ("nvidia-smi", "sleep 60", {"driver": (Cause.UNKNOWN, Action.REBOOT)}),
        ("nvidia-smi", "echo '<nvidia_smi_log>'", {"driver": (Cause.UNKNOWN, Action.REBOOT)}),
        ("journalctl", "echo lost >&2; exit 1", {"gpu-errors": UNDECIDED}),
        ("systemctl", "echo inactive; exit 3", {"nvlink": SOFTWARE}),
        ("systemctl", "sleep 60", {"nvlink": UNDECIDED}),
        ("chronyc", "echo 'Leap status     : Not synchronised'", {"clock": SOFTWARE}),
        ("stat", "sleep 60", {"mounts": SOFTWARE}),
        ("findmnt", "exit 1", {"mounts": SOFTWARE}),
    ],
)
def test_a_program_that_fails_is_no_broken_machine(
    machine: Machine, name: str, script: str, expected: Mapping[str, Remark]
) -> None:
    """Software that does not work, and tools that do not answer, fail their check without a fault of the hardware."""
    program(machine.root, name, script)

    assert failed(Machine(machine.root, timeout=0.3)) == expected


def test_a_program_that_fails_once_is_run_again(machine: Machine) -> None:
    """A tool may fail while another program starts the GPU."""
    smi = (machine.root / "bin/nvidia-smi").read_text().removeprefix("#!/bin/sh\n")
    first = machine.root / "first"
    program(machine.root, "nvidia-smi", f"[ -e {first} ] || {{ touch {first}; exit 1; }}; {smi}")

    assert failed(Machine(machine.root, timeout=1)) == {}


def test_a_missing_tool_fails_a_gpu_machine(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without nvidia-smi a machine with GPUs fails; one without GPUs does not need it."""
    (machine.root / "bin/nvidia-smi").unlink()
    monkeypatch.setenv("PATH", f"{machine.root}/bin:/bin")

    assert failed(machine) == {"driver": SOFTWARE}
    assert failed(machine, Expected()) == {}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("sys/class/infiniband/rdmap32s27", {"efa": REPLACE}),
        ("sys/module/nvidia", {"driver": RELOAD}),
    ],
)
def test_a_missing_device_fails(machine: Machine, path: str, expected: Mapping[str, Remark]) -> None:
    """A missing EFA device, or a driver that is not loaded."""
    shutil.rmtree(machine.root / path)

    assert failed(machine) == expected


def test_devices_without_a_driver_are_broken_software(machine: Machine) -> None:
    """The PCI bus has all EFA devices, and the kernel none: the driver is missing."""
    shutil.rmtree(machine.root / "sys/class/infiniband")
    for number in range(2):
        _add_device(machine.root, f"0000:0{number}:00.0", vendor="0x1d0f", device="0xefa2")

    assert failed(machine) == {"efa": SOFTWARE}


@pytest.mark.parametrize(("on_bus", "remark"), [(7, REPLACE), (8, (Cause.UNKNOWN, Action.REBOOT))])
def test_the_bus_tells_why_no_gpu_is_found(machine: Machine, on_bus: int, remark: Remark) -> None:
    """A GPU that the bus lacks is broken hardware; if the driver finds none of all, nobody can tell."""
    program(machine.root, "nvidia-smi", "echo No devices were found; exit 6")
    for number in range(on_bus):
        _add_device(machine.root, f"0000:0{number}:00.0", vendor="0x10de", **{"class": "0x030200"})

    assert failed(machine) == {"gpus": remark}


@pytest.mark.parametrize(
    ("slot", "is_busy", "virtual", "expected"),
    [
        (16, True, False, {"gpu-pcie": REPLACE}),
        (16, False, False, {"gpu-pcie": UNKNOWN}),
        (16, True, True, {"gpu-pcie": UNKNOWN}),
        (8, True, False, {}),
        (255, True, False, {"gpu-pcie": UNKNOWN}),
        (None, True, False, {"gpu-pcie": UNKNOWN}),
    ],
    ids=["broken", "idle", "virtual machine", "narrow slot", "slot without a width", "unknown slot"],
)
def test_lanes_are_those_of_card_and_slot(
    machine: Machine, slot: int | None, expected: Mapping[str, Remark], *, is_busy: bool, virtual: bool
) -> None:
    """A GPU that works must have them; an idle one may use fewer, and a virtual machine shows no slot."""
    changes = {
        WIDTH: "8x",
        "clocks_event_reasons/clocks_event_reason_gpu_idle": "Not Active" if is_busy else "Active",
        "gpu_virtualization_mode/virtualization_mode": "Pass-Through" if virtual else "None",
    }
    (machine.root / "smi.xml").write_text(Situation(count=1, all=changes).text)
    if slot:
        _add_device(machine.root, "0000:50:00.0", max_link_width="16")
        (machine.root / "sys/bus/pci/devices/max_link_width").write_text(f"{slot}\n")

    assert remarks(judge(machine, replace(PLANNED, gpus=Gpus("h100", 1, 81920))).findings) == expected


def _add_device(root: Path, name: str, **files: str) -> None:
    folder = root / "sys/bus/pci/devices" / name
    folder.mkdir(parents=True)
    for file, text in files.items():
        (folder / file).write_text(f"{text}\n")


@pytest.mark.parametrize(("options", "expected"), [("ro,relatime", {"root-disk": REPLACE}), ("rw,errors=ro", {})])
def test_a_read_only_root_fails(machine: Machine, options: str, expected: Mapping[str, Remark]) -> None:
    """Process 1 decides: the gate's own unit sees every disk read-only."""
    (machine.root / "proc/1").mkdir()
    (machine.root / "proc/1/mounts").write_text(f"/dev/sda1 /boot ext4 ro 0 0\n/dev/sda2 / ext4 {options} 0 0\n")

    assert failed(machine) == expected


def test_a_container_without_nfs_has_no_mounts(machine: Machine) -> None:
    """The kernel belongs to the host of the container, as does the clock."""
    program(machine.root, "findmnt", "exit 1")
    (machine.root / "run/systemd").mkdir(parents=True)
    (machine.root / "run/systemd/container").write_text("systemd-nspawn")

    assert failed(machine) == {}


def test_another_branch_fails(machine: Machine) -> None:
    """A driver of another branch than the plan's needs an apply."""
    assert failed(machine, Expected("595", Gpus("h100", 8))) == {"driver": SOFTWARE}


LOG = "NVRM: Xid (PCI:0000:01:00): {}, pid=7, name=train"


def test_the_verdict_is_written_for_programs(machine: Machine) -> None:
    """JSON has what is broken, each finding and the gravest action, Prometheus one line for each check and verdict."""
    (machine.root / "kernel.log").write_text(LOG.format(79))
    verdict = judge(machine, PLANNED)

    document = verdict.document()
    head = (document["ok"], document["verdict"], document["action"], document["boot"])
    assert head == (False, "hardware", "reboot", "1d4f")
    assert 'bedplate_gate_ok{check="gpu-errors"} 0\n' in verdict.metrics()
    assert 'bedplate_gate_ok{check="gpus"} 1\n' in verdict.metrics()
    assert 'bedplate_gate_verdict{verdict="hardware"} 1\n' in verdict.metrics()
    assert 'bedplate_gate_verdict{verdict="passed"} 0\n' in verdict.metrics()
    assert verdict.lines()[-1] == "gate failed: broken hardware (reboot)"


def test_an_error_of_a_check_is_a_finding_about_the_gate(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is a verdict also if a check has a defect, and it does not blame the machine."""
    monkeypatch.setattr("bedplate.programs.gate.gpus._words", lambda _gpu: 1 / 0)

    verdict = judge(machine, PLANNED)

    assert (verdict.cause, verdict.action) == (Cause.UNKNOWN, Action.REPAIR)
    assert verdict.findings[-1].text == "ZeroDivisionError: division by zero"
    assert json.dumps(verdict.document())


@pytest.mark.parametrize(
    ("action", "cause"), [(Action.REPLACE, Cause.SOFTWARE), (Action.REPLACE, Cause.UNKNOWN), (Action.REPAIR, None)]
)
def test_only_broken_hardware_is_replaced(action: Action, cause: Cause | None) -> None:
    """A finding cannot require a replacement for anything else, or fail without a cause."""
    with pytest.raises(ValueError, match=r"hardware|cause"):
        Finding("gpus", "7", action, cause)


def test_the_first_broken_part_decides() -> None:
    """Broken hardware comes before broken software, and that before what nobody can tell; notices do not fail."""
    findings = [unknown("a", "?", Action.REPAIR), Finding("b", "", Action.REPAIR, Cause.SOFTWARE), hardware("c", "")]

    assert [Verdict(0, "", findings[:count]).cause for count in range(4)] == [
        None,
        Cause.UNKNOWN,
        Cause.SOFTWARE,
        Cause.HARDWARE,
    ]
    assert Verdict(0, "", [unknown("a", "?")]).ok


@pytest.mark.parametrize(("text", "check"), [("{", "plan"), ("{}", "type"), ('{"types": {"g6.xlarge": {}}}', "type")])
def test_an_unusable_plan_fails(machine: Machine, text: str, check: str) -> None:
    """A damaged plan, or one without the machine's type, fails the gate instead of checking nothing."""
    file = machine.root / "gate.json"
    file.write_text(text)

    assert remarks(read_verdict(machine, file).findings) == {check: SOFTWARE}


def test_a_group_has_expectations_for_each_type() -> None:
    """A machine of a group with several types is judged as the type that it is."""
    expected = expectations(lab_node("workbench-gpu-1.us-west-2"), load_chips())

    types = load_catalog().types
    assert tuple(expected) == lab_node("workbench-gpu-1.us-west-2").types
    for name, entry in expected.items():
        gpu = types[name].gpu
        assert entry.gpus
        assert gpu
        assert (entry.gpus.model, entry.gpus.count, entry.gpus.memory) == (gpu.name, gpu.count, gpu.memory_mib)
        assert entry.cloud


def test_a_group_declares_mig() -> None:
    """The gate accepts MIG where the fleet file has it."""
    node = replace(lab_node("workbench-gpu-1.us-west-2"), mig=True)

    assert all(entry.gpus and entry.gpus.mig for entry in expectations(node, load_chips()).values())


def test_the_program_reads_the_file_of_the_role(tmp_path: Path) -> None:
    """A type that the file does not have is expected to be the machine of a site."""
    played = Recorder(recorded("debian-12")).play(Gate({"": PLANNED}), stages=["configure"])
    plan = tmp_path / "plan.json"
    plan.write_text(played.written(EXPECTED))

    assert read_expected(plan, "other") == replace(PLANNED, mounts=list(PLANNED.mounts))
    assert json.loads(plan.read_text())["version"] == 1


DIAGNOSTICS = """{"DCGM Diagnostic": {"test_categories": [{"category": "Hardware", "tests": [
 {"name": "memory", "results": [{"entity_id": 0, "status": "Pass"}], "test_summary": {"status": "Pass"}},
 {"name": "pcie", "results": [{"entity_id": 0, "status": "Pass"}, {"entity_id": 1, "status": "Pass"}]}]}]}}"""
MARKED = Expected("580", Gpus("h100", 8, 81920, switched=True, bandwidth=370))
LONG_TESTS = {
    "nvidia-smi": "true",
    "dcgmi": f"echo '{DIAGNOSTICS}'",
    "all_reduce_perf": "echo '# Avg bus bandwidth    : 471.2'",
}


@pytest.mark.parametrize(
    ("script", "first", "second"),
    [
        (f"echo '{DIAGNOSTICS}'", {}, {}),
        ("echo unable to connect to the host engine >&2; exit 1", {"dcgm": UNDECIDED}, {"dcgm": UNKNOWN}),
        ("sleep 60", {"dcgm": UNDECIDED}, {"dcgm": UNKNOWN}),
        (None, {"dcgm": (Cause.SOFTWARE, Action.MONITOR)}, {"dcgm": (Cause.SOFTWARE, Action.MONITOR)}),
    ],
)
def test_the_first_gate_of_a_boot_runs_dcgm(
    machine: Machine, script: str | None, first: Mapping[str, Remark], second: Mapping[str, Remark]
) -> None:
    """Level 1. A diagnosis that does not run is tried again, once; without DCGM it is reported as not run."""
    if script:
        program(machine.root, "dcgmi", script)
    machine = replace(machine, timeout=0.1)
    situation = replace(HEALTHY, planned=MARKED)
    verdict = verdict_of(machine, situation, check_new_boot)

    assert remarks(verdict.findings) == first
    assert remarks(verdict_of(machine, situation, check_new_boot, verdict).findings) == second


def test_the_last_verdict_counts_within_its_boot(machine: Machine) -> None:
    """After a reboot, or if it cannot be read, there is none."""
    file = machine.root / "verdict.json"
    verdict = judge(machine, PLANNED)
    file.write_text(json.dumps(verdict.document()))
    assert read_last(machine, file)["ok"]

    for text in (json.dumps({**verdict.document(), "boot": "another"}), "{", '{"boot": "1d4f", "findings": [3]}'):
        file.write_text(text)
        assert read_last(machine, file) == {}


@pytest.mark.parametrize(("cloud", "action"), [(True, Action.REPLACE), (False, Action.REPAIR)])
def test_a_gpu_that_its_hardware_slows_fails_at_two_gates(machine: Machine, *, cloud: bool, action: Action) -> None:
    """Once is a notice. A machine of a site has power and cooling that somebody can repair."""
    situation = replace(HEALTHY, planned=replace(PLANNED, cloud=cloud), gpus={2: SLOW})
    (machine.root / "smi.xml").write_text(situation.text)
    first = verdict_of(machine, situation)
    early = verdict_of(machine, situation, last=first)
    before = [replace(entry, since=int(time.time()) - 300) if entry.since else entry for entry in first.findings]
    second = verdict_of(machine, situation, last=replace(first, findings=before))

    assert remarks(first.findings) == remarks(early.findings) == {"gpu-clocks": UNKNOWN}
    assert remarks(second.findings) == {"gpu-clocks": (Cause.HARDWARE, action)}
    (machine.root / "smi.xml").write_text(HEALTHY.text)
    assert remarks(verdict_of(machine, situation, last=second).findings) == {}


def test_the_driver_has_two_names(machine: Machine) -> None:
    """NVIDIA renames the element; a document without both does not fit the loaded driver."""
    text = (machine.root / "smi.xml").read_text()
    (machine.root / "smi.xml").write_text(text.replace("driver_version>", "kmd_version>"))
    assert failed(machine) == {}

    (machine.root / "smi.xml").write_text(text.replace("driver_version>", "version>"))
    assert failed(machine) == {"driver": RELOAD}


def test_an_error_says_how_often_and_since_when(machine: Machine) -> None:
    """The first time of the log counts; lines with details are no further errors."""
    switch = "nvidia-nvswitch0: SXid (PCI:0000:c3:00.0): 20034"
    lines = [
        f"1764230400.500000 kernel: {LOG.format(119)}",
        f"1764230500.000000 kernel: {LOG.format(119)}",
        f"1764230600.000000 kernel: {switch}, Fatal, Link 30 LTSSM Fault Up",
        f"1764230600.000001 kernel: {switch}, Severity 1 Engine instance 30",
    ]
    (machine.root / "kernel.log").write_text("\n".join(lines))

    assert [(entry.text, entry.since) for entry in check_kernel_log(machine)] == [
        ("SXid 20034 fatal on 0000:c3:00.0, once since 2025-11-27 08:03:20 UTC", 1764230600),
        ("Xid 119 on 0000:01:00, 2 times since 2025-11-27 08:00:00 UTC", 1764230400),
    ]


@pytest.mark.parametrize(
    ("log", "remark"),
    [
        ("Xid (PCI:0000:01:00): 64, Dynamic Page Retirement: Fatal error", REPLACE),
        ("Xid (PCI:0000:01:00): 62, 2c1e bd0 0000", REBOOT),
        ("Xid (PCI:0000:01:00): 999, a new unit Fatal", REBOOT),
        ("Xid (PCI:0000:01:00): 999, a new unit Nonfatal", UNKNOWN),
        ("Xid (PCI:0000:01:00): 160, Channel Retirement Event", NOTED),
        ("Xid (PCI:0000:01:00): 31, pid=3, name=Fatal, MMU Fault", NOTED),
        ("SXid (PCI:0000:c3:00.0): 22003, Minion Halt", REBOOT),
        ("SXid (PCI:0000:c3:00.0): 99999, something", UNKNOWN),
        ("Xid (PCI:0000:01:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)", REBOOT),
        ("Xid (PCI:0000:01:00): 154, GPU recovery action changed from 0x0 (None) to 0x3 (Drain P2P)", NOTED),
        ("Xid (PCI:0000:01:00): 154, GPU recovery action changed from 0x0 (None) to 0x9 (Reseat)", UNKNOWN),
    ],
)
def test_the_log_counts_by_number_and_word(machine: Machine, log: str, remark: Remark) -> None:
    """Fatal errors require a reboot whatever their number; one that no table knows is unknown."""
    (machine.root / "kernel.log").write_text(f"NVRM: {log}\n")

    assert remarks(list(check_kernel_log(machine))) == {"gpu-errors": remark}


def test_every_element_of_the_tool_has_a_rule() -> None:
    """A new element is a decision: a fault is read, the rest is listed with a reason. Each rule has its element."""
    paths = {path for path, _ in read_leaves(gpu())}

    assert {path for path in paths if rule_of(path) is None} == set()
    older = {"gpu_reset_status", "ecc_errors/volatile/sram_uncorrectable", "ecc_errors/aggregate/sram_uncorrectable"}
    unused = {
        path
        for path in read_rules()
        if not any(f"{have}/".startswith(path.replace("/*", "/")) for have in paths) and "voltage" not in path
    }
    assert unused <= {"accounted_processes/*", *older}


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        ("ecc_errors/hbm_repair_pending", "Yes", {"gpu-new": UNKNOWN}),
        ("ecc_errors/hbm_repair_pending", "No", {}),
        ("ecc_errors/hbm_repair_pending", "N/A", {}),
        ("new_mode", "Fast", {}),
        ("remapped_rows/remapped_row_failure", "Perhaps", {"gpu-rows": UNKNOWN}),
        ("ecc_errors/volatile/dram_uncorrectable", "many", {"gpu-ecc": UNKNOWN}),
        ("fabric/state", "Confused", {"nvlink": UNKNOWN}),
        ("fabric/status", "Unknown Error", {"nvlink": UNKNOWN}),
    ],
)
def test_an_unknown_element_or_value_is_unknown(path: str, text: str, expected: Mapping[str, Remark]) -> None:
    """It is neither harmless nor a fault of the machine."""
    assert remarks(list(check_states(gpu(0, {path: text})))) == expected


@pytest.mark.parametrize(
    ("name", "script", "expected"),
    [
        ("nvidia-smi", "true", {}),
        ("nvidia-smi", "echo 4711", {"in-use": SOFTWARE}),
        ("nvidia-smi", "exit 9", {"driver": UNDECIDED}),
        (
            "dcgmi",
            f'echo \'{DIAGNOSTICS}\' | sed \'s/1, "status": "Pass/1, "status": "Fail/\'',
            {"dcgm": REPLACE},
        ),
        ("dcgmi", None, {"dcgm": SOFTWARE}),
        ("dcgmi", "echo '{}'", {"dcgm": UNDECIDED}),
        ("dcgmi", f"echo '{DIAGNOSTICS}' | sed s/Pass/Skip/g", {"dcgm": UNDECIDED}),
        ("all_reduce_perf", "echo '# Avg bus bandwidth    : 301.2'", {"all-reduce": REPLACE}),
        ("all_reduce_perf", "echo no; exit 1", {"all-reduce": UNDECIDED}),
        ("all_reduce_perf", "echo", {"all-reduce": UNDECIDED}),
        ("all_reduce_perf", None, {}),
    ],
)
def test_a_burn_in_finds_its_defect(
    machine: Machine, name: str, script: str | None, expected: Mapping[str, Remark]
) -> None:
    """A failed or missing diagnosis and a slow all-reduce fail it; without nccl-tests the bandwidth is not measured."""
    for tool, text in LONG_TESTS.items():
        program(machine.root, tool, text)
    if script is None:
        (machine.root / "bin" / name).unlink()
    else:
        program(machine.root, name, script)

    verdict = judge(machine, MARKED, burn_in)

    assert remarks([finding for finding in verdict.findings if not finding.ok]) == expected


def test_cards_have_no_pass_mark(machine: Machine) -> None:
    """The bandwidth of GPUs behind NVSwitch is none that PCIe can have."""
    cards = replace(HEALTHY, all={"product_name": "NVIDIA H100 NVL"}).text
    (machine.root / "smi.xml").write_text(cards)
    program(machine.root, "nvidia-smi", f"[ $1 != -q ] || cat {machine.root}/smi.xml")
    program(machine.root, "dcgmi", LONG_TESTS["dcgmi"])
    program(machine.root, "all_reduce_perf", "echo '# Avg bus bandwidth    : 21.5'")

    assert remarks(judge(machine, MARKED, burn_in).findings) == {"all-reduce": NOTED}


def test_the_verdict_is_printed_if_it_cannot_be_written(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A full disk does not hide what is broken; there is no traceback."""
    (machine.root / "file").touch()
    monkeypatch.setattr(gate, "VERDICT", machine.root / "file/gate.json")
    monkeypatch.setattr(gate, "EXPECTED", machine.root / "none.json")
    monkeypatch.setattr(gate, "Machine", lambda: machine)
    monkeypatch.setattr("sys.argv", ["bedplate-gate", "--json"])

    assert gate.main() == 3
    output = capsys.readouterr()
    assert json.loads(output.out)["verdict"] == "software"
    assert output.err.startswith("error: cannot write the verdict: ")
