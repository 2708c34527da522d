"""A network of one's own, as rows of one matrix: :func:`own` and :class:`OwnModel`.

A row holds the trained parameters in the module's order, then the floating-point
buffers of its state dict, such as the running mean and variance of batch
normalisations, so that whoever averages rows averages these too. Three things are no
part of a row: frozen parameters (``requires_grad=False``), which are everywhere the
same; integer buffers, such as the number of batches that a batch normalisation has
seen; buffers that are not in the state dict. They start every client's training with
the values that the module was given with.
"""

import copy
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.func import functional_call
from torch.nn.parameter import is_lazy

from ..data import array_digest
from ..errors import FltnbError
from ..federations import SPLITS, Federation
from ..owncode import code_of, is_own, is_plain
from ..randomness import integer, stream
from .base import SLICED, Layer, Model, Tensors

MODULE_SEED = 0  # of a function's first call, whose frozen parameters all runs have
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Own:
    """What :func:`own` returns: a network that has not met its data yet.

    Examples
    --------
    >>> import fltnb as fl
    >>> from torch import nn
    >>> net = fl.models.own(nn.Linear(4, 2))  # an Own
    >>> net.name, net.module((4,), 2, seed=0)
    ('Linear', Linear(in_features=4, out_features=2, bias=True))
    """

    given: nn.Module | Callable[..., nn.Module]
    head: str | None = None

    @property
    def name(self) -> str:
        """For sentences and tables."""
        if isinstance(self.given, nn.Module):
            return type(self.given).__name__
        return getattr(self.given, "__name__", type(self.given).__name__)

    def module(self, shape: Shape, n_outputs: int, seed: int) -> nn.Module:
        """Return a new module on the CPU in float32, drawn under ``seed`` if drawn."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            made = self._made(shape, n_outputs)
        if any(map(is_lazy, made.parameters())):
            raise FltnbError(
                f"{self.name} has lazy layers, whose sizes are not known yet: pass a "
                "batch through it, and give that module."
            )
        return made.to("cpu", torch.float32)

    def _made(self, shape: Shape, n_outputs: int) -> nn.Module:
        if isinstance(self.given, nn.Module):
            return copy.deepcopy(self.given)
        made = self._called(shape, n_outputs)
        if not isinstance(made, nn.Module):
            raise FltnbError(
                f"{self.name} returned {type(made).__name__}: a function that is given "
                "as model must return a torch.nn.Module."
            )
        return made

    def _called(self, shape: Shape, n_outputs: int) -> Any:
        loose = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        needed = 0
        for one in inspect.signature(self.given).parameters.values():
            needed += one.default is one.empty and one.kind not in loose
        if needed == 0:
            return self.given()
        if needed == 2:
            return self.given(shape, n_outputs)
        raise FltnbError(
            f"{self.name} needs {needed} arguments: a function that makes a network "
            "takes none, or two, (input_shape, n_outputs)."
        )


def own(module: nn.Module | Callable[..., nn.Module], head: str | None = None) -> Own:
    """Return a network of one's own for ``fl.run(model=...)``.

    A module or function can be given to ``run`` as it is; this is for the name of its
    last layer.

    Parameters
    ----------
    module : nn.Module, or a function that makes one
        All clients start from a module's own weights. (Methods that start from several
        models draw the last layer of the further ones.) A function is called under the
        run's seed, without arguments, or with ``(input_shape, n_outputs)`` if it needs
        two. The module maps a batch of samples, as :class:`OwnModel` says, to outputs
        (b, n_outputs).
    head : str, optional
        Name of the last layer, as in ``module.named_modules()``, by default that of the
        last ``nn.Linear``. Only methods that look at features or last layers need it.

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> fed = fl.federations.label_clusters(
    ...     digits, 6, n_clusters=3, classes_per_cluster=3
    ... )
    >>> from torch import nn
    >>> def network(n_classes):
    ...     return nn.Sequential(nn.Flatten(), nn.Linear(64, n_classes))
    >>> net = fl.models.own(network)
    """
    return Own(module, head)


@dataclass(frozen=True)
class OwnModel(Model):
    """An own network that fits a federation's samples: :meth:`of` makes it.

    Attributes
    ----------
    input_shape : tuple
        Of a sample as the module gets it: (D,) for tables, (L,) for tokens (int64), (L,
        D) for sequences, (C, H, W) for images. Samples of floats (N, A, B) are first
        offered as grey images (1, A, B), and as sequences (A, B) if the module cannot
        take those.
    n_classes : int
        Outputs.
    own : Own
    module : nn.Module
        In evaluation mode; everything that is no part of a row is taken from here.
    tokens : bool
        Whether samples are tokens.

    Examples
    --------
    >>> import fltnb as fl
    >>> from torch import nn
    >>> digits = fl.load("digits")
    >>> fed = fl.federations.label_clusters(
    ...     digits, 6, n_clusters=3, classes_per_cluster=3
    ... )
    >>> net = fl.models.shaped(nn.Sequential(nn.Flatten(), nn.Linear(64, 10)), fed)
    >>> type(net).__name__, net.n_parameters
    ('OwnModel', 650)
    """

    layers: tuple[Layer, ...] = ()
    own: Own = None
    module: nn.Module = None
    tokens: bool = False

    @classmethod
    def of(cls, given: Any, fed: Federation, n_outputs: int) -> "OwnModel":
        """Shape a network by a federation's samples, and try it on two of them.

        Raises
        ------
        FltnbError
            It cannot be made or applied, its outputs have another shape, tokens are
            beyond its vocabulary, or some of its weights have no influence.
        """
        network = network_of(given)
        tokens = fed.layout == "tokens"
        index = _telling(fed)
        x = torch.from_numpy(fed.inputs(index))
        faults = []
        for shape in _shapes(fed):
            try:
                module = network.module(shape, n_outputs, MODULE_SEED).eval()
                made = cls(network.name, shape, n_outputs, (), network, module, tokens)
                out = made.applied(module, x)
            except FltnbError:
                raise
            except Exception as error:  # an own network may fail in any way
                faults.append(_cannot(network, shape, error))
                if tokens:
                    faults += _vocabulary(network.name, module, fed.images[index])
                continue
            fault = _fault_of(network.name, out, len(x), n_outputs)
            if not fault:
                made._check_tensors(x)
                return made
            faults.append(fault)
        raise FltnbError(faults[-1])

    @classmethod
    def again(
        cls, given: Any, shape: Shape, n_outputs: int, tokens: bool
    ) -> "OwnModel":
        """Return a network whose fit to its data was seen before.

        FltnbError: it cannot be made.
        """
        network = network_of(given)
        module = network.module(shape, n_outputs, MODULE_SEED).eval()
        return cls(network.name, shape, n_outputs, (), network, module, tokens)

    def _check_tensors(self, x: torch.Tensor) -> None:
        """Refuse weights that get no gradient, and numbers that are not finite."""
        if not self.n_trainable:
            raise FltnbError(
                f"{self.name} has no weights to train: set requires_grad on some."
            )
        unused = self._unused(self.module, x)
        if unused:  # a layer may be there for training only
            unused &= self._unused(self.build(), x)
        if unused:
            raise FltnbError(
                f"No forward pass of {self.name} uses its weights "
                f"{', '.join(sorted(unused))}: take them out, or freeze them "
                "(requires_grad=False)."
            )
        values = zip(self.shapes, self.tensors(self.module), strict=True)
        for (name, _), value in values:
            if not value.isfinite().all():
                raise FltnbError(
                    f"{name} of {self.name} holds numbers that are not finite: if it "
                    "is a constant, register it with persistent=False."
                )

    def _unused(self, module: nn.Module, x: torch.Tensor) -> set[str]:
        """Return names of trained weights without a gradient."""
        trained = {
            name: one for name, one in module.named_parameters() if one.requires_grad
        }
        with torch.random.fork_rng(devices=[]):
            out = self.applied(module, x)
        if not out.requires_grad:
            return set(trained)
        gradients = torch.autograd.grad(
            out.sum(), list(trained.values()), allow_unused=True
        )
        found = zip(trained, gradients, strict=True)
        return {name for name, gradient in found if gradient is None}

    @cached_property
    def _trained(self) -> list[str]:
        parameters = self.module.named_parameters()
        return [name for name, one in parameters if one.requires_grad]

    @cached_property
    def _statistics(self) -> list[str]:
        kept = self.module.state_dict()
        buffers = self.module.named_buffers()
        return [
            name for name, one in buffers if one.is_floating_point() and name in kept
        ]

    @property
    def n_statistics(self) -> int:
        """Number of floating-point buffers in a row."""
        return len(self._statistics)

    def tensors(self, module: nn.Module) -> list[torch.Tensor]:
        """Return a module's tensors in the order of a row."""
        named = dict(module.named_parameters()) | dict(module.named_buffers())
        return [named[name] for name in (*self._trained, *self._statistics)]

    @cached_property
    def shapes(self) -> list[tuple[str, Shape]]:
        """Name and shape of every trained parameter, then of the buffers."""
        names = (*self._trained, *self._statistics)
        tensors = self.tensors(self.module)
        return [
            (name, tuple(one.shape)) for name, one in zip(names, tensors, strict=True)
        ]

    @property
    def layer_names(self) -> list[str]:
        """Name of the layer that each tensor belongs to."""
        return [name.rpartition(".")[0] for name, _ in self.shapes]

    def applied(self, module: nn.Module, x: torch.Tensor) -> torch.Tensor:
        """Return a module's outputs (b, n_outputs) for samples of any layout."""
        x = x.reshape(len(x), *self.input_shape)
        out = module(x.long() if self.tokens else x)
        return _column(out)

    def build(self) -> nn.Module:
        """Return a module of its own on the CPU, ready for training."""
        return copy.deepcopy(self.module).train()

    def _drawn(self, seed: int, index: int) -> np.ndarray:
        """Return initial parameters and buffers (P,) float32.

        Those that the module was given with, or that its function draws. Further models
        (``index``) of a given module have another last layer, drawn as torch draws a
        dense one.
        """
        module = self.module
        if not isinstance(self.own.given, nn.Module):
            drawn = integer(seed, "init", index)
            module = self.own.module(self.input_shape, self.n_classes, drawn)
            self._check_same(module)
        tensors = self.tensors(module)
        flat = torch.cat([one.detach().flatten().float() for one in tensors]).numpy()
        if index and isinstance(self.own.given, nn.Module):
            size = self.head.stop - self.head.start
            draws = stream(seed, "init", index).random(size, dtype=np.float32)
            flat[self.head] = (2 * draws - 1) / np.float32(np.sqrt(self.n_features))
        return flat

    def _check_same(self, module: nn.Module) -> None:
        """Refuse a function that makes another network each time."""
        made = {name: one.shape for name, one in module.state_dict().items()}
        if any(made.get(name) != shape for name, shape in self.shapes):
            raise FltnbError(
                f"{self.name} makes networks of different shapes: it must make the "
                "same one each time, with other weights."
            )

    def _last(self) -> tuple[str, nn.Linear]:
        """Return name and layer of the head, or say why there is none."""
        named = dict(self.module.named_modules())
        name = self.own.head
        if name is None:
            dense = [key for key, one in named.items() if isinstance(one, nn.Linear)]
            name = dense[-1] if dense else ""
        layer = named.get(name)
        if not isinstance(layer, nn.Linear):
            what = f"its {name!r} is none" if name else "it has none"
            raise FltnbError(
                f"The last layer of {self.name} must be an nn.Linear, and {what}: name "
                "it with fl.models.own(module, head=...), or choose another method."
            )
        if layer.out_features != self.n_classes:
            raise FltnbError(
                f"The last layer of {self.name} should have {self.n_classes} outputs, "
                f"and {name!r} has {layer.out_features}: name another one with "
                "fl.models.own(module, head=...), or choose another method."
            )
        return name, layer

    @property
    def head(self) -> slice:
        """Columns of a row that hold the last layer."""
        name, layer = self._last()
        wanted = [f"{name}.{part}" for part, _ in layer.named_parameters()]
        wanted = [part.removeprefix(".") for part in wanted]
        places = [self._trained.index(one) for one in wanted if one in self._trained]
        if len(places) < len(wanted) or np.any(np.diff(places) != 1):
            raise FltnbError(
                f"The last layer {name!r} of {self.name} is frozen, shared or "
                "parametrised: methods that look at it need weights of its own."
            )
        start = sum(self.sizes[: places[0]])
        return slice(start, sum(self.sizes[: places[-1] + 1]))

    @property
    def head_weight(self) -> slice:
        """Columns of a row that hold the last layer's weight, without its bias."""
        head = self.head
        return slice(head.start, head.start + self.n_features * self.n_classes)

    @property
    def n_features(self) -> int:
        """Inputs of the last layer."""
        return self._last()[1].in_features

    @cached_property
    def _placed(self) -> dict[tuple[torch.device, torch.dtype], nn.Module]:
        return {}

    def _still(self, like: torch.Tensor) -> nn.Module:
        """Return the module in evaluation mode, with a tensor's device and type."""
        place = (like.device, like.dtype)
        if place not in self._placed:
            self._placed[place] = copy.deepcopy(self.module).to(*place)
        return self._placed[place]

    def predict(
        self, params: Tensors, x: torch.Tensor, kernels: torch.dtype | None = None
    ) -> torch.Tensor:
        """Compute outputs (b, n_outputs) of a batch in evaluation mode.

        ``params``: as :meth:`unflatten` gives them.
        """
        names = (*self._trained, *self._statistics)
        named = dict(zip(names, params, strict=True))
        module = self._still(params[0])

        def answer(x: torch.Tensor) -> torch.Tensor:
            return functional_call(module, named, (x,))

        return torch.cat([self.applied(answer, part) for part in x.split(SLICED)])

    def features(self, params: Tensors, x: torch.Tensor) -> torch.Tensor:
        """Embed a batch: what the last layer sees of it in evaluation, (b, e)."""
        seen: list[torch.Tensor] = []
        last = self._still(params[0]).get_submodule(self._last()[0])
        with last.register_forward_pre_hook(lambda _, given: seen.append(given[0])):
            self.predict(params, x)
        features = torch.cat(seen)
        if features.shape != (len(x), self.n_features):
            raise FltnbError(
                f"The last layer of {self.name} sees {tuple(features.shape)} numbers "
                f"of {len(x)} samples, not one row each: methods that look at features "
                "need that."
            )
        return features

    def check(self, fed: Federation, batch_size: int) -> None:
        """Refuse a batch of one where batch normalisation needs two (FltnbError)."""
        sizes = np.asarray(fed.sizes)
        lonely = np.flatnonzero((sizes % batch_size == 1) | (batch_size == 1))
        if not len(lonely) or not self.n_statistics:
            return
        x = torch.from_numpy(fed.inputs(fed.train[lonely[0]][:1]))
        try:
            with torch.inference_mode(), torch.random.fork_rng(devices=[]):
                self.applied(self.build(), x)
        except ValueError as error:
            raise FltnbError(
                f"Client {lonely[0]} with {sizes[lonely[0]]} training samples has a "
                f"batch of one, on which {self.name} cannot be trained "
                f"({_line(error)}): choose another batch_size than {batch_size}."
            ) from error

    def settings(self, seed: int) -> dict[str, Any]:
        """Return what decides the numbers of a run with this network, JSON-able.

        Its structure as torch prints it, a hash of its own code and plain attributes,
        names and shapes of a row's tensors, and a hash of all initial values.
        """
        rest = dict(self.module.named_parameters()) | dict(self.module.named_buffers())
        for name, _ in self.shapes:
            rest.pop(name)
        constants = [one.detach().numpy() for one in rest.values()]
        return {
            "kind": "own",
            "name": self.name,
            "structure": re.sub(r" at 0x\w+", "", str(self.module)),
            "code": _own_code(self.module),
            "head": self.own.head,
            "input_shape": list(self.input_shape),
            "shapes": [[name, list(shape)] for name, shape in self.shapes],
            "weights": array_digest(self.init(seed), *constants),
        }


