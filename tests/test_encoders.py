import threading
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from toys import refused

from fltnb import data, federations, paths
from fltnb.encoders import (
    EncoderSpec,
    embed_clients,
    enc1,
    enc2,
    networks,
    pretrain,
    pretraining,
    sent_parameters,
)
from fltnb.experiments import saving

SMALL = EncoderSpec(
    "convae", "digits", epochs=2, finetune_epochs=1, latent=6, batch_size=32, lr=3e-3
)

pytestmark = pytest.mark.usefixtures("own_store")


@pytest.fixture(scope="module")
def fed(digits):
    return federations.label_clusters(digits, 10, 5, 2, 0, seed=0)


def cache_files():
    return sorted((paths.store() / "encoders").glob("*"))


def weights_of(spec):
    """Weights of a network for digits, without the shape that is kept with them."""
    weights = pretrain(spec)
    weights.pop("input_shape")
    return weights


def test_published_parameter_counts():
    convae = networks.make("convae", (1, 28, 28), 128)
    assert (
        sum(value.numel() for value in networks.encoder_state(convae).values())
        == 25_956
    )
    assert (
        convae.expand.out_features == 196 and convae.up2.out_channels == 1
    )  # two poolings; one channel out
    residual = [
        networks.make("residual", (3, 32, 32), e) for e in (64, 128)
    ]  # the public code's CIFAR encoder
    counts = [sum(p.numel() for p in net.parameters()) for net in (convae, *residual)]
    assert counts == [51_577, 812_123, 877_723]  # the first is that of FLT, Table 13


