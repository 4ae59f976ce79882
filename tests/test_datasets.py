"""What cutting a data set promises: every column at one party, labels at the active one, the same for the same seed."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from fedora_vfl.datasets.catalogue import DataSource
from fedora_vfl.datasets.chance import permutation
from fedora_vfl.datasets.cutting import DataFile, cut
from fedora_vfl.datasets.settings import party_names
from fedora_vfl.errors import DataError, FedoraError, SettingsError
from fedora_vfl.settings.files import Settings, check
from party.data.reading import read
from party.data.records import Images, Records, Table
from party.data.settings import DataSettings


class Job(Settings):
    """The part of a job file that speaks of data."""

    data: DataSource


def source(**content: Any) -> DataSource:
    return check({"data": content}, Job, origin="job.yaml").data


def read_all(files: dict[str, DataFile]) -> dict[str, Records]:
    """Read every file the way its party will."""
    records = {}
    for name, file in files.items():
        reading = check(file.reading, DataSettings, origin=f"{name}.yaml")
        assert reading.path == file.path.absolute()
        records[name] = read(reading, with_labels=name == "active")
        assert len(records[name]) == file.rows
    return records


def columns_of(records: Records) -> list[str]:
    if records.features is None:
        return []
    assert isinstance(records.features, Table)
    return [*records.features.numeric, *records.features.categorical]


def pixels_of(records: Records) -> "np.ndarray[Any, np.dtype[np.uint8]]":
    assert isinstance(records.features, Images)
    return records.features.pixels


@pytest.fixture(scope="module")
def income(tmp_path_factory: pytest.TempPathFactory) -> dict[str, DataFile]:
    return cut(source(source="income"), tmp_path_factory.mktemp("income"), seed=0).files


# Income


def test_income_is_the_whole_official_data_set(income: dict[str, DataFile]) -> None:
    records = read_all(income)
    active = records["active"]
    assert active.split is not None
    assert active.labels is not None
    assert (active.split.count("train"), active.split.count("test")) == (32561, 16281)
    assert set(active.labels) == {"<=50K", ">50K"}
    assert active.labels.count(">50K") == 7841 + 3846
    assert all(other.ids == active.ids for other in records.values())
    assert active.ids[0] == "train-000001"
    assert active.ids[-1] == "test-016281"


def test_income_columns_are_where_the_specification_has_them(income: dict[str, DataFile]) -> None:
    assert list(income) == ["passive-1", "passive-2", "active"]
    assert income["passive-1"].columns == ("id", "age", "workclass", "fnlwgt", "education", "education-num")
    assert income["passive-2"].columns == ("id", "marital-status", "occupation", "relationship", "race", "sex")
    assert income["active"].columns == (
        *("id", "capital-gain", "capital-loss", "hours-per-week", "native-country"),
        *("label", "split"),
    )
    records = read_all(income)
    first, active = records["passive-1"].features, records["active"].features
    assert isinstance(first, Table)
    assert isinstance(active, Table)
    assert list(first.numeric) == ["age", "fnlwgt", "education-num"]
    assert list(active.numeric) == ["capital-gain", "capital-loss", "hours-per-week"]
    # `?` is how the data set spells a missing value.
    assert (first.categorical["workclass"] == None).sum() == 2799  # noqa: E711 (element by element)
    assert first.numeric["age"][:3].tolist() == [39, 50, 38]


def test_income_as_parquet_holds_the_same(income: dict[str, DataFile], tmp_path: Path) -> None:
    as_csv = read_all(income)
    as_parquet = read_all(cut(source(source="income", format="parquet"), tmp_path, seed=0).files)
    for name, records in as_csv.items():
        other = as_parquet[name]
        assert (records.ids, records.labels, records.split) == (other.ids, other.labels, other.split)
        assert isinstance(records.features, Table)
        assert isinstance(other.features, Table)
        for column, values in records.features.numeric.items():
            np.testing.assert_array_equal(values, other.features.numeric[column])
        for column, names in records.features.categorical.items():
            assert names.tolist() == other.features.categorical[column].tolist()


@pytest.mark.parametrize("parties", [1, 3, 10])
def test_income_columns_are_shared_evenly_and_in_order(tmp_path: Path, parties: int) -> None:
    files = cut(source(source="income", parties=parties, active_features=False, limit=10), tmp_path, seed=0).files
    assert files["active"].columns == ("id", "label", "split")
    shares = [list(file.columns[1:]) for name, file in files.items() if name != "active"]
    assert len(shares) == parties
    everything = [column for share in shares for column in share]
    assert everything[:2] == ["age", "workclass"]
    assert everything[-4:] == ["capital-gain", "capital-loss", "hours-per-week", "native-country"]
    assert len(everything) == len(set(everything)) == 14
    lengths = [len(share) for share in shares[:-1]] + [len(shares[-1]) - 4]
    assert max(lengths) - min(lengths) <= 1


# Rows


def test_each_party_drops_and_shuffles_rows_of_its_own(tmp_path: Path) -> None:
    files = cut(source(source="income", drop=0.25, shuffle=True, limit=719), tmp_path, seed=3).files
    records = read_all(files)
    sets = [set(one.ids) for one in records.values()]
    assert [len(one) for one in sets] == [12750] * 3  # of 17,000
    assert sets[0] != sets[1] != sets[2]
    assert abs(len(set.intersection(*sets)) - 17000 * 0.75**3) < 400
    for one in records.values():
        assert one.ids != sorted(one.ids)


def test_rows_stay_whole_when_they_are_dropped_and_shuffled(income: dict[str, DataFile], tmp_path: Path) -> None:
    whole = read_all(income)
    for name, some in read_all(cut(source(source="income", drop=0.5, shuffle=True), tmp_path, seed=1).files).items():
        place = {identity: row for row, identity in enumerate(whole[name].ids)}
        expected = whole[name].select(np.array([place[identity] for identity in some.ids]))
        assert (some.labels, some.split) == (expected.labels, expected.split)
        assert isinstance(some.features, Table)
        assert isinstance(expected.features, Table)
        for column, values in expected.features.numeric.items():
            np.testing.assert_array_equal(some.features.numeric[column], values)


def test_a_limit_takes_training_rows_only(tmp_path: Path) -> None:
    active = read_all(cut(source(source="income", limit=100), tmp_path, seed=0).files)["active"]
    assert active.split is not None
    assert (active.split.count("train"), active.split.count("test")) == (100, 16281)
    assert active.ids == sorted(active.ids, key=lambda name: (name.startswith("test"), name))
    assert active.ids[:100] != [f"train-{number:06d}" for number in range(1, 101)]


@pytest.mark.parametrize("kind", ["csv", "parquet", "npz"])
def test_the_same_seed_gives_the_same_bytes_and_another_does_not(tmp_path: Path, kind: str) -> None:
    content: dict[str, Any] = {"source": "digits"} if kind == "npz" else {"source": "income", "format": kind}
    data = source(**content, drop=0.5, shuffle=True, limit=500)
    first, again, other = (
        {name: file.path.read_bytes() for name, file in cut(data, tmp_path / folder, seed=seed).files.items()}
        for folder, seed in (("first", 7), ("again", 7), ("other", 8))
    )
    assert first == again
    assert all(first[name] != other[name] for name in first)


def test_chance_is_the_same_on_every_machine() -> None:
    assert permutation(10, 0, "test").tolist() == [9, 1, 6, 2, 3, 0, 8, 4, 7, 5]
    assert permutation(10, -1, "test").tolist() != permutation(10, 1, "test").tolist()
    assert sorted(permutation(1000, 5)) == list(range(1000))


# Images


def medmnist(path: Path, *, channels: int | None = None, val: bool = True, flat: bool = False) -> dict[str, Any]:
    """Write a small file in MedMNIST's layout."""
    random = np.random.default_rng(0)
    arrays: dict[str, Any] = {}
    for part, count in (("train", 9), ("val", 4), ("test", 5)):
        if part == "val" and not val:
            continue
        shape = (count, 6, 7) if channels is None else (count, 6, 7, channels)
        arrays[f"{part}_images"] = random.integers(0, 256, shape, dtype=np.uint8)
        labels = random.integers(0, 3, (count, 1), dtype=np.uint8)
        arrays[f"{part}_labels"] = labels[:, 0] if flat else labels
    np.savez(path, **arrays)
    return arrays


