"""A machine of a site configures itself from a cloud-init seed (NoCloud), with the bundle of the working tree.

The node has no NFS mounts: the kernel of the tests may lack NFS. Its roles, packages, sshd and packet filter are real.
"""

import json
from dataclasses import replace
from typing import Any

import pytest

from bedplate.catalog import load_catalog
from bedplate.nodes.bootstrap import site_script
from bedplate.operate.site_folder import script_name, user_data, write_folder
from bedplate.plan.node_document import node_document
from bedplate.plan.nodes import find_node
from tests.nodes.test_self_configured import console_output
from tests.testlab.machines.bundle import working_tree
from tests.testlab.machines.container import Machine
from tests.testlab.machines.lab import WORKBENCH, folder_of_ada
from tests.testlab.machines.node_lab import Node, NodeLab
from tests.testlab.network.netlab import until
from tests.testlab.rehearsal.programs import plan_of

pytestmark = pytest.mark.nightly

_SEED = "var/lib/cloud/seed/nocloud"


@pytest.fixture(scope="module")
def configured(node_lab: NodeLab, tmp_path_factory: pytest.TempPathFactory) -> Node:
    """Return a machine after its first boot with the seed."""
    plan = plan_of(folder_of_ada(node_lab, tmp_path_factory.mktemp("lab")).fleet)
    node, planned = node_lab.boot(WORKBENCH, "192.168.40.23"), find_node(plan, WORKBENCH, load_catalog())
    document = node_document(replace(planned, mounts=(), buckets=()))
    bundle = working_tree({planned.name: document}, {})
    texts = {
        script_name(planned): site_script(planned),
        "rings/stable.json": json.dumps({"bundle": bundle.sha256, "sequence": 1}),
        "user-data": user_data(planned),
        "meta-data": "instance-id: new\n",
    }
    node.stop()
    for name in ("user-data", "meta-data"):
        (node.root / _SEED / name).unlink()
    write_folder(node.root / _SEED, {**bundle.objects, **{name: text.encode() for name, text in texts.items()}})
    assert isinstance(node.machine, Machine)
    node.machine.boot(waits=False)
    until(lambda: console_output(node, "cat /var/lib/bedplate/status/audit.json") != "", 900, "it is not configured")
    return node


def status(node: Node, name: str) -> dict[str, Any]:
    """Return a status of the machine."""
    document: dict[str, Any] = json.loads(node.run(f"cat /var/lib/bedplate/status/{name}.json"))
    return document


def test_a_seed_configures_a_machine_of_a_site(configured: Node) -> None:
    """The machine ends ready, with a passed gate and no failed rule, and a person logs in."""
    run = status(configured, "run")

    assert (run["ok"], run["ready"], run["sequence"]) == (True, True, 1), run
    assert status(configured, "gate")["ok"]
    (audit,) = status(configured, "audit")["nodes"]
    assert [verdict for verdict in audit["verdicts"] if verdict["outcome"] == "failed"] == []
    assert configured.ssh("sudo -n id -u", user="ada").stdout.strip() == "0"
