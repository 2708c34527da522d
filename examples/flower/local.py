"""A federation of real processes on this machine: `make flower`.

With DISTURB=1 nodes and server die on the way. A SuperLink and 8 SuperNodes talk over
the loopback only. Each node has a file with the digits of one client; there are 3
hidden groups, with three digits each. All processes end with this one, and all files
are in a temporary folder.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import numpy as np

import fltnb as fl
from fltnb.errors import FltnbError

HERE = "127.0.0.1"
APP = Path(__file__).resolve().parent
CLIENTS = 8
GROUPS = 3
START = 120  # seconds that processes get to start
EPOCHS = 5  # of each round, where nodes and server die
SHOWN = ("Clusters", "Round", "Continuing")  # beginnings of lines of the server's log


class Federation:
    """The processes, and the folder with data, logs, checkpoints and outcomes."""

    def __init__(self, folder: Path, port: int | None, clients: int):
        self.folder = folder
        self.processes = {}
        self.shown = 0  # lines of the server's log
        images = fl.load("digits")
        self.fed = fl.federations.label_clusters(
            images, n_clients=clients, n_clusters=GROUPS, classes_per_cluster=3
        )
        for number in range(clients):
            parts = {}
            for part in ("train", "test"):
                x, y = self.fed.client(number, part)
                parts[f"x_{part}"] = x[:, 0]
                parts[f"y_{part}"] = y
            np.savez(folder / f"client{number}.npz", **parts)
        self.port = port or free_port()
        if not 0 < self.port < 65536:
            raise FltnbError(f"There is no port {port}: give one of 1 to 65535.")
        with socket.socket() as probe:
            if probe.connect_ex((HERE, self.port)) == 0:
                raise FltnbError(
                    f"Port {self.port} is in use: give another one, or none."
                )
        connection = (
            '[superlink]\ndefault = "here"\n'
            f'[superlink.here]\naddress = "{HERE}:{self.port}"\ninsecure = true\n'
        )
        (folder / "config.toml").write_text(connection)
        # nothing leaves this machine, and nothing is written outside the folder
        self.env = os.environ | {
            "FLWR_HOME": str(folder),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2",
            "OMP_NUM_THREADS": "1",
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        }

    def begin(self, name: str, *command: str) -> None:
        """Start a process in a group of its own: what it starts ends with it."""
        with (self.folder / f"{name}.log").open("ab") as out:
            made = subprocess.Popen(
                command,
                env=self.env,
                stdout=out,
                stderr=out,
                cwd=self.folder,
                start_new_session=True,
            )
        self.processes[name] = made

    def link(self, lasting: bool) -> None:
        """Start the SuperLink, and wait until it listens.

        One with a ``lasting`` memory knows its nodes after it was started again.
        """
        memory = ("--database", str(self.folder / "link.db")) if lasting else ()
        where = ("--host", HERE, "--port", str(self.port), *memory)
        self.begin(
            "superlink",
            "flower-superlink",
            "--insecure",
            "--disable-runtime-dependency-installation",
            *where,
        )
        due = time.monotonic() + START
        while time.monotonic() < due and self.processes["superlink"].poll() is None:
            with socket.socket() as probe:
                if probe.connect_ex((HERE, self.port)) == 0:
                    return
            time.sleep(0.2)
        raise FltnbError(f"The SuperLink did not start:\n{self.log('superlink')}")

    def node(self, number: int) -> None:
        """Start the SuperNode of a client."""
        config = f'partition-id={number} data="{self.folder / f"client{number}.npz"}"'
        where = (
            "--superlink",
            f"{HERE}:{self.port}",
            "--host",
            HERE,
            "--port",
            str(free_port()),
        )
        self.begin(
            f"node{number}",
            "flower-supernode",
            "--insecure",
            *where,
            "--node-config",
            config,
        )

    def run(self, **config) -> None:
        """Start the app, as a user would."""
        given = " ".join(
            f"{key.replace('_', '-')}={json.dumps(value)}"
            for key, value in config.items()
        )
        given += f" folder={json.dumps(str(self.folder))}"
        self.begin(
            "run", "flwr", "run", str(APP), "here", "--stream", "--run-config", given
        )

    def rounds(self, name: str) -> int:
        """Return how many rounds of a method are done."""
        try:
            with np.load(self.folder / f"{name}.npz") as file:
                return len(json.loads(str(file["about"]))["history"])
        except FileNotFoundError:
            return -1

    def wait(self, done, seconds: float, what: str) -> None:
        """Wait for something to come true; FltnbError with the logs if it does not."""
        due = time.monotonic() + seconds
        while not done():
            self._show()
            ended = self._has_ended("superlink") or self._has_ended("run")
            if (ended and not done()) or time.monotonic() > due:
                logs = f"{self.log('run')}\n{self.log('superlink')}"
                raise FltnbError(f"Waited in vain for {what}:\n{logs}")
            time.sleep(0.5)

    def _has_ended(self, name: str) -> bool:
        return self.processes[name].poll() is not None

    def _show(self) -> None:
        """Print what the server newly said of clusters and rounds."""
        news = []
        for line in self.log("run", None).splitlines():
            if "INFO" in line:
                said = line.split(":", 1)[1].strip()
                if said.startswith(SHOWN):
                    news.append(said)
        for line in news[self.shown :]:
            print(f"  {line}", flush=True)
        self.shown = max(len(news), self.shown)

    def outcome(self, name: str) -> dict:
        """Return what the server wrote about a method."""
        return json.loads((self.folder / f"{name}.json").read_text())

    def log(self, name: str, lines: int | None = 12) -> str:
        """Return the end of a process' log."""
        file = self.folder / f"{name}.log"
        text = file.read_text(errors="replace").splitlines() if file.exists() else []
        return "\n".join(text if lines is None else text[-lines:])

    def kill(self, *names: str) -> None:
        """End processes at once, with all that they started."""
        for name in names:
            process = self.processes.pop(name)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def free_port() -> int:
    """Return a port that nobody uses at the moment."""
    with socket.socket() as probe:
        probe.bind((HERE, 0))
        return probe.getsockname()[1]


