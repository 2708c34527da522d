"""Own clients from tables, pictures, pairs and data sets: nothing is repaired, renamed
or left out without a word.
"""

import gzip
import importlib.util
import json
import os
import warnings
from dataclasses import replace
from datetime import date
from decimal import Decimal
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from toys import refused

import fltnb as fl
from fltnb.federations import preprocessing

Federation = fl.Federation
FOUR = "client,label,a,b\n"


def csv(folder, text, name="t.csv", encoding="utf-8"):
    file = folder / name
    file.write_bytes(text.encode(encoding))
    return file


def visits(n=60, seed=0):
    """A table with gaps, text and numbers in different units."""
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(
        {
            "hospital": rng.choice(["AKH Wien", "Graz", "Linz"], n),
            "outcome": rng.choice(["home", "ward"], n),
            "age": rng.normal(60, 20, n),
            "dose": rng.normal(1e-3, 1e-4, n),
            "sex": rng.choice(["f", "m"], n),
        }
    )
    table.loc[::7, "age"] = np.nan
    table.loc[::11, "sex"] = None
    return table


def test_clients_and_classes_of_a_table_are_text(tmp_path):
    rows = "".join(
        f"{client},{i % 2},{i},1\n" for client in ("007", "7", "07") for i in range(4)
    )
    fed = Federation.from_csv(csv(tmp_path, FOUR + rows))
    assert fed.names == ("007", "07", "7") and fed.sizes.tolist() == [3, 3, 3]
    assert Federation.from_csv(tmp_path / "t.csv", numeric_names=True).names == ("7",)

    rows = "".join(
        f"{client},{label},{i},1\n"
        for client in ("NA", "None")
        for i, label in enumerate(["01", "1", "null", "1e3"] * 2)
    )
    fed = Federation.from_csv(csv(tmp_path, FOUR + rows))
    assert fed.names == ("NA", "None") and fed.class_names == ("01", "1", "1e3", "null")
    # blanks around a name are no part of it; an accent has one form
    rows = "".join(
        f"{client},0,{i},1\n"
        for client in ("Linz", "Linz ", " Linz", "Jose\u0301", "Jos\u00e9")
        for i in range(2)
    )
    assert Federation.from_csv(csv(tmp_path, FOUR + rows)).names == (
        "Jos\u00e9",
        "Linz",
    )
    # numbers are in the order of numbers, and stay text
    rows = "".join(f"{client},{client},{client},1\n" * 2 for client in range(12))
    fed = Federation.from_csv(csv(tmp_path, FOUR + rows))
    assert fed.names == tuple(map(str, range(12))) == fed.class_names


def test_a_long_table_has_one_type_a_column(tmp_path):
    labels = [str(i % 10) for i in range(1000)] + ["a", "b"] * 500
    wide = pd.DataFrame(np.random.default_rng(0).normal(size=(2000, 400)))
    wide.insert(0, "label", labels)
    wide.insert(0, "client", np.arange(2000) // 500)
    wide.to_csv(tmp_path / "t.csv", index=False)
    fed = Federation.from_csv(tmp_path / "t.csv")
    assert fed.class_names == (*"0123456789", "a", "b") and fed.names == (*"0123",)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "client,label,a,label\nx,0,1,2\nx,1,2,3\n",
            "t.csv has the column.s. label more than once",
        ),
        (
            "client,label,a,a \nx,0,1,2\nx,1,2,3\n",
            "t.csv has the column.s. a more than once",
        ),
        (
            "client,client,label,a\nx,0,1,2\nx,1,2,3\n",
            "column.s. client more than once",
        ),
        (FOUR + "x,0,1\nx,1,2,3\n", r"fewer values than its header .* .lines 2."),
        (FOUR + "x,0,1,2\n\n\nx,1,2\n", r"fewer values than its header .* .lines 5."),
        (FOUR + "x,0,1,2,9\nx,1,2,3,9\n", "columns without a name in its header"),
        (FOUR + 'x,0,1,2\n,1,"2\n",3\n', r"t.csv has gaps in client .lines 3."),
        (FOUR + '"x\ny",0,1,2\n\n,1,2,3\n', r"t.csv has gaps in client .lines 5."),
        (FOUR + "x,0,1,2\nx, ,1,2\n", r"gaps in label .lines 3."),
        (
            FOUR + 'x,0,"1,5",2\nx,1,"2,5",3\n',
            r'Column a holds numbers with a comma, such as 1,5: .*decimal=","',
        ),
        (
            FOUR + "x,0,1,2\nx,1,2,3\nx,1,2,3\nx,0,?,1\n",
            r"Column a holds text among numbers, such as '\?'",
        ),
        (
            FOUR + "x,0,1,2\ny,1,2,3\nz,1,2,3\n",
            "Every row of t.csv has a different client",
        ),
        (
            FOUR + "x,0.5,1,2\nx,1,2,3\n",
            "Classes in label of t.csv are decimal numbers",
        ),
        (FOUR + "x,0,1,2\nx,1,inf,3\nx,1,inf,3\n", "NaN or infinite"),
    ],
)
def test_a_table_is_not_repaired(tmp_path, text, says):
    refused(says, Federation.from_csv, csv(tmp_path, text))


