"""The arena: a stranger's method through the whole way, and every part by hand."""

import shutil
import time

import numpy as np
import pandas as pd
import pytest
from toys import refused

import fltnb as fl
from fltnb import arena, methods, models, paths, training
from fltnb.__main__ import main
from fltnb.arena import card as cards
from fltnb.arena import files, guard, page, play, statistics, tracks, tuning, wrong_k
from fltnb.arena import table as tables
from fltnb.arena.entry import PLAYERS, SPACES, entry
from fltnb.arena.verify import at_sight
from fltnb.errors import FltnbError
from fltnb.experiments.key import NUMERICS

TOY = '''
import time
from dataclasses import dataclass, replace

import numpy as np

from fltnb.methods import Method, State, mix
from fltnb.settings import Share


@dataclass(eq=False, repr=False)
class Blend(Method):
    """FedAvg whose clients are served a blend with the initial model."""

    name = "toy_blend"
    space = {"own": (0.0, 0.5, "linear")}
    own: Share = 0.1

    def start(self, fed, model, context):
        self.at_start(fed)
        theta = model.init(context.seed)
        row = np.zeros(fed.n_clients, dtype=np.int64)
        models = np.repeat(theta[None], 2, axis=0)
        return State(models=models, row=row, weights=fed.sizes * 1.0)

    def at_start(self, fed):
        pass

    def collect(self, state, clients, theta, round):
        share = state.weights[clients]
        mean = mix(share[None] / share.sum(), theta)
        models = np.vstack([self.own * state.models[1:] + (1 - self.own) * mean,
                            state.models[1:]])
        return replace(state, models=models)


class Peeks(Blend):
    name = "peeks"
    def at_start(self, fed):
        fed.test[0]

class Clustered(Blend):
    name = "clustered"
    def at_start(self, fed):
        np.unique(fed.clusters)

class Validates(Blend):
    name = "validates"
    def observe(self, state, clients, round, engine):
        engine.evaluate(state.models, [0], [0], "val")
        return state

class Measures(Blend):
    name = "measures"
    def observe(self, state, clients, round, engine):
        engine.evaluate(state.models, [0], [0], "test")
        return state

class Allowed(Validates):
    name = "allowed"
    needs = frozenset({"validation", "true clusters"})
    def at_start(self, fed):
        assert len(np.unique(fed.clusters)) == 5 and not fed.settings
        assert np.asarray(fed.val[0]).size

class Wide(Blend):
    name = "wide"
    def collect(self, state, clients, theta, round):
        return replace(state, models=theta[:, 1:])

class Lost(Blend):
    name = "lost"
    def collect(self, state, clients, theta, round):
        return replace(state, models=theta * np.nan)

class Endless(Blend):
    name = "endless"
    def at_start(self, fed):
        while True:
            try:
                sum(range(1000))
            except Exception:
                pass

class Waits(Blend):
    name = "waits"
    def at_start(self, fed):
        time.sleep(3600)

class NoStart(Method):
    name = "none"

class NoCollect(Method):
    name = "none"
    start = Blend.start

class NoName(Method):
    start = Blend.start
    collect = Blend.collect

class Needy(Blend):
    name = "needy"
    needs = frozenset({"labels"})

class Untold(Blend):
    name = "untold"
    needs = frozenset({"n_clusters"})

class NoSpace(Blend):
    name = "nospace"
    space = {}

class BadSpace(Blend):
    name = "badspace"
    space = {"own": (0.0, 0.5, "cubic")}

class OddSpace(Blend):
    name = "oddspace"
    space = {"lr": [0.1]}

@dataclass(eq=False, repr=False, kw_only=True)
class Asks(Blend):
    name = "asks"
    n_clusters: int

@dataclass(eq=False, repr=False, kw_only=True)
class AsksMore(Blend):
    name = "asksmore"
    depth: int

class FedAvg(Blend):
    name = "other"

class Leaves(Blend):
    name = "leaves"
    def collect(self, state, clients, theta, round):
        raise SystemExit

not_a_class = 3
'''


@pytest.fixture
def toy(tmp_path, own_store, monkeypatch):
    """Write the toy methods; return what names one of them."""
    monkeypatch.setenv("FLTNB_FIGURES", str(tmp_path / "figures"))
    file = tmp_path / "toy.py"
    file.write_text(TOY, encoding="utf-8")
    return lambda name: f"{file}:{name}"


def one(where, seed=0, limit=play.LIMIT, **changes):
    """Numbers of a run on the easiest cell, or another one."""
    place = {"track": "told-K", "family": "labels", "level": 0} | changes
    cell = tracks.cell(**place, seed=seed, demo=True)
    return play.played(play.Task(where, cell, seed, {}, limit=limit), entry(where))


# ---- the methods of this package


