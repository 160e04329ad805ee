"""`bedplate vpn tunnels`: tunnels, carried to the gateways that end them: to AWS, and between the fleet's own."""

import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bedplate.cli.output import DEFAULT_FLEET, FleetFile, Json, show, show_document
from bedplate.cli.vpn_session import PassphraseFile, keys_of, known_passphrase, newest_list, now, users_of
from bedplate.errors import BedplateError, InputError, PartError, ViolationError

if TYPE_CHECKING:
    from collections.abc import Collection
    from contextlib import AbstractContextManager

    from bedplate.plan import FleetPlan
    from bedplate.plan.nodes import NodePlan
    from vpn.certificates import Passphrase
    from vpn.keeper.status import Status
    from vpn.pki import Pki
    from vpn.push import GatewayKeys, SshWay
    from vpn.signing import Due
    from vpn.sites.gateway import PlaceProofs, Proof


if TYPE_CHECKING:
    from collections.abc import Mapping

    from bedplate.account.client import Door
    from bedplate.account.vpn import TunnelKeys
    from bedplate.plan import FleetPlan
    from bedplate.plan.fleet import SitePlan
    from vpn.sites.gateway import Gateway, PlaceProofs

    # A gateway, as far as its far ends are known; and the error for those that are not.
    Asked = tuple["Gateway | None", BedplateError | None]


def door_of(plan: "FleetPlan") -> "Door | BedplateError | None":
    """Return the account's door where there is a site, whose tunnels to regions have AWS's keys; or why it is shut."""
    from bedplate.account.client import check_account, open_door

    if not plan.sites:
        return None
    try:
        door = open_door()
        check_account(door, plan.account, plan.home.name)
    except BedplateError as error:
        return error
    return door


def asked_gateways(plan: "FleetPlan", door: "Door | BedplateError | None", proofs: "PlaceProofs") -> "dict[str, Asked]":
    """Return each gateway, of sites and of joined regions, by the name of the machine.

    Raises what keeps the door shut where every tunnel needs AWS: nothing can be done then.
    """
    found = {**_of_sites(plan, door, proofs), **_of_regions(plan, proofs)}
    if isinstance(door, BedplateError) and not any(known for known, _ in found.values()):
        raise door
    return found


def _of_sites(plan: "FleetPlan", door: "Door | BedplateError | None", proofs: "PlaceProofs") -> "dict[str, Asked]":
    from bedplate.account.vpn import keys_of_sites

    if door is None:
        return {}
    told: Mapping[str, TunnelKeys | BedplateError]
    told = {s.name: door for s in plan.sites} if isinstance(door, BedplateError) else keys_of_sites(door, plan)
    # Also of a site that has lost its last tunnel: it is to take down what it has.
    return {f"{site.gateway}.{site.name}": _of_site(plan, site, told[site.name], proofs) for site in plan.sites}


def _of_site(plan: "FleetPlan", site: "SitePlan", told: "TunnelKeys | BedplateError", proofs: "PlaceProofs") -> "Asked":
    if isinstance(told, BedplateError):
        # A gateway gets all its files or none: without AWS's keys it keeps what it has.
        return None, told
    missing = next(iter(told.missing.values()), None)
    # Tunnels to another site wait for no connection to AWS; those to regions come together.
    if missing and not plan.directs_of(site.name):
        return None, missing
    try:
        return _site(plan, site, told, proofs), missing
    except BedplateError as error:
        # Its own key or certificate is not usable: it keeps what it has.
        return None, error


def _site(plan: "FleetPlan", site: "SitePlan", told: "TunnelKeys", proofs: "PlaceProofs") -> "Gateway":
    """Return a site's gateway with all tunnels whose far ends there are."""
    from dataclasses import replace

    from bedplate.account.vpn import TunnelKey
    from vpn.sites.aws import AwsEnd, direct_tunnels, site_gateway
    from vpn.sites.gateway import SharedKey

    def end(told: TunnelKey) -> AwsEnd:
        return AwsEnd(told.address, SharedKey(told.key.encode()))

    ends = {(site.name, region): (end(first), end(second)) for region, (first, second) in told.ends.items()}
    made = replace(plan, tunnels=tuple(each for each in plan.tunnels if each.region not in told.missing))
    return site_gateway(made, site, ends, tuple(direct_tunnels(plan, site, proofs)))


