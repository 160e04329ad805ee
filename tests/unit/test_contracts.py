"""What code may import, and how it decides: each kind of violation, planted in a copy or a line, is found."""

import ast
import re
import shutil
import subprocess
import sys
from pathlib import Path

import grimp
import pytest

from bedplate.spec.groups import Market
from bedplate.spec.sites import Use
from tests.testlab.contracts import OnlyContract
from tests.testlab.run import ROOT

PACKAGES = ("bedplate", "images", "roles", "stacks", "vpn")
# The module that gets a forbidden import; the import; and what import-linter prints about it.
PLANTS = {
    "copied": (
        "bedplate/programs/gateway/status.py",
        "import bedplate.errors",
        "bedplate.programs.gateway.status -> bedplate.errors",
    ),
    "third-party": ("bedplate/programs/worker/join.py", "import pydantic", "bedplate.programs.worker.join -> pydantic"),
    "gate": (
        "bedplate/programs/gate/hardware.py",
        "import bedplate.catalog",
        "bedplate.programs.gate.hardware -> bedplate.catalog",
    ),
    "plan": ("bedplate/plan/space.py", "import bedplate.compliance.settings", "bedplate.plan is not allowed to import"),
    "cli": ("bedplate/deploy/run.py", "import bedplate.cli.fleet", "bedplate.deploy is not allowed to import"),
    "roles": ("bedplate/deploy/run.py", "import roles.system", "roles.system"),
    "library": ("bedplate/plan/space.py", "import lightkube", "lightkube"),
    "new package": ("bedplate/novel/__init__.py", "", "bedplate.novel"),
    "circle": ("bedplate/spec/base.py", "import bedplate.spec.fleet", "No cycles are allowed in bedplate.spec"),
}


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the product with its contracts."""
    folder = tmp_path_factory.mktemp("copy")
    for package in PACKAGES:
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "tests" / "testlab").mkdir(parents=True)
    for name in (".importlinter", "tests/testlab/contracts.py"):
        shutil.copy(ROOT / name, folder / name)
    return folder


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run import-linter in a folder, with its packages in place of the project's."""
    program = Path(sys.executable).with_name("lint-imports")
    return subprocess.run([program, "--no-cache"], cwd=folder, capture_output=True, text=True, check=False)


def test_the_copy_keeps_its_contracts(copy: Path) -> None:
    """Without a planted import nothing is broken."""
    done = lint_imports(copy)

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("plant", PLANTS)
def test_a_planted_import_breaks_a_contract(plant: str, copy: Path) -> None:
    """`make check` fails, and names the import or the package without a layer."""
    name, line, words = PLANTS[plant]
    file = copy / name
    text = file.read_text(encoding="utf-8") if file.exists() else None
    file.parent.mkdir(exist_ok=True)
    try:
        file.write_text(f"{text or ''}\n{line}\n", encoding="utf-8")
        done = lint_imports(copy)
    finally:
        shutil.rmtree(file.parent) if text is None else file.write_text(text, encoding="utf-8")

    assert done.returncode == 1
    assert words in done.stdout, done.stdout


@pytest.mark.parametrize(
    ("imported", "is_kept"),
    [("json", True), ("tool.parts", True), ("errors", True), ("requests", False), ("other", False), ("toolbox", False)],
)
def test_only_listed_modules_are_imported(imported: str, *, is_kept: bool) -> None:
    """The standard library, the package itself and the allowed modules; no other module, listed elsewhere or not."""
    graph = grimp.ImportGraph()
    graph.add_module("tool")
    graph.add_import(importer="tool.main", imported=imported)
    session = {"root_packages": ["tool"]}
    contract = OnlyContract("Alone", session, {"source_modules": ["tool"], "allowed_modules": ["errors"]})

    assert contract.check(graph, verbose=False).kept is is_kept


# Python programs of roles that are no modules: machines get each as one file.
PROGRAMS = [path for path in sorted((ROOT / "roles").glob("*/*")) if "." not in path.name and path.is_file()]
PYTHON = [path for path in PROGRAMS if path.read_bytes().startswith(b"#!/usr/bin/python3")]


@pytest.mark.parametrize("program", PYTHON, ids=lambda path: path.name)
def test_a_shipped_program_imports_the_standard_library_only(program: Path) -> None:
    """Machines have no other package for it, and import-linter sees modules only."""
    # One is a template, which Python's parser refuses.
    imported = re.findall(r"(?m)^ *(?:import|from) ([\w.]+)", program.read_text(encoding="utf-8"))

    assert imported
    assert {name.partition(".")[0] for name in imported} <= sys.stdlib_module_names


def _undecided(source: str) -> list[int]:
    """Return the lines that compare with one use or market, or have one as key: mypy does not miss a new one there."""
    members = {f"{kind.__name__}.{member.name}" for kind in (Use, Market) for member in kind}
    nodes = list(ast.walk(ast.parse(source)))
    compared = [part for node in nodes if isinstance(node, ast.Compare) for part in ast.walk(node)]
    keys = [key for node in nodes if isinstance(node, ast.Dict) for key in node.keys if key]
    return [part.lineno for part in (*compared, *keys) if isinstance(part, ast.expr) and ast.unparse(part) in members]


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("if pool.use is Use.SSH: pass", [1]),
        ("x = market in (Market.SPOT, Market.RESERVATION)", [1, 1]),
        ("HOPS = {\n    Use.SSH: 2}", [2]),
        ("match use:\n    case Use.SSH: pass", []),
        ("if subject.use is Use.CLIENT: pass", []),
    ],
)
def test_a_decision_by_one_member_is_found(source: str, lines: list[int]) -> None:
    """A comparison and a table are found; a match, and the uses of certificates, are allowed."""
    assert _undecided(source) == lines


def test_code_decides_by_uses_and_markets_where_mypy_sees_a_new_one() -> None:
    """It asks a property, or has a match over all members: a new member is then a type error."""
    files = (file for package in PACKAGES for file in (ROOT / package).rglob("*.py"))
    lines = {str(file.relative_to(ROOT)): _undecided(file.read_text(encoding="utf-8")) for file in files}
    assert {file: found for file, found in lines.items() if found} == {}
