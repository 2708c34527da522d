"""Eigen-relevance: known answers of the formulas, the choice of T, the private release,
and real digits."""

import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm
from torchvision.models import ResNet18_Weights, resnet18
from toys import refused

import fltnb as fl
from fltnb import encoders
from fltnb.analyses import mthfl_similarity as study
from fltnb.clustering import EigenRelevance, eigen
from fltnb.clustering.privacy import Noise
from fltnb.encoders import EncoderSpec
from fltnb.notebook.grids import grids

PLAIN = {
    "tasks": [[0, 1, 2, 3, 4], [5, 6, 7], [8, 9]],
    "users_per_task": [5, 3, 2],
    "minority": 0.1,
}
TASKS = {
    "kind": "tasks",
    "dataset": "digits",
    "samples_per_user": [70, 60, 50],
    **PLAIN,
}


def users(groups, n=60, d=12, seed=0):
    """Users whose samples stretch along directions of their group's own."""
    rng = np.random.default_rng(seed)
    bases = [np.linalg.qr(rng.normal(size=(d, d)))[0] for _ in range(max(groups) + 1)]
    return [rng.normal(size=(n, d)) / np.arange(1, d + 1) @ bases[g] for g in groups]


def literal(clients, p):
    """Eqs. 1 to 5 as they are written, one pair and one direction at a time."""
    grams = [x.T @ x / len(x) for x in clients]
    spectra = [np.linalg.eigh(gram) for gram in grams]
    r = np.ones((len(clients), len(clients)))
    for i, j, k in np.ndindex(len(clients), len(clients), p):
        own, other = (
            spectra[i][0][-1 - k],
            np.linalg.norm(grams[i] @ spectra[j][1][:, -1 - k]),
        )
        r[i, j] *= (min(own, other) / max(own, other)) ** (1 / p)
    return (r + r.T) / 2


def relevance(clients, p=5, **options):
    return (
        EigenRelevance(n_clusters=1, n_eigenvectors=p, **options)
        .fit(clients)
        .relevance_
    )


def test_two_users_and_orthogonal_subspaces_by_hand():
    # Gram matrices diag(4, 1) and diag(2, 3): the second user's first direction is the
    # other axis
    one, two = (
        np.diag([2.0, 1.0]) * np.sqrt(2),
        np.diag([np.sqrt(2), np.sqrt(3)]) * np.sqrt(2),
    )
    fitted = EigenRelevance(n_clusters=2, n_eigenvectors=2).fit([one, two])
    assert np.allclose(fitted.eigenvalues_, [[4, 1], [3, 2]])
    # user 0: own (4, 1), along the other's directions (1, 4); user 1: own (3, 2), along
    # the other's (2, 3)
    assert fitted.directed_[0, 1] == pytest.approx(1 / 4)
    assert fitted.directed_[1, 0] == pytest.approx(2 / 3)
    assert fitted.relevance_[0, 1] == pytest.approx((1 / 4 + 2 / 3) / 2)
    assert np.allclose(fitted.distance_, 1 - fitted.relevance_) and np.allclose(
        np.diag(fitted.distance_), 0
    )
    rng = np.random.default_rng(0)
    left = [np.hstack([rng.normal(size=(30, 6)), np.zeros((30, 6))]) for _ in range(2)]
    found = EigenRelevance(n_clusters=2, n_eigenvectors=5).fit(
        [*left, *[x[:, ::-1] for x in left]]
    )
    assert found.relevance_[:2, 2:].max() < 1e-12 < found.relevance_[0, 1]
    assert found.labels_.tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize(
    ("n", "d", "p"), [(60, 12, 5), (60, 12, 12), (9, 12, 4), (12, 12, 1)]
)
def test_the_formulas_as_written(n, d, p):
    clients = users([0, 1, 0, 2], n, d)
    assert np.allclose(relevance(clients, p), literal(clients, p), rtol=1e-9)


@given(st.integers(0, 10**6), st.integers(2, 30), st.integers(2, 30))
@settings(max_examples=30, deadline=None)
def test_thin_equals_full(seed, n, d):
    x = np.random.default_rng(seed).normal(size=(n, d))
    p = min(n, d)
    values, vectors = eigen.eigenpairs(x, p)
    full = np.linalg.eigvalsh(x.T @ x / n)
    assert np.allclose(values, full[::-1][:p], atol=1e-10 * full[-1])
    assert np.allclose(vectors.T @ vectors, np.eye(p))
    v = np.random.default_rng(seed + 1).normal(size=(d, 7))
    assert np.allclose(
        np.linalg.norm(eigen.norm_factor(x) @ v, axis=0),
        np.linalg.norm(x.T @ x / n @ v, axis=0),
    )
    assert eigen.norm_factor(x).shape == (p, d)


