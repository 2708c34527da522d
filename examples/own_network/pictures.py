"""A residual network of one's own on digits, for clients of two hidden groups.

``python examples/own_network/pictures.py [folder]``. Half of the clients turn their
pictures by 90 degrees. FedAvg trains one model for all; IFCA finds the groups.
The best run is saved into the folder, if one is given, and read again.
"""

import argparse
import tempfile
from pathlib import Path

import torch
from torch import nn

import fltnb as fl

TRAINING = {
    "rounds": 6,
    "local_epochs": 3,
    "participation": 1.0,
    "batch_size": 10,
    "lr": 0.1,
    "progress": False,
}


class Block(nn.Module):
    """Two convolutions beside a shortcut, normalised in groups of channels."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1),
            nn.GroupNorm(2, channels),
            nn.ReLU(),
            nn.Conv2d(channels, channels, 3, padding=1),
            nn.GroupNorm(2, channels),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (b, channels, H, W) to the same shape."""
        return torch.relu(x + self.body(x))


class ResNet(nn.Module):
    """A stem, two residual blocks with a pooling between them, and a dense layer."""

    def __init__(self, input_shape: tuple[int, int, int], n_outputs: int) -> None:
        super().__init__()
        channels, height, width = input_shape
        self.stem = nn.Conv2d(channels, 8, 3, padding=1)
        self.blocks = nn.Sequential(Block(8), nn.MaxPool2d(2), Block(8))
        self.last = nn.Linear(8 * (height // 2) * (width // 2), n_outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map images (b, C, H, W) to outputs (b, n_outputs)."""
        return self.last(self.blocks(self.stem(x)).flatten(1))


def main(folder: Path) -> dict[str, fl.rounds.Run]:
    """Train, print what came out, and use a saved model."""
    fed = fl.federations.rotated(
        fl.load("digits"),
        n_clients=8,
        angles=((0,), (90,)),
        samples_per_client=60,
        test_per_client=40,
    )
    print(fed)
    methods = [fl.methods.FedAvg(), fl.methods.IFCA(2, starts=4), fl.methods.Local()]
    runs = {method.name: fl.run(method, fed, ResNet, **TRAINING) for method in methods}
    for run in runs.values():
        print(run)

    best = max(runs.values(), key=lambda run: run.accuracy)
    best.save(folder / "run")
    again = fl.Run.load(folder / "run", model=ResNet)
    samples = fed.images[fed.test[0]]
    right = again.predict(samples, client=0) == fed.labels[fed.test[0]]
    print(f"client 0, from the saved run: {100 * right.mean():.1f} % right")
    return runs


def asked() -> Path | None:
    """Return the folder of the command line, if any; it may not have a run yet."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("folder", nargs="?", type=Path)
    folder = parser.parse_args().folder
    if folder:
        try:
            (folder / "run").mkdir(parents=True)  # tried before the training
            (folder / "run").rmdir()
        except OSError as error:
            parser.error(
                f"Cannot make {folder / 'run'} ({error.strerror}): name a new folder."
            )
    return folder


if __name__ == "__main__":
    given = asked()
    with tempfile.TemporaryDirectory() as made:
        main(given or Path(made))