@pytest.mark.parametrize("channels", [None, 3])
@pytest.mark.parametrize("val", [True, False])
@pytest.mark.parametrize("active_features", [True, False])
def test_image_stripes_reassemble_into_the_images(
    tmp_path: Path, channels: int | None, val: bool, active_features: bool
) -> None:
    arrays = medmnist(tmp_path / "set.npz", channels=channels, val=val, flat=val)
    data = source(source="npz", path=tmp_path / "set.npz", parties=3, active_features=active_features)
    files = cut(data, tmp_path / "cut", seed=0).files
    records = read_all(files)
    parts = ["train", "val", "test"] if val else ["train", "test"]
    whole = np.concatenate([arrays[f"{part}_images"] for part in parts])
    stripes = [pixels_of(one) for one in records.values() if one.features is not None]
    assert len(stripes) == 3 + active_features
    assert [stripe.shape[2] for stripe in stripes] == ([2, 2, 2, 1] if active_features else [3, 2, 2])
    np.testing.assert_array_equal(np.concatenate(stripes, axis=2), whole if channels else whole[..., np.newaxis])
    labels = np.concatenate([arrays[f"{part}_labels"].reshape(-1) for part in parts])
    active = records["active"]
    assert active.labels == [str(label) for label in labels]
    assert active.split == ["train"] * 9 + ["validation"] * 4 * val + ["test"] * 5
    assert active.ids[0] == "train-000001"
    assert active.ids[-1] == "test-000005"
    assert files["passive-1"].columns == ("ids", f"image columns 1 to {stripes[0].shape[2]} of 7")


