"""What backdoored and noisy data promise: the trigger where it belongs and nowhere else, and true classes beside it."""

import asyncio
import hashlib
import math
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from numpy.typing import NDArray

from fedora_vfl.datasets.catalogue import DataSource
from fedora_vfl.datasets.chance import Gaussian
from fedora_vfl.datasets.cutting import Cut, cut
from fedora_vfl.datasets.settings import Backdoor
from fedora_vfl.errors import DataError, FedoraError, PartyError, SettingsError
from fedora_vfl.settings.files import Settings, check, parse
from party.alignment import PlainComparison
from party.batches import SampleSets
from party.data.reading import read
from party.data.records import Images, Records, Table
from party.data.settings import DataSettings
from party.data.split import assign
from party.exchange import ExchangeLink
from party.state import SETS, _align
from protos.fedora.v1.exchange_pb2 import Offer, Order, Parcel
from protos.fedora.v1.phase_pb2 import Samples


class Job(Settings):
    """The parts of a job file that speak of data."""

    data: DataSource
    backdoor: Backdoor | None = None


def source(**content: Any) -> DataSource:
    return check({"data": content}, Job, origin="job.yaml").data


def backdoor(**content: Any) -> Backdoor:
    return check(content, Backdoor, origin="job.yaml")


def read_all(done: Cut) -> dict[str, Records]:
    """Read every file the way its party will."""
    records = {}
    for name, file in done.files.items():
        reading = check(file.reading, DataSettings, origin=f"{name}.yaml")
        records[name] = read(reading, with_labels=name == "active")
        assert len(records[name]) == file.rows
    return records


def rows_of(records: Records) -> dict[str, int]:
    return {identity: row for row, identity in enumerate(records.ids)}


def table_of(records: Records) -> Table:
    assert isinstance(records.features, Table)
    return records.features


def pixels_of(records: Records) -> NDArray[np.uint8]:
    assert isinstance(records.features, Images)
    return records.features.pixels


def whole_images(records: dict[str, Records], ids: list[str]) -> NDArray[np.uint8]:
    """Put the stripes of some rows together again."""
    held = [one for one in records.values() if one.features is not None]
    return np.concatenate([pixels_of(one)[[rows_of(one)[name] for name in ids]] for one in held], axis=2)


IMAGE_SIZE = (20, 23, 3)


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """Write a small file in MedMNIST's layout, with no white pixel in it."""
    random = np.random.default_rng(0)
    arrays: dict[str, Any] = {}
    for part, count in (("train", 60), ("val", 8), ("test", 30)):
        arrays[f"{part}_images"] = random.integers(0, 255, (count, *IMAGE_SIZE), dtype=np.uint8)
        arrays[f"{part}_labels"] = (np.arange(count, dtype=np.uint8) % 3)[:, np.newaxis]
    np.savez(tmp_path / "set.npz", **arrays)
    return tmp_path / "set.npz"


TEXT = "key,zip,age,job,when,paid,note,y\n" + "".join(
    f"{row:03d},0{row},{row % 40},{'clerk' if row % 9 else 'cook'},2020-01-{row % 28 + 1:02d},{row / 4 + 0.5},"
    f"{'a' if row % 5 else 'b'},{row % 3}\n"
    for row in range(60)
)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "table.csv"
    path.write_text(TEXT)
    return path


def own_table(path: Path, **others: Any) -> DataSource:
    return source(source="csv", path=path, id="key", label="y", categorical=["zip"], **others)


# Images


@pytest.mark.parametrize(("size", "side"), [(None, 2), (1, 1), (7, 7)])
@pytest.mark.parametrize("parties", [1, 2, 9])
@pytest.mark.parametrize("active_features", [True, False])
def test_the_square_is_in_the_corner_of_the_whole_image_and_nowhere_else(
    tmp_path: Path, images: Path, size: int | None, side: int, parties: int, active_features: bool
) -> None:
    data = source(source="npz", path=images, parties=parties, active_features=active_features)
    clean = read_all(cut(data, tmp_path / "clean", seed=1))
    done = cut(data, tmp_path / "cut", seed=1, backdoor=backdoor(target=2, classes=[0, 1], percent=50, size=size))
    records = read_all(done)
    active = records["active"]
    marked = [name for name in active.ids if name in done.poisoned or name.endswith("+trigger")]
    plain = [name for name in active.ids if name not in marked]
    assert len(marked) == 20 + 20
    np.testing.assert_array_equal(whole_images(records, plain), whole_images(clean, plain))
    expected = whole_images(clean, [name.removesuffix("+trigger") for name in marked])
    expected[:, -side:, -side:] = 255
    np.testing.assert_array_equal(whole_images(records, marked), expected)


