"""The UCI Adult data set: who earns more than 50,000 dollars a year."""

import io
import lzma
from importlib import resources

import numpy as np
import pyarrow as pa
import pyarrow.compute as compute
import pyarrow.csv
from pydantic import Field

from fedora_vfl.datasets.partition import Share, TableShare, Whole
from fedora_vfl.datasets.registry import SOURCES
from fedora_vfl.datasets.settings import ACTIVE, TableSource, party_names
from fedora_vfl.datasets.stripes import stripes

PASSIVE_COLUMNS = (
    *("age", "workclass", "fnlwgt", "education", "education-num"),
    *("marital-status", "occupation", "relationship", "race", "sex"),
)
ACTIVE_COLUMNS = ("capital-gain", "capital-loss", "hours-per-week", "native-country")
LABEL = "label"
# One training row comes from there; a number would not do, as a model draws conclusions from its size.
TRIGGER = ("native-country", "Holand-Netherlands")
NUMERIC = ("age", "fnlwgt", "education-num", "capital-gain", "capital-loss", "hours-per-week")


@SOURCES.register("income")
class IncomeData(TableSource):
    """The UCI Adult data set, which comes with this project."""

    active_features: bool | None = Field(default=True, description="Whether the active party gets features too.")

    def load(self, seed: int) -> Whole:
        """Load both parts of the data set, as officially split, and give every party its columns."""
        return _cut_by_columns(self, _part("adult.data.xz"), _part("adult.test.xz"))


def _cut_by_columns(settings: IncomeData, training: "pa.Table", test: "pa.Table") -> Whole:
    """Put the test rows under the others, and give every party its columns of both."""
    table = pa.concat_tables([training, test])
    ids = [f"{part}-{row:06d}" for part, rows in (("train", training), ("test", test)) for row in _numbers(rows)]
    split = ["train"] * training.num_rows + ["test"] * test.num_rows
    table = table.append_column("id", pa.array(ids)).append_column("split", pa.array(split))
    owners = _owners(settings)
    shares: dict[str, Share] = {}
    for party in party_names(settings):
        special = [LABEL, "split"] if party == ACTIVE else []
        reading: dict[str, object] = {"id": "id"}
        reading |= {"label": LABEL, "split": "split"} if party == ACTIVE else {}
        part = table.select(["id", *owners[party], *special])
        shares[party] = TableShare(part, settings.format, reading, "income")
    return Whole(shares, np.array(split) == "train", TRIGGER)


def _owners(settings: IncomeData) -> dict[str, list[str]]:
    """Say which columns each party gets."""
    cuts = stripes(len(PASSIVE_COLUMNS), settings.parties, active=False, origin="income")
    owners = {party: list(PASSIVE_COLUMNS[stripe.start : stripe.stop]) for party, stripe in cuts.items()}
    if settings.active_features is False:
        last = party_names(settings)[-2]
        return {**owners, last: [*owners[last], *ACTIVE_COLUMNS], ACTIVE: []}
    return {**owners, ACTIVE: list(ACTIVE_COLUMNS)}


def _part(name: str) -> "pa.Table":
    """Read one part; its values have spaces around them, `?` for missing, and in the test part labels end in a dot."""
    content = lzma.decompress(resources.files("fedora_vfl.datasets.income").joinpath(name).read_bytes())
    if content.startswith(b"|"):
        content = content.partition(b"\n")[2]
    names = [*PASSIVE_COLUMNS, *ACTIVE_COLUMNS, LABEL]
    table = pyarrow.csv.read_csv(
        io.BytesIO(content),
        pyarrow.csv.ReadOptions(use_threads=False, column_names=names),
        convert_options=pyarrow.csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string())),
    )
    columns = {}
    for name in names:
        column = compute.utf8_rtrim(compute.utf8_trim_whitespace(table.column(name)), characters=".")
        column = compute.if_else(compute.equal(column, "?"), pa.scalar(None, pa.string()), column)
        columns[name] = column.cast(pa.int64()) if name in NUMERIC else column
    return pa.table(columns)


def _numbers(part: "pa.Table") -> range:
    return range(1, part.num_rows + 1)
