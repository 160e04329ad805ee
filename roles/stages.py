"""The order of work on a node: a stage runs for all its roles before the next begins."""

from collections.abc import Collection

from roles.base import NO_CHANGES, Changes, Role

STAGES = ("install", "configure", "activate")


def deploy(roles: tuple[Role, ...], only: Collection[str] | None = None, stages: Collection[str] | None = None) -> None:
    """Declare to pyinfra the operations of the wanted roles, stage by stage; None wants all."""
    wanted = [role for role in roles if only is None or role.name in only]
    chosen = STAGES if stages is None else stages
    if "install" in chosen:
        for role in wanted:
            role.install()
    changes: dict[str, Changes] = {}
    if "configure" in chosen:
        changes = {role.name: role.configure() for role in wanted}
    if "activate" in chosen:
        for role in wanted:
            role.activate(changes.get(role.name, NO_CHANGES))
