"""The server's side: cluster, train inside the clusters, and say what came out."""

import json
from pathlib import Path

import numpy as np
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fltnb.errors import choose
from fltnb.flower import ClusteredFedAvg
from fltnb.paths import write_text
from fltnb.settings import Natural, check

from .task import clusterers, network

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the methods one after the other; each goes on where it was stopped."""
    config = context.run_config
    folder = Path(config["folder"]) if config["folder"] else None
    model, spec = network(config)
    trained = config["train"].split()
    names = dict.fromkeys(config["cluster"].split() + trained)
    check("rounds", config["rounds"], Natural)
    check("scale", config["scale"], bool)
    strategies = {}  # all of them first: a wrong setting is told before any training
    for name in names:
        choose(name, [*clusterers(), "fedavg"], "clusterer")
        strategies[name] = ClusteredFedAvg(
            clusterers().get(name),  # None for "fedavg"
            query=name,
            min_available_nodes=config["clients"],
            min_train_nodes=config["min-train-nodes"],
            timeout=config["timeout"],
            patience=config["patience"],
            checkpoint=folder and folder / f"{name}.npz",
            scaling="scaling" if config["scale"] else None,
            training=spec,
        )
    for name, strategy in strategies.items():
        rounds = config["rounds"] if name in trained else 0
        clients = strategy.start(grid, model.init(spec.seed), rounds)
        accuracy = [one["accuracy"] for one in clients if "accuracy" in one]
        tested = f", mean test accuracy {np.mean(accuracy):.2f} %" if accuracy else ""
        print(
            f"{name}: clusters {[one['label'] for one in clients]}{tested}", flush=True
        )
        if folder:
            outcome = {
                "clients": clients,
                "history": strategy.history,
                "left_out": strategy.left_out,
            }
            write_text(folder / f"{name}.json", json.dumps(outcome))
