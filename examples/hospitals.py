"""Twelve hospitals: from a table to models in use.

Invented patients of twelve hospitals. All measure the same, but there are three groups
of hospitals whose patients fall ill for other reasons, which nobody is told. Run it as
``python examples/hospitals.py [FOLDER]``; the models are written into the new FOLDER.
"""

import argparse
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import torch

import fltnb as fl

NAMES = (
    "AKH Wien",
    "Graz",
    "Linz",
    "Salzburg",
    "Innsbruck",
    "Bregenz",
    "Klagenfurt",
    "Eisenstadt",
    "Villach",
    "Wels",
    "St. Pölten",
    "Steyr",
)
ROWS = (4000, 900, 700, 600, 500, 400, 300, 250, 200, 150, 100, 60)
GROUPS = (0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2)
REASONS = np.array([[2.0, 1.0, 0.0], [-2.0, 0.0, 1.0], [0.0, -2.0, -1.0]])
"""Group -> what age, pressure and dose do to the odds of falling ill."""
NEWCOMER_ROWS = 300


def patients(group: int, rows: int, rng: np.random.Generator) -> pd.DataFrame:
    """Return invented patients of a hospital: three numbers, a word, the outcome."""
    measured = rng.normal(size=(rows, 3))
    odds = 2 * measured @ REASONS[group] + rng.logistic(size=rows)
    table = pd.DataFrame(
        {
            "age": 55 + 15 * measured[:, 0],
            "pressure": 130 + 20 * measured[:, 1],
            "dose": np.exp(measured[:, 2]),
            "sex": rng.choice(["f", "m"], rows),
            "outcome": np.where(odds > 0, "ill", "well"),
        }
    )
    table.loc[rng.random(rows) < 0.02, "pressure"] = np.nan  # not measured
    return table


def all_patients(seed: int = 0) -> pd.DataFrame:
    """Return the table of all hospitals."""
    rng = np.random.default_rng(seed)
    tables = []
    for name, rows, group in zip(NAMES, ROWS, GROUPS, strict=True):
        tables.append(patients(group, rows, rng).assign(hospital=name))
    return pd.concat(tables, ignore_index=True)


def place(
    table: pd.DataFrame, clusterer: fl.clustering.ClientClusterer, fed: fl.Federation
) -> int:
    """Return the cluster whose model would serve a newcomer best, by its own rows.

    -1: none fits; -2: several do.
    """
    rows = fed.preprocessing.transform(table)
    classes = fed.class_numbers(table["outcome"])
    # only merging by gain looks at classes
    y = [classes] if isinstance(clusterer, fl.MergeGain) else None
    return int(clusterer.place([rows], y)[0])


def save_networks(run: fl.Run, fed: fl.Federation, folder: Path) -> None:
    """Write each cluster's network so that torch alone can use it."""
    inputs = torch.from_numpy(fed.inputs(fed.test[0]))
    any_number = ({0: torch.export.Dim("rows")},)
    for cluster in np.unique(run.labels):
        network = run.module(cluster=cluster)
        exported = torch.export.export(network, (inputs,), dynamic_shapes=any_number)
        torch.export.save(exported, folder / f"cluster_{cluster}.pt2")


def without_fltnb(folder: Path, cluster: int, table: pd.DataFrame) -> list[str]:
    """Ask another process, in which fltnb cannot be imported."""
    table.drop(columns="outcome").to_csv(folder / "newcomer.csv", index=False)
    blocked = "import sys, runpy; sys.modules['fltnb'] = None; "
    serve = Path(__file__).with_name("serve.py")
    code = f"{blocked}runpy.run_path({str(serve)!r}, run_name='__main__')"
    asked = [str(folder), str(cluster), str(folder / "newcomer.csv")]
    command = [sys.executable, "-c", code, *asked]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.splitlines()


def main(folder: Path) -> None:
    """Advise, train with clusters and without, save, and serve a newcomer."""
    fed = fl.Federation.from_frame(
        all_patients(), client="hospital", label="outcome", test_fraction=0.3, seed=0
    )
    print(fed)
    advice = fl.advise(fed, progress=False)
    print(advice)

    training = {"model": "mlp_plain", "rounds": 20, "local_epochs": 2, "lr": 0.05}
    training |= {"participation": 1.0, "progress": False}
    runs = {
        "as advised": fl.run(advice.method, fed, **training),
        "FedAvg": fl.run(fl.methods.FedAvg(), fed, **training),
        "alone": fl.run(fl.methods.Local(), fed, **training),
    }
    for name, run in runs.items():
        print(f"\n{name}, test accuracy in percent")
        print(run.means().round(1))

    run = runs["as advised"]
    run.save(folder)
    if run.labels is None:
        print(
            f"\nAdvised is {advice.recommended}: there are no clusters for newcomers."
        )
        return
    save_networks(run, fed, folder)
    newcomer = patients(1, NEWCOMER_ROWS, np.random.default_rng(1))
    cluster = place(newcomer, advice.clusterers[advice.recommended], fed)
    if cluster < 0:
        print("\nNo cluster is clearly right for the newcomer: docs/clusterers.md")
        return
    members = run.clients.query("cluster == @cluster")
    print(
        f"\nA newcomer of {NEWCOMER_ROWS} patients fits {', '.join(members['name'])}, "
        f"which have {members['test'].mean():.1f} %. Of its patients"
    )
    for way, said in {
        "fltnb": fl.Run.load(folder).predict(newcomer, cluster=cluster),
        "torch alone": without_fltnb(folder, cluster, newcomer),
    }.items():
        print(f"{(said == newcomer['outcome']).mean():.1%} are right by {way}")


def asked() -> Path:
    """Return the folder of the command line; it must be new, as it is for run.save."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("folder", nargs="?", type=Path, default="hospitals")
    folder = parser.parse_args().folder
    try:
        folder.mkdir(parents=True)  # what cannot be written is told before the training
        folder.rmdir()
    except OSError as error:
        parser.error(f"Cannot make {folder} ({error.strerror}): name a new folder.")
    return folder


if __name__ == "__main__":
    main(asked())
