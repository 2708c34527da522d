"""The traffic of FLT's methods, and the sizes of its networks (notebook 06)."""

from typing import Any

import numpy as np
import pandas as pd

from .. import encoders, federations, methods
from ..course import participants
from ..theory.traffic import FORMULAS, PRINTED_SIZES, formula, moved
from .studies import Settings, Study


def network_sizes() -> dict[str, int]:
    """Return the numbers of parameters of the networks of FLT's Tables 11 to 13.

    For FEMNIST's images and 62 classes, as the tables describe them except for three
    slips: the CNN has 64 channels in its second convolution (printed 63) and a second
    pooling, as the ConvAE has, whose last layer has one channel (printed 16).
    """
    from .. import models

    image = (1, 28, 28)
    # the whole autoencoder is sent only if clients tune it
    convae = encoders.EncoderSpec("convae", finetune_epochs=1)
    return {
        "MLP": models.make("mlp", image, 62).n_parameters,
        "CNN": models.make("leaf_cnn", image, 62).n_parameters,
        "ConvAE": encoders.sent_parameters(convae, image),
    }


def networks() -> Study:
    """Compare :func:`network_sizes` with the printed sums.

    Table ``table``: ``network, paper, as written``.
    """
    ours = network_sizes()
    table = pd.DataFrame({"network": list(ours)})
    table["paper"] = table["network"].map(PRINTED_SIZES)
    table["as written"] = table["network"].map(ours)
    return {"tables": {"table": table}}


def traffic(
    federation: Settings, methods: dict[str, Settings], training: Settings, weighed: int
) -> Study:
    """Evaluate Table 6's formulas, and count what some rounds really send.

    Parameters
    ----------
    federation : settings
    methods : dict
        Settings of methods; its keys are not used.
    training : options of :func:`fltnb.run`
    weighed : int
        Rounds that are counted (:func:`fltnb.theory.traffic.moved`). For IFCA with a
        warm-up, half of them are warm-up.

    Returns
    -------
    dict
        Table ``table``: ``method, warmup, formula, source``; by formula for all rounds
        ``once, total``, in scalars; for the weighed rounds ``weighed_formula`` and
        ``weighed_moved``, NaN where Table 6 has no row.
    """
    fed = federations.build(federation)
    rows = [_row(fed, one, training, weighed) for one in methods.values()]
    return {"tables": {"table": pd.DataFrame(rows)}}


def _row(
    fed: federations.Federation, settings: Settings, training: Settings, weighed: int
) -> Settings:
    """Return what one method sends.

    By formula for all rounds. Counting takes the time of a training, so that only
    ``weighed`` rounds are counted, and of methods that Table 6 has.
    """
    family = settings["name"].partition("_enc")[0]
    sizes = _sizes(fed, settings, family, training)
    rounds = training["rounds"]
    warmup = settings.get("warmup", 0)
    again = 0
    if "tau" in settings:
        again = _clusterings(settings, rounds)
    cost = formula(family, T=rounds, warmup=warmup, again=again, **sizes)
    written, source = FORMULAS[family]
    row = {
        "method": settings["name"],
        "warmup": warmup,
        "formula": written,
        "source": source,
        "once": cost.once,
        "total": cost.total,
        "weighed_formula": np.nan,
        "weighed_moved": np.nan,
    }
    if source == "Table 6":
        if warmup:
            warmup = weighed // 2
            settings = settings | {"warmup": warmup}
        short = training | {"rounds": weighed}
        said = formula(family, T=weighed, warmup=warmup, **sizes)
        row["weighed_formula"] = said.total
        row["weighed_moved"] = sum(moved(fed, methods.build(settings), short))
    return row


def _clusterings(settings: Settings, rounds: int) -> int:
    """Return how often tau fires in so many rounds (FLT, Algorithm 3, line 23)."""
    tau = settings["tau"]
    if settings.get("first") == "round tau":
        return rounds // tau
    return 1 + (rounds - 1) // tau  # rounds count from 0, and tau divides 0


def _sizes(
    fed: federations.Federation, settings: Settings, family: str, training: Settings
) -> Settings:
    """Return the symbols of the formulas, but for the rounds.

    Those are of Table 6: M clients, of whom the share rho takes part; C models of
    W_local parameters; k centroids of e numbers and an encoder of W_enc parameters for
    methods that cluster embeddings.
    """
    from .. import models

    made: Any = methods.build(settings)  # what it has depends on the family
    net = models.make(training["model"], fed.input_shape, fed.n_classes)
    M = fed.n_clients
    drawn = participants(M, training["participation"], seed=0, round=1)
    sizes = {
        "M": M,
        "rho": len(drawn) / M,  # 7 of 25 clients for 0.3
        "C": settings.get("n_clusters", 1),
        "W_local": net.n_parameters,
    }
    if hasattr(made, "encoder"):
        sizes["W_enc"] = encoders.sent_parameters(made.encoder, fed.input_shape)
        sizes["k"] = made.clusterer.k
        sizes["e"] = made.encoder.latent
    if family == "pca_km_hc":
        sizes["e"] = made.clusterer.n_components
    return sizes
