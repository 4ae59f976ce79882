"""Whether an unlearning certificate contradicts itself: the coordinator's account, the statements, the arithmetic."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from fedora_vfl.certificates.attestation import Attestation, CountedBytes, ScalarDual
from fedora_vfl.certificates.claims import claims, does_not_claim
from fedora_vfl.certificates.form import Certificate, LinkBytes, PhaseBytes, final, joint_of
from fedora_vfl.certificates.joint import digest, fits_clocks
from fedora_vfl.verdicts.retrains import gap_deviations, gaps
from fedora_vfl.wire.meter import TENSOR_KINDS


def contradictions(made: Certificate) -> list[str]:
    """Return a sentence for everything in a certificate that contradicts something else in it."""
    return [sentence for _, sentences in consistency(made) for sentence in sentences]


def consistency(made: Certificate) -> list[tuple[str, list[str]]]:
    """Return every check of a certificate against itself, in words, with what it found wrong."""
    broken = _members(made)
    checks = [("statements are of this job, one of every party, one of them active", broken)]
    if broken:
        return checks  # what follows compares the parties' statements one by one
    return [
        *checks,
        ("every party signed this request, method, settings, time and phases", _joint(made)),
        ("the certificate repeats the parties' digests and rows as they signed them", _repeated(made)),
        (
            "all parties committed to the same rows, dropped and keep equally many, and ran the same phases",
            _alike(made),
        ),
        ("the certificate's time is one at which every party was at work", _times(made)),
        ("the dual variables are of one form, and the scalar one is the same at all parties", _duals(made)),
        ("L_u, γ and the metrics are those that the active party signed", _measured(made)),
        (
            "the final model's residuals, slackness, dual summary and change follow from the statements",
            _arithmetic(made),
        ),
        ("gaps to the retrained model are differences of the metrics", _gaps(made)),
        ("bytes add up, over phases and links, and are those that every party counted", _bytes(made)),
        ("the sentences on what is claimed are those that the figures allow", _sentences(made)),
    ]


def _attestations(made: Certificate) -> dict[str, Attestation]:
    return {name: one.statement for name, one in made.statements.items()}


def _active(made: Certificate) -> Attestation:
    return made.statements[made.parties.active].statement


def _members(made: Certificate) -> list[str]:
    stated = _attestations(made)
    broken = [f"the statement under {name} is {one.party}'s" for name, one in stated.items() if one.party != name]
    broken += [f"{name}'s statement is of job {one.job}" for name, one in stated.items() if one.job != made.job]
    for name, one in stated.items():
        if (one.role == "active") != (name == made.parties.active):
            broken.append(f"{name} calls itself {one.role}, but `parties` has {made.parties.active} for active")
    everyone = {made.parties.active, *made.parties.passive}
    for what, names in (("statements", stated), ("models", made.models), ("rows", made.rows)):
        if set(names) != everyone:
            there, here = ", ".join(sorted(everyone)), ", ".join(sorted(names))
            broken.append(f"the parties are {there}, but {what} has {here or 'nobody'}")
    keys = [*(one.public_key for one in made.statements.values()), made.coordinator.public_key]
    if len(set(keys)) < len(keys):
        broken.append("two members sign with the same key")
    return broken


def _joint(made: Certificate) -> list[str]:
    expected = digest(joint_of(made))
    others = [name for name, one in _attestations(made).items() if one.joint != expected]
    return [f"{', '.join(others)} signed another request, method, time or phases than this"] if others else []


def _times(made: Certificate) -> list[str]:
    return [
        f"{name} was at work from {one.began} to {one.ended}, but the certificate is of {made.time}"
        for name, one in _attestations(made).items()
        if not fits_clocks(made.time, one.began, one.ended)
    ]


def _repeated(made: Certificate) -> list[str]:
    broken = []
    for name, one in _attestations(made).items():
        for when in ("before", "after"):
            if getattr(made.models[name], when) != getattr(one.models, when):
                broken.append(f"{name} signed another model {when} than `models` says")
        if made.rows[name] != one.rows:
            broken.append(f"{name} signed other row counts than `rows` says")
        if one.change_squared and one.models.before.sha256 == one.models.after.sha256:
            broken.append(f"{name} says that its parameters changed, but its two model files are the same")
    return broken


def _alike(made: Certificate) -> list[str]:
    active = _active(made)
    broken = []
    for name, one in _attestations(made).items():
        if one.commitment != made.request.commitment:
            broken.append(f"{name} committed to other rows than `request` says")
        if one.rows.dropped != made.request.rows:
            broken.append(f"{name} dropped {one.rows.dropped} rows, but {made.request.rows} were asked for")
        if one.rows.remaining != active.rows.remaining:
            broken.append(f"{name} keeps {one.rows.remaining} rows, but {active.party} {active.rows.remaining}")
        offline = name in made.method.listed("offline")
        if one.phases != made.phases and not (offline and _part(one.phases, made.phases)):
            broken.append(f"{name} ran other phases than `phases` says")
    if made.method.settings.get("method", made.method.name) != made.method.name:
        broken.append("`method.settings` are those of another method")
    if (made.request.kind == "classes") != (made.request.classes is not None and made.request.percent is not None):
        broken.append("`request` names classes and a percentage without being a request for classes, or the other way")
    return broken


def _part(some: Mapping[str, int], of: Mapping[str, int]) -> bool:
    """Return whether a party that was offline for a while has run nothing that was not run."""
    return all(count <= of.get(phase, 0) for phase, count in some.items())


def _duals(made: Certificate) -> list[str]:
    broken = []
    scalars = set()
    for name, one in _attestations(made).items():
        form = one.dual.form if one.dual else None
        if form is None and _active(made).uncertainty is None:
            continue  # nothing is told of the dual variable where L_u, which it follows from, is kept back
        if form != made.method.dual:
            broken.append(f"{name} states a dual variable of form {form}, but the method's is {made.method.dual}")
        if isinstance(one.dual, ScalarDual):
            scalars.add(one.dual.omega)
    if len(scalars) > 1:
        broken.append(f"the parties state different Ω: {', '.join(f'{one:g}' for one in sorted(scalars))}")
    return broken


def _measured(made: Certificate) -> list[str]:
    active = _active(made)
    broken = []
    if made.final.uncertainty != active.uncertainty:
        broken.append(f"`final.uncertainty` is not what {active.party} signed")
    signed = active.metrics or {}
    for model in sorted({*made.metrics, *signed}):
        given, stated = made.metrics.get(model), signed.get(model)
        if given is None or stated is None:
            broken.append(f"`metrics` has {model} without {active.party}'s signature, or leaves it out")
            continue
        for name in sorted({*given, *stated}):
            if (name in given) != (name in stated) or given[name] != stated[name]:
                said = f"{given.get(name)} for {name} of {model}, but {active.party} signed {stated.get(name)}"
                broken.append(f"`metrics` gives {said}")
    return broken


def _arithmetic(made: Certificate) -> list[str]:
    stated = _attestations(made)
    given, expected = _flat(made.final.model_dump()), _flat(final(stated, _active(made).party))
    broken = [
        f"`final.{name}` is {given.get(name)}, but {expected.get(name)} follows from the statements"
        for name in sorted({*given, *expected})
        if not _same(given.get(name), expected.get(name))
    ]
    rows = {one.residual.rows for one in stated.values() if one.residual}
    if len(rows) > 1:
        broken.append(f"the parties measured the stationarity residual on different rows: {sorted(rows)}")
    uncertainty, largest = made.final.uncertainty, made.final.largest_uncertainty
    # Losses are added up in single precision.
    if uncertainty and largest is not None and abs(uncertainty.loss) > largest * (1 + 1e-5) + 1e-6:
        broken.append(f"L_u is {uncertainty.loss:g}, outside its possible range of ±{largest:g}")
    return broken


def _flat(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a record, those of records inside it under dotted names."""
    flat: dict[str, Any] = {}
    for name, value in fields.items():
        flat |= {f"{name}.{inner}": one for inner, one in value.items()} if isinstance(value, dict) else {name: value}
    return flat


