"""Where our figures agree with the paper and where not: a sentence per claim, worked out from the figures."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from fedora_vfl.bench.paper.experiments import Plan
from fedora_vfl.bench.paper.sheet import METRICS, RETRAIN, Sheet, SheetRow
from fedora_vfl.documents.document import Verdict

YES, PARTLY, NO, OPEN = "yes", "partly", "no", "not measured"
CLOSE = 0.03  # accuracies that differ by less count as near each other
SLIGHT = 0.01  # a rate that moves by less than a point has neither risen nor fallen
NEAR_CHANCE = 0.05
MOST_TOLD = 8  # cases that a finding spells out
SAMPLE, LABEL = "sample-unlearning", "label-unlearning"


@dataclass(frozen=True)
class Case:
    """One instance of a claim: whether it holds, and its numbers."""

    holds: bool
    told: str
    margin: float | None = None  # by how much it holds or, below 0, fails; in no unit but that of its claim


def findings(sheet: Sheet, plan: Plan) -> list[Verdict]:
    """Look at every claim."""
    return [claim(Evidence(sheet, plan)) for claim in CLAIMS]


class Evidence:
    """What claims are checked against."""

    def __init__(self, sheet: Sheet, plan: Plan) -> None:
        self.sheet = sheet
        self._plan = plan
        self.variants = [one.title for one in plan.methods.values() if one.in_paper == "FedORA"]

    def lines(self, experiment: str, *, images: bool = False) -> list[SheetRow]:
        """Return lines, perhaps those of image sets alone."""
        found = self.sheet.lines(experiment)
        return [line for line in found if not images or line.data_set != "income"]

    def title(self, line: SheetRow) -> str:
        """Name a line's data set and request."""
        return f"{self.name(line.data_set)} {line.request}"

    def name(self, data_set: str) -> str:
        """Name a data set."""
        return self._plan.data_sets[data_set].title

    def peers(self, line: SheetRow) -> dict[str, SheetRow]:
        """Return the lines of all methods for the same data set, request and setting."""
        return {
            one.title: one
            for one in self.sheet.lines(line.experiment, line.data_set)
            if (one.request, one.setting) == (line.request, line.setting)
        }

    def value(self, line: SheetRow | None, metric: str) -> float | None:
        """Return a mean over seeds."""
        return self.sheet.value(line, metric) if line else None

    def show(self, value: float, metric: str) -> str:
        """Write a figure."""
        return METRICS[metric].show(value) + (" %" if METRICS[metric].percent else "")


def judge(claim: str, where: str, cases: Iterable[Case]) -> Verdict:
    """Turn cases into a verdict: yes if all hold, no if none does, partly in between."""
    found = list(cases)
    if not found:
        return Verdict(claim, where, OPEN, "No cell that bears on it has been run.", "–", "–")
    holding = sum(case.holds for case in found)
    verdict = YES if holding == len(found) else NO if not holding else PARTLY
    against = _some([case.told for case in found if not case.holds])
    for_it = _some([case.told for case in found if case.holds])
    said = [f"{holding} of {len(found)} cases."] if len(found) > 1 else []
    if for_it:
        said.append(f"Holds: {for_it}." if against else f"{for_it}.")
    if against:
        said.append(f"Does not hold: {against}." if for_it else f"{against}.")
    return Verdict(claim, where, verdict, " ".join(said), f"{holding} of {len(found)}", _worst(found).told)


def _worst(cases: Sequence[Case]) -> Case:
    """Return the case that speaks most against a claim; of cases without a margin one that does not hold."""
    return min(cases, key=lambda case: (case.holds, case.margin if case.margin is not None else 0.0))


def _some(told: list[str]) -> str:
    """List cases, but not dozens of them."""
    more = f"; and {len(told) - MOST_TOLD} more" if len(told) > MOST_TOLD else ""
    return "; ".join(told[:MOST_TOLD]) + more


