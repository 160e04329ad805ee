"""Everything that the cluster must have, by the plan, the pins and upstream's files; and a person's kubeconfig."""

import base64
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from ipaddress import IPv4Network
from itertools import chain
from shlex import quote
from typing import Any

from bedplate.catalog.software import AddonPins
from bedplate.errors import InputError
from bedplate.kubernetes.addons import (
    ADDON_LABEL,
    ADDONS,
    EFA_ADDON,
    OF_PEOPLE,
    QUEUE_ADDONS,
    Object,
    Setting,
    choose_pins,
    labelled,
    load_objects,
    own_manifest,
    render_addon,
)
from bedplate.kubernetes.queues import has_queues, queue_objects
from bedplate.plan.cluster import PEOPLE, ClusterPlan, minor_version, person_name
from bedplate.plan.fleet import Account, Accounts, FleetPlan
from bedplate.plan.issuer import AUDIENCE, TOKEN_FILE, has_pod_roles, pod_settings
from bedplate.plan.registration import SITE

_POLICY, _DEFAULTS, _VOLUMES = "policy", "pod-defaults", "volumes"
_QUEUES, _QUEUE_NAMES = "queues", "queue-names"
_BOUND: Mapping[str, Object] = {
    "MutatingAdmissionPolicy": {},
    "ValidatingAdmissionPolicy": {"validationActions": ["Deny"]},
}
# The first minor version that has mutating policies by default: kubernetes.io, "Mutating Admission Policy", 2026-11.
_MUTATES = 36
HOMES = "/home"
_REGION = "topology.kubernetes.io/region"


def policy_objects(version: str) -> tuple[Object, ...]:
    """Return the default priority, the rights of people, and the rules for what they create."""
    manifests = (_DEFAULTS, _POLICY) if minor_version(version) >= _MUTATES else (_POLICY,)
    return tuple(item for name in manifests for item in _policies(name, {}))


def _policies(manifest: str, words: Mapping[str, str]) -> tuple[Object, ...]:
    """Return the objects of a manifest. Its policies fail closed, and apply to the namespaces of people."""
    objects = list(load_objects(own_manifest(manifest), words))
    for policy in [item for item in objects if item["kind"] in _BOUND]:
        policy["spec"]["failurePolicy"] = "Fail"
        policy["spec"]["matchConstraints"]["namespaceSelector"] = OF_PEOPLE
        name, kind = policy["metadata"]["name"], policy["kind"]
        binding = {"apiVersion": policy["apiVersion"], "kind": f"{kind}Binding", "metadata": {"name": name}}
        objects.append({**binding, "spec": {"policyName": name, **_BOUND[kind]}})
    return labelled(objects, _POLICY)


_NAMESPACE = "__NAMESPACE__"


def pod_role_objects(plan: FleetPlan, cluster: ClusterPlan) -> tuple[Object, ...]:
    """Return the policy that gives pods of people their AWS role; none without roles, or in an older cluster."""
    has_roles = has_pod_roles(plan) and plan.buckets and plan.record.account_keys
    if not has_roles or minor_version(cluster.version) < _MUTATES:
        return ()
    settings = ", ".join(f"'{key}': '{value}'" for key, value in pod_settings(plan, _NAMESPACE).items())
    words = {
        "__SETTINGS__": "{" + settings.replace(_NAMESPACE, "' + request.namespace + '") + "}",
        "__FOLDER__": TOKEN_FILE.rpartition("/")[0],
        "__AUDIENCE__": AUDIENCE,
    }
    return _policies("pod-role", words)


def people_objects(accounts: Accounts, pods: IPv4Network) -> tuple[Object, ...]:
    """Return the account and the namespace of each person, and the rights of administrators."""
    objects = [item for person in accounts.people for item in _person_objects(person, accounts, pods)]
    return labelled([*objects, _administrators(accounts)], PEOPLE)


def _person_objects(person: Account, accounts: Accounts, pods: IPv4Network) -> Iterator[Object]:
    words = {
        "__NAME__": person_name(person.name),
        "__UID__": str(person.uid),
        "__GIDS__": ",".join(map(str, _gids(person, accounts))),
        "__PODS__": str(pods),
    }
    return load_objects(own_manifest("person"), words)


def _gids(person: Account, accounts: Accounts) -> tuple[int, ...]:
    return (person.uid, *(accounts.groups[group] for group in person.groups))


