"""Why the rehearsal would not do what a program asked: the provider's word, AWS's, or its own limits."""

from collections.abc import Collection

from bedplate.rehearsal.hiding import hidden


class Refusal(Exception):
    """One resource cannot be what the program asks for; `code` is AWS's error code where it has one."""

    def __init__(self, code: str, message: str, *, key: str = "") -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.key = key

    def without(self, secrets: Collection[str]) -> "Refusal":
        """Return the refusal with every secret in its message hidden."""
        return Refusal(self.code, hidden(self.message, secrets), key=self.key)


class Unsupported(Refusal):
    """The rehearsal has no model of this: it says so instead of guessing."""

    def __init__(self, message: str, *, key: str = "") -> None:
        super().__init__("Unsupported", message, key=key)