def near_retrain(evidence: Evidence) -> Verdict:
    """Test accuracy of FedORA beside Retrain's."""
    cases = []
    for experiment in (SAMPLE, LABEL):
        for line in evidence.lines(experiment):
            gap = evidence.sheet.gap(line, "test_accuracy") if line.title in evidence.variants else None
            if gap is not None:
                cases.append(Case(gap > -CLOSE, f"{evidence.title(line)}, {line.title} {_points(gap)}", gap))
    claim = "FedORA's test accuracy is close to Retrain's or above it (here: no more than 3 points below)"
    return judge(claim, "Tables IV and V", cases)


def best_utility(evidence: Evidence) -> Verdict:
    """FedORA's test accuracy beside that of GA, ICO and CVFU."""
    cases = []
    for line in evidence.lines(SAMPLE) + evidence.lines(LABEL):
        if line.title not in evidence.variants:
            continue
        peers = evidence.peers(line)
        others = {name: evidence.value(peers.get(name), "test_accuracy") for name in ("GA", "ICO", "CVFU")}
        known = {name: value for name, value in others.items() if value is not None}
        own = evidence.value(line, "test_accuracy")
        if own is not None and known:
            best = max(known, key=lambda name: known[name])
            told = f"{evidence.title(line)}, {line.title} {100 * own:.1f} against {best} {100 * known[best]:.1f}"
            cases.append(Case(own >= known[best], told, own - known[best]))
    return judge("FedORA keeps more test accuracy than GA, ICO and CVFU", "Tables IV and V", cases)


def ascent_harms(evidence: Evidence) -> Verdict:
    """GA's test accuracy beside everybody's."""
    cases = []
    for line in evidence.lines(SAMPLE) + evidence.lines(LABEL):
        if line.title != "GA":
            continue
        gap = evidence.sheet.gap(line, "test_accuracy")
        if gap is not None:
            cases.append(Case(gap < -CLOSE, f"{evidence.title(line)} {_points(gap)}", -gap))
    return judge("Gradient ascent costs test accuracy (here: more than 3 points below Retrain)", "Tables IV, V", cases)


def label_is_harder(evidence: Evidence) -> Verdict:
    """Test accuracy after forgetting half of some classes and after forgetting them whole."""
    cases = []
    for line, other in _half_and_whole(evidence):
        half, whole = evidence.value(line, "test_accuracy"), evidence.value(other, "test_accuracy")
        if half is not None and whole is not None and line.title == RETRAIN:
            told = f"{evidence.title(line)} {100 * half:.1f}, whole {100 * whole:.1f}"
            cases.append(Case(whole < half, told, half - whole))
    claim = "Label unlearning lowers test accuracy more than sample unlearning does (here: looked at for Retrain)"
    return judge(claim, "Tables IV and V", cases)


def label_forgets_more(evidence: Evidence) -> Verdict:
    """Unlearning accuracy after forgetting half of some classes and after forgetting them whole."""
    cases = []
    for line, other in _half_and_whole(evidence):
        half, whole = evidence.value(line, "forget_accuracy"), evidence.value(other, "forget_accuracy")
        if half is not None and whole is not None:
            told = f"{evidence.title(line)}, {line.title} {100 * half:.1f}, whole {100 * whole:.1f}"
            cases.append(Case(whole <= half, told, half - whole))
    claim = "Unlearning accuracy is lower in label unlearning than in sample unlearning"
    return judge(claim, "Figures 4 and 5", cases)


def lowest_unlearning_accuracy(evidence: Evidence) -> Verdict:
    """FedORA's unlearning accuracy beside all others'."""
    cases = []
    for line in evidence.lines(SAMPLE, images=True):
        own = evidence.value(line, "forget_accuracy") if line.title in evidence.variants else None
        others = {
            name: evidence.value(one, "forget_accuracy")
            for name, one in evidence.peers(line).items()
            if name not in evidence.variants
        }
        known = {name: value for name, value in others.items() if value is not None}
        if own is not None and known:
            least = min(known, key=lambda name: known[name])
            told = f"{evidence.title(line)}, {line.title} {100 * own:.1f} against {least} {100 * known[least]:.1f}"
            cases.append(Case(own <= known[least], told, known[least] - own))
    claim = "On images FedORA has the lowest unlearning accuracy of all methods"
    return judge(claim, "Figure 4", cases)


