"""Aggregation worked by hand, on models of two numbers and training that is a formula."""

import inspect
from types import SimpleNamespace

import numpy as np
import pytest

import fltnb.methods as methods
from fltnb.errors import FltnbError
from fltnb.methods import FLT, Context, FedAvg, FedSEM, Local, Oracle
from fltnb.methods.base import mix

CONTEXT = Context(seed=0)


def toy(sizes=(10, 30, 20, 20), clusters=(0, 0, 1, 1), theta=(1.0, 2.0)):
    """A federation and a model that the methods can start from."""
    fed = SimpleNamespace(
        n_clients=len(sizes), sizes=np.array(sizes), clusters=np.array(clusters), input_shape=(1, 1, 2)
    )
    P, init = len(theta), lambda seed: np.array(theta, dtype=np.float32)
    model = SimpleNamespace(n_parameters=P, n_trainable=P, init=init)
    return fed, model


def fitted(labels, adjacency=None):
    """A clusterer that knows its answer."""
    labels = np.array(labels)
    if adjacency is None:
        adjacency = labels[:, None] == labels[None]
    return SimpleNamespace(
        labels_=labels, adjacency_=np.array(adjacency, dtype=np.uint8), get_params=lambda deep: {"k": 1}
    )


def one_round(method, fed, model, clients, trained, state=None):
    state = method.start(fed, model, CONTEXT) if state is None else state
    state = method.collect(state, np.array(clients), np.array(trained, dtype=np.float32), 1)
    theta, rows = method.serve(state)
    return theta[rows], state


def test_fedavg_weights_by_samples():
    served, _ = one_round(FedAvg(), *toy(), [0, 1], [[0, 0], [4, 8]])
    assert np.allclose(served, [[3, 6]] * 4)  # weights 10/40 and 30/40


def test_fedavg_last_local_counts_everybody():
    fed, model = toy()
    method = FedAvg(rule="last_local")
    served, state = one_round(method, fed, model, [1], [[9, 9]])
    # clients 0, 2, 3 (50 of 80 samples) still hold the initial (1, 2)
    assert np.allclose(served[0], [(50 * 1 + 30 * 9) / 80, (50 * 2 + 30 * 9) / 80])
    served, _ = one_round(method, fed, model, [0], [[5, 5]], state)
    # client 1 is remembered at (9, 9) although it did not take part
    assert np.allclose(served[0], [(10 * 5 + 30 * 9 + 40 * 1) / 80, (10 * 5 + 30 * 9 + 40 * 2) / 80])


def test_fedavg_last_aggregate_is_a_damped_step():
    fed, model = toy()
    method = FedAvg(rule="last_aggregate")
    served, state = one_round(method, fed, model, [1], [[9, 9]])
    assert np.allclose(served[0], [(50 * 1 + 30 * 9) / 80, (50 * 2 + 30 * 9) / 80])
    first = served[0]
    served, _ = one_round(method, fed, model, [0], [[5, 5]], state)
    assert np.allclose(served[0], (70 * first + 10 * 5) / 80)  # here client 1 contributes the aggregate


def test_oracle_keeps_a_cluster_without_participants():
    served, _ = one_round(Oracle(), *toy(), [0], [[7, 7]])
    assert np.allclose(served[:2], 7)
    assert np.allclose(served[2:], [1, 2])


def test_oracle_without_truth_says_so():
    fed, model = toy()
    fed.clusters = None
    with pytest.raises(FltnbError, match="true clusters"):
        Oracle().start(fed, model, CONTEXT)


def test_flt_case_1_averages_over_neighbourhoods():
    path = [[1, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 1], [0, 0, 1, 1]]
    fed, model = toy(sizes=(1, 1, 1, 1))
    method = FLT(fitted([0, 0, 1, 1], path), graph="full")
    served, state = one_round(method, fed, model, [0, 1, 2, 3], [[0, 0], [3, 3], [6, 6], [9, 9]])
    assert np.allclose(served[:, 0], [1.5, 3, 6, 7.5])
    assert len(state["models"]) == 4


