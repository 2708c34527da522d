import hashlib

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from toys import logits_of, refused

from fltnb import models, training
from fltnb.federations import Federation
from fltnb.models.base import threads
from fltnb.training import TrainSpec, contract, evaluation, make_engine, stacks, steps
from fltnb.training.samples import Samples

RAGGED = (23, 10, 31, 7, 40, 1, 20, 12, 3, 28, 9, 17, 30, 5, 11, 21, 2, 33, 14, 26)


def make_fed(sizes=RAGGED, shape=(8, 8), n_classes=4, seed=0, **options):
    """Ragged clients; odd ones share a test set, client 0 has no validation samples."""
    rng = np.random.default_rng(seed)
    n = sum(sizes)
    images = rng.integers(0, 256, (n + 60, *shape), dtype=np.uint8)
    train = np.split(np.arange(n), np.cumsum(sizes)[:-1])
    shared = np.arange(n, n + 40)
    test = [
        shared if i % 2 else np.arange(n + i % 7, n + 25) for i in range(len(sizes))
    ]
    val = [np.arange(n, n + 3 * i) for i in range(len(sizes))]
    options = (
        {"mean": 0.3, "std": 0.7}
        | options
        | {"labels": rng.integers(0, n_classes, len(images))}
    )
    return Federation(
        images=images, train=train, val=val, test=test, n_classes=n_classes, **options
    )


def pair(name, *args, **options):
    fed = make_fed(*args, **options)
    return fed, models.make(name, fed.input_shape, 4)


def start(model, k=2, dtype="float64"):
    return np.stack([model.init(0, index) for index in range(k)]).astype(dtype)


def train(fed, model, spec, backend, rows, clients, round=7, weights=None, **options):
    with make_engine(fed, model, spec, backend, **options) as engine:
        return engine.train(
            start(model, dtype=spec.dtype), rows, clients, round, weights
        )


every_backend = pytest.mark.parametrize("backend", ["serial", "pool", "stacked"])
FLAVOURS = {
    **{
        "plain": {},
        "momentum": {"momentum": 0.5},
        "decay": {"weight_decay": 0.05},
        "proximal": {"proximal": 0.2},
    },
    "everything": {"momentum": 0.9, "weight_decay": 0.01, "proximal": 0.1},
}


@pytest.mark.parametrize(
    "clients", [[4], [4, 0, 8, 4], list(range(20))], ids=["1", "4", "20"]
)
@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("name", ["mlp", "mlp_plain"])
def test_back_ends_agree_on_mlps(name, flavour, clients):
    fed, model = pair(name)
    check_agreement(
        fed,
        model,
        FLAVOURS[flavour],
        clients,
        weighted=flavour in ("plain", "everything"),
    )


@pytest.mark.parametrize("flavour", ["plain", "everything"])
@pytest.mark.parametrize(
    ("name", "shape"),
    [
        *(
            ("lenet", (8, 8, 3)),
            ("mnist_cnn", (8, 8)),
            ("leaf_cnn", (11, 8)),
            ("lenet", (28, 30, 3)),
        ),
        *(("emdcfl_cnn", (7, 10)), ("cnn_small", (8, 8, 3)), ("cnn_small", (28, 29))),
    ],
)
def test_back_ends_agree_on_cnns(name, shape, flavour):
    fed, model = pair(name, RAGGED[:5], shape)
    check_agreement(
        fed, model, FLAVOURS[flavour], [3, 0, 2, 4, 1], weighted=flavour == "everything"
    )


@pytest.mark.parametrize(
    ("name", "shape"),
    [("mnist_cnn", (8, 8)), ("lenet", (8, 8, 3)), ("emdcfl_cnn", (7, 10))],
)
def test_stacked_clients_convolve_alike_together_and_apart(name, shape, monkeypatch):
    fed, model = pair(name, RAGGED[:5], shape)
    spec = TrainSpec(
        local_epochs=2,
        batch_size=10,
        lr=0.05,
        dtype="float64",
        **FLAVOURS["everything"],
    )
    together = train(fed, model, spec, "stacked", [0, 1, 0, 1, 1], [3, 0, 2, 4, 1])
    monkeypatch.setattr(stacks, "APART", 0)
    apart = train(fed, model, spec, "stacked", [0, 1, 0, 1, 1], [3, 0, 2, 4, 1])
    assert np.abs(apart.theta - together.theta).max() < 1e-12