@pytest.mark.parametrize("shape", [(1, 28, 28), (1, 8, 8), (3, 32, 32), (2, 8, 12)])
def test_convae_equals_the_plain_layers(shape):
    torch.manual_seed(0)
    net = networks.make("convae", shape, 5).double()
    x = torch.rand(3, *shape, dtype=torch.float64)
    h = F.max_pool2d(F.relu(net.conv1(x)), 2)
    h = F.max_pool2d(F.relu(net.conv2(h)), 2)
    z = net.embed(h.flatten(1))
    y = torch.sigmoid(
        net.up2(F.relu(net.up1(net.expand(z).view(3, 4, shape[1] // 4, shape[2] // 4))))
    )
    slow = F.mse_loss(y, x)
    expected = torch.autograd.grad(slow, list(net.parameters()))
    torch.testing.assert_close(net.encode(x), z, rtol=0, atol=1e-12)
    torch.testing.assert_close(net(x), y, rtol=0, atol=1e-12)
    fast = net.loss(x)
    torch.testing.assert_close(fast, slow, rtol=0, atol=1e-12)
    for got, want in zip(
        torch.autograd.grad(fast, list(net.parameters())), expected, strict=True
    ):
        torch.testing.assert_close(got, want, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", ["convae", "residual"])
def test_shapes_follow_the_data(kind):
    net = networks.make(kind, (1, 8, 8), 7).eval()
    x = torch.rand(2, 1, 8, 8)
    assert net.encode(x).shape == (2, 7)
    assert net(x).shape == x.shape
    torch.testing.assert_close(net.loss(x), F.mse_loss(net(x), x))
    refused("multiples of 4", networks.make, kind, (1, 1, 64), 7)


def test_one_adam_step_by_hand():
    torch.manual_seed(0)
    net = networks.make("convae", (1, 8, 8), 4)
    x = torch.rand(5, 1, 8, 8)
    before = {name: p.detach().clone() for name, p in net.named_parameters()}
    gradients = torch.autograd.grad(net.loss(x), list(net.parameters()))
    networks.train(net, x, [np.arange(5)], 64, networks.adam(net, 1e-2))
    for (name, p), g in zip(net.named_parameters(), gradients, strict=True):
        # Adam's first step is lr * g / (|g| + eps)
        torch.testing.assert_close(
            p.detach(), before[name] - 1e-2 * g / (g.abs() + 1e-8), rtol=1e-3, atol=2e-5
        )


def test_an_unknown_variant_of_an_encoder_is_refused():
    for make in (enc1, enc2):
        refused("Unknown variant 'as_ran'", make, "mnist", variant="as_ran")


def test_defaults_are_the_papers_enc1_and_numbers_sent():
    spec = EncoderSpec()
    assert (spec.kind, spec.pretrain, spec.latent, spec.finetune_epochs) == (
        "convae",
        "emnist_balanced",
        128,
        0,
    )
    shape = (1, 28, 28)
    assert sent_parameters(EncoderSpec(), shape) == 25_956
    assert sent_parameters(EncoderSpec(finetune_epochs=5), shape) == 51_577
    assert sent_parameters(EncoderSpec("pca", latent=10), shape) == 11 * 784
    assert sent_parameters(EncoderSpec("pixels"), shape) == 0
    whole = EncoderSpec("residual", "cifar20", finetune_epochs=1, latent=64)
    # five BatchNorm layers of the encoder keep a mean and a variance per channel
    assert sent_parameters(whole, (3, 32, 32)) == 812_123 + 2 * (
        64 + 128 + 128 + 64 + 8
    )


def test_pretraining_learns_and_is_cached(digits, monkeypatch):
    x = torch.from_numpy(federations.to_inputs(digits.images[digits.train_index]))
    losses = []
    for epochs in (0, 2, 6):
        weights = weights_of(replace(SMALL, epochs=epochs))
        losses.append(networks.load("convae", (1, 8, 8), 6, weights).loss(x).item())
    assert losses[0] > 1.2 * losses[1] > 1.2 * losses[2]
    assert len(cache_files()) == 3

    monkeypatch.setattr(
        networks, "fitted", None
    )  # from now on only the cache can answer
    again = pretrain(replace(SMALL, epochs=6))
    for name, value in weights.items():
        np.testing.assert_array_equal(again[name], value)
    pretrain(
        replace(SMALL, epochs=6, finetune_epochs=3)
    )  # fine-tuning does not concern pretraining
    with pytest.raises(TypeError):
        pretrain(replace(SMALL, epochs=6, lr=1e-3))


def test_pretraining_depends_on_the_seed_alone(tmp_path, monkeypatch):
    first = pretrain(SMALL)
    monkeypatch.setenv("FLTNB_STORE", str(tmp_path / "other"))
    torch.manual_seed(99)
    state = torch.random.get_rng_state()
    second, other = pretrain(SMALL), pretrain(replace(SMALL, seed=1))
    assert torch.equal(state, torch.random.get_rng_state())
    assert all(np.array_equal(second[name], value) for name, value in first.items())
    assert (first["embed.weight"] != other["embed.weight"]).any()


@pytest.mark.parametrize("kind", ["convae", "residual"])
@pytest.mark.parametrize("damaged", [False, True])
def test_pretraining_continues_after_a_kill(monkeypatch, kind, damaged):
    spec = replace(SMALL, kind=kind, epochs=3)
    few = data.pretraining_set("digits")
    few = few.subset(few.train_index[:64])
    monkeypatch.setattr(pretraining, "pretraining_set", lambda name: few)
    shown = few.images, "digits", False
    whole = networks.fitted(spec, *shown, paths.store() / "none")
    monkeypatch.setattr(networks, "PAUSE", 0.0)
    train, epochs = networks.train, []

    def killed(*given):
        if len(epochs) == 2:
            raise KeyboardInterrupt
        epochs.append(given)
        train(*given)

    monkeypatch.setattr(networks, "train", killed)
    with pytest.raises(KeyboardInterrupt):
        pretrain(spec)
    (left,) = cache_files()
    if damaged:
        left.write_bytes(left.read_bytes()[:-9])

    epochs.clear()
    monkeypatch.setattr(
        networks, "train", lambda *given: epochs.append(given) or train(*given)
    )
    warned = pytest.warns(UserWarning, match=left.name) if damaged else nullcontext()
    with warned:
        found = weights_of(spec)
    assert len(epochs) == (3 if damaged else 1)
    assert found.keys() == whole.keys()
    for name, value in whole.items():
        np.testing.assert_array_equal(found[name], value)
    (only,) = cache_files()  # the unfinished one is gone
    assert only.stem == left.stem and only != left


@pytest.mark.parametrize(
    "damage", ["cut", "flipped bit", "empty", "not a file of weights"]
)
def test_damaged_cache_is_named_and_only_it_recomputed(damage):
    spec, kept = replace(SMALL, epochs=0), EncoderSpec("pca", "digits", latent=3)
    expected = pretrain(spec)
    pretrain(kept)
    sizes = {path: path.stat().st_mtime_ns for path in cache_files()}
    path = max(cache_files(), key=lambda p: p.stat().st_size)
    content = path.read_bytes()
    flipped = content[:-5] + bytes([content[-5] ^ 1]) + content[-4:]
    path.write_bytes(
        {"cut": content[:-100], "empty": b"", "flipped bit": flipped}.get(
            damage, b"x" * 999
        )
    )
    with pytest.warns(UserWarning, match=path.name):
        weights = pretrain(spec)
    for name, value in expected.items():
        np.testing.assert_array_equal(weights[name], value)
    pretrain(kept)
    assert [p for p, time in sizes.items() if p.stat().st_mtime_ns != time] == [path]
    assert cache_files() == sorted(sizes)  # nothing temporary left


def test_pixels_and_pca(fed):
    pixels = embed_clients(fed, EncoderSpec("pixels"))
    assert [z.shape for z in pixels] == [(n, 64) for n in fed.sizes]
    np.testing.assert_array_equal(
        pixels[3], fed.images[fed.train[3]].reshape(-1, 64).astype(np.float32) / 255
    )
    spec = EncoderSpec("pca", "digits", latent=5)
    weights = pretrain(spec)
    z = embed_clients(fed, spec)
    np.testing.assert_allclose(
        z[3], (pixels[3] - weights["mean"]) @ weights["components"].T, atol=1e-6
    )
    assert z[3].dtype == np.float32


def test_fine_tuning_starts_from_the_same_weights_and_ignores_the_jobs(fed):
    threads = torch.get_num_threads()
    before = {thread.ident for thread in threading.enumerate()}
    one, two = (embed_clients(fed, SMALL, n_jobs=n) for n in (1, 2))
    assert torch.get_num_threads() == threads
    assert {thread.ident for thread in threading.enumerate()} <= before
    assert [z.shape for z in one] == [(n, 6) for n in fed.sizes]
    for a, b in zip(one, two, strict=True):
        np.testing.assert_array_equal(a, b)

    # by hand: the pretrained weights, this client's own order, its own tuned encoder
    net = networks.load("convae", (1, 8, 8), 6, weights_of(SMALL))
    x = torch.from_numpy(fed.client(4)[0])
    untuned = net.encode(x).detach().numpy()
    start = net.loss(x).item()
    order = networks.stream(SMALL.seed, "finetune", 4, 0).permutation(len(x))
    networks.train(net, x, [order], SMALL.batch_size, networks.adam(net, SMALL.lr))
    assert net.loss(x).item() < start
    np.testing.assert_allclose(one[4], net.encode(x).detach().numpy(), atol=1e-5)
    assert np.abs(one[4] - untuned).max() > 1e-2
    frozen = embed_clients(fed, replace(SMALL, finetune_epochs=0))
    np.testing.assert_allclose(frozen[4], untuned, atol=1e-5)


def test_a_relay_hands_one_network_on_and_its_steps_die_away(fed, monkeypatch):
    """Who is first tunes the pretrained network, who is second that one, more slowly.

    The learning rate is half. Computed by hand.
    """
    monkeypatch.setattr(networks, "HALVED_EVERY", 2)
    spec = replace(SMALL, finetune_epochs=2, tuning="relay")
    found = embed_clients(fed, spec)
    order = networks.stream(spec.seed, "finetune").permutation(fed.n_clients)
    net = networks.load("convae", (1, 8, 8), 6, weights_of(SMALL))
    adam = networks.adam(net, spec.lr)
    for turn, i in enumerate(order):
        adam.param_groups[0]["lr"] = spec.lr / 2**turn
        x = torch.from_numpy(fed.client(i)[0])
        for batch in 2 * torch.arange(len(x)).split(spec.batch_size):
            adam.zero_grad()
            F.mse_loss(net(x[batch]), x[batch]).backward()
            adam.step()
        np.testing.assert_allclose(found[i], net.encode(x).detach().numpy(), atol=1e-4)
    # only the first two move before the steps are too small
    monkeypatch.setattr(networks, "STILL", spec.lr / 2)
    still = embed_clients(fed, spec)
    same = [np.array_equal(still[i], found[i]) for i in order]
    assert same[:2] == [True, True] and not any(same[2:])


@pytest.mark.parametrize("tuning", ["alone", "relay"])
def test_embeddings_of_tuned_encoders_outlive_a_kill(fed, monkeypatch, tuning):
    """Clients that have tuned their encoder do not do so again, on the same data only.

    A relay is kept once it is through.
    """
    spec = replace(SMALL, tuning=tuning)
    plain = embed_clients(fed, spec)
    tuned, asked = [], []
    one, all_ = networks.tuned, networks.relayed

    def slow(fed, spec, weights, client):
        if len(tuned) == 4 and not asked:
            raise KeyboardInterrupt
        tuned.append(client)
        return one(fed, spec, weights, client)

    def slow_relay(*given):
        for turn, own in enumerate(all_(*given)):
            if turn == 4 and not asked:
                raise KeyboardInterrupt
            tuned.append(turn)
            yield own

    monkeypatch.setattr(networks, "tuned", slow)
    monkeypatch.setattr(networks, "relayed", slow_relay)
    with pytest.raises(KeyboardInterrupt):
        embed_clients(fed, spec, n_jobs=1, cache=saving.cached_arrays)
    asked.append("again")
    for _ in range(2):
        found = embed_clients(fed, spec, n_jobs=1, cache=saving.cached_arrays)
        assert len(tuned) == (10 if tuning == "alone" else 14)
        for mine, other in zip(found, plain, strict=True):
            np.testing.assert_array_equal(mine, other)

    half = replace(fed, train=[index[::2] for index in fed.train])
    for other in ((half, spec), (fed, replace(spec, seed=1))):
        tuned.clear()
        embed_clients(*other, n_jobs=1, cache=saving.cached_arrays)
        assert len(tuned) == 10


def test_embeddings_that_take_no_tuning_are_not_kept(fed):
    embed_clients(fed, replace(SMALL, finetune_epochs=0), cache=saving.cached_arrays)
    assert not (paths.store() / "arrays").exists()


def test_batchnorm_embeds_each_image_by_itself(fed):
    spec = EncoderSpec("residual", "digits", epochs=0, latent=4)
    # statistics that a batch of eight images would not have
    weights = {
        n: v + 1 if n.endswith("running_mean") else v
        for n, v in weights_of(spec).items()
    }
    net = networks.load("residual", (1, 8, 8), 4, weights).eval()
    z = networks.tuned(fed, spec, weights, 0)
    x = torch.from_numpy((fed.client(0)[0] - 0.5) / 0.5)
    torch.set_num_threads(2)
    with torch.no_grad():
        alone = torch.cat([net.encode(x[i : i + 1]) for i in range(8)]).numpy()
        together = net.train().encode(x[:8]).numpy()
        as_run = torch.cat([net.encode(x[i : i + 1]) for i in range(8)]).numpy()
    np.testing.assert_allclose(z[:8], alone, atol=1e-5)
    z_as_run = networks.tuned(fed, replace(spec, batch_norm="image"), weights, 0)
    np.testing.assert_allclose(z_as_run[:8], as_run, atol=1e-5)
    assert np.abs(z[:8] - together).max() > 1e-2


def test_residual_fine_tunes_with_a_last_batch_of_one(fed):
    spec = EncoderSpec(
        "residual",
        "digits",
        epochs=0,
        finetune_epochs=1,
        latent=4,
        batch_size=int(fed.sizes[0]) - 1,
    )
    part = replace(fed, train=fed.train[:1], test=fed.test[:1], val=None, clusters=None)
    assert np.isfinite(embed_clients(part, spec)[0]).all()


def test_bad_input(fed):
    for name, bad in {
        "epochs": 1.5,
        "latent": 0,
        "batch_size": 0,
        "lr": np.nan,
        "seed": -1,
    }.items():
        refused(f"{name} must be a", EncoderSpec, **{name: bad})
    refused("Unknown kind", EncoderSpec, "vae")
    refused("nothing to fine-tune", EncoderSpec, "pca", finetune_epochs=1)
    refused(
        "65 principal components", pretrain, EncoderSpec("pca", "digits", latent=65)
    )
    refused("Pretraining of .* diverged: lower lr", pretrain, replace(SMALL, lr=1e38))
    refused(
        "pretraining set",
        embed_clients,
        fed,
        replace(SMALL, pretrain="emnist_unbalanced"),
    )
    before = threading.active_count()
    wild = replace(SMALL, epochs=0, finetune_epochs=2, lr=1e38)
    refused("diverged on client 0", embed_clients, fed, wild, n_jobs=2)
    assert threading.active_count() == before  # nothing computes on after an error
