"""What a client computes and sends, and what the server makes of it: the same result as
one call of ``fit``."""

import inspect
import json

import numpy as np
import pytest
from scipy.cluster.hierarchy import fcluster, linkage
from sklearn.base import clone
from sklearn.cluster import KMeans
from toys import refused

import fltnb as fl
from fltnb import clustering
from fltnb.clustering import EMDClustering, build, canonical, sketch_bytes
from fltnb.clustering.base import n_scalars
from fltnb.clustering.fcr import umap_class
from fltnb.clustering.noise import noisy
from fltnb.randomness import integer

rng = np.random.default_rng(0)
KINDS = np.arange(6) % 2
CLIENTS = [
    0.3 + 0.05 * rng.normal(size=(20 + i, 6)).clip(-5, 5) + 0.3 * kind
    for i, kind in enumerate(KINDS)
]
HELD = [0.3 + 0.05 * rng.normal(size=(9, 6)).clip(-5, 5) + 0.3 * kind for kind in KINDS]
CASES = [
    fl.FCR(2, k=2, n_neighbors=3),
    fl.FCR(k=[1, 2, 3, 1, 2, 3], n_neighbors=3, distance="matching", random_state=4),
    fl.PCAKMeans(2, k=2, n_components=3, threshold=0.2),
    fl.EigenRelevance(2, 3),
    fl.EigenRelevance(n_eigenvectors=3, noise=0.2, random_state=3),
    fl.EigenRelevance(2, 3, epsilon=9.0, clip=2.0),
    fl.EMDClustering(0.01),
    fl.MeanImage(2),
    fl.MergeGain(4, n_classes=2),
    fl.EMDClustering(0.01, projection=None, reference="client", max_samples=7),
    fl.PACFL(n_clusters=2),
    fl.TransportSignatures(k=2),
    fl.TransportSignatures(k=2, n_clusters=2, epsilon=50.0, clip=2.0, random_state=5),
]


def learned(clusterer):
    return {
        name: value for name, value in vars(clusterer).items() if name.endswith("_")
    }


def classes(x):
    return (x[:, 0] > x[:, 1]).astype(int)


def validation(clusterer, clients=CLIENTS):
    if isinstance(clusterer, fl.MergeGain):
        return [classes(x) for x in clients]
    return [HELD] * 6 if isinstance(clusterer, EMDClustering) else None


def by_hand(clusterer):
    """The exchange, message by message, each client an estimator of its own."""
    own = [clone(clusterer) for _ in CLIENTS]
    more = {"validation": HELD} if isinstance(clusterer, EMDClustering) else {}
    of = (
        (lambda x: {"y": classes(x)})
        if isinstance(clusterer, fl.MergeGain)
        else lambda x: more
    )
    sketches = [
        one.sketch(x, client=i, **of(x))
        for i, (one, x) in enumerate(zip(own, CLIENTS, strict=True))
    ]
    answers = []
    if hasattr(clusterer, "compare"):
        relayed = clusterer.relay(sketches)
        answers = [
            own[i].compare(x, sketches[i], relayed, client=i)
            for i, x in enumerate(CLIENTS)
        ]
    return sketches, answers


@pytest.mark.parametrize("clusterer", CASES, ids=lambda c: type(c).__name__)
def test_fit_is_sketches_then_the_server(clusterer):
    sketches, answers = by_hand(clusterer)
    whole = clone(clusterer).fit(CLIENTS, validation(clusterer))
    one, other = (
        learned(whole),
        learned(clone(clusterer).fit_sketches(sketches, answers)),
    )
    assert (
        one.keys()
        == other.keys()
        >= {"labels_", "adjacency_", "distance_", "linkage_", "leaf_order_", "sent_"}
    )
    for name, value in one.items():
        np.testing.assert_array_equal(value, other[name], err_msg=name)
    if not isinstance(clusterer, EMDClustering):
        up = [n_scalars(s) for s in sketches]
        assert whole.sent_.tolist() == (up if not answers else [n + 5 for n in up])
        assert whole.received_.tolist() == [sum(up) - n if answers else 0 for n in up]


