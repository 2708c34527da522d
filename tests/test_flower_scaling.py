"""One scale for the nodes of a real federation, from sums; what sketches give away."""

import json
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from sklearn.preprocessing import StandardScaler
from toys import refused

import fltnb as fl
from fltnb import flower
from fltnb.flower import ClusteredFedAvg, scaling
from fltnb.flower.letters import Letter

flower.letters.PAUSE = 0  # nobody is waited for here


def hospitals(sizes=(40, 7, 1, 25, 60)):
    """Rows whose columns are like times, counts, prices, a constant and with gaps."""
    draws = np.random.default_rng(0)
    tables = []
    for i, n in enumerate(sizes):
        rows = draws.normal(size=(n, 5)) + i
        rows[:, 0] = 1.7e9 + np.round(100 * rows[:, 0])
        rows[:, 1] *= 1e-6
        rows[:, 2] = 1e6 * np.exp(rows[:, 2])
        rows[:, 3] = 0.1
        rows[draws.random(n) < 0.2, 4] = np.nan
        tables.append(rows)
    return tables


@pytest.mark.parametrize("sizes", [(40, 7, 1, 25, 60), (1, 1, 1), (500,), (2, 3000)])
def test_the_merged_scale_is_that_of_all_rows_together(sizes):
    tables = hospitals(sizes)
    found = flower.Scaling.merged([scaling.sums_of(rows) for rows in tables])
    pooled = StandardScaler().fit(np.vstack(tables))
    np.testing.assert_allclose(found.mean, pooled.mean_, rtol=1e-12)
    np.testing.assert_allclose(found.scale, pooled.scale_, rtol=1e-12)
    assert found.scale[3] == 1
    some = tables[0]
    expected = pooled.transform(some)
    np.testing.assert_allclose(found.transform(some), expected, rtol=1e-6, atol=1e-6)


def test_rows_that_cannot_be_scaled_are_refused():
    refused("must be numbers", scaling.sums_of, np.zeros((3, 2, 2)))
    refused("must be numbers", scaling.sums_of, [["a", "b"]])
    refused("no rows to scale", scaling.sums_of, np.zeros((0, 2)))
    refused("infinite", scaling.sums_of, [[1.0, np.inf]])
    nothing = scaling.sums_of([[1.0, np.nan]])
    refused(r"columns \[1\]", flower.Scaling.merged, [nothing])
    one = flower.Scaling.merged([scaling.sums_of([[1.0, 2.0]])])
    refused("3 columns", one.transform, np.zeros((1, 3)))


class Record(dict):
    """What stands in for Flower's records, where flwr is not installed."""

    @property
    def config_records(self):
        return {name: one for name, one in self.items() if name == "config"}

    @property
    def array_records(self):
        return {name: one for name, one in self.items() if name == "arrays"}

    metric_records: dict = {}  # noqa: RUF012


@pytest.fixture
def app(monkeypatch):
    """``flwr.app`` as far as a node uses it."""
    made = ModuleType("flwr.app")
    made.RecordDict = made.ArrayRecord = made.ConfigRecord = Record
    made.Array = lambda array: SimpleNamespace(numpy=lambda: array)
    made.Message = lambda content, reply_to=None: SimpleNamespace(
        content=content, has_error=lambda: False
    )
    flwr = ModuleType("flwr")
    flwr.app = made
    monkeypatch.setitem(sys.modules, "flwr", flwr)
    monkeypatch.setitem(sys.modules, "flwr.app", made)
    return made


class Node:
    """A node with its rows, its Flower state, and the two queries of its app."""

    def __init__(self, number, rows, clusterer=None):
        self.rows = rows
        self.context = SimpleNamespace(
            node_config={"partition-id": number}, node_id=number, state=Record()
        )
        self.answers = {"query.scaling": flower.scaling_query(lambda context: rows)}
        if clusterer is not None:
            sketch = flower.sketch_query(clusterer, self.scaled)
            self.answers["query.sketch"] = sketch

    def scaled(self, context):
        return flower.scaling_of(context).transform(self.rows)

    def answer(self, app, kind, letter):
        if kind in self.answers:
            message = app.Message(flower.letters.packed(letter))
            reply = self.answers[kind](message, self.context)
            return flower.letters.unpacked(reply)
        x = self.scaled(self.context)
        # what is trained: the mean of the scaled rows, so that a wrong scale shows
        return Letter({"theta": x.mean(axis=0)}, {"num-examples": len(x), "loss": 0.0})