def retrain_forgets_kept_classes(evidence: Evidence) -> Verdict:
    """Retrain's accuracy on removed rows of classes that are still there."""
    cases = []
    for line in evidence.lines(SAMPLE, images=True):
        if line.title != RETRAIN or line.data_set != "cifar10" or line.request != "m=2, n=50%":
            continue
        forgotten, test = (evidence.value(line, one) for one in ("forget_accuracy", "test_accuracy"))
        auc = evidence.value(line, "mia_auc")
        if forgotten is not None and test is not None:
            seen = f"; honest AUC {auc:.2f}: to it they are rows never seen" if auc is not None else ""
            told = f"removed rows {100 * forgotten:.1f} %, test rows of all classes {100 * test:.1f} %{seen}"
            cases.append(Case(forgotten < test / 2, told, test / 2 - forgotten))
    claim = (
        "Retrain gets only 30 % of the removed rows right on CIFAR-10 (m=2, n=50%), where it gets 82 % of test rows "
        "(here: less than half its test accuracy)"
    )
    return judge(claim, "Table VI", cases)


def membership_near_chance(evidence: Evidence) -> Verdict:
    """The paper's attack on FedORA's models."""
    cases = []
    for line in evidence.lines(SAMPLE) + evidence.lines(LABEL):
        value = evidence.value(line, "mia_asr") if line.title in evidence.variants else None
        if value is not None:
            told = f"{evidence.title(line)}, {line.title} {100 * value:.1f} %"
            cases.append(Case(abs(value - 0.5) <= NEAR_CHANCE, told, -abs(value - 0.5)))
    claim = "After FedORA the paper's membership attack succeeds in about 50 % of cases (here: 45 to 55 %)"
    return judge(claim, "Figures 6 and 7", cases)


def honest_near_retrain(evidence: Evidence) -> Verdict:
    """The honest attack on FedORA's models, beside Retrain's."""
    cases = []
    for line in evidence.lines(SAMPLE) + evidence.lines(LABEL):
        gap = evidence.sheet.gap(line, "mia_auc") if line.title in evidence.variants else None
        if gap is not None:
            told = f"{evidence.title(line)}, {line.title} {_signed(gap)}"
            cases.append(Case(abs(gap) <= NEAR_CHANCE, told, -abs(gap)))
    claim = "Not a claim of the paper: the honest attack's AUC on FedORA's models is within 0.05 of Retrain's"
    return judge(claim, "ours", cases)


def backdoor_gone(evidence: Evidence) -> Verdict:
    """Backdoor success of all methods."""
    cases = []
    for line in evidence.lines(SAMPLE) + evidence.lines(LABEL):
        value = evidence.value(line, "backdoor_asr")
        if value is not None:
            told = f"{evidence.title(line)}, {line.title} {100 * value:.1f} %"
            cases.append(Case(value < 0.1, told, -value))
    claim = "Every method brings backdoor success below 10 %"
    return judge(claim, "Figures 6 and 7", cases)


def time_order(evidence: Evidence) -> Verdict:
    """Seconds per round, in order."""
    cases = []
    for data_set in dict.fromkeys(line.data_set for line in evidence.lines("table-running-time")):
        lines = evidence.sheet.lines("table-running-time", data_set)
        known = {line.title: evidence.value(line, "seconds_per_round") for line in lines}
        times = {name: value for name, value in known.items() if value is not None}
        variant = next((name for name in evidence.variants if "paper" in name), "")
        if {"GA", RETRAIN, variant} <= set(times):
            order = sorted((name for name in times if name != evidence.variants[-1]), key=lambda name: times[name])
            told = f"{evidence.name(data_set)}: " + ", ".join(f"{name} {times[name]:.2f} s" for name in order)
            cases.append(Case(order[:2] == ["GA", variant], told))
    claim = "A round of GA is the fastest, FedORA's the second; Retrain's and CVFU's are the slowest"
    return judge(claim, "Table III", cases)


def fewer_bytes(evidence: Evidence) -> Verdict:
    """Bytes counted, as a share of Retrain's."""
    cases = []
    for line in evidence.lines("table-cost"):
        reference = evidence.sheet.retrain(line)
        own, whole = evidence.value(line, "bytes"), evidence.value(reference, "bytes")
        if line.title in evidence.variants and own and whole:
            told = f"{evidence.title(line)}, {line.title} {own / whole:.2f} of Retrain's"
            cases.append(Case(own < whole, told, -own / whole))
    return judge("FedORA sends less than Retrain", "Table II", cases)


