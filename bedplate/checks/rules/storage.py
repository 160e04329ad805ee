"""E40 and E416: shared storage."""

from bedplate.checks.rules.rule import Rule

STORAGE_RULES = (
    Rule(
        "E401",
        "bucket-name",
        "S3 would refuse the bucket's name.",
        "rename the store",
        "Amazon S3, bucket naming rules",
        at_key=True,
    ),
    Rule("E402", "bad-path", "Paths end up in fstab and exports, unquoted.", "write a plain absolute path"),
    Rule("E403", "mount-twice", "One mount hides the other.", "mount one of them elsewhere"),
    Rule("E404", "system-path", "A mount there hides what the node needs to run.", "mount it elsewhere"),
    Rule(
        "E405",
        "reader-elsewhere",
        "Another account's role would need the bucket and its key to allow it: an exemption is not enough.",
        "name a role of the fleet's account, and let the other account's people take it on",
        "Amazon S3 user guide, cross-account access",
    ),
    Rule("E406", "unknown-site", "The file declares no such site.", "declare it under sites"),
    Rule("E407", "unknown-machine", "The site has no such machine.", "declare it in the site's machines"),
    Rule("E408", "region-twice", "A store has one bucket a region.", "delete one of them"),
    Rule("E409", "export-twice", "Two stores would share one folder.", "export another folder"),
    Rule(
        "E416",
        "mount-within",
        "A mount waits for the one that it lies in, and hides what lies in it.",
        "mount it elsewhere",
    ),
)
