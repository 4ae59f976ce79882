"""The course of an audit: references are trained as ordinary phases, and the active party tells figures in the end."""

from collections.abc import Awaitable, Sequence
from typing import Protocol

from coordinator.engine import Engine
from coordinator.job import Job
from coordinator.methods.evaluation import observation
from coordinator.methods.training import training
from coordinator.train import Train
from fedora_vfl.sampling.seeds import derive
from fedora_vfl.verdicts.retrains import names
from protos.fedora.v1.control_pb2 import Assess, Assessment
from protos.fedora.v1.phase_pb2 import Part, Samples

PART = 0.5  # of the remaining rows, that a reference learns from
LOOKED_AT = (Samples.TEST, Samples.FORGET, Samples.REMAINING)


class Save(Protocol):
    """Has every party save its model."""

    def __call__(self, name: str, overwrite: bool) -> Awaitable[object]:
        """Save it under this name."""


class Auditing:
    """The audit of one job; of a job that asks for none, nothing is done."""

    def __init__(self, job: Job, engine: Engine) -> None:
        self._job, self._engine, self._seen = job, engine, 0

    def kind(self, model: str) -> "Assess.Audit":
        """Return what a model of the job is to the audit."""
        if self._job.audit is None:
            return Assess.NO_PART
        return Assess.RETRAINED if names({model: {}}) else Assess.AUDITED

    @property
    def kept(self) -> list[str]:
        """The references that an earlier job has kept, and that this one uses."""
        audit = self._job.audit
        return audit.references if audit and isinstance(audit.references, list) else []

    async def bring_references(self) -> None:
        """Look at references of an earlier job, while the rows to forget are still there to be looked at by them."""
        for name in self.kept:
            await self._engine.restart(load=name)
            await self._look(name)

    async def train_references(self, train: Train, *, save: Save) -> None:
        """Train references on parts of the remaining rows, each as the original was trained, and keep them."""
        audit = self._job.audit
        if audit is None or not isinstance(audit.references, int):
            return
        anew = train.model_copy(update={"epochs": train.epochs_from_scratch})
        for number, name in enumerate(audit.new_names(), start=1):
            seed = derive(self._job.seed, "reference", number)
            over = Samples(set=Samples.REMAINING, share=1, part=Part(share=PART, seed=derive(seed, "part")))
            await self._engine.restart(seed=seed)
            phases = training(anew, seed=seed, name=f"reference-{number}", over=over)
            await self._engine.perform(phases, rounds=anew.rounds)
            await save(name, audit.overwrite)
            await self._look(name)

    async def _look(self, name: str) -> None:
        """Have the active party keep what a reference shows of the rows that every other model is looked at with."""
        engine = self._engine
        self._seen += 1
        looks = observation(
            self._seen,
            rows={which: engine.rows[which] for which in LOOKED_AT},
            batch_size=self._job.evaluate.batch_size,
            seed=derive(self._job.seed, "observe"),
            prefix="audit-",
        )
        await engine.perform(looks)
        await engine.assess(name, audit=Assess.REFERENCE)

    async def figures(self, models: Sequence[str]) -> dict[str, Assessment]:
        """Have the active party tell what the audit has found of each model."""
        return {name: await self._engine.assess(name, audit=Assess.FIGURES) for name in models}
