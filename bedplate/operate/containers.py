"""Standard images of jobs: their builds, pushes to the registries of the fleet file, and who has and uses them."""

import json
import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from bedplate.bundle import user_cache
from bedplate.errors import InputError, PartialError
from bedplate.files import held, write_whole
from bedplate.foreign import one_line
from bedplate.operate import Operator, Result, open_account, plan_of
from bedplate.plan import FleetPlan
from bedplate.plan.registries import RECIPES, registry_hosts
from bedplate.report.columns import aligned
from bedplate.rounds import ask_each
from images import containers

# The last is Harbor's.
_ABSENT = re.compile("manifest unknown|name unknown|unknown: (artifact|repository) .*not found")
_SHORT = len("sha256:") + 12


def _folders(recipes: Sequence[str]) -> dict[str, Path]:
    """Return the folders of the images of these recipes, or of all. Raises InputError for an unknown recipe."""
    for recipe in recipes:
        if recipe not in RECIPES:
            raise InputError(f"no recipe is named {recipe}", fix=f"write one of {', '.join(RECIPES)}")
    folder = user_cache().folder.with_name("containers")
    return {recipe: folder / f"{recipe}-{containers.arch_here()}" for recipe in recipes or RECIPES}


def build(operator: Operator, recipes: Sequence[str], mirror: str) -> None:
    """Build images for the architecture of this machine."""
    for recipe, folder in _folders(recipes).items():
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with held(folder.parent / "build"):
            operator.notify([f"{recipe}: builds it, for some minutes"])
            built = containers.build(recipe, folder, mirror)
            operator.show([f"{recipe}: {built.digest} for {built.arch}, {built.size / 1e6:.0f} MB"])


def push(operator: Operator, recipes: Sequence[str]) -> None:
    """Push built images to the registries that lack them. Raises PartialError if one fails."""
    plan, folders = plan_of(operator), _folders(recipes)
    hosts = registry_hosts(plan)
    if not hosts:
        raise InputError("`jobs` declares no registry", where=str(operator.fleet), fix="add `ecr: true` or registries")
    missing = [recipe for recipe, folder in folders.items() if not folder.exists()]
    if missing and (recipes or len(missing) == len(folders)):
        fix = f"run `bedplate image container build {' '.join(missing)}`"
        raise InputError(f"not built for {containers.arch_here()}: {', '.join(missing)}", fix=fix)
    images = {recipe: containers.read_image(folder) for recipe, folder in folders.items() if folder.exists()}

    sent: set[str] = set()

    def fill(host: str) -> set[str]:
        """Push what a registry lacks; return the images that ECR copies to it from home, where they came just now."""
        is_copy = "://" not in hosts[host] and hosts[host] != plan.home.name
        with _registry(plan, host, hosts[host]) as registry:
            lacking = {recipe for recipe, image in images.items() if not registry.has(recipe, image.digest)}
            for recipe in sorted(lacking - sent if is_copy else lacking):
                operator.notify([f"{recipe}: pushes it to {host}"])
                # The tag is for people only.
                registry.push(folders[recipe], f"{recipe}:{images[recipe].arch}-{images[recipe].digest[7:_SHORT]}")
        if hosts[host] == plan.home.name:
            sent.update(lacking)
        return lacking & sent if is_copy else set()

    # Home first: ECR copies to other regions what is pushed there after its rule exists.
    coming, errors = ask_each(sorted(hosts, key=lambda host: hosts[host] != plan.home.name), fill, 1)
    for recipe, image in images.items():
        for host in (host for host in hosts if host in coming):
            note = "  not there yet: ECR copies it within minutes, or the next push" if recipe in coming[host] else ""
            operator.show([f"{host}/{plan.name}/{recipe}@{image.digest}{note}"])
    if errors:
        what = "; ".join(error.what for error in errors.values())
        raise PartialError(f"not pushed everywhere: {what}", fix=next(iter(errors.values())).fix)