def test_digits_are_cut_and_split(tmp_path: Path) -> None:
    records = read_all(cut(source(source="digits"), tmp_path, seed=0).files)
    active = records["active"]
    assert active.features is None
    assert active.split is not None
    assert (active.split.count("train"), active.split.count("test")) == (1438, 359)
    halves = np.concatenate([pixels_of(records["passive-1"]), pixels_of(records["passive-2"])], axis=2)
    assert halves.shape == (1797, 8, 8, 1)
    assert (halves.min(), halves.max()) == (0, 255)
    assert set(active.labels or []) == {str(digit) for digit in range(10)}


# A user's own table

TEXT = "key;zip; age;job;paid;when;y\n" + "".join(
    f"{row:03d};0{row};{row + 20};{'clerk' if row % 2 else '?'};{row / 4};2020-01-{row + 1:02d};{row % 3}\n"
    for row in range(20)
)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "table.csv"
    path.write_text(TEXT)
    return path


@pytest.mark.parametrize("form", ["csv", "parquet"])
@pytest.mark.parametrize("active_features", [True, False])
def test_a_users_table_is_cut_by_columns(tmp_path: Path, table: Path, form: str, active_features: bool) -> None:
    data = source(
        source="csv",
        path=table,
        id="key",
        label="y",
        format=form,
        categorical=["zip"],
        active_features=active_features,
        test_fraction=0.4,
    )
    files = cut(data, tmp_path / "cut", seed=0).files
    records = read_all(files)
    assert files["passive-1"].path.suffix == f".{form}"
    columns = [columns_of(one) for one in records.values()]
    assert sorted(name for one in columns for name in one) == ["age", "job", "paid", "when", "zip"]
    assert [len(one) for one in columns] == ([2, 2, 1] if active_features else [3, 2, 0])
    first = records["passive-1"].features
    assert isinstance(first, Table)
    assert first.categorical["zip"][:2].tolist() == ["00", "01"]
    assert first.numeric["age"][:2].tolist() == [20.0, 21.0]
    second = records["passive-2"].features
    assert isinstance(second, Table)
    assert "paid" in second.numeric
    assert records["active"].labels == [str(row % 3) for row in range(20)]
    assert records["active"].split is None
    assert files["active"].reading["test_fraction"] == 0.4
    assert all(one.ids == [f"{row:03d}" for row in range(20)] for one in records.values())
    assert all("y" not in file.columns for name, file in files.items() if name != "active")


def test_columns_can_be_given_by_party(tmp_path: Path, table: Path) -> None:
    columns = {"passive-1": ["job"], "passive-2": ["when", "age"], "passive-3": ["paid"], "active": ["zip"]}
    data = source(source="csv", path=table, id="key", label="y", columns=columns)
    assert data.parties == 3
    records = read_all(cut(data, tmp_path / "cut", seed=0).files)
    assert {name: sorted(columns_of(one)) for name, one in records.items()} == {
        name: sorted(given) for name, given in columns.items()
    }


def test_rows_without_ids_are_numbered_and_ignored_columns_stay_behind(tmp_path: Path, table: Path) -> None:
    data = source(source="csv", path=table, label="y", ignore=["key", "zip"], parties=1)
    records = read_all(cut(data, tmp_path / "cut", seed=0).files)
    assert records["active"].ids[:2] == ["row-000001", "row-000002"]
    assert sorted(columns_of(records["passive-1"])) == ["age", "job", "paid", "when"]


