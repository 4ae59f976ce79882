"""The course of a job: set up, train, measure, save; if somebody is to be forgotten, forget, prove it, and compare."""

import json
import re
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

from coordinator.auditing import Auditing
from coordinator.blame import is_passing
from coordinator.engine import Engine
from coordinator.job import Forget, Job, repeat_mark
from coordinator.ledger import Ledger
from coordinator.methods import MethodResult, PhaseOutcome, UnlearningTask
from coordinator.methods.evaluation import evaluation, observation
from coordinator.methods.fedora_settings import Fedora
from coordinator.methods.proof import proof
from coordinator.methods.registry import METHODS, Unlearn
from coordinator.methods.repeated import repeated
from coordinator.methods.training import Looks, training
from coordinator.phases import VALIDATION
from coordinator.result import ModelRecord, forgotten_rows, result
from coordinator.train import Train
from fedora_vfl.certificates.joint import Asked, JointRequest, JointStatement, Method, ModelNames, Parties, digest
from fedora_vfl.certificates.making import certificate
from fedora_vfl.certificates.statement import now
from fedora_vfl.errors import FedoraError, SettingsError
from fedora_vfl.sampling.seeds import derive
from fedora_vfl.settings.federation import Federation
from fedora_vfl.settings.files import parse
from fedora_vfl.settings.model import MODEL_NAME
from fedora_vfl.signing import SigningKey, canonical
from fedora_vfl.wire.choice import told
from fedora_vfl.wire.protocol import VERSION
from protos.fedora.v1.control_pb2 import Classes, Handed, Ids, Pending, Ready, Request, Result, Setup, Statement
from protos.fedora.v1.phase_pb2 import Samples

Say = Callable[[str], Awaitable[None]]

ORIGINAL, UNLEARNED = "original", "unlearned"


@dataclass(frozen=True)
class Forgotten:
    """What there is to say of an unlearning beside the figures of its models."""

    ending: MethodResult
    moved: float | None = None  # ‖Θ − Θ_init‖²
    phases: dict[str, int] = field(default_factory=dict)  # by name, since the rows were dropped
    proven: "Proven | None" = None


@dataclass(frozen=True)
class Proven:
    """What the parties have signed."""

    joint: JointStatement
    asked: Asked
    statements: dict[str, Statement]