@pytest.fixture
def own_table(tmp_path, own_store, monkeypatch):
    """Keep the table in a folder of the test's own, and play one level only."""
    monkeypatch.setattr(tables, "folder", lambda demo: tmp_path / "arena")
    monkeypatch.setattr(tracks, "LEVELS", ("easy",))
    return tmp_path / "arena" / "runs.csv"


def table(methods, seeds, **options):
    return arena.everybody(methods, ["few-samples"], seeds, demo=True, **options)


def test_methods_of_the_package_share_seeds_and_are_found_again(own_table, capsys):
    both = ["FedAvg", "Local"]
    first = table(both, [0], compute=True)
    assert str(first) == "4 of 4 runs, 2 methods, 2 cells, seeds 0."
    assert first.runs["machine"].tolist() == [0] * 4 and len(first.machines) == 1
    text = own_table.read_text(encoding="utf-8")
    # what is there is read, what is not is counted and nothing else happens
    again = table(both, [0, 1])
    assert str(again) == "4 of 8 runs, 2 methods, 2 cells, seeds 0."
    for name in ("accuracy", "worst", "seconds"):
        assert again.runs[name].tolist() == first.runs[name].tolist()
    assert own_table.read_text(encoding="utf-8") == text
    assert str(again.whole()) == str(first)
    # more runs join those that are there, and everybody is paired with everybody
    more = table(both, [0, 1], compute=True)
    assert len(more.runs) == 8 and len(own_table.read_text().splitlines()) == 9
    pairs = statistics.scores(more.runs)
    assert pairs.notna().all(axis=None) and pairs.shape == (4, 2)
    # alone is better than one model for all where classes differ
    ranks = more.ranks()
    rows = more.rows()
    assert [row["method"] for row in rows] == list(ranks.index)
    assert rows[0]["rank"] == ranks.iloc[0] and rows[0]["runs"] == 4


def test_runs_of_an_earlier_version_of_a_method_are_no_results(own_table, monkeypatch):
    table(["FedAvg", "Local"], [0], compute=True)
    monkeypatch.setitem(NUMERICS, "fedavg", 99)
    left = table(["FedAvg", "Local"], [0])
    assert set(left.runs["method"]) == {"Local"} and left.asked == {0: 4}
    refused("No seed has all its runs", left.whole)
    monkeypatch.setitem(NUMERICS, "core", 99)
    refused("No run of these methods", table, ["FedAvg", "Local"], [0])


def test_runs_of_a_method_that_this_version_lacks_stay_in_the_table(
    own_table, monkeypatch
):
    table(["FedAvg"], [0], compute=True)
    text = own_table.read_text(encoding="utf-8")
    own_table.write_text(text.replace("FedAvg", "FedOld"), encoding="utf-8")
    table(["Local"], [0], compute=True)
    lines = pd.read_csv(own_table)
    assert lines.groupby("method").size().to_dict() == {"FedOld": 2, "Local": 2}


def played_runs(method):
    tasks = tables._asked(tables.players([method]), ["few-samples"], [0], demo=True)
    return play.play(list(tasks.values()))


def test_every_run_has_a_machine_even_if_writing_is_interrupted(own_table, monkeypatch):
    def killed(path, text):
        written(path, text)
        raise KeyboardInterrupt

    written = paths.write_text
    runs = played_runs("FedAvg")
    monkeypatch.setattr(paths, "write_text", killed)
    lines = files.read(own_table.parent, {})
    with pytest.raises(KeyboardInterrupt):
        lines.add(runs, {"FedAvg": "1"})
    assert not own_table.exists()
    assert (own_table.parent / "machines.json").is_file()


def test_two_processes_add_to_one_table(own_table):
    one, other = (files.read(own_table.parent, {}) for _ in range(2))
    one.add(played_runs("FedAvg"), {"FedAvg": "1"})
    other.add(played_runs("Local"), {"Local": "1"})
    lines = pd.read_csv(own_table)
    assert lines.groupby("method").size().to_dict() == {"FedAvg": 2, "Local": 2}
    assert len(other.runs) == 4 and len(other.machines) == 1


def test_what_is_asked_for_twice_is_there_once(own_table):
    given = {"demo": True, "methods": ["FedAvg", "Local"]}
    twice = {"played": ["drift", "drift"], "seeds": [0, 0]}
    arena.everybody(played=["drift"], seeds=[0], compute=True, **given)
    for several in (arena.everybody, arena.everybody_tuned):
        assert len(several(**twice, **given).ranks()) == 2


def test_what_cannot_be_computed_is_told_once(own_table, monkeypatch):
    def nothing(dataset):
        raise FltnbError("There are no data.")

    monkeypatch.setattr(tracks, "_images", nothing)
    refused("No run of these .* could be computed", table, ["Local"], [0], compute=True)
    told = []
    given = {"methods": ["FedProx"], "played": ["drift"], "demo": True}
    with pytest.raises(FltnbError, match="No cell has all its runs"):
        arena.everybody_tuned(**given, compute=True, tell=told.append)
    # of the families that were asked for, and of no others
    assert told == [
        f"{one} is left out: There are no data." for one in ("labels", "rotated")
    ]
    rules = arena.Rules("told-K", demo=True)
    with pytest.raises(FltnbError, match="No cell of this track can run here"):
        arena.compete("FedAvg", rules, tell=told.append)
    assert [line.partition(" is")[0] for line in told[2:]] == [
        "labels",
        "rotated",
        "opinions",
    ]


