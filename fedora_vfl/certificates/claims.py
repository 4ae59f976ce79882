"""What an unlearning certificate says in words, and no more than its figures allow.

A changed sentence is a new format of the certificate: see FORMAT in fedora_vfl/certificates/form.py.
"""

from fedora_vfl.certificates.attestation import Unseen

ALWAYS = (
    "Every party states under its own signature that it took the rows of the request, the same as every other party, "
    "out of its training rows, by which method and settings, when, which phases it has run since, and which files hold "
    "its model before and after.",
    "All figures under `metrics` are the active party's, under its signature.",
)

ALIKE = (
    "The forgotten rows look like rows never seen: the mean loss of {forgotten_rows} of them, {forgotten_level:.4f}, "
    "and that of {unseen_rows} held-out rows of the same classes, {unseen_level:.4f}, differ by no more than "
    "{tolerance:.4f}, two standard errors, which 95 of 100 samples keep within where there is no difference."
)

NOT_ALIKE = (
    "The forgotten rows are not claimed to look like rows never seen: the mean loss of {forgotten_rows} of them is "
    "{forgotten_level:.4f}, that of {unseen_rows} held-out rows of the same classes {unseen_level:.4f}: they differ "
    "by more than {tolerance:.4f}. Rows with wrong labels have no unseen likes: their loss should be the larger one."
)

ALIKE_TOLD = (
    "The forgotten rows look like rows never seen: the active party says so of {forgotten_rows} of them, by the same "
    "comparison of mean losses with held-out rows of the same classes, and keeps the losses back by its policy."
)

NOT_ALIKE_TOLD = (
    "The forgotten rows are not claimed to look like rows never seen: the active party says of {forgotten_rows} of "
    "them that their mean loss differs from that of held-out rows of the same classes by more than two standard "
    "errors, and keeps the losses back by its policy. Rows with wrong labels have no unseen likes: their loss should "
    "be the larger one."
)

ALIKE_KEPT_BACK = (
    "It is not said whether the forgotten rows look like rows never seen: they are so few that the active party keeps "
    "it back by its policy."
)

FEASIBLE = "The final model meets the constraint: L_u, the uncertainty loss on the forgotten rows, is at least γ."

OPTIMALITY = (
    "Constraint residual, complementary slackness and stationarity residual say together how far the final model is "
    "from the conditions of a constrained optimum (Karush, Kuhn and Tucker's, KKT): at one, all three are 0."
)

NEVER = (
    "A neural network gets no guarantee of how far its parameters are from those of a model that never saw the rows.",
    "It does not prove that nobody kept a copy of the rows, of an earlier model, or of messages about them.",
    "It does not prove that the parties told the truth about their own computations: a signature shows who said "
    "something, not that it is so.",
    "It does not prove that the information is gone from backups and logs, or from the means, deviations and "
    "categories by which inputs are scaled and encoded: these were learned before the request.",
)

NO_DUAL = "The method has no dual variable: nothing is claimed of feasibility, slackness or stationarity."

PARAMETERWISE = (
    "The paper's certificate, feasibility and complementary slackness, holds for the scalar form of the dual variable "
    "only. In the parameterwise form, which was used, γ is a rate of growth and Ω need not settle: no constraint "
    "residual is given, as it would prove nothing about an optimum."
)

NOT_FEASIBLE = (
    "The final model is not claimed to meet the constraint L_u ≥ γ: the constraint residual says by how much it falls "
    "short, or was not measured."
)

RECOVERED = (
    "Rounds on the remaining rows with Ω = 0 came last: a complementary slackness of 0 is then no sign that the "
    "constraint holds."
)

NOT_STATIONARY = (
    "A stationarity residual that is not small means that no KKT point was reached; it was measured once, on the rows "
    "given here, and what is small is for the reader to judge."
)

NOT_MEASURED = "The stationarity residual was not measured: nothing is said of how near an optimum the model is."


def claims(
    dual: str | None, shortfall: float | None, stationarity: float | None, unseen: Unseen | None = None
) -> list[str]:
    """Say what a certificate claims, by form, constraint and stationarity residual, and rows never seen."""
    feasible = [FEASIBLE] if dual == "scalar" and shortfall == 0 else []
    alike = [_compared(unseen)] if unseen and unseen.alike else []
    return [*ALWAYS, *feasible, *alike, *([OPTIMALITY] if dual == "scalar" and stationarity is not None else [])]


def _compared(unseen: Unseen) -> str:
    """Say what a comparison with rows never seen has come to, as far as it is told."""
    told = unseen.forgotten_level is not None
    if unseen.alike is None:
        return ALIKE_KEPT_BACK
    if unseen.alike:
        return (ALIKE if told else ALIKE_TOLD).format(**unseen.model_dump())
    return (NOT_ALIKE if told else NOT_ALIKE_TOLD).format(**unseen.model_dump())


def does_not_claim(
    dual: str | None,
    goal: str | None,
    shortfall: float | None,
    stationarity: float | None,
    unseen: Unseen | None = None,
) -> list[str]:
    """Say what a certificate does not claim, by form, goal, constraint residual and stationarity residual."""
    if dual is None:
        return [NO_DUAL, *NEVER]
    said = [PARAMETERWISE] if dual == "parameterwise" else []
    if unseen:
        said += [] if unseen.alike else [_compared(unseen)]
    elif dual == "scalar" and shortfall != 0:
        said.append(NOT_FEASIBLE)
    if goal == "as-retrained":
        said.append(RECOVERED)
    said.append(NOT_MEASURED if stationarity is None else NOT_STATIONARY)
    return [*said, *NEVER]
