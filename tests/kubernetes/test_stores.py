"""Volumes of stores on a real API server: every edit of the fleet file that moves a store, and volumes in use."""

import json
from collections.abc import Mapping
from dataclasses import replace
from ipaddress import IPv4Network

import pytest
from lightkube.resources.core_v1 import PersistentVolume, PersistentVolumeClaim

from bedplate.kubernetes.addons import labelled
from bedplate.kubernetes.apply import apply_objects
from bedplate.kubernetes.client import ClusterClient
from bedplate.kubernetes.desired import people_objects, volume_objects
from bedplate.plan import FleetPlan
from tests.testlab.fleets.variants import lab_plan
from tests.testlab.kubernetes.control_plane import ControlPlane, wait_until
from tests.testlab.rehearsal.live import edits_of
from tests.testlab.rehearsal.programs import plan_of_text

pytestmark = pytest.mark.nightly
_PODS = IPv4Network("10.112.0.0/13")
_SYSTEM = labelled([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "people"}}], "people")
_READER = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "reader"},
    "spec": {
        "containers": [{"name": "main", "image": "none"}],
        "volumes": [{"name": "home", "persistentVolumeClaim": {"claimName": "home"}}],
    },
}


def _changes_of_volumes() -> Mapping[str, tuple[FleetPlan, FleetPlan]]:
    """Return the plans around each edit of regions, sites and stores that changes volumes, with the lab's people."""
    plans = {}
    for edit in (edit for table in ("stores.yaml", "places.yaml") for edit in edits_of(table)):
        before, after = (
            replace(plan_of_text(text), accounts=lab_plan().accounts) for text in (edit.before, edit.after)
        )
        if volume_objects(before) != volume_objects(after):
            plans[edit.promise] = (before, after)
    return plans


def test_volumes_follow_every_edit_of_regions_and_stores(control_plane: ControlPlane) -> None:
    """An edit that moves a store, or its path, is applied; each claim is bound to its volume afterwards."""
    cluster = ClusterClient(control_plane.client())
    changes = _changes_of_volumes()
    assert {"storage.*.mount changed", "storage.*.site changed"} <= changes.keys()
    try:
        for promise, plans in changes.items():
            for plan in plans:
                people = people_objects(plan.accounts, _PODS)
                assert apply_objects(cluster, (*_SYSTEM, *people, *volume_objects(plan))).failures == (), promise
                paths = {item["spec"]["local"]["path"] for item in volume_objects(plan) if "local" in item["spec"]}
                # The volumes of removed stores end with their claims.
                assert wait_until(
                    lambda: {volume.spec.local.path for volume in cluster.objects(PersistentVolume)[0]} == paths  # noqa: B023
                ), promise
                assert wait_until(
                    lambda: {claim.status.phase for claim in cluster.objects(PersistentVolumeClaim)[0]} <= {"Bound"}
                ), promise
    finally:
        apply_objects(cluster, _SYSTEM)


def test_a_volume_in_use_is_not_replaced(control_plane: ControlPlane) -> None:
    """The path of a store changes while a pod has it: the apply says which pod, and the next one after it succeeds."""
    cluster = ClusterClient(control_plane.client())
    before, after = _changes_of_volumes()["storage.*.mount changed"]
    people = (*_SYSTEM, *people_objects(before.accounts, _PODS))
    apply_objects(cluster, (*people, *volume_objects(before)))
    control_plane.wait_for_namespace("grace")
    control_plane.kubectl("create", "-n", "grace", "-f", "-", text=json.dumps(_READER))
    try:
        refused = apply_objects(cluster, (*people, *volume_objects(after)))

        assert [failure.what for failure in refused.failures] == [
            "PersistentVolume grace.home has another place or path now, and reader of grace use it"
        ]
        control_plane.kubectl("delete", "pod", "--all", "-n", "grace")
        assert apply_objects(cluster, (*people, *volume_objects(after))).failures == ()
    finally:
        control_plane.kubectl("delete", "pod", "--all", "-n", "grace")
        apply_objects(cluster, _SYSTEM)
