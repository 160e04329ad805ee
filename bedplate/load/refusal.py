"""Why a fleet file cannot be read any further."""

from bedplate.load.node import Place
from bedplate.load.told import fault


class Unreadable(Exception):
    """Carries the fault that ends the reading: on its way to the list of faults, not an error of its own."""

    def __init__(self, code: str, message: str, place: Place, key: str = "", *, fix: str = "") -> None:
        super().__init__(message)
        self.fault = place.of(fault(code, key, message, fix))
