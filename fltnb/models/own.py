"""A user's own network, as rows of one matrix: :func:`own` and :class:`OwnModel`.

A row has the trained parameters in the module's order, then the floating-point buffers
of its state dict, such as the running mean and variance of batch normalisations, so
that averages of rows include these too. Three things are not part of a row: frozen
parameters (``requires_grad=False``), which are the same everywhere; integer buffers,
such as the number of batches that a batch normalisation has processed; and buffers that
are not in the state dict. At the start of every client's training they have the values
of the given module.

For ``nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 2))`` a row has 35
numbers: 12 + 3 of the first layer's weight and bias, 3 + 3 of the normalisation's, 6 +
2 of the last layer's, then 3 + 3 of the running mean and variance. The last layer is
columns 21 to 28, in the middle of the row, which is why :attr:`OwnModel.head` has to be
computed.
"""

import copy
import inspect
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
from ..errors import FltnbError, first_line
from ..federations import SPLITS, Federation
from ..owncode import code_of, counts, is_own, printed
from ..randomness import integer, stream
from .base import SLICED, Layer, Model, Tensors

# Seed of a function's first call. Its frozen parameters come from it in all runs,
# as a row does not have them.
MODULE_SEED = 0
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Own:
    """Your own network before it is shaped for data: the result of :func:`own`.

    Attributes
    ----------
    given : nn.Module, or a function that makes one
    head : str or None
        Name of the last layer.

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
        """Return the name for sentences and tables."""
        if isinstance(self.given, nn.Module):
            return type(self.given).__name__
        return getattr(self.given, "__name__", type(self.given).__name__)

    def module(self, shape: Shape, n_outputs: int, seed: int) -> nn.Module:
        """Return a new module on the CPU in float32.

        Parameters
        ----------
        shape : tuple
            Shape of a sample in the module's input.
        n_outputs : int
        seed : int
            Seed with which a function draws its weights.

        Raises
        ------
        FltnbError
            It cannot be made, or its layers do not know their sizes.
        """
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            made = self._made(shape, n_outputs)
        if any(is_lazy(parameter) for parameter in made.parameters()):
            raise FltnbError(
                f"{self.name} has lazy layers, whose sizes are not known yet: pass a "
                "batch through it, and give that module."
            )
        return made.to("cpu", torch.float32)

    def _made(self, shape: Shape, n_outputs: int) -> nn.Module:
        """Return a copy of the module, or the result of the function.

        A copy, because the user's own module must not change in training.
        """
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
        """Call the function with as many arguments as it needs.

        Arguments with a default, ``*args`` and ``**kwargs`` are not needed: of
        ``def network(width=64)`` the width stays 64.
        """
        loose = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        needed = 0
        for one in inspect.signature(self.given).parameters.values():
            has_default = one.default is not one.empty
            if not has_default and one.kind not in loose:
                needed += 1
        if needed == 0:
            return self.given()
        if needed == 2:
            return self.given(shape, n_outputs)
        raise FltnbError(
            f"{self.name} needs {needed} arguments: a function that makes a network "
            "takes none, or two, (input_shape, n_outputs)."
        )


def own(module: nn.Module | Callable[..., nn.Module], head: str | None = None) -> Own:
    """Return your own network for ``fl.run(model=...)``.

    A module or function can be given to ``run`` directly; this adds the name of its
    last layer.

    Parameters
    ----------
    module : nn.Module, or a function that makes one
        All clients start from a module's own weights. (If a method starts from several
        models, the last layers of the further ones are drawn.) A function is called
        with the run's seed set, without arguments, or with ``(input_shape,
        n_outputs)`` if it needs two. The module maps a batch of samples (see
        :class:`OwnModel`) to outputs (b, n_outputs).
    head : str, optional
        Name of the last layer, as in ``module.named_modules()``, by default that of the
        last ``nn.Linear``. Only methods that use features or last layers need it.

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> fed = fl.federations.label_clusters(
    ...     digits, 6, n_clusters=3, classes_per_cluster=3
    ... )
    >>> from torch import nn
    >>> def network(input_shape, n_outputs):
    ...     return nn.Sequential(nn.Flatten(), nn.Linear(64, n_outputs))
    >>> fl.models.shaped(fl.models.own(network), fed).n_parameters
    650
    """
    return Own(module, head)


@dataclass(frozen=True)
class OwnModel(Model):
    """Your own network, shaped for a federation's samples by ``fl.models.shaped``.

    Attributes
    ----------
    input_shape : tuple
        Shape of a sample in the module's input: (D,) for tables, (L,) for tokens
        (int64), (L, D) for sequences, (C, H, W) for images. Samples of floats (N, A, B)
        are first tried as grey images (1, A, B), and as sequences (A, B) if the module
        does not accept those.
    n_classes : int
        Number of outputs.
    own : Own
    module : nn.Module
        In evaluation mode; it has everything that is not part of a row.
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
    # always given, by `of` and `again`; defaults as those before have some
    own: Own = None  # type: ignore[assignment]
    module: nn.Module = None  # type: ignore[assignment]
    tokens: bool = False

    @classmethod
    def of(cls, given: Any, fed: Federation, n_outputs: int) -> "OwnModel":
        """Shape a network by a federation's samples, and try it on two of them.

        Raises
        ------
        FltnbError
            It cannot be made or applied, its outputs have a wrong shape, tokens are
            beyond its vocabulary, or some of its weights have no effect.
        """
        network = network_of(given)
        tokens = fed.layout == "tokens"
        index = _telling(fed)
        x = torch.from_numpy(fed.inputs(index))
        faults = []
        for shape in _shapes(fed):
            made = None
            try:
                made = cls.again(network, shape, n_outputs, tokens)
                out = made.applied(made.module, x)
            except FltnbError:
                raise
            except Exception as error:  # an own network may fail in any way
                faults.append(_cannot(network, shape, error))
                if tokens and made is not None:
                    beyond = _vocabulary(network.name, made.module, fed.images[index])
                    faults.extend(beyond)
                continue
            fault = _fault_of(network.name, out, len(x), n_outputs)
            if not fault:
                made._check_tensors(x)
                return made
            faults.append(fault)
        # If several shapes were tried, the last one is meant.
        raise FltnbError(faults[-1])

    @classmethod
    def again(
        cls, given: Any, shape: Shape, n_outputs: int, tokens: bool
    ) -> "OwnModel":
        """Return a network without trying whether it fits its data.

        Parameters
        ----------
        given
            As for :func:`own`, or what it returns.
        shape : tuple
            Shape of a sample in the module's input.
        n_outputs : int
        tokens : bool
            Whether samples are tokens.

        Raises
        ------
        FltnbError
            It cannot be made.
        """
        network = network_of(given)
        module = network.module(shape, n_outputs, MODULE_SEED)
        return cls(
            name=network.name,
            input_shape=shape,
            n_classes=n_outputs,
            own=network,
            module=module.eval(),
            tokens=tokens,
        )

    def _check_tensors(self, x: torch.Tensor) -> None:
        """Refuse weights that get no gradient, and numbers that are not finite.

        A layer that ``__init__`` makes and ``forward`` forgets would be averaged and
        sent like all others without ever being trained. ``x``: two samples.
        """
        if not self.n_trainable:
            raise FltnbError(
                f"{self.name} has no weights to train: set requires_grad=True on some."
            )
        unused = self._unused(self.module, x)
        if unused:  # a layer may be used in training only
            unused &= self._unused(self.build(), x)
        if unused:
            raise FltnbError(
                f"No forward pass of {self.name} uses its weights "
                f"{', '.join(sorted(unused))}: take them out, or freeze them "
                "(requires_grad=False)."
            )
        values = self.tensors(self.module)
        for (name, _), value in zip(self.shapes, values, strict=True):
            if not value.isfinite().all():
                raise FltnbError(
                    f"{name} of {self.name} holds numbers that are not finite: if it "
                    "is a constant, register it with persistent=False."
                )

    def _unused(self, module: nn.Module, x: torch.Tensor) -> set[str]:
        """Return names of trained weights without a gradient for samples ``x``.

        The random state is restored afterwards, as dropout would use some of it and
        change the draws of the run.
        """
        trained = {}
        for name, one in module.named_parameters():
            if one.requires_grad:
                trained[name] = one
        with torch.random.fork_rng(devices=[]):
            out = self.applied(module, x)
        if not out.requires_grad:
            return set(trained)
        weights = list(trained.values())
        gradients = torch.autograd.grad(out.sum(), weights, allow_unused=True)
        unused: set[str] = set()
        for name, gradient in zip(trained, gradients, strict=True):
            if gradient is None:
                unused.add(name)
        return unused

    @cached_property
    def _trained(self) -> list[str]:
        """Names of the trained parameters, in the order of a row."""
        parameters = self.module.named_parameters()
        return [name for name, one in parameters if one.requires_grad]

    @cached_property
    def _statistics(self) -> list[str]:
        """Return names of the buffers in a row, after the parameters."""
        kept = self.module.state_dict()
        names = []
        for name, one in self.module.named_buffers():
            if one.is_floating_point() and name in kept:
                names.append(name)
        return names

    @property
    def _names(self) -> list[str]:
        """Names of all tensors in a row, in its order."""
        return self._trained + self._statistics

    @property
    def n_statistics(self) -> int:
        """Number of floating-point buffers in a row."""
        return len(self._statistics)

    def tensors(self, module: nn.Module) -> list[torch.Tensor]:
        """Return a module's tensors in the order of a row."""
        named = _named(module)
        return [named[name] for name in self._names]

    @cached_property
    def shapes(self) -> list[tuple[str, Shape]]:
        """Name and shape of every trained parameter, then of the buffers."""
        named = _named(self.module)
        return [(name, tuple(named[name].shape)) for name in self._names]

    @property
    def layer_names(self) -> list[str]:
        """Name of the layer that each tensor belongs to.

        A tensor's name begins with it: "body.0.weight" belongs to "body.0".
        """
        return [name.rpartition(".")[0] for name, _ in self.shapes]

    def applied(
        self, module: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor
    ) -> torch.Tensor:
        """Return a module's outputs (b, n_outputs) for samples of any layout."""
        x = x.reshape(len(x), *self.input_shape)
        if self.tokens:
            x = x.long()
        return _column(module(x))

    def build(self) -> nn.Module:
        """Return a module of its own on the CPU, ready for training."""
        return copy.deepcopy(self.module).train()

    def _drawn(self, seed: int, index: int) -> np.ndarray:
        """Return initial parameters and buffers (P,) float32.

        Those that the module was given with, or that its function draws. Further models
        (``index``) of a given module have another last layer, drawn as torch draws a
        dense one.
        """
        if not isinstance(self.own.given, nn.Module):
            drawn = integer(seed, "init", index)
            module = self.own.module(self.input_shape, self.n_classes, drawn)
            self._check_same(module)
            return self._row(module)

        row = self._row(self.module)
        if index:
            # torch's dense layers are uniform within 1 / sqrt(inputs).
            head = self.head
            size = head.stop - head.start
            draws = stream(seed, "init", index).random(size, dtype=np.float32)
            row[head] = (2 * draws - 1) / np.float32(np.sqrt(self.n_features))
        return row

    def _row(self, module: nn.Module) -> np.ndarray:
        """Return a module's tensors as a row (P,) float32."""
        flat = [one.detach().flatten().float() for one in self.tensors(module)]
        return torch.cat(flat).numpy()

    def _check_same(self, module: nn.Module) -> None:
        """Refuse a function that makes another network each time."""
        made = module.state_dict()
        for name, shape in self.shapes:
            if name not in made or made[name].shape != shape:
                raise FltnbError(
                    f"{self.name} makes networks of different shapes: it must make the "
                    "same one each time, with other weights."
                )

    def _last(self) -> tuple[str, nn.Linear]:
        """Return name and layer of the head, or say why there is none (FltnbError).

        By default it is the last ``nn.Linear`` in the module's order, which need not be
        the last one that ``forward`` applies: its number of outputs is checked, and
        ``head=`` names another one.
        """
        named = dict(self.module.named_modules())
        name = self.own.head
        what = f"its {name!r} is none"
        if name is None:
            what = "it has none"
            for key, one in named.items():
                if isinstance(one, nn.Linear):
                    name = key  # the last one remains
        layer = named.get(name)
        if not isinstance(layer, nn.Linear):
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
        return str(name), layer

    @property
    def head(self) -> slice:
        """Columns of a row that hold the last layer, weight and bias.

        Raises FltnbError if the parameters are not one block of a row, because one of
        them is frozen, or is shared with another layer and stands there.
        """
        name, layer = self._last()
        places = []  # of its parameters, among those of a row
        missing = False
        for part, _ in layer.named_parameters():
            # A module that is one layer has the name "", and no dot before its parts.
            full = f"{name}.{part}".removeprefix(".")
            if full in self._trained:
                places.append(self._trained.index(full))
            else:
                missing = True
        if missing or np.any(np.diff(places) != 1):
            raise FltnbError(
                f"The last layer {name!r} of {self.name} is frozen, shared or "
                "parametrised: methods that use it need weights of its own."
            )
        first = places[0]
        last = places[-1]
        start = sum(self.sizes[:first])
        stop = sum(self.sizes[: last + 1])
        return slice(start, stop)

    @property
    def head_weight(self) -> slice:
        """Columns of a row that hold the last layer's weight, without its bias."""
        head = self.head
        return slice(head.start, head.start + self.n_features * self.n_classes)

    @property
    def n_features(self) -> int:
        """Inputs of the last layer."""
        _, layer = self._last()
        return layer.in_features

    @cached_property
    def _placed(self) -> dict[tuple[torch.device, torch.dtype], nn.Module]:
        """Copies of the module in evaluation mode, by where they are.

        ``functional_call`` replaces all tensors of a row, but the rest of the module,
        such as a constant buffer, must be on the same device and of the same type.
        """
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

        ``params``: as :meth:`fltnb.models.Model.unflatten` gives them.
        """
        named = dict(zip(self._names, params, strict=True))
        module = self._still(params[0])

        def answer(x: torch.Tensor) -> torch.Tensor:
            return functional_call(module, named, (x,))

        # in slices, to limit memory
        outputs = [self.applied(answer, part) for part in x.split(SLICED)]
        return torch.cat(outputs)

    def features(self, params: Tensors, x: torch.Tensor) -> torch.Tensor:
        """Embed a batch: the inputs of the last layer in evaluation, (b, e)."""
        seen: list[torch.Tensor] = []  # by each slice of predict

        def keep(_: nn.Module, given: tuple) -> None:
            seen.append(given[0])

        name, _ = self._last()
        last = self._still(params[0]).get_submodule(name)
        with last.register_forward_pre_hook(keep):
            self.predict(params, x)
        features = torch.cat(seen)
        if features.shape != (len(x), self.n_features):
            raise FltnbError(
                f"The last layer of {self.name} gets inputs {tuple(features.shape)} "
                f"for {len(x)} samples, not one row for each: choose a method that "
                "does not use features."
            )
        return features

    def check(self, fed: Federation, batch_size: int) -> None:
        """Refuse a batch of one where batch normalisation needs two (FltnbError)."""
        sizes = np.asarray(fed.sizes)
        # 21 samples in batches of 10 leave one alone; in batches of 1 all are.
        alone = (sizes % batch_size == 1) | (batch_size == 1)
        lonely = np.flatnonzero(alone)  # these clients
        if not len(lonely):
            return
        one_sample = fed.train[lonely[0]][:1]
        x = torch.from_numpy(fed.inputs(one_sample))
        try:
            with torch.inference_mode(), torch.random.fork_rng(devices=[]):
                self.applied(self.build(), x)
        except ValueError as error:
            raise FltnbError(
                f"Client {lonely[0]} with {sizes[lonely[0]]} training samples has a "
                f"batch of one, on which {self.name} cannot be trained "
                f"({first_line(error)}): choose another batch_size than {batch_size}."
            ) from error

    def settings(self, seed: int) -> dict[str, Any]:
        """Return the settings that determine a run with this network, JSON-able.

        They are its structure as torch prints it, a hash of its own code and plain
        attributes, names and shapes of a row's tensors, and a hash of all initial
        values.
        """
        rest = _named(self.module)
        for name, _ in self.shapes:
            rest.pop(name)
        constants = [one.detach().numpy() for one in rest.values()]
        return {
            "kind": "own",
            "name": self.name,
            "structure": printed(self.module),
            "code": _own_code(self.module),
            "head": self.own.head,
            "input_shape": list(self.input_shape),
            "shapes": [[name, list(shape)] for name, shape in self.shapes],
            "weights": array_digest(self.init(seed), *constants),
        }


def network_of(given: Any) -> Own:
    """Return a given ``model`` in the form of :func:`own`, or refuse it."""
    network = given if isinstance(given, Own) else Own(given)
    if not callable(network.given):
        raise FltnbError(
            "model must be a name of fl.models.NAMES, a torch.nn.Module or a function "
            f"that makes one, not {network.given!r}."
        )
    return network


def _named(module: nn.Module) -> dict[str, torch.Tensor]:
    """Return a module's parameters and buffers by name."""
    named: dict[str, torch.Tensor] = dict(module.named_parameters())
    named.update(module.named_buffers())
    return named


