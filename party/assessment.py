"""What predictions tell about a model: accuracy, and who can be recognised as a member. Only rates leave this room."""

import torch
from torch import Tensor
from torch.nn import functional

from fedora_vfl.errors import PartyError, SettingsError
from party.attack import Attack
from party.audit import FORGET as AUDIT_FORGET
from party.audit import REMAINING as AUDIT_REMAINING
from party.audit import UNSEEN as AUDIT_UNSEEN
from party.audit import Shown, signal
from party.predictions import Predictions
from party.rates import area_under_curve, true_positives
from party.state import PartyState, Recorded
from protos.fedora.v1.control_pb2 import Assess
from protos.fedora.v1.phase_pb2 import Samples

# Figures of rows to forget that there are only if others of their classes are held out: what is kept back must not tell
# whether there are.
OF_FORGOTTEN = (
    "held_out_loss",
    "unseen_accuracy",
    "forget_minus_unseen_accuracy",
    "mia_asr",
    "mia_auc",
    "mia_tpr_at_1_fpr",
    "mia_tpr_at_1_fpr_reversed",
)


class Assessor:
    """Turns recorded predictions into figures; the attack, fitted only once, is part of the party's state."""

    def __init__(self, state: PartyState, *, smallest_group: int = 0) -> None:
        """`smallest_group` is the fewest rows that a figure may be about."""
        self._state, self._smallest_group = state, smallest_group

    def fit_attack(self, recorded: Recorded) -> dict[str, float]:
        """Fit the paper's attack to the original model's predictions of remaining and held-out rows."""
        if self._poisoned:
            return {}
        members = self._predictions(recorded, Samples.REMAINING)
        for_fit, for_test = self._held_out(recorded)
        if not len(for_fit.classes) or not len(for_test.classes):
            return {}
        attack = self._state.attack = Attack.fit(members, for_fit)
        return {"attack_on_remaining": attack.success(members, for_test)}

    def figures(self, recorded: Recorded) -> dict[str, float]:
        """Return every figure that the recorded predictions allow."""
        found: dict[str, float | None] = {}
        forgotten = self._forgotten_classes()
        if Samples.TEST in recorded:
            test = self._predictions(recorded, Samples.TEST)
            gone = torch.isin(test.classes, forgotten)
            kept = test.of(~gone)
            found["test_accuracy"] = kept.accuracy()
            found["test_loss"] = float(kept.losses().mean()) if len(kept.classes) else None
            if len(forgotten):
                found["forgotten_classes_accuracy"] = test.of(gone).accuracy()
                found["all_classes_accuracy"] = test.accuracy()
        if Samples.VALIDATION in recorded:
            found["validation_accuracy"] = self._predictions(recorded, Samples.VALIDATION).accuracy()
        if Samples.REMAINING in recorded:
            found["remaining_accuracy"] = self._predictions(recorded, Samples.REMAINING).accuracy()
        if Samples.PROBE in recorded:
            found |= self._of_backdoor(recorded)
        if Samples.FORGET in recorded:
            found |= self._of_forgotten(recorded)
        return {name: value for name, value in found.items() if value is not None}

    def keep_for_audit(self, assess: Assess, recorded: Recorded, *, silence: str) -> None:
        """Keep what a model shows of the rows to forget, of unseen ones and of some that stay.

        `silence` is why no figure of the model may leave, if none may.
        """
        state = self._state
        part = state.description.get("part")
        if assess.audit == Assess.REFERENCE and part is None:
            name = assess.model
            raise SettingsError(
                f"audit.references: {name!r} has not learned from a part of the rows, as a reference has"
            )
        groups = {AUDIT_FORGET: Samples.FORGET, AUDIT_UNSEEN: Samples.TEST, AUDIT_REMAINING: Samples.REMAINING}
        predictions = {group: self._predictions(recorded, which) for group, which in groups.items()}
        shown = Shown(
            Assess.Audit.Name(assess.audit),
            {group: signal(one) for group, one in predictions.items()},
            part if assess.audit == Assess.REFERENCE else None,
            may_know_forgotten=not (state.account and state.account.began),
            silence=silence,
        )
        rows = {group: recorded[which][0] for group, which in groups.items()}
        state.audit.keep(assess.model, shown, rows, {group: one.classes for group, one in predictions.items()})

    def about(self, figure: str, recorded: Recorded) -> list[Tensor]:
        """Return the groups of rows that a figure is about."""
        rows = {which: rows for which, (rows, _) in recorded.items()}
        match figure:
            case "validation_accuracy":
                return [rows[Samples.VALIDATION]]
            case "remaining_accuracy":
                return [rows[Samples.REMAINING]]
            case "attack_on_remaining":
                return [rows[Samples.REMAINING], *(rows[Samples.TEST][half] for half in self._halves(recorded))]
            case "backdoor_asr":
                return [rows[Samples.PROBE]]
            case "all_classes_accuracy":
                return [rows[Samples.TEST]]
            case "untriggered_asr":
                target = self._predictions(recorded, Samples.PROBE, trained_labels=True).classes[0]
                return [self._of_test(recorded, self._predictions(recorded, Samples.TEST).classes != target)]
            case "test_accuracy" | "test_loss" | "forgotten_classes_accuracy":
                gone = torch.isin(self._predictions(recorded, Samples.TEST).classes, self._forgotten_classes())
                return [self._of_test(recorded, gone if figure == "forgotten_classes_accuracy" else ~gone)]
            case _:
                if Samples.TEST not in rows:
                    return [rows[Samples.FORGET]]
                # Rows of the same classes are held against those to forget, and so tell which classes these are.
                forget, test = (self._predictions(recorded, which) for which in (Samples.FORGET, Samples.TEST))
                alike = torch.isin(test.classes, forget.classes)
                if figure == "mia_asr":  # the other half has fitted the attack
                    alike &= self._halves(recorded)[1]
                return [rows[Samples.FORGET], self._of_test(recorded, alike)]

    @staticmethod
    def _of_test(recorded: Recorded, chosen: Tensor) -> Tensor:
        rows, _ = recorded[Samples.TEST]
        return rows[chosen]

    def _of_backdoor(self, recorded: Recorded) -> dict[str, float | None]:
        """Return how often a row of another class is taken for the backdoor's target, with the trigger and without."""
        triggered = self._predictions(recorded, Samples.PROBE, trained_labels=True)
        target = triggered.classes[0]
        found = {"backdoor_asr": triggered.accuracy()}
        if Samples.TEST in recorded:
            others = self._predictions(recorded, Samples.TEST)
            others = others.of(others.classes != target)
            found["untriggered_asr"] = Predictions(
                others.logits, torch.full_like(others.classes, int(target))
            ).accuracy()
        return found

    def _of_forgotten(self, recorded: Recorded) -> dict[str, float | None]:
        """Return the figures of D_u: accuracy, certainty, and both attacks unless it is poisoned."""
        forget = self._predictions(recorded, Samples.FORGET)
        found: dict[str, float | None] = {"forget_accuracy": forget.accuracy()}
        found["held_out_loss"] = self._held_out_loss(recorded)
        if self._poisoned:
            as_trained = self._predictions(recorded, Samples.FORGET, trained_labels=True)
            found["forget_poisoned_accuracy"] = as_trained.accuracy()
        elif forget.accuracy() is not None and (unseen := self._unseen_accuracy(recorded, forget)) is not None:
            found["unseen_accuracy"] = unseen
            found["forget_minus_unseen_accuracy"] = (forget.accuracy() or 0.0) - unseen
        log_p = functional.log_softmax(forget.logits.double(), dim=1)
        found["forget_entropy"] = float(-(log_p.exp() * log_p).sum(dim=1).mean())
        return found if self._poisoned else {**found, **self._attacks(recorded, forget)}

    def _unseen_accuracy(self, recorded: Recorded, forget: Predictions) -> float | None:
        """Return the accuracy on test rows of the classes that D_u has."""
        return (
            _alike(self._predictions(recorded, Samples.TEST), forget).accuracy() if Samples.TEST in recorded else None
        )

    def _held_out_loss(self, recorded: Recorded) -> float | None:
        """Return the mean loss of test rows of the classes that D_u has, by the labels that were trained on."""
        if Samples.TEST not in recorded:
            return None
        forget, test = (
            self._predictions(recorded, which, trained_labels=True) for which in (Samples.FORGET, Samples.TEST)
        )
        alike = _alike(test, forget)
        return float(alike.losses().mean()) if len(alike.classes) else None

    def _attacks(self, recorded: Recorded, forget: Predictions) -> dict[str, float]:
        """Return how well both attacks tell D_u from held-out rows of the same classes."""
        found: dict[str, float] = {}
        _, untouched = self._held_out(recorded)
        untouched = _alike(untouched, forget)
        if self._state.attack and len(untouched.classes):
            found["mia_asr"] = self._state.attack.success(forget, untouched)
        others = _alike(self._predictions(recorded, Samples.TEST), forget)
        if not len(others.classes):
            return found
        scores, other_scores = -forget.losses(), -others.losses()
        found["mia_auc"] = area_under_curve(scores, other_scores)
        found["mia_tpr_at_1_fpr"] = true_positives(scores, other_scores)
        # A model that is *less* sure of the forgotten rows gives them away too: the attack turned round.
        found["mia_tpr_at_1_fpr_reversed"] = true_positives(-scores, -other_scores)
        return found

    @property
    def _poisoned(self) -> bool:
        """Whether labels were changed on purpose: such rows differ from all others, remembered or not."""
        return self._state.truth is not None

    def _predictions(self, recorded: Recorded, which: "Samples.Set", *, trained_labels: bool = False) -> Predictions:
        if which not in recorded:
            raise PartyError("coordinator", f"asked for figures over {Samples.Set.Name(which)} without recording them")
        assert self._state.labels is not None
        rows, logits = recorded[which]
        labels = self._state.labels if trained_labels or self._state.truth is None else self._state.truth
        return Predictions(logits, labels[rows])

    def _held_out(self, recorded: Recorded) -> tuple[Predictions, Predictions]:
        """Cut the test rows in two, row by row: one half to fit an attack, the other to try it."""
        test = self._predictions(recorded, Samples.TEST)
        for_fit, for_test = self._halves(recorded)
        return test.of(for_fit), test.of(for_test)

    @staticmethod
    def _halves(recorded: Recorded) -> tuple[Tensor, Tensor]:
        """Return which of the test rows an attack is fitted to, and which it is tried on."""
        odd = torch.arange(len(recorded[Samples.TEST][0])) % 2 == 1
        return odd, ~odd

    def _forgotten_classes(self) -> Tensor:
        """Return the classes of which no training row remains.

        Of few rows to forget it is not told that they were the last of a class: they would have its label.
        """
        sets, labels = self._state.sets.rows, self._state.labels
        assert labels is not None
        if len(sets[Samples.FORGET]) < self._smallest_group:
            return labels[:0]
        gone, kept = torch.unique(labels[sets[Samples.FORGET]]), labels[sets[Samples.REMAINING]]
        only_gone: Tensor = gone[~torch.isin(gone, kept)]
        return only_gone


def _alike(held_out: Predictions, forget: Predictions) -> Predictions:
    """Return the held-out rows of the classes that the rows to forget have."""
    return held_out.of(torch.isin(held_out.classes, forget.classes))