class JobRunner:
    """One job from beginning to end."""

    def __init__(
        self, job: Job, engine: Engine, federation: Federation, key: SigningKey, say: Say, *, setup: Setup
    ) -> None:
        """`setup` is what parties are told when the job begins."""
        self._job, self._engine, self._federation, self._key, self._say = job, engine, federation, key, say
        self._setup, self._number = setup, setup.job
        self._models: dict[str, ModelRecord] = {}
        self._dropping = False  # whether parties may have dropped the rows
        self._began = ""  # when they were asked to
        self._requests = [self._number]  # to forget, each by the job that brought it
        self._wire: dict[str, dict[str, str | bool]] = {}  # how tensors travel, where not as they are
        self._commitment = ""  # of all parties to the rows to forget
        self._training = job.train  # how the original model came about, also where it was loaded
        self._auditing = Auditing(job, engine)

    async def run(self) -> Result:
        """Do all that the job asks for."""
        ready = await self._set_up()
        if self._job.forget and self._job.forget.pending:
            await self._take_up(ready)
        task = await self._request(self._job.forget, ready) if self._job.forget else None
        await self._train()
        forgotten = await self._forget_for_good(self._job.forget, task) if self._job.forget and task else None
        ledger = await self._engine.collect()
        seconds = self._engine.journal.seconds
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
        proven = self._certify(forgotten.proven, ledger, seconds) if forgotten and forgotten.proven else ""
        told = json.dumps(figures, indent=2, allow_nan=False)
        return Result(result_json=told, ledger_csv=ledger.to_csv(), certificate_json=proven)

    async def _set_up(self) -> dict[str, Ready]:
        """Join the rows and make the networks."""
        job = self._job
        self._wire = told(self._setup)
        ready = await self._engine.setup(self._setup)
        common = ready[self._federation.active.name]
        if common.training and not job.train.rounds:
            self._training = parse(common.training, Train, origin=f"the saved model {job.train.load!r}")
        await self._say(f"{common.train} training and {common.test} test rows in common, {common.classes} classes")
        if left_out := forgotten_rows(ready):
            await self._say(f"{left_out} rows were forgotten in earlier jobs, and are left out")
        return ready

    async def _take_up(self, ready: dict[str, Ready]) -> None:
        """Find the requests that the model has not honoured: one on a single party's list is among them."""
        self._requests = sorted({job for one in ready.values() for job in one.pending})
        if not self._requests:
            raise SettingsError(f"forget.pending: the saved model {self._job.train.load!r} has honoured all requests")
        await self._say(f"pending requests are taken up, of these jobs: {', '.join(self._requests)}")

    async def _request(self, forget: Forget, ready: dict[str, Ready]) -> UnlearningTask:
        """Find the rows to forget, before any training: what is wrong with a request is said at once."""
        job = self._job
        accepted = await self._engine.request(request_message(forget, seed=job.seed, pending=self._requests))
        self._commitment = accepted.commitment
        rows = f"{accepted.rows} rows will be forgotten" if accepted.rows > 1 else "1 row will be forgotten"
        await self._say(f"{rows}, {accepted.remaining} remain")
        active = ready[self._federation.active.name]
        task = UnlearningTask(
            self._training,
            classes=active.classes,
            forget=accepted.rows,
            remaining=accepted.remaining,
            seed=derive(job.seed, "unlearn"),
            passive=tuple(self._federation.passive),
            validation=self._engine.rows[Samples.VALIDATION],
            test=self._engine.rows[Samples.TEST],
            rows_for_one=self._engine.cost.rows_for_one,
            round_trip=max(one.round_trip for one in ready.values()) / 1000,
            layers=max(one.bottom_layers for one in ready.values()) + active.top_layers,
        )
        for settings in (job.unlearn, *job.compare):
            METHODS.get(settings.method).run(task, settings).close()  # refuses what it cannot do
        return task

    async def _train(self) -> None:
        """Train the original model, measure it and save it."""
        job, engine = self._job, self._engine
        between = Looks(job.evaluate.every, job.evaluate.batch_size) if job.evaluate.every else None
        await engine.perform(training(job.train, seed=job.seed, looks=between), rounds=job.train.rounds)
        if job.forget:
            await self._measure(ORIGINAL, ["train"], saved_as=job.train.save, overwrite=job.train.overwrite)
        else:
            test = await engine.perform(evaluation(batch_size=job.evaluate.batch_size))
            figures, left_out = _told(test, test_accuracy=test.accuracy, test_loss=test.loss)
            if engine.rows[Samples.VALIDATION]:
                looks = evaluation(batch_size=job.evaluate.batch_size, name="validation", over=VALIDATION)
                validation = await engine.perform(looks)
                more, unsaid = _told(validation, validation_accuracy=validation.accuracy)
                figures, left_out = figures | more, left_out | unsaid
            digests = await self._save(job.train.save, job.train.overwrite)
            self._models[ORIGINAL] = ModelRecord(["train"], figures, digests, left_out=left_out)

    async def _save(self, name: str, overwrite: bool) -> dict[str, str]:
        training = self._training.model_dump_json(by_alias=True)
        return await self._engine.save(name, training=training, overwrite=overwrite)

    async def _measure(
        self, name: str, phases: list[str], *, saved_as: str, overwrite: bool, rounds: int | None = None
    ) -> None:
        """Save the current model and have the active party find its figures."""
        job, engine = self._job, self._engine
        digests = await self._save(saved_as, overwrite)
        looks = observation(
            len(self._models) + 1,
            rows=engine.rows,
            batch_size=job.evaluate.batch_size,
            seed=derive(job.seed, "observe"),
        )
        await engine.perform(looks)
        found = await engine.assess(name, fit_attack=name == ORIGINAL, audit=self._auditing.kind(name))
        self._models[name] = ModelRecord(phases, dict(found.figures), digests, rounds, dict(found.left_out))

    async def _forget_for_good(self, forget: Forget, task: UnlearningTask) -> Forgotten:
        """Forget; if that fails, say that the rows are dropped all the same."""
        try:
            return await self._forget(forget, task)
        except FedoraError as error:
            if is_passing(error):
                raise
            if UNLEARNED not in self._models and self._dropping:
                await self._say(
                    f"the rows are dropped for good all the same (job {', '.join(self._requests)}), but no model has "
                    "honoured the request yet: take it up again with `forget: {pending: true}` and `train: {from: "
                    f"{self._job.train.save}}}`, or train anew, which leaves them out"
                )
            raise

    async def _forget(self, forget: Forget, task: UnlearningTask) -> Forgotten:
        """Drop the rows, forget, measure what is to be proven, compare with what was asked for, and have all signed."""
        job, engine = self._job, self._engine
        original = self._models[ORIGINAL].figures
        task = replace(
            task,
            held_out_loss=original.get("held_out_loss"),
            whole_classes="forgotten_classes_accuracy" in original,
        )
        if self._auditing.kept:
            await self._auditing.bring_references()
            await engine.restart(load=job.train.save)
            await self._save(job.train.save, job.train.overwrite)  # the same file, which the certificate is to name
        self._dropping = True
        self._began = engine.journal.value("began", now)
        await engine.drop()
        dropped = len(engine.history)
        forgotten = Forgotten(await self._unlearn(UNLEARNED, task, job.unlearn, saved_as=job.unlearn.save))
        if job.certificate:
            measured = await engine.perform(proof(task, job.unlearn, pushed=forgotten.ending.pushed))
            phases = dict(Counter(one.phase for one in engine.history[dropped:]))
            forgotten = replace(forgotten, moved=measured.moved_squared, phases=phases)
        for one in job.comparisons():
            if not METHODS.get(one.settings.method).fresh:
                await engine.restart(load=job.train.save)
            await self._unlearn(one.model, task, one.settings, saved_as=one.save, repeat=one.repeat)
        if job.audit:
            await self._auditing.train_references(task.train, save=self._save)
            for name, found in (await self._auditing.figures(list(self._models))).items():
                self._models[name].add(dict(found.figures), dict(found.left_out))
        return replace(forgotten, proven=await self._prove(forget, task, forgotten)) if job.certificate else forgotten

    async def _prove(self, forget: Forget, task: UnlearningTask, forgotten: Forgotten) -> Proven:
        """Have every party sign what was done, once all figures are known."""
        journal = self._engine.journal
        asked = _asked(forget, salt=journal.value("salt", lambda: secrets.token_hex(32)))
        joint = self._joint(asked, task, forgotten)
        texts = (canonical(one.model_dump()).decode() for one in (joint, asked))
        statements = await self._engine.attest(joint=next(texts), asked=next(texts))
        return Proven(joint, asked, statements)

    def _joint(self, asked: Asked, task: UnlearningTask, forgotten: Forgotten) -> JointStatement:
        """Say what was done, for every party to sign."""
        unlearn, ending, federation = self._job.unlearn, forgotten.ending, self._federation
        settings = unlearn if isinstance(unlearn, Fedora) else None
        goal = settings.goal if settings else None
        return JointStatement(
            job=self._number,
            time=self._engine.journal.value("time", lambda: now(not_before=self._began)),
            software=f"fedora {VERSION}",
            parties=Parties(active=federation.active.name, passive=list(federation.passive)),
            request=JointRequest(rows=task.forget, commitment=self._commitment, asked=digest(asked)),
            method=Method(
                name=unlearn.method,
                settings=unlearn.model_dump(mode="json") | ({"wire": self._wire} if self._wire else {}),
                # What is said of recovery is said only where there was one.
                goal=None if ending.pushed and goal == "as-retrained" else goal,
                dual=settings.dual if settings else None,
                rounds=ending.rounds,
                stopped=ending.stopped,
            ),
            phases=forgotten.phases,
            models=ModelNames(before=self._job.train.save, after=unlearn.save),
        )

    async def _unlearn(
        self, name: str, task: UnlearningTask, settings: Unlearn, *, saved_as: str, repeat: int = 1
    ) -> MethodResult:
        """Run one method, from the current model or from fresh parameters, and measure what it comes to.

        A method may have its turn several times, for a comparison: from the second one on, `repeat` decides its seed.
        """
        engine, entry = self._engine, METHODS.get(settings.method)
        if entry.fresh:
            again = [repeat] if repeat > 1 else []
            task = replace(task, seed=derive(self._job.seed, settings.method, *again))
            await engine.restart(seed=task.seed)
        before = len(engine.history)
        run = repeated(entry.run(task, settings), mark=repeat_mark(repeat))
        ending = await engine.perform(run, rounds=settings.most_rounds(self._training))
        phases = list(dict.fromkeys(one.phase for one in engine.history[before:]))
        taken = {phase for made in self._models.values() for phase in made.phases} & set(phases)
        if taken:
            # Their bytes and seconds could not be told apart.
            raise SettingsError(f"compare: two methods of one job call a phase {min(taken)!r}; use a job for each")
        await self._measure(name, phases, saved_as=saved_as, overwrite=settings.overwrite, rounds=ending.rounds)
        return ending

    def _certify(self, proven: Proven, ledger: Ledger, seconds: float) -> str:
        """Put the certificate together and sign it."""
        return certificate(
            joint=proven.joint,
            asked=proven.asked,
            statements=proven.statements,
            key=self._key,
            keys=self._federation.keys,
            traffic=ledger.summary(),
            seconds=seconds,
        )


