"""Laptops of people: their profiles, and the revocation of their certificates and of those of gateways."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path

from bedplate.errors import BedplateError, InputError, PartialError
from bedplate.files import write_whole
from bedplate.operate import Operator, Result
from bedplate.operate.fleet import plan_of
from bedplate.operate.gateways import update_gateways
from bedplate.operate.keys import keys_of, known_passphrase, now, users_of
from bedplate.plan import FleetPlan
from bedplate.plan.laptops import laptop_gateways
from bedplate.report.vpn import qr_code_lines, replaced_gateway_lines, revoked_lines
from vpn import signing
from vpn.authority import Reason
from vpn.certificates import GATEWAY_PREFIX, Passphrase, Subject, Use, device_words, laptop, user_of
from vpn.gateways import gateway_keys, gateway_subjects
from vpn.laptops.server import LaptopKeys, client_profile, laptop_rules, remotes
from vpn.pki import Pki, bundle_of


def revoke_person(operator: Operator, user: str, device: str | None) -> None:
    """Revoke the laptops of a person, or one of them. Raises InputError if there is none."""
    passphrase = cache(known_passphrase(operator))
    pki = keys_of(users_of(operator).fleet, operator)
    laptops = laptops_of(pki, user)
    if device is not None:
        laptops &= {laptop(user, device).name}
    if not laptops:
        whose = f"{user}.{device}" if device else user
        prefix = f"{GATEWAY_PREFIX}{user}."
        is_gateway = any(issued.name.startswith(prefix) for issued in pki.certificates.issued.values())
        command = f"vpn revoke --gateway {user}" if is_gateway else "vpn list"
        raise InputError(f"{whose} has no certificate", fix=f"run `bedplate {command}`")
    revoke_laptops(operator, laptops, Reason.LOST, passphrase)


def laptops_of(pki: Pki, user: str) -> set[str]:
    """Return the laptops of a person that ever had a certificate."""
    clients = (issued.name for issued in pki.certificates.issued.values() if issued.use is Use.CLIENT)
    return {name for name in clients if user_of(name) == user}


def revoke_laptops(operator: Operator, laptops: Collection[str], reason: Reason, passphrase: Passphrase) -> None:
    """Revoke laptops, update the gateways and end the sessions. Raises PartialError if a gateway was not updated."""
    name = users_of(operator).fleet
    revoked = signing.revoke(keys_of(name, operator), laptops, reason, now(), passphrase)
    operator.show(revoked_lines(revoked))
    with _nothing_updated(operator):
        update_gateways(operator, plan_of(operator), keys_of(name, operator), cut=laptops)


def revoke_gateway(operator: Operator, place: str) -> None:
    """Revoke and reissue the certificate of a gateway, and send the new tls-crypt-v2 key to all others."""
    passphrase = cache(known_passphrase(operator))
    plan = plan_of(operator)
    pki = keys_of(plan.name, operator)
    subjects = gateway_subjects(plan)
    if place not in subjects:
        places = ", ".join(subjects) or "none"
        raise InputError(f"no gateway for laptops in {place!r}", fix=f"write one of the places of gateways: {places}")
    operator.show(revoked_lines(signing.replace_gateway(pki, subjects[place], now(), passphrase)))
    operator.show(replaced_gateway_lines(place))
    with _nothing_updated(operator):
        keys = partial(gateway_keys, plan, passphrase=passphrase, now=now())
        update_gateways(operator, plan, keys_of(plan.name, operator), keys=keys, skip=place)


@contextmanager
def _nothing_updated(operator: Operator) -> Iterator[None]:
    """Turn an error before the first gateway is reached into a PartialError: the revocation is signed."""
    try:
        yield
    except PartialError:
        raise
    except BedplateError as error:
        raise PartialError(
            f"revoked, but no gateway was updated: {error.what}",
            where=error.where or str(operator.fleet),
            fix="; ".join(filter(None, (error.fix, "then run `bedplate vpn sync`: until then gateways accept them"))),
        ) from None


def write_profile(operator: Operator, user: str, device: str, file: Path | None, *, is_drawn: bool) -> None:
    """Write the profile of a laptop to a file, or report it, `is_drawn` as QR codes."""
    plan = plan_of(operator)
    name = laptop(user, device).name
    profile = profile_of(plan, keys_of(plan.name, operator), name, known_passphrase(operator))
    if file:
        write_whole(file, profile.encode(), 0o600)
        operator.notify([f"wrote {file}"])
    else:
        operator.show(qr_code_lines(profile) if is_drawn else profile.splitlines())


def guard_rules(operator: Operator) -> Result:
    """Return nftables rules that drop packets for the fleet that would leave a laptop outside the tunnel."""
    plan = plan_of(operator)
    check_gateways(plan)
    return Result(laptop_rules(laptop_gateways(plan)).splitlines())


def profile_of(plan: FleetPlan, pki: Pki, name: str, passphrase: Passphrase) -> str:
    """Return the profile of a laptop. Raises InputError if it would not connect."""
    check_gateways(plan)
    _check_valid(pki, name)
    bundle = bundle_of(pki, name, passphrase)
    signing.check_bundle(name, bundle, Subject(name, Use.CLIENT), pki, now())
    keys = LaptopKeys(pki.authority.trusted, bundle.certificate, bundle.key, bundle.tls_crypt)
    return client_profile(laptop_gateways(plan), name, keys)


def check_gateways(plan: FleetPlan) -> None:
    """Raise InputError for a fleet without gateways of laptops."""
    if not plan.laptops:
        raise InputError("the fleet has no gateway for laptops", fix="declare one in `vpn.laptops.gateways`")


def check_endpoints(plan: FleetPlan) -> None:
    """Raise InputError for a fleet without gateways, or with one without a recorded address: no profile would work."""
    check_gateways(plan)
    tuple(remotes(laptop_gateways(plan)))


def _check_valid(pki: Pki, name: str) -> None:
    """Raise InputError for a laptop without a valid certificate: its profile would not connect."""
    certificate = pki.certificates.current(name)
    if certificate is None:
        raise InputError(f"{name} has no certificate", fix=f"run `bedplate vpn add {device_words(name)}`")
    if certificate.until <= now():
        what = f"the certificate of {name} expired on {certificate.until:%Y-%m-%d}"
        raise InputError(what, fix=f"run `bedplate vpn renew {device_words(name)}`")
