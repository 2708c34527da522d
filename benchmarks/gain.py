"""Is the estimate of :func:`fltnb.clustering_gain` what training then gains? ``python -m benchmarks.gain``.

The federations of notebook 15 whose true clusters are known, profile small, seed 0; trainings are its stored ones.
"""

import pandas as pd

import fltnb as fl
from fltnb.studies import head_to_head


def compare() -> pd.DataFrame:
    """Points gained by the true clusters, estimated and trained: one row per federation."""
    runs = fl.results("15").where(kind="training", profile="small", seed=0).runs
    trained = runs.pivot_table("accuracy", "federation", "method")
    rows = []
    for name, kind in head_to_head.kinds("small").items():
        if name not in head_to_head.UNKNOWN:
            settings = kind.settings | {"seed": 0}
            if "base" in settings:
                settings["base"] = settings["base"] | {"seed": 0}
            fed = fl.federations.build(settings)
            guess, real = fl.clustering_gain(fed, fed.clusters), trained.loc[name]
            row = {"federation": name, "over one model": guess.points, "±": guess.error}
            row |= {
                "trained": real["oracle"] - real["fedavg"],
                "over own models": guess.over_own,
            }
            rows.append(
                row
                | {
                    "± ": guess.over_own_error,
                    "trained ": real["oracle"] - real["local"],
                }
            )
    return pd.DataFrame(rows)


if __name__ == "__main__":
    print(fl.notebook.to_markdown(compare(), digits=1))