@pytest.mark.parametrize("name", ["mlp_plain", "cnn_small"])
def test_back_ends_agree_where_every_channel_has_its_own_scaling(name):
    fed = make_fed(RAGGED[:5], (8, 8, 3), mean=(0.2, 0.4, 0.6), std=(0.3, 1.0, 0.5))
    check_agreement(
        fed, models.make(name, fed.input_shape, 4), {}, [3, 0, 2, 4, 1], weighted=False
    )


def check_agreement(fed, model, options, clients, weighted):
    spec = TrainSpec(
        local_epochs=2, batch_size=10, lr=0.05, seed=3, dtype="float64", **options
    )
    rows = [j % 2 for j in range(len(clients))]
    rng = np.random.default_rng(1)
    weights = [rng.random(len(fed.train[i])) for i in clients] if weighted else None
    oracle = train(fed, model, spec, "serial", rows, clients, weights=weights)
    assert (
        np.abs(oracle.theta - start(model)[rows]).max(axis=1).min() > 1e-3
    )  # all of them moved
    for backend in ("pool", "stacked"):
        trained = train(fed, model, spec, backend, rows, clients, weights=weights)
        assert np.abs(trained.theta - oracle.theta).max() < 1e-10
        assert np.abs(trained.loss - oracle.loss).max() < 1e-10


@settings(max_examples=12, deadline=None)
@given(
    *(
        st.lists(st.integers(1, 25), min_size=1, max_size=6),
        st.integers(1, 12),
        st.integers(1, 3),
    ),
    *(st.sampled_from(list(FLAVOURS)), st.booleans()),
)
def test_lean_and_stacked_steps_agree_with_autograd_whatever_the_sizes(
    sizes, batch, epochs, flavour, dropout
):
    fed, model = pair("mlp" if dropout else "mlp_plain", sizes, (2, 2))
    spec = TrainSpec(
        local_epochs=epochs,
        batch_size=batch,
        lr=0.1,
        dtype="float64",
        **FLAVOURS[flavour],
    )
    clients = range(len(sizes))
    oracle, stack = (
        train(fed, model, spec, how, [0] * len(sizes), clients)
        for how in ("serial", "stacked")
    )
    assert np.abs(stack.theta - oracle.theta).max() < 1e-10
    lean = steps.LeanTrainer(model, spec, Samples.of(fed))
    out = np.empty_like(oracle.theta)
    with threads(1):
        loss = [lean.train(start(model)[0], i, 7, None, out[i]) for i in clients]
    assert np.abs(out - oracle.theta).max() < 1e-10
    np.testing.assert_allclose(loss, oracle.loss, rtol=1e-10)


def test_one_step_worked_out_in_numpy():
    fed, model = pair("mlp_plain", [2], (2, 2))
    spec = TrainSpec(batch_size=2, lr=0.3, dtype="float64")
    w1, b1, w2, b2 = (part.numpy() for part in model.unflatten(start(model)[0]))
    x, y = fed.client(0, "train")
    x = x.reshape(2, 4).astype(float)
    z = x @ w1.T + b1
    h = np.maximum(z, 0)
    logits = h @ w2.T + b2
    p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    d = (p - np.eye(4)[y]) / 2
    dz = d @ w2 * (z > 0)
    stepped = [
        w1 - 0.3 * dz.T @ x,
        b1 - 0.3 * dz.sum(0),
        w2 - 0.3 * d.T @ h,
        b2 - 0.3 * d.sum(0),
    ]
    expected = np.concatenate([part.ravel() for part in stepped])
    for backend in ("serial", "pool", "stacked"):
        trained = train(fed, model, spec, backend, [0], [0])
        np.testing.assert_allclose(trained.theta[0], expected, rtol=0, atol=1e-14)
        np.testing.assert_allclose(
            trained.loss, -np.log(p[[0, 1], y]).mean(), rtol=1e-12
        )


