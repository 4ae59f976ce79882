"""fedora policy: what a party would refuse."""

import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedora_vfl.errors import FedoraError, SettingsError

if TYPE_CHECKING:
    from coordinator.job import Job
    from party.policy import Policy
    from party.settings import PartySettings

app = typer.Typer(no_args_is_help=True, help="What a party agrees to (its party file's `policy`).")


@app.callback()
def policy() -> None:
    """Hold the verbs below `fedora policy`."""


@app.command("check")
def check(
    job: Annotated[Path, typer.Argument(help="The job file.", metavar="JOB.yaml")],
    party: Annotated[Path, typer.Option(help="The party file.", metavar="PARTY.yaml")],
    operator: Annotated[str, typer.Option(help="Name in the certificate that the job comes with.")] = "",
) -> None:
    """Say what a party would refuse of a job, all of it at once; nothing is started and nothing is counted.

    The party's own rows stand for the rows in common, which are known only in a job; budgets that other jobs have used
    up are not looked at. The exit code is 0 if nothing would be refused, else 2.
    """
    from fedora_vfl.cluster.preparation import load_job
    from party.settings import load_party

    try:
        settings, federation = load_party(party)
        content = load_job(job)
        active = settings.name == federation.active.name
        refused = _refused(content, settings, active, operator) if settings.policy else []
    except FedoraError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    for sentence in refused:
        print(f"{settings.name}: {sentence}")
    if refused:
        sys.exit(SettingsError.exit_code)
    print(f"{settings.name} would refuse nothing" + ("" if settings.policy else ": its policy is open"))


def _refused(job: "Job", settings: "PartySettings", active: bool, operator: str) -> list[str]:
    """Return a sentence for every rule that the job breaks."""
    from party.budget import BUDGET_FILE, Budget
    from party.data.reading import read
    from party.randomness import load_or_make_secret

    assert settings.policy
    policy, privacy = settings.policy, settings.privacy
    records = read(settings.data, with_labels=active)
    found = [
        policy.about_operator(operator),
        policy.about_forgetting(operator) if job.forget else None,
        policy.about_noise(privacy.noise if privacy else 0.0, privacy.clip if privacy else None),
        policy.about_lr(job.train.rate),
        *(policy.about_lr(lr) for one in (job.unlearn, *job.compare) if (lr := getattr(one, "lr", None))),
        policy.about_phases(_phases(job)),
        _about_learning(job, policy, rows=len(records.ids)),
    ]
    if job.train.load:
        known = (settings.keys / BUDGET_FILE).exists()
        owner = Budget(settings.keys, load_or_make_secret(settings.keys)).owner(job.train.load) if known else None
        found.append(policy.about_loading(job.train.load, operator, owner))
        if job.train.allow_remembering and _remembers(settings, job.train.load):
            found.append(policy.about_remembering(job.train.load))
    elif records.features is not None and not active:
        found += _about_bottom(job, settings, policy)
    return [sentence for sentence in found if sentence]


def _remembers(settings: "PartySettings", model: str) -> bool:
    """Tell whether a saved model remembers rows that this party has dropped for good."""
    from party.dropped import read_list
    from party.state import model_lineage

    path = settings.model_path(model)
    if settings.drops != "for-good" or not path.exists():
        return False
    return bool(read_list(settings.keys).lacking(model_lineage(path).honoured))


def _phases(job: "Job") -> int:
    """Return how many phases a job takes at least."""
    methods = (job.unlearn, *job.compare) if job.forget else ()
    return job.train.rounds + sum(one.most_rounds(job.train) for one in methods)


def _about_learning(job: "Job", policy: "Policy", *, rows: int) -> str | None:
    from coordinator.methods.training import learning_rate

    if job.train.load:
        return None
    first = learning_rate(job.train, 0) if job.train.rounds else 0.0
    return policy.about_learning(first * math.ceil(rows / job.train.batch_size))


def _about_bottom(job: "Job", settings: "PartySettings", policy: "Policy") -> list[str]:
    """Judge the bottom model that the job would have this party build."""
    import numpy as np

    from fedora_vfl.settings.model import Model
    from party.data.encoding import learn
    from party.data.reading import read
    from party.state import chosen_bottom

    features = read(settings.data, with_labels=False).features
    assert features is not None
    shape = learn(features, np.arange(len(features))).apply(features).shape
    model = job.model or Model()
    bottom = chosen_bottom(model, settings.model).build(shape, model.embedding)
    return policy.about_bottom(bottom, shape, model.embedding)