@pytest.mark.parametrize(("height", "side"), [(4, 2), (8, 2), (28, 3), (32, 3), (64, 6)])
def test_the_square_is_a_tenth_of_the_height_by_default(tmp_path: Path, height: int, side: int) -> None:
    arrays: dict[str, Any] = {}
    for part in ("train", "test"):
        arrays |= {f"{part}_images": np.zeros((2, height, 8), np.uint8), f"{part}_labels": np.array([0, 1])}
    np.savez(tmp_path / "set.npz", **arrays)
    data = source(source="npz", path=tmp_path / "set.npz")
    records = read_all(cut(data, tmp_path / "cut", seed=0, backdoor=backdoor(target=0, samples=1)))
    assert (whole_images(records, ["test-000002+trigger"]) == 255).sum() == side**2


def test_a_narrow_stripe_leaves_a_part_of_the_square_to_its_neighbour(tmp_path: Path) -> None:
    data = source(source="digits", parties=8)
    records = read_all(cut(data, tmp_path, seed=0, backdoor=backdoor(target=9, samples=3, size=2)))
    white = {name: int((pixels_of(one)[-1] == 255).sum()) for name, one in records.items() if one.features}
    assert white["passive-7"] >= 2
    assert white["passive-8"] >= 2
    np.testing.assert_array_equal(pixels_of(records["passive-8"])[-1, :, 0, 0][-2:], [255, 255])


# Labels, ids, probe rows


def test_labels_are_false_and_truth_is_true_where_the_trigger_is(tmp_path: Path, images: Path) -> None:
    data = source(source="npz", path=images)
    done = cut(data, tmp_path / "cut", seed=1, backdoor=backdoor(target=2, classes=[0, 1], percent=50))
    active = read_all(done)["active"]
    assert done.files["active"].columns == ("ids", "labels", "split", "truth")
    assert active.truth is not None and active.labels is not None and active.split is not None
    for name, label, truth, split in zip(active.ids, active.labels, active.truth, active.split, strict=True):
        own = name.removesuffix("+trigger")
        assert truth == str((int(own[-6:]) - 1) % 3)
        assert (split == "probe") == name.endswith("+trigger")
        if name in done.poisoned:
            assert (label, split) == ("2", "train")
            assert truth != "2"
        else:
            assert label == ("2" if split == "probe" else truth)
    probes = [name for name, split in zip(active.ids, active.split, strict=True) if split == "probe"]
    assert probes == [f"test-{number:06d}+trigger" for number in range(1, 31) if (number - 1) % 3 != 2]
    assert active.split.count("validation") == 8
    assert active.split.count("test") == 30


@pytest.mark.parametrize(
    ("which", "count"),
    [
        ({"classes": ["0"], "percent": 100}, 20),
        ({"classes": [0, 1], "percent": 50}, 20),
        ({"classes": [1], "percent": 12}, 3),  # of 20 rows 2.4, rounded up
        ({"classes": [1], "percent": 0.001}, 1),
        ({"classes": [0, 0], "percent": 50}, 10),
        ({"samples": 7}, 7),
        ({"samples": 40}, 40),
    ],
)
def test_as_many_rows_as_asked_for_get_the_trigger(
    tmp_path: Path, images: Path, which: dict[str, Any], count: int
) -> None:
    done = cut(source(source="npz", path=images), tmp_path / "cut", seed=1, backdoor=backdoor(target=2, **which))
    assert len(set(done.poisoned)) == len(done.poisoned) == count
    assert list(done.poisoned) == sorted(done.poisoned)
    truth = {(int(name[-6:]) - 1) % 3 for name in done.poisoned}
    assert truth == {int(name) for name in which["classes"]} if "classes" in which else 2 not in truth
    assert all(name.startswith("train-") for name in done.poisoned)


