"""The settings of Prometheus and Alertmanager, as JSON, which is YAML.

Prometheus asks exporters itself, from the hub. Whoever may ask an exporter is decided by its packet filter; its
certificate is not verified, because the machine has made it itself.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from bedplate.monitoring.layer import INTERVAL, SAMPLE_LIMIT
from bedplate.monitoring.targets import EXPECTED
from bedplate.plan.hub import ALERTMANAGER_PORT, ALERTS_PORT, PROMETHEUS_PORT

Settings = dict[str, Any]
_EACH, _TIMEOUT = f"{INTERVAL}s", "10s"
# More bytes, or more or longer labels of an exporter, count as no answer.
_MOST_BYTES, _MOST_LABELS, _LONGEST_LABEL = "16MB", 40, 512
# Seconds that alerts of a place wait for each other, between two messages about changes, and until the next reminder.
_WAIT, _BETWEEN, _AGAIN = "10s", "2m", "12h"


def prometheus_settings(fleet: str, hub: str, folder: str, targets: str, remote_write: str | None = None) -> str:
    """Return the settings of Prometheus on a hub (`hub.us-west-2`), with its files in a folder, and that of targets.

    The token for `remote_write` is a credential of its unit.
    """
    jobs = [_exporters("node", hub, targets), _exporters("gpu", hub, targets)]
    jobs += [_own("prometheus", hub, PROMETHEUS_PORT), _own("alertmanager", hub, ALERTMANAGER_PORT)]
    settings: Settings = {
        "global": {
            "scrape_interval": _EACH,
            "scrape_timeout": _TIMEOUT,
            "evaluation_interval": _EACH,
            "external_labels": {"fleet": fleet},
        },
        "rule_files": [f"{folder}/rules/*.json"],
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": [f"127.0.0.1:{ALERTMANAGER_PORT}"]}]}]},
        "scrape_configs": jobs,
    }
    if remote_write:
        token = "/run/credentials/prometheus.service/remote-write"  # noqa: S105  the path of a file
        settings["remote_write"] = [{"url": remote_write, "authorization": {"credentials_file": token}}]
    return _text(settings)


def _exporters(job: str, hub: str, targets: str) -> Settings:
    """Return a job whose targets are in a file of its name.

    Labels of a target win, except on the hub, which reports about other machines.
    """
    own = "|".join(EXPECTED)
    wins = [
        {
            "source_labels": ["instance", "__name__", f"exported_{label}"],
            "regex": f"{hub.replace('.', '[.]')};(?:{own});(.+)",
            "target_label": label,
        }
        for label in ("place", "group", "role")
    ]
    return {
        "job_name": job,
        "scheme": "https",
        "tls_config": {"insecure_skip_verify": True},
        "file_sd_configs": [{"files": [f"{targets}/{job}.json"], "refresh_interval": "1m"}],
        "metric_relabel_configs": [*wins, {"regex": "exported_(?:place|group|role)", "action": "labeldrop"}],
        "sample_limit": SAMPLE_LIMIT,
        "body_size_limit": _MOST_BYTES,
        "label_limit": _MOST_LABELS,
        "label_value_length_limit": _LONGEST_LABEL,
    }


def _own(job: str, hub: str, port: int) -> Settings:
    labels = {"instance": hub, "place": hub.partition(".")[2], "role": "hub"}
    return {"job_name": job, "static_configs": [{"targets": [f"127.0.0.1:{port}"], "labels": labels}]}


def alertmanager_settings() -> str:
    """Return the settings of Alertmanager: one message for each place and group, and for each person.

    Alerts about a whole place silence those about its machines.
    """
    person = {"matchers": ['severity="person"'], "group_by": ["person"], "group_wait": _WAIT}
    return _text(
        {
            "route": {
                "receiver": "hub",
                "group_by": ["place", "group"],
                "group_wait": _WAIT,
                "group_interval": _BETWEEN,
                "repeat_interval": _AGAIN,
                "routes": [person],
            },
            "inhibit_rules": [
                {"source_matchers": ['scope="place"'], "target_matchers": ['scope!="place"'], "equal": ["place"]}
            ],
            "receivers": [
                {
                    "name": "hub",
                    "webhook_configs": [
                        {"url": f"http://127.0.0.1:{ALERTS_PORT}/bedplate/alerts", "send_resolved": True}
                    ],
                }
            ],
        }
    )


def rules_text(groups: Sequence[Mapping[str, Any]]) -> str:
    """Return a file of rules."""
    return _text({"groups": list(groups)})


def _text(settings: Mapping[str, Any]) -> str:
    return json.dumps(settings, indent=1) + "\n"
