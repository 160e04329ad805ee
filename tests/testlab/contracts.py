"""A contract of import-linter that names what packages may import, so that a new package or library is refused."""

import sys
from typing import Any

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output


class OnlyContract(Contract):
    """Each source package imports the standard library, itself and the allowed modules.

    A forbidden contract would list what they may not import, and miss what is added later.
    """

    type_name = "only"

    # import-linter replaces the fields of a contract by their values.
    source_modules: Any = fields.ListField(subfield=fields.ModuleField())
    allowed_modules: Any = fields.ListField(subfield=fields.ModuleField(), required=False)

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:  # noqa: ARG002, FBT001  import-linter's signature
        """Find every other import."""
        allowed = {module.name for module in self.allowed_modules or ()}
        others = [
            f"{module} -> {imported}"
            for source in self.source_modules
            for module in sorted({source.name, *graph.find_descendants(source.name)})
            for imported in sorted(graph.find_modules_directly_imported_by(module))
            if not _is_in(imported, {*allowed, source.name}) and imported.split(".")[0] not in sys.stdlib_module_names
        ]
        return ContractCheck(kept=not others, metadata={"others": others})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Print each import that is not allowed."""
        for line in check.metadata["others"]:
            output.print_error(f"not allowed: {line}")


def _is_in(module: str, packages: set[str]) -> bool:
    return any(f"{module}.".startswith(f"{package}.") for package in packages)