def undisturbed(federation: Federation) -> None:
    """Let transport signatures and FCR find the groups, and train inside them.

    FedAvg trains beside them.
    """
    begun = time.monotonic()
    federation.run()
    federation.wait(
        lambda: (federation.folder / "fedavg.json").exists(), 3600, "the outcome"
    )
    found = {
        name: federation.outcome(name)["clients"]
        for name in ("transport", "fcr", "fedavg")
    }
    # FedAvg asks for no sketches, and knows nodes only
    flat = {one["node"]: one["accuracy"] for one in found["fedavg"]}
    print(
        "\nclient  digits  transport  FCR   test accuracy: clusters  FedAvg   "
        "bytes up: sketch   models"
    )
    fed = federation.fed
    for number, one in enumerate(found["fcr"]):
        digits = "".join(map(str, np.unique(fed.labels[fed.train[number]])))
        transport = found["transport"][number]["label"]
        print(
            f"{number:6}  {digits:>6}  {transport:9}  {one['label']:3}   "
            f"{one['accuracy']:23.1f}  {flat[one['node']]:6.1f}   "
            f"{one['bytes_sketch']:16,}  {one['bytes_up']:7,}"
        )
    clusters = np.mean([one["accuracy"] for one in found["fcr"]])
    fedavg = np.mean([one["accuracy"] for one in found["fedavg"]])
    print(f"  mean                          {clusters:23.1f}  {fedavg:6.1f}")
    print(f"{time.monotonic() - begun:.0f} s from `flwr run` to here.")

    for name in ("transport", "fcr"):
        labels = np.array([each["label"] for each in found[name]])
        same = labels[:, None] == labels
        if not np.array_equal(same, fed.clusters[:, None] == fed.clusters):
            raise SystemExit(
                f"{name} did not find the groups: {labels.tolist()} instead of "
                f"{fed.clusters.tolist()}."
            )


