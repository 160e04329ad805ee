"""The file itself: how it is opened and decoded, its YAML, its keys and types of values, its format, and its lock.

`bedplate.load` reports these faults while it reads the file.
"""

from bedplate.rules import Rule

_YAML = "YAML 1.2.2, yaml.org/spec"

MISSING_FILE = Rule("E001", "The file does not exist.", "give the path of a fleet file")
NOT_A_FILE = Rule(
    "E002",
    "Reading a FIFO or a device can block forever; a lock file declares no fleet.",
    "give the path of the fleet file",
)
LINK_OUTSIDE_FOLDER = Rule(
    "E003",
    "A link target outside the folder is not reviewed and committed with it.",
    "replace the link by the file itself",
)
FILE_TOO_LARGE = Rule(
    "E004",
    "A fleet of 1,000 regions takes a tenth of 1 MiB; a larger file is a mistake.",
    "check the path, or reduce the file",
)
UNREADABLE_FILE = Rule("E005", "The operating system cannot open the file.", "correct the path or permissions")
NOT_UTF8 = Rule("E006", "Programs guess other encodings differently.", "save the file as UTF-8 without BOM")
CONTROL_CHARACTER = Rule(
    "E007", "Invisible characters would end up in names and configuration files.", "delete the character", _YAML
)
EMPTY_FILE = Rule("E008", "The file declares no fleet.", "copy examples/minimal.yaml")
MANY_DOCUMENTS = Rule("E009", "A file holds one fleet.", "delete the second document, from its ---")
YAML_SYNTAX = Rule("E010", "The parser cannot read further.", "correct the YAML syntax here", _YAML)
TOO_DEEP = Rule("E011", "No key of a fleet has more than 32 levels.", "check the brackets and the indentation")
TOO_MANY_VALUES = Rule("E012", "A file with more than 30,000 values is a mistake.", "reduce the file")
TOO_MANY_ALIASES = Rule("E013", "Aliases can expand to any size.", "write the values out")
NESTED_ALIAS = Rule("E014", "Aliases inside anchored values can expand to any size.", "write the value out")
RECURSIVE_ALIAS = Rule("E015", "A value cannot contain itself.", "write the value out")
TAG = Rule("E016", "A tag changes the type of a value.", "delete the tag")
MERGE_KEY = Rule("E017", "YAML 1.2 has no merge keys.", "write the keys out", _YAML)
DUPLICATE_KEY = Rule(
    "E018", "YAML parsers differ in which value they use.", "delete one of the two", _YAML, at_key=True
)
KEY_NOT_TEXT = Rule("E019", "Every key of a fleet file is a string.", "quote the key", at_key=True)
TOO_MANY_FAULTS = Rule("E020", "The report ends after 100 faults.", "fix those above, then check again")
UNKNOWN_ALIAS = Rule("E021", "An alias needs an anchor before it.", "write the value out")
YAML_DIRECTIVE = Rule("E022", "bedplate always reads YAML 1.2.", "delete the line that starts with %")
UNKNOWN_KEY = Rule(
    "E101", "bedplate would ignore a misspelt key.", "delete it; `bedplate schema` lists the keys", at_key=True
)
MISSING_KEY = Rule("E102", "The key is required.", "add the key")
WRONG_TYPE = Rule("E103", "bedplate does not convert types.", "write a value of the required type")
NULL_VALUE = Rule("E104", "A key needs a value.", "write a value, or delete the key")
UNKNOWN_WORD = Rule("E105", "The key takes only the listed words.", "write one of the listed words")
OUT_OF_RANGE = Rule("E107", "AWS or bedplate sets a limit.", "write a number within the limits")
EMPTY_LIST = Rule("E108", "The list needs at least one entry.", "add an entry, or delete the key")
AMBIGUOUS_WORD = Rule("E110", "YAML 1.1 and YAML 1.2 read this unquoted word differently.", "quote it", "yaml.org/type")
UNUSABLE_LOCK = Rule("E290", "Without the recorded blocks, new ones could overlap them.", "restore it from git")
UNUSABLE_CATALOG = Rule(
    "E291",
    "The zones and prices of other accounts differ, so the facts of the package do not replace those of the folder.",
    "update bedplate, or restore the file from git, or delete it and run `bedplate catalog refresh`",
)
