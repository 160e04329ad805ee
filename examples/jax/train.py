"""A small network learns two spirals with JAX: one process a GPU, on one or more machines, with equal models."""

import argparse
import os
import pickle
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import mlflow
from jax.experimental.multihost_utils import process_allgather

Model = list[tuple[jax.Array, jax.Array]]


def spirals(count: int, key: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return points of two spirals, and the spiral of each."""
    keys = jax.random.split(key, 3)
    label = jax.random.bernoulli(keys[0], shape=(count, 1)).astype(float)
    turn = jax.random.uniform(keys[1], (count, 1)) * 1.2 * jnp.pi + 0.4
    points = jnp.concatenate((jnp.cos(turn), jnp.sin(turn)), 1) * turn * (2 * label - 1) / 4
    return points + jax.random.normal(keys[2], (count, 2)) * 0.03, label


def outputs(model: Model, points: jax.Array) -> jax.Array:
    """Return the values of the last layer."""
    *inner, (last, bias) = model
    for weights, shift in inner:
        points = jnp.tanh(points @ weights + shift)
    return points @ last + bias


@jax.jit
def gradients(model: Model, points: jax.Array, label: jax.Array) -> Model:
    """Return the slopes of the loss."""
    signs = 2 * label - 1
    return jax.grad(lambda model: jnp.logaddexp(0, -signs * outputs(model, points)).mean())(model)


def train(epochs: int, rate: float, pause: float) -> None:
    """Train from the newest checkpoint on. Each process has its own data, and all have the same model."""
    rank, ranks = jax.process_index(), jax.process_count()
    model: Model = []
    for number, (rows, columns) in enumerate(((2, 32), (32, 1))):
        model.append((jax.random.normal(jax.random.key(number), (rows, columns)), jnp.zeros(columns)))
    first, resume = 0, os.environ.get("BEDPLATE_RESUME")
    if resume:
        first, model = pickle.loads(Path(resume).read_bytes())  # noqa: S301  a file of this program
    unseen, labels = spirals(1_000, jax.random.key(7))
    folder = Path(os.environ.get("BEDPLATE_CHECKPOINTS", "checkpoints"))
    folder.mkdir(parents=True, exist_ok=True)
    for epoch in range(first, epochs):
        for step in range(20):
            key = jax.random.fold_in(jax.random.key(step), epoch * ranks + rank)
            slopes = gradients(model, *spirals(64, key))
            if ranks > 1:
                slopes = jax.tree.map(lambda values: values.mean(0), process_allgather(slopes))
            model = jax.tree.map(lambda value, slope: value - rate * slope, model, slopes)
        time.sleep(pause)
        if rank == 0:
            accuracy = float(((outputs(model, unseen) > 0) == (labels > 0)).mean())
            print(f"epoch {epoch} of {epochs}, {ranks} processes: accuracy {accuracy:.4f}", flush=True)
            if "MLFLOW_RUN_ID" in os.environ:
                mlflow.log_metric("accuracy", accuracy, step=epoch)
            # A checkpoint is whole once it has its name.
            file = folder / f"{epoch:05}.pickle.tmp"
            file.write_bytes(pickle.dumps((epoch + 1, jax.device_get(model))))
            file.rename(file.with_suffix(""))


def main() -> None:
    """Join the other processes of the run, and train with the options of the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--rate", type=float, default=0.3)
    parser.add_argument("--pause", type=float, default=0.0, help="seconds after each epoch")
    options = parser.parse_args()
    if "RANK" in os.environ:
        jax.distributed.initialize(
            coordinator_address=f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}",
            num_processes=int(os.environ["WORLD_SIZE"]),
            process_id=int(os.environ["RANK"]),
            # Of the GPUs that are visible; processors have no such number.
            local_device_ids=int(os.environ["LOCAL_RANK"]),
        )
    train(options.epochs, options.rate, options.pause)


if __name__ == "__main__":
    main()