@pytest.mark.parametrize("clusterer", CASES, ids=lambda c: type(c).__name__)
def test_a_sketch_holds_arrays_of_that_clients_data_alone(clusterer):
    others = [CLIENTS[0], *(x[::-1][:12] for x in CLIENTS[1:])]
    one, other = (
        clone(clusterer).sketches(own, validation(clusterer, own))[0]
        for own in (CLIENTS, others)
    )
    assert all(
        isinstance(value, np.ndarray) and value.dtype.kind in "fi"
        for value in one.values()
    )
    for name, value in one.items():
        np.testing.assert_array_equal(value, other[name])


@pytest.mark.parametrize("clusterer", CASES, ids=lambda c: type(c).__name__)
def test_a_sketch_refuses_the_samples_that_fit_refuses(clusterer):
    more = {fl.MergeGain: [[0, 1]], EMDClustering: [HELD]}.get(type(clusterer), [])
    for x, says in (
        (np.ones((2, 3, 2)), "of client 4 must .*: flatten them"),
        (np.full((2, 6), np.nan), "4 hold NaN"),
    ):
        refused(says, clone(clusterer).sketch, x, *more, client=4)
    if "k" in clusterer.get_params() and not isinstance(
        clusterer, fl.TransportSignatures
    ):
        refused(
            "samples of client 4, not 3",
            clone(clusterer).set_params(k=3).sketch,
            np.eye(2, 6),
            client=4,
        )


def test_bytes_and_noise_of_sketches():
    sketch = fl.FCR(k=2).sketch(CLIENTS[0].astype(np.float32))
    assert sketch["centroids"].shape == (2, 6) and sketch["_weights"].sum() == 1
    assert (
        sketch_bytes(sketch) == 2 * 6 * 4 and n_scalars(sketch) == 12
    )  # weights stay with the client
    # two halves of two centroids and shares, number of samples, mean and variance
    assert sketch_bytes(fl.TransportSignatures(k=2).sketch(CLIENTS[0])) == 8 * (
        2 * 2 * 6 + 2 * 2 + 3
    )
    # embeddings of 20 + 9 samples for each of five others, 5 of 6 dimensions left, and
    # a reference for each
    assert (
        fl.EMDClustering(0.01).fit(CLIENTS, [HELD] * 6).sent_[0] == 5 * (20 + 9) * 5 + 5
    )
    some = (
        fl.PACFL(n_clusters=2),
        fl.FCR(k=2),
        fl.EigenRelevance(2, 3),
        fl.TransportSignatures(k=2),
        fl.MeanImage(2),
    )
    for clusterer in some:
        plain, rough = (
            one.sketches(CLIENTS) for one in (clusterer, noisy(clusterer, 0.1, seed=1))
        )
        shapes, others = (
            [{k: v.shape for k, v in s.items()} for s in sketches]
            for sketches in (plain, rough)
        )
        assert shapes == others
        sent = next(iter(plain[0]))
        assert np.abs(plain[0][sent] - rough[0][sent]).min() > 0


def test_fcr_in_eight_lines():
    """Algorithm 2 of FLT by hand, with the documented seeds."""
    kmeans, layout = integer(7, "kmeans"), integer(7, "umap")
    sent = [
        KMeans(2, n_init=10, random_state=kmeans).fit(x).cluster_centers_
        for x in CLIENTS
    ]
    umap = umap_class()(n_neighbors=3, random_state=layout, n_jobs=1)
    plane = umap.fit_transform(np.vstack(sent).astype(np.float32))
    points = plane.reshape(6, 2, 2).astype(float)
    distance = np.linalg.norm(
        points[:, None, :, None] - points[None, :, None], axis=-1
    ).min((2, 3))
    adjacency = (distance < 1) | np.eye(6, dtype=bool)
    labels = fcluster(linkage(adjacency.astype(float), "ward"), 2, "maxclust")

    fitted = fl.FCR(2, k=2, n_neighbors=3, random_state=7).fit(CLIENTS)
    np.testing.assert_allclose(
        fitted.distance_, np.where(np.eye(6), 0, distance), atol=1e-6
    )
    np.testing.assert_array_equal(fitted.adjacency_, adjacency)
    assert fl.metrics.adjusted_rand_index(labels, fitted.labels_) == 1


