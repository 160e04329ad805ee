"""Entries of AWS's price list, in the form in which GetProducts tells them: each is JSON inside JSON."""

import json


def product(type_name: str, usd: str, *, unit: str = "Hrs") -> str:
    """Return the entry of an instance type."""
    dimension = {"unit": unit, "pricePerUnit": {"USD": usd}}
    terms = {"OnDemand": {"SKU.TERM": {"priceDimensions": {"SKU.TERM.RATE": dimension}}}}
    return json.dumps({"product": {"attributes": {"instanceType": type_name}}, "terms": terms})


def asked_of_the_price_list(region: str) -> dict[str, object]:
    """Return what a question for the prices of machines in a region holds."""
    wanted = {
        "operatingSystem": "Linux",
        "tenancy": "Shared",
        "preInstalledSw": "NA",
        "capacitystatus": "Used",
        "operation": "RunInstances",
        "regionCode": region,
    }
    filters = [{"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in wanted.items()]
    return {"ServiceCode": "AmazonEC2", "Filters": filters}
