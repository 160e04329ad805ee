"""What is issued, renewed and revoked, and who may not."""

import stat
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from bedplate.errors import HeldError, InputError, MachineError
from bedplate.hold import held
from bedplate.plan.laptops import NAME_PREFIX
from tests.support.authority import NOW, added, begun_in, pki_in, unasked
from vpn.bundle import Bundle, parse_bundle
from vpn.lists import current_list, deployable_lists
from vpn.passphrase import is_locked
from vpn.pki import bundle_of
from vpn.pki_folder import NoAuthority, PkiFolder
from vpn.revocation import Reason, number_of, read_lists
from vpn.signing import add, relist, renew, revoke
from vpn.subject import GATEWAY_PREFIX, Subject, Use, gateway, laptop

DAY = timedelta(days=1)


@pytest.fixture
def folder(tmp_path: Path) -> PkiFolder:
    """Return an authority that has issued nothing."""
    return begun_in(tmp_path)


def _revoked(folder: PkiFolder) -> set[int]:
    return {row.serial_number for row in read_lists(folder.lists.read_text())[0]}


def test_keys_are_their_owners_alone(folder: PkiFolder) -> None:
    """The folder of keys too; and nothing outside it holds one."""
    added(folder, "ada")

    assert {stat.S_IMODE(file.stat().st_mode) for file in folder.keys.iterdir()} == {0o600}
    assert stat.S_IMODE(folder.keys.stat().st_mode) == 0o700
    public = [file for file in folder.path.iterdir() if file.is_file()]
    assert not [file for file in public if "PRIVATE" in file.read_text() or "OpenVPN" in file.read_text()]
    assert "keys/" in (folder.path / ".gitignore").read_text().splitlines()


def test_an_authority_is_begun_once(folder: PkiFolder) -> None:
    """A second one would end every profile."""
    before = folder.authority.read_bytes()

    with pytest.raises(InputError, match="authority already"):
        begun_in(folder.path.parent)

    assert folder.authority.read_bytes() == before


def test_a_fleet_without_an_authority_is_told_how_to_begin(tmp_path: Path) -> None:
    """Commands that need one say which makes it."""
    with pytest.raises(NoAuthority) as refused:
        pki_in(PkiFolder(tmp_path / "fleet.pki"))

    assert "vpn init" in refused.value.fix


def test_serials_grow_and_are_never_given_twice(folder: PkiFolder) -> None:
    """Not to a name that was revoked and is used again either."""
    serials = [each.serial for each in added(folder, "ada", "grace")]
    revoke(pki_in(folder), ["ada.laptop"], Reason.LEFT, NOW, unasked)
    serials += [each.serial for each in added(folder, "ada")]
    serials += [each.serial for each in renew(pki_in(folder), [laptop("grace")], NOW, unasked)]

    assert sorted(set(serials)) == serials
    assert _revoked(folder) == {serials[0]}


def test_a_journal_that_was_lost_repeats_no_serial(tmp_path: Path) -> None:
    """Two authorities that begin alike give different serials."""
    one, other = (added(begun_in(_made(tmp_path / name)), "ada")[0].serial for name in ("a", "b"))

    assert one != other


def test_a_laptop_keeps_its_number(folder: PkiFolder) -> None:
    """Its address follows from it: renewed it stays, and a number is free again once its laptop was revoked."""
    added(folder, "ada", "grace")
    renewed = renew(pki_in(folder), [laptop("grace")], NOW, unasked)[0]
    revoke(pki_in(folder), ["ada.laptop"], Reason.LOST, NOW, unasked)
    later = added(folder, "eve", "mallory")

    assert renewed.slot == 1
    assert [each.slot for each in later] == [0, 2]


def test_an_ended_certificate_holds_no_number(folder: PkiFolder) -> None:
    """Or a pool fills with laptops that nobody has any more; who comes back has the old number where it is free."""
    added(folder, "ada", "grace")
    much_later = NOW + timedelta(days=200)

    eve = add(pki_in(folder), [laptop("eve")], much_later, unasked)[0]
    back = add(pki_in(folder), [laptop("grace"), laptop("ada")], much_later, unasked)

    assert (eve.slot, [each.slot for each in back]) == (0, [1, 2])