@pytest.mark.parametrize("clusterer", CASES, ids=lambda c: type(c).__name__)
def test_estimators_are_scikit_learns(clusterer):
    copy = clone(clusterer)
    assert copy.get_params() == clusterer.get_params() and repr(copy).startswith(
        type(clusterer).__name__
    )
    option = next(iter(copy.get_params()))
    assert getattr(copy.set_params(**{option: 4}), option) == 4
    assert not learned(clusterer)  # nothing above has fitted the original


def test_settings_go_there_and_back():
    for clusterer in CASES:
        short = canonical(clusterer)
        json.dumps(short)
        assert canonical(short) == short and canonical(build(short)) == short
    assert canonical(fl.FCR(k=5, n_clusters=3, n_jobs=2)) == {
        "name": "FCR",
        "n_clusters": 3,
    }
    assert canonical(fl.FCR(k=np.array([1, 2])))["k"] == [1, 2]
    for bad, message in (
        ({"kk": 1}, "Unknown option"),
        ({"n_init": 0}, "n_init must be"),
    ):
        refused(message, build, {"name": "FCR"} | bad)
    # pairs of FedCollab train together: there is no sketch of one client's data alone
    assert set(clustering.CLUSTERERS) - {"FedCollab"} == {
        type(one).__name__ for one in CASES
    }


BEYOND = {  # numbers just outside what options may be
    **{
        "threshold": -1,
        "n_neighbors": 1,
        "noise": -1.0,
        "alpha": 1,
        "n_eigenvectors": 2.0,
        "projection": 1.5,
    },
    **{
        "max_samples": 0,
        "regularisation": 0,
        "n_directions": 2.5,
        "random_state": None,
        "n_features": 0,
        "folds": 1,
    },
    **{
        "n_classes": 1,
        "k": 0,
        "n_splits": 1,
        "epsilon": 0,
        "clip": float("inf"),
        "delta": 1,
        "n_clusters": 0,
    },
}


@pytest.mark.parametrize("name", clustering.CLUSTERERS)
def test_bad_options_are_refused_before_any_work(name, monkeypatch):
    monkeypatch.setattr(clustering.ClientClusterer, "_each", None)
    made = getattr(fl, name)
    for option in inspect.signature(made).parameters.keys() - {"n_jobs"}:
        beyond = (
            [BEYOND[option]]
            if option in BEYOND and (name, option) != ("PACFL", "threshold")
            else []
        )
        for wrong in ("nothing", float("nan"), *beyond):
            refused(
                rf"^(Unknown )?{option}\b|^0 centroids",
                made(**{option: wrong}).fit,
                CLIENTS,
                [HELD] * 6,
            )
    if "max_clusters" in inspect.signature(made).parameters:
        refused(
            "from 1 to the number of clients, 6, got 7",
            made(n_clusters=7).fit,
            CLIENTS,
            [HELD] * 6,
        )
    if "epsilon" in inspect.signature(made).parameters:
        refused("needs clip", made(epsilon=1.0).fit, CLIENTS, [HELD] * 6)
    refused(
        "6 features do not have 7 eigenvectors",
        fl.EigenRelevance(n_eigenvectors=7).fit,
        CLIENTS,
    )


def one_sketch(clusterer):
    """What one client computes by itself; FedCollab has no such part."""
    more = {}
    if isinstance(clusterer, fl.MergeGain):
        more = {"y": classes(CLIENTS[0])}
    if isinstance(clusterer, EMDClustering):
        more = {"validation": HELD}
    if isinstance(clusterer, fl.FedCollab):
        return clusterer.sketches(CLIENTS, [classes(x) for x in CLIENTS])
    return clusterer.sketch(CLIENTS[0], **more)