def test_gaps_are_found_by_line_where_nothing_fills_them(tmp_path):
    file = csv(tmp_path, FOUR + 'x,0,1,2\n"x",1,,3\n\nx,1,"",3\n')
    refused("gaps in a .lines 3, 5.", Federation.from_csv, file, preprocess=None)
    # the median of the training rows, whatever these are
    x = Federation.from_csv(file).images[:, 0]
    assert np.isfinite(x).all()


def test_a_compressed_table_that_is_cut_short_is_said(tmp_path):
    packed = gzip.compress(b"client,label,a\n" + b"anna,x,1.5\nben,y,2.5\n" * 200)
    file = tmp_path / "t.csv.gz"
    file.write_bytes(packed)
    assert Federation.from_csv(file, "client", "label").names == ("anna", "ben")
    file.write_bytes(packed[:-9])
    refused("t.csv.gz cannot be read as CSV", Federation.from_csv, file, "client")
    twice = "client,label,\u00e9,e\u0301\n" + "anna,x,1,2\nben,y,2,3\n" * 8
    (tmp_path / "t.csv").write_text(twice, encoding="utf-8")
    says = "has the column.s. \u00e9 more than once"
    refused(says, Federation.from_csv, tmp_path / "t.csv", "client", "label")


def test_options_of_pandas_pass_through(tmp_path, monkeypatch):
    text = "nr;client;label;größe\n1;a;ja;1,5\n2;a;nein;2,5\n3;b;ja;-\n4;b;nein;0,5\n"
    file = csv(tmp_path, text, encoding="latin-1")
    options = {"sep": ";", "encoding": "latin-1", "decimal": ",", "index_col": 0}
    fed = Federation.from_csv(file, **options, na_values=["-"])
    assert fed.preprocessing.columns == ("größe",) and fed.names == ("a", "b")
    refused("cannot be read as CSV .*encoding='latin-1'", Federation.from_csv, file)
    refused("chunksize cannot be given", Federation.from_csv, file, chunksize=10)
    refused(
        "Unknown option of from_csv 'sepp': .* or one of pandas.read_csv",
        Federation.from_csv,
        file,
        sepp=";",
    )
    refused(
        "standardise has become preprocess",
        Federation.from_csv,
        file,
        standardise=False,
    )
    says = "owner has become client: give client= the column"
    refused(says, Federation.from_csv, file, owner="nr")
    refused(says, Federation.from_frame, visits(), owner="hospital")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert Federation.from_csv("~/t.csv", **options, na_values=["-"]).n_clients == 2
    bare = csv(tmp_path, "x,0,1.0\nx,1,2.0\ny,0,4.0\ny,1,3.0\n", "bare.csv")
    fed = Federation.from_csv(bare, 0, 1, header=None, preprocess=None)
    assert fed.names == ("x", "y") and sorted(fed.images.ravel()) == [1, 2, 3, 4]


def test_a_table_is_prepared_as_scikit_learn_does_on_training_rows():
    table = visits()
    fed = Federation.from_frame(table, "hospital", "outcome", seed=3)
    train = np.sort(np.concatenate(fed.train))
    numbers = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
    texts = make_pipeline(
        SimpleImputer(strategy="constant", fill_value=preprocessing.MISSING),
        OneHotEncoder(handle_unknown="ignore", sparse_output=False),
    )
    features = table[["age", "dose", "sex"]].astype({"sex": object})
    features["sex"] = features["sex"].where(features["sex"].notna(), None)
    theirs = ColumnTransformer(
        [
            ("numbers", numbers, make_column_selector(dtype_include=float)),
            ("texts", texts.set_params(simpleimputer__missing_values=None), ["sex"]),
        ]
    ).fit(features.iloc[train])
    np.testing.assert_allclose(fed.images, theirs.transform(features), atol=1e-6)
    assert fed.images.dtype == np.float32
    assert fed.preprocessing.names == ("age", "dose", "sex=(missing)", "sex=f", "sex=m")
    # the training rows alone: another test row changes nothing
    other = table.copy()
    other.loc[fed.test[0], "age"] = 1e6
    again = Federation.from_frame(other, "hospital", "outcome", seed=3)
    assert again.preprocessing.to_dict() == fed.preprocessing.to_dict()


def test_newcomers_rows_are_prepared_as_the_training_rows():
    table = visits()
    fed = Federation.from_frame(table, "hospital", "outcome")
    fitted = fed.preprocessing
    content = json.loads(json.dumps(fitted.to_dict()))
    kept = preprocessing.TablePreprocessing.from_dict(content)
    newcomers = visits(20, seed=5)
    newcomers.loc[3, "sex"] = "x"  # a category that nobody has seen
    features = newcomers[["age", "dose", "sex"]]
    x = fitted.transform(newcomers)
    assert x.dtype == np.float32 and x.shape == (20, 5) and (x[3, 2:] == 0).all()
    for rows in (newcomers[["sex", "hospital", "dose", "age"]], features.to_numpy()):
        assert np.array_equal(kept.transform(rows), x)
    same = Federation.from_frame(table, "hospital", "outcome")
    assert np.array_equal(fitted.transform(table), same.images)
    refused("lacks the column.s. dose", kept.transform, newcomers.drop(columns="dose"))
    refused(
        "has the column.s. weight, which", kept.transform, newcomers.assign(weight=1)
    )
    refused("the 3 columns age, dose, sex, not the shape", kept.transform, np.eye(4))
    refused(
        "Column dose must hold numbers", kept.transform, newcomers.assign(dose="much")
    )
    refused(
        "Rows 2, .*NaN or infinite",
        kept.transform,
        newcomers.assign(dose=[1, 2, np.inf] + [0] * 17),
    )
    refused("reads format 1", preprocessing.TablePreprocessing.from_dict, {"format": 2})
    # for a second federation
    second = Federation.from_frame(newcomers, "hospital", "outcome", preprocess=kept)
    assert np.array_equal(second.images, x)


