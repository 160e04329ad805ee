"""The accounts and namespaces of people, and the volumes of stores: values of the plan in, objects of the API out."""

from collections.abc import Iterator, Mapping
from ipaddress import IPv4Network

from bedplate.cluster.addons import Object, labelled, load_objects, own_manifest
from bedplate.errors import InputError
from bedplate.plan.fleet import Account, Accounts, FleetPlan

PEOPLE = "people"
"""The namespace of people's accounts, and the label of what they have."""
_POLICY, _VOLUMES = "policy", "volumes"
_RESERVED = frozenset({"default", PEOPLE})
HOMES = "/home"
_REGION = "topology.kubernetes.io/region"


def policy_objects() -> tuple[Object, ...]:
    """Return the priorities, the rights of people, and the rules for their pods."""
    return labelled(load_objects(own_manifest(_POLICY), {}), _POLICY)


def person_name(name: str) -> str:
    """Return the name of a person in the cluster: names there have no underscore. Raises InputError for a used one."""
    label = name.replace("_", "-").strip("-")
    if label in _RESERVED or label.startswith("kube-"):
        raise InputError(
            f"people.{name}: Kubernetes uses the namespace {label} itself", fix="choose another name for the person"
        )
    return label


def people_objects(accounts: Accounts, pods: IPv4Network) -> tuple[Object, ...]:
    """Return the account and the namespace of each person, and the rights of administrators."""
    objects = [item for person in accounts.people for item in _person_objects(person, accounts, pods)]
    return labelled([*objects, _administrators(accounts)], PEOPLE)


def _person_objects(person: Account, accounts: Accounts, pods: IPv4Network) -> Iterator[Object]:
    gids = (person.uid, *(accounts.groups[group] for group in person.groups))
    words = {
        "__NAME__": person_name(person.name),
        "__UID__": str(person.uid),
        "__GIDS__": ",".join(map(str, gids)),
        "__PODS__": str(pods),
    }
    return load_objects(own_manifest("person"), words)


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

    The machine mounts the store, over TLS where it is EFS. A person's volume of homes is their own home only.
    """
    regions = [region.name for region in plan.regions]
    stores = [(files.store, files.mount, regions) for files in plan.files]
    stores += [(export.store, export.mount, [export.site]) for export in plan.exports]
    return labelled(
        (
            item
            for person in plan.accounts.people
            for store, path, places in stores
            for item in _volume(
                person_name(person.name), store, f"{path}/{person.name}" if path == HOMES else path, places
            )
        ),
        _VOLUMES,
    )


def _volume(person: str, store: str, path: str, places: list[str]) -> Iterator[Object]:
    claim = {"name": store, "namespace": person}
    name = f"{person}.{store}"
    common = {"accessModes": ["ReadWriteMany"], "storageClassName": "", "volumeMode": "Filesystem"}
    terms = [{"matchExpressions": [{"key": _REGION, "operator": "In", "values": places}]}]
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
        "metadata": {**claim, "annotations": {"bedplate/mount": path}},
        "spec": {**common, "volumeName": name, "resources": _size("requests")},
    }


def _size(key: str) -> Mapping[str, Object]:
    # A required field that nothing enforces here.
    return {key: {"storage": "1Ti"}}