def _of_regions(plan: "FleetPlan", proofs: "PlaceProofs") -> "dict[str, Asked]":
    """Return each gateway that joins regions, or which address is not recorded."""
    from bedplate.plan.links import joined_regions
    from bedplate.plan.nodes import GATEWAY
    from vpn.sites.aws import region_gateway

    def made(region: str) -> "Asked":
        try:
            return region_gateway(plan, region, proofs), None
        except BedplateError as error:
            return None, error

    return {f"{GATEWAY}.{region}": made(region) for region in joined_regions(plan)}


SshConfig = Annotated[
    Path | None, typer.Option("--ssh-config", metavar="FILE", help="Your own OpenSSH configuration and host keys.")
]


def tell_gateways(
    plan: "FleetPlan",
    pki: "Pki",
    config: Path | None,
    cut: Iterable[str] = (),
    keys: "Callable[[Pki], Mapping[str, GatewayKeys | BedplateError]] | None" = None,
) -> None:
    """Send every gateway whom it lets in and what was revoked, and say what was cut; PartError names the unreached.

    One whose own keys are not fit to be sent has the rest all the same, and is named too.
    A gateway refuses what is older than it has: where somebody else has signed meanwhile, theirs is sent with ours.
    """
    from dataclasses import replace

    from bedplate.plan.laptops import laptop_gateways
    from bedplate.report.vpn import carried_lines
    from vpn.gateways import book_of, node_of_gateway
    from vpn.pki import reopened
    from vpn.push import carry

    gateways = laptop_gateways(plan)
    if not gateways:
        return
    nodes = {gateway.place: node_of_gateway(plan, gateway) for gateway in gateways}
    with ways_to(plan, nodes.values(), config) as way:
        while True:
            book, unfit = book_of(pki, now()).with_keys(keys(pki) if keys else {})
            carried = carry(gateways, book, lambda gateway: way(nodes[gateway.place].name), cut=cut)
            fresh = reopened(pki) if carried.failures else pki
            if fresh is pki:
                break
            pki = fresh
    show(carried_lines(carried))
    replace(carried, failures={**unfit, **carried.failures}).check()


def ask_gateways(
    plan: "FleetPlan", nodes: "Sequence[NodePlan]", config: Path | None
) -> "dict[str, Status | BedplateError]":
    """Ask all of these gateways at once, and return what each answered, or why it did not, by the machine's name."""
    from concurrent.futures import ThreadPoolExecutor

    from vpn.status import ASK, parse_status

    def ask(node: "NodePlan") -> "Status | BedplateError":
        try:
            return parse_status(way(node.name).run(ASK, ""))
        except BedplateError as error:
            return error

    with ways_to(plan, nodes, config) as way, ThreadPoolExecutor(max(1, len(nodes))) as pool:
        return dict(zip((node.name for node in nodes), pool.map(ask, nodes), strict=True))


@contextmanager
def ways_to(plan: "FleetPlan", nodes: "Iterable[NodePlan]", config: Path | None) -> "Iterator[Callable[[str], SshWay]]":
    """Give the way to each of these machines: by the host key that the lock holds, or else as the operator's ssh knows.

    Raises InputError where there is no such configuration.
    """
    from bedplate.nodes.ssh import Login, Reached, own_ways, ways
    from vpn.push import SshWay, own_way

    if config and not config.is_file():
        raise InputError("there is no such file", where=str(config), fix="name the file that there is")
    machines = [Reached(node) for node in nodes]
    with tempfile.TemporaryDirectory(prefix="bedplate-") as folder:
        login = Login(None if config else _me(plan))
        found = (
            own_ways(config, machines, Login())
            if config
            else ways(Path(folder), machines, plan.record.host_keys, login)
        )
        argv = {target.node.name: target.argv for target in found.targets}
        yield lambda name: SshWay(argv[name]) if name in argv else own_way(name)