def test_preprocess_none_and_of_ones_own():
    table = visits()[["hospital", "outcome", "dose"]]
    fed = Federation.from_frame(table, "hospital", "outcome", preprocess=None)
    assert np.array_equal(fed.images[:, 0], table["dose"].astype(np.float32))
    own = Federation.from_frame(
        table, "hospital", "outcome", preprocess=StandardScaler()
    )
    standard = Federation.from_frame(table, "hospital", "outcome")
    np.testing.assert_allclose(own.images, standard.images, atol=1e-5)
    refused("StandardScaler is your own transformer", own.preprocessing.to_dict)
    wrong = {"client": "hospital", "label": "outcome"}
    refused(
        "Features sex hold text",
        Federation.from_frame,
        visits()[["hospital", "outcome", "sex"]].dropna(),
        **wrong,
        preprocess=None,
    )
    refused(
        "preprocess must be", Federation.from_frame, table, **wrong, preprocess="scale"
    )
    refused("takes a pandas DataFrame, not ndarray", Federation.from_frame, np.eye(3))
    twice = pd.concat([table, table[["dose"]]], axis=1)
    refused(
        "The table has the column.s. dose more than once",
        Federation.from_frame,
        twice,
        **wrong,
    )
    free = visits().assign(note=[f"note {i}" for i in range(60)])
    refused("Column note has .* different texts", Federation.from_frame, free, **wrong)
    day = visits().assign(day=pd.Timestamp("2024-01-01"))
    refused("Column day holds dates", Federation.from_frame, day, **wrong)
    digits = [Decimal(f"1.{i:030d}") for i in range(60)]
    columns = {
        "lose their last digits": 2**60 + np.arange(60),
        "give identifiers as text": pd.array([2**60, 2**60 + 1, None] * 20, "Int64"),
        "different values become 1 as float64: take": digits,
        "different values become 1 as float64": [2**70 + i for i in range(60)],
        "Column dose holds dates": [date(2020, 1, 1 + i % 5) for i in range(60)],
        "up to 6e.301, which are too large to be scaled": 1e300 * np.arange(1, 61),
        "Column dose holds numbers as text": [f"{i}.5" for i in range(60)],
        "No training row has a value in dose": [None] * 60,
        "Column dose holds several values in one cell": [[1, 2]] * 60,
        "numbers do not have, such as '3 %'": ["3 %", "4 %"] * 30,
        "numbers do not have, such as .\u22121.5": ["\u22121.5", "2", "\u22123"] * 20,
    }
    for says, dose in columns.items():
        refused(says, Federation.from_frame, table.assign(dose=dose), **wrong)


def test_names_that_differ_by_case_alone_are_told():
    table = pd.DataFrame({"client": ["Anna", "anna", "Bob"] * 20})
    table["label"] = ["ill", "Ill", "well", "ill"] * 15
    table["dose"] = np.arange(60.0)
    with pytest.warns(UserWarning) as told:
        fed = Federation.from_frame(table, "client", "label")
    said = "though only by upper and lower case or the form of letters:"
    wanted = [f"Different clients, {said} Anna / anna."]
    wanted.append(f"Different classes, {said} Ill / ill.")
    assert [str(one.message) for one in told] == wanted
    assert list(fed.notes) == wanted and fed.n_clients == fed.n_classes == 3
    wide = table.replace({"client": {"Anna": "7", "anna": "\uff17"}})  # full-width
    wide = wide.replace({"label": {"Ill": "ill"}})
    with pytest.warns(UserWarning, match="clients, .*: 7 / \uff17."):
        Federation.from_frame(wide, "client", "label")


def test_names_of_a_parquet_file_may_be_bytes_and_no_name_hides_in_an_index():
    table = visits().assign(hospital=[b"Graz", b"W\xc3\xb6rgl"] * 30)
    fed = Federation.from_frame(table, "hospital", "outcome")
    assert fed.names == ("Graz", "Wörgl")
    grouped = visits().set_index("hospital")
    refused("has hospital in its index", Federation.from_frame, grouped, "hospital")


def test_values_to_predict():
    day = visits().assign(days=pd.Timestamp("2024-01-01"))
    of = {"client": "hospital", "label": "days", "targets": "values"}
    refused("days of The table holds dates", Federation.from_frame, day, **of)
    table = visits().assign(days=np.linspace(0, 10, 60))
    fed = Federation.from_frame(
        table, "hospital", "days", ["age", "dose"], targets="values"
    )
    assert fed.targets == "values" and fed.n_classes == 1 and fed.class_names == ()
    assert fed.labels.dtype == np.float32
    np.testing.assert_allclose(fed.labels, table["days"], rtol=1e-6)
    assert {"mean", "deviation", "name"} <= set(fed.summary()) and "values" in repr(fed)
    refused("has numbers to predict, not classes", fed.label_counts)
    refused(
        "gaps or text in outcome",
        Federation.from_frame,
        table,
        "hospital",
        "outcome",
        targets="values",
    )
    x, ids = np.eye(6), [0] * 6
    fed = Federation.from_arrays(x, np.arange(6.0) / 2, ids, targets="values")
    assert fed.labels.tolist() == [0, 0.5, 1, 1.5, 2, 2.5]
    refused("hold NaN", Federation.from_arrays, x, [np.nan] * 6, ids, targets="values")
    refused(
        "become 1 as float32",
        Federation.from_arrays,
        x,
        1e9 + np.arange(6),
        ids,
        targets="values",
    )
    refused(
        "Unknown kind of targets 'numbers'",
        Federation.from_arrays,
        x,
        ids,
        ids,
        targets="numbers",
    )


