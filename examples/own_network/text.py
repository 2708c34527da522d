"""A small text model of one's own: tokens, an LSTM, and clients of two opinions.

``python examples/own_network/text.py``. Every client rates sentences of made-up words.
Half of them like what the others dislike, so that one model for all cannot serve both.
The groups are in the labels alone: who looks at sentences only does not see them.
"""

import argparse

import numpy as np
import torch
from torch import nn

import fltnb as fl

CLIENTS = 10
SENTENCES = 60  # of each client
WORDS = 30  # in the vocabulary; the last few say what a sentence is about
LENGTH = 8  # of a sentence
TRAINING = {
    "rounds": 8,
    "local_epochs": 3,
    "participation": 1.0,
    "batch_size": 10,
    "lr": 0.5,
    "progress": False,
}


class Text(nn.Module):
    """Embedded words, an LSTM, and a dense layer on its last state."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, 8)
        self.rnn = nn.LSTM(8, 16, batch_first=True)
        self.last = nn.Linear(16, 1)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Map tokens (b, L) to one output (b, 1), positive for "liked"."""
        states, _ = self.rnn(self.words(tokens))
        return self.last(states[:, -1])


def federation(seed: int = 0) -> fl.Federation:
    """Return clients with sentences (N, L) of words and whether they are liked (N,)."""
    rng = np.random.default_rng(seed)
    n = CLIENTS * SENTENCES
    topic = rng.integers(0, 2, n)
    tokens = rng.integers(0, WORDS - 2, (n, LENGTH))
    place = rng.integers(0, LENGTH, n)
    tokens[np.arange(n), place] = WORDS - 2 + topic
    client_ids = np.repeat(np.arange(CLIENTS), SENTENCES)
    opinion = client_ids % 2
    groups = {client: client % 2 for client in range(CLIENTS)}
    return fl.Federation.from_arrays(
        tokens, topic ^ opinion, client_ids, clusters=groups, val_fraction=0.2
    )


def main() -> dict[str, fl.rounds.Run]:
    """Train, and print what came out."""
    fed = federation()
    print(fed)
    methods = [fl.methods.FedAvg(), fl.methods.IFCA(2, starts=4), fl.methods.Local()]
    runs = {}
    for method in methods:
        run = fl.run(method, fed, Text, loss="binary", **TRAINING)
        runs[method.name] = run
        pooled = run.evaluate(fed).loc["pooled"]
        print(run, f"AUC {pooled['auc']:.2f}")
    return runs


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__.split("\n", 1)[0]).parse_args()
    main()
