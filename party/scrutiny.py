"""What a party looks at before it signs: whether the joint statement is true as far as this party can tell."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedora_vfl.certificates.joint import Asked, JointStatement, Method, digest, fits_clocks
from fedora_vfl.certificates.statement import now
from fedora_vfl.errors import DataError, FedoraError, PartyError
from fedora_vfl.settings.files import check
from fedora_vfl.signing import parse_canonical
from fedora_vfl.wire.protocol import COORDINATOR
from party.account import Account
from protos.fedora.v1.control_pb2 import Request

LOOKS = {"observe", "residual", "dual_ascent", "influence", "compare"}  # rules that leave parameters as they are


@dataclass(frozen=True)
class Traces:
    """What a method leaves in the account of every party that takes part in all of it."""

    rules: tuple[str, ...] = ()  # update rules one of which it cannot do without
    fresh: bool = False  # whether it begins with fresh parameters
    changes: bool = True  # whether it may change parameters


# Of the methods that come with this software. Of a method that a user has added nothing is known here.
TRACES = {
    "fedora": Traces(rules=("dual_ascent", "joint_rounds")),
    "retrain": Traces(fresh=True),
    "ga": Traces(rules=("ascent",)),
    "ico": Traces(rules=("influence",)),
    "cvfu": Traces(),
    "none": Traces(changes=False),
}


def read_joint(text: str) -> JointStatement:
    """Read a joint statement as the coordinator sent it."""
    try:
        return check(parse_canonical(text.encode()), JointStatement, origin="joint statement")
    except FedoraError as error:
        raise PartyError(COORDINATOR, f"sent a joint statement that cannot be signed: {error}") from None


def asked_of(request: Request) -> dict[str, Any] | None:
    """Return what the rows of a request have in common; nothing where the coordinator does not say."""
    kind = request.WhichOneof("which")
    if kind is None:
        return None
    named = kind == "classes"
    return {
        "kind": kind,
        "classes": list(request.classes.classes) if named else None,
        "percent": request.classes.percent if named else None,
    }


def check_joint(
    joint: JointStatement,
    account: Account,
    *,
    job: str,
    party: str,
    active: str,
    passive: Sequence[str],
    wire: Mapping[str, Any],
) -> None:
    """Refuse to sign what this party knows to be otherwise; `wire` is how tensors travelled."""
    if joint.job != job:
        raise _refusal(f"it is of job {joint.job}, and this is job {job}")
    if (joint.parties.active, joint.parties.passive) != (active, list(passive)):
        raise _refusal(f"it names other parties than {', '.join([*passive, active])}")
    if joint.method.settings.get("wire", {}) != wire:
        raise _refusal("it says that tensors travelled in other encodings than they did")
    offline = party in joint.method.listed("offline")
    for objection in (*_work(joint, account, offline), *_method(joint.method, account, offline)):
        raise _refusal(objection)


def check_asked(text: str, joint: JointStatement, account: Account) -> None:
    """Refuse to sign another request than the active party was sent."""
    try:
        asked = check(parse_canonical(text.encode()), Asked, origin="request")
    except FedoraError as error:
        raise PartyError(COORDINATOR, f"sent a request that cannot be signed: {error}") from None
    if asked.model_dump(exclude={"salt"}) != account.asked:
        raise _refusal("it says something else of the rows than the request did")
    if digest(asked) != joint.request.asked:
        raise _refusal("its digest of the request is another")


def check_files(models: Mapping[str, Mapping[str, str]], account: Account) -> None:
    """Refuse to sign for a model file that is not as this party has saved it."""
    for when, saved in (("before", account.before), ("after", account.after)):
        if models[when] != saved:
            raise DataError(f"the saved model {models[when]['name']!r} was changed since it was saved")


def _work(joint: JointStatement, account: Account, offline: bool) -> Iterator[str]:
    """Yield what is not as this party has seen it: rows, phases, models, time."""
    if joint.request.commitment != account.commitment:
        yield "it commits to other rows than were dropped here"
    if joint.request.rows != account.dropped:
        yield f"it says that {joint.request.rows} rows were dropped, and {account.dropped} were"
    ran = account.phases
    if any(count > joint.phases.get(name, 0) for name, count in ran.items()) or (ran != joint.phases and not offline):
        yield f"it says that the phases were {_counted(joint.phases)}, and they were {_counted(ran)}"
    for when, name, saved in (
        ("before", joint.models.before, account.before),
        ("after", joint.models.after, account.after),
    ):
        if saved is None or saved["name"] != name:
            yield f"it calls the model {when} {name!r}, and that name was not given to the model as it was then"
    if not fits_clocks(joint.time, account.began, time := now(not_before=account.began)):
        yield f"it is of {joint.time}, and the work here was from {account.began} to {time}: set the clocks"


def _method(method: Method, account: Account, offline: bool) -> Iterator[str]:
    """Yield what a method of this name and these settings would not have left."""
    form = account.dual["form"] if account.dual else None
    if method.dual != form:
        yield f"it says that the dual variable is {method.dual or 'none'}, and it was {form or 'none'}"
    if method.settings.get("method", method.name) != method.name:
        yield f"it says that the method is {method.name}, with the settings of {method.settings['method']}"
    if method.rounds > sum(account.phases.values()) and not offline:
        yield f"it says that there were {method.rounds} rounds, and there were fewer phases"
    if method.goal == "as-retrained" and form == "scalar" and account.dual and account.dual["omega"]:
        yield "it says that recovery came last, and the dual variable was not at rest"
    yield from _traces(method, account, offline)
    yield from _constraint(method.settings, account.uncertainty)


def _traces(method: Method, account: Account, offline: bool) -> Iterator[str]:
    traces = TRACES.get(method.name)
    if traces is None:
        return
    if traces.fresh != account.fresh:
        began = "fresh parameters" if account.fresh else "the trained model"
        yield f"it says that the method is {method.name}, and it began with {began}"
    pushed = "unlearning-loss" not in method.listed("without")
    if traces.rules and not set(traces.rules) & set(account.rules) and pushed and not offline:
        yield f"it says that the method is {method.name}, and there was no phase of {traces.rules[0].replace('_', ' ')}"
    if not traces.changes and (others := sorted(set(account.rules) - LOOKS)):
        yield f"it says that the method is {method.name}, and parameters were changed by {others[0].replace('_', ' ')}"


def _constraint(settings: Mapping[str, Any], uncertainty: Mapping[str, Any] | None) -> Iterator[str]:
    """Yield what differs between the constraint in the settings and the one that the active party has measured."""
    if uncertainty is None:
        return
    for name, measured in (("omega", "weight"), ("reduction", "reduction"), ("gamma", "gamma")):
        said, found = settings.get(name), uncertainty[measured]
        if said is not None and found is not None and said != found:
            yield f"it says that {name} is {said}, and it was {found}"


def _refusal(objection: str) -> PartyError:
    return PartyError(COORDINATOR, f"sent a joint statement that is not true here: {objection}")


def _counted(phases: Mapping[str, int]) -> str:
    return ", ".join(f"{count} × {name}" for name, count in sorted(phases.items())) or "none"
