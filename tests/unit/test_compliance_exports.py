"""What a file server exports beside its plan."""

import pytest

from roles.storage.exported import EXPORTS, server_of
from tests.compliance.exports import beside
from tests.support.nodes import lab_node

(OURS,) = (file.text for file in server_of(lab_node("nas.cellar").shares, by_kernel=True).files if file.path == EXPORTS)
# As exportfs of nfs-utils 2.6 writes it.
KEPT = (
    "rw,sync,wdelay,hide,nocrossmnt,secure,root_squash,no_all_squash,no_subtree_check,secure_locks,acl,no_pnfs,"
    "fsid=f2b4d1b5-7f9e-5f5e-9d5b-0c1f5f3a2b11,anonuid=65534,anongid=65534,sec=sys,rw,secure,root_squash,no_all_squash"
)


def in_force(text: str) -> str:
    """Return the kernel's table for the lines of exports(5)."""
    rows = [line.split() for line in text.splitlines() if line.startswith("/")]
    return "".join(f"{path}\t{each.partition('(')[0]}({KEPT})\n" for path, *clients in rows for each in clients)


def test_the_plans_own_are_let_pass() -> None:
    """By the file, and by what the kernel's server makes of it."""
    assert beside(OURS, OURS) == []
    assert beside(in_force(OURS), OURS) == []


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("/srv *(rw)", ["/srv to *"]),
        ("/srv/data", ["/srv/data to *"]),
        ("/srv/data (ro)", ["/srv/data to *"]),
        ("/srv/data \\\n  198.51.100.7(ro)", ["/srv/data to 198.51.100.7"]),
        ("/srv/data -no_root_squash", ["/srv/data to -no_root_squash"]),
        ("/srv/data {client}(rw,no_root_squash)", ["/srv/data to {client} no_root_squash"]),
        ("/srv/data {client}(rw,insecure,anonuid=0)", ["/srv/data to {client} insecure anonuid=0"]),
        (f"/srv/data\t198.51.100.7({KEPT})", ["/srv/data to 198.51.100.7"]),
    ],
    ids=["folder", "everybody", "no name", "two lines", "defaults", "root", "ports", "table"],
)
def test_what_is_exported_beside_the_plan_is_told(line: str, words: list[str]) -> None:
    """A further folder, a further client, or a client of the plan's that may more."""
    (row,) = (line for line in OURS.splitlines() if line.startswith("/srv/data "))
    client = row.split()[1].partition("(")[0]

    found = beside(line.replace("{client}", client), OURS)

    assert found == [each.replace("{client}", client) for each in words]
