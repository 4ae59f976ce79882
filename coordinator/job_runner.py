"""The course of a job: set up, train, measure, save; if somebody is to be forgotten, forget, prove it, and compare."""

import json
import re
import time
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

from coordinator.engine import Engine
from coordinator.job import Forget, Job
from coordinator.ledger import Ledger
from coordinator.methods import MethodResult, PhaseOutcome, UnlearningTask
from coordinator.methods.evaluation import evaluation, observation
from coordinator.methods.fedora_settings import Fedora
from coordinator.methods.proof import proof
from coordinator.methods.registry import METHODS, Unlearn
from coordinator.methods.training import training
from coordinator.phases import VALIDATION
from coordinator.result import ModelRecord, result
from coordinator.train import Train
from fedora_vfl.certificates.making import certificate
from fedora_vfl.errors import SettingsError
from fedora_vfl.sampling.seeds import derive
from fedora_vfl.settings.federation import Federation
from fedora_vfl.settings.files import parse
from fedora_vfl.settings.model import MODEL_NAME
from fedora_vfl.signing import SigningKey
from protos.fedora.v1.control_pb2 import Classes, Ids, Ready, Request, Result, Setup, Statement
from protos.fedora.v1.phase_pb2 import Samples

Say = Callable[[str], Awaitable[None]]

ORIGINAL, UNLEARNED = "original", "unlearned"


@dataclass(frozen=True)
class Forgotten:
    """What there is to say of an unlearning beside the figures of its models."""

    ending: MethodResult
    moved: float | None = None  # ‖Θ − Θ_init‖²
    statements: dict[str, Statement] = field(default_factory=dict)