def bytes_as_predicted(evidence: Evidence) -> Verdict:
    """Bytes counted beside those that the complexity table predicts."""
    cases = []
    for line in evidence.lines("table-cost"):
        own, predicted = evidence.value(line, "bytes"), evidence.value(line, "bytes_predicted")
        if own and predicted:
            ratio = own / predicted
            told = f"{evidence.title(line)}, {line.title} {ratio:.2f}"
            cases.append(Case(0.95 <= ratio <= 1.05, told, -abs(ratio - 1)))
    claim = "Bytes follow the complexity table (here: counted within 5 % of predicted)"
    return judge(claim, "Table II", cases)


def non_iid_costs(evidence: Evidence) -> Verdict:
    """Test accuracy with and without noise on one party's images."""
    claim = "Noise on one party's images lowers every method's test accuracy (here: by more than a point)"
    return judge(claim, "Table VI", _costs(evidence, "table-non-iid", "IID", "non-IID"))


def _moved(metric: str, before: float, after: float) -> str:
    chosen = METRICS[metric]
    return f"{chosen.title} {chosen.show(before)} to {chosen.show(after)}"


def _ablation(
    name: str, claim: str, holds: Callable[[dict[str, float], dict[str, float]], bool], metrics: Sequence[str]
) -> Callable[[Evidence], Verdict]:
    """Return a claim about what leaving a part out does."""

    def look(evidence: Evidence) -> Verdict:
        cases = []
        for line in evidence.lines("table-ablation"):
            if not line.title.startswith(name):
                continue
            kind = line.title.removeprefix(name).strip()
            full = next((one for title, one in evidence.peers(line).items() if title == f"FedORA {kind}"), None)
            with_part = {metric: evidence.value(full, metric) for metric in metrics}
            without = {metric: evidence.value(line, metric) for metric in metrics}
            if None in (*with_part.values(), *without.values()):
                continue
            before = {metric: value for metric, value in with_part.items() if value is not None}
            after = {metric: value for metric, value in without.items() if value is not None}
            told = ", ".join(_moved(metric, before[metric], after[metric]) for metric in metrics)
            cases.append(Case(holds(before, after), f"{evidence.name(line.data_set)} {kind}: {told}"))
        return judge(claim, "Table VII", cases)

    return look


without_loss = _ablation(
    "w/o UL",
    "Without the unlearning loss little is forgotten: unlearning accuracy, MIA-ASR and BD-ASR rise",
    lambda full, part: all(part[one] > full[one] for one in ("forget_accuracy", "mia_asr", "backdoor_asr")),
    ("forget_accuracy", "mia_asr", "backdoor_asr"),
)
without_batches = _ablation(
    "w/o AB",
    "Without asymmetric batches a round takes longer (here: over 1.5 times), test accuracy stays (within 3 points)",
    lambda full, part: (
        part["seconds_per_round"] > 1.5 * full["seconds_per_round"]
        and abs(part["test_accuracy"] - full["test_accuracy"]) <= CLOSE
    ),
    ("seconds_per_round", "test_accuracy", "forget_accuracy"),
)
without_adaptive = _ablation(
    "w/o AS",
    "With fixed step sizes test accuracy is lower and more is remembered (unlearning accuracy is higher)",
    lambda full, part: (
        part["test_accuracy"] < full["test_accuracy"] and part["forget_accuracy"] > full["forget_accuracy"]
    ),
    ("test_accuracy", "forget_accuracy"),
)


def _falls(experiment: str, metric: str, claim: str, where: str) -> Callable[[Evidence], Verdict]:
    """Return a claim that a metric falls from the first setting to the last."""

    def look(evidence: Evidence) -> Verdict:
        cases = []
        for data_set in dict.fromkeys(line.data_set for line in evidence.lines(experiment)):
            lines = [line for line in evidence.sheet.lines(experiment, data_set) if line.setting]
            values = [(line.setting, evidence.value(line, metric)) for line in lines]
            known = [(setting, value) for setting, value in values if value is not None]
            if len(known) > 1:
                moved = known[-1][1] - known[0][1]
                told = f"{evidence.name(data_set)}: " + ", ".join(
                    f"{setting} {100 * value:.1f}" for setting, value in known
                )
                cases.append(Case(moved < -SLIGHT, told, -moved))
        return judge(claim, where, cases)

    return look