def admit_routers(objects: Iterable[Object], routers: Iterable[str]) -> None:
    """Let pods of people accept what machines forward from laptops and sites, with addresses of these blocks."""
    for item in objects:
        if (item["kind"], item["metadata"]["labels"][ADDON_LABEL]) == ("NetworkPolicy", PEOPLE):
            item["spec"]["ingress"][0]["from"] += [{"ipBlock": {"cidr": block}} for block in routers]


def _administrators(accounts: Accounts) -> Object:
    people = [person_name(person.name) for person in accounts.people if person.admin]
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "bedplate:administrators"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": PEOPLE} for name in people],
    }


def volume_objects(plan: FleetPlan) -> tuple[Object, ...]:
    """Return a volume and a claim of each person for each store, with the path that it has on machines.

    The machine mounts the store, over TLS where it is EFS. A person's volume of homes is their own home only. The place
    of a volume cannot be edited, so that of EFS names no region: the machines of all regions mount it.
    """
    in_regions: Object = {"key": SITE, "operator": "DoesNotExist"}
    files, exports, _ = plan.stores
    stores = [(system.store, system.mount, "", in_regions) for system in files]
    stores += [
        (export.store, export.mount, export.site, {"key": _REGION, "operator": "In", "values": [export.site]})
        for export in exports
    ]
    volumes = (_volume(person.name, *store) for person in plan.accounts.people for store in stores)
    return labelled(chain.from_iterable(volumes), _VOLUMES)


def _volume(person: str, store: str, mount: str, site: str, place: Object) -> Iterator[Object]:
    path = f"{mount}/{person}" if mount == HOMES else mount
    claim = {"name": store, "namespace": person_name(person)}
    name = f"{claim['namespace']}.{store}"
    common = {"accessModes": ["ReadWriteMany"], "storageClassName": "", "volumeMode": "Filesystem"}
    terms = [{"matchExpressions": [place]}]
    yield {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "annotations": {"bedplate/mount": path}},
        "spec": {
            **common,
            **_size("capacity"),
            "persistentVolumeReclaimPolicy": "Retain",
            "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", **claim},
            "local": {"path": path},
            "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
        },
    }
    yield {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {**claim, "annotations": {"bedplate/mount": path, "bedplate/site": site}},
        "spec": {**common, "volumeName": name, "resources": _size("requests")},
    }


def _size(key: str) -> Mapping[str, Object]:
    # A required field that nothing enforces here.
    return {key: {"storage": "1Ti"}}


# The program on members of the control plane.
_TOKENS = "kube-token"
_KEY_TYPE = "ssh-ed25519"
# Seconds until ssh asks the next member.
_PATIENCE = 5
# A token of an hour is asked for again 10 minutes before its end. Only a file of the person's own is used that nobody
# else can read, and none with a time in the future, after a correction of the clock.
_CACHED = """\
umask 077
ask() { %(ask)s; }
folder=${XDG_CACHE_HOME:-$HOME/.cache}/bedplate
file=$folder/%(name)s.token
mkdir -p "$folder" && new=$(mktemp "$folder/token.XXXXXX") || { ask; exit; }
trap 'rm -f "$new"' EXIT
kept=$(find "$file" -type f -user "$(id -u)" -perm 600 -mmin -50 2>/dev/null)
if [ "$kept" ] && ! [ "$file" -nt "$new" ]; then cat "$file"; exit; fi
ask >"$new" && cat "$new" && mv -f "$new" "$file"
"""


