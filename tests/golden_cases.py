"""What test_golden.py builds and runs, as settings; words may be renamed here, numbers
may not."""

from fltnb import models

LABELS = {
    "kind": "label_clusters",
    "n_clients": 6,
    "n_clusters": 2,
    "classes_per_cluster": 2,
    "samples_per_client": 30,
}
DIRICHLET = {"kind": "dirichlet", "n_clients": 6, "alpha": 0.5}
STRUCTURED = {"kind": "structured", "n_clients": 20}
ROTATED = {"kind": "rotated", "samples_per_client": 30, "test_per_client": 10}
FEDERATIONS = {
    "label_clusters": LABELS | {"shared_classes": 1, "max_train": 900, "seed": 3},
    "label_clusters as_run": LABELS | {"variant": "as_run"},
    "dirichlet": DIRICHLET,
    "dirichlet clusters": DIRICHLET | {"n_clusters": 2, "seed": 1},
    "structured": STRUCTURED,
    "structured as_run": STRUCTURED | {"test": "as_run", "max_per_class": 60},
    "writers": {"kind": "writers", "dataset": "people", "n_clients": 5},
    "writers drawn": {
        "kind": "writers",
        "dataset": "people",
        "n_clients": 5,
        "seed": 2,
    },
    "pseudo_writers": {"kind": "pseudo_writers", "n_clients": 8, "mean_samples": 30},
    "changing": {
        "kind": "changing",
        "base": LABELS,
        "events": [{"round": 2, "join": 2, "drift": 2}],
        "seed": 1,
    },
    "held_out": {"kind": "held_out", "base": LABELS},
    "divided": {"kind": "divided", "base": DIRICHLET, "train_fraction": 0.7},
    "shuffled": {"kind": "shuffled", "base": DIRICHLET},
    "rotated": ROTATED | {"n_clients": 8},
    "rotated oblique": ROTATED | {"n_clients": 4, "angles": [[0, 15], [180, 200]]},
    "rotated_copies": {
        "kind": "rotated_copies",
        "n_clients": 8,
        "samples_per_client": 30,
    },
    "backdoor_colours": {"kind": "backdoor_colours", "n_clients": 6, "intensity": 0.5},
    "backdoor_colours as_run": {
        "kind": "backdoor_colours",
        "n_clients": 6,
        "variant": "as_run",
    },
    "backdoor_patches": {
        "kind": "backdoor_patches",
        "dataset": "people",
        "n_clients": 6,
        "patch": 2,
    },
    "domains": {"kind": "domains", "dataset": "people", "min_samples": 40},
    "renderings": {"kind": "renderings", "min_samples": 150},
    "tasks": {"kind": "tasks", "tasks": [[0, 1, 2, 3, 4], [5, 6, 7], [8, 9]]}
    | {"users_per_task": [3, 2, 2], "samples_per_user": [40, 30, 20]},
    "cross_tasks": {"kind": "cross_tasks", "other": "digits", "labels": [0, 1]}
    | {"other_labels": [0, 1], "samples_per_user": 40},
    "scaled": LABELS | {"scaling": "mnist"},
}