def test_a_second_certificate_for_the_same_laptop_is_refused(folder: PkiFolder) -> None:
    """The message says until when the first one lasts, and what to do for another machine."""
    added(folder, "ada")

    with pytest.raises(InputError, match=r"ada\.laptop has a certificate until 2027-02-19") as refused:
        added(folder, "ada")

    assert "--device" in refused.value.fix


def test_a_certificate_whose_key_was_never_written_is_issued_anew(folder: PkiFolder) -> None:
    """As after a run that was killed: nobody can hold it."""
    first = added(folder, "ada")[0]
    (folder.keys / "ada.laptop.pem").unlink()

    second = added(folder, "ada")[0]

    assert second.serial != first.serial
    assert second.slot == first.slot


def test_an_ended_certificate_does_not_stand_in_the_way(folder: PkiFolder) -> None:
    """Who comes back after months is added again."""
    added(folder, "ada")

    assert added(folder, "ada", now=NOW + 91 * DAY)


def test_renewing_takes_a_new_key_and_leaves_the_old_valid(folder: PkiFolder) -> None:
    """A person has time to change the profile."""
    old = added(folder, "ada")[0]
    new = renew(pki_in(folder), [laptop("ada")], NOW + 60 * DAY, unasked)[0]

    assert new.key != old.key
    assert [each.serial for each in pki_in(folder).roll.valid(NOW + 61 * DAY)] == [old.serial, new.serial]
    assert _revoked(folder) == set()


def test_who_was_never_added_or_was_revoked_is_not_renewed(folder: PkiFolder) -> None:
    """Renewing never gives what was not given before."""
    added(folder, "ada")
    revoke(pki_in(folder), ["ada.laptop"], Reason.LOST, NOW, unasked)

    for user in ("ada", "grace"):
        with pytest.raises(InputError, match="no certificate to renew"):
            renew(pki_in(folder), [laptop(user)], NOW, unasked)


def test_revoking_takes_every_certificate_of_a_name(folder: PkiFolder) -> None:
    """The renewed one and the one before; others are left alone."""
    mine = [*added(folder, "ada"), *renew(pki_in(folder), [laptop("ada")], NOW, unasked)]
    added(folder, "grace")

    gone = revoke(pki_in(folder), ["ada.laptop"], Reason.LOST, NOW, unasked)

    assert list(gone) == mine
    assert _revoked(folder) == {each.serial for each in mine}
    assert set(pki_in(folder).roll.holders()) == {"grace.laptop"}


def test_a_list_holds_what_has_ended_until_a_regular_one_has_told_it(folder: PkiFolder) -> None:
    """By RFC 5280 section 3.3 it goes after one regular list that was signed beyond its end, and not before."""
    added(folder, "ada", "grace")
    ada = revoke(pki_in(folder), ["ada.laptop"], Reason.LOST, NOW + 80 * DAY, unasked)[0]

    relist(pki_in(folder), NOW + 126 * DAY, unasked)
    assert _revoked(folder) == {ada.serial}
    relist(pki_in(folder), NOW + 172 * DAY, unasked)

    assert _revoked(folder) == set()


def test_a_list_that_a_revocation_signed_is_a_regular_one_where_one_was_due(folder: PkiFolder) -> None:
    """Somebody goes every twenty days: who ended on day 90 is on the list of day 120, which was due, then on none."""
    ada = added(folder, "ada")[0]
    revoke(pki_in(folder), ["ada.laptop"], Reason.LOST, NOW, unasked)

    told = {}
    for days in range(20, 160, 20):
        added(folder, f"u{days}", now=NOW + days * DAY)
        revoke(pki_in(folder), [f"u{days}.laptop"], Reason.LOST, NOW + days * DAY, unasked)
        told[days] = ada.serial in _revoked(folder)

    assert told == {20: True, 40: True, 60: True, 80: True, 100: True, 120: True, 140: False}


