"""A client of W1 as Flower's PyTorch quickstart has it. A module of its own: what is here is not sent to the actors."""

from functools import cache

import torch
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch.utils.data import DataLoader, TensorDataset

from ..workloads import LR, Workload, workloads

app = ClientApp()


@cache
def workload() -> Workload:
    """Return W1, loaded once in every process."""
    return workloads()["W1"]()


@cache
def data(number: int) -> TensorDataset:
    """Return the samples of a client, prepared once in every process."""
    return TensorDataset(
        *(torch.from_numpy(array) for array in workload().fed.client(number))
    )


@app.train()
def train(message: Message, context) -> Message:
    """Train the model that came for one epoch, on one thread."""
    torch.set_num_threads(1)
    module, own = (
        workload().model.build(),
        data(int(context.node_config["partition-id"])),
    )
    module.load_state_dict(message.content["arrays"].to_torch_state_dict())
    sgd, loss = torch.optim.SGD(module.parameters(), lr=LR), torch.nn.CrossEntropyLoss()
    for x, y in DataLoader(own, batch_size=workload().batch, shuffle=True):
        sgd.zero_grad()
        loss(module(x), y).backward()
        sgd.step()
    content = {
        "arrays": ArrayRecord(module.state_dict()),
        "metrics": MetricRecord({"num-examples": len(own)}),
    }
    return Message(RecordDict(content), reply_to=message)
