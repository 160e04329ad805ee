"""E0: the file as a file, and its YAML."""

from bedplate.checks.diagnostics import Rule

_YAML = "YAML 1.2.2, yaml.org/spec"

FILE_RULES = (
    Rule(
        "E001",
        "missing-file",
        "There is nothing to read.",
        "give the path of a fleet file, such as examples/minimal.yaml",
    ),
    Rule("E002", "not-a-file", "A FIFO or a device may hang its reader for ever.", "give the path of a file"),
    Rule(
        "E003",
        "file-elsewhere",
        "A link out of its folder is not what was reviewed and committed.",
        "put the file itself there",
    ),
    Rule(
        "E004",
        "file-too-large",
        "A fleet of 1,000 regions takes a tenth of 1 MiB; more is an accident.",
        "give a fleet file, or declare less in it",
    ),
    Rule("E005", "unreadable-file", "The system refuses to open it.", "mend its path or its rights"),
    Rule(
        "E006",
        "not-utf8",
        "Other encodings are guessed differently by every reader.",
        "save it as UTF-8, no BOM",
    ),
    Rule(
        "E007",
        "control-character",
        "Unseen characters end up in names and configuration.",
        "delete it",
        _YAML,
    ),
    Rule("E008", "empty-file", "There is no fleet in it.", "start from examples/minimal.yaml"),
    Rule("E009", "many-documents", "One file is one fleet.", "keep one document: delete what follows ---"),
    Rule("E010", "yaml-syntax", "It cannot be read beyond this place.", "mend the YAML at this place", _YAML),
    Rule(
        "E011",
        "too-deep",
        "No key of a fleet lies deeper than 32 levels.",
        "close the brackets, or check the indent",
    ),
    Rule("E012", "too-many-values", "A file of more than 30,000 values is an accident.", "declare less in it"),
    Rule("E013", "too-many-aliases", "Aliases can multiply to any size.", "write the values out"),
    Rule("E014", "nested-alias", "An alias inside an anchored value multiplies.", "write the inner value out"),
    Rule("E015", "recursive-alias", "A value cannot hold itself.", "write the value out"),
    Rule("E016", "tag", "Tags ask a reader to make other things of a value than it says.", "delete the tag"),
    Rule("E017", "merge-key", "Merge keys are no part of YAML 1.2.", "write the keys out", _YAML),
    Rule(
        "E018",
        "duplicate-key",
        "Readers differ in which of the two counts.",
        "delete one of them",
        _YAML,
        at_key=True,
    ),
    Rule("E019", "key-not-text", "Every key of a fleet file is text.", "quote the key", at_key=True),
    Rule("E020", "too-many-faults", "More faults than anybody reads.", "mend those above, then check again"),
    Rule("E021", "unknown-alias", "Nothing is anchored by that name before it.", "write the value out"),
    Rule("E022", "yaml-directive", "The file is read as YAML 1.2, whatever it says.", "delete the % line"),
)


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
