"""The server of a real federation against nodes in memory; with flwr installed also
what goes over the wire.
"""

import importlib.util
import os
import re
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from toys import refused

import fltnb as fl
from fltnb import flower, models, paths, training
from fltnb.flower import ClusteredFedAvg
from fltnb.flower.letters import Letter

FLWR = importlib.util.find_spec("flwr") is not None
FED = fl.federations.label_clusters(
    fl.load("digits"), n_clients=7, n_clusters=3, classes_per_cluster=3
)
PIXELS = [FED.inputs(index).reshape(len(index), -1) for index in FED.train]
GIVEN = [(x, FED.labels[index]) for x, index in zip(PIXELS, FED.train, strict=True)]
MODEL = models.make("mlp_plain", FED.input_shape, FED.n_classes)
START = MODEL.init(0)
SIGNATURES = fl.TransportSignatures(n_splits=2)
flower.letters.PAUSE = 0  # nobody is waited for here
ENGINE = training.make_engine(
    FED, MODEL, training.TrainSpec(batch_size=50, lr=0.1), "serial"
)


class Nodes:
    """Nodes 100, 101, ... of clients in memory; ``event(nodes, kind, round)`` may
    change who is there, ``ill`` how.
    """

    def __init__(self, clusterer, clients=range(4), event=lambda *what: None):
        self.at, self.ill, self.kill = (
            {100 + client: client for client in clients},
            {},
            True,
        )
        self.clusterer, self.event = clusterer, event

    def nodes(self):
        return sorted(self.at)

    def ask(self, kind, letters, timeout, group):
        self.event(self, kind, group)
        told = {
            node: self.answer(kind, self.at[node], letter)
            for node, letter in letters.items()
            if node in self.at
        }
        return {
            node: self.ill.get((self.at[node], kind), lambda well: well)(answer)
            for node, answer in told.items()
        }

    def answer(self, kind, client, letter):
        if kind.startswith("query"):
            own = self.clusterer.sketch(
                *GIVEN[client][: 1 + self.clusterer.labelled], client=client
            )
            if letter.arrays:
                own = self.clusterer.compare(
                    PIXELS[client], own, letter.arrays, client, letter.notes["place"]
                )
            number = str(client)
            own = {} if number in letter.notes.get("known", ()) else own
            return Letter(
                {name: array for name, array in own.items() if name[0] != "_"},
                {"client": number},
            )
        if kind == "evaluate":
            return Letter({}, {"accuracy": 50.0})
        done = ENGINE.train(
            letter.arrays["theta"][None], [0], [client], letter.notes["server-round"]
        )
        return Letter(
            {"theta": done.theta[0]},
            {"num-examples": len(FED.train[client]), "loss": float(done.loss[0])},
        )


FOUR = (
    SIGNATURES,
    fl.MergeGain(16, n_classes=10),
    fl.EigenRelevance(3),
    fl.FCR(n_neighbors=3, threshold=0.3),
)


@pytest.mark.parametrize("clusterer", [*FOUR, None])
def test_clusters_and_models_are_those_of_a_simulation(clusterer):
    server = ClusteredFedAvg(clusterer, min_available_nodes=7)
    clients = server.start(Nodes(clusterer, range(7)), START, rounds=2)
    method = fl.methods.FLT(clusterer) if clusterer else fl.methods.FedAvg()
    run = fl.run(
        method,
        FED,
        "mlp_plain",
        2,
        1,
        1.0,
        batch_size=50,
        lr=0.1,
        backend="serial",
        progress=False,
    )
    np.testing.assert_allclose(
        server.models[[one["label"] for one in clients]],
        run.theta[run.rows],
        rtol=0,
        atol=1e-6,
    )
    if clusterer:
        assert [one["label"] for one in clients] == run.labels.tolist()
        own = clusterer.sketch(*GIVEN[0][: 1 + clusterer.labelled])
        sent = sum(array.nbytes for name, array in own.items() if name[0] != "_")
        assert clients[0]["bytes_sketch"] == sent + 8 * 6 * hasattr(
            clusterer, "relay"
        )  # relevances of the others
    assert (clients[0]["bytes_up"], clients[0]["accuracy"]) == (
        2 * 4 * MODEL.n_parameters,
        50.0,
    )


