"""The hub with the settings of its roles, next to bare MLflow over its unix socket, on one node and in one run.

Needs root. Targets: nginx and the check of tokens take 1 ms of processor a request; a new run with 25 tags takes at
most 1.3 times as long as without them; the 50 newest of 10,000 runs, with all that they have, are there within 0.3 s;
the daemons have at most 1.2 GiB of memory after 100 requests. Both ways are asked in turns, each over one connection.
Elapsed times depend on the load: that of a search is divided by the pace of this machine.
"""

import http.client
import json
import os
import ssl
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import md5
from itertools import count
from statistics import median
from typing import Any

from bedplate.programs.hub.tokens import Token, sign
from roles.hub.role import Hub
from roles.mlflow.role import Mlflow
from roles.postgres.role import Postgres
from tests.testlab.machines.hub import HOST, PEOPLE
from tests.testlab.machines.node_lab import Node, NodeLab, connect_socket
from tests.testlab.machines.operator import apply_roles
from tests.testlab.machines.records import API, Records, UnixConnection
from tests.testlab.run import clock_pace, pace, pace_line, remove_credentials

MAX_FRONT_MS, MAX_CREATE, MAX_SEARCH_S, MAX_MEMORY_MIB = 1.0, 1.3, 0.3, 1229
RUNS, TAGS = 10_000, 25
REQUESTS, CREATES, SEARCHES = 1000, 100, 20
AT_REST = 100
FRONT, RECORD = ("nginx", "bedplate-hub"), ("mlflow", "'postgresql@*-main'")
# Fewer than the limit of nginx for requests of one token at once.
_OF_A_TOKEN = 250
_FILL = """
insert into runs (run_uuid, name, source_type, source_name, user_id, status, start_time, lifecycle_stage, artifact_uri,
  experiment_id)
select md5(n::text), 'r' || n, 'LOCAL', '', 'ada', 'FINISHED', 1700000000000 + n, 'active', 'mlflow-artifacts:/1',
  (select experiment_id from experiments where name = 'jobs')
from generate_series(1, :runs) n;
insert into tags (key, value, run_uuid)
select 'bedplate.' || case k when 1 then 'owner' else 'k' || k end,
  case when k > 1 then repeat('v', 20) || n when n % 2 = 0 then 'ada' else 'grace' end, md5(n::text)
from generate_series(1, :runs) n, generate_series(1, :tags) k;
insert into params (key, value, run_uuid)
select 'p' || k, k::text, md5(n::text) from generate_series(1, :runs) n, generate_series(1, 10) k;
insert into metrics (key, value, timestamp, run_uuid, step, is_nan)
select 'm' || k, k, 1, md5(n::text), 1, false from generate_series(1, :runs) n, generate_series(1, 10) k;
insert into latest_metrics (key, value, timestamp, run_uuid, step, is_nan)
select key, value, timestamp, run_uuid, step, is_nan from metrics;
"""
# Of the processes of units, and of those that they have waited for.
_TICKS = r"sed 's/.*) //' /proc/$pid/stat | awk '{ print $12 + $13 + $14 + $15 }'"
_KIB = "sed -n 's/^Pss: *//p' /proc/$pid/smaps_rollup"


class HubConnection(http.client.HTTPSConnection):
    """A connection from the workstation, which trusts the hub's certificate only."""

    def __init__(self, lab: NodeLab, node: Node) -> None:
        self._trust = ssl.create_default_context(cafile=node.root / "srv/hub/keys/tls.crt")
        super().__init__(HOST, context=self._trust, timeout=60)
        self._lab, self._node = lab, node

    def connect(self) -> None:
        """Connect to nginx."""
        plain = connect_socket(self._lab.workstation.host, self._node.address, http.client.HTTPS_PORT)
        self.sock = self._trust.wrap_socket(plain, server_hostname=HOST)


@dataclass(frozen=True, slots=True)
class Way:
    """A connection to the record: one request after the other, with the headers of each."""

    connection: http.client.HTTPConnection
    headers: Callable[[], Mapping[str, str]]

    def ask(self, path: str, body: Mapping[str, Any] | None = None) -> float:
        """Return the elapsed seconds of a request, which must succeed."""
        text = None if body is None else json.dumps(body)
        started = time.perf_counter()
        self.connection.request("GET" if body is None else "POST", f"{API}/{path}", text, dict(self.headers()))
        answer = self.connection.getresponse()
        content = answer.read()
        elapsed = time.perf_counter() - started
        if answer.status != http.client.OK:
            sys.exit(f"{path}: {answer.status}: {content[:300]!r}")
        return elapsed


def prepared(lab: NodeLab) -> Node:
    """Return a hub with all records; its folder is no volume."""
    node = lab.boot("hub.us-west-2", "10.64.32.17")
    apply_roles(lab, node.name, Postgres(has_volume=False), Mlflow())
    apply_roles(lab, node.name, Hub(HOST, PEOPLE))
    return node


def fill(node: Node) -> None:
    """Add the runs."""
    psql = f"psql --quiet --set=ON_ERROR_STOP=1 --set=runs={RUNS} --set=tags={TAGS} --dbname=mlflow"
    node.run(f"runuser -u postgres -- {psql} <<'END'\n{_FILL}\nEND\n", 300)


