"""Sixty runs of two people with a kill at a random time each: no GPU twice, no run lost or doubled, each has an end."""

import json
import random
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.testlab.kills import LINES, SCRIPT, KilledRun
from tests.testlab.machines.container import CommandError
from tests.testlab.machines.layers import RELEASE
from tests.testlab.machines.whole_hub import FAKETIME, INSTALL_FAKETIME, result_of
from tests.testlab.machines.whole_runs import RECORD, WholeRuns
from tests.testlab.network.netlab import until

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(RELEASE != "bookworm", reason="a workbench with all roles has not passed on Debian 13 yet"),
]

RUNS, AT_ONCE = 60, 4
EVENTS = ("agent or lease", "program", "ssh", "bp", "laptop", "a service of the hub", "hub", "nothing")
# Beside a program with the same GPU it could not lock this file; one that is being killed has a second to end.
PROOF = """import fcntl, os, sys, time
rank, gpus = int(os.environ.get("RANK", 0)), os.environ["CUDA_VISIBLE_DEVICES"].split(",")
handle = os.open(f"/srv/proof/{gpus[rank]}", os.O_RDWR)
for _ in range(100):
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        break
    except BlockingIOError:
        time.sleep(0.01)
else:
    open("/srv/proof/twice", "a").write(f"{sys.argv[1]} {gpus[rank]}\\n")
os.set_inheritable(handle, True)
with open("script") as file:
    os.execvp("sh", ["sh", "-c", file.read(), f"/srv/proof/{sys.argv[1]}.{rank}"])
"""
# The first process of a unit waits for GPUs, then becomes the agent; others are those of the program.
_UNIT = "cat /sys/fs/cgroup/user.slice/*/*/app.slice/bp-*-{word}.service/cgroup.procs"
# bp could not write them: it was killed, or its hub was.
_SENT = {"sent", "queued"}


@dataclass
class Plan:
    """A run of a person, what is killed, and when: in seconds after the start of bp."""

    word: str
    """The end of the name of the run."""
    person: str
    gpus: int
    event: str
    moment: float
    status: int = 0


@dataclass
class Night:
    """The machines, and what is killed on them."""

    runs: WholeRuns
    seed: int
    chance: random.Random
    code: int = 7
    log: list[str] = field(default_factory=list)

    def seconds(self) -> float:
        """Return the length of a run to which nothing happens, of which two have this load."""
        start = time.monotonic()
        with ThreadPoolExecutor(AT_ONCE) as pool:
            plans = [Plan(f"s{self.seed}-of-{number}", "grace", 1, "nothing", 0) for number in range(AT_ONCE)]
            statuses = list(pool.map(self.live_through, plans))
        assert statuses == [self.code] * AT_ONCE
        return time.monotonic() - start

    def live_through(self, plan: Plan) -> int:
        """Start a run, kill what is planned, and return the status of bp."""
        options = ("--on", "titan-03", "--gpus", str(plan.gpus), "--name", plan.word)
        program = self.runs.laptops[plan.person].start_run(*options, "--", "python3", "proof.py", plan.word)
        time.sleep(plan.moment)
        # The unit may have ended, or not have begun.
        with suppress(CommandError):
            self._kill(plan)
        plan.status = result_of(program, 300).returncode
        return plan.status

    def _kill(self, plan: Plan) -> None:
        laptop, bench = self.runs.laptops[plan.person], self.runs.bench.node
        unit = _UNIT.format(word=plan.word)
        if plan.event == "agent or lease":
            bench.run(f"kill -KILL $({unit} | head -n 1)")
        elif plan.event == "program":
            bench.run(f"kill -KILL $({unit} | tail -n +2)")
        elif plan.event == "ssh":
            laptop.node.run(f"pkill --signal KILL --uid {laptop.account} --exact ssh")
        elif plan.event == "bp":
            laptop.node.run(f"pkill --signal KILL --uid {laptop.account} --full -- '--name {plan.word} '")
        elif plan.event == "laptop":
            laptop.close()
        elif plan.event == "hub":
            self.runs.kill_hub()
        elif plan.event == "a service of the hub":
            self.runs.kill_hub(self.chance.choice(RECORD.split(" ", 3)))

    def state(self, plan: Plan) -> Mapping[str, Any]:
        """Return the record of a run; empty if there is none."""
        records = self.runs.records(plan.word)
        assert len(records) <= 1, records
        return records[0] if records else {}

    def end(self, plan: Plan) -> str:
        """Return what is wrong with a run in the end, of which its person asks if the record has none."""
        bench, record, own = self.runs.bench, self.state(plan), self.runs.folder(plan.person, f"*-{plan.word}")
        starts = [len(text.splitlines()) for text in self._texts(f"/srv/proof/{plan.word}.*")]
        if not self.runs.has(own):
            is_right = (not record or record["state"] in {*_SENT, "ended"}) and not starts
            return "" if is_right and plan.status != self.code else f"not started, {starts}, {record}, {plan}"
        if not record:
            return f"started without a record, {plan}"
        if record["state"] != "ended":
            self.runs.laptops[plan.person].bp("logs", "-f", record["run_name"], seconds=300)
            self.log.append(f"{plan} had no end before its person asked")
            record = self.state(plan)
        end = json.loads(bench.node.run(f"cat {own}/end.json || echo '{{}}'"))
        output = self.runs.bp(plan.person, "logs", record["run_name"])
        has_processes = bool(bench.node.run(f"{_UNIT.format(word=plan.word)} 2>/dev/null || true"))
        killed = KilledRun(self.code, plan.status, max(starts, default=0), output, end, record, has_processes)
        wrong = killed.problems()
        return f"{wrong}: {plan}, {end}, {record}, {output!r}" if wrong else ""

    def _texts(self, pattern: str) -> Iterator[str]:
        for path in sorted(self.runs.bench.node.root.glob(pattern[1:])):
            yield path.read_text()

    def sweep(self) -> None:
        """Let the hub look for lost runs, as after the end of all tokens, without which none that was queued starts."""
        node, folder = self.runs.hub.node, "/run/systemd/system/bedplate-hub-sweep.service.d"
        node.run(INSTALL_FAKETIME, 300)
        text = f"[Service]\\nEnvironment=LD_PRELOAD={FAKETIME} FAKETIME=+61d\\n"
        node.run(f"mkdir -p {folder}; printf '{text}' >{folder}/time.conf; systemctl daemon-reload")
        node.run("systemctl stop bedplate-hub-sweep.timer; systemctl start bedplate-hub-sweep.service")
        node.run(f"rm -r {folder}; systemctl daemon-reload; systemctl start bedplate-hub-sweep.timer")