def test_flt_case_1_equals_case_2_on_blocks():
    fed, model = toy()
    trained = np.random.default_rng(0).normal(size=(3, 2))
    full, _ = one_round(FLT(fitted([0, 0, 1, 1]), graph="full"), fed, model, [0, 1, 3], trained)
    clusters, _ = one_round(FLT(fitted([0, 0, 1, 1]), graph="clusters"), fed, model, [0, 1, 3], trained)
    assert np.array_equal(full, clusters)


@pytest.mark.parametrize("rule", methods.RULES)
def test_one_cluster_is_fedavg(rule):
    fed, model = toy()
    trained = np.random.default_rng(1).normal(size=(2, 2))
    expected, _ = one_round(FedAvg(rule), fed, model, [1, 2], trained)
    for method in (FLT(fitted([0] * 4), rule=rule), FedSEM(1, rule=rule)):
        served, _ = one_round(method, fed, model, [1, 2], trained)
        assert np.allclose(served, expected, atol=1e-6), method.name


def test_fedsem_finds_groups_of_models():
    fed, model = toy(sizes=(10, 30, 20, 20))
    served, state = one_round(FedSEM(2), fed, model, range(4), [[0, 0], [1, 0], [10, 10], [11, 10]])
    assert len({*state["labels"][:2]}) == 1 and len({*state["labels"][2:]}) == 1
    assert state["labels"][0] != state["labels"][2]
    assert np.allclose(served[0], [0.75, 0])  # weighted by samples
    assert np.allclose(served[2], [10.5, 10])


def test_fedsem_groups_as_kmeans_on_the_models_themselves():
    from sklearn.cluster import KMeans

    fed, model = toy(sizes=[1] * 12, clusters=[0] * 12, theta=np.zeros(50))
    centers = np.random.default_rng(3).normal(size=(3, 50)) * 4
    trained = np.repeat(centers, 4, axis=0) + np.random.default_rng(4).normal(size=(12, 50))
    _, state = one_round(FedSEM(3), fed, model, range(12), trained)
    direct = KMeans(3, n_init=20, random_state=0).fit_predict(trained)
    same = state["labels"][:, None] == state["labels"][None]
    assert np.array_equal(same, direct[:, None] == direct[None])


def test_mix_refuses_rows_that_do_not_sum_to_one():
    with pytest.raises(FltnbError, match="sum to 1"):
        mix(np.array([[0.5, 0.4]]), np.zeros((2, 3), np.float32))
    with pytest.raises(FltnbError, match="non-negative"):
        mix(np.array([[1.5, -0.5]]), np.zeros((2, 3), np.float32))


def test_mix_does_not_depend_on_blocks():
    rng = np.random.default_rng(0)
    W = rng.random((3, 7))
    W /= W.sum(axis=1, keepdims=True)
    theta = rng.normal(size=(7, 1000)).astype(np.float32)
    assert np.allclose(mix(W, theta, block=64), mix(W, theta), rtol=0, atol=1e-7)


@pytest.mark.parametrize(
    ("method", "state_size"), [(FedAvg(), 1), (Oracle(), 2), (Local(), 4), (FLT(fitted([0, 1, 2, 2])), 3)]
)
def test_state_holds_one_model_per_distinct_neighbourhood(method, state_size):
    fed, model = toy()
    assert len(method.start(fed, model, CONTEXT)["models"]) == state_size


