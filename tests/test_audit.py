"""An audit against known truth: rows learned from, never seen, forgotten by Retrain, only hidden, and not touched."""

import asyncio
import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import stats  # type: ignore[import-untyped]
from sklearn.metrics import roc_auc_score

from fedora_vfl.cli.audit import with_audit
from fedora_vfl.cli.run_report import make
from fedora_vfl.cluster.runs import run_locally
from fedora_vfl.documents.document import Notice
from fedora_vfl.errors import DataError, SettingsError
from fedora_vfl.plugins import load_plugin
from fedora_vfl.run_report.audit import audit as audit_blocks
from fedora_vfl.run_report.words import with_own_words
from fedora_vfl.sampling.parts import rank
from fedora_vfl.sampling.rows import rows_drawn
from fedora_vfl.verdicts.auditing import WORDS, audited, finding
from party.audit import FORGET, OFFLINE, REMAINING, UNSEEN, AuditNotes, Auditor, Shown, kolmogorov_smirnov, signal
from party.batches import SampleSets, draw, part_of
from party.predictions import Predictions
from protos.fedora.v1.phase_pb2 import Part, Plan, Samples
from tests.conftest import as_job
from tests.test_cluster import Submit, with_cluster

ROWS = 300  # of each group
CLASSES = 4
UNIFORM = -math.log(CLASSES - 1)  # φ of a uniform prediction


class World:
    """Rows of different difficulty, and models that show more of a row if they have learned from it."""

    def __init__(self, seed: int = 0) -> None:
        self.draw = np.random.default_rng(seed)
        self.ids = [f"p{row}" for row in range(3 * ROWS)]
        self.rows = {
            name: torch.arange(place * ROWS, (place + 1) * ROWS)
            for place, name in enumerate((FORGET, UNSEEN, REMAINING))
        }
        self.difficulty = self.draw.normal(1.0, 3.0, 3 * ROWS)
        self.notes = AuditNotes()

    def shows(self, learned: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Return φ of all rows of a model that has learned from some."""
        return self.difficulty + 3.0 * learned + self.draw.normal(0, 0.6, 3 * ROWS)

    def add(self, name: str, kind: str, signals: NDArray[np.float64], part: dict[str, int] | None = None) -> None:
        """Have the notes keep a model."""
        shown = {group: torch.from_numpy(signals[rows.numpy()]) for group, rows in self.rows.items()}
        classes = {group: torch.arange(len(rows)) % CLASSES for group, rows in self.rows.items()}
        self.notes.keep(name, Shown(kind, shown, part), self.rows, classes)

    def learned(self, *groups: str) -> NDArray[np.bool_]:
        """Return which rows a model has learned from that saw these groups."""
        found = np.zeros(3 * ROWS, dtype=bool)
        for group in groups:
            found[self.rows[group].numpy()] = True
        return found


def world(references: int = 4, retrains: int = 3, seed: int = 0) -> World:
    """Return a world with an original model, one for every truth, references and Retrains."""
    one = World(seed)
    original = one.shows(one.learned(FORGET, REMAINING))
    one.add("original", "AUDITED", original)
    one.add("none", "AUDITED", original)
    one.add("anew", "AUDITED", one.shows(one.learned(REMAINING)))
    hides = original.copy()
    hides[one.rows[FORGET].numpy()] = UNIFORM + one.draw.normal(0, 0.05, ROWS)
    one.add("hides", "AUDITED", hides)
    for number in range(1, retrains + 1):
        name = "retrain" if number == 1 else f"retrain-{number}"
        one.add(name, "RETRAINED", one.shows(one.learned(REMAINING)))
    for number in range(1, references + 1):
        ids = [one.ids[row] for row in one.rows[REMAINING].tolist()]
        below = sorted(rank(number, name) for name in ids)[ROWS // 2 - 1]
        inside = np.array([rank(number, name) <= below for name in one.ids]) & one.learned(REMAINING)
        one.add(f"reference-{number}", "REFERENCE", one.shows(inside), {"seed": number, "below": below})
    return one


def measured(one: World, unlearned: str, *, retrains: int = 3) -> dict[str, dict[str, Any]]:
    """Return the audit's figures as a job has them, with one of the models in the place of the unlearned one."""
    auditor = Auditor(one.notes, one.ids)
    names = [name for name in ("retrain", "retrain-2", "retrain-3")[:retrains] if name in one.notes.shown]
    models = {"original": "original", "unlearned": unlearned, **{name: name for name in names}}
    entropy = {name: uncertainty(one.notes.shown[name].signals[FORGET]) for name in models.values()}
    return {model: {**auditor.figures(name), "forget_entropy": entropy[name]} for model, name in models.items()}


def uncertainty(signals: torch.Tensor) -> float:
    """Return the mean entropy of predictions whose other classes are all as likely as each other."""
    own = signals.sigmoid()
    rest = (1 - own) / (CLASSES - 1)
    return float(-(torch.special.xlogy(own, own) + (CLASSES - 1) * torch.special.xlogy(rest, rest)).mean())


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("model", "found"), [("none", "remembered"), ("anew", "forgotten"), ("hides", "hidden")])
def test_every_truth_is_called_by_its_name(model: str, found: str, seed: int) -> None:
    figures = measured(world(seed=seed), model)
    assert finding(figures) == found, figures


