"""The loop over rounds on digits: reproducible, and resumable bit for bit (a killed
run: test_results).
"""

import os
import platform
import signal

import numpy as np
import pytest
from toys import forked, half, logits_of, refused

import fltnb as fl
from fltnb import checkpoint, paths
from fltnb.rounds import participants, run

QUICK = {"model": "mlp", "rounds": 4, "lr": 0.05, "progress": False, "n_workers": 1}


@pytest.fixture(scope="module")
def fed():
    return fl.federations.label_clusters(
        fl.load("digits"), n_clients=10, n_clusters=5, classes_per_cluster=2
    )


def same(a, b):
    assert a.history.drop(columns="seconds").equals(b.history.drop(columns="seconds"))
    assert a.clients.equals(b.clients)
    assert np.array_equal(a.theta, b.theta)


def test_history_and_clients_agree(fed):
    result = run(fl.methods.FedAvg(), fed, **QUICK)
    assert list(result.history["round"].unique()) == [0, 1, 2, 3, 4]
    last = result.history[result.history["split"] == "test"].iloc[-1]
    assert (
        last["accuracy"]
        == result.accuracy
        == pytest.approx(result.clients["test"].mean())
    )
    assert last["variance"] == pytest.approx(result.clients["test"].var(ddof=0))
    assert last["worst"] == result.clients["test"].min()
    sizes = [len(index) for index in fed.test]
    assert last["micro"] == pytest.approx(
        np.average(result.clients["test"], weights=sizes)
    )
    # 2 of 10 clients, 4 rounds, one model of 4 bytes a parameter each way
    assert last["bytes_up"] == last["bytes_down"] == 4 * 2 * 4 * result.theta.shape[1]
    assert (result.confusion.sum(axis=2) == fed.label_counts("test")).all()
    right = np.trace(result.confusion, axis1=1, axis2=2)
    assert np.array_equal(fl.metrics.accuracy(right, sizes), result.clients["test"])
    # recompute one client's accuracy with nothing but the plain network
    import torch

    result = run(fl.methods.Oracle(), fed, **QUICK)
    net = fl.models.make("mlp", fed.input_shape, fed.n_classes)
    x, y = fed.client(7, "test")
    predicted = logits_of(
        net, result.theta[result.rows[7]], torch.from_numpy(x)
    ).argmax(1)
    assert result.clients["test"][7] == pytest.approx(100 * (predicted == y).mean())


def test_a_network_of_the_package_is_given_by_name_or_made(fed):
    made = fl.models.make("mlp32", fed.input_shape, fed.n_classes)
    runs = [run(fl.methods.FedAvg(), fed, net, rounds=1) for net in ("mlp32", made)]
    assert np.array_equal(runs[0].theta, runs[1].theta)
    assert runs[0].settings == runs[1].settings
    other = fl.models.make("mlp32", (1, 9, 9), fed.n_classes)
    refused("1, 9, 9. and 10 outputs, and not", run, fl.methods.FedAvg(), fed, other)
    # it would have the key of the usual one
    more = fl.models.make("mlp32", fed.input_shape, 2 * fed.n_classes)
    refused("and 20 outputs, and not", run, fl.methods.FedAvg(), fed, more)


def test_a_first_training_that_diverges_ends_the_run_and_not_a_grid(fed):
    method = fl.methods.StoCFL()
    with pytest.raises(fl.rounds.DivergedError) as found:
        run(method, fed, "mlp32", rounds=3, participation=0.5, lr=1e30, progress=False)
    assert found.value.run.history["round"].tolist() == [0, 0]
    assert "round 1 of 3: the first training of client" in str(found.value)
    assert "is kept" in found.value.run.stopped


def test_two_runs_are_bit_identical_and_seeds_differ(fed):
    a, b, c = (run(fl.methods.FedSEM(2), fed, **QUICK, seed=seed) for seed in (3, 3, 4))
    same(a, b)
    assert not np.array_equal(a.theta, c.theta)
    often = run(fl.methods.FedAvg(), fed, **QUICK)
    seldom = run(fl.methods.FedAvg(), fed, **QUICK | {"n_workers": 2}, eval_every=3)
    assert np.array_equal(often.theta, seldom.theta)
    assert list(seldom.history["round"].unique()) == [0, 3, 4]


def changing(fed, **options):
    """A run in which clients join and drift before round 4."""
    fed = fl.federations.with_events(fed, [{"round": 4, "join": 3, "drift": 2}])
    fcr, pca = (
        fl.FCR(k=2, n_neighbors=4),
        fl.encoders.EncoderSpec("pca", "digits", latent=8),
    )
    method = fl.methods.DynamicFLT(
        fcr, pca, lam=0, newcomers="nearest", rule="last_local"
    )
    return run(method, fed, **QUICK | {"rounds": 7, "participation": 0.6}, **options)


@pytest.fixture(scope="module")
def whole(fed):
    return changing(fed)


