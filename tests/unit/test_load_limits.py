"""Whatever a file of up to 1 MiB holds, the answer comes within a second and 200 MB."""

import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LARGEST = 1024 * 1024
# Time is the child's own, of its processor. A start alone takes a quarter of a second on a core at full speed; where
# the machine is slower, or busy, it tells by how much.
_CHILD = """
import json, resource, sys, time
from pathlib import Path
from bedplate.catalog import load_catalog
from bedplate.load import examine
limit = max(1.0, 4 * time.process_time())
codes = [told.code for told in examine(Path(sys.argv[1]), load_catalog())]
used = resource.getrusage(resource.RUSAGE_SELF)
# Not ru_maxrss: that begins with the memory of the process that started this one.
peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
seconds, megabytes = used.ru_utime + used.ru_stime, int(peak.split()[1]) / 1024
print(json.dumps({"codes": codes, "seconds": seconds, "limit": limit, "megabytes": megabytes}))
"""


def _repeat(head: str, part: str, tail: str = "", size: int = LARGEST) -> str:
    """Return as many parts as make up the size."""
    return head + part * ((size - len(head) - len(tail)) // len(part)) + tail


def _bomb() -> str:
    names = "abcdefghi"
    rows = (f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]\n" for old, new in pairwise(names))
    return "a: &a [lol]\n" + "".join(rows)


# By name: the last code of the answer, and the file.
HOSTILE: dict[str, tuple[str, str]] = {
    "alias bomb": ("E014", _bomb()),
    "aliases of a long list": (
        "E012",
        _repeat("a: &a [", "x,", "]\n", 2000) + "".join(f"k{n}: *a\n" for n in range(90)),
    ),
    "101 aliases": ("E013", "a: &a [x]\n" + "".join(f"k{n}: *a\n" for n in range(101))),
    "5,000 levels": ("E011", "[" * 5000 + "]" * 5000),
    "1,400 levels of blocks": ("E011", "".join(" " * n + "a:\n" for n in range(1400))),
    "a list of 1 MiB": ("E012", _repeat("a:\n", "- b\n")),
    "a flow sequence of 1 MiB": ("E012", _repeat("a: [", "b,", "]")),
    "1 MiB of brackets": ("E011", "[" * LARGEST),
    "1 MiB of comments": ("E008", _repeat("", "# nothing\n")),
    "a word of 1 MiB": ("E102", _repeat("a: ", "x")),
    "a key of 1 MiB": ("E101", _repeat("? ", "x", "\n: 1\n")),
    "a number of 1 MiB": ("E601", _repeat("version: ", "9")),
    "keys that are all unknown": ("E020", "".join(f"k{n}: 1\n" for n in range(14_000))),
    "types that are all unknown": (
        "E107",
        "groups:\n  g: {use: ssh, nodes: {min: 0, max: 1}, ladder: [{region: us-west-2}], types: ["
        + ",".join(f"p{n}.large" for n in range(29_000))
        + "]}\n",
    ),
    "regions that are all wrong": (
        "E020",
        "regions:\n" + "".join(f"  us-east-{n}: {{zones: [3, 4]}}\n" for n in range(4_900)),
    ),
    "secrets in every line": ("E020", _repeat("a:\n", "- AKIAIOSFODNN7EXAMPLE\n", size=600_000)),
    "words that YAML 1.1 reads differently": ("E020", _repeat("a: [", "no,", "]", 80_000)),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_costs_little(name: str, tmp_path: Path) -> None:
    """Under 1 s of a core at full speed, and 200 MB, the start of Python included, with an answer that says why."""
    code, text = HOSTILE[name]
    path = tmp_path / "fleet.yaml"
    path.write_text(text, encoding="utf-8")

    child = subprocess.run(
        [sys.executable, "-c", _CHILD, str(path)], capture_output=True, check=True, cwd=ROOT, timeout=60
    )

    answer = json.loads(child.stdout)
    assert code in answer["codes"]
    assert answer["seconds"] < answer["limit"]
    assert answer["megabytes"] < 200