@pytest.mark.parametrize("name", clustering.CLUSTERERS)
def test_a_client_alone_refuses_the_options_that_fit_refuses(name):
    made = getattr(fl, name)
    options = inspect.signature(made).parameters
    for option in options.keys() & BEYOND.keys():
        if (name, option) != ("PACFL", "threshold"):
            refused(rf"^{option}\b", one_sketch, made(**{option: BEYOND[option]}))
    if "k" in options and "linkage" in options:
        refused("k must be a whole number", one_sketch, made(k=2.5))
        alone = made(k=[2, 2])
        refused("none for client 5", alone.sketch, CLIENTS[0], client=5)


PRIVATE = [
    getattr(fl, name)
    for name in clustering.CLUSTERERS
    if "epsilon" in inspect.signature(getattr(fl, name)).parameters
]


@pytest.mark.parametrize("made", PRIVATE)
def test_a_client_never_sends_a_sketch_that_is_not_private_as_asked(made):
    asked = {"epsilon": 1.0, "clip": 2.0}
    seen = {"n_classes": 2} if made is fl.MergeGain else {}
    seen |= {"n_eigenvectors": 3} if made is fl.EigenRelevance else {}
    assert one_sketch(made(**asked, **seen))
    for option, values in {
        "epsilon": (-1, 0, float("nan"), float("inf"), "1", True),
        "clip": (-2, 0, float("nan"), float("inf")),
        "delta": (0, 1, 2, -1e-5, float("nan"), None),
    }.items():
        for wrong in values:
            clusterer = made(**asked | {option: wrong}, **seen)
            refused(f"^{option} must be a number", one_sketch, clusterer)
            if hasattr(clusterer, "compare"):
                own = made(**asked, **seen).sketch(CLIENTS[0])
                refused(f"^{option} must", clusterer.compare, CLIENTS[0], own, own)
    refused("needs clip", one_sketch, made(epsilon=1.0, **seen))


def test_a_client_alone_has_no_more_eigenvectors_than_features():
    says = "6 features do not have 7 eigenvectors"
    refused(says, fl.EigenRelevance(n_eigenvectors=7).sketch, CLIENTS[0])
    refused(says, fl.EigenRelevance(n_eigenvectors=None).sketch, CLIENTS[0], p=7)


def exchanged(clusterer):
    """All sketches and, where there is a second exchange, all answers."""
    sketches = clusterer.sketches(CLIENTS, validation(clusterer))
    return sketches, clusterer._answers(CLIENTS, sketches)


def without_last(sketch):
    """The same arrays, each shorter by one number of a sample."""
    shorter = {name: array[..., :-1] for name, array in sketch.items()}
    if "vectors" in sketch:
        shorter["vectors"] = sketch["vectors"][:-1]
    return shorter


SKETCHING = [*CASES, fl.FedCollab(rounds=3, hidden=4, n_orders=2)]


@pytest.mark.parametrize("clusterer", SKETCHING, ids=lambda one: type(one).__name__)
def test_what_is_no_sketch_is_refused_in_a_sentence(clusterer):
    sketches, answers = exchanged(clusterer)
    server = clone(clusterer)
    for no_list in (None, 5, "abc", dict(enumerate(sketches)), np.array(sketches)):
        refused("Give a list with one sketch", server.fit_sketches, no_list)
    name = next(iter(sketches[0]))
    array = sketches[0][name]
    for rubbish, says in {
        "text": "no dict of arrays but str",
        None: "no dict of arrays but NoneType",
    }.items():
        refused(
            f"^Client 2 sent {says}", server.fit_sketches, edited(sketches, rubbish)
        )
    for rubbish, says in [
        ({}, "a sketch without"),
        ({name: "text"}, "that is no array of numbers"),
        (sketches[2] | {name: array.astype(str)}, "that is no array of numbers"),
        (sketches[2] | {name: array[..., None]}, "of the shape"),
    ]:
        refused(says, server.fit_sketches, edited(sketches, rubbish), answers)
    others = fl.MeanImage() if name == "centroids" else fl.FCR(k=2)
    refused("sketch without", server.fit_sketches, others.sketches(CLIENTS), answers)
    short = edited(sketches, without_last(sketches[2]))
    refused("^Client 2 sent", server.fit_sketches, short, answers)
    if answers:
        refused("needs a second exchange", server.fit_sketches, sketches)
        few = edited(answers, without_last(answers[2]))
        refused("^Client 2 sent 4 values, not", server.fit_sketches, sketches, few)
        one_less = {"vectors": sketches[2]["vectors"][:, :-1]}
        fewer = edited(sketches, sketches[2] | one_less)
        refused("same n_eigenvectors", clusterer.relay, fewer)
        refused("same n_eigenvectors", server.fit_sketches, fewer, answers)


