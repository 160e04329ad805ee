"""E1: keys, and the kinds of values."""

from bedplate.checks.rules.rule import Rule

SHAPE_RULES = (
    Rule(
        "E101",
        "unknown-key",
        "A misspelt key would be ignored in silence.",
        "delete it; `bedplate schema` lists the keys",
        at_key=True,
    ),
    Rule("E102", "missing-key", "There is no good default for it.", "add the key"),
    Rule(
        "E103",
        "wrong-type",
        "A value of another type is never guessed at.",
        "write a value of the type wanted",
    ),
    Rule("E104", "null-value", "A key without a value says nothing.", "give it a value, or delete the key"),
    Rule("E105", "unknown-word", "Only the listed words mean something here.", "write one of the listed words"),
    Rule("E106", "bad-identifier", "AWS writes its identifiers in one way.", "write it as AWS does", "EC2 API"),
    Rule("E107", "out-of-range", "AWS or bedplate sets a limit here.", "write a number within the limits"),
    Rule("E108", "empty-list", "With nothing in it, it means nothing.", "list at least one, or delete the key"),
    Rule(
        "E110",
        "ambiguous-word",
        "YAML 1.1 and 1.2 read this unquoted word differently.",
        "quote it, or write what is meant",
        "yaml.org/type",
    ),
)
