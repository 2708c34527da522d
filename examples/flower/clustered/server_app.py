"""The server's side: cluster, train inside the clusters, and say what came out."""

import json
from pathlib import Path

import numpy as np
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fltnb import flower
from fltnb.paths import write_atomically

from .task import CLUSTERERS, federation, network

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the methods one after the other; what one has finished is not done again after a restart."""
    config = context.run_config
    folder = Path(config["folder"]) if config["folder"] else None
    model, spec = network(config, federation(config["clients"], config["seed"]))
    for name in config["methods"].split():
        strategy = flower.ClusteredFedAvg(
            CLUSTERERS.get(name),  # None for "fedavg"
            query=name,
            min_available_nodes=config["clients"],
            min_train_nodes=config["min-train-nodes"],
            timeout=config["timeout"],
            patience=config["patience"],
            checkpoint=folder and folder / f"{name}.npz",
        )
        clients = strategy.start(grid, {"theta": model.init(spec.seed)}, config["rounds"])
        accuracy = np.mean([one["accuracy"] for one in clients if "accuracy" in one])
        print(f"{name}: clusters {[one['label'] for one in clients]}, mean test accuracy {accuracy:.2f} %")
        if folder:
            outcome = {"clients": clients, "history": strategy.history, "left_out": strategy.left_out}
            write_atomically(folder / f"{name}.json", lambda file, text=json.dumps(outcome): file.write(text.encode()))
