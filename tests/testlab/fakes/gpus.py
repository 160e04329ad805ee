"""A machine with GPUs whose programs are fakes: each prints what a real one is known to print in a situation."""

import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from shlex import quote

import pytest

from bedplate.programs.gate.__main__ import Checks, check_all, judge
from bedplate.programs.gate.machine import Expected, Gpus, Machine
from bedplate.programs.gate.verdict import Action, Cause, Finding, Verdict

DATA = Path(__file__).parents[2] / "data/gate"
VERSION = "580.95.05"
EIGHT_H100 = Expected("580", Gpus("h100", 8, 81920, switched=True), cloud=True)
WIDTH = "pci/pci_gpu_link_info/link_widths/current_link_width"
_LINKS = "\n".join(f"\t Link {number}: 26.562 GB/s" for number in range(18))
Changes = Mapping[str, str]


def gpu(number: int = 0, changes: Changes | None = None) -> ET.Element:
    """Return an H100 in the document of nvidia-smi, with other texts in some of its elements."""
    element = ET.parse(DATA / "gpu.xml").getroot()  # noqa: S314  our own
    element.set("id", f"00000000:{0x50 + number:02X}:00.0")
    for path, text in (changes or {}).items():
        below = element
        for tag in path.split("/"):
            found = below.find(tag)
            below = ET.SubElement(below, tag) if found is None else found
        below.text = text
    return element


def document(gpus: Sequence[ET.Element], version: str = VERSION) -> str:
    """Return the document of nvidia-smi."""
    root = ET.Element("nvidia_smi_log")
    ET.SubElement(root, "driver_version").text = version
    root.extend(gpus)
    return ET.tostring(root, encoding="unicode")


@dataclass(frozen=True)
class Situation:
    """What the programs of a machine say; `gpus` has the changes of the GPUs by number, `all` of each."""

    planned: Expected = EIGHT_H100
    count: int = 8
    gpus: Mapping[int, Changes] = field(default_factory=dict)
    all: Changes = field(default_factory=dict)
    smi: str = ""
    """The words of nvidia-smi without a document, for people or because it fails."""
    smi_status: int = 0
    log: str = ""
    dcgm: str | None = None
    dcgm_status: int = 0
    manager: str = "active"
    links: str = _LINKS
    files: Mapping[str, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """What nvidia-smi prints."""
        return self.smi or document([gpu(n, {**self.all, **self.gpus.get(n, {})}) for n in range(self.count)])


def build(root: Path, situation: Situation, monkeypatch: pytest.MonkeyPatch, timeout: float = 0.3) -> Machine:
    """Return a machine in a situation."""
    files = {
        "sys/module/nvidia/version": f"{VERSION}\n",
        "proc/sys/kernel/random/boot_id": "1d4f\n",
        "smi.xml": situation.text,
        "kernel.log": situation.log,
        "dcgm.out": situation.dcgm or "",
        "links.txt": situation.links,
        **situation.files,
    }
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    here = quote(str(root))
    program(
        root,
        "nvidia-smi",
        f"case $1 in nvlink) cat {here}/links.txt;; *) cat {here}/smi.xml; exit {situation.smi_status};; esac",
    )
    program(root, "journalctl", f"cat {here}/kernel.log")
    program(root, "systemctl", f"echo {situation.manager}; [ {situation.manager} = active ]")
    program(root, "chronyc", "echo 'Leap status     : Normal'")
    if situation.dcgm is not None:
        program(root, "dcgmi", f"cat {here}/dcgm.out; exit {situation.dcgm_status}")
    monkeypatch.setenv("PATH", f"{root}/bin:/usr/bin:/bin")
    return Machine(root, timeout)


def program(root: Path, name: str, script: str) -> None:
    """Write a fake program."""
    file = root / "bin" / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)


Failed = Mapping[str, tuple[Cause | None, Action]]


def remarks(findings: Sequence[Finding]) -> Failed:
    """Return the cause and the action of each finding that is not about a healthy part, by check."""
    return {entry.check: (entry.cause, entry.action) for entry in findings if entry.action is not Action.NONE}


def verdict_of(
    machine: Machine, situation: Situation, checks: Checks = check_all, last: Verdict | None = None
) -> Verdict:
    """Return the verdict on a machine, after an earlier one of the same boot."""
    before = last.document() if last else {}
    return judge(replace(machine, last=before), situation.planned, checks)
