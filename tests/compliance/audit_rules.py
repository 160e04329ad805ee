"""What lines of the kernel's audit do to the others, by their text; asks no machine.

Source: auditctl(8), augenrules(8) and audit.rules(7) of audit 3.0.
"""

import re

# Rules that only add to what is written down, and settings that change nothing about what is.
_HARMLESS = re.compile(
    r"#|$|-w\s|-[aA]\s*(always,(exit|user|task|filesystem)|(exit|user|task|filesystem),always)\s"
    r"|-e\s*[12]$|-[bf]\s|-[ci]$|--(backlog_wait_time|loginuid-immutable|reset-lost|reset_backlog_wait_time_actual)\b"
)


def takes_back(line: str) -> bool:
    """Tell whether a line of a file may stop the audit, delete rules, or leave out what others would tell.

    augenrules puts a plain `-D` before all rules, but only one that stands alone from the first letter of its line.
    """
    return line != "-D" and not _HARMLESS.match(line.strip())
