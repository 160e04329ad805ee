"""E207, E24 and E25: sites, their machines, gateways and name servers."""

from bedplate.checks.rules.rule import Rule

SITE_RULES = (
    Rule(
        "E207",
        "shared-place-name",
        "Hosts are named by region or site.",
        "give the site another name",
        at_key=True,
    ),
    Rule(
        "E240",
        "address-elsewhere",
        "A machine or a server of a site has an address on its LAN.",
        "write an address of the LAN",
    ),
    Rule(
        "E241",
        "address-of-network",
        "The first and the last address of a LAN are no host's.",
        "choose another",
        "RFC 1122",
    ),
    Rule("E242", "address-twice", "Two machines cannot share an address.", "give one of them another address"),
    Rule("E243", "unknown-gateway", "The gateway is a machine of the site.", "name one of the site's machines"),
    Rule(
        "E244",
        "reserved-asn",
        "This number is AWS's side of the tunnels or nobody's.",
        "use 64513 to 65534",
        "RFC 7607, RFC 7300, RFC 5398",
    ),
    Rule(
        "E245",
        "asn-twice",
        "Routes from a site of the same number are dropped.",
        "give each site its own number",
        "RFC 4271",
    ),
    Rule(
        "E246",
        "gateway-not-public",
        "AWS reaches the gateway over the internet.",
        "write its fixed public address",
    ),
    Rule("E247", "gateway-twice", "A customer gateway is known by its address.", "give each site its own"),
    Rule(
        "E248",
        "host-name-too-long",
        "A full name has at most 253 characters.",
        "shorten one of its parts",
        "RFC 1123",
    ),
    Rule(
        "E249",
        "domain-taken",
        "What is forwarded hides every name below it, and whoever else answers for it.",
        "give the site a domain of its own",
        "Amazon Route 53 developer guide, resolver rules and private hosted zones",
    ),
    Rule("E250", "name-server-twice", "Asked again, a server gives the same answer.", "delete one of them"),
    Rule("E251", "join-elsewhere", "A site is joined to another site of the file.", "name one of the other sites"),
    Rule("E252", "join-twice", "Two gateways have one tunnel between them.", "say it once, at either of the two"),
    Rule(
        "E253",
        "nobody-dialled",
        "Of two gateways, one has to be dialled.",
        "forward UDP 500 and 4500 to one of them, and take its behind_nat away",
    ),
    Rule(
        "E254",
        "aws-dials-nobody",
        "Behind address translation, a gateway is not dialled.",
        "`dials: site`, or forward UDP 500 and 4500 to it and take behind_nat away",
    ),
    Rule(
        "E255",
        "scratch-of-nobody",
        "People that log in work on scratch, and nobody else.",
        "delete it, or add use: ssh",
    ),
    Rule("E256", "disk-twice", "A disk is striped with others once.", "delete one of them"),
)