# clients of unequal size, else weights would not matter
HELD = {
    "kind": "held_out",
    "dataset": "digits",
    "base": STRUCTURED | {"n_clients": 6, "max_per_class": 24},
}
PCA = {"name": "PCAKMeans", "k": 2, "n_components": 8, "threshold": 0.4}
ENCODER = {"kind": "pca", "pretrain": "digits", "latent": 8}
EMD = {"name": "EMDClustering", "max_samples": 16, "tolerance": 0.2}
EIGEN = {"name": "EigenRelevance", "n_clusters": 2}
ALL = {"participation": 1.0}
TRAINING = {
    "model": "mlp32",
    "rounds": 2,
    "participation": 0.67,
    "batch_size": 10,
    "lr": 0.1,
    "backend": "serial",
}
TRAINING |= {"progress": False}
TWO = {"n_clusters": 2}
# settings of a method, and changes of TRAINING; "fed" is another federation
METHODS = {
    **{
        name: ({}, {})
        for name in ("local", "oracle", "feddist", "feddist_ws", "feddane")
    },
    **{name: (TWO, {}) for name in ("ifca", "fedce", "hypocluster")},
    "fedprox": ({"mu": 0.5}, {}),
    "flt": ({"clusterer": EIGEN, "encoder": ENCODER}, {}),
    "flt as_run": (
        {
            "clusterer": PCA,
            "encoder": ENCODER | {"kind": "pixels"},
            "variant": "as_run",
        },
        {},
    ),
    "pca_km_hc": ({"clusterer": PCA}, {}),
    "flt_dynamic": (
        {"clusterer": PCA, "tau": 2},
        {"rounds": 3, "fed": FEDERATIONS["changing"]},
    ),
    "flt_soft": ({"clusterer": PCA}, {}),
    "cfl": ({"eps1": 1e6, "eps2": 0, "warmup": 0}, ALL),
    "mthfl": ({"clusterer": EIGEN}, {}),
    "mthfl oracle": ({"clusterer": "oracle", "shared": 1}, {}),
    "fedcluster": ({"period": 0}, ALL),
    "robust_tkm": (TWO | {"trim": 0.34}, {}),
    "robust_tkm as_run": (TWO | {"variant": "as_run"}, {}),
    "fesem_ma": (
        TWO,
        {"local_epochs": 3, "lr": 1.0},
    ),  # far enough apart that neurons are reordered
    "clove": (TWO, {}),
    "clove as_run": (TWO | {"variant": "as_run"}, {}),
    "clove silhouette": ({}, {}),
    "flhc": (TWO | {"after": 1}, {}),
    "flhc L1": ({"threshold": 45.0, "after": 0, "metric": "L1"}, {}),
    "fedper": ({}, {}),
    "fedrep": ({"head_epochs": 2}, {}),
    "fedrep as_run": ({"head_epochs": 2, "body_epochs": 2, "variant": "as_run"}, {}),
    "ditto": ({"lam": 0.5}, {}),
    "stocfl": ({"tau": 0.3, "anchor_epochs": 2}, {}),
    "fedcollab": (
        {"clusterer": {"name": "FedCollab", "c": 4.0, "rounds": 30, "lr": 0.2}},
        {},
    ),
    "flux": ({"latest": 1}, {}),
    # mean shift would do, but its groups hang on the last bits of the distances here
    "ocfl": ({"min_size": 2}, {"rounds": 6, "local_epochs": 3} | ALL),
    "ocfl as_run": (
        {"clusterer": "affinity", "variant": "as_run"},
        {"rounds": 6, "local_epochs": 3} | ALL,
    ),
    "feddrift": (
        {"delta": 0.02, "merge": 0.2},
        {"rounds": 3, "fed": FEDERATIONS["changing"]},
    ),
    "feddrift as_run": (
        {"first": "one", "variant": "as_run"},
        {"rounds": 3, "fed": FEDERATIONS["changing"]},
    ),
    "flux as_run": ({"latest": 0, "n_clusters": 3, "variant": "as_run"}, {}),
}
BOTH = {name: {} for name in ("fedavg", "pfedgraph", "fedsac", "fedsgd")}
BOTH |= {
    name: TWO
    for name in (
        "fedsem",
        "fesem",
        "fedclust",
        "flexcfl",
        "cflgp",
        "fedem",
        "fedrc",
        "fedsoft",
    )
}
BOTH |= {"pacfl": {"clusterer": {"name": "PACFL"} | TWO}, "emdcfl": {"clusterer": EMD}}
METHODS |= {name: (settings, {}) for name, settings in BOTH.items()}
METHODS |= {
    f"{name} as_run": (settings | {"variant": "as_run"}, {})
    for name, settings in BOTH.items()
}
METHODS["cflgp"] = (
    TWO,
    {"rounds": 3},
)  # in the third the models differ, and one of them is the criterion
CORE = {  # FedAvg with changes of TRAINING
    "steps": {
        "momentum": 0.9,
        "weight_decay": 1e-3,
        "proximal": 0.1,
        "local_epochs": 2,
        "lr": 0.02,
    },
    "float64": {"dtype": "float64"},
    "stacked": {"backend": "stacked"},
    "probe": {
        "fed": FEDERATIONS["backdoor_colours"]
        | {"samples_per_client": 30, "test_per_client": 20}
    },
    **{name: {"model": name} for name in models.NAMES if name != TRAINING["model"]},
}
CLUSTERERS = {
    "FCR": {},
    "FCR given": {"n_clusters": 3, "distance": "matching"},
    "PCAKMeans": {"k": 2, "n_components": 3, "threshold": 0.02},
    "PCAKMeans given": {"k": 2, "n_components": 3, "threshold": 0.1, "n_clusters": 3},
    "EMDClustering": {"tolerance": 0.2},
    "EMDClustering auto": {"tolerance": "auto", "max_samples": 20},
    "EMDClustering sinkhorn": {
        "tolerance": 0.2,
        "distance": "sinkhorn",
        "projection": None,
    },
    "EMDClustering sliced": {
        "tolerance": 0.2,
        "distance": "sliced",
        "n_directions": 32,
    },
    "EigenRelevance": {"n_eigenvectors": 3},
    "EigenRelevance given": {"n_eigenvectors": 3, "n_clusters": 3},
    "EigenRelevance private": {
        "n_eigenvectors": 3,
        "n_clusters": 3,
        "epsilon": 5.0,
        "clip": 30.0,
    },
    "FedCollab": {"c": 3.0, "rounds": 200, "hidden": 20},
    "MeanImage": {},
    "MergeGain": {"n_features": 8},
    "MergeGain private": {
        "n_features": 8,
        "n_clusters": 3,
        "epsilon": 200.0,
        "clip": 30.0,
    },
    "PACFL": {"threshold": 20},
    "PACFL given": {"n_clusters": 3, "n_vectors": 1},
    "TransportSignatures": {"k": 3},
    "TransportSignatures given": {"k": 3, "n_clusters": 3},
    "TransportSignatures private": {
        "k": 3,
        "n_clusters": 3,
        "epsilon": 5.0,
        "clip": 30.0,
    },
    "noise FCR": {"n_clusters": 3},
    "noise EMDClustering": {"tolerance": 0.5},
    "noise EigenRelevance": {"n_clusters": 3},
    "noise MergeGain": {"n_features": 8, "n_clusters": 3},
    "noise PACFL": {"n_clusters": 3},
    "noise TransportSignatures": {"k": 3},
}
ENCODERS = {
    "pixels": {"kind": "pixels"},
    "pca": ENCODER,
    "convae": ENCODER
    | {"kind": "convae", "epochs": 1, "finetune_epochs": 1, "batch_size": 256},
    "residual": ENCODER | {"kind": "residual", "epochs": 0},
    "own": {},
}
