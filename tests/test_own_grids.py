"""Own networks and own methods in grids: keyed by what they are, and found again."""

from dataclasses import dataclass
from functools import cached_property
from types import ModuleType

import cloudpickle
import numpy as np
import pytest
import torch
from joblib.externals.loky import get_reusable_executor
from torch import nn
from toys import refused

import fltnb as fl
from fltnb.experiments import train as training
from fltnb.owncode import code_of

GROUPS = {"n_clients": 4, "n_clusters": 2, "classes_per_cluster": 3}
CLIENTS = fl.recipe("label_clusters", "digits", **GROUPS)
FCR = fl.FCR(n_clusters=2, n_neighbors=2)


class Net(nn.Module):
    def __init__(self, width=8, scale=1.0, act=torch.relu):
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(64, width)
        self.last = nn.Linear(width, 10)
        self.scale = scale
        self.act = act

    def forward(self, x):
        return self.last(self.act(self.first(self.scale * x.flatten(1))))


class Other(Net):
    def forward(self, x):
        return super().forward(x) + 0.5


def drawn(shape, n_outputs):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.Linear(8, n_outputs))


def training_of(model, method=None, seed=0):
    method = method or fl.methods.FedAvg()
    return fl.Training(CLIENTS, method, model, rounds=2, participation=1.0, seed=seed)


def moved():
    net = Net()
    with torch.no_grad():
        net.last.bias += 1e-6
    return net


@pytest.mark.parametrize("how", ["grid", "processes"])
def test_own_networks_are_computed_in_a_grid_and_found_again(
    how, own_store, monkeypatch
):
    models = {"module": Net(), "function": drawn}

    def run(model, seed):
        return training_of(models[model], seed=seed)

    grid = fl.grid(run, model=list(models), seed=[0, 1])
    n_jobs = 2 if how == "processes" else 1
    # processes of an earlier test would write into its store
    get_reusable_executor().shutdown()
    found = fl.results(grid, compute=True, n_jobs=n_jobs)
    fed = CLIENTS.build()
    for row in found.runs.itertuples():
        options = {"rounds": 2, "participation": 1.0, "seed": row.seed}
        model = models[row.model]
        own = fl.run(fl.methods.FedAvg(), fed, model, **options, progress=False)
        assert row.accuracy == own.clients["test"].mean()

    def never(*given):
        raise AssertionError("it was there")

    monkeypatch.setattr(training, "run", never)
    again = fl.results(fl.grid(run, model=["module"], seed=[0]), compute=True)
    assert again.runs["accuracy"][0] == found.runs["accuracy"][0]


def test_another_weight_structure_code_or_value_is_another_key():
    nets = [Net(), Net(9), Net(scale=2.0), Net(act=torch.tanh), Other(), moved()]
    nets += [drawn, fl.models.own(Net(), head="first"), "mlp"]
    ids = [training_of(net).id for net in nets]
    assert len(set(ids)) == len(ids)
    assert training_of(Net()).id == ids[0]
    # what a function draws depends on the seed
    assert training_of(drawn, seed=1).id != training_of(drawn).id
    assert training_of(Net()).shown["model"] == "Net"


def smoothed(outputs, targets):
    return torch.nn.functional.cross_entropy(outputs, targets, label_smoothing=0.1)


def test_losses_and_class_weights_of_a_grid_are_those_of_a_run(own_store):
    ways = {
        "usual": {},
        "weighted": {"class_weights": (1, 2) * 5},
        "own loss": {"loss": smoothed},
    }

    def run(way):
        given = {"rounds": 2, "participation": 1.0} | ways[way]
        return fl.Training(CLIENTS, fl.methods.FedAvg(), "mlp_plain", **given)

    found = fl.results(fl.grid(run, way=list(ways)), compute=True).runs
    assert found["key"].nunique() == 3
    assert run("usual").settings.keys() & {"loss", "class_weights"} == set()
    for way, own in ways.items():
        given = {"rounds": 2, "participation": 1.0, "progress": False} | own
        alone = fl.run(fl.methods.FedAvg(), CLIENTS.build(), "mlp_plain", **given)
        assert found.set_index("way")["accuracy"][way] == alone.clients["test"].mean()
    few = fl.Training(CLIENTS, fl.methods.FedAvg(), "mlp", 2, class_weights=(1, 2))
    refused("There are 2 class_weights", fl.compute, fl.grid(lambda: few))
    odd = fl.Training(CLIENTS, fl.methods.FedAvg(), "mlp", 2, loss="hinge")
    refused("Unknown loss 'hinge'", fl.compute, fl.grid(lambda: odd))


def test_an_own_method_is_no_other_method_and_does_its_own_work(own_store):
    @dataclass(eq=False, repr=False)
    class Nothing(fl.methods.FLT):  # under FLT's own name
        def collect(self, state, clients, theta, round):
            return super().collect(state, clients, 0 * theta, round)

    methods = {"flt": fl.methods.FLT(FCR), "nothing": Nothing(FCR)}

    def run(method):
        return training_of("mlp_plain", methods[method])

    found = fl.results(fl.grid(run, method=list(methods)), compute=True).runs
    accuracy = found.set_index("method")["accuracy"]
    assert accuracy["nothing"] != accuracy["flt"]
    assert found["key"].nunique() == 2