def test_tokens_and_sequences_are_inputs_as_they_are():
    tokens = np.arange(12, dtype=np.int32).reshape(4, 3)
    fed = Federation.from_arrays(tokens, [0, 1, 0, 1], [0, 0, 1, 1])
    x, _ = fed.client(0)
    assert x.dtype == np.int64 and fed.input_shape == (3,) and fed.layout == "tokens"
    assert x[0].tolist() in tokens.tolist()
    steps = np.zeros((4, 5, 2))
    fed = Federation.from_arrays(steps, [0, 1, 0, 1], [0, 0, 1, 1], layout="sequences")
    assert fed.client(1)[0].shape == (1, 5, 2) and fed.input_shape == (5, 2)
    refused(
        "Tokens are counted from 0", Federation.from_arrays, -tokens, [0] * 4, [0] * 4
    )
    for wrong in (np.eye(4), np.ones((4, 3, 2), np.uint8), np.ones((4, 3, 2), int)):
        refused(
            r"Sequences must be floats \(N, L, D\)",
            Federation.from_arrays,
            wrong,
            [0] * 4,
            [0] * 4,
            layout="sequences",
        )
    refused(
        "Unknown layout 'text'",
        Federation.from_arrays,
        tokens,
        [0] * 4,
        [0] * 4,
        layout="text",
    )


def test_clients_have_names(tmp_path):
    fed = Federation.from_frame(visits(), "hospital", "outcome")
    assert fed.names == ("AKH Wien", "Graz", "Linz") and fed.place("Graz") == 1
    assert np.array_equal(fed.client("Linz")[0], fed.client(2)[0])
    assert fed.summary()["name"].tolist() == list(fed.names)
    refused(
        "no client 'Wels': this federation has AKH Wien, Graz, Linz", fed.client, "Wels"
    )
    for wrong in (3, -1, 1.5, None, True):
        refused("There is no client", fed.client, wrong)
    known = {"Graz": "b", "Linz": "a", "AKH Wien": "a"}
    fed = Federation.from_frame(visits(), "hospital", "outcome", clusters=known)
    assert fed.clusters.tolist() == [0, 1, 0]
    refused(
        "clusters lacks .*Linz",
        Federation.from_frame,
        visits(),
        "hospital",
        "outcome",
        clusters={"Graz": 1, "AKH Wien": 0},
    )
    nameless = fl.federations.build(
        {"kind": "dirichlet", "dataset": "digits", "n_clients": 3, "alpha": 1.0}
    )
    assert nameless.names == ("0", "1", "2") and nameless.place("2") == 2
    assert fed.named and not nameless.named and "name" not in nameless.summary()
    last = {"train": nameless.train[1:], "test": nameless.test[1:]}
    assert replace(nameless, **last, val=None, probe=None).names == ("0", "1")
    changing = fl.federations.with_events(fed, [{"round": 2, "join": 1}])
    first, last = (phase.fed for phase in changing.phases)
    assert first.names == last.names[:2] and sorted(last.names) == list(fed.names)
    for name in last.names:
        assert np.array_equal(last.client(name)[0], fed.client(name)[0])


def test_clients_of_too_few_samples_are_left_out_in_words():
    ids = ["a"] * 5 + ["b"] + ["c"] * 4
    x, y = np.eye(10), [0, 1] * 5
    refused(
        "Client b has a single sample: .*min_samples=2",
        Federation.from_arrays,
        x,
        y,
        ids,
    )
    with pytest.warns(UserWarning, match="fewer than 2 samples: b"):
        fed = Federation.from_arrays(x, y, ids, min_samples=2, clusters=[0, 1, 2])
    assert fed.names == ("a", "c") and fed.clusters.tolist() == [0, 1]
    assert "fewer than 2 samples: b" in repr(fed) and len(fed.notes) == 1
    assert sorted(np.concatenate([*fed.train, *fed.test])) == [*range(5), *range(6, 10)]
    refused(
        "No client has 9 samples, the largest has 5",
        Federation.from_arrays,
        x,
        y,
        ids,
        min_samples=9,
    )


class Pairs:
    """A map-style data set."""

    def __init__(self, n, seed):
        self.x = torch.randn(n, 3, 6, 6, generator=torch.Generator().manual_seed(seed))

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], i % 2


class Partitions:
    """As Flower Datasets' federated data set: tables of columns."""

    num_partitions = 3

    def load_partition(self, i):
        pixels = np.full((8, 8), 60 * i, dtype=np.uint8)
        columns = {"image": [Image.fromarray(pixels)] * 6, "label": [0, 1] * 3}
        columns |= {"a": [float(i)] * 6, "b": [1.0] * 6}
        names = {"label": SimpleNamespace(names=["cat", "dog"])}
        features = dict.fromkeys(columns) | names

        class Table:
            def __getitem__(self, name):
                return columns[name]

        table = Table()
        table.features, table.column_names = features, list(columns)
        return table