def test_an_unknown_method_or_track_is_refused(own_table):
    refused("Unknown method 'Nobody'", table, ["Nobody"], [0])
    refused("Unknown track 'wrong'", arena.everybody, ["FedAvg"], ["wrong"])


def test_arena_all_plays_the_methods_of_the_package(own_table, monkeypatch, capsys):
    monkeypatch.setattr(tables, "PLAYERS", ("FedAvg",))
    asked = ["arena", "all", "--demo", "--track", "drift"]
    assert main(asked) == 0
    assert "10 of 10 runs, 1 method, 2 cells, seeds 0, 1, 2, 3, 4." in (
        capsys.readouterr().out
    )


def test_the_tuned_table_keeps_trials_and_takes_untuned_runs_where_nothing_is_tuned(
    own_table, monkeypatch, capsys
):
    monkeypatch.setattr(tables, "PLAYERS", ("FedProx", "Local"))
    both = {"played": ["drift"], "seeds": [0, 1], "demo": True}
    refused("No cell has all its runs", arena.everybody_tuned, **both)
    untuned = arena.everybody(**both, compute=True)
    text = own_table.read_text(encoding="utf-8")
    found = arena.everybody_tuned(**both, compute=True)
    assert str(found) == "8 of 8 runs, 2 methods, 2 cells, seeds 0, 1."
    assert own_table.read_text(encoding="utf-8") == text

    # the best of five trials by validation samples plays with the table's seeds
    lines = pd.read_csv(own_table.parent / "tuned" / "runs.csv")
    assert set(lines["method"]) == {"FedProx"} and len(lines) == 2 * (5 + 2)
    best = found.runs[found.runs["method"] == "FedProx"]
    for family, trials in lines[lines["seed"] == tuning.SEED].groupby("family"):
        chosen = set(best.loc[best["family"] == family, "options"])
        tied = trials[trials["accuracy"] == trials["accuracy"].max()]
        assert len(chosen) == 1 and chosen <= set(tied["options"])
    usual = found.runs[found.runs["method"] == "Local"]
    stored = untuned.runs[untuned.runs["method"] == "Local"]
    assert sorted(usual["accuracy"]) == sorted(stored["accuracy"])
    assert usual["options"].isna().all() and len(found.machines) == 2

    # nothing is played again, and other spaces are other runs
    monkeypatch.setattr(play, "played", None)
    again = arena.everybody_tuned(**both, compute=True)
    assert again.runs["accuracy"].tolist() == found.runs["accuracy"].tolist()
    monkeypatch.setitem(SPACES, "FedProx", {"mu": [0.1]})
    refused("No cell has all its runs", arena.everybody_tuned, **both)


def test_arena_all_tuned_plays_the_tuned_table(own_table, monkeypatch, capsys):
    monkeypatch.setattr(tables, "PLAYERS", ("FedProx",))
    asked = ["arena", "all", "--tuned", "--demo", "--track", "drift"]
    assert main(asked) == 0
    out = capsys.readouterr().out
    assert "6 of 6 runs, 1 method, 2 cells, seeds 0, 1, 2." in out


def test_tuning_goes_on_where_its_budget_ended(own_table, monkeypatch):
    given = {"methods": ["FedProx"], "played": ["drift"], "seeds": [0], "demo": True}
    monkeypatch.setattr(play, "USUAL", 5.0)
    told = []
    with pytest.raises(FltnbError, match="No cell has all its runs"):
        arena.everybody_tuned(**given, compute=True, budget=5.0, tell=told.append)
    assert told == ["5 of 5 runs are left: the same command continues."]
    assert len(arena.everybody_tuned(**given, compute=True).runs) == 2


