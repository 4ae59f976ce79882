"""A backdoor: training rows that carry a trigger under a false label, and test rows that show whether it works."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fedora_vfl.datasets.chance import permutation
from fedora_vfl.datasets.partition import Rows, Share, Whole
from fedora_vfl.datasets.settings import ACTIVE, Backdoor
from fedora_vfl.datasets.triggers import Trigger, choose
from fedora_vfl.errors import DataError, SettingsError
from fedora_vfl.sampling.rows import rows_drawn
from party.data.checking import listing

TRIGGERED = "+trigger"  # ends the id of a test row's triggered copy
TRUTH = "truth"  # the active party's column of true classes


@dataclass(frozen=True, eq=False)
class Implant:
    """A backdoor worked out for one data set, row by row."""

    target: str
    trigger: Trigger
    ids: NDArray[np.str_]
    classes: NDArray[np.str_]  # the true ones
    split: NDArray[np.str_]
    poisoned: NDArray[np.bool_]  # training rows that get the trigger and the false label
    probed: NDArray[np.bool_]  # test rows that are written once more, with both

    def poisoned_ids(self) -> tuple[str, ...]:
        """Name the training rows with the trigger, in the order in which parties align them."""
        return tuple(sorted(self.ids[self.poisoned].tolist()))

    def put_into(self, share: Share, rows: Rows, *, with_labels: bool) -> Share:
        """Take one party's rows, the trigger in the poisoned ones, and below them the copies of its test rows."""
        both = np.concatenate([rows, rows[self.probed[rows]]])
        copied = np.arange(len(both)) >= len(rows)
        marked = copied | self.poisoned[both]
        share = self.trigger.put_on(share.take(both), np.flatnonzero(marked))
        ids = np.where(copied, np.char.add(self.ids[both], TRIGGERED), self.ids[both])
        share = share.with_texts({str(share.reading["id"]): ids.tolist()})
        return self._with_labels(share, both, copied, marked) if with_labels else share

    def _with_labels(self, share: Share, rows: Rows, copied: NDArray[np.bool_], marked: NDArray[np.bool_]) -> Share:
        """Give the active party the false labels, and the true ones beside them."""
        truth = self.classes[rows]
        columns = {
            str(share.reading["label"]): np.where(marked, self.target, truth).tolist(),
            str(share.reading["split"]): np.where(copied, "probe", self.split[rows]).tolist(),
            TRUTH: truth.tolist(),
        }
        return replace(share.with_texts(columns), reading={**share.reading, "truth": TRUTH})


def plan(backdoor: Backdoor, whole: Whole, rows: dict[str, Rows], seed: int) -> Implant:
    """Choose the trigger and the rows that get it; `rows` are those that each party will hold."""
    _check_names(whole)
    ids, classes, split = (np.array(texts, np.str_) for texts in (whole.ids(), whole.classes(), whole.split()))
    training = split == "train"
    _check_classes(backdoor, set(classes[training].tolist()))
    # A row that one party lacks is never aligned, so the trigger would be wasted on it.
    holders = np.zeros(len(whole), np.int64)
    for held in rows.values():
        holders[held] += 1
    candidates = training & (holders == len(rows)) & (classes != backdoor.target)
    probed = (split == "test") & (classes != backdoor.target)
    if not probed.any():
        raise DataError(
            f"{whole.shares[ACTIVE].origin}: no test row is of a class other than {backdoor.target!r}, the backdoor's "
            "target, so that nothing could show whether the backdoor works"
        )
    poisoned = np.zeros(len(whole), np.bool_)
    poisoned[_poisoned(backdoor, candidates, classes, seed)] = True
    return Implant(backdoor.target, choose(backdoor, whole, training), ids, classes, split, poisoned, probed)


def _check_names(whole: Whole) -> None:
    """Refuse data whose names would be mixed up with those given here."""
    active = whole.shares[ACTIVE]
    if TRUTH in (*active.columns, active.reading["split"]):
        raise DataError(
            f"{active.origin}: has a column `{TRUTH}`, where a backdoor run puts the true classes; rename it, or name "
            "it in `ignore`"
        )
    taken = next((one for one in whole.ids() if one.endswith(TRIGGERED)), None)
    if taken is not None:
        raise DataError(f"{active.origin}: id {taken!r} ends in `{TRIGGERED}`, as triggered copies of rows do")


def _check_classes(backdoor: Backdoor, known: set[str]) -> None:
    """Refuse classes that are not there, and rows that are given twice or not at all."""
    if (backdoor.classes is None) == (backdoor.samples is None):
        raise SettingsError("backdoor: needs either `classes`, with `percent`, or `samples`, to say which rows get it")
    if backdoor.classes is not None and not backdoor.classes:
        raise SettingsError("backdoor.classes: is empty; at least one class is needed")
    for field, names in (("target", [backdoor.target]), ("classes", backdoor.classes or [])):
        for name in names:
            if name not in known:
                raise SettingsError(
                    f"backdoor.{field}: {name!r} is not a class of the training rows, which are "
                    f"{listing(sorted(known))}"
                )
    if backdoor.target in (backdoor.classes or []):
        raise SettingsError(
            f"backdoor.classes: names {backdoor.target!r}, the target; only rows of other classes can be relabelled"
        )


def _poisoned(backdoor: Backdoor, candidates: NDArray[np.bool_], classes: NDArray[np.str_], seed: int) -> Rows:
    """Draw the rows that get the trigger."""
    if backdoor.samples is not None:
        rows = np.flatnonzero(candidates)
        if backdoor.samples > len(rows):
            raise SettingsError(
                f"backdoor.samples: asks for {backdoor.samples} rows; all parties hold {len(rows)} training rows of "
                f"classes other than {backdoor.target!r}"
            )
        return rows[permutation(len(rows), seed, "backdoor")[: backdoor.samples]]
    drawn = []
    for name in dict.fromkeys(backdoor.classes or []):
        rows = np.flatnonzero(candidates & (classes == name))
        if not len(rows):
            raise SettingsError(f"backdoor.classes: no training row of class {name!r} is held by all parties")
        count = rows_drawn(backdoor.percent / 100, len(rows))
        drawn.append(rows[permutation(len(rows), seed, "backdoor", name)[:count]])
    return np.concatenate(drawn)