def _shapes(fed: Federation) -> list[Shape]:
    """Return the shapes in which to try a sample, in order.

    Samples of floats (N, A, B) may be grey images or sequences, and nobody has said
    which: networks accept one of the two shapes.
    """
    stored = fed.images.shape[1:]
    if len(stored) == 1 or fed.layout != "pictures":
        return [stored]
    if len(stored) == 2 and fed.images.dtype != np.uint8:
        return [(1, *stored), stored]
    return [tuple(fed.input_shape)]


def _telling(fed: Federation) -> np.ndarray:
    """Return two samples to try a network on, the smallest and largest of tokens.

    Two, as batch normalisation needs more than one. Of tokens, the samples with the
    smallest and the largest number show whether all are within a vocabulary; any
    samples do in other cases.
    """
    if fed.layout != "tokens":
        of_first = fed.train[0]
        return of_first[[0, -1]]
    parts = []
    for split in SPLITS:
        parts.extend(getattr(fed, split))
    used = np.unique(np.concatenate(parts))
    tokens = fed.images[used].reshape(len(used), -1)
    smallest = tokens.min(axis=1).argmin()
    largest = tokens.max(axis=1).argmax()
    return used[[smallest, largest]]


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
    """Say that a network failed on samples of a shape."""
    sizes = ", ".join(str(size) for size in shape)
    return (
        f"{network.name} cannot take a batch of samples of shape {shape} "
        f"({type(error).__name__}: {first_line(error)}): it gets (b, {sizes})."
    )


