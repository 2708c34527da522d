"""How many centroids k FCR needs: scenarios 1, 2 and 4 clustered with many k, and what tells a good k without labels.

FLT (arXiv 2103.15947) writes k = 5; the code of its tables took each client's true number of classes.
"""

from ..analyses.centroids import sweep as sweep
from ..analyses.centroids import transformed as transformed
from ..results import Job
from . import scenario4
from .common import PLANE, Settings, clusterer, encoder, federation, plane

KS = (1, 2, 3, 4, 5)
STARTS = (42, 43)  # of k-means and of UMAP; the first is that of the tables
CHOOSE, TEST = (
    (0, 1, 2),
    (3, 4, 5),
)  # seeds that choose a rule for k, and those that judge it
PUBLISHED = -1  # in place of a seed: the one partition of the printed tables


def jobs(profile: str) -> list[Job]:
    """One study per federation, embedding and partition; the digits of ``demo`` have one of each."""
    if profile == "demo":
        digits = federation("digits", "as_written", 0)
        return [
            _job(
                digits,
                encoder("digits", "enc1", "as_written", profile),
                "Enc1",
                1,
                0,
                ks=(1, 2),
            )
        ]
    found = []
    for scenario, dataset in (
        (1, "mnist"),
        (1, "cifar10"),
        (2, "mnist"),
        (2, "cifar10"),
        (4, "emnist_bymerge"),
    ):
        for seed in (*CHOOSE, *TEST, PUBLISHED) if scenario < 4 else (*CHOOSE, *TEST):
            if scenario == 4:
                fed, enc = (
                    scenario4.federation(dataset, scenario4.FEW[profile], seed),
                    scenario4.encoder(dataset, 0),
                )
            else:
                fed = federation(
                    dataset,
                    "as_run" if seed == PUBLISHED else "as_written",
                    max(seed, 0),
                    scenario - 1,
                )
                enc = encoder(dataset, "enc1", "as_written", profile)
            found.append(_job(fed, plane(dataset), PLANE, scenario, seed))
            if seed in (*CHOOSE, PUBLISHED):  # an encoder's embeddings cost minutes
                found.append(
                    _job(
                        fed,
                        enc,
                        "Enc2, not tuned" if scenario == 4 else "Enc1",
                        scenario,
                        seed,
                    )
                )
            if dataset == "cifar10" and seed in (
                0,
                PUBLISHED,
            ):  # BatchNorm as in the code behind the tables
                found.append(
                    _job(
                        fed,
                        enc | {"batch_norm": "image"},
                        "Enc1, BatchNorm as run",
                        scenario,
                        seed,
                    )
                )
    for scenario in (1, 2):  # as run, but for the tuned encoder
        settings = {
            "federation": federation("mnist", "as_run", 0, scenario - 1),
            "encoder": plane("mnist"),
        }
        settings["clusterer"] = clusterer("mnist", "as_run", 1 + scenario)
        axes = {
            "dataset": "mnist",
            "scenario": scenario,
            "embedding": PLANE,
            "seed": 0,
            "study": "transform",
        }
        found.append(Job.study("centroids.transformed", settings, axes=axes))
    return found


def _job(
    fed: Settings,
    embedding: Settings,
    shown: str,
    scenario: int,
    seed: int,
    ks: tuple[int, ...] = KS,
) -> Job:
    fcr = clusterer(fed["dataset"], "as_written")
    settings = {
        "federation": fed,
        "encoder": embedding,
        "clusterer": fcr,
        "ks": ks,
        "starts": STARTS,
    }
    axes = {
        "dataset": fed["dataset"],
        "scenario": scenario,
        "embedding": shown,
        "seed": seed,
        "study": "k",
    }
    return Job.study("centroids.sweep", settings, axes=axes)