@pytest.mark.parametrize(("n", "p"), [(40, 3), (40, 12), (7, 7), (7, None)])
def test_identical_data_are_wholly_relevant(n, p):
    x = users([0], n)[0]
    assert np.allclose(relevance([x, x.copy(), x[::-1]], p), 1, atol=1e-6)


@given(st.permutations(range(6)), st.floats(1e-3, 1e3), st.integers(0, 5))
@settings(max_examples=15, deadline=None)
def test_neither_the_order_of_users_nor_the_scale_of_ones_features_matters(
    order, scale, who
):
    clients = users([0, 0, 1, 1, 2, 2])
    before = relevance(clients)
    assert np.allclose(
        relevance([clients[i] for i in order]), before[np.ix_(order, order)], rtol=1e-9
    )
    assert np.allclose(
        relevance([scale * x if i == who else x for i, x in enumerate(clients)]),
        before,
        rtol=1e-7,
    )


def test_numbers_of_samples_small_eigenvalues_and_added_features():
    clients = users([0, 0, 1, 1], n=20)
    repeated = [
        np.tile(x, (1 + i, 1)) for i, x in enumerate(clients)
    ]  # from 20 to 80 samples, across n = d
    assert np.allclose(relevance(repeated), relevance(clients), rtol=1e-9)
    big, small = users([0, 0, 1, 1], n=4000), users([0, 0, 1, 1], n=30)
    assert relevance(big)[0, 1] > 0.95 > relevance(small)[0, 1]
    mixed = relevance([big[0], small[0], big[2], small[2]])
    assert min(mixed[0, 1], mixed[2, 3]) > mixed[:2, 2:].max()
    clients = users([0, 0, 1, 1], n=200)
    for x, tiny in zip(clients, (1e-7, 1e-3, 1e-6, 1e-2), strict=True):
        x[:, -1] *= tiny  # one direction is nearly empty, for each to another degree
    few, every = relevance(clients, 5), relevance(clients, 12)
    assert every[0, 1] < few[0, 1]
    clients = users([0, 0, 1, 1])
    before = relevance(clients, 5)
    assert np.allclose(
        relevance([np.hstack([x, np.zeros((len(x), 1))]) for x in clients], 5),
        before,
        rtol=1e-9,
    )
    # means that differ, if only by chance, are multiplied with a constant that is added
    falling = [
        relevance([np.hstack([x, np.full((len(x), 1), c)]) for x in clients], 5)[0, 1]
        for c in (1, 10, 100)
    ]
    assert before[0, 1] > falling[0] > falling[1] > falling[2]
    # with equal means the constant is one direction of five, the same for everybody
    even = [np.vstack([x, -x]) for x in clients]
    others = EigenRelevance(n_clusters=1, n_eigenvectors=4).fit(even).directed_ ** (
        4 / 5
    )
    constant = relevance([np.hstack([x, np.full((len(x), 1), 100.0)]) for x in even], 5)
    assert np.allclose(constant, (others + others.T) / 2, rtol=1e-6)


def test_the_curve_is_the_estimator_at_every_count():
    clients = users([0, 0, 1, 2], n=9)
    curve = eigen.relevance_curve(clients, 8)
    assert curve.shape == (8, 4, 4)
    for p in (1, 3, 8):
        assert np.allclose(curve[p - 1], relevance(clients, p), rtol=1e-9)
    clients = users([0, 1] * 5)
    assert np.array_equal(relevance(clients, n_jobs=2), relevance(clients))


def test_attributes_and_the_number_of_tasks():
    fitted = EigenRelevance(n_clusters=3, n_eigenvectors=4).fit(
        users([2, 0, 1, 1, 0, 2])
    )
    assert fitted.labels_.tolist() == [0, 1, 2, 2, 1, 0] and fitted.n_clusters_ == 3
    assert fitted.adjacency_.dtype == np.uint8 and fitted.adjacency_.sum() == 12
    assert sorted(fitted.leaf_order_) == list(range(6)) and fitted.linkage_.shape == (
        5,
        4,
    )
    assert (
        fitted.sent_.tolist() == [4 * 12 + 5] * 6
        and fitted.received_.tolist() == [5 * 4 * 12] * 6
    )
    chosen = EigenRelevance().fit(users([0] * 4 + [1] * 3 + [2] * 3, n=300))
    assert chosen.n_clusters_ == 3 and np.nanargmax(chosen.criterion_) == 3
    assert np.isnan(chosen.criterion_[[0, 10]]).all() and chosen.criterion_[1] == 0
    assert (
        EigenRelevance(max_clusters=2)
        .fit(users([0] * 4 + [1] * 3 + [2] * 3))
        .n_clusters_
        <= 2
    )
    # users of one task are one cluster: no cut of theirs reaches a silhouette of 0.25
    assert EigenRelevance().fit(users([0] * 10, n=300)).n_clusters_ == 1
    x = users([0])[0]
    with pytest.warns(UserWarning, match="2 clusters were .* result has 1"):
        assert EigenRelevance(n_clusters=2).fit([x, x, x]).n_clusters_ == 1


