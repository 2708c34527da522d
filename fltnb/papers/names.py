"""Names for people: the one place that says how methods, data sets, networks and measures are called in tables."""

from __future__ import annotations

import re

PAPERS = {"flt": "FLT", "fesem": "FeSEM", "mthfl": "MT-HFL", "emdcfl": "EMD-CFL"}
"""Paper -> what it is called, in the order of the notebooks."""

VARIANTS = {"as_written": "as written", "as_run": "as run"}

METHODS = {
    # FLT's tables
    "fedavg": "FedAvg",
    "local": "Local",
    "pca_km_hc": "PCA+kM+HC",
    "fedsem": "FedSEM",
    "flt": "FLT",
    "flt_enc1": "FLT Enc1",
    "flt_enc2": "FLT Enc2",
    "flt_given": "FLT, C given",
    "oracle": "Oracle",
    "ifca": "IFCA",
    "cfl": "CFL",
    "fedprox": "FedProx",
    # FLT that clusters again, and FLT on other graphs
    "flt_dynamic": "FLT, dynamic",
    "flt_lambda": "FLT, λ low",
    "flt_lambda_high": "FLT, λ high",
    "flt_tau": "FLT, every τ",
    "flt_nearest": "FLT, nearest",
    "flt_full": "FLT, case I",
    "flt_soft": "FLT, Gaussian weights",
    "flt_soft_linear": "FLT, linear weights",
    "flt_eigen": "FLT on eigen-relevance",
    # clusterings without training
    "fcr_written": "FCR as written",
    "fcr_written_given": "FCR as written, C given",
    "fcr_run": "FCR as run",
    "fcr_run_given": "FCR as run, C given",
    "transport": "Transport signatures",
    "eigen": "Eigen-relevance",
    # MT-HFL
    "mthfl": "MT-HFL",
    "mthfl_random": "MT-HFL, random groups",
    "mthfl_random_own": "MT-HFL, random groups, user's server",
    "mthfl_oracle": "MT-HFL, true tasks",
    "mthfl_separate": "MT-HFL, nothing shared",
    "mthfl_chosen": "MT-HFL, T chosen",
    # FeSEM's tables
    "fesem": "FeSEM",
    "fesem_ma": "FeSEM-MA",
    "nofed": "NoFed",
    "fedsgd": "FedSGD",
    "feddist": "FedDist",
    "feddist_ws": "FedDist+WS",
    "feddane": "FedDANE",
    "fedcluster": "FedCluster",
    "hypocluster": "HypoCluster",
    "robust_tkm": "Robust (TKM)",
    # EMD-CFL's tables
    "emdcfl": "EMD-CFL",
    "emdcfl_auto": "EMD-CFL, ε from the data",
    "pacfl": "PACFL",
    "fedclust": "FedClust",
    "flexcfl": "FlexCFL",
    "cflgp": "CFLGP",
    "fedem": "FedEM",
    "fedsoft": "FedSoft",
    "fedrc": "FedRC",
    "fedce": "FedCE",
    "pfedgraph": "pFedGraph",
    "fedsac": "FedSaC",
}

DATASETS = {
    "digits": "digits",
    "mnist": "MNIST",
    "fashion_mnist": "Fashion-MNIST",
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "cifar10_cifar100": "CIFAR-10 and CIFAR-100",
    "femnist": "FEMNIST",
    "fedceleba": "FedCelebA",
    "emnist_balanced": "EMNIST Balanced",
    "emnist_byclass": "EMNIST ByClass",
    "emnist_bymerge": "EMNIST ByMerge",
    "structured_noniid_femnist": "Structured Non-IID FEMNIST",
    "pseudo_writers": "pseudo-writers",
    "dirichlet": "Dirichlet mixtures",
    "pacs": "PACS",
    "renderings": "digits in four styles",
}

MODELS = {
    "mlp": "MLP",
    "mlp_plain": "plain MLP",
    "mlp32": "MLP of 32 units",
    "cnn": "CNN",
    "cnn_small": "light CNN",
    "lenet": "LeNet",
    "leaf_cnn": "LEAF's CNN",
    "emdcfl_cnn": "two-layer CNN",
    "simple_cnn": "two-layer CNN",
    "resnet18": "ResNet-18",
    "resnet50": "ResNet-50",
    "efficientnet_b3": "EfficientNet-B3",
    "vit_b16": "ViT-B/16",
    "convnext_base": "ConvNeXt Base",
}

MEASURES = {
    "accuracy": "accuracy",
    "accuracy_variance": "variance",
    "avg_accuracy": "average accuracy",
    "worst_accuracy": "worst accuracy",
    "clean_accuracy": "clean accuracy",
    "backdoor_accuracy": "accuracy under the trigger",
    "ari": "ARI",
    "micro": "micro accuracy",
    "micro_f1": "micro F1",
    "macro_f1": "macro F1",
    "pooled_f1": "pooled F1",
    "hours": "hours",
    "num_samples": "samples",
    "num_clients": "clients",
    "num_classes": "classes",
    "embedding_dim": "embedding dimensions",
}

OTHERS = {
    # versions of EMD-CFL's rotated copies
    "rotated_min": "Min (−3°, −1°, 1°, 3°)",
    "rotated_two": "Two (−3°, 3°, 177°, 183°)",
    "rotated_base": "Base (0°)",
    # printed parameters
    "M": "clients",
    "rho": "participation",
    "E": "local epochs",
    "T": "rounds",
    "participants": "clients per round",
    "hypothesis": "last layer",
    "cifar10_vehicles": "CIFAR-10 vehicles",
    "cifar100_vehicles": "CIFAR-100 vehicles",
    "cifar100_rest": "CIFAR-100 without vehicles",
    # what clients that sit a round out contribute
    "last_local": "last local model",
    "last_aggregate": "last aggregate",
}

_NAMES = OTHERS | MEASURES | MODELS | DATASETS | METHODS | VARIANTS | PAPERS
_KNOWN_SIZE = re.compile(r"(flt|fesem|fesem_ma|hypocluster)_c?(\d+)")


def label(name: str) -> str:
    """Return how people call a method, data set, network, measure, variant or paper.

    An unknown id is returned without its underscores, so that a method of one's own needs no entry here.

    Examples
    --------
    >>> label("flt_enc1"), label("flt_c3"), label("fesem_2"), label("rotated_mnist"), label("as_run")
    ('FLT Enc1', 'FLT (C = 3)', 'FeSEM (K = 2)', 'Rotated MNIST', 'as run')
    """
    if name in _NAMES:
        return _NAMES[name]
    if size := _KNOWN_SIZE.fullmatch(name):
        return f"{_NAMES[size[1]]} ({'C' if size[1] == 'flt' else 'K'} = {size[2]})"
    for kind in ("rotated", "backdoor"):
        if name.startswith(f"{kind}_"):
            return f"{kind.capitalize()} {label(name.removeprefix(f'{kind}_'))}"
    if name.endswith(":random"):
        return f"{label(name.removesuffix(':random'))}, random weights"
    return name.replace("_", " ")