class Post:
    """Nodes in memory; ``event(post, kind)`` may change who is there."""

    def __init__(self, app, nodes, event=lambda *what: None):
        self.app = app
        self.at = nodes
        self.event = event
        self.asked = []

    def nodes(self):
        return sorted(self.at)

    def ask(self, kind, letters, timeout, group):
        self.event(self, kind)
        answers = {}
        for node, letter in letters.items():
            self.asked.append((kind, node, sorted(letter.arrays)))
            if node in self.at:
                try:
                    answers[node] = self.at[node].answer(self.app, kind, letter)
                except Exception as error:
                    answers[node] = str(error)
        return answers


def post(app, tables, clusterer=None, **more):
    nodes = {100 + i: Node(i, rows, clusterer) for i, rows in enumerate(tables)}
    return Post(app, nodes, **more)


def filled(tables):
    return [np.nan_to_num(rows) for rows in tables]


@pytest.mark.parametrize("clusterer", [None, fl.FCR(k=2, n_neighbors=2)])
def test_nodes_agree_on_the_scale_of_all_rows_before_anything_else(app, clusterer):
    tables = filled(hospitals((40, 9, 6, 25, 60)))
    pooled = StandardScaler().fit(np.vstack(tables))
    nodes = post(app, tables, clusterer)
    server = ClusteredFedAvg(
        clusterer, min_available_nodes=5, scaling="scaling", patience=5
    )
    clients = server.start(nodes, np.zeros(5), rounds=1)
    for node in nodes.at.values():
        kept = flower.scaling_of(node.context)
        np.testing.assert_allclose(kept.mean, pooled.mean_, rtol=1e-12)
        np.testing.assert_allclose(kept.scale, pooled.scale_, rtol=1e-12)
    assert [client["bytes_scaling"] for client in clients] == [4 * 5 * 8] * 5
    labels = np.array([client["label"] for client in clients])
    for cluster in range(len(server.models)):
        rows = np.vstack([tables[i] for i in np.flatnonzero(labels == cluster)])
        expected = pooled.transform(rows).mean(axis=0)
        np.testing.assert_allclose(server.models[cluster], expected, atol=1e-5)


def test_who_comes_later_gets_the_same_scale_and_a_killed_server_goes_on(app, tmp_path):
    tables = filled(hospitals((40, 9, 30, 25)))
    late = Node(9, 1000 + tables[0])

    def event(post, kind):
        if kind == "train" and late not in post.at.values():
            post.at[200] = late
            raise KeyboardInterrupt

    nodes = post(app, tables, event=event)
    file = tmp_path / "state.npz"
    how = {
        "min_available_nodes": 4,
        "scaling": "scaling",
        "checkpoint": file,
        "patience": 5,
    }
    server = ClusteredFedAvg(**how)
    with pytest.raises(KeyboardInterrupt):
        server.start(nodes, np.zeros(5), rounds=2)
    server.start(nodes, np.zeros(5), rounds=1)
    once = StandardScaler().fit(np.vstack([*tables, late.rows]))
    kept = flower.scaling_of(late.context)
    np.testing.assert_allclose(kept.mean, once.mean_, rtol=1e-12)

    # a new run finds nodes that have forgotten, and one more; the scale stays
    for node in nodes.at.values():
        node.context.state.clear()
    nodes.at[300] = Node(11, 5 + tables[1])
    nodes.asked.clear()
    server = ClusteredFedAvg(**how)
    server.start(nodes, np.zeros(5), rounds=2)
    for node in nodes.at.values():
        again = flower.scaling_of(node.context)
        np.testing.assert_array_equal(
            [again.mean, again.scale], [kept.mean, kept.scale]
        )
    told = [ask for ask in nodes.asked if ask[0] == "query.scaling"]
    assert {tuple(names) for _, _, names in told} == {("mean", "scale")}
    assert server.history[1]["nodes"] == 6
    other = ClusteredFedAvg(min_available_nodes=4, checkpoint=file)
    refused("with another clusterer, initial model", other.start, nodes, np.zeros(5), 1)

    # a node whose state is lost while it keeps its id is told again
    def forget(post, kind):
        if kind == "train" and len(forgetful.history) == 1:
            post.at[100].context.state.clear()
            post.event = lambda *what: None

    nodes.event = forget
    forgetful = ClusteredFedAvg(min_available_nodes=6, scaling="scaling", patience=5)
    forgetful.start(nodes, np.zeros(5), rounds=3)
    assert [len(row["clients"]) for row in forgetful.history] == [6, 5, 6]