def tokens(node: Node) -> Iterator[str]:
    """Yield a valid token for each request; nginx limits the requests of each of them."""
    key = (node.root / "srv/hub/keys/tokens").read_bytes().strip()
    until = int(time.time()) + 3000
    return (sign(Token(min(PEOPLE), until + number // _OF_A_TOKEN, "person"), key) for number in count())


def through_hub(lab: NodeLab, node: Node) -> Way:
    """Return a connection to nginx from another machine; nginx ends it after 1,000 requests."""
    each = tokens(node)
    return Way(
        HubConnection(lab, node),
        lambda: {"Content-Type": "application/json", "Authorization": f"Bearer {next(each)}"},
    )


def bare(node: Node) -> Way:
    """Return a connection to MLflow's unix socket."""
    return Way(UnixConnection(Records(node).socket), lambda: {"Content-Type": "application/json"})


def total(node: Node, units: Sequence[str], command: str) -> float:
    """Return the sum of a command's output over the processes of units."""
    groups = f"systemctl show --property=ControlGroup --value {' '.join(f'{unit}.service' for unit in units)}"
    script = (
        f"for group in $({groups}); do for pid in $(cat /sys/fs/cgroup$group/cgroup.procs); do {command}; done; done"
    )
    return sum(map(float, node.run(script).replace("kB", "").split()))


def cpu_ms(node: Node, units: Sequence[str], work: Callable[[], object]) -> float:
    """Return the milliseconds of processor that units take meanwhile, at the pace of this machine."""
    before = total(node, units, _TICKS)
    work()
    return (total(node, units, _TICKS) - before) * 1000 / os.sysconf("SC_CLK_TCK") / pace()


def in_turns(ways: Sequence[Way], path: str, body: Mapping[str, Any], times: int) -> tuple[float, ...]:
    """Return the median seconds of a request by each way."""
    rounds = [[way.ask(path, body) for way in ways] for _ in range(times)]
    return tuple(map(median, zip(*rounds, strict=True)))


def report_front(node: Node, hub: Way, path: str) -> bool:
    """Print the cost of a request without MLflow; return whether it is too high."""

    def ask_anew() -> None:
        hub.connection.close()
        hub.ask(path)

    def cost(units: Sequence[str], ask: Callable[[], object]) -> float:
        return cpu_ms(node, units, lambda: [ask() for _ in range(REQUESTS)]) / REQUESTS

    kept, record, anew = cost(FRONT, lambda: hub.ask(path)), cost(RECORD, lambda: hub.ask(path)), cost(FRONT, ask_anew)
    print(f"nginx and check       {kept:6.2f} ms of processor a request (target {MAX_FRONT_MS}); MLflow and PostgreSQL")
    print(
        f"                      {record:6.2f} ms for `runs/get`, ratio {kept / record:.2f}; with TLS anew {anew:.2f} ms"
    )
    return kept > MAX_FRONT_MS


def report_create(ways: Sequence[Way], experiment: str) -> bool:
    """Print the time of a new run; return whether the hub makes it too long."""
    tags = [{"key": f"bedplate.k{number}", "value": "v" * 20} for number in range(TAGS)]
    body = {"experiment_id": experiment, "start_time": int(time.time() * 1000), "tags": tags}
    ours, peer = in_turns(ways, "runs/create", body, CREATES)
    print(
        f"a run with {TAGS} tags    {ours * 1000:6.1f} ms, bare MLflow {peer * 1000:.1f} ms: ratio {ours / peer:.2f} "
        f"(target {MAX_CREATE})"
    )
    return ours / peer > MAX_CREATE


def report_search(ways: Sequence[Way], experiment: str) -> bool:
    """Print the time of the newest runs, asked as `bp runs` does; return whether it is too long."""
    is_slow = False
    listed = "tags.`bedplate.archived` IS NULL"
    mine, text = f"tags.`bedplate.owner` = 'ada' AND {listed}", f"{listed} AND tags.`bedplate.k2` ILIKE '%v77%'"
    for title, condition in (("of all", listed), ("of a person", mine), ("with a text", text)):
        order = ["attributes.start_time DESC"]
        body = {"experiment_ids": [experiment], "filter": condition, "max_results": 50, "order_by": order}
        pace_before = clock_pace()
        ours, peer = in_turns(ways, "runs/search", body, SEARCHES)
        seconds = ours / ((pace_before + clock_pace()) / 2)
        print(
            f"50 newest {title:11} {seconds:6.3f} s at full speed (target {MAX_SEARCH_S}); {ours:.3f} s elapsed, "
            f"bare MLflow {peer:.3f} s, ratio {ours / peer:.2f}"
        )
        is_slow |= seconds > MAX_SEARCH_S
    return is_slow


def report_memory(node: Node) -> bool:
    """Print the memory of the daemons; return whether it is too much."""
    parts = {unit: total(node, (unit,), _KIB) / 1024 for unit in (*RECORD, *FRONT)}
    text = ", ".join(f"{unit.strip(chr(39)).partition('@')[0]} {mib:.0f}" for unit, mib in parts.items())
    print(f"memory                {sum(parts.values()):6.0f} MiB (target {MAX_MEMORY_MIB}): {text}")
    return sum(parts.values()) > MAX_MEMORY_MIB


def main() -> int:
    """Print the figures; return 1 if a target is missed."""
    remove_credentials(os.environ)
    print(pace_line())
    with NodeLab() as lab:
        node = prepared(lab)
        fill(node)
        hub, record = through_hub(lab, node), bare(node)
        experiment = Records(node).experiment()
        path = f"runs/get?run_id={md5(b'1', usedforsecurity=False).hexdigest()}"
        for _ in range(AT_REST):
            hub.ask(path)
        missed = [report_memory(node), report_front(node, hub, path)]
        missed += [report((hub, record), experiment) for report in (report_create, report_search)]
    return int(any(missed))


if __name__ == "__main__":
    sys.exit(main())