@pytest.mark.parametrize("clusterer", SKETCHING, ids=lambda one: type(one).__name__)
def test_bytes_are_those_of_the_arrays_that_are_sent(clusterer):
    sketches, answers = exchanged(clusterer)
    fitted = clone(clusterer).fit_sketches(sketches, answers)
    found = fitted.bytes_sent()
    if isinstance(clusterer, EMDClustering):  # embeddings, and references in float64
        references = 5 if clusterer.projection else 1
        assert found.tolist() == (8 * fitted.sent_).tolist()
        x = [one.astype(np.float32) for one in CLIENTS]
        y = [[one.astype(np.float32) for one in HELD]] * 6
        half = clone(clusterer).fit(x, y).bytes_sent()
        assert half.tolist() == (4 * fitted.sent_ + 4 * references).tolist()
        return
    expected = np.array([sketch_bytes(one) for one in sketches])
    if answers:
        expected += [sketch_bytes(one) for one in answers]
    if isinstance(clusterer, fl.FedCollab):  # networks of float32
        expected += [4 * int(one["_moved"][0]) for one in sketches]
    assert found.tolist() == expected.tolist()
    del fitted._bytes
    refused("stored result.*fit it again", fitted.bytes_sent)
    refused("not fitted", clone(clusterer).bytes_sent)


def edited(sketches, other):
    """The list with another one at place 2."""
    return [*sketches[:2], other, *sketches[3:]]


@pytest.mark.parametrize("clusterer", CASES, ids=lambda one: type(one).__name__)
def test_newcomers_that_send_no_sketch_are_refused_in_a_sentence(clusterer):
    sketches, answers = exchanged(clusterer)
    fitted = clone(clusterer).fit_sketches(sketches, answers)
    sent = answers or sketches
    for rubbish in (None, [None], [{}], [{"x": np.eye(2)}], ["abc"]):
        refused("Give a list|^Client 0 sent", fitted.place_sketches, rubbish)
    if not isinstance(clusterer, EMDClustering):  # which has no sketch of a newcomer
        other = [without_last(sent[0])]
        refused("^(Newcomer|Client) 0 sent", fitted.place_sketches, other)


@pytest.mark.parametrize("clusterer", CASES[:1] + CASES[2:], ids=repr)
def test_newcomers_are_numbered_after_the_clients_and_may_be_none(clusterer):
    if isinstance(clusterer, EMDClustering):
        fitted = clone(clusterer).fit(CLIENTS)  # one encoder for all
    else:
        fitted = clone(clusterer).fit(CLIENTS, validation(clusterer))
    y = [classes(CLIENTS[0])] if clusterer.labelled else None
    unclear = [np.full_like(CLIENTS[0], np.nan)]
    refused("of client 6 hold NaN", fitted.place, unclear, y)
    if not isinstance(clusterer, fl.PCAKMeans):  # its axes are a client's own
        refused("width|dimension", fitted.place, [CLIENTS[0][:, :4]], y)
    assert fitted.place([], [] if clusterer.labelled else None).tolist() == []


def test_a_newcomer_with_fewer_samples_than_eigenvectors_is_refused():
    fitted = fl.EigenRelevance(2, None).fit(CLIENTS)
    says = "Client 6 has 2 samples, fewer than the 6 eigenvectors"
    refused(says, fitted.place, [CLIENTS[0][:2]])


def test_bad_clients_of_one_clusterer():
    refused("3 clients send 3 in all", fl.FCR(k=1).fit, CLIENTS[:3])
    refused("divide by 255", fl.PCAKMeans().fit, [255 * x for x in CLIENTS])