def test_code_is_the_same_in_every_process_and_follows_what_it_refers_to():
    scale = 2.0

    def helper(x):
        return x in {"a", "b", "c"} or scale

    def own(x, k=3):
        return helper(x) + k

    class Kind:
        limit = 3

        @property
        def size(self):
            return self.limit + scale

        @cached_property
        def half(self):
            return self.size / 2

    other = cloudpickle.loads(cloudpickle.dumps(own))
    assert other is not own and code_of(other) == code_of(own)
    before = code_of(own), code_of(Kind)
    scale = 3.0
    assert code_of(own) != before[0] and code_of(Kind) != before[1]
    scale = 2.0
    assert (code_of(own), code_of(Kind)) == before
    Kind.limit = 4
    assert code_of(Kind) != before[1]
    Kind.limit = 3
    Kind.half = cached_property(lambda self: self.size / 3)
    assert code_of(Kind) != before[1]
    assert code_of(lambda x: x * 2) != code_of(lambda x: x * 3)
    assert code_of(np.mean) != code_of(np.median)


def test_objects_that_are_called_differ_by_class_and_attributes():
    class Loss:
        def __init__(self, scale):
            self.scale = scale

        def __call__(self, outputs, targets):
            return self.scale * outputs.mean()

    class Other(Loss):
        def __call__(self, outputs, targets):
            return self.scale * outputs.sum()

    smooth, weighted = nn.CrossEntropyLoss, nn.CrossEntropyLoss(torch.ones(3))
    made = [Loss(1), Loss(2), Other(1), smooth(), smooth(label_smoothing=0.1)]
    made += [weighted, nn.CrossEntropyLoss(torch.ones(3) / 2), nn.MSELoss()]
    assert len({code_of(one) for one in made}) == len(made)
    for one in made:
        assert code_of(cloudpickle.loads(cloudpickle.dumps(one))) == code_of(one)


def test_arrays_and_collections_that_code_uses_count():
    class Loss:
        def __init__(self, **held):
            vars(self).update(held)

        def of(self, outputs, targets):
            return outputs.mean()

    held = [{"by": {"a": one}} for one in (1, 2)]
    held += [{"by": {1, 2}}, {"by": {1}}]
    held += [{"by": np.full(2, one)} for one in (1.0, 2.0)]
    held += [{"by": torch.full((3,), one)} for one in (1.0, 2.0)]
    held += [{"by": nn.CrossEntropyLoss(label_smoothing=one)} for one in (0.1, 0.2)]
    bound = [Loss(**one).of for one in held]
    assert len({code_of(one) for one in bound}) == len(held)

    def of_global(by):
        own = {"by": by}
        exec("def own(x): return x * by", own)
        return own["own"]

    functions = [of_global(one["by"]) for one in held]
    assert len({code_of(one) for one in functions}) == len(held)
    for one in (*bound, *functions):
        before = code_of(one)
        assert code_of(cloudpickle.loads(cloudpickle.dumps(one))) == before
    unrelated = {"by": 1}
    exec("def own(x): return x.by", unrelated)
    before = code_of(unrelated["own"])
    unrelated["by"] = 2  # no attribute of x
    assert code_of(unrelated["own"]) == before
    around = Loss()
    around.itself = [around.of, {"again": around}]
    assert code_of(around.of) != code_of(Loss().of)


def test_of_what_is_installed_the_name_counts_and_not_what_it_holds(monkeypatch):
    """It may be large, and hold other values in every process."""
    own = {"__name__": "mine"}
    exec("from tqdm import tqdm\nfrom functools import reduce as fold", own)
    exec("def own(x): return fold(max, tqdm(x))", own)
    before = code_of(own["own"])
    own["tqdm"].held = {"bars": 3}
    assert code_of(own["own"]) == before
    del own["tqdm"].held
    monkeypatch.setattr("tqdm.__version__", "0")
    assert code_of(own["own"]) != before
    monkeypatch.undo()
    exec("from itertools import accumulate as fold", own)
    assert code_of(own["own"]) != before

    class Symbol:
        def __array__(self, *_, **__):
            raise TypeError("no number")

    own["fold"] = Symbol()
    assert code_of(own["own"]) != before


def test_code_follows_what_it_uses_of_the_users_own_modules():
    helpers = ModuleType("helpers")
    helpers.inner = ModuleType("helpers.inner")
    helpers.inner.helpers = helpers

    def digest(body):
        exec(body, vars(helpers.inner))
        own = {"helpers": helpers, "np": np}
        exec("def own(x): return helpers.inner.blend(np.mean(x))", own)
        return code_of(own["own"])

    once = digest("def blend(x): return x + LIMIT\nLIMIT = 1")
    assert digest("def blend(x): return x + LIMIT\nLIMIT = 2") != once
    assert digest("def blend(x): return x - LIMIT\nLIMIT = 1") != once
    assert digest("def blend(x): return x + LIMIT\nLIMIT = 1\nother = 1") == once
