"""Twelve hospitals: from a table to models in use.

Invented patients of twelve hospitals. All measure the same, but there are three groups
of hospitals whose patients fall ill for other reasons, which nobody is told. Run it as
``python examples/hospitals.py [FOLDER]``; the models are written into FOLDER.
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd

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


def main(folder: Path) -> None:
    """Advise, train with clusters and without, save, and serve a newcomer."""
    fed = fl.Federation.from_frame(
        all_patients(), owner="hospital", label="outcome", test_fraction=0.3, seed=0
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
    again = fl.Run.load(folder)
    newcomer = patients(1, NEWCOMER_ROWS, np.random.default_rng(1))
    said = again.predict(newcomer.drop(columns="outcome"), owner="Graz")
    right = (said == newcomer["outcome"]).mean()
    print(f"\nA newcomer's {NEWCOMER_ROWS} patients by the model of Graz: {right:.1%}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "hospitals"))