def _me(plan: "FleetPlan") -> str:
    from bedplate.hold import login_name
    from bedplate.nodes.ssh import deployer

    return deployer(plan.accounts, login_name())


NewKeys = Annotated[
    bool,
    typer.Option("--new-keys", help="Make new keys for the tunnels between gateways of the fleet, and carry them."),
]


def tunnels(
    fleet: FleetFile = DEFAULT_FLEET,
    *,
    new_keys: NewKeys = False,
    ssh_config: SshConfig = None,
    passphrase_file: PassphraseFile = None,
) -> int:
    """Bring tunnels, with their keys, to the gateways at their ends.

    Those to AWS have its keys, those between gateways the fleet's own.
    """
    with turn_of(fleet):
        return _carried(fleet, ssh_config, passphrase_file, new_keys=new_keys)


def turn_of(fleet: Path) -> "AbstractContextManager[None]":
    """Return the turn of one who carries tunnels; HeldError while somebody else does from the same file.

    Whoever comes second would bring an older plan, or other keys, after the newer.
    """
    from bedplate.hold import held

    return held(fleet.with_suffix(".tunnels"))


def _carried(fleet: Path, config: Path | None, passphrase: Path | None, *, new_keys: bool) -> int:
    from bedplate.cli.fleet import opened, planned

    plan = planned(opened(fleet))
    door = door_of(plan)
    proofs = proofs_of(plan, fleet, cache(known_passphrase(passphrase)), anew=new_keys)
    asked = asked_gateways(plan, door, proofs)
    if not asked:
        fix = "`sites` makes some, and so do gateways of laptops in two regions where `interconnect` is none"
        raise InputError("the fleet has no tunnels", fix=fix)
    bring(plan, asked, config)
    return 0


def bring(plan: "FleetPlan", asked: "dict[str, Asked]", config: Path | None) -> None:
    """Bring gateways their tunnels, and say what was done; PartError names those that have not all of theirs."""
    from bedplate.plan.nodes import standing_nodes
    from bedplate.report.vpn import carried_tunnel_lines
    from vpn.push import CarriedTunnels, carry_tunnels

    known = {name: gateway for name, (gateway, _) in asked.items() if gateway}
    amiss = {name: trouble for name, (_, trouble) in asked.items() if trouble}
    nodes = [node for node in standing_nodes(plan) if node.name in known]
    with ways_to(plan, nodes, config) as way:
        done = carry_tunnels(known, way)
    carried = CarriedTunnels(done.laid, {**amiss, **done.failures})
    show(carried_tunnel_lines(carried))
    carried.check()


def sync(
    fleet: FleetFile = DEFAULT_FLEET, *, ssh_config: SshConfig = None, passphrase_file: PassphraseFile = None
) -> int:
    """Bring keys and gateways up to the fleet file."""
    from bedplate.cli.fleet import opened, planned
    from vpn.gateways import gateways_of
    from vpn.peers import peer_subjects
    from vpn.signing import due

    loaded = opened(fleet)
    plan = planned(loaded)
    pki = keys_of(plan.name, fleet)
    gateways = (*gateways_of(plan), *peer_subjects(plan).values())
    keyless = {gateway.name for gateway in gateways if pki.store.read(gateway.name) is None}
    wanted = due(pki.roll, loaded.fleet.people, gateways, keyless, now())
    passphrase = cache(known_passphrase(passphrase_file))
    _signed(pki, wanted, passphrase)
    signed = keys_of(plan.name, fleet)
    try:
        _each(
            lambda: _tell(plan, signed, ssh_config, wanted.left, passphrase),
            lambda: _bring(plan, fleet, ssh_config, passphrase),
        )
    except InputError as error:
        if signed.journal == pki.journal:
            raise
        what = f"signed, but not every gateway was updated: {error.what}"
        raise PartError(what, where=error.where, fix=error.fix) from None
    return 0


