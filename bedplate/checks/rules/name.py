"""E41: names that everything else is made from."""

from bedplate.checks.rules.rule import Rule

NAME_RULES = (
    Rule("E410", "fleet-name", "It is the start of every resource's name.", "write it as lab"),
    Rule("E411", "bad-name", "It becomes part of names in AWS and DNS.", "write it as train"),
    Rule(
        "E412",
        "account-id",
        "Commands refuse to act in another account.",
        "write the twelve digits, quoted",
        "AWS IAM",
    ),
    Rule(
        "E413",
        "owner",
        "It is a tag's value on everything.",
        "write an address or a team",
        "AWS tag naming limits",
    ),
    Rule(
        "E414",
        "domain",
        "Every host has a name in it.",
        "write it as lab.internal",
        "RFC 1123, RFC 6761, RFC 6762",
    ),
    Rule("E415", "host-name", "It is one label of a name in DNS.", "write it as titan-01", "RFC 1123"),
)