def test_clients_as_others_have_them():
    x, y = np.arange(24.0).reshape(6, 4), np.array([0, 1] * 3)
    fed = Federation.from_clients([(x, y), (x + 1, y)], names=["B", "A"])
    assert fed.names == ("B", "A")  # in the order given
    assert fed.client("A")[0][0, 0, 0, 0] % 4 == 1
    fed = Federation.from_clients({"n": (torch.ones(4, 2), ["x", "y"] * 2)})
    assert fed.names == ("n",) and fed.class_names == ("x", "y")

    fed = Federation.from_clients([Pairs(8, 0), Pairs(6, 1)], test_fraction=0.5)
    assert fed.input_shape == (3, 6, 6) and fed.sizes.tolist() == [4, 3]
    first = Pairs(8, 0).x[fed.train[0]].numpy()
    assert np.array_equal(fed.client(0)[0], first)
    subset = torch.utils.data.Subset(Pairs(8, 0), [0, 1, 2, 3])
    assert Federation.from_clients([subset]).n_clients == 1

    fed = Federation.from_clients(Partitions(), x="image")
    assert fed.n_clients == 3 and fed.class_names == ("cat", "dog")
    assert fed.images.dtype == np.uint8 and fed.images[-1, 0, 0] == 120
    fed = Federation.from_clients(Partitions(), x=["a", "b"], n_clients=2)
    assert fed.images.shape == (12, 2) and fed.n_clients == 2
    refused(
        "no column pixels; it has image, label",
        Federation.from_clients,
        Partitions(),
        x="pixels",
    )
    refused(
        "several columns, image, a, b, not all", Federation.from_clients, Partitions()
    )
    refused(
        "of shape .3,., client 0 of .4,.",
        Federation.from_clients,
        [(x, y), (x[:, :3], y)],
    )
    refused("one label for each sample", Federation.from_clients, [(x, y[:3])])
    refused(
        "Two clients are called 'A'", Federation.from_clients, [(x, y)] * 2, ["A", "A"]
    )
    refused("Clients must be a list or dict", Federation.from_clients, 3)
    gaps = np.array(["a", None] * 3, dtype=object)
    refused("3 labels of the clients are missing", Federation.from_clients, [(x, gaps)])
    refused("Client 0 has a int", Federation.from_clients, [3])


def test_arrays_as_they_come():
    y, ids = [0, 1] * 20, [0] * 40
    make = Federation.from_arrays
    refused(
        "40 different values of column 0 become 1 .*subtract 1700000000 ",
        make,
        1.7e9 + np.arange(40.0)[:, None],
        y,
        ids,
    )
    refused(
        "10 different values of column 1",
        make,
        np.column_stack([np.eye(10)[0], 2.0**24 + np.arange(10)]),
        y[:10],
        ids[:10],
    )
    refused(
        "different values",
        make,
        1e6 + np.random.default_rng(0).normal(scale=1e-3, size=(40, 1)),
        y,
        ids,
    )
    make(np.random.default_rng(0).normal(size=(40, 3)) * 1e12, y, ids)
    make(1.7e9 + 86400.0 * np.arange(40)[:, None], y, ids)
    masked = np.ma.masked_less(np.eye(40), 0.5)
    refused("Samples hold masked values", make, masked, y, ids)
    assert make(np.ma.masked_less(np.eye(40), 0.0), y, ids).n_clients == 1
    weights = torch.eye(40, requires_grad=True)
    for tensor in (weights, torch.eye(40, dtype=torch.bfloat16), list(weights)):
        assert np.array_equal(make(tensor, torch.tensor(y), ids).images, np.eye(40))
    refused("dense tensor of numbers", make, torch.eye(40).to_sparse(), y, ids)
    refused("client_ids mix values", make, np.eye(4), [0] * 4, [1, "1", 1, "1"])
    assert make(np.eye(4), [0] * 4, ["a", "a ", "b", " b"]).names == ("a", "b")


@pytest.fixture
def photos(tmp_path):
    def paint(place, colour=(200, 30, 30), **options):
        file = tmp_path / "photos" / place
        file.parent.mkdir(parents=True, exist_ok=True)
        picture = np.zeros((8, 12, len(colour)), dtype=np.uint8)
        picture[:4] = colour
        if len(colour) == 4:
            picture[..., 3] = colour[3]
        Image.fromarray(picture).save(file, **options)
        return file

    for client in ("anna", "ben"):
        for i in range(4):
            paint(f"{client}/c{i % 2}/{i}.png")
    paint.folder = tmp_path / "photos"
    return paint