def _tell(
    plan: "FleetPlan", signed: "Pki", config: Path | None, cut: "Iterable[str]", passphrase: "Passphrase"
) -> None:
    """Send gateways of laptops their keys, and whom they let in."""
    from vpn.gateways import keys_of_gateways

    tell_gateways(plan, signed, config, cut=cut, keys=lambda pki: keys_of_gateways(plan, pki, passphrase, now()))


def _bring(plan: "FleetPlan", fleet: Path, config: Path | None, passphrase: "Passphrase") -> None:
    """Send new certificates and the list of revoked ones to the gateways that identify each other by certificates."""
    from vpn.peers import peer_subjects

    peers = peer_subjects(plan)
    if peers:
        with turn_of(fleet):
            asked = asked_gateways(plan, door_of(plan), proofs_of(plan, fleet, passphrase))
            bring(plan, {name: each for name, each in asked.items() if name.partition(".")[2] in peers}, config)


def _each(*steps: "Callable[[], None]") -> None:
    """Take every step, whatever became of those before it; raises what went wrong, PartError where that is several."""
    failures: list[BedplateError] = []
    for step in steps:
        try:
            step()
        except BedplateError as error:
            failures.append(error)
    if len(failures) > 1:
        raise PartError("; ".join(each.what for each in failures), fix=failures[0].fix)
    if failures:
        raise failures[0]


def _signed(pki: "Pki", wanted: "Due", passphrase: "Passphrase") -> None:
    """Sign what is due, and say it; a list past the half of its life too."""
    from bedplate.report.vpn import issued_lines, relisted_lines, revoked_lines
    from vpn.authority import Reason
    from vpn.signing import issue_anew, relist, revoke

    for names, reason in ((wanted.left, Reason.LEFT), (wanted.gone, Reason.REPLACED)):
        if names:
            show(revoked_lines(revoke(pki, names, reason, now(), passphrase)))
    if wanted.lacking:
        show(issued_lines(issue_anew(pki, wanted.lacking, now(), passphrase), now()))
    show(relisted_lines(signed=relist(pki, now(), passphrase)))


OWN_UNITS = Path("~/.config/systemd/user")


def timer(
    fleet: FleetFile = DEFAULT_FLEET,
    *,
    write: Annotated[
        Path, typer.Option("--write", metavar="FOLDER", help="The folder of your own units of systemd.")
    ] = OWN_UNITS,
    ssh_config: SshConfig = None,
    passphrase_file: PassphraseFile = None,
) -> int:
    """Write a timer that syncs each day."""
    from bedplate.writer import told_plainly, write_together
    from vpn.laptops.server import renewal_units

    name = users_of(fleet).fleet
    files = {"--ssh-config": ssh_config, "--passphrase-file": passphrase_file}
    options = [word for option, file in files.items() if file for word in (option, str(file.absolute()))]
    sync = (sys.executable, "-m", "bedplate", "vpn", "sync", str(fleet.absolute()), *options)
    folder = write.expanduser()
    units = renewal_units(name, sync, Path(__file__).parents[2])
    with told_plainly(folder):
        folder.mkdir(parents=True, exist_ok=True)
    write_together({folder / unit: text.encode() for unit, text in units.items()})
    show([f"written to {folder}: {', '.join(units)}", f"next: systemctl --user enable --now {list(units)[-1]}"])
    return 0