@pytest.mark.parametrize("linkage", ["average", "complete", "ward"])
@pytest.mark.parametrize("seed", range(3))
def test_finds_the_tasks_of_real_digits(linkage, seed):
    fed = fl.federations.build(TASKS | {"seed": seed})
    clients = [fed.client(i)[0].reshape(-1, 64) for i in range(fed.n_clients)]
    found = EigenRelevance(n_clusters=3, linkage=linkage).fit(clients)
    assert fl.metrics.adjusted_rand_index(fed.clusters, found.labels_) == 1


def test_noisy_eigenvectors_and_the_private_release():
    clients = users([0, 0, 1, 1], n=400, d=100)
    exact, weak, strong = (
        relevance(clients, 5, noise=level) for level in (0.0, 1e-6, 30.0)
    )
    assert np.allclose(weak, exact, atol=1e-4)
    assert np.allclose(np.diag(strong), 1)
    # nothing but noise: every direction has the same length along everybody's data,
    # whatever the task
    assert (
        abs(strong[0, 1] - strong[:2, 2:].mean())
        < 0.1
        < exact[0, 1] - exact[:2, 2:].mean()
    )
    assert np.array_equal(
        relevance(clients, 5, noise=1.0), relevance(clients, 5, noise=1.0)
    )
    assert not np.array_equal(
        relevance(clients, 5, noise=1.0),
        relevance(clients, 5, noise=1.0, random_state=1),
    )
    x, private = users([0], n=50, d=200)[0], Noise(3.0, 1e9)
    rest = 50 * (eigen.noisy_gram(x, 0, 0, private) - x.T @ x / 50)
    assert np.allclose(rest, rest.T)
    assert np.diag(rest).std() == pytest.approx(3.0, rel=0.15)
    assert rest[np.triu_indices(200, 1)].std() == pytest.approx(
        3 / np.sqrt(2), rel=0.03
    )
    assert not np.allclose(
        eigen.noisy_gram(x, 1, 0, private), eigen.noisy_gram(x, 0, 0, private)
    )
    one, two = (
        eigen.noisy_gram(x, 0, 0, Noise(0.0, 2.0))
        for x in (np.array([[9.0, 0]]), np.array([[0, 9.0]]))
    )
    assert np.linalg.norm(one - two) == pytest.approx(np.sqrt(2) * 4)
    clients = users([0, 0, 1, 1], n=500)
    assert np.allclose(
        relevance(clients, 5, epsilon=1e9, clip=10.0), relevance(clients, 5), atol=1e-2
    )
    many = users([0, 0, 0, 1, 1, 1], n=2000)
    found = [
        EigenRelevance(2, epsilon=epsilon, clip=3.0).fit(many).labels_.tolist()
        for epsilon in (1e4, 1e-3)
    ]
    assert found[0] == [0, 0, 0, 1, 1, 1] != found[1]


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0, 50.0])
def test_the_gaussian_mechanism_is_as_private_as_stated(epsilon):
    sigma, delta = eigen.gaussian_mechanism(epsilon, 1e-4), 1e-4

    def excess(
        x,
    ):  # how far the densities with and without a change of 1 are from exp(epsilon)
        return max(norm.pdf(x, 1, sigma) - np.exp(epsilon) * norm.pdf(x, 0, sigma), 0.0)

    edge = sigma**2 * epsilon + 0.5  # where the two sides are equal
    assert quad(excess, edge, max(1, edge) + 12 * sigma, epsabs=1e-12)[
        0
    ] == pytest.approx(delta, rel=1e-4)