def _vocabulary(name: str, module: nn.Module, tokens: np.ndarray) -> list[str]:
    """Say that tokens are beyond a vocabulary, if they are: a list of one sentence."""
    sizes = []
    for one in module.modules():
        if isinstance(one, (nn.Embedding, nn.EmbeddingBag)):
            sizes.append(one.num_embeddings)
    smallest = min(sizes, default=0)
    if tokens.min() >= 0 and tokens.max() < smallest:
        return []
    have = ", ".join(str(size) for size in sizes) or "none"
    return [
        f"The tokens run from {tokens.min()} to {tokens.max()}, beyond the vocabulary "
        f"of {name} (its embeddings have {have}): enlarge it, or number the tokens "
        "from 0."
    ]


def _column(out: Any) -> Any:
    """Return outputs (b,) of a single number as (b, 1)."""
    if isinstance(out, torch.Tensor) and out.ndim == 1:
        return out[:, None]
    return out


def _own_code(module: nn.Module) -> str:
    """Return a hash of the code of a module's own classes, and of what they hold.

    Those are values, such as a scale or a constant tensor, and functions, such as an
    activation. They change results but appear neither in the printed structure nor in
    the weights.
    Classes of torch are not hashed: their version is part of a result's provenance.
    """
    parts: list[Any] = []
    for name, one in module.named_modules():
        if not is_own(type(one)):
            continue
        parts += [name, type(one)]
        for attribute, value in sorted(vars(one).items()):
            known = attribute.startswith("_") or attribute == "training"
            if not known and counts(value):
                parts += [attribute, value]
    return code_of(*parts)