@pytest.mark.parametrize(
    ("same", "form"),
    [
        (({"name": "fedavg"}, {"kind": "FedAvg", "rule": "participants", "variant": "as_written"}), {"name": "fedavg"}),
        (({"name": "fedavg", "variant": "as_run"},), {"name": "fedavg", "rule": "last_local"}),
        (({"name": "fedsem", "n_clusters": np.int64(3)},), {"name": "fedsem", "n_clusters": 3}),
        (
            ({"name": "fesem", "n_clusters": 2, "variant": "as_run", "report": "own"},),
            {"name": "fesem", "n_clusters": 2, "lam": 0.0, "grouping": "random"},
        ),
        (({"name": "fedsgd", "variant": "as_run"},), {"name": "fedsgd", "batch": 2}),
        (({"name": "robust_tkm", "variant": "as_run", "n_clusters": 3},), {"name": "robust_tkm", "variant": "as_run"}),
        (
            (
                {"name": "flt", "variant": "as_run", "clusterer": {"name": "FCR", "k": 2, "threshold": 1.0}},
                {"name": "enc1", "kind": "FLT", "rule": "last_local", "graph": "full"}
                | {"clusterer": {"name": "FCR", "k": 2, "n_jobs": 4}, "encoder": {"kind": "pixels", "epochs": 8}},
            ),
            {"name": "flt", "graph": "full", "rule": "last_local", "clusterer": {"name": "FCR", "k": 2}}
            | {"encoder": {"kind": "pixels"}},
        ),
    ],
)
def test_equal_methods_have_one_canonical_form_and_are_rebuilt_from_it(same, form):
    for options in same:
        assert methods.canonical(options) == form
        method = methods.build(options)
        assert methods.build(method.settings()).settings() == method.settings()
    assert methods.canonical(form) == form


def test_an_id_of_its_own_survives_and_as_run_is_what_it_means():
    flt = FLT(variant="as_run", name="flt_enc1")
    again = methods.build(flt.settings())
    assert (again.name, again.graph, again.rule, again.variant) == ("flt_enc1", "full", "last_local", "as_written")
    assert FLT(variant="as_run", graph="clusters").graph == "clusters"


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: methods.build({"name": "fedawg"}), "method 'fedawg'"),
        (lambda: methods.build({"name": "fedavg", "rul": "participants"}), "option of method fedavg 'rul'"),
        (lambda: methods.build({"name": "fedsem"}), "fedsem needs n_clusters .K, the number of clusters.: add it"),
        (lambda: methods.build({"name": "flt", "clusterer": {"name": "KMedoids"}}), "clusterer 'KMedoids'"),
        (lambda: methods.build({"name": "flt", "encoder": {"sort": "pca"}}), "option of encoder 'sort'"),
    ],
)
def test_bad_names_are_refused_in_one_sentence(make, sentence):
    with pytest.raises(FltnbError, match=sentence) as error:
        make()
    assert "\n" not in str(error.value)


def test_a_clusterer_fitted_on_other_clients_is_refused():
    with pytest.raises(FltnbError, match="fitted on 3 clients"):
        FLT(fitted([0, 1, 1])).start(*toy(), CONTEXT)


@pytest.mark.parametrize("name", methods.METHODS)
def test_every_option_of_every_method_is_checked_by_its_annotation(name):
    """Numbers below their least, words that are not offered, and text in place of numbers are refused by name."""
    cls = methods.METHODS[name]
    needed = {"n_clusters": 2} if "n_clusters" in inspect.signature(cls).parameters else {}
    needed |= {"lam": 1} if name == "DynamicFLT" else {}
    needed |= {"threshold": 1.0} if name == "FedClust" else {}
    for option, one in inspect.signature(cls).parameters.items():
        kind = str(one.annotation).split(" |")[0]
        if kind in ("Count", "Natural", "Share", "NonNegative", "Positive", "Variant", "Rule", "bool", "Placing"):
            for wrong in (-1, "0.1", None) if kind not in ("Count", "Natural") else (-1, 1.5, True, "1"):
                if wrong is None and "None" in str(one.annotation):
                    continue
                with pytest.raises(FltnbError, match=f"{option}"):
                    cls(**needed | {option: wrong})
        elif kind.startswith("Literal"):
            with pytest.raises(FltnbError, match=f"Unknown {option} 'nothing'"):
                cls(**needed | {option: "nothing"})
