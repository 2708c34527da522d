"""Tables and claims of notebook 02, on small results written by hand."""

import numpy as np
import pandas as pd


def tidy_rows(rows, **common):
    base = {"experiment": "x", "model": "mlp", "variant": "as_written", "note": "", "rule": "", "momentum": 0.0}
    base |= {"seed": 0, "split": "test", "metric": "accuracy", "n": np.nan, "key": "k"} | common
    return pd.DataFrame([base | row for row in rows])


def verdicts(claims):
    return dict(zip(claims.table()["sentence"], claims.table()["verdict"], strict=True))


def curve(method, note, values, rounds=(50, 100)):
    rows = [
        {"dataset": "cifar10", "method": method, "variant": "as_written", "note": note, "seed": 0, "split": "test"}
        | {"round": round, "accuracy": value}
        for round, value in zip(rounds, values, strict=True)
    ]
    return pd.DataFrame(rows)


def test_sample_images_of_chosen_clients():
    import matplotlib.pyplot as plt

    import fltnb as fl

    fed = fl.federations.build({"kind": "pseudo_writers", "dataset": "digits", "n_clients": 6, "seed": 0})
    fig, axes = fl.plots.sample_images(fed, per_row=3, clients=[4, 1])
    assert axes.shape == (2, 3)
    assert [row[0].get_ylabel() for row in axes] == ["client 4", "client 1"]
    own = fed.images[fed.train[1]]
    assert any(np.array_equal(axes[1, 0].images[0].get_array(), image) for image in own)
    plt.close(fig)