@pytest.mark.parametrize(("days", "signs"), [(0, False), (44, False), (46, True), (120, True)])
def test_a_list_is_renewed_at_half_its_life(days: int, folder: PkiFolder, *, signs: bool) -> None:
    """Its number grows, so that who has the newer one keeps it."""
    later = NOW + days * DAY

    assert relist(pki_in(folder), later, unasked) is signs

    assert number_of(read_lists(folder.lists.read_text())[0]) == (2 if signs else 1)
    assert current_list(pki_in(folder), later) is not None


def test_whatever_is_signed_renews_an_old_list(folder: PkiFolder) -> None:
    """Whoever adds somebody now and then never has an old one."""
    added(folder, "ada", now=NOW + 60 * DAY)

    assert current_list(pki_in(folder), NOW + 60 * DAY) is not None


def test_a_list_behind_its_journal_is_not_deployed(folder: PkiFolder) -> None:
    """A run killed between the two leaves it so: it would let the revoked in. The next one mends it."""
    added(folder, "ada")
    older = folder.lists.read_text()
    revoke(pki_in(folder), ["ada.laptop"], Reason.LOST, NOW, unasked)
    folder.lists.write_text(older)

    with pytest.raises(InputError, match="not the last list"):
        deployable_lists(pki_in(folder), NOW)

    assert relist(pki_in(folder), NOW, unasked)
    assert len(read_lists(deployable_lists(pki_in(folder), NOW))[0]) == 1


@pytest.mark.parametrize(("days", "message"), [(91, "ended on 2027-02-19"), (88, "in 2 days")])
def test_a_list_near_its_end_is_not_deployed(days: int, message: str, folder: PkiFolder) -> None:
    """It would lock everybody out."""
    with pytest.raises(InputError, match=message):
        deployable_lists(pki_in(folder), NOW + days * DAY)

    assert deployable_lists(pki_in(folder), NOW + 86 * DAY)


def test_two_operators_at_once(folder: PkiFolder) -> None:
    """One wins; the other is told who, and has changed nothing."""
    pki, before = pki_in(folder), folder.journal.read_bytes()

    with held(folder.journal), pytest.raises(HeldError, match="process"):
        add(pki, [laptop("ada")], NOW, unasked)

    assert folder.journal.read_bytes() == before


def test_what_another_has_signed_since_is_kept(folder: PkiFolder) -> None:
    """Each change begins from what the files say under the hold."""
    stale = pki_in(folder)
    added(folder, "ada")

    add(stale, [laptop("grace")], NOW, unasked)

    assert set(pki_in(folder).roll.holders()) == {"ada.laptop", "grace.laptop"}


def test_a_clock_behind_the_journal_signs_nothing(folder: PkiFolder) -> None:
    """What it signs would begin before what was signed last, and end too early."""
    added(folder, "ada")

    with pytest.raises(MachineError, match="clock"):
        added(folder, "grace", now=NOW - timedelta(seconds=1))

    assert added(folder, "grace", now=NOW)


def test_keys_are_locked_by_a_passphrase_where_one_is_given(tmp_path: Path) -> None:
    """All private keys, at rest; a wrong passphrase opens none, and is not repeated."""
    folder = begun_in(tmp_path, lock=b"correct horse")
    add(pki_in(folder), [laptop("ada")], NOW, lambda: b"correct horse")

    assert is_locked((folder.keys / "authority.pem").read_text())
    assert is_locked(parse_bundle((folder.keys / "ada.laptop.pem").read_text()).key)
    assert not is_locked(bundle_of(pki_in(folder), "ada.laptop", lambda: b"correct horse").key)
    with pytest.raises(InputError, match="does not open") as refused:
        add(pki_in(folder), [laptop("grace")], NOW, lambda: b"wrong horse")
    assert "horse" not in str(vars(refused.value))