def test_what_is_no_picture_of_a_client_is_left_out_in_words(photos):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        clean = Federation.from_folder(photos.folder, 8)
    photos("anna/.ipynb_checkpoints/1.png")
    photos("__MACOSX/c0/1.png")
    photos("@eaDir/c0/1.png")
    photos("anna/c0/._0.png")
    for place in ("carla/c0/1.HEIC", "carla/c1/2.heic", "anna/c0/notes.txt"):
        (photos.folder / place).parent.mkdir(parents=True, exist_ok=True)
        (photos.folder / place).write_bytes(b"?")
    (photos.folder / "dora").mkdir()
    photos("#recycle/c0/1.png")
    (photos.folder / "eva").symlink_to(photos.folder / "anna")
    (photos.folder / "anna/c0/gone.png").symlink_to("nowhere.png")
    with pytest.warns(UserWarning) as said:
        fed = Federation.from_folder(photos.folder, 8)
    assert fed.class_names == ("c0", "c1") and fed.names == ("anna", "ben")
    assert fed.fingerprint() == clean.fingerprint()
    text = " ".join(fed.notes)
    for word in (
        ".ipynb_checkpoints",
        "__MACOSX",
        "@eaDir",
        "._0.png",
        ".heic (2)",
        ".txt (1)",
        "picture that can be read: carla",
        "#recycle (1)",
        "links to folders or to nothing: eva (1), gone.png (1)",
        "empty folder: dora.",
    ):
        assert word in text
    assert {str(one.message) for one in said} == set(fed.notes)
    assert fed.summary().attrs["notes"] == list(fed.notes)


def test_a_folder_that_cannot_be_read_is_named(photos, monkeypatch):
    scan = os.scandir

    def locked(place):
        if place.endswith("c1"):
            raise PermissionError(13, "Permission denied", place)
        return scan(place)

    monkeypatch.setattr(os, "scandir", locked)
    refused("c1 cannot be read .Permission", Federation.from_folder, photos.folder, 8)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_pictures_are_seen_as_a_viewer_shows_them(photos, orientation):
    """The same scene, stored turned or mirrored, with the tag that turns it back."""
    back = {
        2: Image.Transpose.FLIP_LEFT_RIGHT,
        3: Image.Transpose.ROTATE_180,
        4: Image.Transpose.FLIP_TOP_BOTTOM,
        5: Image.Transpose.TRANSPOSE,
        6: Image.Transpose.ROTATE_90,  # stored so, shown turned by 270 degrees
        7: Image.Transpose.TRANSVERSE,
        8: Image.Transpose.ROTATE_270,
    }
    exif = Image.Exif()
    exif[0x0112] = orientation
    for suffix in (".png", ".webp", ".tif"):
        file = photos.folder / f"anna/c0/1{suffix}"
        with Image.open(photos.folder / "anna/c0/0.png") as image:
            stored = image.copy()
        if orientation in back:
            stored = stored.transpose(back[orientation])
        lossless = {"lossless": True} if suffix == ".webp" else {}
        stored.save(file, exif=exif, **lossless)
        read = fl.data.images.read_picture(file, 8, "BILINEAR")
        plain = fl.data.images.read_picture(
            photos.folder / "anna/c0/0.png", 8, "BILINEAR"
        )
        assert np.array_equal(read, plain), (orientation, suffix)


def test_transparent_pictures_lie_on_the_background(photos):
    read = fl.data.images.read_picture
    clear = photos("anna/c0/clear.png", (10, 20, 30, 0))
    assert (read(clear, 4, "BILINEAR") == 255).all()
    black = read(clear, 4, "BILINEAR", background="black")
    assert (black == 0).all()
    grey = Image.fromarray(np.zeros((4, 4), np.uint8))
    grey.save(photos.folder / "grey.png", transparency=0)
    assert (read(photos.folder / "grey.png", 4, "BILINEAR", "L") == 255).all()
    (photos.folder / "grey.png").unlink()
    refused(
        "Unknown background 'whit'",
        Federation.from_folder,
        photos.folder,
        8,
        background="whit",
    )


