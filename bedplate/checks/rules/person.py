"""E5: people and secrets."""

from bedplate.checks.rules.rule import Rule

SECRET_RULES = (
    Rule(
        "E501",
        "secret",
        "Fleet files are committed and shown.",
        "delete it here, revoke it where it came from, keep secrets in SSM parameters",
    ),
    Rule(
        "E502",
        "private-key",
        "Whoever reads the file could act as its owner.",
        "delete it here, make a new key, and give the .pub file's line",
    ),
)

PERSON_RULES = (
    Rule("E503", "user-name", "It is an account on every node.", "write it as ada", "useradd(8)"),
    Rule(
        "E505",
        "users-alike",
        "Names equal but for case are one person to most readers.",
        "rename one",
        at_key=True,
    ),
    Rule("E506", "not-a-key", "sshd would ignore it in silence.", "write the one line of the .pub file"),
    Rule(
        "E507",
        "key-options",
        "Options would change what a login may do.",
        "delete what stands before the type",
    ),
    Rule("E508", "key-lines", "A second line would be a second key.", "make each key an item of its own"),
    Rule("E509", "key-type", "sshd does not accept the type.", "make one with ssh-keygen -t ed25519"),
    Rule(
        "E510",
        "weak-key",
        "Short RSA keys can be broken.",
        "make one with ssh-keygen -t ed25519",
        "NIST SP 800-57",
    ),
    Rule(
        "W511",
        "key-twice",
        "Logins by a shared key cannot be told apart.",
        "give each person a key of their own",
    ),
    Rule("W512", "no-administrator", "Nobody could mend a node.", "write `admin: true` for somebody"),
    Rule("E513", "group-name", "It is a group on every node.", "write it as vision", "groupadd(8)"),
    Rule(
        "E514",
        "group-like-person",
        "Everybody has a group of their own, called like them.",
        "call the group otherwise",
    ),
    Rule("E515", "group-twice", "To be in a group again changes nothing.", "delete one of them"),
    Rule("E517", "ids-exhausted", "An id is never given to anybody else.", "take names that the lock knows"),
    Rule("E518", "name-recorded", "Files belong to whoever had the name before.", "choose another name"),
)
