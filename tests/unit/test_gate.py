"""The health gate: each check passes on a healthy machine, and fails with one defect. The driver is a fake.

The answers of nvidia-smi have the elements of NVIDIA's document type nvsmi_device_v12, written by hand for eight H100.
"""

import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from bedplate.catalog import load_catalog
from bedplate.programs.gate.__main__ import check_new_boot, has_passed, judge, read_verdict
from bedplate.programs.gate.hardware import burn_in
from bedplate.programs.gate.machine import Expected, Gpus, Machine, read_expected
from bedplate.programs.gate.verdict import Action
from roles.gate.role import EXPECTED, Gate, expectations
from tests.testlab.fakes.node import Recorder, recorded
from tests.testlab.fleets.variants import lab_node

GPU = """
<gpu id="00000000:{number:02X}:00.0">
  <product_name>NVIDIA H100 80GB HBM3</product_name>
  <fabric><state>Completed</state><status>Success</status></fabric>
  <pci><pci_gpu_link_info><link_widths>
    <max_link_width>16x</max_link_width><current_link_width>16x</current_link_width>
  </link_widths></pci_gpu_link_info></pci>
  <fb_memory_usage><total>81559 MiB</total></fb_memory_usage>
  <ecc_errors><volatile>
    <sram_correctable>3</sram_correctable><sram_uncorrectable_parity>0</sram_uncorrectable_parity>
    <dram_uncorrectable>0</dram_uncorrectable>
  </volatile><aggregate><dram_uncorrectable>7</dram_uncorrectable></aggregate></ecc_errors>
  <retired_pages><pending_retirement>N/A</pending_retirement></retired_pages>
  <remapped_rows>
    <remapped_row_pending>No</remapped_row_pending><remapped_row_failure>No</remapped_row_failure>
  </remapped_rows>
</gpu>
"""
HEALTHY = "".join(
    (
        "<nvidia_smi_log><driver_version>580.95.05</driver_version>",
        *(GPU.format(number=n) for n in range(8)),
        "</nvidia_smi_log>",
    )
)
LINKS = "\n".join(f"\t Link {number}: 26.562 GB/s" for number in range(18))
LOG = "NVRM: loading NVIDIA UNIX Open Kernel Module  580.95.05\nNVRM: Xid (PCI:0000:01:00): {}, pid=7, name=train"
PLANNED = Expected("580", Gpus("h100", 8, 81920, switched=True), efa=2, mounts=("/home",))
PROGRAMS = {
    "nvidia-smi": f'case $1 in nvlink) cat <<"END"\n{LINKS}\nEND\n;; *) cat <<"END"\n{HEALTHY}\nEND\nesac',
    "journalctl": "echo NVRM: loading NVIDIA UNIX Open Kernel Module",
    "systemctl": "echo active",
    "chronyc": "echo 'Leap status     : Normal'",
    "stat": "echo nfs",
    "findmnt": "echo /home",
}
FILES = {
    "sys/module/nvidia/version": "580.95.05\n",
    "sys/class/infiniband/rdmap16s27/device/uevent": "DRIVER=efa\n",
    "sys/class/infiniband/rdmap32s27/device/uevent": "DRIVER=efa\n",
    "proc/sys/kernel/random/boot_id": "1d4f\n",
}


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Return a healthy machine with fake programs."""
    for path, text in FILES.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    for name, script in PROGRAMS.items():
        program(tmp_path, name, script)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    return Machine(tmp_path, timeout=5)


def program(root: Path, name: str, script: str) -> None:
    """Write a fake program."""
    file = root / "bin" / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)


def failed(machine: Machine, planned: Expected = PLANNED) -> Mapping[str, Action]:
    """Return the action of each failed check."""
    return {finding.check: finding.action for finding in judge(machine, planned).findings if not finding.ok}


def test_a_healthy_machine_passes(machine: Machine) -> None:
    """Every check has a finding, and none fails; corrected errors and errors of earlier boots are no fault."""
    verdict = judge(machine, PLANNED)

    assert verdict.ok
    assert {finding.check for finding in verdict.findings} == {
        *("clock", "root-disk", "mounts", "efa", "gpu-errors", "driver", "gpus", "nvlink")
    }
    assert verdict.lines() == ["gate passed"]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("<driver_version>580.95.05", "<driver_version>580.126.20", {"driver": Action.REBOOT}),
        (GPU.format(number=7), "", {"gpus": Action.REPLACE}),
        ("H100 80GB HBM3", "A100-SXM4-80GB", {"gpus": Action.REPLACE}),
        ("81559 MiB", "40536 MiB", {"gpu-memory": Action.REPLACE}),
        ("<dram_uncorrectable>0", "<dram_uncorrectable>2", {"gpu-ecc": Action.REBOOT}),
        ("failure>No", "failure>Yes", {"gpu-rows": Action.REPLACE}),
        ("pending>No", "pending>Yes", {"gpu-rows": Action.REBOOT}),
        ("retirement>N/A", "retirement>Yes", {"gpu-rows": Action.REBOOT}),
        ("<current_link_width>16x", "<current_link_width>8x", {"gpu-pcie": Action.REPLACE}),
        ("<status>Success", "<status>Failure", {"nvlink": Action.REBOOT}),
        ("Link 17: 26.562 GB/s", "Link 17: <inactive>", {"nvlink": Action.REPLACE}),
        ("</nvidia_smi_log>", "", {"driver": Action.REBOOT}),
    ],
)
def test_a_faulty_gpu_fails(machine: Machine, old: str, new: str, expected: Mapping[str, Action]) -> None:
    """A defect that the driver reports fails its check, with the action that helps."""
    script = PROGRAMS["nvidia-smi"]
    assert old in script
    program(machine.root, "nvidia-smi", script.replace(old, new, 1))

    assert failed(machine) == expected


@pytest.mark.parametrize(
    ("name", "script", "expected"),
    [
        ("journalctl", f"echo '{LOG.format(79)}'", {"gpu-errors": Action.REBOOT}),
        ("journalctl", f"echo '{LOG.format(64)}'", {"gpu-errors": Action.REPLACE}),
        ("journalctl", f"echo '{LOG.format(31)}'", {}),
        ("journalctl", f"echo '{LOG.format(999)}'", {}),
        ("nvidia-smi", "echo No devices were found >&2; exit 6", {"driver": Action.REBOOT}),
        ("nvidia-smi", "sleep 60", {"driver": Action.REBOOT}),
        ("systemctl", "echo inactive; exit 3", {"nvlink": Action.REPAIR}),
        ("chronyc", "echo 'Leap status     : Not synchronised'", {"clock": Action.REPAIR}),
        ("stat", "sleep 60", {"mounts": Action.REPAIR}),
        ("findmnt", "exit 1", {"mounts": Action.REPAIR}),
    ],
)
def test_a_failing_program_fails_its_check(
    machine: Machine, name: str, script: str, expected: Mapping[str, Action]
) -> None:
    """Errors in the kernel log, a dead driver, a hanging server: known error numbers decide, new ones are reported."""
    program(machine.root, name, script)

    assert failed(Machine(machine.root, timeout=1)) == expected


def test_a_missing_tool_fails_a_gpu_machine(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without nvidia-smi a machine with GPUs fails; one without GPUs does not need it."""
    (machine.root / "bin/nvidia-smi").unlink()
    monkeypatch.setenv("PATH", f"{machine.root}/bin:/bin")

    assert failed(machine) == {"driver": Action.REPAIR}
    assert failed(machine, Expected()) == {}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("sys/class/infiniband/rdmap32s27", {"efa": Action.REPLACE}),
        ("sys/module/nvidia", {"driver": Action.REBOOT}),
    ],
)
def test_a_missing_device_fails(machine: Machine, path: str, expected: Mapping[str, Action]) -> None:
    """A missing EFA device, or a driver that is not loaded."""
    shutil.rmtree(machine.root / path)

    assert failed(machine) == expected


