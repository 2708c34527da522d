"""Federations: samples of an image set, or your own, distributed to clients."""

from .backdoor import backdoor_colours, backdoor_patches
from .base import SPLITS, Federation
from .domains import domains, renderings, rotated, rotated_copies
from .kinds import KINDS, build, canonical, complete, made
from .labels import dirichlet, label_clusters, power_law_sizes, structured
from .over import divided, held_out, seen, shuffled
from .phases import changing, with_events
from .pixels import SCALINGS, to_inputs
from .tasks import (
    CIFAR10_TASKS,
    CIFAR100_VEHICLES,
    DIGITS_TASKS,
    FASHION_TASKS,
    cross_tasks,
    tasks,
)
from .ten import LEVELS, Ground, eleven_more, four_on_digits, graded, ten
from .writers import apply_style, pseudo_writers, writer_styles, writers

from_arrays = Federation.from_arrays

__all__ = [
    "CIFAR10_TASKS",
    "CIFAR100_VEHICLES",
    "DIGITS_TASKS",
    "FASHION_TASKS",
    "KINDS",
    "SCALINGS",
    "SPLITS",
]
__all__ += [
    "Federation",
    "apply_style",
    "build",
    "canonical",
    "complete",
    "from_arrays",
    "made",
]
__all__ += ["power_law_sizes", "to_inputs", "with_events", "writer_styles"]
__all__ += [
    "backdoor_colours",
    "backdoor_patches",
    "changing",
    "cross_tasks",
    "dirichlet",
    "divided",
    "domains",
]
__all__ += [
    "held_out",
    "label_clusters",
    "pseudo_writers",
    "renderings",
    "rotated",
    "rotated_copies",
    "seen",
]
__all__ += ["shuffled", "structured", "tasks", "writers"]
__all__ += ["LEVELS", "Ground", "eleven_more", "four_on_digits", "graded", "ten"]
