"""Tables of FLT's Theorem 1: the bound beside what is measured, in its own setting and on real data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..theory import clustering as t1

if TYPE_CHECKING:
    import pandas as pd

    from ..notebook import Claims
    from ..oneshot import ClusterSpec


def theorem1_table(errors: tuple[float, ...], samples: tuple[int, ...], repeats: int, seed: int = 0) -> pd.DataFrame:
    """Theorem 1 in its own setting: measured error, exact error and three forms of the bound.

    Parameters
    ----------
    errors, samples : tuple
        Errors p of a single sample, samples n per client and label.
    repeats : int
        Draws behind each measured number.
    seed : int

    Returns
    -------
    DataFrame
        ``p, n, measured, exact`` and a column for each of :data:`fltnb.theory.clustering.FORMS`.
    """
    import pandas as pd

    rows = []
    for p in errors:
        mixture = t1.Mixture(error=p)
        for n in samples:
            counts, e = mixture.counts(n), mixture.dimension
            row = {"p": p, "n": n, "measured": t1.measured_error(mixture, n, repeats, seed)}
            row["exact"] = t1.exact_error(counts, e, p)
            rows.append(row | {form: t1.bound(counts, e, p, form) for form in t1.FORMS})
    return pd.DataFrame(rows)


def pipeline_table(p: float, samples: tuple[int, ...], ks: tuple[int, ...], repeats: int, seed: int = 0):
    """K-means and a distance threshold on the same embeddings (:func:`fltnb.theory.clustering.pipeline_errors`).

    Returns
    -------
    DataFrame
        ``k, n, centroids, graph, pairs``; a k above a client's number of samples is left out.
    """
    import pandas as pd

    mixture = t1.Mixture(error=p)
    return pd.DataFrame(
        [
            {"k": k, "n": n, **t1.pipeline_errors(mixture, n, k, repeats, seed)._asdict()}
            for k in ks
            for n in samples
            if k <= n * mixture.labels_per_client
        ]
    )


def real_table(specs: list[ClusterSpec], found: pd.DataFrame) -> pd.DataFrame:
    """FCR on real data as clients hold more samples, beside Theorem 1 for the same embeddings.

    Parameters
    ----------
    specs : list of ClusterSpec
        With the axis ``samples`` (training images per client).
    found : DataFrame
        Their results (:func:`fltnb.oneshot.compute`), in the same order.

    Returns
    -------
    DataFrame
        One row per number of samples, means over seeds: ``ari`` (and its lowest), ``wrong pairs`` (share of client
        pairs that are linked across or not linked inside the true clusters), ``all pairs right`` (share of seeds),
        clusters found, ``p`` (:func:`fltnb.theory.clustering.sample_error`), and the bound in all forms.
    """
    import pandas as pd

    from .. import encoders, methods

    rows = []
    known: dict[int, tuple[float, int]] = {}  # embedding is most of the work: p from the first seed of each size
    for spec, row in zip(specs, found.to_dict("records"), strict=True):
        fed = spec.federation_built()
        if row["samples"] not in known:
            z = encoders.embed_clients(fed, methods.build({"name": "flt", "encoder": spec.encoder}).encoder, n_jobs=1)
            p = t1.sample_error(z, [fed.labels[index] for index in fed.train])
            known[row["samples"]] = (p, z[0].shape[1])
        p, e = known[row["samples"]]
        counts = fed.label_counts("train")
        same = fed.clusters[:, None] == fed.clusters[None]
        inside, across = same.sum() - len(same), (~same).sum()
        wrong = ((1 - row["links_inside"]) * inside + row["links_across"] * across) / (inside + across)
        line = {"samples": row["samples"], "ari": row["ari"], "wrong pairs": wrong, "clusters": row["n_clusters"]}
        rows.append(line | {"p": p, "e": e} | {form: t1.bound(counts, e, p, form) for form in t1.FORMS})
    table = pd.DataFrame(rows)
    groups = table.groupby("samples")
    out = groups.mean().reset_index()
    out.insert(2, "lowest ari", groups["ari"].min().to_numpy())
    out.insert(4, "all pairs right", groups["wrong pairs"].apply(lambda share: float((share == 0).mean())).to_numpy())
    return out.assign(seeds=groups.size().to_numpy())


def theorem1_claims(claims: Claims, table: pd.DataFrame, real: pd.DataFrame) -> None:
    """Check what the paper says about Theorem 1.

    Parameters
    ----------
    claims : Claims
        List to add to.
    table, real : DataFrame
        Of :func:`theorem1_table` and :func:`real_table`.
    """
    held = table["printed, labels held"]
    broken = table[(held < 1) & (table["exact"] > held)]
    evidence = "holds in all settings"
    if len(broken):
        clear = broken[broken["exact"] >= min(0.5, broken["exact"].max())]
        worst = clear.loc[clear["printed, labels held"].idxmin()]
        evidence = f"p = {worst['p']:g}, n = {worst['n']:g}: error {worst['exact']:.2f}"
        evidence += f", bound {worst['printed, labels held']:.0e}"
    sentence = "Theorem 1 as printed bounds the error, with its sum over the labels that a client holds"
    claims.check(sentence, broken.empty, evidence, claim="flt-thm1")
    claims.check(
        "Theorem 1 as printed, with its sum over all labels, says something (is below 1) somewhere",
        bool((table["printed"] < 1).any()),
        f"never below {table['printed'].min():.0f}",
    )
    claims.check(
        "Theorem 1 with n in the place of n² bounds the error in all settings",
        bool((table["exact"] <= table["corrected"]).all()),
        f"{len(table)} settings, below 1 in {(table['corrected'] < 1).sum()}",
        must=True,
    )
    few, many = real.iloc[0], real.iloc[-1]
    right = real["lowest ari"] == 1
    since = real["samples"][~right[::-1].cummin()[::-1]].max()  # the largest number that fails
    claims.check(
        "FCR's clusters become right, and stay so, as clients hold more samples (real data)",
        bool(many["lowest ari"] == 1 and few["lowest ari"] < 1),
        f"mean ARI {few['ari']:.2f} with {few['samples']:g} samples, {many['ari']:.2f} with {many['samples']:g};"
        f" some seed wrong up to {since:g}",
        claim="flt-thm1-samples",
    )
    wrong = real["samples"][real["all pairs right"] < 1].max()
    claims.check(
        "so do the links of all pairs of clients",
        bool(many["all pairs right"] == 1),
        f"pairs wrong: {few['wrong pairs']:.1%} with {few['samples']:g} samples,"
        f" {many['wrong pairs']:.1%} with {many['samples']:g}; some seed wrong up to {wrong:g}",
    )
