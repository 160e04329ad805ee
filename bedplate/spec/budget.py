"""What the account may cost in a month, and who is told before it does."""

from pydantic import Field

from bedplate.spec.base import Spec
from bedplate.spec.text import Email


class Budget(Spec):
    """A monthly limit: nothing is stopped when it is reached, somebody is told."""

    monthly: int = Field(ge=1, le=100_000_000, title="Monthly limit", description="US dollars a month.")
    email: Email = Field(title="E-mail address", description="Who is told, at 80 % spent and when 100 % is foreseen.")
