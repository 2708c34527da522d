"""The node's side: a query for each clusterer, training and testing as in any app."""

from contextlib import contextmanager

from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from .task import embed, network, own_data, rows

app = ClientApp()


def answer(message: Message, context) -> Message:
    """Send this node's sketch to the server, which asks by the clusterer's name."""
    from fltnb.flower import sketch_query

    from .task import clusterers

    name = message.metadata.message_type.removeprefix("query.")
    return sketch_query(clusterers()[name], embed)(message, context)


for name in ("fcr", "transport"):
    app.query(name)(answer)


@app.query("scaling")
def agree(message: Message, context) -> Message:
    """Send the sums of this node's columns; then keep the scale of all nodes."""
    from fltnb.flower import scaling_query

    return scaling_query(rows)(message, context)


@contextmanager
def engine_of(context):
    """Yield what trains and tests models on this node's samples, and its number."""
    from fltnb import training

    fed, number = own_data(context)
    model, spec = network(context.run_config)
    with training.make_engine(fed, model, spec, "pool", "cpu", n_workers=1) as engine:
        yield engine, number


@app.train()
def train(message: Message, context) -> Message:
    """Train the model that came, and send it back."""
    theta = message.content["arrays"]["theta"].numpy()
    round = int(message.content["config"]["server-round"])
    with engine_of(context) as (engine, number):
        done = engine.train(theta[None], [0], [number], round)
        samples = len(engine.fed.train[number])
    arrays = ArrayRecord({"theta": Array(done.theta[0])})
    metrics = MetricRecord({"num-examples": samples, "loss": float(done.loss[0])})
    content = RecordDict({"arrays": arrays, "metrics": metrics})
    return Message(content, reply_to=message)


@app.evaluate()
def evaluate(message: Message, context) -> Message:
    """Test the model that came on this node's test samples."""
    theta = message.content["arrays"]["theta"].numpy()
    with engine_of(context) as (engine, number):
        found = engine.evaluate(theta[None], [0], [number], "test")
    right = int(found.correct[0])
    total = int(found.total[0])
    metrics = MetricRecord({"num-examples": total, "accuracy": 100 * right / total})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)
