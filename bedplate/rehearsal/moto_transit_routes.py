"""Routes of moto's transit gateways, told as AWS tells them: static ones with where they lead, and learnt ones.

A static route whose attachment is gone is a blackhole; an attached VPC that propagates is learnt with its blocks.
"""

from collections.abc import Callable, Iterator
from typing import Any

_FILTERS = {"type": "type", "state": "state", "route-search.exact-match": "destinationCidrBlock"}


def telling_routes(_search: Callable[..., Any]) -> Callable[..., Any]:
    """Return what stands in for moto's search, which forgets attachments and knows no propagation."""

    def searched(backend: Any, transit_gateway_route_table_id: str, filters: Any, max_results: Any = None) -> object:  # noqa: ANN401  # one of moto's mixed classes
        table = backend.transit_gateways_route_tables.get(transit_gateway_route_table_id)
        every = [*_static(backend, table), *_learnt(backend, table)] if table else []
        found = [each for each in every if _passes(each, filters or {})]
        return found[: int(max_results)] if max_results else found

    return searched


def keeping_attachments(create: Callable[..., Any]) -> Callable[..., Any]:
    """Keep the attachment of a route in the form that a search can tell."""

    def created(backend: Any, **given: Any) -> object:  # noqa: ANN401
        route: dict[str, Any] = create(backend, **given)
        route["transitGatewayAttachments"] = _ends(backend, given.get("transit_gateway_attachment_id"))
        return route

    return created


def _ends(backend: Any, attachment: str | None) -> list[dict[str, str]]:  # noqa: ANN401
    if not attachment:
        return []
    found = backend.transit_gateway_attachments[attachment]
    end = {"resourceId": found.resource_id, "resourceType": found.resource_type}
    return [{**end, "transitGatewayAttachmentId": attachment}]


def _static(backend: Any, table: Any) -> Iterator[dict[str, Any]]:  # noqa: ANN401
    for route in table.routes.values():
        ends = [end["transitGatewayAttachmentId"] for end in route["transitGatewayAttachments"]]
        lives = any(_is_live(backend, ident) for ident in ends)
        yield {**route, "state": "active" if lives else "blackhole"}


def _learnt(backend: Any, table: Any) -> Iterator[dict[str, Any]]:  # noqa: ANN401
    for each in table.route_table_propagation:
        ident = each.transitGatewayAttachmentId
        if each.resourceType == "vpc" and _is_live(backend, ident):
            block = backend.vpcs[each.resourceId].cidr_block
            told = {"destinationCidrBlock": block, "type": "propagated", "state": "active"}
            yield {**told, "transitGatewayAttachments": _ends(backend, ident)}


def _is_live(backend: Any, ident: str) -> bool:  # noqa: ANN401
    found = backend.transit_gateway_attachments.get(ident)
    return found is not None and found.state == "available"


def _passes(route: dict[str, Any], filters: dict[str, list[str]]) -> bool:
    return all(route[key] in filters[name] for name, key in _FILTERS.items() if filters.get(name))
