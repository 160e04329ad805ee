"""Certificates of laptops are issued, renewed and listed.

`vpn add` takes a third of a second, so nothing here imports the models of a fleet or boto3 unless it must.
"""

from collections.abc import Mapping
from datetime import datetime

from bedplate.errors import PartialError, ViolationError
from bedplate.load.source import Users, read_pools
from bedplate.operate import Operator, Result, plan_of
from bedplate.operate.keys import check_person, keys_of, known_passphrase, now, users_of
from bedplate.report.vpn import certificate_document, certificate_lines, issued_lines
from vpn import signing
from vpn.certificates import Subject, laptop
from vpn.pki import Pki


def issue(operator: Operator, user: str, device: str) -> Result:
    """Issue a certificate to a laptop."""
    users, pki, subject = _open(operator, user, device)
    pools = read_pools(operator.fleet.with_name("fleet.lock"), users.gateways)
    signing.check_free_slot(pki.certificates, subject.name, pools, now())
    return Result(issued_lines(signing.add(pki, [subject], now(), known_passphrase(operator)), now()))


def renew(operator: Operator, user: str, device: str) -> Result:
    """Replace a certificate and its key; the previous one stays valid until it expires."""
    _, pki, subject = _open(operator, user, device)
    return Result(issued_lines(signing.renew(pki, [subject], now(), known_passphrase(operator)), now()))


def _open(operator: Operator, user: str, device: str) -> tuple[Users, Pki, Subject]:
    users = users_of(operator)
    check_person(user, users.people)
    return users, keys_of(users.fleet, operator), laptop(user, device)


def read(operator: Operator, *, is_seen: bool) -> Result:
    """Return certificates and expiry dates, with `is_seen` also when each laptop was last connected.

    The exit status is 3 if one has expired or is about to.
    """
    # Slow: it imports the models of a fleet.
    from vpn.status import keys_status, storage_warnings

    users = users_of(operator)
    pki = keys_of(users.fleet, operator)
    state = keys_status(pki, users.people, now())
    operator.notify(storage_warnings(pki))
    last_seen, status = _ask_gateways(operator) if is_seen else ({}, 0)
    if state.is_failing:
        status = ViolationError.exit_code
    return Result(certificate_lines(state, last_seen), certificate_document(state, last_seen), status)


def _ask_gateways(operator: Operator) -> tuple[Mapping[str, datetime], int]:
    """Return when each laptop was last connected to a gateway, and 6 if a gateway did not answer."""
    # Slow: they import the models of a fleet.
    from bedplate.operate.gateways import ask_gateways
    from bedplate.plan.laptops import laptop_gateways
    from vpn.gateways import gateway_node
    from vpn.status import last_seen

    plan = plan_of(operator)
    nodes = [gateway_node(plan, gateway) for gateway in laptop_gateways(plan)]
    statuses, failures = ask_gateways(operator, plan, nodes)
    operator.notify(f"unknown sessions at {name}: {error.what}" for name, error in failures.items())
    return last_seen(statuses.values()), PartialError.exit_code if failures else 0