def test_a_key_of_another_authority_is_refused(tmp_path: Path) -> None:
    """Everything it signed would be worth nothing."""
    mine, other = begun_in(_made(tmp_path / "mine")), begun_in(_made(tmp_path / "other"))
    (mine.keys / "authority.pem").write_bytes((other.keys / "authority.pem").read_bytes())

    with pytest.raises(InputError, match="another authority"):
        added(mine, "ada")


def test_a_bundle_says_nothing_of_itself(folder: PkiFolder) -> None:
    """A traceback or a log that holds one holds no key."""
    added(folder, "ada")

    assert "PRIVATE" not in repr(bundle_of(pki_in(folder), "ada.laptop", unasked))


@pytest.mark.parametrize(
    "change",
    [
        lambda bundle: bundle.key,
        lambda bundle: bundle.certificate,
        lambda bundle: bundle.text[:-20],
        lambda bundle: f"# ada\n{bundle.text}",
        lambda _bundle: "",
    ],
    ids=["no-certificate", "no-key", "cut", "edited", "empty"],
)
def test_a_spoilt_file_of_a_key_is_refused(change: Callable[[Bundle], str], folder: PkiFolder) -> None:
    """It is told what to do, and nothing of what the file holds."""
    added(folder, "ada")
    bundle = bundle_of(pki_in(folder), "ada.laptop", unasked)
    file = folder.keys / "ada.laptop.pem"
    file.write_text(change(bundle))

    with pytest.raises(InputError, match="no certificate with its key") as refused:
        bundle_of(pki_in(folder), "ada.laptop", unasked)

    assert "BEGIN" not in str(vars(refused.value))


def test_gateways_share_a_hiding_key_and_laptops_do_not(folder: PkiFolder) -> None:
    """Each laptop has its own, which every gateway knows."""
    at_home = [gateway(place, "lab.internal") for place in ("us-west-2", "cellar")]
    add(pki_in(folder), [*at_home, laptop("ada"), laptop("grace"), Subject("gate.cellar", Use.PEER)], NOW, unasked)

    def hiding(name: str) -> str:
        return bundle_of(pki_in(folder), name, unasked).tls_crypt

    assert hiding(at_home[0].name) == hiding(at_home[1].name)
    assert hiding("ada.laptop") != hiding("grace.laptop")
    assert hiding("gate.cellar") == ""


@pytest.mark.parametrize(
    "user", ["Ada", "../../root", "a/b", ".", "", "-ada", "a" * 33, "adä", "ada\n", "ada.x", "a\0"]
)
def test_no_name_leads_out_of_the_folder(user: str) -> None:
    """Nor do two differ by case alone."""
    with pytest.raises(InputError):
        laptop(user)
    with pytest.raises(InputError):
        laptop("ada", user)


@pytest.mark.parametrize("name", ["", "Gateway.cellar", "gateway..lab", ".lab", "a b", "a/b", "a" * 65])
def test_no_certificate_names_what_is_no_name(name: str) -> None:
    """What gateways are called comes from the plan, and is held to the same; 64 letters are the most."""
    with pytest.raises(InputError, match="no name for a certificate"):
        Subject(name, Use.SERVER)

    assert len(Subject("a" * 64, Use.SERVER).name) == 64


def test_nobody_is_called_like_a_gateway() -> None:
    """Laptops know a gateway by how its name begins."""
    with pytest.raises(InputError, match="laptops know gateways by it"):
        laptop("gateway")

    assert laptop("gatewayer").name == "gatewayer.laptop"
    assert GATEWAY_PREFIX == NAME_PREFIX


def test_a_certificate_is_of_the_key_beside_it(folder: PkiFolder) -> None:
    """The journal's fingerprint too."""
    entry = added(folder, "ada")[0]
    bundle = bundle_of(pki_in(folder), "ada.laptop", unasked)
    certificate = x509.load_pem_x509_certificate(bundle.certificate.encode())

    assert load_pem_private_key(bundle.key.encode(), None).public_key() == certificate.public_key()
    assert (certificate.serial_number, certificate.not_valid_after_utc) == (entry.serial, entry.until)


def _made(path: Path) -> Path:
    path.mkdir()
    return path