@pytest.mark.parametrize(
    ("options", "expected"), [("ro,relatime", {"root-disk": Action.REPLACE}), ("rw,errors=ro", {})]
)
def test_a_read_only_root_fails(machine: Machine, options: str, expected: Mapping[str, Action]) -> None:
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
    assert failed(machine, Expected("595", Gpus("h100", 8))) == {"driver": Action.REPAIR}


def test_the_verdict_is_written_for_programs(machine: Machine) -> None:
    """JSON has each finding and the gravest action, Prometheus one line for each check."""
    program(machine.root, "journalctl", f"echo '{LOG.format(79)}'")
    verdict = judge(machine, PLANNED)

    document = verdict.document()
    assert (document["ok"], document["action"], document["boot"]) == (False, "reboot", "1d4f")
    assert 'bedplate_gate_ok{check="gpu-errors"} 0\n' in verdict.metrics()
    assert 'bedplate_gate_ok{check="gpus"} 1\n' in verdict.metrics()
    assert verdict.lines()[-1] == "gate failed: reboot"


@pytest.mark.parametrize(("text", "check"), [("{", "plan"), ("{}", "type"), ('{"types": {"g6.xlarge": {}}}', "type")])
def test_an_unusable_plan_fails(machine: Machine, text: str, check: str) -> None:
    """A damaged plan, or one without the machine's type, fails the gate instead of checking nothing."""
    file = machine.root / "gate.json"
    file.write_text(text)

    assert [finding.check for finding in read_verdict(machine, file).findings if not finding.ok] == [check]