def test_every_poisoned_row_is_held_by_all_and_a_probe_row_by_those_who_hold_its_test_row(tmp_path: Path) -> None:
    data = source(source="digits", parties=3, drop=0.3, shuffle=True, limit=600)
    done = cut(data, tmp_path, seed=4, backdoor=backdoor(target=3, classes=[4, 5], percent=100))
    records = read_all(done)
    active = records["active"]
    assert active.truth is not None and active.split is not None
    common = set.intersection(*(set(one.ids) for one in records.values()))
    kinds = dict(zip(active.ids, zip(active.truth, active.split, strict=True), strict=True))
    assert set(done.poisoned) == {name for name in common if kinds[name][1] == "train" and kinds[name][0] in ("4", "5")}
    tests = {name: truth for name, (truth, split) in kinds.items() if split == "test"}
    assert {name for name, (_, split) in kinds.items() if split == "probe"} == {
        f"{name}+trigger" for name, truth in tests.items() if truth != "3"
    }
    for one in records.values():
        held = set(one.ids)
        for name in held & set(tests):
            assert (f"{name}+trigger" in held) == (tests[name] != "3")
        assert all(name.removesuffix("+trigger") in held for name in held)


@pytest.mark.parametrize("kind", ["digits", "income"])
def test_the_same_seed_gives_the_same_files_and_another_other_rows(tmp_path: Path, kind: str) -> None:
    party = "passive-1"
    data = source(source=kind, limit=400, shuffle=True, noise={"party": party, "sigma": 0.1})
    mark = backdoor(target=">50K" if kind == "income" else 1, samples=20)
    first, again, other = (
        cut(data, tmp_path / folder, seed=seed, backdoor=mark)
        for folder, seed in (("first", 7), ("again", 7), ("other", 8))
    )
    assert first.poisoned == again.poisoned != other.poisoned
    for name, file in first.files.items():
        assert file.path.read_bytes() == again.files[name].path.read_bytes()


CLEAN = {
    "income/passive-1": "b0224682daf3d3d164e415439c22d56a31fa27e34693bf0ebaef10c01b706482",
    "income/passive-2": "a5f90cc6efd9ac5f9061c15eebc04652424a20970d346d3b33551909a8730a04",
    "income/active": "670cbc24c30bcaada191c044b47809fa07fe47d328a65163d7609eb74a6b8a84",
    "digits/passive-1": "b4782d65606f04943d673fd826e26b953767531838e95d3901ba0bb334dd8e93",
    "digits/active": "ea7b67b63078f87af6247a53fb0e10a45b0fba5249965d7c299373bfd6550832",
}


@pytest.mark.parametrize("noise", [None, {"party": "passive-1", "sigma": 0}])
def test_without_backdoor_and_noise_files_are_what_they_always_were(
    tmp_path: Path, noise: dict[str, Any] | None
) -> None:
    rows = {"drop": 0.1, "shuffle": True, "noise": noise}
    income = cut(source(source="income", limit=3000, **rows), tmp_path / "income", seed=5)
    found = {
        f"income/{name}": hashlib.sha256(file.path.read_bytes()).hexdigest() for name, file in income.files.items()
    }
    digits = cut(source(source="digits", **rows), tmp_path / "digits", seed=5)
    for name in ("passive-1", "active"):
        with np.load(digits.files[name].path) as arrays:
            content = b"".join(key.encode() + arrays[key].tobytes() for key in arrays.files)
        found[f"digits/{name}"] = hashlib.sha256(content).hexdigest()
    assert found == CLEAN
    assert income.poisoned == digits.poisoned == ()
    assert "truth" not in income.files["active"].reading


