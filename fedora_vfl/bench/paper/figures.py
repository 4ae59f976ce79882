"""The paper's own figures, transcribed, and the names of its tables and figures."""

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path

PATH = Path(__file__).parent / "figures.csv"

# Numbers of the paper's tables and figures, by their LaTeX labels.
NUMBERS = {
    "tab:complexity_comparison": "Table II",
    "tab:running time": "Table III",
    "tab:ta_sample": "Table IV",
    "tab:ta_label": "Table V",
    "tab:noniid": "Table VI",
    "tab:ablation": "Table VII",
    "tab:extreme": "Table VIII",
    "tab:gaussian_noise": "Table IX",
    "fig:ua_sample": "Figure 4",
    "fig:ua_label": "Figure 5",
    "fig:mia_bd_comparison_sample": "Figure 6",
    "fig:mia_bd_comparison_label": "Figure 7",
    "fig:pdhg_fweight_exp": "Figure 8a",
    "fig:pdhg_batch_exp": "Figure 8b",
}
SIGNS = {"is": "", "about": "≈ ", "above": "> ", "below": "< "}
IID = "IID"


@dataclass(frozen=True)
class Figure:
    """One number of the paper."""

    label: str
    data_set: str
    request: str  # empty where the paper does not say
    setting: str
    method: str
    metric: str
    relation: str  # is, about, above, below
    value: float
    where: str

    @property
    def sign(self) -> str:
        """What stands before a number that is not exact."""
        return SIGNS[self.relation]


@cache
def figures() -> tuple[Figure, ...]:
    """Read all of them."""
    with PATH.open(newline="", encoding="utf-8") as file:
        return tuple(_figure(row) for row in csv.DictReader(file))


def _figure(row: dict[str, str]) -> Figure:
    value = float(row.pop("value"))
    return Figure(**row, value=value)


@cache
def _by_name() -> dict[tuple[str, str, str, str, str], Figure]:
    """Index figures by all but the label: the paper repeats some in several tables, and they agree."""
    index: dict[tuple[str, str, str, str, str], Figure] = {}
    for one in figures():
        # The IID lines of the non-IID table, and FedORA's line of the ablation, are runs of the main tables.
        settings = {one.setting, ""} if one.setting == IID else {one.setting}
        for setting in settings:
            index.setdefault((one.data_set, one.request, setting, one.method, one.metric), one)
    return index


def figure(data_set: str, request: str, setting: str, method: str | None, metric: str) -> Figure | None:
    """Return the paper's number for one line, if it gives one."""
    if method is None:
        return None
    return _by_name().get((data_set, request, setting, method, metric)) or _by_name().get(
        (data_set, "", setting, method, metric)
    )
