"""Kinds and recipes of images, and the steps of a bake as pure decisions."""

import gzip
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from bedplate.catalog import load_catalog
from bedplate.errors import InputError
from bedplate.permissions import permissions
from bedplate.plan.planner import ImageKind, baked_image, image_kinds
from bedplate.plan.registries import pulled_images
from bedplate.spec.network import Egress
from bedplate.spec.sites import Use
from images import steps
from images.steps import (
    LIMIT,
    Fail,
    Image,
    ImageState,
    Instance,
    Observation,
    Recipe,
    Status,
    Wait,
    next_steps,
    pinned_versions,
)
from stacks.compute.template import bake_boot
from tests.testlab.fleets.sketch import with_group, with_rung
from tests.testlab.rehearsal.programs import EXAMPLES, plan_of

LAB = plan_of(EXAMPLES / "lab.yaml")
HOME, AWAY = "us-west-2", "us-east-1"
RECIPE = Recipe("lab", ImageKind(Use.KUBERNETES, "x86_64"), "ami-1", "b" * 64, ("disk=8",))
PENDING, AVAILABLE, FAILED = (
    Image("i", ImageState.PENDING),
    Image("i", ImageState.AVAILABLE),
    Image("i", ImageState.FAILED),
)
DONE = Image("i", ImageState.AVAILABLE, finished=True)
INSTALLED, BROKEN = Status(ok=True, sentence="", bundle="b" * 64), Status(ok=False, sentence="apt", bundle="")
FRESH = Observation(LIMIT)


def _instance(state: str, launched: float = LIMIT) -> Instance:
    return Instance("i-1", state, launched)


def _kinds(name: str) -> dict[str, set[str]]:
    plan = plan_of(EXAMPLES / f"{name}.yaml")
    return {kind.name: {pool.region for pool in pools} for kind, pools in image_kinds(plan, load_catalog()).items()}


def test_a_kind_is_what_the_install_stage_depends_on() -> None:
    """Use, architecture, driver with its modules, NVSwitch and EFA; not the market, zone or size."""
    assert _kinds("arm64") == {"workbench-arm64": {"us-east-1"}, "worker-arm64": {"us-east-1", "eu-west-1"}}
    assert _kinds("training-block") == {
        "worker-x86_64-580-open-fabric-efa": {"us-east-2"},
        "workbench-x86_64": {"us-east-2"},
    }


def test_a_name_changes_with_each_input_only() -> None:
    """Base image, bundle and versions; a value of another input is no change."""
    changed = (
        replace(RECIPE, base="ami-2"),
        replace(RECIPE, bundle="c" * 64),
        replace(RECIPE, versions=("disk=9",)),
        replace(RECIPE, kind=ImageKind(Use.SSH, "x86_64")),
    )
    assert len({RECIPE.name, *(recipe.name for recipe in changed)}) == 5
    assert replace(RECIPE).name == RECIPE.name
    assert RECIPE.name.startswith("lab-worker-x86_64-")


def test_only_versions_that_a_kind_uses_are_pinned() -> None:
    """A new version of Kubernetes bakes no image of a workbench."""
    worker, workbench = ImageKind(Use.KUBERNETES, "x86_64", "580-open"), ImageKind(Use.SSH, "x86_64")
    assert any(word.startswith("kubernetes=") for word in pinned_versions(LAB, worker))
    assert {"driver=580-open", f"software={LAB.software}"} <= {*pinned_versions(LAB, worker)}
    assert [word.partition("=")[0] for word in pinned_versions(LAB, workbench) if "kernel" not in word] == ["disk"]


def test_a_pool_gets_the_baked_image_of_its_kind_and_region() -> None:
    """Another driver branch is another kind: its pools start from Ubuntu's image."""
    pool = next(pool for pool in LAB.pools if pool.region == HOME and pool.group == "workbench-gpu")
    plan = replace(LAB, record=LAB.record.adding(baked={f"{HOME}/workbench-x86_64-580-open-frameworks": "ami-1"}))
    assert baked_image(plan, pool, load_catalog()) == "ami-1"
    assert baked_image(plan, with_rung(pool, region=AWAY), load_catalog()) is None
    newer = replace(plan, image=plan.image.model_copy(update={"driver": "595"}))
    assert baked_image(newer, pool, load_catalog()) is None
    assert baked_image(newer, with_group(pool, driver="580"), load_catalog()) == "ami-1"


