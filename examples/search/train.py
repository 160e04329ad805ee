"""A small network learns two spirals, in plain Python. Each epoch logs its accuracy on points that it has not seen."""

import argparse
import json
import math
import os
import random
import ssl
import sys
import time
import urllib.request


def log_metric(name: str, value: float, step: int) -> None:
    """Write a metric as `mlflow.log_metric(name, value, step=step)` does, without the package."""
    variables = {key: os.environ.get(f"MLFLOW_{key}", "") for key in ("TRACKING_URI", "TRACKING_TOKEN", "RUN_ID")}
    body = {
        "run_id": variables["RUN_ID"],
        "key": name,
        "value": value,
        "step": step,
        "timestamp": int(time.time() * 1000),
    }
    request = urllib.request.Request(
        f"{variables['TRACKING_URI']}/api/2.0/mlflow/runs/log-metric",
        json.dumps(body).encode(),
        {"Authorization": f"Bearer {variables['TRACKING_TOKEN']}", "Content-Type": "application/json"},
    )
    context = ssl.create_default_context(cafile=os.environ.get("MLFLOW_TRACKING_SERVER_CERT_PATH"))
    with urllib.request.urlopen(request, context=context, timeout=60):
        pass


def spirals(count: int, source: random.Random) -> list[tuple[list[float], float]]:
    """Return points of two spirals, each with its label."""
    points = []
    for _ in range(count):
        label, turn = source.choice((-1.0, 1.0)), source.random() * 3 * math.pi + 0.4
        x, y = label * turn * math.cos(turn) / 4, label * turn * math.sin(turn) / 4
        points.append(([x + source.gauss(0, 0.03), y + source.gauss(0, 0.03), 1.0], label))
    return points


def train(rate: float, width: int, momentum: float, epochs: int, points: int):  # noqa: ANN201  a generator of floats
    """Yield the accuracy after each epoch, which learns from each of the points."""
    source = random.Random(7)
    data, unseen = spirals(points, source), spirals(300, source)
    inner = [[source.gauss(0, 1.5) for _ in range(3)] for _ in range(width)]
    outer = [source.gauss(0, 0.5) for _ in range(width)]
    speeds = [[0.0] * 4 for _ in range(width)]
    for _ in range(epochs):
        source.shuffle(data)
        for point, label in data:
            hidden = [math.tanh(sum(w * x for w, x in zip(row, point))) for row in inner]
            error = math.tanh(sum(w * h for w, h in zip(outer, hidden))) - label
            for row, speed, (at, value) in zip(inner, speeds, enumerate(hidden)):
                slope = error * outer[at] * (1 - value * value)
                for key, x in enumerate((*point, value)):
                    gradient = slope * x if key < 3 else error * value
                    speed[key] = momentum * speed[key] - rate * gradient
                    if key < 3:
                        row[key] += speed[key]
                    else:
                        outer[at] += speed[key]
        right = 0
        for point, label in unseen:
            hidden = [math.tanh(sum(w * x for w, x in zip(row, point))) for row in inner]
            right += sum(w * h for w, h in zip(outer, hidden)) * label > 0
        yield right / len(unseen)


def main() -> None:
    """Train with the options of the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rate", type=float, required=True)
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--momentum", type=float, default=0.0)
    parser.add_argument("--epochs", type=int, default=27)
    parser.add_argument("--points", type=int, default=6000)
    options = parser.parse_args()
    curve = train(options.rate, options.width, options.momentum, options.epochs, options.points)
    for epoch, accuracy in enumerate(curve, 1):
        print(f"epoch {epoch} accuracy {accuracy:.4f}", flush=True)
        if "MLFLOW_RUN_ID" in os.environ:
            log_metric("accuracy", accuracy, epoch)


if __name__ == "__main__":
    sys.exit(main())