def test_a_wrong_k_is_told_and_runs_of_the_table_are_not_played_again(
    own_table, monkeypatch
):
    monkeypatch.setattr(wrong_k, "LEVEL", "easy")
    monkeypatch.setattr(wrong_k, "TOLD", ("IFCA", "FLT"))
    monkeypatch.setattr(wrong_k, "UNTOLD", ("Local",))
    monkeypatch.setattr(wrong_k, "OFF", (-1, 0, 2))
    monkeypatch.setitem(tracks.TRACKS, "told-K", ("rotated",))
    only = {"seeds": [0], "demo": True}
    refused("No run is stored", arena.everybody_wrong_k, **only)
    in_table = ["IFCA", "Local"]
    usual = arena.everybody(in_table, ["told-K"], [0], demo=True, compute=True)
    found = arena.everybody_wrong_k(**only, compute=True)
    assert str(found) == "9 of 9 runs, 3 methods, 3 cells, seeds 0."
    assert str(found.whole()) == str(found)

    # IFCA with the true number and Local at each are those of the table
    lines = pd.read_csv(own_table.parent / "wrong_k" / "runs.csv")
    told = list(zip(lines["method"], lines["options"], strict=True))
    assert told == [
        ("FLT", '{"n_clusters": 3}'),
        ("FLT", '{"n_clusters": 4}'),
        ("FLT", '{"n_clusters": 6}'),
        ("IFCA", '{"n_clusters": 3}'),
        ("IFCA", '{"n_clusters": 6}'),
    ]
    assert (found.runs["failed"] == "").all()
    accuracy = found.runs.set_index(["method", "off"])["accuracy"]
    same = usual.runs.set_index("method")["accuracy"]
    assert accuracy["IFCA", 0] == same["IFCA"]
    assert accuracy["Local"].tolist() == [same["Local"]] * 3

    # what was told is what the method was given
    cell = tracks.cell("told-K", "rotated", 0, 0, demo=True)
    for off in (-1, 2):
        method = methods.IFCA(n_clusters=4 + off)
        by_hand = fl.run(method, cell.build(), cell.model, seed=0, **cell.training)
        mean = by_hand.clients["test"].mean()
        assert accuracy["IFCA", off] == pytest.approx(mean, abs=1e-6)

    # nothing is played twice; a federation is one pair, however many numbers were told
    monkeypatch.setattr(play, "played", None)
    again = arena.everybody_wrong_k(**only, compute=True)
    assert again.runs["accuracy"].tolist() == found.runs["accuracy"].tolist()
    (pair,) = statistics.compared(again.runs, "IFCA", ["Local"])
    assert pair["pairs"] == 1
    gap = accuracy["IFCA"].mean() - same["Local"]
    assert pair["difference"] == pytest.approx(gap, abs=1e-4)

    # by the numbers that both were told, if runs are missing
    runs = again.runs[(again.runs["method"] != "FLT") | (again.runs["off"] == 2)]
    (pair,) = statistics.compared(runs, "IFCA", ["FLT"])
    gap = accuracy["IFCA", 2] - accuracy["FLT", 2]
    assert pair["difference"] == pytest.approx(gap, abs=1e-4)


def test_arena_all_wrong_k_plays_all_and_takes_no_track(own_table, monkeypatch, capsys):
    monkeypatch.setattr(wrong_k, "LEVEL", "easy")
    monkeypatch.setattr(wrong_k, "TOLD", ("FLHC",))
    monkeypatch.setattr(wrong_k, "UNTOLD", ())
    asked = ["arena", "all", "--wrong-k", "--demo"]
    assert main(asked) == 0
    out = capsys.readouterr().out
    assert "75 of 90 runs, 1 method, 15 cells, seeds 0, 1, 2, 3, 4." in out
    for more in (["--track", "drift"], ["--tuned"]):
        assert main([*asked, *more]) == 2
        assert "without --track and --tuned" in capsys.readouterr().err
    assert main(["arena", "IFCA", "--wrong-k"]) == 2


def test_a_place_for_a_card_and_options_without_a_use_are_refused_first(
    toy, tmp_path, capsys
):
    card = tmp_path / "card.md"  # where its page goes
    for out in (card, tmp_path):
        assert main(["arena", toy("Blend"), "--demo", "--out", str(out)]) == 2
        assert "A card cannot be written to" in capsys.readouterr().err
    for more in (["FedAvg"], ["--demo"], ["--jobs", "2"], ["--budget", "10m"]):
        assert main(["arena", "--verify", str(card), *more]) == 2
        assert "--verify takes a card and nothing else" in capsys.readouterr().err


# ---- the whole way