def network_of(given: Any) -> Own:
    """Return what was given as ``model`` as :func:`own` does, or refuse it."""
    network = given if isinstance(given, Own) else Own(given)
    if not callable(network.given):
        raise FltnbError(
            "model must be a name of fl.models.NAMES, a torch.nn.Module or a function "
            f"that makes one, not {network.given!r}."
        )
    return network


def _shapes(fed: Federation) -> list[Shape]:
    """Return the shapes in which a network may want a sample."""
    stored = fed.images.shape[1:]
    if len(stored) == 1 or fed.layout != "pictures":
        return [stored]
    if len(stored) == 2 and fed.images.dtype != np.uint8:
        return [(1, *stored), stored]
    return [tuple(fed.input_shape)]


def _telling(fed: Federation) -> np.ndarray:
    """Return two samples to try a network on, the smallest and largest of tokens."""
    if fed.layout != "tokens":
        first = fed.train[0]
        return first[[0, -1]]
    parts = [part for split in SPLITS for part in getattr(fed, split)]
    used = np.unique(np.concatenate(parts))
    flat = fed.images[used].reshape(len(used), -1)
    return used[[flat.min(axis=1).argmin(), flat.max(axis=1).argmax()]]


def _fault_of(name: str, out: Any, n: int, n_outputs: int) -> str:
    """Say what is wrong with the outputs for n samples, if something is."""
    if not isinstance(out, torch.Tensor):
        return f"{name} returns {type(out).__name__}: it must return one tensor."
    if out.shape == (n, n_outputs):
        return ""
    if out.ndim == 2 and len(out) == n:
        return (
            f"{name} has {out.shape[1]} outputs where {n_outputs} are needed: give its "
            f"last layer {n_outputs}."
        )
    return (
        f"{name} maps {n} samples to {tuple(out.shape)} numbers: it must give "
        f"{n_outputs} for each sample, ({n}, {n_outputs})."
    )