def test_the_instance_runs_only_the_install_stage(tmp_path: Path) -> None:
    """The script exports the stage, so the service starts `bedplate.machine.freeze`; shellcheck accepts it."""
    script = tmp_path / "script"
    script.write_bytes(gzip.decompress(bake_boot(LAB, "image-worker-x86_64")))
    head = script.read_text().split("set -euo pipefail")[0] + "env; echo $STEPS"
    lines = subprocess.run(["bash", "-c", head], capture_output=True, text=True, check=True).stdout.splitlines()
    assert {"STAGE=install", "set_clock start_configuration"} <= {*lines}
    shellcheck = Path(sys.executable).parent / "shellcheck"
    assert subprocess.run([shellcheck, script], capture_output=True, text=True, check=False).stdout == ""
    with pytest.raises(InputError, match="cannot download packages"):
        bake_boot(replace(LAB, egress=Egress.NONE), "image-worker-x86_64")


@pytest.mark.parametrize(
    ("now", "step"),
    [
        (FRESH, steps.CreateGroup()),
        (replace(FRESH, group="sg"), steps.Launch("sg")),
        (replace(FRESH, group="sg", instance=_instance("shutting-down")), steps.Launch("sg")),
        (replace(FRESH, instance=_instance("running", 1)), Wait("the instance installs packages")),
        (replace(FRESH, instance=_instance("running"), status=INSTALLED), steps.Stop("i-1")),
        (replace(FRESH, instance=_instance("stopping"), status=INSTALLED), Wait("the instance stops")),
        (replace(FRESH, instance=_instance("stopped"), status=INSTALLED), steps.CreateImage("i-1")),
        (replace(FRESH, images={HOME: PENDING}), Wait("EC2 creates the image")),
        (replace(FRESH, images={HOME: FAILED}), steps.Discard(HOME, "i")),
        (replace(FRESH, images={HOME: AVAILABLE}), steps.Finish(HOME, "i")),
        (replace(FRESH, images={HOME: Image("i", "transient")}), Wait("EC2 creates the image")),
        (replace(FRESH, images={HOME: Image("i", "invalid")}), steps.Discard(HOME, "i")),
    ],
)
def test_one_step_at_a_time_leads_to_the_image(now: Observation, step: steps.Step) -> None:
    """A state that a killed bake can leave has a next step."""
    assert next_steps(RECIPE, HOME, (HOME, AWAY), now) == (step,)


@pytest.mark.parametrize(
    ("instance", "status", "reason"),
    [
        (_instance("running", 0), None, "i-1 wrote no status within 45 minutes"),
        (_instance("running"), BROKEN, "the install stage failed: apt"),
        (_instance("stopped"), None, "i-1 is stopped and wrote no status"),
        (_instance("running"), replace(INSTALLED, bundle="c" * 64), "the instance has the bundle cccccccccccc"),
    ],
)
def test_an_instance_that_failed_becomes_no_image(instance: Instance, status: Status | None, reason: str) -> None:
    """The wait is bounded by the launch, so a restart of the bake does not prolong it."""
    (step,) = next_steps(RECIPE, HOME, (HOME,), replace(FRESH, instance=instance, status=status))
    assert isinstance(step, Fail)
    assert step.reason.startswith(reason)


