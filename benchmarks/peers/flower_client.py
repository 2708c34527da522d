"""A client of W1 as Flower's PyTorch quickstart has it.

It is a module of its own: what is here is not sent to the actors.
"""

from functools import cache

import torch
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch.utils.data import DataLoader, TensorDataset

from ..workloads import LR, WORKLOADS, Workload

app = ClientApp()


@cache
def workload() -> Workload:
    """Return W1, loaded once in every process."""
    return WORKLOADS["W1"]()


@cache
def data(client: int) -> TensorDataset:
    """Return the samples of a client, prepared once in every process."""
    x, y = workload().fed.client(client)
    return TensorDataset(torch.from_numpy(x), torch.from_numpy(y))


@app.train()
def train(message: Message, context) -> Message:
    """Train the model that came for one epoch, on one thread."""
    torch.set_num_threads(1)
    own = data(int(context.node_config["partition-id"]))
    module = workload().model.build()
    module.load_state_dict(message.content["arrays"].to_torch_state_dict())

    sgd = torch.optim.SGD(module.parameters(), lr=LR)
    loss = torch.nn.CrossEntropyLoss()
    for x, y in DataLoader(own, batch_size=workload().batch, shuffle=True):
        sgd.zero_grad()
        loss(module(x), y).backward()
        sgd.step()

    content = {
        "arrays": ArrayRecord(module.state_dict()),
        "metrics": MetricRecord({"num-examples": len(own)}),
    }
    return Message(RecordDict(content), reply_to=message)