def test_nodes_leave_and_join_and_a_killed_server_goes_on(tmp_path):
    def event(nodes, kind, group):
        if (kind, group) == ("train", "2"):
            nodes.at = {
                100: 0,
                102: 2,
                104: 4,
                105: 5,
                106: 6,
            }  # 4 is of a known group, 5 and 6 of a new one
        if (kind, group) == ("train", "3") and nodes.kill:
            raise KeyboardInterrupt

    nodes, file = Nodes(SIGNATURES, event=event), tmp_path / "state.npz"
    server = ClusteredFedAvg(
        SIGNATURES, min_available_nodes=4, min_train_nodes=2, checkpoint=file
    )
    with pytest.raises(KeyboardInterrupt):
        server.start(nodes, START, rounds=4)
    nodes.kill, nodes.at = (
        False,
        {node + 50: client for node, client in nodes.at.items()},
    )  # Flower names them anew
    clients = server.start(nodes, START, rounds=4)
    took_part = [[0, 1, 2, 3], [0, 2], [0, 2, 4, 5, 6], [0, 2, 4, 5, 6]]
    assert [row["clients"] for row in server.history] == took_part
    labels = np.array([one["label"] for one in clients])
    np.testing.assert_array_equal(
        labels[:, None] == labels, FED.clusters[:, None] == FED.clusters
    )
    theta = np.repeat(START[None], 3, axis=0)
    for round, who in enumerate(took_part, 1):  # the same rounds by hand
        trained = ENGINE.train(theta, labels[who], who, round).theta
        for cluster in set(labels[who]):
            mine = labels[who] == cluster
            theta[cluster] = np.average(
                trained[mine], axis=0, weights=FED.sizes[who][mine]
            )
    np.testing.assert_allclose(server.models, theta, rtol=0, atol=1e-6)
    refused(
        "with another clusterer, initial model",
        ClusteredFedAvg(fl.FCR(), checkpoint=file).start,
        nodes,
        START,
        4,
    )
    file.write_bytes(b"half of it")
    refused("is damaged", server.start, nodes, START, 4)


def test_what_cannot_be_used_is_left_out_with_a_sentence(caplog):
    nodes, spoilt = Nodes(SIGNATURES, range(7)), "query.sketch"
    nodes.at[200] = 0
    nodes.ill = {
        (1, spoilt): lambda well: well._replace(
            arrays={k: a[..., :9] for k, a in well.arrays.items()}
        ),
        (2, spoilt): lambda well: well._replace(arrays={}),
        (3, spoilt): lambda well: well._replace(
            arrays={k: a * np.nan for k, a in well.arrays.items()}
        ),
        (4, "train"): lambda well: well._replace(
            arrays={"theta": well.arrays["theta"] * np.nan}
        ),
        (5, "train"): lambda well: well._replace(
            arrays={"theta": well.arrays["theta"][:9]}
        ),
        (6, "train"): lambda well: "ZeroDivisionError: division by zero",
    }
    (server := ClusteredFedAvg(SIGNATURES, min_available_nodes=4, patience=0)).start(
        nodes, START, rounds=1
    )
    assert server.left_out.pop(101).startswith(
        "sent a sketch of the widths {'first': (9,)"
    )
    nan, twice = (
        "sent a sketch with NaN or infinite values",
        "is client 0, and so is node 100",
    )
    assert server.left_out == {102: "sent no sketch", 103: nan, 200: twice}
    assert server.history[0]["clients"] == [0]
    for text in (
        "Client 4 sent no theta of 15010 finite",
        "Client 5 sent no theta",
        "division by zero",
    ):
        assert text in caplog.text
    few = ClusteredFedAvg(SIGNATURES, min_available_nodes=5, patience=0)
    assert "sent no sketch" in refused("Too few nodes", few.start, nodes, START, 1)
    refused("one node per cluster", ClusteredFedAvg, fl.FCR(3), min_available_nodes=2)
    refused("exchange networks first", ClusteredFedAvg, fl.EMDClustering())
    if not FLWR:
        refused("make flower", ClusteredFedAvg(SIGNATURES).start, object(), START, 1)