omega_utility = _falls(
    "figure-omega",
    "test_accuracy",
    "Test accuracy falls as ω grows from 0.5 to 20 (here: by more than a point)",
    "Figure 8a",
)
omega_forgetting = _falls(
    "figure-omega",
    "forget_accuracy",
    "Unlearning accuracy falls as ω grows from 0.5 to 20 (here: by more than a point)",
    "Figure 8a",
)
omega_membership = _falls(
    "figure-omega", "mia_asr", "MIA-ASR falls as ω grows from 0.5 to 20 (here: by more than a point)", "Figure 8a"
)


def delta_utility(evidence: Evidence) -> Verdict:
    """Test accuracy without remaining rows and with 5 % of them."""
    cases = []
    for none, some in _pairs(evidence, "figure-delta", "δ=0%", "δ=5%"):
        before, after = evidence.value(none, "test_accuracy"), evidence.value(some, "test_accuracy")
        if before is not None and after is not None:
            told = f"{evidence.name(none.data_set)} {100 * before:.1f} to {100 * after:.1f}"
            cases.append(Case(after - before > SLIGHT, told, after - before))
    return judge("Test accuracy rises from δ = 0 to δ = 5 % (here: by more than a point)", "Figure 8b", cases)


def delta_plateau(evidence: Evidence) -> Verdict:
    """Test accuracy with 25 % of the remaining rows and with all."""
    cases = []
    for some, every in _pairs(evidence, "figure-delta", "δ=25%", "δ=100%"):
        before, after = evidence.value(some, "test_accuracy"), evidence.value(every, "test_accuracy")
        if before is not None and after is not None:
            told = f"{evidence.name(some.data_set)} {100 * before:.1f} to {100 * after:.1f}"
            cases.append(Case(abs(after - before) <= CLOSE, told, -abs(after - before)))
    return judge("Beyond δ = 25 % test accuracy hardly changes (here: within 3 points)", "Figure 8b", cases)


def delta_speed(evidence: Evidence) -> Verdict:
    """Seconds per round with 5 % of the remaining rows and with all."""
    cases = []
    for some, every in _pairs(evidence, "figure-delta", "δ=5%", "δ=100%"):
        fast, slow = evidence.value(some, "seconds_per_round"), evidence.value(every, "seconds_per_round")
        if fast and slow:
            cases.append(Case(slow / fast >= 2, f"{evidence.name(some.data_set)} {slow / fast:.1f} times", slow / fast))
    return judge("δ = 5 % instead of 100 % makes a round 4.5 times as fast (here: at least twice)", "Figure 8b", cases)


def few_rows(evidence: Evidence) -> Verdict:
    """What 50 forgotten rows cost, with and without remaining rows."""
    cases = []
    for none, some in _pairs(evidence, "table-extreme", "δ=0%", "δ=1%"):
        before, after = evidence.value(none, "test_accuracy"), evidence.value(some, "test_accuracy")
        if none.request == "50 samples" and before is not None and after is not None:
            told = f"{evidence.name(none.data_set)} {100 * before:.1f} to {100 * after:.1f}"
            cases.append(Case(after - before > SLIGHT, told, after - before))
    claim = "Forgetting 50 rows, δ = 1 % keeps more test accuracy than δ = 0 (here: by more than a point)"
    return judge(claim, "Table VIII", cases)


def one_row(evidence: Evidence) -> Verdict:
    """Whether a single forgotten row is misclassified, and by Retrain."""
    cases = []
    for line in evidence.lines("table-extreme"):
        own = evidence.value(line, "forget_accuracy")
        reference = evidence.value(evidence.sheet.retrain(line), "forget_accuracy")
        if line.request == "1 sample" and line.title in evidence.variants and own is not None:
            beside = f", Retrain {100 * reference:.0f} %" if reference is not None else ""
            setting = f" {line.setting}" if line.setting else ""
            told = f"{evidence.name(line.data_set)}{setting}, {line.title} {100 * own:.0f} %{beside}"
            cases.append(Case(own == 0, told, -own))
    claim = "A single forgotten row is never classified rightly afterwards"
    return judge(claim, "Table VIII", cases)