@pytest.mark.parametrize("region", [HOME, AWAY])
@pytest.mark.parametrize("finished", [True, False])
@pytest.mark.parametrize("state", ["disabled", "deregistered", "a state that EC2 has since last year"])
def test_an_image_that_an_operator_has_taken_out_of_use_is_not_deleted(
    state: str, region: str, *, finished: bool
) -> None:
    """It is neither removed nor published: only an image that EC2 could not make is discarded."""
    images = {HOME: DONE, AWAY: DONE, region: Image("ami-2", state, finished=finished)}

    todo = next_steps(RECIPE, HOME, (HOME, AWAY), replace(FRESH, images=images, parameters={HOME: "i", AWAY: "i"}))

    assert Fail(f"ami-2 in {region} is {state}", "enable or deregister it in EC2, then bake again") in todo
    assert not [step for step in todo if isinstance(step, steps.Discard | steps.Publish | steps.Copy)]


def test_a_finished_image_is_never_discarded() -> None:
    """Machines may use it, whatever EC2 says about it now."""
    (step,) = next_steps(RECIPE, HOME, (HOME,), replace(FRESH, images={HOME: replace(DONE, state="failed")}))

    assert isinstance(step, Fail)


def test_regions_are_copied_at_the_same_time_as_the_instance_ends() -> None:
    """The lock is written last, once no region has a step left."""
    regions = (HOME, AWAY, "eu-north-1")
    now = replace(FRESH, images={HOME: DONE}, instance=_instance("stopped"), group="sg")
    assert next_steps(RECIPE, HOME, regions, now) == (
        steps.Terminate("i-1"),
        steps.Publish(HOME, "i"),
        steps.Copy(AWAY, "i"),
        steps.Copy("eu-north-1", "i"),
    )
    copied = replace(FRESH, images=dict.fromkeys(regions, DONE), parameters=dict.fromkeys(regions, "i"))
    assert next_steps(RECIPE, HOME, regions, copied) == (steps.Record(dict.fromkeys(regions, "i")),)
    assert next_steps(RECIPE, HOME, regions, replace(copied, recorded=dict.fromkeys(regions, "i"))) == ()


def test_a_withdrawn_image_is_neither_copied_nor_recorded() -> None:
    """Only what its bake has left is removed."""
    now = replace(FRESH, images={HOME: replace(DONE, withdrawn=True)}, group="sg")
    assert next_steps(RECIPE, HOME, (HOME, AWAY), now) == (steps.DeleteGroup("sg"),)


def test_the_images_in_ecr_of_its_groups_are_part_of_a_recipe() -> None:
    """A new digest makes the machine image due; of other registries and of groups of another kind nothing does.

    The role of a bake reads ECR of this account and of AWS, no other.
    """
    (train,) = {pool.group for pool in LAB.pools if pool.fabric}
    kinds = image_kinds(LAB, LAB.catalog)
    kind = next(kind for kind, pools in kinds.items() if train in {pool.group for pool in pools})
    other = next(other for other in kinds if other.use.is_worker and other != kind)
    ecr = f"111122223333.dkr.ecr.us-west-2.amazonaws.com/lab/torch@sha256:{'0' * 64}"
    plans = [
        replace(LAB, jobs=LAB.jobs.model_copy(update={"images": {train: image}})) for image in (ecr, ecr[:-1] + "1")
    ]

    versions = [pinned_versions(plan, kind) for plan in (LAB, *plans)]

    assert [pulled_images(plan, kinds[kind]) for plan in (LAB, plans[0])] == [(), (ecr,)]
    foreign, of_aws = (ecr.replace("111122223333", account) for account in ("999988887777", "763104351884"))
    others = (f"registry.lab.example/a.dkr.ecr.b@sha256:{'0' * 64}", foreign, of_aws)
    read = [
        pulled_images(replace(LAB, jobs=LAB.jobs.model_copy(update={"images": {train: image}})), kinds[kind])
        for image in others
    ]
    assert read == [(), (), (of_aws,)]
    (pulls,) = (item for item in permissions(LAB, "kubernetes") if item.sid == "PullImages")
    accounts = {arn.split(":")[4] for arn in pulls.resources}
    assert accounts == {"111122223333", "602401143452", "763104351884"}
    assert [any(word.startswith("images=") for word in words) for words in versions] == [False, True, True]
    assert versions[1] != versions[2]
    assert pinned_versions(plans[0], other) == pinned_versions(LAB, other)