def test_slabs_and_chunks_do_not_change_the_result(monkeypatch):
    fed, model = pair("mlp")
    spec = TrainSpec(local_epochs=2, batch_size=6, dtype="float64")
    out = np.empty((2, model.n_parameters))
    losses = []
    for place, slab in enumerate((1000, 7)):
        monkeypatch.setattr(steps, "SLAB", slab)
        losses.append(
            steps.LeanTrainer(model, spec, Samples.of(fed)).train(
                start(model)[0], 4, 1, None, out[place]
            )
        )
    assert np.array_equal(out[0], out[1])
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-12)
    whole = train(fed, model, spec, "stacked", [0] * 20, range(20))

    def at_a_time():
        engine = make_engine(fed, model, spec, "stacked")
        return engine.stacks.training(contract.USUAL).most

    most = at_a_time()
    assert most > 20
    monkeypatch.setattr(stacks, "CPU_BYTES", 3.5 * stacks.CPU_BYTES / most)
    assert at_a_time() == 3
    assert (
        np.abs(
            whole.theta - train(fed, model, spec, "stacked", [0] * 20, range(20)).theta
        ).max()
        < 1e-12
    )


@pytest.mark.parametrize("name", ["mlp", "mnist_cnn"])
@pytest.mark.parametrize("backend", ["serial", "pool"])
def test_grouping_does_not_change_a_bit(backend, name):
    fed, model = pair(name)
    theta, runs = start(model, dtype="float32"), []
    with make_engine(fed, model, TrainSpec(momentum=0.5), backend) as engine:
        for n in (1, 4, 20):
            parts = [
                engine.train(theta, [0] * n, range(begin, begin + n), 2)
                for begin in range(0, 20, n)
            ]
            runs.append(np.concatenate([part.theta for part in parts]))
    assert np.array_equal(runs[0], runs[1]) and np.array_equal(runs[0], runs[2])


@pytest.mark.parametrize("name", ["mlp", "lenet"])
def test_the_number_of_workers_does_not_change_a_bit(name):
    fed, model = pair(name)
    results = []
    for n_workers in (1, 2, 3):
        with make_engine(
            fed, model, TrainSpec(), "pool", n_workers=n_workers
        ) as engine:
            assert engine.n_workers == n_workers
            trained = engine.train(
                start(model, dtype="float32"), [j % 2 for j in range(20)], range(20), 2
            )
            tested = engine.evaluate(trained.theta, range(20), range(20))
            results.append((trained.theta, trained.loss, tested.correct, tested.loss))
    for other in results[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(results[0], other, strict=True))


def test_back_ends_agree_in_float32():
    # A unit whose input is within rounding of zero may switch: a few weights differ by
    # more, so count them.
    fed, model = pair("mlp", RAGGED, (28, 28))
    oracle = train(fed, model, TrainSpec(), "serial", [0] * 20, range(20)).theta
    for backend in ("pool", "stacked"):
        theta = train(fed, model, TrainSpec(), backend, [0] * 20, range(20)).theta
        assert theta.dtype == np.float32
        assert np.mean(np.abs(theta - oracle) > 1e-6) < 0.01


def test_drawn_orders_and_masks():
    spec = TrainSpec(seed=5)
    model = models.make("mnist_cnn", (1, 8, 8), 3)
    digest = hashlib.sha256()
    for client in range(3):
        for epoch in range(2):
            order = contract.order(spec, 4, client, epoch, 30)
            assert sorted(order) == list(range(30))
            digest.update(order.astype("<i8").tobytes())
            masks = contract.keep_masks(spec, model, 4, client, epoch, 30)
            for mask, (shape, _) in zip(masks, model.dropout, strict=True):
                assert mask.shape == (30, *shape) and mask.dtype == bool
                digest.update(mask.tobytes())
    assert (
        digest.hexdigest()
        == "3cf8036139e08508a5ced6062092522816dac00cd5e9b24066a1898f95611928"
    )
    model = models.Model(
        "wide",
        (1, 1, 9),
        2,
        (models.Flatten(), models.Dense(9, 500), models.Dropout(0.2)),
    )
    (mask,) = contract.keep_masks(TrainSpec(), model, 0, 0, 0, 400)
    assert abs(mask.mean() - 0.8) < 0.005
    fed, model = pair("mlp", (30, 30))
    spec = TrainSpec(dtype="float64")
    with make_engine(fed, model, spec, "pool") as engine:
        first = engine.train(start(model), [0], [0], 1).theta
        assert np.array_equal(first, engine.train(start(model), [0], [0], 1).theta)
        assert not np.array_equal(first, engine.train(start(model), [0], [0], 2).theta)
    assert (
        len(
            {
                tuple(contract.order(spec, r, i, e, 30))
                for r in (1, 2)
                for i in (0, 1)
                for e in (0, 1)
            }
        )
        == 8
    )