@pytest.fixture
def night(runs: WholeRuns) -> Night:
    """Return the machines with the code of both people, and a seed, which pytest prints after a failure."""
    seed = time.time_ns() % 1_000_000
    print(f"seed {seed}")  # noqa: T201  of a test that has failed
    night = Night(runs, seed, random.Random(seed))  # noqa: S311  a test that can be repeated
    for laptop in runs.laptops.values():
        laptop.write("proof.py", PROOF)
        laptop.write("script", SCRIPT.format(pause=0.4, code=night.code))
    # Nobody may create the file of another person there.
    locks = "cd /srv/proof; touch GPU-0 GPU-1 GPU-2 GPU-3; chmod 666 GPU-*"
    runs.bench.node.run(f"rm -rf /srv/proof; install -d -m 1777 /srv/proof; {locks}")
    return night


def test_sixty_kills_with_everything_real(runs: WholeRuns, night: Night) -> None:
    """Agents, waiting programs, ssh, bp, laptops and services of the hub are killed while four runs share four GPUs."""
    chance, longest = night.chance, night.seconds()
    plans = [
        Plan(
            f"s{night.seed}-{number}",
            chance.choice(("ada", "grace")),
            chance.randint(1, 4),
            EVENTS[number % len(EVENTS)],
            chance.uniform(0, longest),
        )
        for number in range(RUNS)
    ]

    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(night.live_through, plans))
    runs.start_hub()
    until(lambda: runs.units == "", 300, "a unit is left", every=2)
    wrong = [text for plan in plans if (text := night.end(plan))]
    night.sweep()
    states = {plan.word: night.state(plan).get("state") for plan in plans}

    print(*night.log, sep="\n")  # noqa: T201  as above
    assert not wrong, "\n".join(wrong)
    assert {*states.values()} <= {"ended", None}, states
    assert not runs.has("/srv/proof/twice")
    assert [gpu["state"] for gpu in runs.leases["gpus"]] == ["free"] * 4
    assert runs.leases["waiting"] == []
    assert LINES in {runs.bp(plan.person, "logs", runs.name_of(plan.word)) for plan in plans if plan.status == 7}
