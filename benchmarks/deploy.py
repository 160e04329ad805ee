"""`bedplate up` and `preview` of examples/lab.yaml compared with shell scripts that run plain `pulumi`.

Needs `pulumi` and `pulumi-language-python` on PATH. AWS is the simulation behind the provider protocol, a new one for
each way. One script runs `shared`, the regions in the background, then `links`; the other one stack after another.
`up` creates everything; `preview` finds no change. The exit status is 1 if bedplate takes more than 1.2 times as long
as the first script. The simulation handles one request at a time.
"""

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from bedplate.cli import run
from tests.testlab.engine.command import ACCOUNT

ROOT = Path(__file__).parents[1]
LIMIT = 1.2
REGIONS = "us-west-2 us-east-1 eu-north-1"
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIIWf215vwmBI2zNzecqhVbLRbuxkKq4oqpkUVYbswznn"
VALUES = {
    "--example": "lab",
    "--name": "lab",
    "--account": ACCOUNT,
    "--owner": "head@uni.edu",
    "--person": "bob",
    "--key": KEY,
    "--gateway": "193.99.144.80",
    "--reservation": "cr-0aaaabbbbccccdddd",
}
# Machines with GPUs or EFA need checksums that `catalog refresh` has verified.
WITHOUT_GPUS = {
    "[g6.4xlarge]": "[m7i.2xlarge]",
    "[p5.48xlarge]": "[m7i.48xlarge]",
    "    fabric: efa": "    ring: stable",
    "[g6e.12xlarge, g5.12xlarge]": "[c7i.12xlarge, m7i.12xlarge]",
    "gpus: {model: titan-x, count: 4}, ": "",
}
# $1 is the operation with its options. Stacks are created one after another: this selects them, too.
_STACKS = f"""set -e
for part in shared {REGIONS} links; do
  pulumi stack select --create lab.$part >&2
  pulumi config set bedplate:fleet fleet.yaml
done
stack() {{ pulumi $1 --stack lab.$2 --non-interactive >&2; }}
"""
PARALLEL = f"""{_STACKS}
stack "$1" shared
pids=
for region in {REGIONS}; do stack "$1" $region & pids="$pids $!"; done
for pid in $pids; do wait $pid; done
stack "$1" links
"""
SERIAL = f'{_STACKS}for part in shared {REGIONS} links; do stack "$1" $part; done'


class Cost(NamedTuple):
    """Elapsed seconds, and CPU seconds of the command with all its processes, without the simulated AWS."""

    elapsed: float
    processor: float

    def __str__(self) -> str:
        return f"{self.elapsed:.0f} s ({self.processor:.0f} s CPU)"


def bedplate(operation: str) -> list[str]:
    """Return the arguments of bedplate's command."""
    return [sys.executable, "-m", "tests.testlab.engine.command", operation, *(["--yes"] if operation == "up" else [])]


def script(text: str, operation: str) -> list[str]:
    """Return the arguments of a script, which skips the preview of `up` as bedplate does for new stacks."""
    return ["sh", "-c", text, "deploy", f"{operation} --yes --skip-preview" if operation == "up" else operation]


def main() -> None:
    """Measure, and print one row for each operation."""
    with tempfile.TemporaryDirectory(prefix="bedplate-bench-") as name:
        folder = Path(name)
        ways = [
            _measured(folder / way, commands)
            for way, commands in {
                "bedplate": [bedplate("up"), bedplate("preview")],
                "parallel": [script(PARALLEL, "up"), script(PARALLEL, "preview")],
                "serial": [script(SERIAL, "up"), script(SERIAL, "preview")],
            }.items()
        ]
    too_slow = False
    for operation, own, parallel, serial in zip(("up", "preview"), *ways, strict=True):
        ratio = own.elapsed / parallel.elapsed
        too_slow |= ratio > LIMIT
        print(
            f"{operation}: bedplate {own}, regions in the background {parallel}, ratio {ratio:.2f}; "
            f"one stack after another {serial}, ratio {own.elapsed / serial.elapsed:.2f}"
        )
    sys.exit(too_slow)


def _measured(folder: Path, commands: list[list[str]]) -> list[Cost]:
    """Return the cost of each command in a new fleet folder, with an empty backend and an empty AWS account."""
    if run(["init", str(folder), *(word for pair in VALUES.items() for word in pair)]):
        sys.exit("cannot make the fleet folder")
    fleet = folder / "fleet.yaml"
    text = fleet.read_text() + "  E418: the zones are the same in this account\n"
    for types, others in WITHOUT_GPUS.items():
        text = text.replace(types, others)
    fleet.write_text(text)
    if run(["plan", str(folder / "fleet.yaml"), "--write"]):
        sys.exit("cannot record the plan")
    (folder / "state").mkdir()
    with _simulated_aws() as port:
        environment = {
            "PYTHONPATH": str(ROOT),
            "AWS_ACCESS_KEY_ID": "x",
            "AWS_SECRET_ACCESS_KEY": "x",
            "PULUMI_HOME": str(folder / "home"),
            "PULUMI_BACKEND_URL": f"file://{folder / 'state'}",
            "PULUMI_CONFIG_PASSPHRASE": "x",
            "PULUMI_SKIP_UPDATE_CHECK": "true",
            "PULUMI_DEBUG_PROVIDERS": f"aws:{port}",
        }
        costs = [_cost(command, folder, {**os.environ, **environment}) for command in commands]
    print(f"{folder.name}: {', '.join(map(str, costs))}", flush=True)
    return costs


def _cost(command: list[str], folder: Path, environment: Mapping[str, str]) -> Cost:
    started, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    result = subprocess.run(
        command, check=False, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if result.returncode:
        sys.exit(f"{command}: {result.returncode}\n{result.stdout.decode()[-3000:]}")
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Cost(time.monotonic() - started, processor)


@contextmanager
def _simulated_aws() -> Iterator[str]:
    command = [sys.executable, "-m", "tests.testlab.engine.provider", "0", ACCOUNT]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as provider:
        try:
            yield provider.stdout.readline().strip() if provider.stdout else ""
        finally:
            provider.kill()


if __name__ == "__main__":
    main()
