"""The list price of an interface endpoint: a small table of its own, for what is paid by zone and hour."""

from dataclasses import dataclass

from bedplate.catalog.shipped import shipped

HOURS_OF_MONTH = 730


@dataclass(frozen=True, slots=True)
class EndpointPrice:
    """USD an hour for one endpoint in one zone, and where and when that was asked."""

    hourly: float
    region: str
    date: str

    def monthly(self, interfaces: int) -> float:
        """Return USD a month for a number of endpoints and zones."""
        return round(self.hourly * HOURS_OF_MONTH * interfaces, 2)


def endpoint_price() -> EndpointPrice:
    """Return the shipped price."""
    sheet = shipped("endpoint")
    (hourly,) = sheet.rows
    return EndpointPrice(float(hourly), sheet.heading["region"], sheet.heading["date"])
