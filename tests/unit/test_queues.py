"""The queue of the cluster without a cluster: its objects by the plan, and what is left of upstream's files."""

import json
from dataclasses import replace
from typing import Any

import pytest

from bedplate.catalog.software import AddonPins
from bedplate.kubernetes.addons import ADDONS, Object, Setting, render_addon
from bedplate.kubernetes.desired import line_objects
from bedplate.kubernetes.queues import has_queues, queue_objects
from bedplate.plan.cluster import cluster_plan
from bedplate.plan.fleet import FleetPlan
from bedplate.plan.pools import combined_max
from bedplate.spec.fleet import Jobs
from tests.testlab.fleets.variants import lab_plan


def objects(kind: str, plan: FleetPlan | None = None) -> dict[str, Object]:
    """Return the objects of a kind in the queue of the lab, by `namespace/name`."""
    rows = [item for item in queue_objects(plan or lab_plan()) if item["kind"] == kind]
    return {f"{row['metadata'].get('namespace', '')}/{row['metadata']['name']}": row for row in rows}


def rendered(name: str, *documents: Object) -> tuple[Object, ...]:
    """Return the objects of an add-on, with these as upstream's file."""
    cluster = cluster_plan(lab_plan())
    assert cluster
    addon = next(addon for addon in ADDONS if addon.name == name)
    text = "\n---\n".join(map(json.dumps, documents))
    return render_addon(addon, AddonPins(name, "1.2.3"), [text], Setting(cluster))


def test_a_fleet_without_jobs_has_no_queue() -> None:
    """The add-ons are for fleets with a section `jobs`."""
    assert has_queues(lab_plan())
    assert not has_queues(replace(lab_plan(), jobs=Jobs()))


def test_each_group_has_a_flavour_with_its_maximum() -> None:
    """The quota of GPUs is what all machines of a group may have: 8 for each of `train`."""
    plan = lab_plan()
    flavours = objects("ResourceFlavor")
    (queue,) = objects("ClusterQueue").values()

    assert flavours["/train"]["spec"] == {"nodeLabels": {"bedplate/group": "train"}, "topologyName": "host"}
    assert flavours["/cellar"]["spec"]["nodeLabels"] == {"bedplate/site": "cellar"}
    (group,) = queue["spec"]["resourceGroups"]
    quotas = {flavour["name"]: flavour["resources"][2]["nominalQuota"] for flavour in group["flavors"]}
    most = combined_max([pool for pool in plan.pools if pool.group == "train"])
    assert (quotas["train"], quotas["sim"]) == (str(8 * most), "0")


def test_runs_without_a_place_try_machines_without_gpus_first() -> None:
    """A run without GPUs must not take a machine with GPUs while another is free; own machines go before paid ones."""
    (queue,) = objects("ClusterQueue").values()

    names = [flavour["name"] for flavour in queue["spec"]["resourceGroups"][0]["flavors"]]
    assert names.index("sim") < names.index("cellar") < names.index("train")


def test_shares_are_the_weights_of_queues() -> None:
    """A share of 2 is a weight of 2, interactive runs have a hundred times as much, and spare ones none."""
    plan = replace(lab_plan(), jobs=Jobs(shares={"ada": 2.5}))

    weights = {name: row["spec"]["fairSharing"]["weight"] for name, row in objects("LocalQueue", plan).items()}

    assert [weights[f"ada/{name}"] for name in ("default", "interactive", "spare")] == ["2500m", "250000m", "0m"]
    assert weights["grace/default"] == "1000m"
    assert objects("LocalQueue", plan)["ada/held"]["spec"]["stopPolicy"] == "Hold"


def test_only_spare_runs_are_ended_for_others() -> None:
    """A class ends runs of a lower value only: interactive and normal have the same, and no pod has a negative one."""
    values = {name: row["value"] for name, row in objects("WorkloadPriorityClass").items()}

    assert values["/interactive"] == values["/normal"] > values["/spare"]


def _hook(name: str) -> Object:
    service = {"name": "webhook-service", "namespace": "system", "path": f"/{name}"}
    return {"name": name, "clientConfig": {"service": service}, "failurePolicy": "Fail", "rules": []}


def _hooks(*names: str) -> Object:
    metadata = {"name": "mutating-webhook-configuration"}
    return {"kind": "MutatingWebhookConfiguration", "metadata": metadata, "webhooks": [_hook(name) for name in names]}


@pytest.mark.parametrize("name", ["kueue", "jobset"])
def test_no_webhook_judges_pods(name: str) -> None:
    """A dead controller would refuse every pod; Kueue judges what is in namespaces of people only."""
    hooks = rendered(name, _hooks("mpod.kb.io", "mjob.kb.io", "mdeployment.kb.io", "vworkload.kb.io"))[0]

    assert hooks["metadata"]["name"] == f"{name}-mutating-webhook-configuration"
    policies = {hook["name"]: hook["failurePolicy"] for hook in hooks["webhooks"]}
    assert policies == {"mjob.kb.io": "Fail", "vworkload.kb.io": "Ignore"}
    service = hooks["webhooks"][0]["clientConfig"]["service"]
    assert service == {"name": f"{name}-webhook-service", "namespace": f"{name}-system", "path": "/mjob.kb.io"}
    assert ("namespaceSelector" in hooks["webhooks"][0]) == (name == "kueue")


def test_types_of_kueue_are_served_in_one_version() -> None:
    """Reading an object of an old version would need the controller."""
    versions = [{"name": "v1beta1", "storage": False}, {"name": "v1beta2", "storage": True}]
    document = {"kind": "CustomResourceDefinition", "metadata": {"name": "a"}, "spec": {"versions": versions}}

    item = rendered("kueue", document)[0]

    assert [version["name"] for version in item["spec"]["versions"]] == ["v1beta2"]


def test_the_controller_may_change_its_own_webhooks_only() -> None:
    """Upstream's rights name the webhooks without the prefix of the installation."""
    rules = [{"resourceNames": ["mutating-webhook-configuration"]}, {"resourceNames": ["cohorts.kueue.x-k8s.io"]}, {}]
    role: dict[str, Any] = {"kind": "ClusterRole", "metadata": {"name": "manager-role"}, "rules": rules}

    item = rendered("kueue", role)[0]

    assert item["metadata"]["name"] == "kueue-manager"
    names = [rule.get("resourceNames") for rule in item["rules"]]
    assert names == [["kueue-mutating-webhook-configuration"], ["cohorts.kueue.x-k8s.io"], None]


@pytest.mark.parametrize("name", ["kueue", "jobset"])
def test_controllers_run_on_members_and_leave_lost_machines(name: str) -> None:
    """They need no worker, and not the three days of other pods of a machine that does not answer."""
    (deployment,) = (item for item in rendered(name) if item["kind"] == "Deployment")

    pod = deployment["spec"]["template"]["spec"]
    tolerations = {row["key"]: row.get("tolerationSeconds") for row in pod["tolerations"]}
    assert tolerations["node-role.kubernetes.io/control-plane"] is None
    assert tolerations["node.kubernetes.io/unreachable"] == 30
    assert pod["containers"][0]["image"] == f"registry.k8s.io/{name}/{name}:v1.2.3"
    assert deployment["spec"]["template"]["metadata"]["annotations"]["bedplate/settings"]


def test_an_older_cluster_has_no_mutating_policy() -> None:
    """Kubernetes 1.35 has no stable mutating policies: there, all priorities share one queue."""
    kinds = [{item["kind"] for item in line_objects(lab_plan(), version)} for version in ("1.35.4", "1.36.3")]

    assert ["MutatingAdmissionPolicy" in found for found in kinds] == [False, True]
