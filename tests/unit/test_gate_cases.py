"""Public reports of GPUs that gates judge wrong: fake programs say what the report says, and the verdict is right.

Each case names its report on github.com, or the manual. Outputs are made anew, of the elements and words that it has.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from bedplate.programs.gate.__main__ import check_new_boot
from bedplate.programs.gate.machine import Expected, Gpus
from bedplate.programs.gate.verdict import Action, Cause
from tests.testlab.fakes.gpus import EIGHT_H100, WIDTH, Failed, Situation, build, remarks, verdict_of

REPLACE, REBOOT = (Cause.HARDWARE, Action.REPLACE), (Cause.HARDWARE, Action.REBOOT)
SOFTWARE = (Cause.SOFTWARE, Action.REPAIR)
UNKNOWN, NOTED = (Cause.UNKNOWN, Action.MONITOR), (None, Action.MONITOR)
UNDECIDED = (Cause.UNKNOWN, Action.REPAIR)


def _planned(model: str, count: int, memory: int = 0, *, switched: bool = False) -> Expected:
    return replace(EIGHT_H100, gpus=Gpus(model, count, memory, switched=switched))


@dataclass(frozen=True)
class Case:
    """A situation in public reports, and the remarks of the gate: cause and action by check."""

    sources: str
    situation: Situation
    expected: Failed


def _report(category: str, name: str, status: str, warning: Mapping[str, object] | None = None) -> str:
    """Return a report of DCGM 4, after the words that it may print first."""
    results = [{"status": status, "warnings": [warning] if warning else []}]
    passed = {"category": "Deployment", "tests": [{"name": "software", "results": [{"status": "Pass"}]}]}
    other = {"category": category, "tests": [{"name": name, "results": results, "test_summary": {"status": status}}]}
    report = {"DCGM Diagnostic": {"test_categories": [passed, other]}}
    return f"Successfully ran diagnostic for group.\n{json.dumps(report)}"


_CARD = {"product_name": "NVIDIA A100 80GB PCIe", "fabric/state": "N/A", "fabric/status": "N/A"}
_ENGINE = "Error: unable to establish a connection to the specified host: localhost\nUnable to connect to host engine."
_IN_A_VM = {"gpu_virtualization_mode/virtualization_mode": "Pass-Through"}
_PERSISTENCE = {"warning": "Persistence mode for GPU 0 is disabled.", "error_category": 3, "error_id": 29}
_SLOTS = {f"sys/bus/pci/devices/0000:{0x50 + n:02x}:00.0/max_link_width": "16\n" for n in range(2)} | {
    "sys/bus/pci/devices/max_link_width": "8\n"
}

CASES = {
    "one of eight GPUs fails in the driver's probe": Case(
        "NVIDIA/aicr#1858",
        Situation(count=7, log="NVRM: The NVIDIA probe routine failed for 1 device(s)."),
        {"gpus": REPLACE},
    ),
    "a fatal error of NVLink, and the GPU looks healthy": Case(
        "NVIDIA/open-gpu-kernel-modules#1355",
        Situation(log="NVRM: Xid (PCI:0000:66:00): 145, RLW_RXPIPE Fatal XC0 i0 Link 04 (0x0 0x80000000 0x0)"),
        {"gpu-errors": REBOOT},
    ),
    "an error of NVLink that is not fatal": Case(
        "leptonai/gpud#1174, NVIDIA/nccl#2241",
        Situation(log="NVRM: Xid (PCI:0018:01:00): 145, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2 0x8 0x1)"),
        {"gpu-errors": NOTED},
    ),
    "the driver asks for a reset of a GPU": Case(
        "NVIDIA/DCGM#263, scitix/sichek#121",
        Situation(gpus={1: {"gpu_recovery_action": "Reset"}}),
        {"gpu-recovery": REBOOT},
    ),
    "an older driver asks for a reset of a GPU": Case(
        "manual of nvidia-smi, GPU Reset Status",
        Situation(all={"gpu_recovery_action": "N/A"}, gpus={1: {"gpu_reset_status/reset_required": "Yes"}}),
        {"gpu-recovery": REBOOT},
    ),
    "other machines of the domain must recover, not this one": Case(
        "kubernetes-sigs/dra-driver-nvidia-gpu#1441",
        Situation(gpus={0: {"gpu_recovery_action": "Recover IMEX Domain"}}),
        {"gpu-recovery": SOFTWARE},
    ),
    "the driver advises an action that no table knows": Case(
        "https://docs.nvidia.com/deploy/nvml-api",
        Situation(gpus={0: {"gpu_recovery_action": "Reseat"}}),
        {"gpu-recovery": UNKNOWN},
    ),
    "a fatal error of an NVSwitch": Case(
        "leptonai/gpud#338, cihlab/fics-cluster-guide#53",
        Situation(
            log="nvidia-nvswitch0: SXid (PCI:0000:c3:00.0): 20034, Fatal, Link 30 LTSSM Fault Up\n"
            "nvidia-nvswitch0: SXid (PCI:0000:c3:00.0): 20034, Severity 1 Engine instance 30 Sub-engine instance 00\n"
            "nvidia-nvswitch0: SXid (PCI:0000:c3:00.0): 20034, Data {0x50610002, 0x10100030}"
        ),
        {"gpu-errors": REBOOT},
    ),
    "an error of an NVSwitch that is not fatal": Case(
        "NVIDIA/NVSentinel#1825",
        Situation(log="nvidia-nvswitch3: SXid (PCI:0000:a4:00.0): 24007, Non-fatal, Link 46 sourcetrack timeout error"),
        {"gpu-errors": NOTED},
    ),
    "a GPU under the power brake, at the first gate": Case(
        "NVIDIA/NVSentinel#890, leptonai/gpud#330",
        Situation(gpus={2: {"clocks_event_reasons/clocks_event_reason_hw_power_brake_slowdown": "Active"}}),
        {"gpu-clocks": UNKNOWN},
    ),
    "the fabric has too few resources": Case(
        "Azure/azhpc-images#506",
        Situation(all={"fabric/status": "Insufficient Resources"}),
        {"nvlink": REBOOT},
    ),
    "a route of the fabric is bad": Case(
        "NVIDIA/k8s-test-infra, nvidia-smi of a GB200 with an injected fault",
        Situation(gpus={1: {"fabric/health/summary": "Unhealthy", "fabric/health/route_unhealthy": "True"}}),
        {"nvlink": REBOOT},
    ),
    "the Fabric Manager has failed": Case(
        "NVIDIA/NVSentinel#883, aws-samples/aws-deep-learning-ami-ubuntu-dcv-desktop#33",
        Situation(manager="failed", all={"fabric/state": "In Progress", "fabric/status": "N/A"}),
        {"nvlink": SOFTWARE},
    ),
    "a single GPU of a board with NVSwitch has no fabric": Case(
        "huggingface/huggingface_hub#4134",
        Situation(
            planned=_planned("h200", 1),
            count=1,
            all={**_IN_A_VM, "product_name": "NVIDIA H200", "fabric/state": "In Progress", "fabric/status": "N/A"},
        ),
        {"nvlink": UNKNOWN},
    ),
    "the links of one GPU are inactive": Case(
        "NVIDIA/open-gpu-kernel-modules#1150",
        Situation(links="\n".join([*["\t Link 0: 50 GB/s"] * 7, "\t Link 0: <inactive>"])),
        {"nvlink": REPLACE},
    ),
    "all links are inactive, and the Fabric Manager runs": Case(
        "manual of nvidia-smi, nvlink --status",
        Situation(links="\n".join(["\t Link 0: <inactive>"] * 8)),
        {"nvlink": UNDECIDED},
    ),
    "a test of a category that DCGM did not have fails": Case(
        "https://docs.nvidia.com/datacenter/dcgm/latest/reference/diagnostics/index.html",
        Situation(dcgm=_report("Novel", "quantum", "Fail"), dcgm_status=1),
        {"dcgm": UNDECIDED},
    ),
    "the software test of DCGM finds rows that wait for a repair": Case(
        "https://docs.nvidia.com/datacenter/dcgm/latest/reference/diagnostics/errors.html",
        Situation(dcgm=_report("Deployment", "software", "Fail", {"error_category": 10}), dcgm_status=1),
        {"dcgm": REPLACE},
    ),
    "the host engine of DCGM does not listen yet": Case(
        "NVIDIA/NVSentinel#1034",
        Situation(dcgm=_ENGINE, dcgm_status=226),
        {"dcgm": UNDECIDED},
    ),
    "DCGM ends with an error of its own": Case(
        "NVIDIA/DCGM#158",
        Situation(dcgm="", dcgm_status=226),
        {"dcgm": UNDECIDED},
    ),
    "DCGM skips all tests": Case(
        "NVIDIA/DCGM#139, NVIDIA/DCGM#55",
        Situation(dcgm=_report("Hardware", "memory", "Skip").replace('"Pass"', '"Skip"')),
        {"dcgm": UNDECIDED},
    ),
    "DCGM finds persistence mode disabled": Case(
        "NVIDIA/NVSentinel#772",
        Situation(dcgm=_report("Deployment", "software", "Fail", _PERSISTENCE), dcgm_status=1),
        {"dcgm": SOFTWARE},
    ),
    "a test of memory cannot use CUDA": Case(
        "NVIDIA/DCGM#284, https://docs.nvidia.com/datacenter/dcgm/latest/reference/diagnostics/errors.html",
        Situation(dcgm=_report("Hardware", "memory", "Fail", {"error_category": 6}), dcgm_status=1),
        {"dcgm": SOFTWARE},
    ),
    "a test of PCIe fails, and DCGM exits with an error": Case(
        "IBM/autopilot#68",
        Situation(dcgm=_report("Integration", "pcie", "Fail"), dcgm_status=226),
        {"dcgm": REPLACE},
    ),
    "MIG is enabled on one of eight GPUs": Case(
        "NVIDIA/DCGM#70, aws/aws-parallelcluster-cookbook#3183",
        Situation(gpus={2: {"mig_mode/current_mig": "Enabled", "mig_mode/pending_mig": "Enabled"}}, dcgm="fails"),
        {"gpu-mig": SOFTWARE, "dcgm": NOTED},
    ),
    "MIG is enabled as planned": Case(
        "NVIDIA/DCGM#94",
        Situation(
            planned=replace(EIGHT_H100, gpus=Gpus("h100", 8, 81920, switched=True, mig=True)),
            all={"mig_mode/current_mig": "Enabled", "mig_mode/pending_mig": "Enabled"},
            links="\n".join(["\t Link 0: <inactive>"] * 8),
            dcgm="fails",
        ),
        {"dcgm": NOTED},
    ),
    "eight A100 cards have no NVSwitch": Case(
        "NVIDIA/gpu-operator#610, NVIDIA/NVSentinel#1481",
        Situation(
            planned=_planned("a100", 8, switched=True),
            all=_CARD,
            manager="failed",
            links="\n".join(["\t Link 0: <inactive>"] * 8),
        ),
        {},
    ),
    "eight H100 NVL cards have no NVSwitch": Case(
        "wilicc/gpu-burn#141",
        Situation(
            planned=_planned("h100", 8, switched=True),
            all={**_CARD, "product_name": "NVIDIA H100 NVL"},
            manager="failed",
        ),
        {},
    ),
    "an L40S on AWS has half of its lanes": Case(
        "NVIDIA/k8s-test-infra, nvidia-smi of a g6e.2xlarge; GoogleCloudPlatform/cluster-toolkit#5972",
        Situation(
            planned=_planned("l40s", 1, 46068),
            count=1,
            all={**_CARD, **_IN_A_VM, "product_name": "NVIDIA L40S", WIDTH: "8x"},
        ),
        {"gpu-pcie": UNKNOWN},
    ),
    "one of eight equal GPUs has half of its lanes": Case(
        "NVIDIA/NVSentinel#891",
        Situation(gpus={5: {WIDTH: "8x"}}),
        {"gpu-pcie": REPLACE},
    ),
    "a slot has fewer lanes than its busy card": Case(
        "Tesla M10 and GTX 1050, manual of nvidia-smi, Link Width",
        Situation(
            planned=_planned("a100", 2),
            count=2,
            all={**_CARD, WIDTH: "8x", "clocks_event_reasons/clocks_event_reason_gpu_idle": "Not Active"},
            files=_SLOTS,
        ),
        {},
    ),
    "a GPU has fallen off the bus, without a number": Case(
        "NVIDIA/NVSentinel#155, leptonai/gpud#1209",
        Situation(
            count=7,
            log="NVRM: The NVIDIA GPU 0000:b3:00.0\nNVRM: (PCI ID: 10de:26b5) installed in this system has\n"
            "NVRM: fallen off the bus and is not responding to commands.",
        ),
        {"gpus": REPLACE, "gpu-errors": REBOOT},
    ),
    "nvidia-smi cannot reach a GPU": Case(
        "NVIDIA/dcgm-exporter#604, NVIDIA/open-gpu-kernel-modules#387",
        Situation(smi="Unable to determine the device handle for GPU0000:BA:80.0: Unknown Error", smi_status=255),
        {"driver": REBOOT},
    ),
    "a GPU is lost": Case(
        "NVIDIA/k8s-test-infra, nvidia-smi of a GB200 with an injected fault",
        Situation(gpus={3: {"utilization/gpu_util": "GPU is lost", "fabric/state": "[GPU is lost]"}}),
        {"gpu-lost": REBOOT},
    ),
    "a library is newer than the loaded driver": Case(
        "lyulyul/shine-cluster#30, pando85/homelab#4110",
        Situation(smi="Failed to initialize NVML: Driver/library version mismatch", smi_status=18),
        {"driver": (Cause.SOFTWARE, Action.REBOOT)},
    ),
    "no driver is loaded": Case(
        "lyulyul/shine-cluster#50",
        Situation(smi="NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", smi_status=9),
        {"driver": (Cause.SOFTWARE, Action.REBOOT)},
    ),
    "an infoROM is corrupted": Case(
        "microsoft/pai#3756, pytorch/pytorch#87464, NVIDIA/DCGM#2",
        Situation(smi_status=14),
        {"gpu-inforom": UNKNOWN},
    ),
    "the kernel logs a number that no catalogue has": Case(
        "NVIDIA/k8s-device-plugin#259",
        Situation(log="NVRM: Xid (PCI:0000:3b:00): 999, pid=12, name=Fatal, something"),
        {"gpu-errors": UNKNOWN},
    ),
    "a program faults on a GPU": Case(
        "NVIDIA/k8s-device-plugin#1974, NVIDIA/NVSentinel#911",
        Situation(log="NVRM: Xid (PCI:0000:c4:00): 31, pid=9, name=train, MMU Fault: ENGINE GRAPHICS"),
        {"gpu-errors": NOTED},
    ),
    "a GPU cannot remap a row": Case(
        "aws/eks-node-monitoring-agent#245",
        Situation(gpus={6: {"remapped_rows/remapped_row_failure": "Yes"}}),
        {"gpu-rows": REPLACE},
    ),
    "a row waits for a reset": Case(
        "leptonai/gpud#80",
        Situation(gpus={6: {"remapped_rows/remapped_row_unc": "4", "remapped_rows/remapped_row_pending": "Yes"}}),
        {"gpu-rows": REBOOT},
    ),
    "the link to a GPU goes down": Case(
        "wilicc/gpu-burn#1, rwth-i6/returnn#1500",
        Situation(
            log="pcieport 0000:00:02.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer\n"
            "NVRM: Xid (PCI:0000:02:00): 79, GPU has fallen off the bus."
        ),
        {"gpu-errors": REBOOT},
    ),
    "PCIe corrects its errors": Case(
        "pop-os/pop#3363, hirschmann/nbfc#181",
        Situation(log="pcieport 0000:00:03.1: PCIe Bus Error: severity=Corrected, type=Data Link Layer, (Receiver ID)"),
        {},
    ),
    "the memory of the machine has an uncorrectable error": Case(
        "ovro-lwa/lwa-issues#117",
        Situation(log="EDAC MC3: 1 UE memory read error on CPU_SrcID#1_MC#1_Chan#2_DIMM#0 (channel:2 slot:0)"),
        {"gpu-errors": REBOOT},
    ),
    "the memory of the machine corrects its errors": Case(
        "radiasoft/devops#134, openstreetmap/operations#300",
        Situation(
            log="mce: [Hardware Error]: Machine check events logged\n"
            "EDAC MC1: 1 CE memory scrubbing error on CPU_SrcID#1_Ha#0_Chan#0_DIMM#0"
        ),
        {"gpu-errors": UNKNOWN},
    ),
    "a new Vera Rubin has half a name and two lanes": Case(
        "NVIDIA/k8s-test-infra, nvidia-smi of a Vera Rubin NVL72",
        Situation(
            planned=_planned("vr200", 4),
            count=4,
            all={"product_name": "NVIDIA Graphics Device", "ecc_errors/unrepairable_memory": "Yes", WIDTH: "2x"},
        ),
        {"gpus": UNKNOWN, "gpu-ecc": UNKNOWN, "gpu-pcie": UNKNOWN},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_reported_case_gets_the_right_verdict(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken hardware, broken software, and what nobody can tell are three verdicts; healthy machines pass."""
    case, report = CASES[name], _report("Hardware", "memory", "Pass")
    situation = case.situation if case.situation.dcgm is not None else replace(case.situation, dcgm=report)
    machine = build(tmp_path, situation, monkeypatch)

    verdict = verdict_of(machine, situation, check_new_boot)

    assert remarks(verdict.findings) == case.expected, "\n".join(verdict.report())
    failed = {cause for cause, action in case.expected.values() if action is not Action.MONITOR}
    assert verdict.cause == next((cause for cause in Cause if cause in failed), None)
