"""Compare the estimate of :func:`fltnb.clustering_gain` with what training gains.

``python -m benchmarks.gain``. The federations of notebook 15 whose true clusters are
known, seed 0; the trainings are the notebook's stored ones.
"""

import argparse

import pandas as pd

import fltnb as fl


def compare() -> pd.DataFrame:
    """Points gained by the true clusters, estimated and trained, for each federation.

    Columns end in a space where their name would come twice.
    """
    found = fl.results("15").where(kind="training", seed=0, method="oracle")
    trained = fl.results("15").where(kind="training", seed=0).runs
    accuracy = trained.pivot_table("accuracy", "federation", "method")
    rows = []
    for run in found.runs.itertuples():
        fed = fl.federations.build(found.record(run.key)["settings"]["federation"])
        estimate = fl.clustering_gain(fed, fed.clusters)
        real = accuracy.loc[run.federation]
        rows.append(
            {
                "federation": run.federation,
                "over one model": estimate.points,
                "±": estimate.error,
                "trained": real["oracle"] - real["fedavg"],
                "over own models": estimate.over_own,
                "± ": estimate.over_own_error,
                "trained ": real["oracle"] - real["local"],
            }
        )
    return pd.DataFrame(rows)


if __name__ == "__main__":
    argparse.ArgumentParser(description="Gains, estimated and trained.").parse_args()
    print(compare().to_markdown(index=False, floatfmt=".1f"))
