"""E3: how long groups live and at what hours, and by which labels and tags they are known."""

from bedplate.checks.rules.rule import Rule

LIFE_RULES = (
    Rule("E318", "no-such-day", "A day that the calendar lacks is a slip of the pen.", "write it as '2027-01-31'"),
    Rule(
        "E319",
        "schedule-words",
        "Auto Scaling takes hours, weekdays and time zones.",
        "write start: '07:00', stop: '20:00', days: MON-FRI, zone: Europe/Zurich",
        "EC2 Auto Scaling PutScheduledUpdateGroupAction",
    ),
    Rule(
        "E320",
        "label-syntax",
        "Kubernetes takes no other labels.",
        "write it as lab.example/team: vision",
        "Kubernetes, Labels and Selectors",
    ),
    Rule(
        "E321",
        "taint-syntax",
        "Kubernetes takes no other taints.",
        "write it as team=vision:NoSchedule",
        "Kubernetes, Taints and Tolerations",
    ),
    Rule(
        "E329",
        "in-the-past",
        "Auto Scaling refuses to act in the past, and what has ended cannot be started.",
        "write a later day, then run `pulumi up --refresh` for the group's regions",
        "EC2 Auto Scaling PutScheduledUpdateGroupAction",
        allowable=True,
    ),
    Rule(
        "W330",
        "gpus-without-end",
        "GPUs that nobody takes back are the dearest thing in a lab.",
        "add expires: '2027-01-31', or expires: permanent",
        allowable=True,
    ),
    Rule("E331", "schedule-ends-work", "A schedule ends machines whatever runs on them.", "delete the schedule"),
    Rule("E332", "no-hours", "Machines that stop as they start never run.", "write another time"),
    Rule(
        "E333",
        "unknown-time-zone",
        "Auto Scaling takes names of the IANA database.",
        "write it as Europe/Zurich",
        "IANA time zone database",
    ),
    Rule(
        "E337",
        "label-kept",
        "Labels and taints of these domains are set by Kubernetes, by drivers or by bedplate.",
        "write it in a domain of your own",
        "Kubernetes, NodeRestriction",
    ),
    Rule("E338", "label-unread", "Labels and taints are of Kubernetes nodes.", "delete them, or write use: kubernetes"),
    Rule(
        "E339",
        "too-many-tags",
        "Labels and taints are tags of Auto Scaling groups, from which a group grows from zero.",
        "shorten or delete some",
        "AWS tag naming limits; EC2 Auto Scaling quotas",
    ),
    Rule(
        "E351",
        "taint-twice",
        "A node has a taint once for each effect.",
        "delete one of them",
        "Kubernetes, Taints and Tolerations",
    ),
)