def test_pictures_that_cannot_be_read_are_named(photos, monkeypatch):
    file = photos("anna/c0/0.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 40)
    refused(
        "anna/c0/0.png is too large a picture", Federation.from_folder, photos.folder, 8
    )
    monkeypatch.undo()
    for content in (b"", b"GIF89a", file.read_bytes()[:50]):
        file.write_bytes(content)
        refused(
            "anna/c0/0.png cannot be read as a picture",
            Federation.from_folder,
            photos.folder,
            8,
        )
    frames = [Image.new("L", (4, 4), colour) for colour in (0, 200)]
    frames[0].save(
        photos.folder / "anna/c0/2.gif", save_all=True, append_images=frames[1:]
    )
    photos("anna/c0/0.png")
    refused("2.gif holds 2 pictures", Federation.from_folder, photos.folder, 8)


def frame_of_two():
    return pd.DataFrame(
        {
            "client": ["007", "7"] * 6,
            "label": ["a", "b", "a", "b"] * 3,
            "x": np.arange(12.0),
            "ward": ["north", None, "south"] * 4,
        }
    )


def test_a_parquet_file_is_a_frame(tmp_path, monkeypatch):
    frame = frame_of_two()
    file = tmp_path / "wards.parquet"
    if importlib.util.find_spec("pyarrow"):
        frame.to_parquet(file)
    else:
        file.write_bytes(b"")
        monkeypatch.setattr(pd, "read_parquet", lambda path: frame)
    read = fl.Federation.from_parquet(file, test_fraction=0.25, seed=3)
    same = fl.Federation.from_frame(frame, test_fraction=0.25, seed=3)
    assert read.fingerprint() == same.fingerprint()
    assert read.names == ("007", "7")
    refused("use from_parquet", fl.Federation.from_csv, file)
    refused("There is no file", fl.Federation.from_parquet, tmp_path / "none.parquet")


def test_parquet_without_a_reader_or_without_content_is_a_sentence(
    tmp_path, monkeypatch
):
    file = tmp_path / "wards.parquet"
    file.write_bytes(b"PAR1 and nothing else")

    def without(path):
        raise ImportError("Unable to find a usable engine")

    if importlib.util.find_spec("pyarrow"):
        refused("cannot be read as Parquet", fl.Federation.from_parquet, file)
    monkeypatch.setattr(pd, "read_parquet", without)
    refused("pip install 'fltnb", fl.Federation.from_parquet, file)


def test_names_that_look_the_same_are_one_client():
    ids = [
        "AKH Wien",
        "AKH\u00a0Wien",
        " AKH  Wien",
        "AKH Wien\u200b",
        "\ufeffAKH Wien",
    ]
    ids += ["Graz"] * 5
    x, y = np.eye(10), [0, 1] * 5
    groups = {"AKH Wien ": "a", "Graz": "b"}
    fed = Federation.from_arrays(x, y, ids, clusters=groups)
    assert fed.names == ("AKH Wien", "Graz")
    frame = pd.DataFrame({"client": ids, "label": y, "a": np.arange(10.0)})
    assert Federation.from_frame(frame).names == ("AKH Wien", "Graz")


def test_partitions_by_the_values_of_a_column_have_these_as_names():
    parts = Partitions()
    assert Federation.from_clients(parts, x="image").names == ("0", "1", "2")
    parts.partition_id_to_natural_id = {0: "x", 1: "y", 2: "z"}
    assert Federation.from_clients(parts, x="image").names == ("x", "y", "z")


def test_hospitals_that_are_numbers_are_meant_by_name():
    table = visits()
    numbers = {name: i + 1 for i, name in enumerate(sorted(set(table["hospital"])))}
    numbered = table.assign(hospital=table["hospital"].map(numbers))
    fed = Federation.from_frame(numbered, "hospital", "outcome", val_fraction=0.2)
    assert fed.place("1") == 0 and fed.place(fed.n_clients) == fed.n_clients - 1
    for get in (fed.place, fed.client):
        refused("Client 1 may be the one of this name.*'1' or '2'", get, 1)
    # methods reach clients by number all the same
    run = fl.run(fl.methods.FLUX(), fed, "mlp32", rounds=2, progress=False)
    assert len(run.rows) == fed.n_clients


def test_arrays_that_nobody_scaled_are_told():
    rng = np.random.default_rng(0)
    ids = np.repeat(["a", "b"], 50)
    y = np.tile([0, 1], 50)
    scaled = rng.normal(size=(100, 3))
    measured = scaled * [0.1, 15, 12] + [5, 120, 60]
    with pytest.warns(UserWarning, match="not scaled .* use from_frame"):
        fl.Federation.from_arrays(measured, y, ids)
    with pytest.warns(UserWarning, match="not scaled"):
        fl.Federation.from_clients({"a": (scaled * [1, 1000, 1], y)})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fl.Federation.from_arrays(scaled, y, ids)
        fl.Federation.from_arrays(np.maximum(scaled, 0) + 1, y, ids)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ([0, 1], [0, 1]),
        ([1, 2], [1, 2]),
        ([-1, 1], [-1, 1]),
        ([False, True], [False, True]),
        ([0.0, 1.0], [0, 1]),
        (["07", "2"], ["07", "2"]),
        (["home", "ward"], ["home", "ward"]),
    ],
)
def test_predictions_are_of_the_type_of_the_labels(given, told):
    rng = np.random.default_rng(0)
    sick = rng.integers(2, size=80)
    table = pd.DataFrame({"dose": sick + 0.1 * rng.normal(size=80)})
    table["outcome"] = np.array(given, dtype=object)[sick]
    table["hospital"] = np.repeat(["a", "b"], 40)
    fed = Federation.from_frame(table.infer_objects(), "hospital", "outcome")
    how = {"rounds": 10, "lr": 0.5, "participation": 1.0, "progress": False}
    run = fl.run(fl.methods.FedAvg(), fed, "mlp", **how)
    found = run.predict(table.drop(columns=["outcome", "hospital"]))
    assert (found == np.array(told, dtype=object)[sick]).all()


def test_classes_of_newcomers_are_numbered_as_in_training():
    labels = [9, 10, 11, 12] * 6
    table = pd.DataFrame({"dose": np.arange(24.0), "outcome": labels})
    table["hospital"] = np.repeat(["a", "b"], 12)
    fed = Federation.from_frame(table, "hospital", "outcome")
    assert fed.class_numbers([9, 12, "10"]).tolist() == [0, 3, 1]
    refused("no class 8: this federation has 9, 10, 11, 12", fed.class_numbers, [8, 9])


def test_dates_and_thousands_in_text_are_said():
    table = visits()[["hospital", "outcome", "dose"]]
    days = pd.date_range("2024-01-01", periods=len(table)).strftime("%d.%m.%Y")
    for dates in (days, days + " 10:30", ["2024-05-31"] * len(table)):
        refused(
            "Column day holds dates, such as .*make numbers",
            Federation.from_frame,
            table.assign(day=dates),
            "hospital",
            "outcome",
        )
    cost = np.resize(["9,151", "12,300", "950"], len(table))
    refused(
        'thousands="," if 9,151 is a whole number, with decimal=","',
        Federation.from_frame,
        table.assign(cost=cost),
        "hospital",
        "outcome",
    )


