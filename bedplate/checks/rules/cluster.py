"""E6 and E7: the format, Kubernetes, the VPN, and allowed exceptions."""

from bedplate.checks.rules.rule import Rule

FORMAT_RULES = (
    Rule("E601", "other-format", "Another format's keys may mean other things.", "write `version: 1`"),
    Rule("E602", "no-cluster", "Workers need a cluster to join.", "add the kubernetes section, or use ssh"),
)

KUBERNETES_RULES = (
    Rule(
        "E603",
        "even-control-plane",
        "An even number survives no more than one less.",
        "use 1, 3, 5 or 7",
        "etcd FAQ",
    ),
    Rule(
        "E604",
        "small-control-plane",
        "An API server and etcd need 2 vCPUs and 2 GiB.",
        "choose m7i.xlarge",
        "kubeadm",
    ),
    Rule("E605", "cluster-version", "A minor version is what kubeadm installs.", "write it as '1.36'"),
    Rule(
        "E615",
        "unreleased-version",
        "Kubernetes has no such version yet, as far as the catalogue knows.",
        "write one that is out",
        "kubernetes.io/releases",
        allowable=True,
    ),
    Rule(
        "W616",
        "version-ended",
        "What Kubernetes no longer mends stays broken.",
        "write a version that is mended",
        "kubernetes.io/releases",
        allowable=True,
    ),
)

VPN_RULES = (
    Rule("E608", "gateway-place", "A gateway stands in one place.", "give one of region and site"),
    Rule("E609", "gateway-repeated", "A second gateway in one place adds nothing.", "delete one of them"),
    Rule(
        "E618",
        "certificate-name-too-long",
        "A gateway proves itself by its whole name in the domain.",
        "shorten the domain",
        "X.520; RFC 5280, appendix A.1",
    ),
)

EXCEPTION_RULES = (
    Rule(
        "E701",
        "unknown-rule",
        "There is no rule of that code.",
        "`bedplate check --explain all` lists them",
        at_key=True,
    ),
    Rule(
        "E702",
        "rule-not-allowable",
        "Breaking this rule breaks the fleet.",
        "mend what it tells",
        at_key=True,
    ),
    Rule("W703", "unused-exception", "The file breaks no such rule.", "delete it", at_key=True),
    Rule("E704", "no-reason", "An exception without its reason cannot be judged.", "write why"),
)