def test_a_node_says_what_it_cannot_read():
    class Garbled:
        def numpy(self):
            raise ValueError("no array")

    content = SimpleNamespace(array_records={"arrays": {"mean": Garbled()}})
    message = SimpleNamespace(has_error=lambda: False, content=content)
    with pytest.raises(fl.FltnbError, match=r"cannot use .its arrays cannot be"):
        flower.sketch_query(SIGNATURES, lambda context: PIXELS)(message, None)


@pytest.mark.skipif(not FLWR, reason="flwr is not installed: make flower")
def test_a_node_answers_with_its_sketch_and_nothing_else():
    from flwr.app import Context, Message, RecordDict
    from flwr.supercore.task_identity import TaskIdentity

    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1

    def ask(clusterer, *known):
        content = flower.letters.packed(Letter({}, {"known": list(known)}))
        context = Context(1, 5, {"partition-id": 3}, RecordDict(), {})
        answer = flower.sketch_query(
            clusterer, lambda context: GIVEN[3][: 1 + clusterer.labelled]
        )
        return flower.letters.unpacked(
            answer(Message(content, 5, "query.sketch"), context)
        )

    sent, notes = ask(SIGNATURES)
    assert notes == {"client": "3", "held": PIXELS[3].size}
    own = {
        name: array
        for name, array in SIGNATURES.sketch(PIXELS[3], client=3).items()
        if name[0] != "_"
    }
    np.testing.assert_equal(sent, own)
    assert not ask(SIGNATURES, "3").arrays
    how = {
        "epsilon": 1.0,
        "clip": 10.0,
    }  # draws are no function of the app's settings, but features are everybody's
    for private in (fl.TransportSignatures(**how), fl.MergeGain(n_classes=10, **how)):
        one, other = ask(private).arrays, ask(private).arrays
        assert not np.array_equal(
            *(
                sent["products" if private.labelled else "first"]
                for sent in (one, other)
            )
        )
        np.testing.assert_array_equal(one.get("about"), other.get("about"))
    noisy = fl.EigenRelevance(3, noise=0.1)  # of a known seed, noise could be removed
    one, other = ask(noisy).arrays, ask(noisy).arrays
    assert not np.array_equal(one["vectors"], other["vectors"])