def setup_message(job: Job, federation: Federation, *, number: str, submitted_by: str) -> Setup:
    """Return what parties are told when a job begins.

    Args:
        job: What to do.
        federation: Who takes part.
        number: The job's id.
        submitted_by: The operator whose certificate the job came with; parties go by it.
    """
    if job.train.load and not re.fullmatch(MODEL_NAME, job.train.load):
        said = "on a cluster that is up, this is the name under which an earlier job saved its model"
        raise SettingsError(f"train.from: {job.train.load!r} is not a name; {said}")
    return Setup(
        job=number,
        seed=job.seed,
        passive=federation.passive,
        alignment=federation.alignment,
        matching=federation.matching.model_dump_json(),
        model=job.model.model_dump_json() if job.model else "",
        encoding=job.wire.encoding,
        links=job.wire.links(list(federation.passive)),
        load=job.train.load or "",
        allow_remembering=job.train.allow_remembering,
        take_up_pending=bool(job.forget and job.forget.pending),
        saves=job.new_names(),
        submitted_by=submitted_by,
    )


def _asked(forget: Forget, *, salt: str) -> Asked:
    """Say what the rows of a request have in common."""
    return Asked(
        kind=forget.kind,
        classes=forget.classes,
        percent=forget.percent or 100.0 if forget.classes else None,
        salt=salt,
    )


def _told(outcome: PhaseOutcome, **figures: float) -> tuple[dict[str, float], dict[str, str]]:
    """Return a look's figures, or else why they are left out."""
    reason = outcome.left_out.get("loss")
    return ({}, dict.fromkeys(figures, reason)) if reason else (figures, {})


def request_message(forget: Forget, *, seed: int, pending: list[str]) -> Request:
    """Return the request as the active party gets it; `pending` requests are taken up if it says so."""
    request = Request(seed=seed)
    if forget.classes is not None:
        request.classes.CopyFrom(Classes(classes=forget.classes, percent=forget.percent or 100))
    elif forget.samples is not None:
        request.samples = forget.samples
    elif forget.pending:
        request.pending.CopyFrom(Pending(jobs=pending))
    elif forget.request is not None:
        request.request.CopyFrom(Handed(name=forget.request))
    elif isinstance(forget.ids, list):
        request.ids.CopyFrom(Ids(ids=forget.ids))
    else:
        raise SettingsError(f"forget.ids: {forget.ids!r} is a file, which the command line should have read")
    return request