def person_kubeconfig(cluster: ClusterPlan, person: str, host_keys: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Return a kubeconfig without a secret. Raises InputError before the cluster or a host key exists."""
    if not cluster.authority:
        raise InputError("the cluster has no authorities", fix="run `bedplate kube init`")
    user = {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": "sh",
            "args": ["-c", token_command(cluster, person, host_keys)],
            "interactiveMode": "IfAvailable",
            "installHint": "needs ssh 8.5 or newer, and your SSH key",
        }
    }
    return kubeconfig(cluster, cluster.authority, person, user, namespace=person_name(person))


def cluster_access(plan: FleetPlan, cluster: ClusterPlan, person: Account) -> Mapping[str, Any]:
    """Return how `bp` reaches the cluster for a person. Raises InputError before the cluster or a host key exists."""
    return {
        "server": f"https://{cluster.endpoint}",
        "authority": cluster.authority,
        "namespace": person_name(person.name),
        "uid": person.uid,
        "gids": _gids(person, plan.accounts),
        "token": token_command(cluster, person.name, plan.record.host_keys),
    }


def kubeconfig(
    cluster: ClusterPlan, authority: str, name: str, user: Mapping[str, Any], **context: str
) -> dict[str, Any]:
    """Return a kubeconfig of one user, by the certificate of the authority in PEM."""
    data = base64.b64encode(authority.encode()).decode()
    server = {"server": f"https://{cluster.endpoint}", "certificate-authority-data": data}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": cluster.fleet, "cluster": server}],
        "users": [{"name": name, "user": user}],
        "contexts": [{"name": cluster.fleet, "context": {"cluster": cluster.fleet, "user": name, **context}}],
        "current-context": cluster.fleet,
    }


def token_command(cluster: ClusterPlan, person: str, host_keys: Mapping[str, Sequence[str]]) -> str:
    """Return the shell script that prints a token; it asks one member after the other, and keeps the token for a while.

    It trusts recorded host keys only. Each command of kubectl runs it anew, so without the file each would run ssh.
    """
    names = [member.name for member in cluster.members]
    keys = {name: key for name in names for key in host_keys.get(name, ()) if key.startswith(f"{_KEY_TYPE} ")}
    if not keys:
        fix = f"run `bedplate node trust {min(names)}`"
        raise InputError("no host key of a control-plane machine is recorded", fix=fix)
    ask = " || ".join(_ssh(person, f"{name}.{cluster.domain}", key) for name, key in keys.items())
    # Another cluster of the same name has other authorities.
    cluster_id = sha256(cluster.authority.encode()).hexdigest()[:12]
    return _CACHED % {"ask": ask, "name": f"{cluster.fleet}-{person}-{cluster_id}"}


def _ssh(person: str, host: str, key: str) -> str:
    options = (
        f"ConnectTimeout={_PATIENCE}",
        "StrictHostKeyChecking=yes",
        "UserKnownHostsFile=/dev/null",
        f"HostKeyAlgorithms={_KEY_TYPE}",
        f"KnownHostsCommand=/bin/echo {host} {' '.join(key.split()[:2])}",
    )
    words = [word for option in options for word in ("-o", quote(option))]
    return " ".join(("ssh", "-T", *words, f"{person}@{host}", _TOKENS))


def desired_objects(
    plan: FleetPlan, cluster: ClusterPlan, pins: Iterable[AddonPins], read: Callable[[str], bytes]
) -> tuple[Object, ...]:
    """Return all objects; `read` returns the content of an address. Raises BedplateError before anything is applied."""
    setting = Setting(cluster, efa_types(plan))
    without = (*(() if setting.efa_types else (EFA_ADDON,)), *(() if has_queues(plan) else QUEUE_ADDONS))
    addons = tuple(_addon_objects(setting, choose_pins(pins, cluster), read, without))
    people = people_objects(plan.accounts, cluster.pods)
    policies = (*policy_objects(cluster.version), *pod_role_objects(plan, cluster))
    queues = line_objects(plan, cluster.version) if has_queues(plan) else ()
    return (*policies, *addons, *people, *volume_objects(plan), *queues)


def line_objects(plan: FleetPlan, version: str) -> tuple[Object, ...]:
    """Return the queue and the rules for what people put in it."""
    manifests = (_QUEUE_NAMES, _QUEUES) if minor_version(version) >= _MUTATES else (_QUEUES,)
    rules = (item for name in manifests for item in _policies(name, {}))
    return (*rules, *labelled(queue_objects(plan), _QUEUES))


def _addon_objects(
    setting: Setting, pins: Mapping[str, AddonPins], read: Callable[[str], bytes], without: Container[str]
) -> Iterator[Object]:
    for addon in (addon for addon in ADDONS if addon.name not in without):
        chosen = pins[addon.name]
        texts = [file.check(read(file.address)) for file in chosen.files]
        yield from render_addon(addon, chosen, texts, setting)


def efa_types(plan: FleetPlan) -> tuple[str, ...]:
    """Return the EC2 types of the pools with a fabric whose machines are workers."""
    pools = (pool for pool in plan.pools if pool.fabric and pool.use.is_worker)
    return tuple(sorted({name for pool in pools for name in pool.types}))