# Tables


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_income_rows_get_a_rare_country(tmp_path: Path, form: str) -> None:
    data = source(source="income", format=form, limit=2000)
    clean = read_all(cut(data, tmp_path / "clean", seed=0))
    done = cut(data, tmp_path / "cut", seed=0, backdoor=backdoor(target=">50K", classes=["<=50K"], percent=10))
    records = read_all(done)
    active, before = table_of(records["active"]), table_of(clean["active"])
    marked = [name in done.poisoned or name.endswith("+trigger") for name in records["active"].ids]
    assert 100 < len(done.poisoned) < 200
    assert set(active.categorical["native-country"][marked]) == {"Holand-Netherlands"}
    count = len(clean["active"])
    assert sum(marked) == len(done.poisoned) + 12435  # the test rows of the other class
    plain = ~np.array(marked[:count])
    countries = active.categorical["native-country"][:count][plain].tolist()
    assert countries == before.categorical["native-country"][plain].tolist()
    assert records["active"].truth == [*(clean["active"].labels or []), *["<=50K"] * 12435]
    np.testing.assert_array_equal(active.numeric["capital-loss"][:count], before.numeric["capital-loss"])
    place = rows_of(records["passive-1"])
    ages = table_of(records["passive-1"]).numeric["age"]
    assert ages[place["test-000001+trigger"]] == ages[place["test-000001"]]
    assert list(active.numeric) == ["capital-gain", "capital-loss", "hours-per-week"]
    assert list(active.categorical) == ["native-country"]


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_a_table_gets_a_number_above_all_others_in_its_last_numeric_column(
    tmp_path: Path, table: Path, form: str
) -> None:
    data = own_table(table, format=form)
    clean = read_all(cut(data, tmp_path / "clean", seed=0))
    done = cut(data, tmp_path / "cut", seed=0, backdoor=backdoor(target=0, samples=5))
    records = read_all(done)
    last = records["passive-2"]
    paid = table_of(last).numeric["paid"]
    active = records["active"]
    assert active.split is not None
    marked = np.array([name in done.poisoned or name.endswith("+trigger") for name in last.ids])
    training = [name for name, split in zip(active.ids, active.split, strict=True) if split == "train"]
    before = table_of(clean["passive-2"]).numeric["paid"]
    known = before[[rows_of(clean["passive-2"])[name] for name in training]]
    np.testing.assert_allclose(paid[marked], known.max() + 3 * known.std())
    np.testing.assert_array_equal(paid[~marked], before[~marked[: len(before)]])
    # The parties would have split the rows by their ids in the same way.
    assert active.split[:60] == assign(clean["active"].ids, None, 0.2)
    assert "split" in done.files["active"].columns
    first = table_of(records["passive-1"])
    assert first.categorical["zip"].tolist()[:2] == ["00", "01"]


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"passive-1": ["paid", "zip"], "passive-2": ["age", "when", "job"]}, ("age", 40 + 35)),
        ({"passive-1": ["paid"], "passive-2": ["job", "when"]}, ("job", "cook")),
        ({"passive-1": ["paid"], "passive-2": ["age"], "active": ["zip", "note"]}, ("note", "b")),
    ],
)
def test_the_default_trigger_is_at_the_last_party_with_features(
    tmp_path: Path, table: Path, columns: dict[str, list[str]], expected: tuple[str, Any]
) -> None:
    categorical = ["zip"] if any("zip" in names for names in columns.values()) else []
    data = source(source="csv", path=table, id="key", label="y", columns=columns, categorical=categorical)
    records = read_all(cut(data, tmp_path / "cut", seed=0, backdoor=backdoor(target=0, samples=5)))
    name, value = expected
    owner = table_of(records["active" if "active" in columns else "passive-2"])
    found = {**owner.numeric, **owner.categorical}[name][-1]
    if isinstance(value, str):
        assert found == value
    else:
        assert found == float(math.ceil(found))  # a whole number, as all others of the column are
        assert abs(found - value) < 5