def test_fit_predict_knows_the_classes_and_a_clone_keeps_its_noise():
    rng = np.random.default_rng(0)
    x, y = [rng.normal(size=(12, 5)) for _ in range(4)], [np.repeat([0, 1], 6)] * 4
    plain, told, found = (fl.PACFL(threshold=60) for _ in range(3))
    assert np.array_equal(found.fit_predict(x, y), told.fit(x, y).labels_)
    assert np.array_equal(found.distance_, told.distance_) and not np.allclose(
        found.distance_, plain.fit(x).distance_
    )
    loud = noisy(fl.MeanImage(n_clusters=2), 50.0)
    assert np.array_equal(clone(loud).fit(x).distance_, loud.fit(x).distance_)
    assert not np.allclose(loud.distance_, fl.MeanImage(n_clusters=2).fit(x).distance_)


def test_a_noisy_clusterer_has_the_options_that_it_is_given_later():
    loud = noisy(fl.FCR(k=2, n_neighbors=3), 0.1).set_params(k=4)
    assert loud.sketches(CLIENTS)[0]["centroids"].shape == (4, 6)
    assert np.array_equal(
        loud.sketches(CLIENTS)[0]["centroids"],
        noisy(fl.FCR(k=4, n_neighbors=3), 0.1).sketches(CLIENTS)[0]["centroids"],
    )
    assert clone(loud).k == 4


def test_fedcollab_numbers_its_clients_from_0():
    collab, y = (
        fl.FedCollab(rounds=2, hidden=3),
        [np.arange(len(x)) % 2 for x in CLIENTS],
    )
    plain, late = collab.sketches(CLIENTS, y), collab.sketches(CLIENTS, y, first=3)
    for one, other in zip(plain, late, strict=True):
        assert np.array_equal(one["divergence"], other["divergence"])


def test_validation_samples_of_emd_are_checked_one_client_at_a_time():
    emd = fl.EMDClustering(0.5)
    refused("Client 7 needs validation samples of all", emd.sketch, CLIENTS[0], HELD, 7)
    narrow = [z[:, :4] for z in HELD]
    refused("of dimension 4, not 6", emd.sketch, CLIENTS[0], narrow, 1)
    empty = [z[:0] for z in HELD]
    refused("Client 0 has no validation", emd.sketch, CLIENTS[0], empty, 1)
    fitted = emd.fit(CLIENTS, [HELD] * 6)
    new, row = CLIENTS[0], [*HELD, HELD[0]]
    assert fitted.place([new], [row]).tolist() == [0]
    refused("all 2 newcomers, not 1", fitted.place, [new, new], [row])
    wrong = [row, [*HELD, HELD[0] * np.nan]]
    says = "under the encoder of newcomer 1 of client 6 hold NaN"
    refused(says, fitted.place, [new, new], wrong)


@pytest.mark.parametrize(
    "clusterer", [fl.FCR(k=2, n_neighbors=3), fl.TransportSignatures(k=2)]
)
def test_a_stored_result_without_centroids_places_nobody(clusterer):
    fitted = clone(clusterer).fit(CLIENTS)
    del fitted.centroids_
    refused("stored result.*fit it again", fitted.place, CLIENTS[:1])


def test_classes_that_are_no_numbers_are_refused_where_they_must_be():
    y = [np.arange(len(x)) % 2 for x in CLIENTS]
    unknown = [np.where(one > 0, np.nan, one) for one in y]
    letters = [np.array(["a", "b"])[one] for one in y]
    collab = fl.FedCollab(rounds=2, hidden=3)
    for clusterer in (fl.PACFL(), collab):
        refused("classes of client 0 are NaN", clusterer.fit, CLIENTS, unknown)
    for wrong in (letters, [one - 1 for one in y], [one / 2 for one in y]):
        refused("Client 0 needs whole numbers from 0", collab.fit, CLIENTS, wrong)
    named = clone(fl.PACFL(n_clusters=2)).fit(CLIENTS, letters)
    assert np.array_equal(named.labels_, fl.PACFL(n_clusters=2).fit(CLIENTS, y).labels_)