def test_test_rows_may_come_from_a_file_of_their_own(tmp_path: Path, table: Path) -> None:
    more = tmp_path / "test.csv"
    more.write_text("y,key,zip,age,job,paid,when\n1,900,1,50,cook,1,2021-01-01\n")
    data = source(source="csv", path=table, test_path=more, id="key", label="y", limit=5)
    records = read_all(cut(data, tmp_path / "cut", seed=0).files)
    assert records["active"].split == ["train"] * 5 + ["test"]
    assert records["active"].ids[-1] == "900"
    first = records["passive-1"].features
    assert isinstance(first, Table)
    assert first.numeric["age"][-1] == 50


def test_a_split_column_goes_to_the_active_party(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text(
        "id,split,a,b,label\n" + "".join(f"{row},{'test' if row > 5 else 'Train'},1,2,x\n" for row in range(9))
    )
    files = cut(source(source="csv", path=path, id="id", limit=2), tmp_path / "cut", seed=0).files
    records = read_all(files)
    assert records["active"].split == ["train"] * 2 + ["test"] * 3
    assert files["passive-1"].columns == ("id", "a")


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_types_of_a_parquet_table_survive_the_cut(tmp_path: Path, form: str) -> None:
    columns = {
        "key": pa.array([10, 11]),
        "zip": ["007", None],
        "code": pa.array(["1", "2"]).dictionary_encode(),
        "name": ['a, "b"', "c;d\ne"],
        "age": pa.array([0.1, None]),
        "born": pa.array([1, 2], pa.date32()),
        "seen": pa.array([0, 43_200_000_000], pa.timestamp("us", "Europe/Berlin")),
        "at": pa.array([43_200, 0], pa.time32("s")),
        "label": pa.array([1.0, 0.0]),
    }
    path = tmp_path / "table.parquet"
    pyarrow.parquet.write_table(pa.table(columns), path)
    data = source(source="parquet", path=path, id="key", format=form, parties=1)
    records = read_all(cut(data, tmp_path / "cut", seed=0).files)
    assert records["active"].ids == ["10", "11"]
    assert records["active"].labels == ["1", "0"]
    features = records["passive-1"].features
    assert isinstance(features, Table)
    assert {name: values.tolist() for name, values in features.categorical.items()} == {
        "zip": ["007", None],
        "code": ["1", "2"],
        "name": ['a, "b"', "c;d\ne"],
    }
    assert list(features.numeric) == ["age", "born", "seen", "at"]
    np.testing.assert_array_equal(features.numeric["age"], [0.1, np.nan])
    assert features.numeric["born"].tolist() == [1.0, 2.0]
    assert features.numeric["seen"].tolist() == [0.0, 0.5]


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_decimal_commas_survive_the_cut(tmp_path: Path, form: str) -> None:
    path = tmp_path / "table.csv"
    path.write_text("id;x;words;label\n1;1,5;a,b;u\n2;?;c;v\n3;-3;1,5;v\n")
    data = source(source="csv", path=path, id="id", parties=1, format=form)
    features = read_all(cut(data, tmp_path / "cut", seed=0).files)["passive-1"].features
    assert isinstance(features, Table)
    np.testing.assert_array_equal(features.numeric["x"], [1.5, np.nan, -3])
    assert features.categorical["words"].tolist() == ["a,b", "c", "1,5"]


def test_names_with_delimiters_survive_the_cut(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text('id,"a;b;c;d","e|f",label\n1,2,3,x\n2,3,4,y\n')
    records = read_all(cut(source(source="csv", path=path, id="id", parties=1), tmp_path / "cut", seed=0).files)
    assert columns_of(records["passive-1"]) == ["a;b;c;d", "e|f"]


# A user's own files


def test_own_files_are_used_where_they_are(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("pid,age,note\n1,5,x\n2,6,y\n")
    np.savez(tmp_path / "b.npz", ids=np.array([1, 2]), images=np.zeros((2, 3, 3), np.uint8))
    pyarrow.parquet.write_table(pa.table({"pid": [1, 2], "ill": ["y", "n"]}), tmp_path / "c.parquet")
    paths = {"passive-1": tmp_path / "a.csv", "passive-2": tmp_path / "b.npz", "active": tmp_path / "c.parquet"}
    data = source(source="files", files=paths, id="pid", label="ill", categorical=["age"], ignore=["note"])
    assert party_names(data) == ["passive-1", "passive-2", "active"]
    files = cut(data, tmp_path / "cut", seed=0).files
    assert not (tmp_path / "cut").exists()
    assert {name: file.path for name, file in files.items()} == paths
    assert files["passive-1"].columns == ("pid", "age", "note")
    records = read_all(files)
    assert all(one.ids == ["1", "2"] for one in records.values())
    assert records["active"].labels == ["y", "n"]
    assert columns_of(records["passive-1"]) == ["age"]


# Errors


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ({"source": "mnist"}, "job.yaml: data: `source` should be one of cifar10, cifar100, csv, digits, files, inc"),
        ({}, "job.yaml: data: `source` should be one of cifar10, cifar100, csv, digits, files, inc"),
        ({"source": "npz"}, "job.yaml: data.path: is missing"),
        ({"source": "income", "parties": 33}, "should be less than or equal to 32 (got 33)"),
        ({"source": "income", "drop": 1.0}, "should be less than 1 (got 1.0)"),
        ({"source": "income", "format": "xlsx"}, "should be 'csv' or 'parquet' (got 'xlsx')"),
        (
            {"source": "digits", "format": "csv"},
            "data.format: unknown setting; allowed here: active_features, drop, limit",
        ),
        ({"source": ["csv"]}, "job.yaml: data: `source` should be one of"),
        ({"source": "csv", "path": "x", "lable": "y"}, "data.lable: unknown setting; did you mean `label`?"),
        ({"source": "csv", "path": "x", "numeric": ["a"], "ignore": ["a"]}, "column `a` is named twice"),
        ({"source": "csv", "path": "x", "ignore": ["label"]}, "column `label`, of ids or labels, is named in"),
        (
            {"source": "csv", "path": "x", "columns": {"passive-1": ["a"], "hospital": ["b"]}},
            "`columns` names the parties passive-1, hospital where it should name passive-1, passive-2",
        ),
        (
            {"source": "csv", "path": "x", "parties": 2, "columns": {"passive-1": ["a"]}},
            "`columns` names the parties passive-1 where it should name passive-1, passive-2",
        ),
        (
            {"source": "csv", "path": "x", "columns": {"passive-1": ["a"], "passive-2": ["a"]}},
            "`columns` names `a` twice; a column goes to one party",
        ),
        ({"source": "csv", "path": "x", "columns": {"passive-1": ["label"]}}, "`columns` names `label`, which `id`"),
        ({"source": "csv", "path": "x", "columns": {"passive-1": []}}, "`columns` gives passive-1 no column"),
        (
            {"source": "csv", "path": "x", "columns": {"passive-1": ["a"]}, "active_features": True},
            "`active_features` contradicts `columns`",
        ),
        ({"source": "files", "files": {"passive-1": "a.csv"}}, "`files` names no file for `active`"),
        ({"source": "files", "files": {"active": "a.csv"}}, "names the parties none where it should name passive-1"),
        ({"source": "files", "files": {}, "drop": 0.5}, "data.drop: unknown setting; allowed here: categorical, files"),
    ],
)
def test_settings_that_make_no_sense_are_refused(content: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SettingsError) as caught:
        source(**content)
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ({"id": "no"}, "table.csv: has no column `no`; its columns are key, zip, age, job, paid, when, y"),
        ({"label": "no"}, "table.csv: has no column `no`"),
        ({"ignore": ["no"]}, "table.csv: has no column `no`"),
        ({"columns": {"passive-1": ["no"]}}, "table.csv: has no column `no`"),
        ({"parties": 7}, "table.csv: 6 columns cannot be shared among 7 parties; set `parties` to at most 6"),
        ({"parties": 6, "active_features": True}, "shared among 7 parties; set `parties` to at most 5"),
        ({"test_path": "id.csv"}, "id.csv: has no column `key`, which "),
        ({"path": "id.csv", "label": "label"}, "id.csv: has a column `id`; say `id: id` if it holds the ids"),
        (
            {"path": "id.csv", "id": "id", "label": "label", "test_path": "id.csv"},
            "id.csv: has a column `split`, and `test_path` splits the rows too",
        ),
        ({"path": "none.csv"}, "none.csv: cannot be read: No such file or directory"),
        ({"path": "none.parquet"}, "none.parquet: cannot be read: No such file"),
        ({"path": "table.txt"}, "table.txt: is not a known kind of table; its name should end in .csv"),
        ({"path": "broken.parquet"}, "broken.parquet: is not a Parquet file, or a broken one"),
        ({"path": "broken.csv.gz"}, "broken.csv.gz: is not a gzip file, or a broken one"),
        ({"path": "ragged.csv"}, "ragged.csv: line "),
        ({"path": "latin.csv"}, "latin.csv: line 2 is not UTF-8 text; save the file as UTF-8"),
        ({"path": "header.csv"}, "header.csv: has a header but no rows"),
        ({"path": "twice.csv"}, "twice.csv: two columns are called `a`"),
        ({"path": "nameless.csv"}, "nameless.csv: a column has no name"),
        ({"path": "nested.parquet"}, "nested.parquet: column `a` holds list<"),
    ],
)
def test_a_table_that_cannot_be_cut_is_refused_in_one_sentence(
    tmp_path: Path, table: Path, content: dict[str, Any], sentence: str
) -> None:
    for name, bad in {
        "id.csv": b"id,split,a,b,label\n1,train,1,2,x\n",
        "broken.parquet": b"?",
        "broken.csv.gz": b"?",
        "ragged.csv": b"a,y\n1\n",
        "latin.csv": b"a,y\n\xff,1\n",
        "header.csv": b"a,y\n",
        "twice.csv": b"a,a,y\n1,2,3\n",
        "nameless.csv": b",a,y\n1,2,3\n",
    }.items():
        (tmp_path / name).write_bytes(bad)
    pyarrow.parquet.write_table(pa.table({"a": [[1]], "b": [1], "y": [1]}), tmp_path / "nested.parquet")
    paths: dict[str, Path] = {field: tmp_path / content[field] for field in ("path", "test_path") if field in content}
    given: dict[str, Any] = {"source": "csv", "path": table, "label": "y", **content, **paths}
    with pytest.raises(FedoraError) as caught:
        cut(source(**given), tmp_path / "cut", seed=0)
    assert sentence in str(caught.value)
    assert str(caught.value).startswith(str(tmp_path))
    assert not (tmp_path / "cut").exists()