@pytest.mark.parametrize("stop", [3, 4, 5])
def test_resuming_across_a_change_gives_the_same_bits(
    fed, whole, tmp_path, monkeypatch, stop
):
    """Stopped in the round before the change, in it, and after it."""
    monkeypatch.setattr(checkpoint, "SECONDS", 0.0)
    collect = fl.methods.DynamicFLT.collect

    def stopping(self, state, clients, theta, round):
        if round == stop:
            raise KeyboardInterrupt
        return collect(self, state, clients, theta, round)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(fl.methods.DynamicFLT, "collect", stopping)
        changing(fed, checkpoint=tmp_path / "checkpoint.npz")
    again = changing(fed, checkpoint=tmp_path / "checkpoint.npz")
    same(whole, again)
    assert len(whole.clients) == len(whole.rows) == 10
    assert list(whole.labels_at) == list(again.labels_at)
    for round, labels in whole.labels_at.items():
        assert len(labels) == (7 if round < 4 else 10) and np.array_equal(
            labels, again.labels_at[round]
        )


@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_who_may_read_a_file_is_the_users_umask(umask, tmp_path):
    before = os.umask(umask)
    try:
        written = paths.write_text(tmp_path / "state.npz", "a client's sketch")
    finally:
        os.umask(before)
    assert written.stat().st_mode & 0o777 == 0o666 & ~umask


def test_what_a_killed_writer_left_is_removed_by_the_next_and_nothing_else(
    fed, tmp_path
):
    path = tmp_path / "a.npz"
    path.write_bytes(b"old")
    for _ in range(2):  # the second finds what the first left
        child = forked(paths.write_atomically, path, half)
        assert child.exitcode == -signal.SIGKILL
        (left,) = tmp_path.glob(".a.npz.*")
        assert f".{child.pid}." in left.name and path.read_bytes() == b"old"
    living, other, late = (
        tmp_path / f".a.npz.{who}.0123abcd"
        for who in (f"{platform.node()}.1", "elsewhere.1", "afar.2")
    )
    dated = tmp_path / ".a.npz.2023.csv"
    for file in (living, other, late, dated, tmp_path / ".a.npz.mine"):
        file.write_bytes(b"")
    os.utime(late, (0, 0))  # of another machine, where nobody can ask: by its age
    os.utime(dated, (0, 0))
    assert run(
        fl.methods.FedAvg(), fed, **QUICK | {"rounds": 1}, checkpoint=tmp_path / "b.npz"
    )
    assert left.exists()  # another file's
    options = QUICK | {"rounds": 1, "checkpoint": path}
    refused("a.npz is no checkpoint", run, fl.methods.FedAvg(), fed, **options)
    assert {file.name for file in tmp_path.iterdir()} == {
        "a.npz",
        living.name,
        other.name,
        dated.name,
        ".a.npz.mine",
    }
    paths.write_atomically(path, lambda file: file.write(b"new"))
    assert path.read_bytes() == b"new" and not list(tmp_path.glob(f"*.{os.getpid()}.*"))


def test_a_checkpoint_of_other_settings_is_refused(fed, tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "SECONDS", 0.0)
    path = tmp_path / "checkpoint.npz"
    run(fl.methods.FedAvg(), fed, **QUICK, checkpoint=path)
    refused(
        "other settings",
        run,
        fl.methods.FedAvg(),
        fed,
        **QUICK | {"lr": 0.1},
        checkpoint=path,
    )


def test_participants_are_keyed_by_the_round_alone():
    drawn = participants(100, 0.2, seed=5, round=17)
    assert len(drawn) == 20 and len(set(drawn)) == 20 and list(drawn) == sorted(drawn)
    assert np.array_equal(drawn, participants(100, 0.2, seed=5, round=17))
    assert not np.array_equal(drawn, participants(100, 0.2, seed=5, round=18))
    assert len(participants(3, 0.2, 0, 1)) == 1
    assert (
        len(participants(10, 0.3, 0, 1)) == 3
    )  # 0.3 * 10 is a hair under 3 in floating point


def test_watching_a_run_that_goes_on_between_two_evaluations(
    fed, tmp_path, monkeypatch
):
    monkeypatch.setattr(checkpoint, "SECONDS", 0)

    def stops(round, *others):
        if round == 3:
            raise KeyboardInterrupt

    options, seen = QUICK | {"eval_every": 4, "checkpoint": tmp_path / "one.npz"}, []
    with pytest.raises(KeyboardInterrupt):
        run(fl.methods.FedAvg(), fed, **options, watch=stops)
    run(
        fl.methods.FedAvg(),
        fed,
        **options,
        watch=lambda round, state, theta, test: seen.append((round, test is None)),
    )
    assert seen[0][1] and seen[-1] == (4, False)


def test_a_checkpoint_of_another_method_stays_as_it_is(fed, tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "SECONDS", 0.0)
    path = tmp_path / "checkpoint.npz"
    run(fl.methods.FedAvg(), fed, **QUICK, checkpoint=path)
    before = path.read_bytes()
    other = fl.methods.FeSEM(2)  # whose state has other parts
    refused("other settings", run, other, fed, **QUICK, checkpoint=path)
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]


class Counted(fl.methods.FedAvg):
    """Its numbers of scalars are NumPy's."""

    def traffic(self, state, n_parameters):
        return np.int64(n_parameters), np.int64(1)


def test_a_method_that_counts_with_numpy_goes_on(fed, tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "SECONDS", 0.0)
    whole = run(Counted(), fed, **QUICK)
    run(Counted(), fed, **QUICK, checkpoint=tmp_path / "one.npz")
    same(whole, run(Counted(), fed, **QUICK, checkpoint=tmp_path / "one.npz"))