@pytest.mark.parametrize("seed", range(4))
def test_a_retrain_is_never_accused_by_two_others(seed: int) -> None:
    assert finding(measured(world(seed=seed), "retrain-3", retrains=2)) in ("forgotten", "unclear")


def test_rows_that_stay_are_found_and_unseen_rows_are_not_told_apart_by_how_many_models_lack_them() -> None:
    one = world(references=6)
    auditor = Auditor(one.notes, one.ids)
    assert auditor.figures("original")["audit_remaining_auc"] > 0.7
    fresh = one.shows(one.learned())  # has learned from nobody
    one.add("nobody", "AUDITED", fresh)
    for figure in ("audit_remaining_auc", "audit_remaining_lira_auc", "audit_forget_auc"):
        assert auditor.figures("nobody")[figure] == pytest.approx(0.5, abs=0.06)


def test_an_attack_on_each_row_finds_what_one_on_all_rows_misses() -> None:
    one = world()
    shown = one.notes.shown["original"].signals
    is_member = np.repeat([1, 0], ROWS)
    plain = roc_auc_score(is_member, torch.cat([shown[FORGET], shown[UNSEEN]]).numpy())
    assert Auditor(one.notes, one.ids).figures("original")["audit_forget_lira_auc"] > plain + 0.05


def test_the_attack_is_rmia_s_as_it_is_written_down() -> None:
    """Count, for every row, the unseen rows z with (p(x|θ)/p(x)) / (p(z|θ)/p(z)) ≥ 1, and order rows by that."""
    one = world(references=3)
    shown = one.notes.shown
    probability = {
        (name, group): 1 / (1 + np.exp(-shown[name].signals[group].numpy()))
        for name in ("none", "reference-1", "reference-2", "reference-3")
        for group in (FORGET, UNSEEN)
    }

    def ratios(group: str) -> NDArray[np.float64]:
        out = np.mean([probability[f"reference-{number}", group] for number in (1, 2, 3)], axis=0)
        inside = OFFLINE * out + (1 - OFFLINE)
        found: NDArray[np.float64] = probability["none", group] / ((out + inside) / 2)
        return found

    population = ratios(UNSEEN)
    scores = [np.mean(ratio / population >= 1) for group in (FORGET, UNSEEN) for ratio in ratios(group)]
    auc = roc_auc_score(np.repeat([1, 0], ROWS), scores)
    found = Auditor(one.notes, one.ids).figures("none")
    # Counts have ties that ratios have not: an unseen row, say, is in the population that it is counted against.
    assert found["audit_forget_auc"] == pytest.approx(float(auc), abs=1 / ROWS)