def test_pictures_are_predicted_from_files(photos):
    fed = Federation.from_folder(photos.folder, size=8)
    files = sorted(photos.folder.glob("*/*/*.png"))
    run = fl.run(fl.methods.FedAvg(), fed, "mlp", rounds=1, progress=False)
    several = run.predict([str(file) for file in files])
    assert several.tolist() == [run.predict(file)[0] for file in files]
    np.testing.assert_array_equal(run.reader.inputs(files), fed.inputs(np.arange(8)))
    refused("There is no file .*lost.png", run.predict, photos.folder / "lost.png")


def test_numbers_in_another_unit_are_named_where_training_diverges():
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(80, 2)), columns=["dose", "cost"])
    table["cost"] *= 1e6
    table["hospital"] = np.repeat(["Graz", "Wels"], 40)
    fed = Federation.from_frame(table, "hospital", "cost", targets="values")
    how = {"rounds": 5, "lr": 0.1, "loss": "squared_error", "progress": False}
    refused(
        "client (Graz|Wels) is not finite.*deviation of .*: train on them divided",
        lambda: fl.run(fl.methods.FedAvg(), fed, "mlp", **how),
    )


def test_one_class_is_nothing_to_learn():
    fed = Federation.from_arrays(np.eye(4), [0] * 4, [0, 0, 1, 1])
    refused("nothing to learn", lambda: fl.run(fl.methods.FedAvg(), fed, "mlp"))


def test_a_client_called_by_a_number_is_named_once_where_training_diverges():
    rng = np.random.default_rng(0)
    ids = np.repeat([1, 2, 3], 20)
    fed = Federation.from_arrays(rng.normal(size=(60, 3)), np.tile([0, 1], 30), ids)
    how = {"rounds": 2, "lr": 1e30, "participation": 1.0, "progress": False}
    refused("client 1 is not", lambda: fl.run(fl.methods.FedAvg(), fed, "mlp", **how))


def test_labels_have_their_names_whatever_the_type_of_float():
    x, ids = np.eye(24), np.repeat([0, 1], 12)
    y = np.tile(np.arange(12), 2)
    for kind in (np.float16, np.float32, np.float64):
        fed = Federation.from_arrays(x, y.astype(kind), ids)
        assert fed.class_names == tuple(map(str, range(12)))
        assert np.array_equal(fed.labels, y)
        assert fed.class_numbers(np.array([11], dtype=kind)).tolist() == [11]


def test_a_column_is_found_however_its_accents_are_stored(tmp_path):
    apart, joined = "ge\u0301rant", "g\u00e9rant"
    header = f"{apart},label,a\n"
    file = csv(tmp_path, header + "007,0,1\n7,1,2\n" * 4)
    for name in (apart, joined):
        assert Federation.from_csv(file, name).names == ("007", "7")
        table = pd.read_csv(file, dtype={apart: str})
        assert Federation.from_frame(table, name).names == ("007", "7")
        assert Federation.from_frame(table, "a", features=[name]).n_clients == 2


@pytest.mark.parametrize("above", ["Visits\n", "Visits,2024\n\n", "a,b,c,d,e,f\n"])
def test_lines_above_the_header_may_be_of_any_length(tmp_path, above):
    file = csv(tmp_path, above + FOUR + "007,0,1,2\n7,1,2,3\n" * 4)
    fed = Federation.from_csv(file, header=1)
    assert fed.names == ("007", "7") and len(fed.images) == 8
    twice = csv(tmp_path, above + "client,label,a,a\n" + "x,0,1,2\nx,1,2,3\n" * 4)
    refused("column.s. a more than once", Federation.from_csv, twice, header=1)


def test_a_table_with_a_very_long_text_is_read(tmp_path):
    file = csv(tmp_path, FOUR + f"x,0,1,{'z' * 140_000}\nx,,2,3\n")
    says = "gaps in label .rows 1, counted from 0."
    refused(says, Federation.from_csv, file, features=["a"])


def test_clusters_and_labels_that_are_missing_are_refused():
    x, y, ids = np.eye(8), [0, 1] * 4, ["a", "b"] * 4
    make = Federation.from_arrays
    for missing in ([None, "u"], [np.nan, 1.0], {"a": None, "b": "u"}):
        refused("cluster of client a is missing", make, x, y, ids, clusters=missing)
    refused("clusters must", make, x, y, ids, clusters=[[1], [2, 3]])
    refused("4 labels of the clients are missing", make, x, ["", "u"] * 4, ids)
    says = "values to predict must be 8 numbers"
    refused(says, make, x, [None, 1.0] * 4, ids, targets="values")
    refused("more than once: u, u", make, x, y, ids, class_names=["u", "u"])


def test_what_clients_give_fits_together():
    x, y = np.eye(4), [0, 1, 0, 1]
    pixels = np.full((4, 4), 200, dtype=np.uint8)
    make = Federation.from_clients
    refused("Client 1 has samples of type float64", make, [(pixels, y), (x, y)])
    refused("n_clients is for an object", make, [(x, y)] * 3, n_clients=2)
    refused("n_clients must be a whole", make, Partitions(), n_clients="2", x="image")
    both = [(one, [0, 1]) for one in x]
    refused("Item 0 of client 0 has a label of shape .2,.", make, [both])
    loaded = SimpleNamespace(load_partition=lambda i: (x, y), num_partitions=2)
    assert make(loaded).n_clients == 2
