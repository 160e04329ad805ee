"""What an account was granted of the quotas that a fleet needs, asked of Service Quotas region by region."""

from collections.abc import Iterable, Iterator

from bedplate.account.door import Door
from bedplate.account.regions import Answers, ask_regions
from bedplate.account.trouble import NotThere
from bedplate.plan.quotas import Need

Values = dict[tuple[str, str], float]


def granted(door: Door, needs: Iterable[Need]) -> Answers[Values]:
    """Return by region what the account has of each quota needed there, by region and the quota's code."""
    wanted = tuple(needs)

    def ask(region: str) -> Values:
        return dict(_of_region(door, region, [need for need in wanted if need.region == region]))

    return ask_regions((need.region for need in wanted), ask)


def _of_region(door: Door, region: str, needs: list[Need]) -> Iterator[tuple[tuple[str, str], float]]:
    for service in dict.fromkeys(need.quota.service for need in needs):
        codes = {need.quota.code for need in needs if need.quota.service == service}
        listed = {code: value for code, value in _listed(door, region, service) if code in codes}
        yield from (((region, code), value) for code, value in listed.items())
        for code in sorted(codes - listed.keys()):
            if (value := _default(door, region, service, code)) is not None:
                yield (region, code), value


def _listed(door: Door, region: str, service: str) -> Iterator[tuple[str, float]]:
    try:
        for page in door.pages("service-quotas", region, "list_service_quotas", ServiceCode=service):
            yield from ((quota["QuotaCode"], quota["Value"]) for quota in page["Quotas"] if "Value" in quota)
    except NotThere:
        return


def _default(door: Door, region: str, service: str, code: str) -> float | None:
    """Return AWS's own value: it holds where the account was never granted another, and is not listed then."""
    asked = {"ServiceCode": service, "QuotaCode": code}
    try:
        reply = door.call("service-quotas", region, "get_aws_default_service_quota", **asked)
    except NotThere:
        return None
    value: float | None = reply["Quota"].get("Value")
    return value