@given(st.integers(0, 10**6), st.integers(1, 20))
@settings(max_examples=50, deadline=None)
def test_no_neighbour_exceeds_the_sensitivity(seed, n):
    rng = np.random.default_rng(seed)
    clip, silent = 2.0, Noise(0.0, 2.0)
    x = rng.normal(size=(n, 4)) * rng.choice([0.1, 3, 50])
    y = x.copy()
    y[rng.integers(n)] = rng.normal(size=4) * rng.choice([0.1, 3, 50])
    change = np.linalg.norm(
        eigen.noisy_gram(x, 0, 0, silent) - eigen.noisy_gram(y, 0, 0, silent)
    )
    assert change <= np.sqrt(2) * clip**2 / n + 1e-12
    assert eigen.gaussian_mechanism(1.0, 1e-5) == pytest.approx(3.7306, rel=1e-4)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            lambda c: [*c[:2], c[2][:, :5]],
            "Client 2 has features of dimension 5, not 12",
        ),
        (
            lambda c: [c[0], c[1][:4], c[2]],
            "Client 1 has 4 samples, fewer than n_eigenvectors=5: lower n_e",
        ),
        (
            lambda c: [c[0], np.full((20, 12), 0.3), c[2]],
            "All samples of client 1 have the same features",
        ),
        (
            lambda c: [c[0], c[1], np.where(np.arange(12) == 3, np.nan, c[2])],
            "features of client 2 hold NaN",
        ),
        (lambda c: c[:1], "at least 2 clients"),
    ],
)
def test_bad_input_is_one_sentence(change, says):
    refused(says, EigenRelevance().fit, change(users([0, 0, 1])))


def test_a_client_alone_refuses_what_a_fit_refuses():
    level = np.full((20, 12), 0.3)
    for made in (EigenRelevance(), EigenRelevance(n_eigenvectors=None)):
        refused("All samples of client 3 have the same feat", made.sketch, level, 3)


def test_resnet_features_are_those_of_torchvision(own_store):
    spec = EncoderSpec("resnet18", "random", seed=3)
    fed = fl.federations.build(TASKS | {"samples_per_user": [4, 4, 4]})
    z = encoders.embed_clients(fed, spec)
    assert (
        z[0].shape == (4, 512) and z[0].dtype == np.float32 and not own_store.exists()
    )
    whole = resnet18(weights=None)
    state = encoders.pretrain(spec)
    whole.load_state_dict(
        {name: torch.tensor(value) for name, value in state.items()}, strict=False
    )
    caught = []
    whole.eval().avgpool.register_forward_hook(
        lambda *parts: caught.append(parts[2].flatten(1))
    )
    grey = torch.tensor(fed.images[fed.train[2]])[:, None].expand(-1, 3, -1, -1) / 255
    with torch.no_grad():
        moments = ResNet18_Weights.IMAGENET1K_V1.transforms()
        mean, std = (
            torch.tensor(values)[:, None, None]
            for values in (moments.mean, moments.std)
        )
        whole((grey - mean) / std)
    assert np.allclose(z[2], caught[0], atol=1e-5)
    weights = sum(value.size for value in state.values() if value.dtype.kind == "f")
    assert encoders.sent_parameters(spec, fed.input_shape) == weights > 11e6
    fed = fl.Federation.from_arrays(
        np.random.default_rng(0).normal(size=(40, 7)), [0, 1] * 20, [0] * 20 + [1] * 20
    )
    refused(
        r"needs grey or colour images, not samples of shape \(1, 1, 7\)",
        encoders.embed_clients,
        fed,
        spec,
    )
    refused("Unknown origin of a resnet18's weights", EncoderSpec, "resnet18")
    refused(
        "nothing to fine-tune", EncoderSpec, "resnet18", "imagenet", finetune_epochs=1
    )


def test_weights_that_cannot_be_had_are_said_in_one_sentence(
    own_store, monkeypatch, capfd
):
    def refuse(*args, **options):
        assert options["check_hash"] and options["weights_only"]
        raise OSError("no network")

    monkeypatch.setattr(ResNet18_Weights, "get_state_dict", refuse)
    spec = EncoderSpec("resnet18", "imagenet")
    refused(
        r"download failed \(no network\).*kind='convae' or kind='pixels'\.$",
        encoders.pretrain,
        spec,
    )
    assert capfd.readouterr().err == ""
    random = encoders.pretrain(EncoderSpec("resnet18", "random"))
    source = {name: torch.tensor(value) for name, value in random.items()} | {
        "fc.bias": torch.zeros(1000)
    }
    monkeypatch.setattr(ResNet18_Weights, "get_state_dict", lambda *_, **__: source)
    found = encoders.pretrain(spec)
    assert found.keys() == random.keys() and all(
        np.array_equal(found[name], random[name]) for name in random
    )


