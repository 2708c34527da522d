"""Names for people: the one place that says how data sets, networks, measures and methods are called in tables."""

from __future__ import annotations

from ..plots.style import METHODS

PAPERS = {"flt": "FLT", "fesem": "FeSEM", "mthfl": "MT-HFL", "emdcfl": "EMD-CFL"}
"""Paper -> what it is called, in the order of the notebooks."""
VARIANTS = {"as_written": "as written", "as_run": "as run"}

NAMES = {
    # data sets
    **{"mnist": "MNIST", "fashion_mnist": "Fashion-MNIST", "cifar10": "CIFAR-10", "cifar100": "CIFAR-100"},
    **{"cifar10_cifar100": "CIFAR-10 and CIFAR-100", "femnist": "FEMNIST", "fedceleba": "FedCelebA", "pacs": "PACS"},
    **{"emnist_balanced": "EMNIST Balanced", "emnist_byclass": "EMNIST ByClass", "emnist_bymerge": "EMNIST ByMerge"},
    "emnist_balanced_small": "EMNIST Balanced, in part",
    **{"structured_noniid_femnist": "Structured Non-IID FEMNIST", "pseudo_writers": "pseudo-writers"},
    "pacs_features": "PACS, ImageNet features of EfficientNet-Lite0",
    **{"dirichlet": "Dirichlet mixtures", "renderings": "digits in four styles"},
    # networks
    **{"mlp": "MLP", "mlp_plain": "plain MLP", "mlp32": "MLP of 32 units", "cnn": "CNN", "cnn_small": "light CNN"},
    **{"lenet": "LeNet", "leaf_cnn": "LEAF's CNN", "emdcfl_cnn": "two-layer CNN", "simple_cnn": "two-layer CNN"},
    **{"resnet18": "ResNet-18", "resnet50": "ResNet-50", "efficientnet_b3": "EfficientNet-B3"},
    **{"vit_b16": "ViT-B/16", "convnext_base": "ConvNeXt Base"},
    "flt_dynamic": "dynamic FLT",  # a method without a colour: notebook 06 counts what it sends
    # measures
    **{"accuracy_variance": "variance", "avg_accuracy": "average accuracy", "ari": "ARI", "micro": "micro accuracy"},
    **{"backdoor_accuracy": "accuracy under the trigger", "micro_f1": "micro F1", "macro_f1": "macro F1"},
    **{"pooled_f1": "pooled F1", "embedding_dim": "embedding dimensions", "num_samples": "samples"},
    **{"num_clients": "clients", "num_classes": "classes"},
    # printed parameters and their values
    **{"M": "clients", "rho": "participation", "E": "local epochs", "T": "rounds"},
    **{"participants": "clients per round", "hypothesis": "last layer", "cifar100_rest": "CIFAR-100 without vehicles"},
    **{"cifar10_vehicles": "CIFAR-10 vehicles", "cifar100_vehicles": "CIFAR-100 vehicles"},
    **{"rotated_min": "Min (−3°, −1°, 1°, 3°)", "rotated_two": "Two (−3°, 3°, 177°, 183°)"},
    **{"rotated_base": "Base (0°)", "last_local": "last local model"},
}
for _data in ("digits", "mnist", "cifar10"):  # EMD-CFL's versions of the rotated sets
    NAMES |= {
        f"{_data}_{version}": f"{NAMES.get(_data, _data)}, {version.capitalize()}" for version in ("min", "two", "base")
    }
NAMES |= {name: look.label for name, look in METHODS.items()} | VARIANTS | PAPERS


def label(name: str) -> str:
    """Return how people call a method, data set, network, measure, variant or paper.

    Methods have their names beside their colours (:data:`fltnb.plots.METHODS`). An unknown id is returned without its
    underscores, so that a method of one's own needs no entry.

    Examples
    --------
    >>> label("flt_enc1"), label("fesem_2"), label("rotated_mnist"), label("as_run")
    ('FLT Enc1', 'FeSEM (K = 2)', 'Rotated MNIST', 'as run')
    """
    kind, _, rest = name.partition("_")
    if name not in NAMES and kind in ("rotated", "backdoor") and rest:
        return f"{kind.capitalize()} {label(rest)}"
    if name.endswith(":random"):
        return f"{label(name.removesuffix(':random'))}, random weights"
    return NAMES.get(name, name.replace("_", " "))