@every_backend
@pytest.mark.parametrize("name", ["mlp", "leaf_cnn"])
def test_models_given_are_not_trained_in_place(backend, name):
    # One model, one client: where stacking is done by expand(), no copy is made and the
    # global model would change.
    fed, model = pair(name, RAGGED[:2])
    theta = start(model, k=1, dtype="float32")
    theta.flags.writeable = False
    before = theta.copy()
    with make_engine(fed, model, TrainSpec(lr=0.5), backend) as engine:
        trained = engine.train(theta, [0], [0], 0)
        held = trained.theta.copy()
        engine.evaluate(theta, [0], [0])
        again = engine.train(theta, [0], [0], 0)
        engine.train(theta, [0], [1], 0)
    assert np.array_equal(theta, before) and not np.array_equal(
        trained.theta[0], theta[0]
    )
    assert np.array_equal(
        trained.theta, held
    )  # nor is a result overwritten by the next call
    assert np.array_equal(again.theta, held)


@every_backend
def test_diverged_clients_touch_no_others_and_step_size_zero_changes_nothing(backend):
    for name, side in (("mlp", 8), ("mnist_cnn", 8), ("emdcfl_cnn", 8), ("lenet", 28)):
        fed, model = pair(name, RAGGED[:4], (side, side))
        theta = start(model)
        theta[1, 3] = np.nan
        spec = TrainSpec(local_epochs=2, dtype="float64")
        with make_engine(fed, model, spec, backend) as engine:
            mixed = engine.train(theta, [0, 1, 0, 1], range(4), 0)
            clean = engine.train(theta, [0, 0], [0, 2], 0)
            tested = engine.evaluate(theta, [0, 1], [1, 1])
        assert (
            np.isnan(mixed.loss[[1, 3]]).all() and np.isfinite(mixed.loss[[0, 2]]).all()
        )
        assert np.isfinite(mixed.theta[[0, 2]]).all()
        assert np.abs(mixed.theta[[0, 2]] - clean.theta).max() < 1e-12
        assert np.isfinite(tested.loss[0]) and np.isnan(tested.loss[1])
    for name in ("mlp_plain", "lenet"):
        model = models.make(name, fed.input_shape, 4)
        spec = TrainSpec(
            lr=0, momentum=0.5, weight_decay=0.1, proximal=0.1, dtype="float64"
        )
        with make_engine(fed, model, spec, backend) as engine:
            trained = engine.train(start(model), [1, 0, 1, 0], range(4), 0)
            tested = engine.evaluate(start(model), [1, 0, 1, 0], range(4), "train")
        assert np.array_equal(trained.theta, start(model)[[1, 0, 1, 0]])
        np.testing.assert_allclose(trained.loss, tested.loss, rtol=1e-10)


@every_backend
def test_sample_weights_scale_the_gradient(backend):
    fed, model = pair("mlp", RAGGED[:3])

    def trained(backend, lr, weights=None):
        return train(
            fed,
            model,
            TrainSpec(lr=lr, dtype="float64"),
            backend,
            [0] * 3,
            range(3),
            weights=weights,
        )

    weighted = trained(backend, 0.02, [np.full(len(part), 2.0) for part in fed.train])
    faster = trained(backend, 0.04)
    assert np.abs(weighted.theta - faster.theta).max() < 1e-12
    np.testing.assert_allclose(weighted.loss, 2 * faster.loss, rtol=1e-12)
    still = trained(backend, 0.02, [np.zeros(len(part)) for part in fed.train])
    assert np.array_equal(still.theta, start(model)[[0] * 3]) and not still.loss.any()
    # a weight belongs to a sample, wherever the order puts it: weight only the samples
    # of one class
    chosen = [(fed.labels[part] == 1).astype(float) for part in fed.train]
    one, oracle = (trained(name, 0.02, chosen) for name in (backend, "serial"))
    assert np.abs(one.theta - oracle.theta).max() < 1e-10


