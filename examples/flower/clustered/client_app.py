"""The node's side: one query per clusterer, training and testing as in any Flower App."""

from contextlib import contextmanager

import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fltnb import flower

from .task import CLUSTERERS, embed, network, own_data

app = ClientApp()
for name, clusterer in CLUSTERERS.items():
    app.query(name)(flower.sketch_query(clusterer, embed))


@contextmanager
def engine_of(context):
    """Yield what trains and tests models on this node's samples, and the client's position."""
    from fltnb import training

    fed, client = own_data(context)
    with training.make_engine(fed, *network(context.run_config, fed), backend="serial", device="cpu") as engine:
        yield engine, client


@app.train()
def train(message: Message, context) -> Message:
    """Train the model that came, and send it back."""
    theta = message.content["arrays"]["theta"].numpy()
    with engine_of(context) as (engine, client):
        done = engine.train(theta[None], [0], [client], int(message.content["config"]["server-round"]))
        metrics = {"num-examples": len(engine.fed.train[client]), "loss": float(done.loss[0])}
    arrays = ArrayRecord({"theta": Array(done.theta[0])})
    return Message(RecordDict({"arrays": arrays, "metrics": MetricRecord(metrics)}), reply_to=message)


@app.evaluate()
def evaluate(message: Message, context) -> Message:
    """Test the model that came on this node's test samples."""
    theta = message.content["arrays"]["theta"].numpy()
    with engine_of(context) as (engine, client):
        found = engine.evaluate(np.ascontiguousarray(theta[None]), [0], [client], "test")
    right, total = int(found.correct[0]), int(found.total[0])
    metrics = MetricRecord({"num-examples": total, "accuracy": 100 * right / total})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)
