"""Settings of OpenSSH as its programs tell them: `sshd -T`, `ssh -G`."""


def keywords(text: str) -> dict[str, str]:
    """Return the values of keywords, one a line; of a keyword on several lines all values, with spaces."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        keyword, _, value = line.strip().partition(" ")
        known = found.get(keyword.lower())
        found[keyword.lower()] = value if known is None else f"{known} {value}"
    return found