@every_backend
def test_evaluation_against_a_plain_count(backend, monkeypatch):
    monkeypatch.setattr(evaluation, "SLICE", 16)  # several slices, the last one short
    fed, model = pair("mlp", RAGGED[:6])
    theta = start(model, k=3)
    rows, clients = [2, 0, 1, 2, 2, 0], [1, 3, 2, 3, 0, 1]
    with make_engine(fed, model, TrainSpec(dtype="float64"), backend) as engine:
        for split in ("test", "train", "val"):
            result = engine.evaluate(theta, rows, clients, split)
            for j, (row, client) in enumerate(zip(rows, clients, strict=True)):
                index = getattr(fed, split)[client]
                assert result.total[j] == len(index)
                if not len(index):
                    assert result.correct[j] == 0 and np.isnan(result.loss[j])
                    continue
                logits = logits_of(
                    model,
                    theta[row],
                    torch.from_numpy(fed.inputs(index).astype(np.float64)),
                )
                shifted = np.exp(logits - logits.max(1, keepdims=True))
                p = shifted / shifted.sum(1, keepdims=True)
                y = fed.labels[index]
                assert result.correct[j] == (logits.argmax(1) == y).sum()
                np.testing.assert_allclose(
                    result.loss[j], -np.log(p[np.arange(len(y)), y]).mean(), rtol=1e-10
                )
        assert result.correct.dtype == result.total.dtype == np.int64


def test_pairs_that_agree_are_computed_once():
    shared = np.arange(2500)
    parts = [
        shared,
        np.arange(10),
        shared,
        shared.copy(),
        np.arange(0),
    ]  # the copy: equal content, another object
    assert evaluation.same_sets(parts) == [0, 1, 0, 0, 4]
    plan = evaluation.Plan([0, 0, 0, 1, 0, 0], [0, 2, 3, 0, 1, 4], parts)
    assert sorted(plan.tasks) == [
        *((0, 0, 0, 1000), (0, 0, 1000, 2000), (0, 0, 2000, 2500), (0, 1, 0, 10)),
        *((1, 0, 0, 1000), (1, 0, 1000, 2000), (1, 0, 2000, 2500)),
    ]
    result = plan.gather([(task.row + 1, 10.0) for task in plan.tasks])
    assert result.correct.tolist() == [3, 3, 3, 6, 1, 0]
    assert result.total.tolist() == [2500, 2500, 2500, 2500, 10, 0]
    np.testing.assert_allclose(result.loss, [0.012, 0.012, 0.012, 0.012, 1.0, np.nan])


@pytest.mark.parametrize("backend", ["serial", "pool"])
def test_evaluation_does_not_depend_on_grouping(backend):
    fed, model = pair("mlp")
    theta = start(model, k=20, dtype="float32")
    with make_engine(fed, model, TrainSpec(), backend) as engine:
        together = engine.evaluate(theta, range(20), range(20), "train")
        alone = [engine.evaluate(theta, [i], [i], "train") for i in range(20)]
        assert len(engine.evaluate(theta, [], []).total) == 0
    assert np.array_equal(together.loss, np.concatenate([one.loss for one in alone]))
    assert np.array_equal(
        together.correct, np.concatenate([one.correct for one in alone])
    )


@pytest.mark.parametrize("shape", [(4, 4), (4, 4, 3)])
@pytest.mark.parametrize(
    ("mean", "std"),
    [(0.0, 1.0), (0.5, 0.5), (0.1307, 0.3081), ((0.2, 0.4, 0.6), (0.3, 1, 0.5))],
)
def test_inputs_are_those_of_the_federation_to_the_bit(shape, mean, std):
    fed, model = pair(
        "mlp",
        (40, 40),
        (4, 4, 3) if isinstance(mean, tuple) else shape,
        mean=mean,
        std=std,
    )
    index = np.arange(len(fed.images))[::-3].copy()
    assert np.unique(fed.images[index]).size > 200
    wanted = fed.inputs(index)
    for dtype in (torch.float32, torch.float64):
        assert np.array_equal(Samples.of(fed).inputs(index, dtype).numpy(), wanted)
    engine = make_engine(fed, model, TrainSpec(), "stacked")
    assert np.array_equal(
        engine.stacks.pool.take(torch.from_numpy(index)).numpy(), wanted
    )


