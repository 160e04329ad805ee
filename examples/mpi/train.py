"""A logistic regression whose gradients mpi4py adds up: mpirun starts one process a GPU, or as many as you say."""

import argparse
import os
import time
from pathlib import Path

import mlflow
import numpy as np
from mpi4py import MPI

_FEATURES = 16


def batch(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return points, and on which side of a fixed plane they are."""
    source = np.random.default_rng(seed)
    points = source.normal(size=(count, _FEATURES))
    plane = np.linspace(-1, 1, _FEATURES)
    return points, (points @ plane + source.normal(scale=0.1, size=count) > 0).astype(float)


def train(epochs: int, rate: float, pause: float) -> None:
    """Train from the newest checkpoint on. Each process has its own data, and all have the same weights."""
    world = MPI.COMM_WORLD
    rank, ranks = world.Get_rank(), world.Get_size()
    first, weights, resume = 0, np.zeros(_FEATURES), os.environ.get("BEDPLATE_RESUME")
    if resume:
        with np.load(resume) as state:
            first, weights = int(state["epoch"]) + 1, state["weights"]
    unseen, labels = batch(2_000, seed=0)
    folder = Path(os.environ.get("BEDPLATE_CHECKPOINTS", "checkpoints"))
    folder.mkdir(parents=True, exist_ok=True)
    for epoch in range(first, epochs):
        for step in range(20):
            points, label = batch(64, seed=1 + (epoch * 20 + step) * ranks + rank)
            error = 1 / (1 + np.exp(-points @ weights)) - label
            gradient = points.T @ error / len(points)
            world.Allreduce(MPI.IN_PLACE, gradient)
            weights = weights - rate * gradient / ranks
        time.sleep(pause)
        if rank == 0:
            accuracy = float(((unseen @ weights > 0) == (labels > 0)).mean())
            print(f"epoch {epoch} of {epochs}, {ranks} processes: accuracy {accuracy:.4f}", flush=True)
            if "MLFLOW_RUN_ID" in os.environ:
                mlflow.log_metric("accuracy", accuracy, step=epoch)
            # A checkpoint is whole once it has its name.
            with (folder / "new.tmp").open("wb") as file:
                np.savez(file, epoch=epoch, weights=weights)
            (folder / "new.tmp").rename(folder / f"{epoch:05}.npz")


def main() -> None:
    """Train with the options of the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--rate", type=float, default=0.5)
    parser.add_argument("--pause", type=float, default=0.0, help="seconds after each epoch")
    options = parser.parse_args()
    train(options.epochs, options.rate, options.pause)


if __name__ == "__main__":
    main()