def list_images(operator: Operator) -> Result:
    """Return the images that are built here or used by a group, with the registries that have them."""
    plan = plan_of(operator)
    hosts, built = registry_hosts(plan), {path for path in _folders(()).values() if path.exists()}
    images = {(image.name, image.digest): image.arch for image in map(containers.read_image, sorted(built))}
    used: dict[tuple[str, str], list[str]] = {name: [] for name in images}
    for group, image in plan.jobs.images.items():
        repository, _, digest = image.partition("@")
        fleet, _, recipe = repository.partition("/")[2].rpartition("/")
        if fleet == plan.name and recipe in RECIPES:
            used.setdefault((recipe, digest), []).append(group)

    def ask(host: str) -> list[tuple[str, str]]:
        with _registry(plan, host, hosts[host]) as registry:
            return [name for name in used if registry.has(*name)]

    answers, errors = ask_each(hosts if used else (), ask, len(hosts))
    pushed = {name: [hosts[host] for host, present in answers.items() if name in present] for name in used}
    keys = "recipe", "digest", "built", "pushed", "used"
    rows = [(*name, images.get(name), pushed[name], groups) for name, groups in used.items()]
    document = [dict(zip(keys, row, strict=True)) for row in rows]
    table = [
        (recipe, digest[:_SHORT], arch or "-", ", ".join(places) or "-", ", ".join(groups) or "-")
        for recipe, digest, arch, places, groups in rows
    ]
    lines = aligned([("image", "digest", "built for", "in", "used by"), *table]) if table else ("no images",)
    notes = [f"unknown: {error.what}" for error in errors.values()]
    return Result(lines, document, PartialError.exit_code if notes else 0, notes)


@dataclass(frozen=True, slots=True)
class _Registry:
    """The fleet's repositories in a registry, as skopeo reaches them; methods raise PartialError."""

    prefix: str
    is_plain: bool = False
    login: str = ""
    """The file with a token; empty for what `skopeo login` has written."""

    def has(self, recipe: str, digest: str) -> bool:
        """Return whether it has an image."""
        error = self._run("--command-timeout=60s", "inspect", "--raw", f"docker://{self.prefix}/{recipe}@{digest}")
        if error and not _ABSENT.search(error):
            raise PartialError(f"{self.prefix}: {error}", fix="check the registry and the connection")
        return not error

    def push(self, folder: Path, name: str) -> None:
        """Push an image: first its parts, then its manifest, so that nobody sees a part of it."""
        words = "copy", "--quiet", "--retry-times=3", "--preserve-digests", f"oci:{folder}"
        if error := self._run(*words, f"docker://{self.prefix}/{name}"):
            fix = "check its disk space and the rights of `skopeo login`, then push again: it sends what is missing"
            if self.login and "name unknown" in error:
                fix = "run `bedplate up`, which makes the repositories"
            raise PartialError(f"{self.prefix} takes no {name}: {error}", fix=fix)

    def _run(self, *words: str) -> str:
        """Run skopeo; return its error, in one line."""
        command = [containers.require_tool("skopeo"), *words]
        option = "--dest-tls-verify" if "copy" in words else "--tls-verify"
        command.insert(-1, f"{option}={str(not self.is_plain).lower()}")
        login = {"REGISTRY_AUTH_FILE": self.login} if self.login else {}
        done = subprocess.run(command, env={**os.environ, **login}, capture_output=True, text=True, check=False)  # noqa: S603
        error = one_line(done.stderr.strip().rpartition("level=fatal msg=")[2].strip('"'))
        return (error or "skopeo failed with no error output") if done.returncode else ""


@contextmanager
def _registry(plan: FleetPlan, host: str, place: str) -> Iterator[_Registry]:
    """Yield a registry: ECR of a region with a token of its own, another one as `skopeo login` knows it."""
    prefix = f"{host}/{plan.name}"
    if "://" in place:
        yield _Registry(prefix, is_plain=place.startswith("http://"))
        return
    client = open_account(plan)
    answer = client.call("ecr", place, "get_authorization_token")
    login = {"auths": {host: {"auth": answer["authorizationData"][0]["authorizationToken"]}}}
    with TemporaryDirectory(prefix="bedplate-") as folder:
        file = Path(folder, "auth.json")
        write_whole(file, json.dumps(login).encode(), 0o600)
        yield _Registry(prefix, login=str(file))