def noise_costs(evidence: Evidence) -> Verdict:
    """Test accuracy at the paper's weakest and strongest noise."""
    claim = "Noise of 5·10⁻⁴ instead of 0.1·10⁻⁴ costs much test accuracy (paper: 23 points; here: over 3)"
    return judge(claim, "Table IX", _costs(evidence, "table-noise", "0.1e-4", "5.0e-4", at_least=CLOSE))


def strong_noise_costs(evidence: Evidence) -> Verdict:
    """Test accuracy at noise that is large beside the embeddings."""
    claim = (
        "Not a claim of the paper: noise of 1, the size of the embeddings themselves, costs over a point of accuracy"
    )
    return judge(claim, "ours", _costs(evidence, "table-noise", "0.1e-4", "1"))


def _costs(evidence: Evidence, experiment: str, easy: str, hard: str, *, at_least: float = SLIGHT) -> list[Case]:
    """Look whether the harder of two settings has the lower test accuracy."""
    cases = []
    for one, other in _pairs(evidence, experiment, easy, hard):
        before, after = evidence.value(one, "test_accuracy"), evidence.value(other, "test_accuracy")
        if before is not None and after is not None:
            told = f"{evidence.name(one.data_set)}, {one.title} {100 * before:.1f} to {100 * after:.1f}"
            cases.append(Case(before - after > at_least, told, before - after))
    return cases


def _points(gap: float) -> str:
    return f"{100 * gap:+.1f}".replace("-", "−")


def _signed(gap: float) -> str:
    return f"{gap:+.2f}".replace("-", "−")


def _half_and_whole(evidence: Evidence) -> list[tuple[SheetRow, SheetRow]]:
    """Pair the lines of sample unlearning with those of label unlearning of as many classes."""
    whole = {(line.data_set, line.request, line.title): line for line in evidence.lines(LABEL)}
    pairs = []
    for line in evidence.lines(SAMPLE):
        other = whole.get((line.data_set, line.request.replace("n=50%", "n=100%"), line.title))
        if other:
            pairs.append((line, other))
    return pairs


def _pairs(evidence: Evidence, experiment: str, first: str, second: str) -> list[tuple[SheetRow, SheetRow]]:
    """Pair the lines of two settings."""
    lines = evidence.lines(experiment)
    others = {(one.data_set, one.request, one.title): one for one in lines if one.setting == second}
    return [
        (line, others[key])
        for line in lines
        if line.setting == first and (key := (line.data_set, line.request, line.title)) in others
    ]


def summary(found: Sequence[Verdict]) -> str:
    """Count the verdicts on the paper's own claims."""
    own = [one for one in found if one.where != "ours"]
    counts = {verdict: sum(one.holds == verdict for one in own) for verdict in (YES, PARTLY, NO, OPEN)}
    hold = "holds" if counts[YES] == 1 else "hold"
    return (
        f"Of {len(own)} claims of the paper {counts[YES]} {hold} in these runs in every case looked at, "
        f"{counts[PARTLY]} in some, {counts[NO]} in none; not measured: {counts[OPEN]}."
    )


CLAIMS: tuple[Callable[[Evidence], Verdict], ...] = (
    near_retrain,
    best_utility,
    ascent_harms,
    label_is_harder,
    lowest_unlearning_accuracy,
    label_forgets_more,
    retrain_forgets_kept_classes,
    membership_near_chance,
    honest_near_retrain,
    backdoor_gone,
    time_order,
    fewer_bytes,
    bytes_as_predicted,
    non_iid_costs,
    without_loss,
    without_batches,
    without_adaptive,
    omega_utility,
    omega_forgetting,
    omega_membership,
    delta_utility,
    delta_plateau,
    delta_speed,
    few_rows,
    one_row,
    noise_costs,
    strong_noise_costs,
)