@pytest.mark.skipif(not FLWR, reason="needs flwr")
def test_the_blocks_of_the_page_run():
    text = (paths.ROOT / "docs" / "flower.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text, flags=re.M | re.S)
    assert len(blocks) == 2
    for block in blocks:
        exec(compile(block, "flower.md", "exec"), {})


@pytest.mark.skipif(
    not (FLWR and os.environ.get("FLTNB_SLOW")),
    reason="minutes: needs flwr, and FLTNB_SLOW=1",
)
@pytest.mark.parametrize("how", [(), ("--disturb",)])
def test_a_federation_of_processes(how):
    subprocess.run(
        [sys.executable, paths.ROOT / "examples" / "flower" / "local.py", *how],
        check=True,
    )


def with_notes(**notes):
    return lambda well: well._replace(notes=well.notes | notes)


def with_theta(theta):
    return lambda well: well._replace(arrays={"theta": theta})


def test_answers_of_any_type_do_not_stop_a_run():
    def as_text(well):
        texts = {name: np.full(one.shape, "x") for name, one in well.arrays.items()}
        return well._replace(arrays=texts)

    nodes = Nodes(SIGNATURES, range(7))
    nodes.ill = {
        (0, "query.sketch"): with_notes(held="many"),
        (1, "query.sketch"): with_notes(client="north"),
        (2, "query.sketch"): as_text,
        (3, "train"): with_notes(**{"num-examples": [1, 2], "loss": "low"}),
        (4, "train"): with_theta(np.full(START.shape, "x")),
        (5, "train"): with_theta(np.full(START.shape, 1e300)),  # infinite as float32
        (6, "evaluate"): with_notes(label=77, number=99),
    }
    server = ClusteredFedAvg(SIGNATURES, min_available_nodes=5, patience=0)
    clients = server.start(nodes, START, rounds=1)
    assert server.left_out == {
        101: "sent no number of a client",
        102: "sent 'first' that is no array of numbers",
    }
    assert server.history[0]["clients"] == [0, 3, 6]
    assert [one["number"] for one in clients] == [0, 3, 4, 5, 6]
    assert clients[4]["label"] != 77
    assert np.isfinite(server.models).all()


def test_newcomers_that_cannot_be_clustered_do_not_stop_a_run():
    def event(nodes, kind, group):
        if (kind, group) == ("train", "2"):
            nodes.at |= {105: 5}

    def twice(well):
        shares = {n: 2 * a for n, a in well.arrays.items() if n.endswith("shares")}
        return well._replace(arrays=well.arrays | shares)

    nodes = Nodes(SIGNATURES, range(4), event)
    nodes.ill = {(5, "query.sketch"): twice}
    server = ClusteredFedAvg(SIGNATURES, min_available_nodes=4, patience=0)
    clients = server.start(nodes, START, rounds=3)
    assert len(server.history) == 3
    assert [one["number"] for one in clients] == [0, 1, 2, 3]
    said = "cannot be clustered with the others (The shares that client 5 sent sum to 2"
    assert server.left_out[105].startswith(said)


def test_who_cannot_compare_itself_with_others_is_left_out():
    def second(change):
        return lambda well: change(well) if "relevance" in well.arrays else well

    def with_relevance(change):
        def changed(well):
            return well._replace(arrays={"relevance": change(well.arrays["relevance"])})

        return second(changed)

    spoilt = {
        1: (second(lambda well: "KeyError: 'x'"), "failed with KeyError: 'x'"),
        2: (second(lambda well: well._replace(arrays={})), "sent no sketch"),
        3: (with_relevance(lambda r: r * np.nan), "sent a sketch with NaN"),
        4: (with_relevance(lambda r: r[:2]), "sent arrays of the shapes"),
        5: (with_relevance(lambda r: r.astype(str)), "sent 'relevance' that is no"),
    }
    eigen = fl.EigenRelevance(2)
    for client, (ill, why) in spoilt.items():
        nodes = Nodes(eigen, range(7))
        nodes.ill = {(client, "query.sketch"): ill}
        server = ClusteredFedAvg(eigen, min_available_nodes=6, patience=60)
        clients = server.start(nodes, START, rounds=1)
        assert [one["number"] for one in clients] == [*{*range(7)} - {client}]
        assert server.left_out[100 + client].startswith(why)

    failures = iter([True])  # once: its app starts again
    nodes.ill = {
        (1, "query.sketch"): second(lambda well: "E" if next(failures, 0) else well)
    }
    server = ClusteredFedAvg(eigen, min_available_nodes=6, patience=60)
    assert len(server.start(nodes, START, rounds=1)) == 7 and not server.left_out


def test_a_new_group_gets_no_model_of_clients_that_are_absent():
    def event(nodes, kind, group):
        if (kind, group) == ("train", "1"):  # cluster 1 goes, and 2 comes
            nodes.at = {100 + c: c for c in np.flatnonzero(FED.clusters != 1)}

    eigen = fl.EigenRelevance(None)
    first = np.flatnonzero(FED.clusters != 2)
    server = ClusteredFedAvg(eigen, min_available_nodes=2, patience=0)
    clients = server.start(Nodes(eigen, first, event), START, rounds=3)
    assert [one["label"] for one in clients] == FED.clusters.tolist()
    assert len(server.models) == 3


def test_settings_that_cannot_work_are_refused_before_any_message():
    def start(initial=START, rounds=1, clusterer=SIGNATURES, **settings):
        nodes = Nodes(SIGNATURES, event=lambda *what: pytest.fail("a message"))
        how = {"min_available_nodes": 4, "patience": 0} | settings
        ClusteredFedAvg(clusterer, **how).start(nodes, initial, rounds)

    for rounds in (-1, 2.5, "3", True):
        refused("rounds must be a whole number of at least 0", start, rounds=rounds)
    for name, value in {
        "timeout": 0,
        "patience": "x",
        "min_available_nodes": 4.5,
    }.items():
        refused(f"{name} must be a", start, **{name: value})
    for initial in (START.astype(int), START * np.nan, np.stack([START, START])):
        refused("initial must be one model", start, initial)
    for clusterer in ("fcr", fl.FCR, fl.methods.FedAvg()):
        refused("have sketch and fit_sketches", start, clusterer=clusterer)
    refused("exchange networks", start, clusterer=fl.FedCollab())
    refused("give n_classes", start, clusterer=fl.MergeGain())
    refused("needs clip", start, clusterer=fl.MergeGain(n_classes=10, epsilon=1.0))
    refused("k must be", start, clusterer=fl.FCR(k="many"))
    refused("is a folder", start, checkpoint=paths.ROOT)


def test_a_checkpoint_is_found_again_and_fits_the_rounds(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    nodes = Nodes(None, event=lambda *what: None)

    def server():
        return ClusteredFedAvg(min_available_nodes=4, checkpoint="~/state.npz")

    server().start(nodes, START, rounds=2)
    (again := server()).start(nodes, START, rounds=3)
    assert [row["round"] for row in again.history] == [1, 2, 3]
    refused("has 3 rounds, and rounds=2", server().start, nodes, START, 2)
    assert server().start(nodes, START, rounds=0)  # its clusters only
    (other := server()).training = training.TrainSpec(lr=0.2)
    refused("another .* training", other.start, nodes, START, 3)
    (tmp_path / "state.npz").write_text("notes")
    refused("name another file, or delete", server().start, nodes, START, 3)


def test_the_server_says_why_nodes_failed_before_it_gives_up():
    nodes = Nodes(SIGNATURES)
    nodes.ill = {(3, "query.sketch"): lambda well: "KeyError: 'data'"}
    server = ClusteredFedAvg(SIGNATURES, min_available_nodes=4, patience=0)
    text = refused("Too few nodes", server.start, nodes, START, 1)
    assert "node 103 failed with KeyError: 'data'" in text


def test_the_server_says_for_how_many_nodes_it_waits(caplog):
    caplog.set_level("INFO", "flwr")
    server = ClusteredFedAvg(SIGNATURES, min_available_nodes=5, patience=0.05)
    text = refused("Too few nodes", server.start, Nodes(SIGNATURES), START, 1)
    assert "4 are connected, and min_available_nodes=5" in text
    assert caplog.text.count("Waiting for nodes: 4 of 5 are connected.") == 1


def test_a_tensor_is_an_initial_model():
    import torch

    theta = torch.tensor(START, requires_grad=True)
    server = ClusteredFedAvg(min_available_nodes=4)
    server.start(Nodes(None), theta, rounds=1)
    assert server.models.dtype == np.float32


@pytest.mark.parametrize("number", ["north", -1, 3.7, None])
def test_a_node_refuses_a_number_that_is_none(number):
    context = SimpleNamespace(node_config={"partition-id": number}, node_id=5)
    refused("partition-id must be a whole", flower.letters.client_of, context)