SMALL = np.zeros((2, 4, 3), np.uint8)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"train_labels": None}, "has no array `train_labels`; its arrays are train_images, test_images, test_labels"),
        ({"test_images": None}, "has no array `test_images`"),
        ({"train_labels": np.zeros((2, 14))}, "`train_labels` gives every image 14 labels; data sets of one class"),
        ({"train_labels": np.zeros(3)}, "`train_labels` does not hold one label for each of the 2 images"),
        ({"train_images": SMALL / 2}, "`train_images` holds float64 of 2×4×3; allowed: uint8 of N×H×W or N×H×W×C"),
        ({"test_images": SMALL[:, :2]}, "`test_images` and `train_images` differ in size or channels"),
        ({"train_images": np.array([None, None])}, "is not an npz file of plain arrays, or a broken one"),
        ({}, "3 columns cannot be shared among 4 parties; set `parties` to at most 3"),
    ],
)
def test_an_image_file_that_cannot_be_cut_is_refused(tmp_path: Path, change: dict[str, Any], sentence: str) -> None:
    labels = np.zeros(2, np.uint8)
    arrays = {"train_images": SMALL, "train_labels": labels, "test_images": SMALL, "test_labels": labels} | change
    path = tmp_path / "set.npz"
    kept: dict[str, Any] = {name: array for name, array in arrays.items() if array is not None}
    np.savez(path, **kept)
    with pytest.raises(FedoraError) as caught:
        cut(source(source="npz", path=path, parties=4), tmp_path / "cut", seed=0)
    assert str(caught.value).startswith(f"{path}: {sentence}")


def test_files_that_are_no_archives_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "set.npz"
    with pytest.raises(DataError, match="cannot be read: No such file or directory"):
        cut(source(source="npz", path=path), tmp_path, seed=0)
    path.write_text("text")
    with pytest.raises(DataError, match="is not an npz file of plain arrays, or a broken one"):
        cut(source(source="npz", path=path), tmp_path, seed=0)


def test_income_has_ten_columns_for_passive_parties(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"income: 10 columns cannot be shared among 11 parties; .* at most 10"):
        cut(source(source="income", parties=11), tmp_path, seed=0)


def test_a_column_that_no_own_file_has_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,x\n1,2\n")
    paths = {"passive-1": tmp_path / "a.csv", "active": tmp_path / "a.csv"}
    with pytest.raises(DataError, match=r"data.ignore: no party's file has a column `y`"):
        cut(source(source="files", files=paths, ignore=["y"]), tmp_path, seed=0)