def _gaps(made: Certificate) -> list[str]:
    return [
        *_follow("gaps", made.gaps, gaps(made.metrics), "a retrained model"),
        *_follow("gap_deviations", made.gap_deviations, gap_deviations(made.metrics), "several retrained models"),
    ]


def _follow(
    field: str, given: Mapping[str, float] | None, expected: Mapping[str, float] | None, needs: str
) -> list[str]:
    """Compare a field with what follows from the metrics."""
    if expected is None or given is None:
        return [] if expected is given else [f"`{field}` are given without {needs}, or missing with it"]
    return [
        f"`{field}.{name}` is {given.get(name)}, but {expected.get(name)} follows from the metrics"
        for name in sorted({*expected, *given})
        if not _same(given.get(name), expected.get(name))
    ]


def _bytes(made: Certificate) -> list[str]:
    whole, broken = made.bytes, []
    exchanged = [line for line in whole.links if line.kind in TENSOR_KINDS]
    for name in PhaseBytes.model_fields:
        total = getattr(whole, name)
        if (summed := sum(getattr(phase, name) for phase in whole.phases.values())) != total:
            broken.append(f"`bytes.{name}` is {total}, but its phases add up to {summed}")
        if name != "predicted" and (summed := sum(getattr(line, name) for line in exchanged)) != total:
            broken.append(f"`bytes.{name}` is {total}, but its links add up to {summed}")
    for party, one in _attestations(made).items():
        for kind in sorted({*one.bytes, *(line.kind for line in whole.links)}):
            counted = one.bytes.get(kind, CountedBytes(sent=0, received=0))
            if not _counted_alike(kind, counted, _of_party(party, kind, whole.links)):
                broken.append(f"{party} counted other bytes of {kind} messages than the ledger has")
    return broken


def _of_party(party: str, kind: str, links: Iterable[LinkBytes]) -> CountedBytes:
    lines = [line for line in links if line.kind == kind]
    return CountedBytes(
        sent=sum(line.protobuf for line in lines if line.direction.startswith(f"{party}->")),
        received=sum(line.protobuf for line in lines if line.direction.endswith(f"->{party}")),
    )


def _counted_alike(kind: str, counted: CountedBytes, booked: CountedBytes) -> bool:
    """Compare a party's count with the ledger's, which also has the control messages that follow a statement."""
    if kind == "control":
        return counted.sent <= booked.sent and counted.received <= booked.received
    return counted == booked


def _sentences(made: Certificate) -> list[str]:
    form, shortfall, stationarity = made.method.dual, made.final.constraint_residual, made.final.stationarity_residual
    broken = []
    if made.claims != claims(form, shortfall, stationarity, made.final.unseen):
        broken.append("`claims` says something else than the figures allow")
    if made.does_not_claim != does_not_claim(form, made.method.goal, shortfall, stationarity, made.final.unseen):
        broken.append("`does_not_claim` leaves something out, or says something else")
    return broken


def _same(one: object, other: object) -> bool:
    """Compare values; numbers up to what different machines make of the same formula."""
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-15)
    return one == other