def status(fleet: FleetFile = DEFAULT_FLEET, *, ssh_config: SshConfig = None, json: Json = False) -> int:
    """Show sessions, tunnels and days left. The exit status is 3 where something should carry and does not."""
    import time

    from bedplate.cli.fleet import opened, planned
    from bedplate.plan.nodes import Duty, standing_nodes
    from bedplate.report.vpn import condition_document, condition_lines
    from vpn.status import amiss, wanted

    plan = planned(opened(fleet))
    nodes = {node.name: node for node in standing_nodes(plan) if node.duties & {Duty.LAPTOPS, Duty.TUNNELS}}
    if not nodes:
        raise InputError("the fleet has no gateway", fix="`vpn.laptops.gateways` and `sites` make some")
    answers = ask_gateways(plan, tuple(nodes.values()), ssh_config)
    failures = {name: each for name, each in answers.items() if isinstance(each, BedplateError)}
    found = {name: each for name, each in answers.items() if not isinstance(each, BedplateError)}
    number, now = newest_list(plan.name, fleet), int(time.time())
    due = {name: wanted(plan, node, number) for name, node in nodes.items()}
    wrong = [fault for name, each in found.items() for fault in amiss(nodes[name], due[name], each, now)]
    if json:
        show_document(condition_document(found, failures, wrong))
    else:
        show(condition_lines(found, failures, wrong))
    if any(fault.is_failing for fault in wrong):
        return ViolationError.exit_code
    return PartError.exit_code if failures else 0


def proofs_of(plan: "FleetPlan", fleet: Path, passphrase: "Passphrase", *, anew: bool = False) -> "PlaceProofs":
    """Return what each two gateways prove themselves by; made where there is none yet, or for all of them `anew`.

    What is returned raises BedplateError for a gateway whose own does not serve; where nobody's does, this does.
    """
    from bedplate.plan.links import pairs
    from bedplate.spec.network import TunnelAuth

    if not pairs(plan):
        return _nothing
    pki = keys_of(plan.name, fleet)
    if plan.tunnel_auth is TunnelAuth.CERTIFICATES:
        _certify(plan, pki, passphrase, anew=anew)
        return _by_papers(plan, keys_of(plan.name, fleet), passphrase)
    return _by_keys(plan, pki, passphrase, anew=anew)


def _nothing(near: str, far: str) -> "Proof":
    raise KeyError(near, far)


def _by_keys(plan: "FleetPlan", pki: "Pki", passphrase: "Passphrase", *, anew: bool) -> "PlaceProofs":
    from bedplate.plan.links import pairs
    from bedplate.report.vpn import made_key_lines
    from vpn.peers import kept_keys, make_keys
    from vpn.sites.gateway import given

    wanted = pairs(plan)
    show(made_key_lines(make_keys(pki, wanted, passphrase, anew=anew)))
    keys = kept_keys(pki, wanted, passphrase)
    _check_some(keys.values())
    return lambda near, far: given(keys[frozenset((near, far))])


def _certify(plan: "FleetPlan", pki: "Pki", passphrase: "Passphrase", *, anew: bool) -> None:
    """Sign what gateways lack, and say it; `anew`, those that they have are revoked first."""
    from bedplate.report.vpn import issued_lines, revoked_lines
    from vpn.authority import Reason
    from vpn.peers import due_peers, peer_subjects
    from vpn.signing import issue_anew, relist, revoke

    peers = tuple(peer_subjects(plan).values())
    keyless = {peer.name for peer in peers if anew or pki.store.read(peer.name) is None}
    wanted = due_peers(pki.roll, peers, keyless, now())
    gone = (*wanted.gone, *(peer.name for peer in peers if anew))
    if gone and (revoked := revoke(pki, gone, Reason.REPLACED, now(), passphrase)):
        show(revoked_lines(revoked))
    if wanted.lacking:
        show(issued_lines(issue_anew(pki, wanted.lacking, now(), passphrase), now()))
    relist(pki, now(), passphrase)


def _by_papers(plan: "FleetPlan", pki: "Pki", passphrase: "Passphrase") -> "PlaceProofs":
    from vpn.peers import papers_of, peer_subjects
    from vpn.sites.gateway import given

    papers = papers_of(pki, peer_subjects(plan), passphrase, now())
    _check_some(papers.values())
    return lambda near, _: given(papers[near])


def _check_some(found: "Collection[Proof | BedplateError]") -> None:
    """Raise the first trouble where there is nothing else: a passphrase that opens nothing, a folder of no use."""
    troubles = [each for each in found if isinstance(each, BedplateError)]
    if troubles and len(troubles) == len(found):
        raise troubles[0]