def _cannot(network: Own, shape: Shape, error: Exception) -> str:
    return (
        f"{network.name} cannot take a batch of samples of shape {shape} "
        f"({type(error).__name__}: {_line(error)}): it gets (b, "
        f"{', '.join(map(str, shape))})."
    )


def _vocabulary(name: str, module: nn.Module, tokens: np.ndarray) -> list[str]:
    """Say that tokens are beyond a vocabulary, if they are."""
    kinds = (nn.Embedding, nn.EmbeddingBag)
    sizes = [one.num_embeddings for one in module.modules() if isinstance(one, kinds)]
    if tokens.min() >= 0 and tokens.max() < min(sizes, default=0):
        return []
    have = ", ".join(map(str, sizes)) or "none"
    return [
        f"The tokens run from {tokens.min()} to {tokens.max()}, beyond the vocabulary "
        f"of {name} (its embeddings have {have}): enlarge it, or number the tokens "
        "from 0."
    ]


def _line(error: Exception) -> str:
    """Return an error's first line, without its final full stop."""
    return str(error).strip().partition("\n")[0].rstrip(".")


def _column(out: Any) -> Any:
    """Return outputs (b,) of a single number as (b, 1)."""
    if isinstance(out, torch.Tensor) and out.ndim == 1:
        return out[:, None]
    return out


def _own_code(module: nn.Module) -> str:
    """Return a hash of the code of a module's own classes, and of what they hold.

    Those are plain values, such as a scale, and functions, such as an activation.
    """
    parts: list[Any] = []
    for name, one in module.named_modules():
        if not is_own(type(one)):
            continue
        parts += [name, type(one)]
        for attribute, value in sorted(vars(one).items()):
            known = attribute.startswith("_") or attribute == "training"
            if not known and (is_plain(value) or callable(value)):
                parts += [attribute, value]
    return code_of(*parts)