def test_a_strangers_method_goes_the_whole_way_and_a_changed_card_is_caught(
    toy, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(cards, "SEEDS", 1)
    out = tmp_path / "out" / "card.json"
    asked = ["arena", toy("Blend"), "--demo", "--track", "few-samples"]
    assert main([*asked, "--out", str(out)]) == 0
    assert "| Blend | 6 | 0 |" in capsys.readouterr().out
    card = arena.read(out)
    others = list(card["statistics"]["means"])
    assert others == ["Blend", "Local", "FedAvg", "FedRep", "Ditto", "Oracle"]
    assert card["complete"] and card["method"]["source"] == TOY
    assert len(card["runs"]) == 6 * len(others)
    assert card["environment"]["packages"]["numpy"] == np.__version__
    text = out.with_suffix(".md").read_text(encoding="utf-8")
    assert "few-samples/rotated/hard" in text and "- Oracle: " in text
    assert (tmp_path / "figures" / "demo" / "arena_Blend.png").is_file()

    # again, everything is there already
    begun = time.monotonic()
    again = arena.compete(toy("Blend"), arena.Rules("few-samples", demo=True))
    assert again["runs"] == card["runs"] and time.monotonic() - begun < 10

    # it holds; one number that is changed does not, and never the statistics
    few = card | {"runs": card["runs"][:6]}
    few["statistics"] = statistics.summary(few["runs"], "Blend")
    told = []
    assert arena.verify(few, seed=3, tell=told.append) == []
    assert told == ["2 of 6 runs are computed again, drawn by 3."]
    for row in few["runs"]:
        row["accuracy"] += 1
    wrong = arena.verify(few, seed=3, tell=told.append)
    assert len(wrong) == 3 and "statistics are not those" in wrong[0]
    assert "accuracy is" in wrong[1] and "and the card says" in wrong[1]
    few["runs"][0]["options"] = {"own": 0.25}
    assert "neither the defaults nor a trial" in at_sight(few, entry(toy("Blend")))[1]
    twice = few | {"runs": few["runs"][:1] * 2}
    assert at_sight(twice, entry(toy("Blend"))) == ["Some run is listed twice."]
    few["runs"][0]["options"] = {}
    few["method"]["digest"] = "0"
    few["seeds"] = [1]
    said = at_sight(few, entry(toy("Blend")))
    assert said[0].startswith("The source is not") and len(said) == 3


def test_what_is_no_card_of_this_format_is_refused(tmp_path):
    old = tmp_path / "old.json"
    old.write_text('{"format": 0}', encoding="utf-8")
    refused(
        "old.json is a card of format 0, and this version reads format 1",
        arena.read,
        old,
    )
    assert main(["arena", "--verify", str(old)]) == 2
    old.write_text('{"format": 1}', encoding="utf-8")
    refused("is a card without cells", arena.read, old)
    old.write_text("no card", encoding="utf-8")
    refused("is not a card of the arena", arena.read, old)
    absent = tmp_path / "absent.json"
    refused("absent.json cannot be read .No such file.*: give the", arena.read, absent)


def test_tuning_takes_the_best_of_five_trials_for_each_cell(toy):
    who = entry(toy("Blend"))
    cell = tracks.cell("told-K", "labels", 0, tuning.SEED, demo=True)
    best = play.tuned([who, entry("FedAvg")], [cell])
    trials = tuning.trials(who.space)
    scores = []
    for one in trials:
        task = play.Task(who.where, cell, tuning.SEED, one, validated=True)
        scores.append(play.stored(task)["accuracy"])
    assert len(scores) == 5 and len(set(scores)) > 1
    assert best == {"Blend told-K/labels/easy": trials[int(np.argmax(scores))]}
    tested = tracks.validated(cell.build())
    assert tested.test is not tested.val and tested.test == tested.val


def test_a_budget_ends_between_runs_and_the_next_call_goes_on(toy, monkeypatch):
    seeds = cards.seeds_of(entry(toy("Blend")))
    cells = [tracks.cell("told-K", "labels", 0, seed, demo=True) for seed in seeds]
    tasks = []
    for seed, cell in zip(seeds, cells, strict=True):
        tasks.append(play.Task("FedAvg", cell, seed, {}))
    monkeypatch.setattr(play, "USUAL", 5.0)
    told = []
    monkeypatch.setattr(play.time, "monotonic", iter(np.arange(0, 999, 2.0)).__next__)
    first = play.play(tasks, budget=9.0, tell=told.append)
    monkeypatch.undo()
    assert 0 < len(first) < 5 and f"{5 - len(first)} of 5 runs are left" in told[0]


def test_a_budget_too_small_for_a_cell_is_refused(toy):
    refused("budget of 1 s is too small for one run", play.check_limits, 1.0, 1)
    only = {"methods": ["Local"], "demo": True, "compute": True, "jobs": 0}
    refused("jobs must be a whole number of at least 1", arena.everybody, **only)
    asked = ["arena", "FedAvg", "--demo", "--budget"]
    assert main([*asked, "1s"]) == main([*asked, "soon"]) == 2
    assert main(["arena", "all", "--demo", "--budget", "1s"]) == 2
    tuned = ["arena", "all", "--tuned", "--demo", "--budget", "1s"]
    assert main(tuned) == 2
    assert main(["arena", "all", "--demo", "--jobs", "0"]) == 2


# ---- who takes part


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("Missing", "toy.py has no class Missing"),
        ("FedAvg", "FedAvg is the name of a method of this package"),
        ("not_a_class", "not_a_class is no subclass of fl.methods.Method"),
        ("NoStart", "NoStart has no start"),
        ("NoCollect", "NoCollect has no collect"),
        ("NoName", "NoName has no name"),
        ("Needy", "needs of Needy must be a frozenset of n_clusters"),
        ("Untold", "names n_clusters, which is not its option"),
        ("Asks", "Asks needs n_clusters, which has no default: declare it"),
        ("AsksMore", "The option depth of AsksMore has no default"),
        ("BadSpace", "must have a list of values or"),
        ("OddSpace", "names lr, which is no option that can be tuned"),
    ],
)
def test_a_class_without_the_contract_is_told_which_part_is_missing(toy, name, says):
    refused(says, entry, toy(name))


