"""E21 and E22: blocks, addresses, and what they may not touch."""

from bedplate.checks.rules.rule import Rule

_VPC = "Amazon VPC, VPC CIDR blocks"
_IANA = "IANA IPv4 Special-Purpose Address Registry"

ADDRESS_RULES = (
    Rule(
        "E210",
        "not-a-block",
        "A block is four numbers and a prefix length.",
        "write four numbers and a size, as in 10.64.0.0/10",
    ),
    Rule("E211", "no-prefix", "Without its size a block is one address.", "write its prefix length"),
    Rule("E212", "host-bits", "A block starts at its own first address.", "write the block's first address"),
    Rule(
        "E213",
        "not-canonical",
        "Tools read other forms differently.",
        "write four numbers and a size, as in 10.64.0.0/10",
    ),
    Rule("E214", "ipv6", "The plan of addresses is IPv4.", "write an IPv4 value"),
    Rule(
        "E215",
        "not-an-address",
        "An address is four numbers from 0 to 255.",
        "write four numbers from 0 to 255, with dots between them",
    ),
    Rule("E216", "not-a-size", "A size is a prefix length.", "write a prefix length, as in /22"),
    Rule("E220", "reserved-block", "Hosts cannot use these addresses.", "use a block of 10.0.0.0/8", _IANA),
    Rule(
        "E221",
        "public-block",
        "Traffic to these addresses' owners would stay inside.",
        "use a block of 10.0.0.0/8, 172.16.0.0/12 or 192.168.0.0/16 (RFC 1918)",
        "RFC 1918",
        allowable=True,
    ),
    Rule(
        "E222",
        "carrier-block",
        "Providers and AWS services use 100.64.0.0/10 themselves.",
        "use a block of 10.0.0.0/8",
        "RFC 6598",
        allowable=True,
    ),
    Rule(
        "W223",
        "default-vpc-block",
        "Every account's default VPC has it, so they cannot be joined.",
        "choose another",
        _VPC,
    ),
    Rule("E224", "docker-block", "Docker's bridge has 172.17.0.0/16 on every node.", "choose another block"),
    Rule(
        "E225",
        "vpc-size",
        "A VPC's block is from /16 to /28; bedplate's zones need /20.",
        "choose /16 to /20",
        _VPC,
    ),
    Rule("E226", "overlap", "An address must mean one machine.", "give one of them another block"),
    Rule(
        "E227",
        "pool-size",
        "A size must leave room for hosts, and room for the rest.",
        "write a size within the limits",
    ),
)
