"""Standard images of jobs: their builds, pushes to the registries of the fleet file, and who has and uses them."""

import json
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from bedplate.bundle import user_cache
from bedplate.errors import InputError, PartialError, ViolationError, worst
from bedplate.files import held, write_whole
from bedplate.foreign import one_line
from bedplate.operate import Operator, Result, open_account, plan_of
from bedplate.plan import FleetPlan
from bedplate.plan.planner import pool_kind
from bedplate.plan.registries import RECIPES, ecr_host, registry_hosts
from bedplate.report.columns import aligned
from bedplate.rounds import ask_each
from images import containers
from images.containers import BuiltImage

_ABSENT = "manifest unknown", "name unknown"
_SECONDS, _SHORT = "60s", len("sha256:") + 12


def _folder() -> Path:
    return user_cache().folder.with_name("containers")


def _chosen(recipes: Sequence[str]) -> tuple[str, ...]:
    """Return these recipes, or all. Raises InputError for an unknown one."""
    for recipe in recipes:
        if recipe not in RECIPES:
            raise InputError(f"no recipe is named {recipe}", fix=f"write one of {', '.join(RECIPES)}")
    return tuple(recipes) or RECIPES


def build(operator: Operator, recipes: Sequence[str], mirror: str) -> None:
    """Build images for the architecture of this machine."""
    chosen, folder = _chosen(recipes), _folder()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with held(folder / "build"):
        for recipe in chosen:
            operator.notify([f"{recipe}: builds it, for some minutes"])
            built = containers.build(recipe, folder / f"{recipe}-{containers.arch_here()}", mirror)
            operator.show([f"{recipe}: {built.digest} for {built.arch}, {built.size / 1e6:.0f} MB"])


def push(operator: Operator, recipes: Sequence[str]) -> None:
    """Push built images to the home region's ECR and to the other registries. Raises PartialError if one lacks any."""
    chosen, plan = _chosen(recipes), plan_of(operator)
    hosts = registry_hosts(plan)
    if not hosts:
        raise InputError("`jobs` declares no registry", where=str(operator.fleet), fix="add `ecr: true` or registries")
    folders = dict(containers.built_images(_folder()))
    images = {recipe: containers.read_image(folders[recipe]) for recipe in chosen if recipe in folders}
    if missing := [recipe for recipe in (recipes or chosen) if recipe not in images and (recipes or not images)]:
        fix = f"run `bedplate image container build {' '.join(missing)}`"
        raise InputError(f"not built for {containers.arch_here()}: {', '.join(missing)}", fix=fix)

    def fill(host: str) -> None:
        with _registry(plan, host, hosts[host]) as registry:
            for recipe, image in images.items():
                if not registry.has(recipe, image.digest):
                    operator.notify([f"{recipe}: pushes it to {host}"])
                    registry.push(folders[recipe], image)

    home = ecr_host(plan.account, plan.home.name)
    _, errors = ask_each([host for host, place in hosts.items() if host == home or "://" in place], fill, 1)
    for recipe, image in images.items():
        operator.show(
            f"{recipe} {image.arch}: {host}/{plan.name}/{recipe}@{image.digest}" for host in hosts if host not in errors
        )
    if errors:
        what = "; ".join(error.what for error in errors.values())
        raise PartialError(f"not pushed everywhere: {what}", fix=next(iter(errors.values())).fix)
    operator.notify(["name one of these for each group in `jobs.images`; ECR copies them to other regions in minutes"])


class _Registry:
    """A registry of the fleet, as skopeo reaches it; methods raise PartialError if it does not answer."""

    def __init__(self, prefix: str, environment: Mapping[str, str], *, is_plain: bool) -> None:
        self._prefix, self._environment, self._tls = prefix, environment, f"tls-verify={str(not is_plain).lower()}"

    def has(self, recipe: str, digest: str) -> bool:
        """Return whether it has an image."""
        error = self._run("inspect", "--raw", f"--{self._tls}", f"docker://{self._prefix}/{recipe}@{digest}")
        if error and not any(words in error for words in _ABSENT):
            raise PartialError(f"{self._prefix}: {error}", fix="check the registry and the connection")
        return not error

    def push(self, folder: Path, image: BuiltImage) -> None:
        """Push an image: first its parts, then its manifest, so that nobody sees a part of it."""
        # The tag is for people only.
        target = f"docker://{self._prefix}/{image.name}:{image.arch}-{image.digest[7:_SHORT]}"
        copy = "copy", "--quiet", "--retry-times=3", "--preserve-digests", f"--dest-{self._tls}"
        if error := self._run(*copy, f"oci:{folder}", target, timeout="6h"):
            fix = "check its disk space and the rights of `skopeo login`, then push again: it sends what is missing"
            raise PartialError(f"{self._prefix} takes no {image.name}: {error}", fix=fix)

    def _run(self, *words: str, timeout: str = _SECONDS) -> str:
        """Run skopeo; return its error, in one line."""
        skopeo = containers.require_tool("skopeo")
        command = (skopeo, f"--command-timeout={timeout}", *words)
        done = subprocess.run(  # noqa: S603  skopeo, with names of the plan
            command, env={**os.environ, **self._environment}, capture_output=True, text=True, check=False
        )
        text = done.stderr.strip().rpartition("level=fatal msg=")[2]
        return one_line(text.strip('"')) or "skopeo failed with no error output" if done.returncode else ""


