"""The order of work on a node: a stage runs for all its roles before the next begins."""

from collections.abc import Collection

from pyinfra.context import host

from roles.base import NO_CHANGES, Changes, Role

STAGES = ("install", "configure", "activate")


def deploy(
    roles: tuple[Role, ...], only: Collection[str] | None = None, stages: Collection[str] | None = None
) -> tuple[tuple[Role, frozenset[str]], ...]:
    """Declare to pyinfra the operations of the wanted roles, stage by stage; None wants all.

    Return each role with the keys of the operations that its install declared.
    """
    wanted = [role for role in roles if only is None or role.name in only]
    chosen = STAGES if stages is None else stages
    installs: list[tuple[Role, frozenset[str]]] = []
    if "install" in chosen:
        for role in wanted:
            before = frozenset(host.op_hash_order)
            role.install()
            installs.append((role, frozenset(host.op_hash_order) - before))
    changes: dict[str, Changes] = {}
    if "configure" in chosen:
        changes = {role.name: role.configure() for role in wanted}
    if "activate" in chosen:
        for role in wanted:
            role.activate(changes.get(role.name, NO_CHANGES))
    return tuple(installs)
