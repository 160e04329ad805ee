"""A machine that runs the bundle of the commit before takes the bundle of the working tree.

The former bundle has the code and the node document of that commit, and today's wheels. AWS is simulated, as in
`test_self_configured.py`.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bedplate.bundle import code_files
from tests.testlab.machines.bundle import working_tree
from tests.testlab.machines.node_lab import NodeLab
from tests.testlab.machines.operator import ROOT
from tests.testlab.machines.self_configured import Cloud, cloud

pytestmark = pytest.mark.nightly

NAME, ADDRESS, COMMIT = "workbench-cpu-1.us-west-2", "10.64.33.7", "HEAD~1"
# The tests of that commit may differ, so this uses its product only.
DOCUMENT = """
import sys
from dataclasses import replace
from pathlib import Path
from bedplate.catalog import load_catalog
from bedplate.load import load_fleet
from bedplate.plan import Record, plan_fleet
from bedplate.plan.links import ssh_pools
from bedplate.plan.node_document import node_document
from bedplate.plan.nodes import pool_node
catalog = load_catalog()
plan = plan_fleet(load_fleet(Path(sys.argv[1]), catalog).fleet, Record({}), catalog)
pool = next(pool for pool in ssh_pools(plan) if pool.group == sys.argv[2])
planned = pool_node(plan, pool, f"{pool.group}.{pool.region}", catalog)
sys.stdout.write(node_document(replace(planned, mounts=(), buckets=(), types=(), frameworks=False)))
"""


@pytest.fixture(scope="module")
def aws(node_lab: NodeLab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    """Yield the simulated AWS."""
    with cloud(node_lab, tmp_path_factory.mktemp("place")) as aws:
        yield aws


@pytest.fixture(scope="module")
def former(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the files of the commit before."""
    folder = tmp_path_factory.mktemp("former")
    archive = subprocess.run(["git", "archive", COMMIT], cwd=ROOT, check=True, capture_output=True).stdout
    subprocess.run(["tar", "-x"], cwd=folder, input=archive, check=True)
    return folder


def former_document(aws: Cloud, former: Path) -> str:
    """Return the node document that the commit before writes for the pool."""
    command = [sys.executable, "-c", DOCUMENT, str(aws.folder.fleet), aws.pool.group]
    environment = {**os.environ, "PYTHONPATH": str(former)}
    return subprocess.run(command, cwd=former, env=environment, check=True, capture_output=True, text=True).stdout


def test_a_machine_of_the_former_bundle_takes_the_new_one(aws: Cloud, former: Path) -> None:
    """It configures itself by the former bundle, then by the new one in its next run, and stays ready."""
    documents = {aws.pool.name: former_document(aws, former)}
    code = {path: (former / path).read_bytes() for path in code_files(former)}
    bundle = replace(working_tree(documents, {}), files=code)
    machine = aws.machine(aws.lab.boot(NAME, ADDRESS))
    aws.place.publish(bundle, 1, aws.bucket)
    machine.boot()
    machine.wait()
    assert machine.node.run("basename $(readlink /opt/bedplate/current)").strip() == bundle.sha256
    assert machine.place.status(aws.bucket, "run")["ready"], machine.log

    new = machine.promote()
    machine.run()
    run = machine.place.status(aws.bucket, "run")

    assert machine.node.run("basename $(readlink /opt/bedplate/current)").strip() == new != bundle.sha256
    assert (run["ok"], run["sequence"]) == (True, machine.sequence), f"{run['sentence']}\n{machine.log}"
    assert machine.logs_in() == "0"