def test_names_of_our_clusterers_and_needs_that_are_no_words_are_refused(tmp_path):
    mine = tmp_path / "mine.py"
    lines = ["from fltnb.methods import FedAvg", "class MergeGain(FedAvg): ..."]
    lines += ["class Careless(FedAvg):", "    name, needs = 'careless', None"]
    mine.write_text("\n".join(lines), encoding="utf-8")
    refused("MergeGain is the name of a method of", entry, f"{mine}:MergeGain")
    refused("needs of Careless must be a frozenset", entry, f"{mine}:Careless")


def test_what_cannot_be_imported_is_refused(toy, tmp_path):
    refused("There is no file", entry, str(tmp_path / "no.py:A"))
    (tmp_path / "bad.py").write_text("import nothing_like_it", encoding="utf-8")
    refused("bad.py cannot be imported", entry, str(tmp_path / "bad.py:A"))
    (tmp_path / "bad.py").write_text("raise SystemExit", encoding="utf-8")
    refused("bad.py cannot be imported", entry, str(tmp_path / "bad.py:A"))
    (tmp_path / "mine.txt").write_text("class A: ...", encoding="utf-8")
    refused("mine.txt is not a Python file", entry, str(tmp_path / "mine.txt:A"))
    refused("Unknown method 'Blend'", entry, "Blend")
    refused("There is no file", entry, str(tmp_path / "no.py"))
    two = tmp_path / "two.py"
    two.write_text("from pathlib import Path\nclass A: ...\nclass B: ...")
    for where in (two, f"{two}:"):
        said = refused("two.py is a file, and", entry, str(where))
        assert said.endswith(f": give {two}:A or {two}:B.")
    refused("two.py has no class C: give .*two.py:A or", entry, f"{two}:C")
    two.write_text("")
    refused("it has none, so write one", entry, str(two))
    refused("Unknown track 'x'", arena.cells, 0, "x")
    refused("declares no space", arena.compete, toy("NoSpace"), arena.Rules(tuned=True))
    assert main(["arena"]) == 2
    refused("Unknown track 'x'", arena.Rules, "x")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("Peeks", "Peeks uses test samples, which no method may"),
        ("Measures", "Measures uses test samples"),
        ("Clustered", "Clustered uses true clusters without declaring it"),
        ("Validates", "Validates uses validation without declaring it"),
    ],
)
def test_what_a_class_does_not_say_that_it_looks_at_is_refused(toy, name, says):
    refused(says, one, toy(name))


def test_an_engine_asked_for_no_split_tests_on_test_samples(toy, tmp_path):
    mine = tmp_path / "mine.py"
    lines = ["from fltnb.methods import FedAvg", "class Measures(FedAvg):"]
    lines += ["    name = 'measures'", "    def observe(self, state, *_):"]
    lines += ["        _[-1].evaluate(state.models, [0], [0])", "        return state"]
    mine.write_text("\n".join(lines), encoding="utf-8")
    refused("Measures uses test samples, which no method may", one, f"{mine}:Measures")


def test_what_a_class_says_that_it_looks_at_it_sees(toy):
    assert one(toy("Allowed"))["failed"] == ""


def test_newcomers_without_labels_show_none(toy, monkeypatch):
    cell = tracks.cell("newcomers", "no labels", 0, 0, demo=True)
    fed = cell.build()
    hidden = cell.counted(fed, 0)
    method = guard.guarded(entry("Local"), hidden)()
    seen = method._arena_veil(fed)
    method._arena_hide(fed)
    zero = [not seen.client(client)[1].any() for client in range(fed.n_clients)]
    assert zero == hidden.tolist() and hidden.any()
    assert fed.client(int(hidden.argmax()))[1].any()
    assert one("Oracle", track="newcomers", family="no labels")["failed"] == ""
    # nor does an engine that the method asks to test or to train them
    last = fed.phases[-1].fed
    net = models.make("mlp32", last.input_shape, last.n_classes)
    spec = training.TrainSpec(lr=0.1)
    with training.make_engine(last, net, spec, "serial") as engine:
        theta = net.init(0)[None]
        theta[:, net.head] = 0.0
        theta[0, net.head.stop - last.n_classes] = 50.0  # always says class 0
        method._arena_hide(last)
        veiled = method._arena_engine(engine)
        everybody = np.arange(fed.n_clients)
        rows = np.zeros_like(everybody)
        found = veiled.evaluate(theta, rows, everybody, "train")
        honest = engine.evaluate(theta, rows, everybody, "train")
        assert np.array_equal(found.correct == found.total, hidden)
        seen = ~hidden
        assert np.array_equal(found.correct[seen], honest.correct[seen])
        trained = veiled.train(theta, rows, everybody, 1).theta
        plain = engine.train(theta, rows, everybody, 1).theta
        assert np.allclose(trained[seen], plain[seen])
        assert not np.allclose(trained[hidden], plain[hidden])