class JobRunner:
    """One job from beginning to end."""

    def __init__(
        self, job: Job, engine: Engine, federation: Federation, key: SigningKey, say: Say, *, submitted_by: str = ""
    ) -> None:
        """`submitted_by` is the operator whose certificate the job came with; parties go by it."""
        self._submitted_by = submitted_by
        self._job, self._engine, self._federation, self._key, self._say = job, engine, federation, key, say
        self._number = uuid.uuid4().hex
        self._models: dict[str, ModelRecord] = {}
        self._training = job.train  # how the original model came about, also where it was loaded

    async def run(self) -> Result:
        """Do all that the job asks for."""
        began = time.perf_counter()
        ready = await self._set_up()
        classes = ready[self._federation.active.name].classes
        task = await self._request(self._job.forget, classes) if self._job.forget else None
        await self._train()
        forgotten = await self._forget(task) if task else None
        ledger = await self._engine.collect()
        seconds = time.perf_counter() - began
        figures = result(
            self._job,
            ready=ready,
            active=self._federation.active.name,
            engine=self._engine,
            ledger=ledger,
            models=self._models,
            ending=forgotten.ending if forgotten else None,
            moved=forgotten.moved if forgotten else None,
            seconds=seconds,
        )
        proven = self._certify(forgotten, ledger, seconds) if forgotten and forgotten.statements else ""
        return Result(result_json=json.dumps(figures, indent=2), ledger_csv=ledger.to_csv(), certificate_json=proven)

    async def _set_up(self) -> dict[str, Ready]:
        """Join the rows and make the networks."""
        job = self._job
        if job.train.load and not re.fullmatch(MODEL_NAME, job.train.load):
            said = "on a cluster that is up, this is the name under which an earlier job saved its model"
            raise SettingsError(f"train.from: {job.train.load!r} is not a name; {said}")
        setup = Setup(
            job=self._number,
            seed=job.seed,
            passive=self._federation.passive,
            alignment=self._federation.alignment,
            model=job.model.model_dump_json() if job.model else "",
            encoding=job.wire.encoding,
            load=job.train.load or "",
            submitted_by=self._submitted_by,
        )
        ready = await self._engine.setup(setup)
        common = ready[self._federation.active.name]
        if common.training and not job.train.rounds:
            self._training = parse(common.training, Train, origin=f"the saved model {job.train.load!r}")
        await self._say(f"{common.train} training and {common.test} test rows in common, {common.classes} classes")
        return ready

    async def _request(self, forget: Forget, classes: int) -> UnlearningTask:
        """Find the rows to forget, before any training: what is wrong with a request is said at once."""
        job = self._job
        accepted = await self._engine.request(_message(forget, seed=job.seed))
        rows = f"{accepted.rows} rows will be forgotten" if accepted.rows > 1 else "1 row will be forgotten"
        await self._say(f"{rows}, {accepted.remaining} remain")
        task = UnlearningTask(
            self._training,
            classes=classes,
            forget=accepted.rows,
            remaining=accepted.remaining,
            seed=derive(job.seed, "unlearn"),
            passive=tuple(self._federation.passive),
        )
        for settings in (job.unlearn, *job.compare):
            METHODS.get(settings.method).run(task, settings).close()  # refuses what it cannot do
        return task

    async def _train(self) -> None:
        """Train the original model, measure it and save it."""
        job, engine = self._job, self._engine
        await engine.perform(training(job.train, seed=job.seed), rounds=job.train.rounds)
        if job.forget:
            await self._measure(ORIGINAL, ["train"], saved_as=job.train.save)
        else:
            test = await engine.perform(evaluation(batch_size=job.evaluate.batch_size))
            figures, left_out = _told(test, test_accuracy=test.accuracy, test_loss=test.loss)
            if engine.rows[Samples.VALIDATION]:
                looks = evaluation(batch_size=job.evaluate.batch_size, name="validation", over=VALIDATION)
                validation = await engine.perform(looks)
                more, unsaid = _told(validation, validation_accuracy=validation.accuracy)
                figures, left_out = figures | more, left_out | unsaid
            digests = await self._save(job.train.save)
            self._models[ORIGINAL] = ModelRecord(["train"], figures, digests, left_out=left_out)

    async def _save(self, name: str) -> dict[str, str]:
        return await self._engine.save(name, training=self._training.model_dump_json(by_alias=True))

    async def _measure(self, name: str, phases: list[str], *, saved_as: str, rounds: int | None = None) -> None:
        """Save the current model and have the active party find its figures."""
        job, engine = self._job, self._engine
        digests = await self._save(saved_as)
        looks = observation(
            len(self._models) + 1,
            rows=engine.rows,
            batch_size=job.evaluate.batch_size,
            seed=derive(job.seed, "observe"),
        )
        await engine.perform(looks)
        found = await engine.assess(name, fit_attack=name == ORIGINAL)
        self._models[name] = ModelRecord(phases, dict(found.figures), digests, rounds, dict(found.left_out))

    async def _forget(self, task: UnlearningTask) -> Forgotten:
        """Drop the rows, forget, prove it, and compare with what was asked for."""
        job, engine = self._job, self._engine
        original = self._models[ORIGINAL].figures
        task = replace(
            task,
            held_out_loss=original.get("held_out_loss"),
            whole_classes="forgotten_classes_accuracy" in original,
        )
        await engine.drop()
        forgotten = Forgotten(await self._unlearn(UNLEARNED, task, job.unlearn, saved_as=job.unlearn.save))
        if job.certificate:
            proven = await engine.perform(proof(task, job.unlearn, pushed=forgotten.ending.pushed))
            statements = await engine.attest(before=job.train.save, after=job.unlearn.save)
            forgotten = replace(forgotten, moved=proven.moved_squared, statements=statements)
        names = job.compared()
        for settings in job.compare:
            if not METHODS.get(settings.method).fresh:
                await engine.restart(load=job.train.save)
            await self._unlearn(settings.method, task, settings, saved_as=names[settings.method])
        return forgotten

    async def _unlearn(self, name: str, task: UnlearningTask, settings: Unlearn, *, saved_as: str) -> MethodResult:
        """Run one method, from the current model or from fresh parameters, and measure what it comes to."""
        engine, entry = self._engine, METHODS.get(settings.method)
        if entry.fresh:
            task = replace(task, seed=derive(self._job.seed, settings.method))
            await engine.restart(seed=task.seed)
        before = len(engine.history)
        ending = await engine.perform(entry.run(task, settings), rounds=settings.most_rounds(self._training))
        phases = list(dict.fromkeys(one.phase for one in engine.history[before:]))
        taken = {phase for made in self._models.values() for phase in made.phases} & set(phases)
        if taken:
            # Their bytes and seconds could not be told apart.
            raise SettingsError(f"compare: two methods of one job call a phase {min(taken)!r}; use a job for each")
        await self._measure(name, phases, saved_as=saved_as, rounds=ending.rounds)
        return ending

    def _certify(self, forgotten: Forgotten, ledger: Ledger, seconds: float) -> str:
        """Put the certificate together and sign it."""
        job, forget = self._job, self._job.forget
        assert forget is not None
        settings = job.unlearn if isinstance(job.unlearn, Fedora) else None
        goal = settings.goal if settings else None
        return certificate(
            job=self._number,
            key=self._key,
            active=self._federation.active.name,
            statements=forgotten.statements,
            keys=self._federation.keys,
            kind=_kind(forget),
            classes=forget.classes,
            percent=forget.percent or 100.0 if forget.classes else None,
            method=job.unlearn.method,
            settings=job.unlearn.model_dump(mode="json"),
            # What is said of recovery is said only where there was one.
            goal=None if forgotten.ending.pushed and goal == "as-retrained" else goal,
            dual=settings.dual if settings else None,
            rounds=forgotten.ending.rounds,
            stopped=forgotten.ending.stopped,
            metrics={name: made.figures for name, made in self._models.items()},
            traffic=ledger.summary(),
            seconds=seconds,
        )


def _told(outcome: PhaseOutcome, **figures: float) -> tuple[dict[str, float], dict[str, str]]:
    """Return a look's figures, or else why they are left out."""
    reason = outcome.left_out.get("loss")
    return ({}, dict.fromkeys(figures, reason)) if reason else (figures, {})


def _kind(forget: Forget) -> str:
    return "classes" if forget.classes is not None else "samples" if forget.samples is not None else "ids"


def _message(forget: Forget, *, seed: int) -> Request:
    """Return the request as the active party gets it."""
    request = Request(seed=seed)
    if forget.classes is not None:
        request.classes.CopyFrom(Classes(classes=forget.classes, percent=forget.percent or 100))
    elif forget.samples is not None:
        request.samples = forget.samples
    elif isinstance(forget.ids, list):
        request.ids.CopyFrom(Ids(ids=forget.ids))
    else:
        raise SettingsError(f"forget.ids: {forget.ids!r} is a file, which the command line should have read")
    return request