def test_sums_that_cannot_be_used_are_left_out_with_a_sentence(app, caplog):
    tables = filled(hospitals((40, 9, 30, 25, 9, 9)))
    tables[1] = tables[1][:, :4]
    nodes = post(app, tables)
    nodes.at[102].answer = lambda *what: Letter({}, {"client": "2"})
    bad = scaling.sums_of(tables[3]) | {"squares": np.full(5, -1.0)}
    nodes.at[103].answer = lambda *what: Letter(bad, {"client": "3"})
    nodes.at[105].context.node_config["partition-id"] = 0  # the client of node 100
    late = Node(9, tables[1])
    nodes.event = lambda post, kind: post.at.update({200: late})
    server = ClusteredFedAvg(min_available_nodes=2, scaling="scaling", patience=0)
    server.start(nodes, np.zeros(5), rounds=1)
    assert server.left_out == {
        101: "sent sums of 4 columns, most others 5",
        102: "sent no sums of its columns",
        103: "sent sums that are not finite numbers",
        200: "has 4 columns, others 5",
    }
    pooled = StandardScaler().fit(np.vstack([tables[0], tables[4]]))
    kept = server.agreement.scaling
    np.testing.assert_allclose(kept.mean, pooled.mean_, rtol=1e-12)
    assert "Node 101 is left out: it sent sums of 4 columns" in caplog.text
    lonely = post(app, tables[:2])
    few = ClusteredFedAvg(min_available_nodes=2, scaling="scaling", patience=0)
    assert "columns" in refused("Too few nodes", few.start, lonely, np.zeros(5), 1)
    fresh = Node(0, tables[0])
    refused("has sent no scale yet", flower.scaling_of, fresh.context)


def test_a_sketch_that_holds_as_much_as_the_rows_is_said(app, caplog):
    tables = filled(hospitals((40, 3, 5, 25)))
    clusterer = fl.FCR(k=3, n_neighbors=2, n_clusters=1)
    nodes = post(app, tables, clusterer)
    server = ClusteredFedAvg(
        clusterer, min_available_nodes=4, scaling="scaling", patience=5
    )
    clients = server.start(nodes, np.zeros(5), rounds=0)
    warned = [client["warning"] for client in clients]
    assert [bool(one) for one in warned] == [False, True, False, False]
    assert "Its set of sums has 20 numbers, no fewer than its samples, 15" in warned[1]
    assert "Its sketch has 15 numbers, no fewer than its samples, 15" in warned[1]
    assert f"Client 1: {warned[1]}" in caplog.text
    assert "This node's sketch has" in caplog.text  # the node's own log
    json.dumps(clients)

    caplog.clear()
    private = fl.TransportSignatures(epsilon=1.0, clip=10.0, n_splits=2)
    nodes = post(app, tables, private)
    server = ClusteredFedAvg(
        private, min_available_nodes=4, scaling="scaling", patience=5
    )
    clients = server.start(nodes, np.zeros(5), rounds=0)
    assert not any("sketch" in client["warning"] for client in clients)


def test_a_mean_beyond_all_numbers_leaves_the_others_their_scale():
    rng = np.random.default_rng(0)
    sums = {node: scaling.sums_of(rng.normal(size=(5, 2))) for node in range(3)}
    sums[1]["mean"][0] = 1e308

    def ask(kind, letters):
        if any(letter.arrays for letter in letters.values()):
            return {node: Letter({}, {"columns": 2}) for node in letters}
        return {node: Letter(sums[node], {}) for node in letters}

    agreement = scaling.Agreement("scaling", 2, ask)
    faults = agreement.meet(range(3))
    assert faults == {1: "sent sums that are not finite numbers"}
    assert agreement.told == {0, 2} and np.isfinite(agreement.scaling.mean).all()
