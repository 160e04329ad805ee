"""Who is told when an alarm rings."""

from pydantic import Field

from bedplate.spec.base import Spec
from bedplate.spec.text import Email


class Alarms(Spec):
    """Somebody to tell: the alarms stand without, but ring in AWS's console alone."""

    email: Email = Field(
        title="E-mail address",
        description="Who is told when an alarm rings and when it is over; AWS first asks, by mail, once a region.",
    )