def test_a_group_has_expectations_for_each_type() -> None:
    """A machine of a group with several types is judged as the type that it is."""
    expected = expectations(lab_node("workbench-gpu-1.us-west-2"), load_catalog())

    types = load_catalog().types
    assert tuple(expected) == lab_node("workbench-gpu-1.us-west-2").types
    for name, entry in expected.items():
        gpu = types[name].gpu
        assert entry.gpus
        assert gpu
        assert (entry.gpus.model, entry.gpus.count, entry.gpus.memory) == (gpu.name, gpu.count, gpu.memory_mib)


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
    ("script", "action"),
    [
        (f"echo '{DIAGNOSTICS}'", Action.NONE),
        ("echo unable to connect to the host engine >&2; exit 1", Action.REPLACE),
        (None, Action.MONITOR),
    ],
)
def test_the_first_gate_of_a_boot_runs_dcgm(machine: Machine, script: str | None, action: Action) -> None:
    """Level 1; without DCGM it is reported as not run. Later gates of the same boot leave DCGM to others."""
    if script:
        program(machine.root, "dcgmi", script)
    first = judge(machine, MARKED, check_new_boot)
    assert [finding.action for finding in first.findings if finding.check == "dcgm"] == [action]

    file = machine.root / "verdict.json"
    file.write_text(json.dumps({"ok": True, "boot": machine.read("/proc/sys/kernel/random/boot_id")}))
    assert has_passed(machine, file)
    file.write_text(json.dumps({"ok": True, "boot": "another"}))
    assert not has_passed(machine, file)


@pytest.mark.parametrize(
    ("name", "script", "expected"),
    [
        ("nvidia-smi", "true", {}),
        ("nvidia-smi", "echo 4711", {"in-use": Action.REPAIR}),
        (
            "dcgmi",
            f'echo \'{DIAGNOSTICS}\' | sed \'s/1, "status": "Pass/1, "status": "Fail/\'',
            {"dcgm": Action.REPLACE},
        ),
        ("dcgmi", None, {"dcgm": Action.REPAIR}),
        ("all_reduce_perf", "echo '# Avg bus bandwidth    : 301.2'", {"all-reduce": Action.REPLACE}),
        ("all_reduce_perf", None, {}),
    ],
)
def test_a_burn_in_finds_its_defect(
    machine: Machine, name: str, script: str | None, expected: Mapping[str, Action]
) -> None:
    """A failed or missing diagnosis and a slow all-reduce fail it; without nccl-tests the bandwidth is not measured."""
    for tool, text in LONG_TESTS.items():
        program(machine.root, tool, text)
    if script is None:
        (machine.root / "bin" / name).unlink()
    else:
        program(machine.root, name, script)

    verdict = judge(machine, MARKED, burn_in)

    assert {finding.check: finding.action for finding in verdict.findings if not finding.ok} == expected
