"""A machine reports its use: logins, load and GPUs, and since when there was none."""

import fcntl
import json
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bedplate.programs import idle
from bedplate.programs.idle import is_due, main, next_report, use_of
from bedplate.programs.program import MissingProgramError

NOW = 1_795_410_000
QUIET = {
    "loginctl list-sessions": "",
    "systemctl": "ActiveState=inactive\nInactiveEnterTimestampMonotonic=0\n",
    "nvidia-smi": "0, 0\n1, 0\n",
    "env STATUS=idle": "",
}


@dataclass(frozen=True)
class Fake(idle.Machine):
    """A machine with GPUs whose programs print recorded texts; it records its calls."""

    answers: dict[str, str] = field(default_factory=lambda: dict(QUIET))
    calls: list[str] = field(default_factory=list)

    def output(self, *command: str) -> str:
        """Return the text of a program."""
        line = " ".join(command)
        self.calls.append(line)
        for start, text in self.answers.items():
            if line.startswith(start):
                return text
        raise MissingProgramError(f"{command[0]} is not installed")


@pytest.fixture
def machine(tmp_path: Path) -> Fake:
    """Return an unused machine with GPUs."""
    gpu = tmp_path / "sys/bus/pci/devices/0000:31:00.0"
    gpu.mkdir(parents=True)
    (gpu / "vendor").write_text("0x10de\n")
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/loadavg").write_text("0.10 0.20 0.30 1/300 4000\n")
    return Fake(tmp_path)


def _sessions(*sessions: str) -> dict[str, str]:
    listed = "".join(f" {number} 20000 ada -    pts/0 active no -\n" for number in range(len(sessions)))
    return {"loginctl list-sessions": listed, "loginctl show-session": "\n\n".join(sessions) + "\n"}


@pytest.mark.parametrize(
    ("answers", "load", "use"),
    [
        ({}, "0.10", ""),
        (_sessions("Name=ada\nClass=user\nState=active", "Name=ben\nClass=user\nState=closing"), "0", "logged in: ada"),
        (_sessions("Name=ben\nClass=user\nState=closing", "Name=gdm\nClass=greeter\nState=active"), "0", ""),
        (_sessions("Name=ben\nClass=user\nState=closing"), "1.00", "CPU load 1.00"),
        ({"nvidia-smi": "0, 0\n1, 87\n"}, "0", "GPU 1 at 87 %"),
        ({"nvidia-smi": "0, [N/A]\n"}, "0", "GPU 0 at [N/A] %"),
        ({"nvidia-smi": ""}, "0", "unknown use: nvidia-smi lists no GPU"),
        ({"loginctl list-sessions": "7 20000 ada\n"}, "0", "unknown use: loginctl is not installed"),
        ({}, "much", "unknown use: a program printed something unexpected"),
    ],
    ids=["nothing", "login", "left", "detached job", "GPU", "MIG", "driver", "program fails", "strange text"],
)
def test_what_counts_as_use(machine: Fake, answers: dict[str, str], load: str, use: str) -> None:
    """A login, load or a GPU; programs without a session count by their load; whatever is unknown counts."""
    machine.answers.update(answers)
    (machine.root / "proc/loadavg").write_text(f"9.00 {load} 0.00 1/300 4000\n")

    assert use_of(machine, was_idle=False) == use


def test_a_lease_of_a_gpu_is_use(machine: Fake) -> None:
    """Who has leased a GPU may be loading data, or thinking: the machine stays."""
    file = machine.root / "run/bedplate/gpus/gpu-3"
    file.parent.mkdir(parents=True)
    file.write_text("GPU-3")

    with file.open() as lease:
        fcntl.flock(lease, fcntl.LOCK_EX)
        leased = use_of(machine, was_idle=True)

    assert leased == "GPU 3 is leased"
    assert use_of(machine, was_idle=True) == ""


def test_the_configuration_run_is_no_use(machine: Fake) -> None:
    """Its load keeps an unused machine unused for ten minutes, but hides no work that was there before."""
    (machine.root / "proc/loadavg").write_text("0 0.90 0 1/300 4000\n")
    ended = int((time.monotonic() - 60) * 1e6)
    machine.answers["systemctl"] = f"ActiveState=inactive\nInactiveEnterTimestampMonotonic={ended}\n"

    assert use_of(machine, was_idle=True) == ""
    assert use_of(machine, was_idle=False) == "CPU load 0.90"
    machine.answers.update(QUIET)
    assert use_of(machine, was_idle=True) == "CPU load 0.90"


def test_the_idle_time_begins_after_the_last_use() -> None:
    """The idle time continues from reading to reading, and begins again after a reboot or a gap."""
    first = next_report({}, "", NOW)
    assert first["idle_since"] == NOW
    assert next_report(first, "", NOW + 60)["idle_since"] == NOW
    assert next_report(first, "CPU load 1.00", NOW + 60)["idle_since"] is None
    assert next_report(first, "", NOW + 901)["idle_since"] == NOW + 901


def test_a_report_is_written_when_it_is_due(machine: Fake) -> None:
    """Every five minutes, and at once if the use has changed; after an error at the next look."""
    upload = "env STATUS=idle /usr/local/lib/bedplate/bootstrap put_status"
    published = machine.root / "var/lib/bedplate/status/idle.json"
    for seconds in (0, 60, 299, 300):
        main(machine, NOW + seconds)
    assert machine.calls.count(upload) == 2
    assert json.loads(published.read_text()) == {"version": 1, "time": NOW + 300, "idle_since": NOW, "use": ""}
    assert is_due({"idle_since": NOW, "time": NOW}, {"idle_since": None, "time": NOW + 60})

    del machine.answers["env STATUS=idle"]
    machine.answers["nvidia-smi"] = "0, 50\n"
    main(machine, NOW + 360)
    assert not published.exists()