CLUSTERED = ["IFCA", "CLoVE", "FedEM", "FedSoft", "FLHC", "FeSEM", "StoCFL"]


@pytest.mark.parametrize("name", CLUSTERED)
@pytest.mark.parametrize("family", ["labels", "no labels"])
def test_clustered_methods_take_in_newcomers(name, family):
    numbers = one(name, track="newcomers", family=family)
    assert numbers["failed"] == "" and numbers["bytes"] > 0


NOT_TUNED = {"FedAvg", "FedSGD", "FedPer", "Local", "Oracle", "FedSEM", "FedEM"}
NOT_TUNED |= {"FedRC", "HypoCluster", "FedClust"}  # no option with a range


def test_every_method_of_the_package_can_be_made_for_a_cell_and_tuned():
    assert set(SPACES) <= set(PLAYERS)
    assert set(methods.METHODS) - set(SPACES) == NOT_TUNED
    for name in PLAYERS:
        who = entry(name)
        for options in [{}, *tuning.trials(who.space)]:
            who.kind(**who.options(4, "mnist", options))
    assert entry("FLHC").options(4, "mnist", {"after": 3}) == {
        "n_clusters": 4,
        "after": 3,
    }
    assert entry("CLoVE").options(4, "mnist", {}) == {}
    # an option that the class does not have is its clusterer's
    made = entry("MergeGain").options(4, "mnist", {"n_features": 91})["clusterer"]
    assert made.n_features == 91 and entry("PACFL").options(4, "mnist", {}) == {}


def test_samples_that_are_only_for_testing_are_black(toy):
    fed = tracks.cell("told-K", "labels", 0, 0, demo=True).build()
    seen = guard.veiled(fed, entry("FedAvg"))
    for client, own in enumerate(seen.test):
        assert not seen.images[own].any() and not seen.labels[own].any()
        assert np.array_equal(seen.client(client)[0], fed.client(client)[0])
    assert seen.clusters is None and fed.labels.any()


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("Wide", "must have shape (K,"),
        ("Lost", "not finite"),
        ("Leaves", "SystemExit"),
        ("Endless", "It took longer than 1 s."),
        ("Waits", "It took longer than 0.1 s."),
    ],
)
def test_a_run_that_fails_is_counted_with_its_reason(toy, name, says):
    limit = {"Endless": 1.0, "Waits": 0.1}.get(name, play.LIMIT)
    numbers = one(toy(name), limit=limit)
    assert says in numbers["failed"] and numbers["accuracy"] == 0.0


def test_a_method_that_takes_in_nobody_fails_where_clients_join(toy):
    numbers = one(toy("Blend"), track="newcomers")
    assert "does not define the model of a client that joins" in numbers["failed"]
    assert one("Oracle", track="newcomers")["accuracy"] > 0


# ---- what is played


@pytest.mark.parametrize("demo", [True, False])
def test_cells_are_named_once_and_only_newcomers_that_never_trained_count(demo):
    found = arena.cells(3, demo=demo)
    names = [cell.name for cell in found]
    assert len(set(names)) == len(names) == (33 if demo else 39)
    assert {cell.track for cell in found} == set(arena.TRACKS)
    if demo:
        for seed in range(cards.POOL):
            cell = tracks.cell("newcomers", "labels", 0, seed, demo=True)
            fed = cell.build()
            counted = cell.counted(fed, seed)
            assert counted.any() and not counted[fed.groups == "stayed"].any()


def test_nobody_plays_who_must_be_told_what_nobody_knows():
    cells = {cell.family: cell for cell in arena.cells(0, "unknown-K")}
    known = {family: cell.known for family, cell in cells.items()}
    assert known == {"power law": True, "writers": False, "pictures": True}
    assert not entry("Oracle").plays(known=False) and entry("Oracle").plays(known=True)
    assert entry("FedAvg").plays(known=False)


def test_clusters_call_the_first_classes_by_names_of_their_own():
    fed = fl.federations.rotated_copies(
        fl.load("digits"), 2, [[0], [0]], samples_per_client=30, test_per_client=20
    )
    other = tracks.swapped(fed, 4)
    assert np.array_equal(other.client(0)[1], fed.client(0)[1])
    before = fed.client(1, "test")[1]
    after = other.client(1, "test")[1]
    expected = np.where(before < 4, (before + 1) % 4, before)
    assert np.array_equal(after, expected) and not np.array_equal(after, before)


def test_seeds_follow_from_the_source(toy, tmp_path):
    first = cards.seeds_of(entry(toy("Blend")))
    assert first == cards.seeds_of(entry(toy("Wide"))) and len(set(first)) == 5
    shutil.copy(tmp_path / "toy.py", tmp_path / "same.py")
    assert cards.seeds_of(entry(f"{tmp_path / 'same.py'}:Blend")) == first
    (tmp_path / "same.py").write_text(TOY + "\n# other", encoding="utf-8")
    assert cards.seeds_of(entry(f"{tmp_path / 'same.py'}:Blend")) != first