def disturbed(federation: Federation) -> None:
    """Kill two nodes in round 2, start one in round 3, kill the server in round 4.

    Then check the final models.
    """
    options = {
        "cluster": "",
        "train": "fcr",
        "rounds": 5,
        "local-epochs": EPOCHS,
        "timeout": 120.0,
    }
    federation.run(**options)
    federation.wait(lambda: federation.rounds("fcr") >= 1, 1800, "round 1")
    federation.kill("node1", "node4")
    print("Killed the nodes of clients 1 and 4 in round 2.", flush=True)
    federation.wait(lambda: federation.rounds("fcr") >= 2, 1800, "round 2")
    federation.node(CLIENTS)
    print(f"Started a node with the data of client {CLIENTS} in round 3.", flush=True)
    federation.wait(lambda: federation.rounds("fcr") >= 3, 1800, "round 3")
    federation.kill("superlink", "run")
    print("Killed the server in round 4, and started it again.", flush=True)
    federation.link(lasting=True)
    federation.run(**options)
    federation.wait(
        lambda: (federation.folder / "fcr.json").exists(), 3600, "the outcome"
    )
    outcome = federation.outcome("fcr")
    for row in outcome["history"]:
        print(f"round {row['round']}: models of clients {row['clients']}")
    print("clusters", {one["number"]: one["label"] for one in outcome["clients"]})
    gap = replayed(federation, outcome)
    print(f"largest difference to the same rounds computed in one process: {gap:.1e}")
    if gap > 1e-6:
        raise SystemExit("The models are not what those rounds give.")


def replayed(federation: Federation, outcome: dict) -> float:
    """Return how far the server's models are from those of the same rounds done here.

    The same clients take part.
    """
    from fltnb import models, training

    label = {one["number"]: one["label"] for one in outcome["clients"]}
    fed = federation.fed
    spec = training.TrainSpec(local_epochs=EPOCHS, batch_size=10, lr=0.1)
    model = models.make("mlp_plain", fed.input_shape, fed.n_classes)
    theta = np.repeat(model.init(0)[None], max(label.values()) + 1, axis=0)
    # as the nodes do: another back end rounds otherwise, by 2e-6 in the end
    with training.make_engine(fed, model, spec, "pool", "cpu", n_workers=1) as engine:
        for row in outcome["history"]:
            clients = np.array(row["clients"])
            rows = np.array([label[client] for client in clients])
            trained = engine.train(theta, rows, clients, row["round"])
            local = trained.theta.astype(np.float64)
            for cluster in np.unique(rows):
                members = rows == cluster
                sizes = fed.sizes[clients[members]]
                theta[cluster] = np.average(local[members], axis=0, weights=sizes)
    with np.load(federation.folder / "fcr.npz") as file:
        return float(np.abs(file["models"] - theta).max())


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument(
        "--disturb", action="store_true", help="kill nodes and the server on the way"
    )
    parser.add_argument(
        "--port", type=int, help="the SuperLink's port; default: any that is free"
    )
    options = parser.parse_args()
    for name in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, lambda *_: sys.exit(1))  # so that everything is ended
    with tempfile.TemporaryDirectory(prefix="fltnb-flower-") as folder:
        federation = None
        try:
            fl.flower.letters.flwr_app()
            clients = CLIENTS + 1 if options.disturb else CLIENTS
            federation = Federation(Path(folder), options.port, clients)
            print(
                f"A SuperLink and {CLIENTS} SuperNodes on this machine; logs in "
                f"{folder} while they run.",
                flush=True,
            )
            federation.link(lasting=options.disturb)
            for number in range(CLIENTS):
                federation.node(number)
            if options.disturb:
                disturbed(federation)
            else:
                undisturbed(federation)
        except FltnbError as error:
            raise SystemExit(str(error)) from None
        finally:
            if federation:
                federation.kill(*federation.processes)


if __name__ == "__main__":
    main()
