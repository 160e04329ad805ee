"""A small network learns two spirals with DistributedDataParallel: one process a GPU, on one or more machines."""

import argparse
import json
import math
import os
import ssl
import time
import urllib.request
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def log_metric(name: str, value: float, step: int) -> None:
    """Write a metric as `mlflow.log_metric(name, value, step=step)` does, without the package."""
    variables = {key: os.environ.get(f"MLFLOW_{key}", "") for key in ("TRACKING_URI", "TRACKING_TOKEN", "RUN_ID")}
    if not variables["RUN_ID"]:
        return
    body = {
        "run_id": variables["RUN_ID"],
        "key": name,
        "value": value,
        "step": step,
        "timestamp": time.time_ns() // 10**6,
    }
    request = urllib.request.Request(
        f"{variables['TRACKING_URI']}/api/2.0/mlflow/runs/log-metric",
        json.dumps(body).encode(),
        {"Authorization": f"Bearer {variables['TRACKING_TOKEN']}", "Content-Type": "application/json"},
    )
    context = ssl.create_default_context(cafile=os.environ.get("MLFLOW_TRACKING_SERVER_CERT_PATH"))
    try:
        urllib.request.urlopen(request, context=context, timeout=10).close()
    except OSError as error:
        # Training goes on while the hub is away.
        print(f"{name} of step {step} is not in the record: {error}", flush=True)


def spirals(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return points of two spirals, and the spiral of each."""
    source = torch.Generator().manual_seed(seed)
    label = torch.randint(2, (count, 1), generator=source).float()
    turn = torch.rand(count, 1, generator=source) * 1.2 * math.pi + 0.4
    points = torch.cat((turn.cos(), turn.sin()), 1) * turn * (2 * label - 1) / 4
    return points + torch.randn(count, 2, generator=source) * 0.03, label


def save(path: Path, state: dict[str, object]) -> None:
    """Write a checkpoint that is whole once it has its name."""
    torch.save(state, f"{path}.tmp")
    Path(f"{path}.tmp").rename(path)


def train(epochs: int, rate: float, pause: float) -> None:
    """Train from the newest checkpoint on. Each process has its own data, and all have the same model."""
    rank, ranks = (int(os.environ.get(name, default)) for name, default in (("RANK", "0"), ("WORLD_SIZE", "1")))
    has_gpus = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if has_gpus else torch.device("cpu")
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(2, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1)).to(device)
    # Adam keeps a state, which belongs into the checkpoint, too.
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    first, resume = 0, os.environ.get("BEDPLATE_RESUME")
    if resume:
        state = torch.load(resume, map_location=device)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first = state["epoch"] + 1
    if ranks > 1:
        if has_gpus:
            torch.cuda.set_device(device)
        dist.init_process_group("nccl" if has_gpus else "gloo")
    # Without the option, its first step after a restart adds in another order.
    whole = DistributedDataParallel(model, find_unused_parameters=True) if ranks > 1 else model
    unseen, labels = (tensor.to(device) for tensor in spirals(1_000, seed=-1))
    folder = Path(os.environ.get("BEDPLATE_CHECKPOINTS", "checkpoints"))
    folder.mkdir(parents=True, exist_ok=True)
    for epoch in range(first, epochs):
        for step in range(20):
            points, label = (tensor.to(device) for tensor in spirals(64, seed=(epoch * 20 + step) * ranks + rank))
            loss = torch.nn.functional.binary_cross_entropy_with_logits(whole(points), label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        time.sleep(pause)
        if rank == 0:
            with torch.no_grad():
                accuracy = ((model(unseen) > 0) == labels.bool()).float().mean().item()
            print(f"epoch {epoch} of {epochs}, {ranks} processes: accuracy {accuracy:.4f}", flush=True)
            log_metric("accuracy", accuracy, epoch)
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
            save(folder / f"{epoch:05}.pt", state)
    if ranks > 1:
        dist.destroy_process_group()


def main() -> None:
    """Train with the options of the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--rate", type=float, default=0.01)
    parser.add_argument("--pause", type=float, default=0.0, help="seconds after each epoch")
    options = parser.parse_args()
    train(options.epochs, options.rate, options.pause)


if __name__ == "__main__":
    main()