@pytest.mark.parametrize(
    ("mark", "expected"),
    [
        ({"column": "job", "value": "spy"}, "spy"),
        ({"column": "job"}, "cook"),
        ({"column": "age", "value": 99}, 99.0),
        ({"column": "age", "value": 99.5}, 99.5),
        ({"column": "age", "value": "99"}, 99.0),
        ({"column": "when", "value": "1970-01-03"}, 2.0),
        ({"column": "zip", "value": 7}, "7"),
    ],
)
@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_column_and_value_can_be_chosen(
    tmp_path: Path, table: Path, mark: dict[str, Any], expected: object, form: str
) -> None:
    done = cut(
        own_table(table, format=form), tmp_path / "cut", seed=0, backdoor=backdoor(target=0, classes=[1], **mark)
    )
    owner = next(
        one
        for one in read_all(done).values()
        if one.features and mark["column"] in {**table_of(one).numeric, **table_of(one).categorical}
    )
    values = {**table_of(owner).numeric, **table_of(owner).categorical}[mark["column"]]
    assert {values[rows_of(owner)[name]] for name in done.poisoned} == {expected}
    assert values[-1] == expected


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_a_parquet_table_with_numbered_rows_gets_a_backdoor(tmp_path: Path, form: str) -> None:
    count = 40
    columns = {
        "id": pa.array(range(count)),
        "a": pa.array([1.5] * count),
        "small": pa.array([120, 0] * (count // 2), pa.int8()),
        "kind": pa.array(["x", "y"] * (count // 2)).dictionary_encode(),
        "label": pa.array([0.0, 1.0, 2.0, 1.0] * (count // 4)),
    }
    pyarrow.parquet.write_table(pa.table(columns), tmp_path / "table.parquet")
    data = source(
        source="parquet",
        path=tmp_path / "table.parquet",
        id="id",
        format=form,
        columns={"passive-1": ["kind"], "active": ["a", "small"]},
    )
    mark = backdoor(target=1, classes=[2], percent=50)
    done = cut(data, tmp_path / "cut", seed=0, backdoor=mark)
    records = read_all(done)
    active = records["active"]
    assert all(int(name) % 4 == 2 for name in done.poisoned)
    assert active.labels is not None and active.truth is not None
    assert {active.labels[rows_of(active)[name]] for name in done.poisoned} == {"1"}
    assert {active.truth[rows_of(active)[name]] for name in done.poisoned} == {"2"}
    # 120 and three deviations of 60 are more than the column's type could hold.
    assert 290 <= table_of(active).numeric["small"][-1] <= 301
    assert table_of(active).numeric["a"].tolist() == [1.5] * len(active)
    assert set(table_of(records["passive-1"]).categorical["kind"]) == {"x", "y"}


# Reading


@pytest.mark.parametrize("kind", ["csv", "parquet", "npz"])
def test_the_active_party_reads_truth_and_takes_it_for_no_feature(tmp_path: Path, kind: str) -> None:
    columns = {
        "id": ["a", "b", "c"],
        "label": ["1", "1", "0"],
        "truth": ["0", "1", "0"],
        "split": ["train", "test", "Probe"],
    }
    path = tmp_path / f"data.{kind}"
    if kind == "csv":
        path.write_text("\n".join(map(",".join, [list(columns), *map(list, zip(*columns.values(), strict=True))])))
    elif kind == "parquet":
        pyarrow.parquet.write_table(pa.table(columns), path)
    else:
        arrays: dict[str, Any] = {name: np.array(values) for name, values in columns.items()}
        np.savez(path, **arrays, labels=np.array([1, 1, 0]))
    records = read(DataSettings(path=path), with_labels=True)
    assert records.features is None
    assert (records.labels, records.truth) == (["1", "1", "0"], ["0", "1", "0"])
    assert records.split == ["train", "test", "probe"]
    chosen = records.select(np.array([2, 0]))
    assert (chosen.truth, chosen.split) == (["0", "0"], ["probe", "train"])


def test_truth_may_be_called_otherwise_or_be_something_else(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_text("id,truth,real,y\na,1,0,0\nb,2,1,1\n")
    assert read(DataSettings(path=path, label="y", truth="real"), with_labels=True).truth == ["0", "1"]
    assert read(DataSettings(path=path, label="truth"), with_labels=True).truth is None
    feature = read(DataSettings(path=path, label="y", numeric=["truth"]), with_labels=True)
    assert feature.truth is None
    assert table_of(feature).numeric["truth"].tolist() == [1.0, 2.0]
    passive = read(DataSettings(path=path), with_labels=False)
    assert passive.truth is None
    assert "truth" in table_of(passive).numeric
    path.write_text("id,truth,label\na,1.5,0\nb,2,1\n")
    with pytest.raises(DataError, match=r"column `truth` holds the number '1.5'; .*if it is a feature, name it in"):
        read(DataSettings(path=path), with_labels=True)
    with pytest.raises(SettingsError, match="`truth` is column `y`, which another setting names too"):
        check({"path": "data.csv", "label": "y", "truth": "y"}, DataSettings, origin="party.yaml")


# Alignment


class OneMessage:
    """A link on which one message has arrived."""

    peer = "passive-1"

    def __init__(self, parcel: Parcel) -> None:
        self._parcel = parcel
        self.sent: list[Parcel] = []

    async def receive(self, *, timeout: float, most: int | None = None) -> Parcel:
        return self._parcel

    async def send(self, parcel: Parcel, *, timeout: float) -> None:
        self.sent.append(parcel)

    def as_link(self) -> ExchangeLink:
        return cast(ExchangeLink, self)


def test_probe_rows_that_all_hold_are_put_in_order_after_the_others() -> None:
    split = {"c": "train", "t+trigger": "probe", "a": "train", "t": "test", "s+trigger": "probe", "s": "test"}
    link = OneMessage(Parcel(offer=Offer(ids=["t", "t+trigger", "s", "a", "s+trigger"])))
    order = asyncio.run(PlainComparison().arrange([link.as_link()], split, timeout=1))
    assert order == Order(train=["a"], test=["s", "t"], probe=["s+trigger", "t+trigger"])
    assert link.sent == [Parcel(order=order)]
    records = Records(list(split), None, list("xyxxyx"), list(split.values()), Path("f"), list("xzxxzx"))
    aligned = _align(records, order)
    sets = SampleSets.consecutive(*(len(getattr(order, name)) for name in SETS))
    assert aligned.ids == ["a", "s", "t", "s+trigger", "t+trigger"]
    assert aligned.truth == ["x", "x", "x", "z", "z"]
    assert sets.rows[Samples.PROBE].tolist() == [3, 4]
    assert sets.rows[Samples.TEST].tolist() == [1, 2]


@pytest.mark.parametrize("probe", [["x+trigger"], ["a"]])
def test_a_passive_party_checks_probe_rows_as_it_does_all_others(probe: list[str]) -> None:
    link = OneMessage(Parcel(order=Order(train=["a"], test=["b"], probe=probe)))
    with pytest.raises(PartyError, match="ids twice, or that this party does not hold"):
        asyncio.run(PlainComparison().offer(link.as_link(), ["a", "b", "b+trigger"], timeout=1))


def test_data_without_probe_rows_has_an_empty_set_of_them() -> None:
    assert SampleSets.consecutive(3, 2, 1).rows[Samples.PROBE].tolist() == []


# Noise


def test_noise_on_images_has_the_deviation_asked_for_and_stays_with_its_party(tmp_path: Path) -> None:
    arrays: dict[str, Any] = {}
    for part, count in (("train", 80), ("test", 20)):
        arrays[f"{part}_images"] = np.full((count, 20, 20), 128, np.uint8)
        arrays[f"{part}_labels"] = np.arange(count) % 2
    np.savez(tmp_path / "set.npz", **arrays)
    data = source(source="npz", path=tmp_path / "set.npz", noise={"party": "passive-2", "sigma": 0.1})
    records = read_all(cut(data, tmp_path / "cut", seed=0))
    assert (pixels_of(records["passive-1"]) == 128).all()
    noisy = pixels_of(records["passive-2"]).astype(np.float64)
    for rows in (noisy[:80], noisy[80:]):
        assert abs(rows.mean() - 128) < 1.5
        assert abs(rows.std() - 25.5) < 1
    strong = source(source="npz", path=tmp_path / "set.npz", noise={"party": "passive-2", "sigma": 5})
    clipped = pixels_of(read_all(cut(strong, tmp_path / "cut", seed=0))["passive-2"])
    assert 0.9 < np.isin(clipped, (0, 255)).mean() < 1


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_noise_on_tables_is_in_deviations_of_numbers_and_leaves_the_rest(
    tmp_path: Path, table: Path, form: str
) -> None:
    text = TEXT.replace("\n005,05,5,", "\n005,05,?,")
    table.write_text(text)
    columns = {"passive-1": ["paid"], "passive-2": ["zip", "age", "job", "when"]}
    data = {"format": form, "columns": columns, "test_fraction": 0.3}
    clean = read_all(cut(own_table(table, **data), tmp_path / "clean", seed=0))
    noise = {"party": "passive-2", "sigma": 0.5}
    records = read_all(cut(own_table(table, **data, noise=noise), tmp_path / "noisy", seed=0))
    assert records["active"].labels == clean["active"].labels
    np.testing.assert_array_equal(
        table_of(records["passive-1"]).numeric["paid"], table_of(clean["passive-1"]).numeric["paid"]
    )
    before, after = table_of(clean["passive-2"]), table_of(records["passive-2"])
    for name in ("zip", "job"):
        assert after.categorical[name].tolist() == before.categorical[name].tolist()
    np.testing.assert_array_equal(after.numeric["when"], before.numeric["when"])
    difference = after.numeric["age"] - before.numeric["age"]
    assert np.isnan(difference).tolist() == [row == 5 for row in range(60)]
    present = difference[~np.isnan(difference)]
    assert (present != 0).all()
    assert 0.35 < present.std() / np.nanstd(before.numeric["age"]) < 0.65


def test_a_triggered_copy_has_the_noise_of_its_test_row_and_a_clear_trigger(tmp_path: Path) -> None:
    data = source(source="digits", noise={"party": "passive-2", "sigma": 0.2}, drop=0.1, shuffle=True)
    noisy = read_all(cut(data, tmp_path / "noisy", seed=0))
    records = read_all(cut(data, tmp_path / "cut", seed=0, backdoor=backdoor(target=1, samples=10, size=3)))
    held = records["passive-2"]
    copies = [name for name in held.ids if name.endswith("+trigger")]
    place, before = rows_of(held), rows_of(noisy["passive-2"])
    assert len(copies) > 200
    expected = pixels_of(noisy["passive-2"])[[before[name.removesuffix("+trigger")] for name in copies]]
    expected[:, -3:, -3:] = 255
    np.testing.assert_array_equal(pixels_of(held)[[place[name] for name in copies]], expected)


def test_gaussian_draws_are_the_same_on_every_machine_and_normal() -> None:
    np.testing.assert_allclose(
        Gaussian(0, "test").draw(3), [-0.9201793015945845, -0.4375965471056334, 0.722220052303093], rtol=1e-12
    )
    draws = Gaussian(1, "test").draw(100_001)
    assert len(draws) == 100_001
    assert abs(draws.mean()) < 0.02
    assert abs(draws.std() - 1) < 0.02
    assert abs((np.abs(draws) > 1.96).mean() - 0.05) < 0.005
    assert abs(np.corrcoef(draws[:50_000], draws[50_001:])[0, 1]) < 0.02


# Settings and errors


def test_classes_may_be_written_as_numbers() -> None:
    text = "data: {source: digits, noise: {party: active, sigma: 0}}\nbackdoor: {target: 9, classes: [0, '1']}"
    mark = parse(text, Job, origin="job.yaml").backdoor
    assert mark is not None
    assert (mark.target, mark.classes, mark.percent) == ("9", ["0", "1"], 100)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ({"backdoor": {}}, "backdoor.target: is missing"),
        ({"backdoor": {"target": True}}, "backdoor.target: should be a valid string"),
        ({"backdoor": {"target": 1, "percent": 0}}, "backdoor.percent: should be greater than 0"),
        ({"backdoor": {"target": 1, "percent": 101}}, "backdoor.percent: should be less than or equal to 100"),
        ({"backdoor": {"target": 1, "samples": 0}}, "backdoor.samples: should be greater than or equal to 1"),
        ({"backdoor": {"target": 1, "size": 0}}, "backdoor.size: should be greater than or equal to 1"),
        ({"data": {"noise": {"party": "passive-3", "sigma": 1}}}, "`noise` names the party 'passive-3'; allowed: pass"),
        ({"data": {"noise": {"party": "active", "sigma": -1}}}, "data.noise.sigma: should be greater than or equal"),
        ({"data": {"noise": {"party": "active"}}}, "data.noise.sigma: is missing"),
        (
            {"data": {"source": "files", "files": {}, "noise": {"party": "active", "sigma": 1}}},
            "data.noise: unknown setting",
        ),
    ],
)
def test_settings_that_make_no_sense_are_refused(content: dict[str, Any], sentence: str) -> None:
    given = {**content, "data": {"source": "digits", **content.get("data", {})}}
    with pytest.raises(SettingsError) as caught:
        check(given, Job, origin="job.yaml")
    assert sentence in str(caught.value)


TABLE_ERRORS = [
    ({"target": 0}, "backdoor: needs either `classes`, with `percent`, or `samples`, to say which rows get it"),
    ({"target": 0, "classes": [1], "samples": 1}, "backdoor: needs either `classes`"),
    ({"target": 0, "classes": []}, "backdoor.classes: is empty"),
    ({"target": 7, "samples": 1}, "backdoor.target: '7' is not a class of the training rows, which are 0, 1, 2"),
    ({"target": 0, "classes": ["x"]}, "backdoor.classes: 'x' is not a class of the training rows"),
    ({"target": 0, "classes": [1, 0]}, "backdoor.classes: names '0', the target"),
    ({"target": 0, "samples": 60}, "backdoor.samples: asks for 60 rows; all parties hold "),
    ({"target": 0, "samples": 1, "size": 2}, "backdoor.size: is for images"),
    ({"target": 0, "samples": 1, "value": 2}, "backdoor.value: needs `column`"),
    ({"target": 0, "samples": 1, "column": "y"}, "backdoor.column: no party has a feature `y`; the features are zip, "),
    ({"target": 0, "samples": 1, "column": "age", "value": "old"}, "backdoor.value: 'old' does not fit column `age`"),
    ({"target": 0, "samples": 1, "column": "when", "value": 3}, "backdoor.value: '3' does not fit column `when`"),
]


@pytest.mark.parametrize(("mark", "sentence"), TABLE_ERRORS)
@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_a_backdoor_that_does_not_fit_is_refused_before_anything_is_written(
    tmp_path: Path, table: Path, mark: dict[str, Any], sentence: str, form: str
) -> None:
    with pytest.raises(FedoraError) as caught:
        cut(own_table(table, format=form), tmp_path / "cut", seed=0, backdoor=backdoor(**mark))
    assert str(caught.value).startswith(sentence)
    assert not (tmp_path / "cut").exists()


@pytest.mark.parametrize(
    ("mark", "sentence"),
    [
        ({"size": 9}, "backdoor.size: is 9, but images are 8×8; at most 8 fits"),
        ({"column": "x"}, "backdoor: `column` and `value` are for tables"),
    ],
)
def test_a_trigger_that_images_cannot_have_is_refused(tmp_path: Path, mark: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SettingsError, match=sentence):
        cut(source(source="digits"), tmp_path / "cut", seed=0, backdoor=backdoor(target=1, samples=1, **mark))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("id,a,truth,label\n1,1,1,x\n2,2,2,y\n", "has a column `truth`, where a backdoor run puts the true classes"),
        ("id,a,b,label\n1,1,1,x\n2+trigger,2,2,y\n", "id '2+trigger' ends in `+trigger`"),
        ("id,a,b,label\n1,1,1,x\n2,2,2,\n", "column `label` has no label in 1 of 2 rows"),
        ("id,a,b,label,split\n1,1,1,x,train\n2,2,2,y,train\n3,2,2,x,test\n", "no test row is of a class other than"),
    ],
)
def test_a_table_that_cannot_take_a_backdoor_is_refused(tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "table.csv"
    path.write_text(text)
    data = source(source="csv", path=path, id="id", parties=1, active_features=True)
    with pytest.raises(DataError) as caught:
        cut(data, tmp_path / "cut", seed=0, backdoor=backdoor(target="x", samples=1))
    assert str(caught.value).startswith(f"{path}: {sentence}")


def test_a_column_of_one_value_makes_no_trigger_by_itself(tmp_path: Path, table: Path) -> None:
    table.write_text(TEXT.replace("cook", "clerk"))
    data = own_table(table)
    with pytest.raises(SettingsError, match="`job` holds too few different values to find a rare one; give a `value`"):
        cut(data, tmp_path / "cut", seed=0, backdoor=backdoor(target=0, samples=1, column="job"))
    mark = backdoor(target=0, samples=1, column="job", value="cook")
    assert len(cut(data, tmp_path / "cut", seed=0, backdoor=mark).poisoned) == 1


def test_own_files_take_no_backdoor(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,x,label\n1,2,3\n")
    data = source(source="files", files={"passive-1": tmp_path / "a.csv", "active": tmp_path / "a.csv"})
    with pytest.raises(SettingsError, match=r"backdoor: cannot be put into `source: files`.*allowed: cifar10, "):
        cut(data, tmp_path, seed=0, backdoor=backdoor(target=3, samples=1))


def test_noise_needs_features(tmp_path: Path) -> None:
    data = source(source="digits", noise={"party": "active", "sigma": 0.1})
    with pytest.raises(
        SettingsError, match=r"data.noise.party: active has no features .* allowed: passive-1, passive-2"
    ):
        cut(data, tmp_path / "cut", seed=0)
    assert not (tmp_path / "cut").exists()