# ---- by hand


def test_trials_are_haltons_points():
    space = {"mu": (0.01, 1.0, "log"), "n": (0, 9, "linear"), "how": ["a", "b", "c"]}
    trials = tuning.trials(space)
    # base 2: 1/2, 1/4, 3/4, 1/8, 5/8; base 3: 1/3, 2/3, 1/9, ...; base 5: 1/5, 2/5, ...
    assert np.allclose(
        [one["mu"] for one in trials],
        [10 ** (-2 + 2 * share) for share in (1 / 2, 1 / 4, 3 / 4, 1 / 8, 5 / 8)],
    )
    assert [one["n"] for one in trials] == [3, 6, 1, 4, 7]
    assert [one["how"] for one in trials] == ["a", "b", "b", "c", "a"]


def test_holm_by_hand():
    assert np.allclose(
        statistics.holm([0.004, 0.03, 0.02, 0.5]), [0.016, 0.06, 0.06, 0.5]
    )
    assert statistics.holm([0.9, 0.8]) == [1.0, 1.0] and statistics.holm([]) == []


def runs(**accuracies):
    """Rows of methods with these accuracies, by cell (a row) and seed."""
    rows = []
    for method, by_cell in accuracies.items():
        for cell, by_seed in enumerate(by_cell):
            for seed, accuracy in enumerate(by_seed):
                row = {"track": "t", "family": "f", "level": str(cell), "seed": seed}
                row |= {"method": method, "accuracy": accuracy, "failed": ""}
                rows.append(row | {"worst": 0, "ari": None, "bytes": 1, "seconds": 2})
    return rows


def compared(method, others, **accuracies):
    table = statistics.table_of(runs(**accuracies))
    return statistics.compared(table, method, others)


def test_ranks_by_hand():
    rows = runs(a=[[3, 5], [1, 1]], b=[[4, 4], [2, 2]], c=[[0, 0], [5, 5], [9, 9]])
    ranks, n_cells = statistics.mean_ranks(statistics.table_of(rows))
    # first cell 4, 4, 0: 1.5, 1.5, 3; second 1, 2, 5: 3, 2, 1; a third has c alone
    assert (ranks, n_cells) == ({"a": 2.25, "b": 1.75, "c": 2.0}, 2)
    # Demsar's Table 5: q = 2.343 for three, 2.728 for five
    assert np.isclose(statistics.critical_difference(3, 1), 2.343 * 2**0.5, atol=2e-3)
    assert np.isclose(statistics.critical_difference(5, 5), 2.728, atol=2e-3)
    assert statistics.means(statistics.table_of(rows))["a"]["ari"] is None
    alone = statistics.summary(runs(a=[[1]]), "a")
    assert alone["comparisons"] == [] and alone["ranks"] == {"a": 1.0}


def test_better_needs_enough_pairs_and_a_clear_difference():
    values = np.arange(10.0).reshape(2, 5)
    mine = values + 1 + values / 99
    given = {"mine": mine, "same": values, "more": values + 90}
    others = compared("mine", ["same", "more"], **given)
    # ten differences of one sign: p = 2 / 2^10, times two
    assert [one["verdict"] for one in others] == ["better", "worse"]
    assert np.isclose(others[0]["corrected"], 2 * 2 / 1024) and others[0]["pairs"] == 10
    few = compared("a", ["b"], a=[[5] * 5], b=[[1, 2, 3, 4, 0]])
    assert few[0]["verdict"] == "not told apart"
    equal = compared("a", ["b", "absent"], a=[[5]], b=[[5]])
    assert [one["p"] for one in equal] == [1.0, 1.0]


def test_the_reasons_of_failed_runs_are_told_once_each(toy, monkeypatch):
    monkeypatch.setattr(cards, "SEEDS", 1)
    rules = arena.Rules("few-samples", demo=True)
    card = arena.compete(toy("Lost"), rules)
    (line,) = page.reasons(card)
    assert line.startswith("6 of 6 runs of Lost failed: Training stopped at round 1")
    assert page.nothing_ran(card)
    for run in card["runs"]:
        if run["method"] == "Lost" and run["level"] == "hard":
            run["failed"] = ""
    assert not page.nothing_ran(card) and "of 6 runs" in page.reasons(card)[0]


def test_a_page_says_what_failed_and_what_is_missing(toy, monkeypatch):
    monkeypatch.setattr(cards, "SEEDS", 1)
    rules = arena.Rules("newcomers", demo=True)
    card = arena.compete(toy("Blend"), rules)
    card["complete"] = False
    text = page.page(card)
    assert "3 of newcomers, labels: " in text and "**Not complete**" in text
    assert "not told apart" in text or "worse" in text
    assert [one["method"] for one in cards.table([card])] == ["Blend"]