@contextmanager
def _registry(plan: FleetPlan, host: str, place: str) -> Iterator[_Registry]:
    """Yield a registry: ECR of a region with a token of its own, another one as `skopeo login` knows it."""
    prefix = f"{host}/{plan.name}"
    if "://" in place:
        yield _Registry(prefix, {}, is_plain=place.startswith("http://"))
        return
    client = open_account(plan)
    answer = client.call("ecr", place, "get_authorization_token")
    login = {"auths": {host: {"auth": answer["authorizationData"][0]["authorizationToken"]}}}
    with TemporaryDirectory(prefix="bedplate-") as name:
        file = Path(name) / "auth.json"
        write_whole(file, json.dumps(login).encode(), 0o600)
        yield _Registry(prefix, {"REGISTRY_AUTH_FILE": str(file)}, is_plain=False)


def list_images(operator: Operator) -> Result:
    """Return the images that are built here or used by a group, with the registries that have them."""
    plan = plan_of(operator)
    hosts, used = registry_hosts(plan), _used(plan)
    images = {recipe: containers.read_image(folder) for recipe, folder in containers.built_images(_folder())}
    names = sorted({(recipe, image.digest) for recipe, image in images.items()} | used.keys())

    def ask(host: str) -> list[tuple[str, str]]:
        with _registry(plan, host, hosts[host]) as registry:
            return [name for name in names if registry.has(*name)]

    answers, errors = ask_each(hosts if names else (), ask, len(hosts))
    document = [
        {
            "recipe": recipe,
            "digest": digest,
            "built": images[recipe].arch if recipe in images and images[recipe].digest == digest else None,
            "pushed": [hosts[host] for host, present in answers.items() if (recipe, digest) in present],
            "used": list(used.get((recipe, digest), ())),
        }
        for recipe, digest in names
    ]
    rows = [
        (
            str(row["recipe"]),
            str(row["digest"])[:_SHORT],
            str(row["built"] or "-"),
            _words(row["pushed"]),
            _words(row["used"]),
        )
        for row in document
    ]
    lines = aligned([("image", "digest", "built for", "in", "used by"), *rows]) if rows else ("no images",)
    wrong = [
        line for recipe, image in images.items() for line in _misfits(plan, image, used.get((recipe, image.digest), ()))
    ]
    notes = [*wrong, *(f"unknown: {error.what}" for error in errors.values())]
    statuses = (0, *(ViolationError.exit_code for _ in wrong), *(PartialError.exit_code for _ in errors))
    return Result(lines, document, worst(statuses), notes)


def _words(names: object) -> str:
    return ", ".join(names) if isinstance(names, list) and names else "-"


def _used(plan: FleetPlan) -> dict[tuple[str, str], list[str]]:
    """Return the groups that use each standard image, by recipe and digest."""
    used: dict[tuple[str, str], list[str]] = {}
    for group, image in plan.jobs.images.items():
        repository, _, digest = image.partition("@")
        fleet, _, recipe = repository.partition("/")[2].rpartition("/")
        if fleet == plan.name and recipe in RECIPES:
            used.setdefault((recipe, digest), []).append(group)
    return used


def _misfits(plan: FleetPlan, image: BuiltImage, groups: Sequence[str]) -> Iterator[str]:
    """Yield each group whose machines cannot run an image."""
    kinds = {pool.group: pool_kind(plan, pool, plan.catalog).arch for pool in plan.pools}
    for group in groups:
        arch = {"x86_64": "amd64"}.get(kinds.get(group, ""), kinds.get(group, image.arch))
        if arch != image.arch:
            yield f"{group}: its machines are {arch}, but {image.name} {image.digest[:_SHORT]} is for {image.arch}"