def test_vectors_are_learnt():
    x = np.random.default_rng(0).normal(size=(500, 5)).astype(np.float32)
    parts = [np.arange(140), np.arange(140, 285)]
    test = np.arange(285, 500)
    fed = Federation(
        images=x,
        labels=(x[:, 0] > 0).astype(int),
        train=parts,
        test=[test, test],
        n_classes=2,
    )
    model = models.make("mlp_plain", fed.input_shape, 2)
    check_agreement(fed, model, {}, [0, 1], weighted=False)
    with make_engine(fed, model, TrainSpec(local_epochs=10, lr=0.2)) as engine:
        trained = engine.train(start(model, dtype="float32"), [0, 0], [0, 1], 0)
        tested = engine.evaluate(trained.theta, [0, 1], [0, 1])
    assert (tested.correct / tested.total > 0.9).all()


@pytest.mark.parametrize(
    ("name", "values", "kind"),
    [
        ("batch_size", [0, 2.5], "a whole number of at least 1"),
        ("local_epochs", [0], "a whole number of at least 1"),
        ("seed", [-1], "a whole number of at least 0"),
        ("lr", [-0.1, float("nan"), "0.1"], "a number of at least 0"),
        ("momentum", [1.0, -0.1], "a number of at least 0 and below 1"),
        ("weight_decay", [-1], "a number of at least 0"),
        ("proximal", [-1], "a number of at least 0"),
    ],
)
def test_bad_settings_are_refused(name, values, kind):
    for value in values:
        refused(f"^{name} must be {kind}, not {value!r}", TrainSpec, **{name: value})
    refused("Unknown dtype 'float16'", TrainSpec, dtype="float16")


def test_engines_without_a_gpu_and_bad_ones(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    fed, model = pair("mlp", RAGGED[:3])
    for backend in training.BACKENDS:
        refused(
            "no usable GPU",
            make_engine,
            fed,
            model,
            TrainSpec(),
            backend,
            device="cuda",
        )
        with make_engine(fed, model, TrainSpec(), backend) as engine:
            assert engine.backend == {"auto": "pool"}.get(backend, backend)
    refused("Unknown backend 'ray'", make_engine, fed, model, TrainSpec(), "ray")
    refused("'tpu' is no device", make_engine, fed, model, TrainSpec(), device="tpu")
    refused(
        "n_workers must be a whole number of at least 1, not 0",
        make_engine,
        fed,
        model,
        TrainSpec(),
        n_workers=0,
    )
    few, large = models.make("mlp", (1, 8, 8), 3), models.make("mlp", (1, 28, 28), 4)
    refused(
        "labels run from 0 to 3, but model 'mlp' has 3 outputs",
        make_engine,
        fed,
        few,
        TrainSpec(),
    )
    refused(
        r"\(1, 28, 28\), but the federation's are \(1, 8, 8\)",
        make_engine,
        fed,
        large,
        TrainSpec(),
    )


@every_backend
def test_bad_calls_are_refused(backend):
    fed, model = pair("mlp", RAGGED[:3])
    theta = start(model)
    with make_engine(fed, model, TrainSpec(dtype="float64"), backend) as engine:
        refused("theta must have shape", engine.train, theta[:, 1:], [0], [0], 0)
        refused("theta must have shape", engine.evaluate, theta[0], [0], [0])
        refused("1 rows for 2 clients", engine.train, theta, [0], [0, 1], 0)
        refused("no row 2: they run from 0 to 1", engine.train, theta, [2], [0], 0)
        refused("no client -1", engine.train, theta, [0], [-1], 0)
        refused(
            "one number per training sample",
            engine.train,
            theta,
            [0],
            [0],
            0,
            [np.ones(3)],
        )
        refused("Unknown split 'dev'", engine.evaluate, theta, [0], [0], "dev")