def test_the_most_vulnerable_rows_are_the_hardest_for_models_without_them() -> None:
    one = world()
    auditor = Auditor(one.notes, one.ids)
    references = [one.notes.shown[f"reference-{number}"].signals[FORGET].sigmoid() for number in range(1, 5)]
    hardest = torch.stack(references).mean(dim=0).argsort()[: ROWS // 10]
    chosen, unseen = auditor.about("audit_forget_vulnerable_auc", "none")
    assert set(chosen.tolist()) == set(one.rows[FORGET][hardest].tolist())
    assert len(unseen) == ROWS // 10 and set(unseen.tolist()) <= set(one.rows[UNSEEN].tolist())
    assert auditor.figures("none")["audit_forget_vulnerable_auc"] > 0.8
    assert [len(group) for group in auditor.about("audit_forget_auc", "none")] == [ROWS, ROWS]
    assert [len(group) for group in auditor.about("audit_ks_to_retrains", "none")] == [ROWS]


@pytest.mark.parametrize("seed", range(4))
def test_who_knows_no_row_at_all_does_not_seem_to_remember_the_most_vulnerable(seed: int) -> None:
    """Not of the original's choice: the rows that it gives away are harder than the unseen rows that it accuses."""
    one = world(seed=seed)
    one.add("says-nothing", "AUDITED", np.full(3 * ROWS, UNIFORM))
    one.add("guesses", "AUDITED", one.draw.normal(0, 3, 3 * ROWS))
    for model in ("says-nothing", "guesses", "anew"):
        figures = measured(one, model)
        assert figures["unlearned"]["audit_forget_vulnerable_auc"] == pytest.approx(0.5, abs=0.2)
        assert finding(figures) in (("forgotten", "unclear") if model == "anew" else ("hidden", "different"))


def test_output_that_says_nothing_is_not_taken_for_memory_of_rows_that_others_get_wrong() -> None:
    """Of two classes: models without the hardest rows are sure and wrong, and one half is far above that."""
    fair = {"audit_forget_auc": 0.50, "audit_forget_vulnerable_auc": 0.25, "audit_ks_to_retrains": 0.1}
    measured = {
        "original": {**dict.fromkeys(fair, 0.9), "forget_entropy": 0.1},
        **{name: {**fair, "forget_entropy": 0.2} for name in ("retrain", "retrain-2", "retrain-3")},
    }
    shown = {"audit_forget_auc": 0.48, "audit_forget_vulnerable_auc": 0.65, "audit_ks_to_retrains": 0.6}
    assert finding({**measured, "unlearned": {**shown, "forget_entropy": 0.69}}) == "hidden"
    assert finding({**measured, "unlearned": {**shown, "forget_entropy": 0.15}}) == "remembered"


def test_losses_unlike_retrains_and_attacks_beyond_all_of_them_say_together_what_neither_says_alone() -> None:
    retrains = {
        name: {"audit_forget_auc": auc, "audit_ks_to_retrains": distance}
        for name, auc, distance in (("retrain", 0.45, 0.10), ("retrain-2", 0.50, 0.11), ("retrain-3", 0.55, 0.10))
    }
    original = {"audit_forget_auc": 0.9, "audit_ks_to_retrains": 0.5}
    for auc, found in ((0.63, "remembered"), (0.37, "hidden"), (0.52, "different")):
        unlearned = {"audit_forget_auc": auc, "audit_ks_to_retrains": 0.3}
        assert finding({"original": original, "unlearned": unlearned, **retrains}) == found
        alike = {**unlearned, "audit_ks_to_retrains": 0.1}
        said = "forgotten" if found == "different" else "unclear"
        assert finding({"original": original, "unlearned": alike, **retrains}) == said


def test_the_one_distance_between_two_retrains_does_not_tell_how_far_a_third_would_be() -> None:
    retrains = {
        name: {"audit_forget_auc": 0.5 + number / 100, "audit_ks_to_retrains": 0.1}
        for number, name in enumerate(("retrain", "retrain-2", "retrain-3"))
    }
    models = {
        "original": {"audit_forget_auc": 0.99, "audit_ks_to_retrains": 0.5},
        "unlearned": {"audit_forget_auc": 0.51, "audit_ks_to_retrains": 0.2},
    }
    assert finding({**models, **retrains}) == "different"
    del retrains["retrain-3"]
    assert finding({**models, **retrains}) == "unclear"
    told = audited({**models, **retrains}, references=2, rows=ROWS, poisoned=False)["verdict"]
    assert any("nobody knows how much that varies" in sentence for sentence in told)
    models["unlearned"]["audit_ks_to_retrains"] = 0.14
    assert finding({**models, **retrains}) == "forgotten"


def test_a_figure_is_about_the_rows_that_some_reference_has_not_learned_from_and_no_others() -> None:
    one = world(references=2)
    parts = [(one.notes.shown[name].part or {}) for name in ("reference-1", "reference-2")]

    def judged(group: str) -> list[int]:
        rows = one.rows[group].tolist()
        return [row for row in rows if any(rank(part["seed"], one.ids[row]) > part["below"] for part in parts)]

    remaining, unseen = Auditor(one.notes, one.ids).about("audit_remaining_auc", "none")
    assert remaining.tolist() == judged(REMAINING) and unseen.tolist() == judged(UNSEEN)
    assert 0 < len(remaining) < ROWS


def test_the_distance_of_losses_is_the_one_of_the_books() -> None:
    draws = np.random.default_rng(0)
    for size in (1, 7, 200):
        one, other = np.round(draws.normal(size=size), 1), np.round(draws.normal(0.5, size=size + 3), 1)
        found = kolmogorov_smirnov(torch.from_numpy(one), torch.from_numpy(other))
        assert found == pytest.approx(stats.ks_2samp(one, other).statistic)


def test_a_signal_is_the_log_of_the_odds_and_never_infinite() -> None:
    logits = torch.tensor([[2.0, 1.0, -1.0], [0.0, 0.0, 0.0], [5000.0, 0.0, 0.0]])
    found = signal(Predictions(logits, torch.tensor([0, 1, 0])))
    probability = torch.softmax(logits.double(), dim=1)[0, 0]
    assert float(found[0]) == pytest.approx(float((probability / (1 - probability)).log()))
    assert float(found[1]) == pytest.approx(-math.log(2)) and bool(found.isfinite().all())


def test_without_a_retrain_nothing_is_called_forgotten() -> None:
    for name in ("none", "anew", "hides"):
        assert finding(measured(world(), name, retrains=0)) == "no yardstick"
    told = audited(measured(world(), "anew", retrains=0), references=2, rows=ROWS, poisoned=False)
    assert told["verdict"][0] == WORDS["no yardstick"] and told["retrains"] == 0


def test_without_references_other_retrains_take_their_place_and_rows_that_stay_are_not_attacked() -> None:
    one = world(references=0)
    figures = measured(one, "none")
    assert finding(figures) == "remembered"
    assert not any("remaining" in name for name in figures["unlearned"])


def as_figures(**auc: float) -> dict[str, dict[str, Any]]:
    """Return a job's figures where nothing but the attack on all forgotten rows was measured."""
    return {name.replace("_", "-"): {"audit_forget_auc": value} for name, value in auc.items()}


def test_retrains_that_differ_much_are_named_as_the_reason_why_nobody_can_say() -> None:
    two = as_figures(original=0.80, unlearned=0.79, retrain=0.45, retrain_2=0.55)
    assert finding(two) == "unclear", "two Retrains: Student's t is 12.7"
    told = audited(two, references=2, rows=ROWS, poisoned=False)
    assert told["verdict"][0] == WORDS["unclear"] and "found nothing" not in told["verdict"][0]
    three = as_figures(original=0.80, unlearned=0.57, retrain=0.48, retrain_2=0.50, retrain_3=0.53)
    assert finding(three) == "unclear", "what may be chance is not called forgotten"
    assert finding(as_figures(original=0.52, unlearned=0.51, retrain=0.45, retrain_2=0.55)) == "no power"
    assert finding(as_figures(original=0.80, unlearned=0.79, retrain=0.50, retrain_2=0.51)) == "remembered"


def test_a_verdict_on_few_rows_says_that_it_says_little() -> None:
    found = as_figures(original=0.80, unlearned=0.51, retrain=0.50)
    told = {rows: audited(found, references=2, rows=rows, poisoned=False)["verdict"] for rows in (12, 30)}
    assert told[12][:2] == [WORDS["forgotten"], "With 12 forgotten rows all this says little."]
    assert not any("says little" in sentence for sentence in told[30])


def test_a_class_that_is_still_known_is_not_forgotten_though_no_attack_tells_its_rows_from_unseen_ones() -> None:
    aucs = {"original": 0.53, "unlearned": 0.53, "retrain": 0.41, "retrain-2": 0.40, "retrain-3": 0.49}
    right = {"original": 0.97, "unlearned": 0.97, "retrain": 0.0, "retrain-2": 0.0, "retrain-3": 0.0}
    figures = {name: {"audit_forget_auc": auc, "forgotten_classes_accuracy": right[name]} for name, auc in aucs.items()}
    told = audited(figures, references=2, rows=ROWS, poisoned=False)
    assert told["finding"] == "remembered" and told["verdict"][0] == WORDS["class known"]
    figures["unlearned"] = {"audit_forget_auc": 0.45, "forgotten_classes_accuracy": 0.0}
    assert finding(figures) == "forgotten"


def test_where_some_attacks_are_above_and_some_below_the_one_furthest_from_retrains_decides() -> None:
    """Near-uniform output lifts the hardest rows a little above Retrain, which is no memory of them."""
    fair = {"audit_forget_auc": 0.50, "audit_forget_vulnerable_auc": 0.25}
    measured = {"original": dict.fromkeys(fair, 0.9), "retrain": fair}
    hides = {"audit_forget_auc": 0.24, "audit_forget_vulnerable_auc": 0.31}
    remembers = {"audit_forget_auc": 0.44, "audit_forget_vulnerable_auc": 0.95}
    assert finding({**measured, "unlearned": hides}) == "hidden"
    assert finding({**measured, "unlearned": remembers}) == "remembered"


def without_memory(seed: int) -> World:
    """Return a world in which no model has learned any row by heart."""
    one = World(seed)
    one.add("original", "AUDITED", one.shows(one.learned()))
    for name in ("retrain", "retrain-2", "retrain-3"):
        one.add(name, "RETRAINED", one.shows(one.learned()))
    for number in range(4):
        one.add(f"reference-{number}", "REFERENCE", one.shows(one.learned()), {"seed": number, "below": 0})
    return one


def test_attacks_that_never_found_anything_say_so() -> None:
    assert finding(measured(without_memory(1), "original")) == "no power"


def test_rows_chosen_by_a_model_s_own_score_are_no_evidence_against_it() -> None:
    found = [measured(without_memory(seed), "original")["original"] for seed in range(6)]
    assert np.mean([one["audit_forget_vulnerable_auc"] for one in found]) == pytest.approx(0.5, abs=0.1)


def test_notes_survive_a_file() -> None:
    one = world()
    back = AuditNotes.from_state_dict(one.notes.state_dict())
    assert Auditor(back, one.ids).figures("none") == Auditor(one.notes, one.ids).figures("none")


# Parts


def test_a_part_is_the_same_rows_whoever_else_is_there() -> None:
    ids = [f"p{row}" for row in range(101)]
    part = Part(share=0.5, seed=7)
    chosen, below = part_of(torch.arange(101), part, ids)
    assert len(chosen) == rows_drawn(0.5, 101) and chosen.tolist() == sorted(chosen.tolist())
    assert {row for row in range(101) if rank(7, ids[row]) <= below} == set(chosen.tolist())
    sets = SampleSets.consecutive(101, 0, 0)
    over = Samples(set=Samples.TRAIN, share=1, part=part)
    first = torch.cat(draw(sets, over, Plan(seed=1, batch_size=8, shuffle=True), ids))
    second = torch.cat(draw(sets, over, Plan(seed=2, batch_size=8, shuffle=True), ids))
    assert not torch.equal(first, second) and sorted(first.tolist()) == sorted(second.tolist()) == chosen.tolist()
    other, _ = part_of(torch.arange(101), Part(share=0.5, seed=8), ids)
    assert not torch.equal(other, chosen)


# A whole job

OWN = """
from typing import Literal

from coordinator.methods import MethodResult
from coordinator.methods.registry import Unlearn, method
from coordinator.methods.training import training
from coordinator.phases import FORGET, REMAINING, learn
from protos.fedora.v1.phase_pb2 import Ascent, Loss, Uncertainty, Update


class Hide(Unlearn):
    method: Literal["hide"] = "hide"


@method("hide", Hide)
def hide(task, settings):
    loss = Loss(uncertainty=Uncertainty(omega=1.0))
    for round in range(1, 41):
        update = Update(ascent=Ascent(lr=0.05, clip=2.0))
        yield learn("hide", round, over=FORGET, update=update, batch_size=64, seed=round, loss=loss)
    return MethodResult(40, "hidden")


class Anew(Unlearn):
    method: Literal["anew"] = "anew"


@method("anew", Anew, fresh=True)
def anew(task, settings):
    yield from training(task.train, seed=task.seed, name="anew", over=REMAINING)
    return MethodResult(task.train.rounds, "trained anew")
"""


def write_noisy(path: Path, rows: int = 900) -> Path:
    """Write a table with labels of which a third is chance: a network that learns them has learned rows by heart."""
    draws = np.random.default_rng(0)
    columns = draws.normal(size=(rows, 10))
    label = (columns[:, 0] + columns[:, 7] > 0) ^ (draws.random(rows) < 0.3)
    lines = ["person," + ",".join(f"c{column}" for column in range(10)) + ",label"]
    for row in range(rows):
        numbers = ",".join(f"{value:.4f}" for value in columns[row])
        lines.append(f"p{row:05d},{numbers},{'yes' if label[row] else 'no'}")
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def audited_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """Train, do nothing about the rows to forget, compare with what hides them and what forgets them, and audit."""
    folder = tmp_path_factory.mktemp("audit")
    plugin = folder / "own.py"
    plugin.write_text(OWN)
    load_plugin(plugin)
    job = {
        "data": {"source": "csv", "path": str(write_noisy(folder / "noisy.csv")), "id": "person"},
        "model": {"bottom": "mlp", "hidden": [64], "embedding": 16, "top": [32]},
        "train": {"epochs": 25, "batch_size": 64, "lr": 0.005},
        "forget": {"samples": 120},
        "unlearn": {"method": "none"},
        "compare": [{"method": "retrain", "seeds": 3}, "hide", "anew", {"method": "fedora", "goal": "uncertain"}],
        "audit": {"references": 3},
    }
    out = folder / "out"
    work = run_locally(as_job(job), origin=out / "job.yaml", out=out, threads=1, plugins=[plugin])
    return out, asyncio.run(work)


def test_a_job_is_audited_and_every_truth_called_by_its_name(audited_run: tuple[Path, dict[str, Any]]) -> None:
    out, result = audited_run
    figures = result["audit"]["figures"]
    assert result["audit"]["finding"] == "remembered", result["audit"]
    assert not any(name.startswith("reference") for name in figures), "no figure of a reference leaves"
    retrains = {name: result[name] for name in ("retrain", "retrain-2", "retrain-3")}

    def called(model: str) -> str:
        return finding({"original": result["original"], "unlearned": result[model], **retrains})

    assert result["hide"]["forget_entropy"] > 0.95 * math.log(2), "its predictions are near to uniform"
    assert called("hide") == called("fedora") == "hidden", "a goal of uncertainty hides rows, and is told so"
    assert called("anew") in ("forgotten", "different", "unclear"), "three Retrains of few rows are a rough yardstick"
    assert all(result[name]["audit_forget_auc"] < 0.6 for name in retrains), "rows never seen are not found"
    assert all(result[name]["audit_remaining_auc"] > 0.6 for name in retrains), "rows learned from are"
    assert all((out / "models" / "active" / f"reference-{number}.safetensors").exists() for number in (1, 2, 3))
    signed = json.loads((out / "certificate.json").read_text())["metrics"]["unlearned"]
    assert {name: signed[name] for name in figures["unlearned"]} == figures["unlearned"]
    assert result["gap"]["audit_forget_auc"] > 0.05
    page = make(out, None, None, [])
    assert f"The audit: {WORDS['remembered']}" in page and "the yardstick" in page
    assert with_own_words(result, moved=0.0) == result, "what it said is what follows from its figures"
    praised = {**result["audit"], "finding": "forgotten", "verdict": ["All is well."], "figures": {}}
    assert with_own_words({**result, "audit": praised}, moved=0.0) == result


def test_a_verdict_on_few_rows_is_not_repeated_without_that_it_says_little() -> None:
    figures = as_figures(original=0.80, unlearned=0.51, retrain=0.50)
    told = audited(figures, references=2, rows=12, poisoned=False)
    notice = next(block for block in audit_blocks({"audit": told}) if isinstance(block, Notice))
    assert told["says_little"] and notice.mood == "partly"


def test_a_run_of_a_method_of_one_s_own_is_made_again_with_an_audit(tmp_path: Path) -> None:
    plugin, run, out, path = (tmp_path / name for name in ("own.py", "run", "again", "job.yaml"))
    plugin.write_text(OWN)
    job = {
        "data": {"source": "csv", "path": str(write_noisy(tmp_path / "noisy.csv", 300)), "id": "person"},
        "train": {"epochs": 1},
        "forget": {"samples": 40},
        "unlearn": {"method": "anew"},
    }
    path.write_text(json.dumps(job))

    def fedora(*words: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "fedora_vfl.cli", *map(str, words)]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    fedora("run", path, "--out", run, "--plugin", plugin, "--threads", 1).check_returncode()
    fedora("audit", run, "--again", out, "--references", 1, "--retrains", 1).check_returncode()
    first, second = (json.loads((folder / "result.json").read_text()) for folder in (run, out))
    assert second["unlearned"]["test_loss"] == first["unlearned"]["test_loss"], "its models are the same"
    page = (out / "audit.html").read_text()
    assert "40 of " in page and "by anew" in page, "what was audited"
    assert second["audit"]["references"] == second["audit"]["retrains"] == 1
    assert (out / "plugins.json").read_text() == (run / "plugins.json").read_text(), "what --resume goes by"
    assert "add --overwrite" in fedora("audit", run, "--again", out).stderr
    assert "is the run itself" in fedora("audit", run, "--again", run, "--overwrite").stderr


def test_a_run_that_was_interrupted_is_not_taken_for_a_wrong_folder(tmp_path: Path) -> None:
    (tmp_path / "federation.yaml").touch()
    with pytest.raises(DataError, match=f"has no result: it .*fedora run --resume {tmp_path}"):
        make(tmp_path, None, None, [])


def test_references_are_kept_for_later_jobs_until_a_row_they_know_is_forgotten(tmp_path: Path) -> None:
    async def scenario(_: object, submit: Submit) -> None:
        quick = {"unlearn": {"method": "none", "overwrite": True}, "certificate": False}
        first = {"train": {"epochs": 2}, "forget": {"samples": 30}, **quick, "audit": {"references": 2}}
        await submit({**first, "seed": 1})
        kept = {"references": ["reference-1", "reference-2"]}
        going_on = {"train": {"from": "unlearned", "allow_remembering": True}, **quick, "certificate": True}
        again = await submit({**going_on, "forget": {"samples": 25}, "audit": kept, "seed": 2})
        assert again["audit"]["figures"]["unlearned"]["audit_forget_auc"] > 0
        assert again["audit"]["finding"] == "no yardstick"
        # Trained anew on fewer rows, some parties encode theirs in another way: they refuse for that reason.
        refused = "still remembers rows that were dropped for good|encoded in another way"
        with pytest.raises((SettingsError, DataError), match=refused):
            await submit({**going_on, "train": {"epochs": 1}, "forget": {"samples": 20}, "audit": kept})
        with pytest.raises(SettingsError, match="has not learned from a part of the rows"):
            wrong = {"references": ["original"]}
            await submit({**first, "forget": {"samples": 20}, "audit": wrong, "seed": 3})

    with_cluster(tmp_path, scenario)


def test_a_job_is_given_an_audit_and_its_yardstick() -> None:
    job = as_job({"forget": {"samples": 3}, "compare": ["ga", "retrain"]})
    made = with_audit(job, 2, 5, origin=Path("job.yaml"))
    assert made.audit and made.audit.references == 2
    assert list(made.compared()) == ["retrain", *(f"retrain-{number}" for number in range(2, 6)), "ga"]
    anew = with_audit(as_job({"forget": {"samples": 3}, "unlearn": "retrain"}), 2, 3, origin=Path("job.yaml"))
    assert list(anew.compared()) == ["retrain", "retrain-2", "retrain-3"], "a Retrain needs a yardstick too"
    with pytest.raises(SettingsError, match="forgot nothing"):
        with_audit(as_job({}), 2, 5, origin=Path("job.yaml"))
    with pytest.raises(SettingsError, match="`unlearn`, `compare` and `audit` need a `forget` section"):
        as_job({"audit": {}})
