"""The file itself: how it is opened and decoded, its YAML, its keys and types of values, its format, and its lock.

`bedplate.load` reports these faults while it reads the file.
"""

from collections.abc import Callable, Iterator

from bedplate.checks.diagnostics import Context, Fault, Rule

_YAML = "YAML 1.2.2, yaml.org/spec"

FILE_RULES = (
    Rule("E001", "missing-file", "The file does not exist.", "give the path of a fleet file"),
    Rule(
        "E002",
        "not-a-file",
        "Reading a FIFO or a device can block forever; a lock file declares no fleet.",
        "give the path of the fleet file",
    ),
    Rule(
        "E003",
        "link-outside-folder",
        "A link target outside the folder is not reviewed and committed with it.",
        "replace the link by the file itself",
    ),
    Rule(
        "E004",
        "file-too-large",
        "A fleet of 1,000 regions takes a tenth of 1 MiB; a larger file is a mistake.",
        "check the path, or reduce the file",
    ),
    Rule("E005", "unreadable-file", "The operating system cannot open the file.", "correct the path or permissions"),
    Rule("E006", "not-utf8", "Programs guess other encodings differently.", "save the file as UTF-8 without BOM"),
    Rule(
        "E007",
        "control-character",
        "Invisible characters would end up in names and configuration files.",
        "delete the character",
        _YAML,
    ),
    Rule("E008", "empty-file", "The file declares no fleet.", "copy examples/minimal.yaml"),
    Rule("E009", "many-documents", "A file holds one fleet.", "delete the second document, from its ---"),
    Rule("E010", "yaml-syntax", "The parser cannot read further.", "correct the YAML syntax here", _YAML),
    Rule("E011", "too-deep", "No key of a fleet has more than 32 levels.", "check the brackets and the indentation"),
    Rule("E012", "too-many-values", "A file with more than 30,000 values is a mistake.", "reduce the file"),
    Rule("E013", "too-many-aliases", "Aliases can expand to any size.", "write the values out"),
    Rule("E014", "nested-alias", "Aliases inside anchored values can expand to any size.", "write the value out"),
    Rule("E015", "recursive-alias", "A value cannot contain itself.", "write the value out"),
    Rule("E016", "tag", "A tag changes the type of a value.", "delete the tag"),
    Rule("E017", "merge-key", "YAML 1.2 has no merge keys.", "write the keys out", _YAML),
    Rule(
        "E018",
        "duplicate-key",
        "YAML parsers differ in which value they use.",
        "delete one of the two",
        _YAML,
        at_key=True,
    ),
    Rule("E019", "key-not-text", "Every key of a fleet file is a string.", "quote the key", at_key=True),
    Rule("E020", "too-many-faults", "The report ends after 100 faults.", "fix those above, then check again"),
    Rule("E021", "unknown-alias", "An alias needs an anchor before it.", "write the value out"),
    Rule("E022", "yaml-directive", "bedplate always reads YAML 1.2.", "delete the line that starts with %"),
)

RULES = (
    *FILE_RULES,
    Rule(
        "E101",
        "unknown-key",
        "bedplate would ignore a misspelt key.",
        "delete it; `bedplate schema` lists the keys",
        at_key=True,
    ),
    Rule("E102", "missing-key", "The key is required.", "add the key"),
    Rule("E103", "wrong-type", "bedplate does not convert types.", "write a value of the required type"),
    Rule("E104", "null-value", "A key needs a value.", "write a value, or delete the key"),
    Rule("E105", "unknown-word", "The key takes only the listed words.", "write one of the listed words"),
    Rule("E106", "bad-identifier", "AWS and Linux define the form of their identifiers.", "correct it", "EC2 API"),
    Rule("E107", "out-of-range", "AWS or bedplate sets a limit.", "write a number within the limits"),
    Rule("E108", "empty-list", "The list needs at least one entry.", "add an entry, or delete the key"),
    Rule(
        "E110",
        "ambiguous-word",
        "YAML 1.1 and YAML 1.2 read this unquoted word differently.",
        "quote it",
        "yaml.org/type",
    ),
    Rule("E290", "unusable-lock", "Without the recorded blocks, new ones could overlap them.", "restore it from git"),
    Rule("E601", "other-format", "Keys can mean something else in another format.", "write `version: 1`"),
)
CHECKS: tuple[Callable[[Context], Iterator[Fault]], ...] = ()