def test_tables_and_figures_of_notebook_09():
    R = np.array(
        [[1, 0.9, 0.2, 0.3], [0.9, 1, 0.1, 0.4], [0.2, 0.1, 1, 0.7], [0.3, 0.4, 0.7, 1]]
    )
    found = study.separation(R, np.array([0, 0, 1, 1]))
    assert found == pytest.approx(
        {
            "within": 0.8,
            "within_min": 0.7,
            "across": 0.25,
            "across_max": 0.4,
            "ari": 1.0,
        }
    )
    five = {"kind": "tasks", "dataset": "digits", "minority": 0.0}
    five |= {"tasks": [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]}
    five |= {"users_per_task": [2, 3], "samples_per_user": [60, 60]}
    pca = {"kind": "pca", "pretrain": "digits", "latent": 16}
    maps = {"pixels": {"kind": "pixels"}, "PCA": pca}
    tables = study.table1(five, maps, seeds=2, most=7)["tables"]
    z, _ = study.users(five)
    pixels = (
        tables["pairs"]
        .query("features == 'pixels'")["similarity"]
        .to_numpy()
        .reshape(5, 5)
    )
    assert (
        np.allclose(pixels, relevance(z), rtol=1e-9)
        and tables["separation"]["eigenvectors"].max() == 7
    )
    assert tables["printed"]["value"].tolist() == pixels.ravel().tolist()
    assert set(tables["printed"]["otherwise"]) == {"p = 5 chosen by us, pixels"}
    rows = [("pixels", 5, seed, 0.6, other) for seed, other in ((0, 0.4), (1, 0.7))]
    rows += [("ResNet-18, random", p, 0, p / 10, 0.1) for p in (3, 5)]
    table = pd.DataFrame(
        rows, columns=["features", "eigenvectors", "seed", "user2", "user3"]
    )
    printed = study.tables2(table)["printed"]
    assert printed[["user_i", "user_j", "value"]].to_numpy().tolist() == [
        [1, 2, 0.5],
        [1, 3, 0.1],
    ]
    assert printed["otherwise"].iloc[0].endswith("random weights for ImageNet's")
    ten = TASKS | {"samples_per_user": [100, 60, 40]}
    cost = study.cost(ten, pca)["tables"]["cost"].set_index("clustering")
    # ten users, 64 pixels; the network has 64 x 32 + 32 + 32 x 10 + 10 numbers, without
    # its last layer 2,080
    assert cost.loc["MT-HFL, p = 5", ["a user sends", "a user receives"]].tolist() == [
        5 * 64 + 9,
        9 * 5 * 64,
    ]
    assert cost.loc["comparing model weights", "a user sends"] == 2410
    assert cost.loc["EMD-CFL, models of all pairs", "all users"] == 2 * 10 * 9 * 2080
    tables = study.figure4(ten, 2)["tables"]
    assert tables["curve"]["user"].unique().tolist() == [0, 3, 6, 9]
    five = tables["separation"].query("eigenvectors == 5").set_index("seed")
    assert five["numbers"].to_dict() == {0: 5 * 64, 1: 5 * 64}
    curve = tables["curve"].query("eigenvectors == 5").set_index("user")["relevance"]
    z, _ = study.users(ten | {"seed": 0})
    fitted = fl.EigenRelevance(n_clusters=3, n_eigenvectors=5).fit(z)
    assert np.allclose(curve, fitted.relevance_[0, [0, 3, 6, 9]])
    assert study.mean_image(ten, 2)["numbers"] == {"exact": 2, "of": 2, "lowest": 1.0}


@pytest.mark.parametrize("profile", ["", "demo"])
def test_the_grids_of_notebook_09_are_complete(profile):
    rows = [row for grid in grids("09", profile) for row in grid]
    rows = [row for row in rows if row.experiment.kind == "clustering"]
    parts = {"study", "linkage", "chosen", "minority", "noise", "epsilon"}
    assert {row.axes["part"] for row in rows} == parts
    assert len({row.experiment.id + row.axes["part"] for row in rows}) == len(rows)
    seeds = set()
    for row in rows:
        if (row.axes["method"], row.axes["part"]) == ("mthfl", "study"):
            seeds.add(row.experiment.seed)
    assert seeds == set(range(2 if profile == "demo" else 20))


def test_groups_that_are_not_sure_are_said():
    """Clients at the corners of two squares, one and two sides apart."""
    square = np.array([[0, 0], [0, 2], [2, 0], [2, 2]])
    near = [np.array([at, at]) for at in np.vstack([square, np.add(square, (4, 0))])]
    with pytest.warns(UserWarning, match="into 2 has a mean silhouette of 0.44"):
        assert fl.MeanImage().fit(near).n_clusters_ == 1
    far = [np.array([at, at]) for at in np.vstack([square, np.add(square, (6, 0))])]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert fl.MeanImage().fit(far).n_clusters_ == 2
