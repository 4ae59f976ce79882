"""The engine: hands phases to all parties, combines their reports, and finds who is at fault when one fails."""

import asyncio
import hashlib
import logging
import math
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from itertools import zip_longest
from typing import Any

from coordinator.agreement import agreed
from coordinator.blame import all_done, heard_from
from coordinator.cost import CostModel, predict_alignment
from coordinator.history import PhaseRecord, outcome_of, records
from coordinator.journal import Journal
from coordinator.ledger import Ledger
from coordinator.methods import Method, PhaseOutcome, R, Rollback, phases_in
from coordinator.metrics import CoordinatorMetrics
from coordinator.one_request import check_one_set
from coordinator.pace import Pace
from coordinator.reports import (
    PhaseProgress,
    SetupProgress,
    check_digest,
    check_figures,
    check_left_out,
    check_privacy,
    check_readings,
    check_ready,
    check_reports,
    check_saved,
)
from coordinator.roster import Connection
from fedora_vfl.errors import DataError, PartyError, SettingsError
from fedora_vfl.process import logs
from fedora_vfl.sampling.rows import rows_and_steps, rows_of, rows_of_round
from fedora_vfl.settings.bounds import MOST_BATCH_VALUES
from fedora_vfl.settings.federation import Federation
from fedora_vfl.wire.choice import encodings_of
from fedora_vfl.wire.link import READ_AHEAD_BYTES, begun
from fedora_vfl.wire.protocol import COORDINATOR
from protos.fedora.v1.control_pb2 import (
    Accepted,
    Assess,
    Assessment,
    Attest,
    Collect,
    Commit,
    Drop,
    Dropped,
    Event,
    FromCoordinator,
    FromParty,
    PhaseFinished,
    PhaseStarted,
    Privacy,
    Ready,
    Request,
    Restart,
    Save,
    Setup,
    Statement,
)
from protos.fedora.v1.control_pb2 import Rollback as RollbackMessage
from protos.fedora.v1.meter_pb2 import Reading
from protos.fedora.v1.phase_pb2 import Phase, Progress, Samples

log = logging.getLogger(__name__)

Tell = Callable[[Event], Awaitable[None]]

# What one party waits for at another is bounded there; the coordinator, which waits for both, lets it speak first.
GRACE_SECONDS = 2.0
MOST_ANSWER_BYTES = 1024 * 1024  # figures, a signed statement, a training's settings
ROUND_BYTES = 64  # of a report, for each round of a joint phase: five numbers
MOST_UNDER_WAY = READ_AHEAD_BYTES // 4  # values of float32 that the other end would hold
MOST_BOOK_BYTES = 64 * 1024  # of one phase: lines for every other member and kind of message


class Engine:
    """All parties of one job, as one."""

    def __init__(
        self,
        federation: Federation,
        connections: list[Connection],
        tell: Tell,
        metrics: CoordinatorMetrics | None = None,
        journal: Journal | None = None,
    ) -> None:
        """`journal` has the requests of earlier attempts at the same job, which are not made again."""
        self._federation, self._connections, self._told = federation, connections, tell
        self.journal = journal or Journal()
        self._pace = Pace(federation.deadlines.commit_every)
        self._metrics = metrics or CoordinatorMetrics(federation.parties)
        self._active = federation.active.name
        self._phases = 0
        self._cost: CostModel | None = None
        self.predicted: dict[str, int] = {}  # bytes by name of phase
        self.predicted_alignment = 0  # bytes of masked ids and what belongs to them
        self.seconds: dict[str, float] = {}  # by name of phase
        self._took, self._replayed = 0.0, False  # seconds of the last request; whether an earlier attempt had made it
        self.history: list[PhaseRecord] = []
        self._aligning = False  # whether those who follow the job have been told that it begins with a long alignment
        self._heard: dict[str, float] = {}  # when each party last sent something
        self.privacy: dict[str, dict[str, Any]] = {}  # by party: what its noise amounts to
        self.identity = ""  # of the training that made the current model
        self.rows: dict[Samples.Set, int] = {}  # size of each sample set
        self._ahead: FromCoordinator | None = None  # the next request, if parties have it already
        self._checkpoints: list[tuple[int, str]] = []  # length of the history and identity before each marked phase

    async def setup(self, setup: Setup) -> dict[str, Ready]:
        """Have every party join its rows and make its networks."""
        logs.in_job(setup.job)
        log.info("a job begins")
        timeout = self._federation.deadlines.setup + GRACE_SECONDS
        answers = await self._ask(
            FromCoordinator(setup=setup), "ready", timeout=timeout, progress=SetupProgress(), commit=True
        )
        ready = {name: answer.ready for name, answer in answers.items()}
        active = ready[self._active]
        check_ready(ready, active=self._active)
        identities = {one.identity for one in ready.values()}
        if len(identities) > 1:
            raise DataError(f"the models saved as {setup.load!r} at the parties come from different trainings")
        self.identity = identities.pop()
        self.rows = {
            Samples.TRAIN: active.train,
            Samples.VALIDATION: active.validation,
            Samples.TEST: active.test,
            Samples.PROBE: active.probe,
            Samples.REMAINING: active.train,
        }
        self.predicted_alignment = predict_alignment(ready, active=self._active)
        self._cost = CostModel(self.rows, active.embedding, encodings_of(setup))
        return ready

    async def request(self, request: Request) -> Accepted:
        """Have the active party find the rows that a request means and tell the others."""
        # Only the active party is told what the rows have in common; of pending requests each finds the rows itself, of
        # one that was handed in at a party, that party.
        each_finds = request.HasField("pending") or request.HasField("request")
        others = request if each_finds else Request()
        messages = {connection.name: FromCoordinator(request=others) for connection in self._connections}
        messages[self._active] = FromCoordinator(request=request)
        timeout = self._federation.deadlines.setup + GRACE_SECONDS
        answers = await self._ask(messages, "accepted", timeout=timeout, commit=True)
        told = {name: answer.accepted for name, answer in answers.items()}
        check_one_set(told, active=self._active)
        accepted = agreed(told, what="the rows to forget")
        self._check_parts(accepted)
        self.rows |= {Samples.FORGET: accepted.rows, Samples.REMAINING: accepted.remaining}
        return accepted

    async def drop(self) -> dict[str, Dropped]:
        """Have every party drop the rows to forget; the current model becomes Θ_init."""
        answers = await self._ask(FromCoordinator(drop=Drop()), "dropped", timeout=self._timeout, commit=True)
        dropped = {name: answer.dropped for name, answer in answers.items()}
        told = agreed(dropped, what="the rows that were dropped")
        self._check_parts(told)
        self.rows[Samples.TRAIN] = told.remaining
        return dropped

    async def restart(self, *, load: str = "", seed: int = 0) -> None:
        """Have every party go on from a saved model, or from fresh parameters."""
        message = FromCoordinator(restart=Restart(load=load, seed=seed))
        answers = await self._ask(message, "restarted", timeout=self._timeout)
        told = {name: answer.restarted.identity for name, answer in answers.items()}
        self.identity = agreed(told, what="the training that the model came from")
        if self.identity:
            check_digest(self._active, self.identity, what="the name of a training")

    async def assess(
        self, model: str, *, fit_attack: bool = False, audit: "Assess.Audit" = Assess.NO_PART
    ) -> Assessment:
        """Have the active party turn its recorded predictions into figures, or those of an audit that it has kept."""
        assess = Assess(model=model, fit_attack=fit_attack, audit=audit)
        messages = {self._active: FromCoordinator(assess=assess)}
        answers = await self._ask(messages, "assessment", timeout=self._timeout)
        assessment = answers[self._active].assessment
        check_figures(self._active, dict(assessment.figures))
        check_left_out(self._active, assessment.left_out)
        return assessment

    async def attest(self, *, joint: str, asked: str) -> dict[str, Statement]:
        """Have every party sign the joint statement, and what it can say of its own part in an unlearning."""
        # Only the active party is told what the rows have in common; the others sign a digest of it.
        messages = {one.name: FromCoordinator(attest=Attest(joint=joint)) for one in self._connections}
        messages[self._active].attest.asked = asked
        answers = await self._ask(messages, "statement", timeout=self._timeout, commit=True)
        return {name: answer.statement for name, answer in answers.items()}

    async def perform(self, method: Method[R], *, rounds: int = 1) -> R:
        """Run a method's phases one after the other, handing it each one's outcome; return what it returns."""
        outcome: PhaseOutcome | None = None
        try:
            step = next(method)
            while True:
                if isinstance(step, Rollback):
                    await self._rollback(step.checkpoints)
                else:
                    outcome = await self._run_all(phases_in(step), rounds)
                if outcome is None:
                    raise SettingsError("the method asks for a rollback before its first phase")
                step = method.send(outcome)
        except StopIteration as stop:
            value: R = stop.value
            return value
        finally:
            method.close()

    async def save(self, name: str, *, training: str, overwrite: bool = False) -> dict[str, str]:
        """Have every party save its model; return the digests of the files."""
        message = Save(name=name, identity=self.identity, training=training, overwrite=overwrite)
        answers = await self._ask(FromCoordinator(save=message), "saved", timeout=self._timeout)
        for party, answer in answers.items():
            check_saved(party, answer.saved, name=name)
        return {party: answer.saved.sha256 for party, answer in answers.items()}

    async def collect(self) -> Ledger:
        """Get every party's byte counts and reconcile them with each other and with the coordinator's own."""
        timeout = self._timeout
        answers = await self._ask(FromCoordinator(collect=Collect()), "readings", timeout=timeout)
        for name, one in answers.items():
            check_privacy(name, one.readings.privacy)
            for lines in (one.readings.readings, one.readings.uncounted):
                check_readings(name, lines, members=self._federation.parties, phases=self.predicted)
        self.privacy = {
            name: _privacy(one.readings.privacy) for name, one in answers.items() if one.readings.HasField("privacy")
        }
        books: dict[str, list[Reading]] = {name: list(one.readings.readings) for name, one in answers.items()}
        books[COORDINATOR] = self.journal.books.readings()
        uncounted = {name: list(one.readings.uncounted) for name, one in answers.items()}
        uncounted[COORDINATOR] = self.journal.uncounted.readings()
        ledger = Ledger.reconcile({**books}, self.predicted, {**uncounted}, alignment=self.predicted_alignment)
        ledger.check_prediction()
        return ledger

    async def _rollback(self, checkpoints: int) -> None:
        """Have every party undo all since a phase with a mark."""
        message = FromCoordinator(rollback=RollbackMessage(checkpoints=checkpoints))
        if not 0 < checkpoints <= len(self._checkpoints):
            kept = len(self._checkpoints)
            raise SettingsError(f"the method asks to go back {checkpoints} checkpoints where {kept} are kept")
        await self._ask(message, "rolled_back", timeout=self._timeout)
        place, self.identity = self._checkpoints[-checkpoints]
        del self._checkpoints[-checkpoints:]
        self.history[place:] = [one.undone() for one in self.history[place:]]

    async def _run_all(self, phases: list[Phase], rounds: int) -> PhaseOutcome:
        """Run phases, each of which is sent before the one before it has ended; return the last one's outcome."""
        outcomes = [await self._run(phase, rounds, following) for phase, following in zip_longest(phases, phases[1:])]
        return replace(outcomes[-1], earlier=tuple(outcomes[:-1]))

    async def _run(self, phase: Phase, rounds: int, following: Phase | None = None) -> PhaseOutcome:
        """Run one phase at every party; `following` comes next whatever this one comes to."""
        set_rows, before = self.rows.get(phase.over.set, 0), self._took
        cost = self.cost
        _check_size(phase, set_rows, embedding=cost.embedding)
        if phase.checkpoint:
            self._checkpoints.append((len(self.history), self.identity))
        self._phases += 1
        phase.number = self._phases
        if not self.journal.replaying:  # what an earlier attempt has told is not told again
            await self._tell_began(phase, rounds)
        for connection in self._connections:
            connection.meter.enter(phase.name, phase.round)
        # No deadline for a whole phase: every wait inside it has one, at the party that waits, and steps must go on.
        answers, seconds = await self._run_parts(phase, set_rows, following)
        self.predicted[phase.name] = self.predicted.get(phase.name, 0) + cost.predict(phase)
        self.seconds[phase.name] = self.seconds.get(phase.name, 0.0) + seconds
        reports = {name: answer.report for name, answer in answers.items()}
        # A party that was ahead of the others may have begun while they were busy with the request before.
        check_reports(phase, reports, set_rows=set_rows, active=self._active, seconds=before + seconds)
        outcome = outcome_of(phase, reports, active=self._active, seconds=seconds)
        if phase.update.WhichOneof("rule") != "observe":
            known = (self.identity, phase.SerializeToString(deterministic=True).hex(), outcome.loss)
            self.identity = hashlib.sha256(repr(known).encode()).hexdigest()
        done = records(phase, outcome, reports, active=self._active)
        self.history += done
        # The last thing that an earlier attempt has journalled it may not have come to tell.
        if not self._replayed or not self.journal.replaying:
            await self._tell_finished(phase, done, rounds)
        return outcome

    @property
    def cost(self) -> CostModel:
        """What phases cost, once the set-up is done."""
        assert self._cost is not None, "phases come after the set-up"
        return self._cost

    async def _tell_began(self, phase: Phase, rounds: int) -> None:
        """Tell those who follow the job, the metrics and the log that a phase begins."""
        started = PhaseStarted(name=phase.name, round=phase.round, of_rounds=rounds, phase=phase.number)
        await self._told(Event(started=started))
        self._metrics.phase_began(phase)
        logs.in_phase(phase.name, phase.round)

    async def _tell_finished(self, phase: Phase, done: list[PhaseRecord], rounds: int) -> None:
        """Tell those who follow the job, and the metrics, what a phase has come to."""
        for one in done:
            self._metrics.phase_finished(phase, one)
            duals = [told["dual_largest"] for told in one.figures.values() if "dual_largest" in told]
            finished = PhaseFinished(
                name=one.phase,
                round=one.round,
                of_rounds=rounds,
                loss=one.loss,
                accuracy=one.accuracy,
                seconds=one.seconds,
                dual=max(duals, default=None),
            )
            await self._told(Event(finished=finished))

    async def _run_parts(
        self, phase: Phase, set_rows: int, following: Phase | None
    ) -> tuple[dict[str, FromParty], float]:
        """Run a phase, cut into parts where it takes long; return the last part's answers, and the seconds of all."""
        parties = [one.name for one in self._connections if one.name not in phase.offline]
        progress = PhaseProgress(phase, set_rows=set_rows, active=self._active)
        (_, steps), first, seconds = rows_and_steps(phase, set_rows), 0, 0.0
        while True:
            message, end = FromCoordinator(phase=phase), self._end_of_part(phase, first, steps)
            if (first, end) != (0, steps):
                message.phase.first_step, message.phase.steps = first, end - first
            messages = dict.fromkeys(parties, message)
            answers = await self._ask(
                messages,
                "report",
                timeout=None,
                progress=progress,
                commit=first > 0,
                following=self._request_for(following) if following and end == steps and not phase.offline else None,
            )
            seconds += self._took
            self._pace.ran(phase.name, end - first, self._took)
            if end == steps:
                return answers, seconds
            for name, answer in answers.items():
                if not answer.report.partial or (answer.report.phase, answer.report.steps) != (phase.number, end):
                    raise PartyError(
                        name, f"reports the end of {phase.name} where {end} of {steps} steps were asked for"
                    )
            first = end

    def _end_of_part(self, phase: Phase, first: int, steps: int) -> int:
        """Return the step that the next part of a phase ends before: what was decided once is not decided anew."""
        left = steps - first  # all of which are asked for, if the phase was sent ahead
        return first + int(
            self.journal.value("steps", lambda: str(left if self._ahead else self._pace.steps(phase.name, left)))
        )

    def _request_for(self, phase: Phase) -> FromCoordinator | None:
        """Return the request for the phase that comes next; none if it cannot be made before this one has ended."""
        set_rows = self.rows.get(phase.over.set, 0)
        _check_size(phase, set_rows, embedding=self.cost.embedding)
        phase.number = self._phases + 1
        _, steps = rows_and_steps(phase, set_rows)
        whole = self._pace.steps(phase.name, steps) == steps
        return FromCoordinator(phase=phase) if whole and not phase.offline else None

    async def _tell(self, event: Event) -> None:
        """Tell those who follow the job, unless they were told in an earlier attempt."""
        if not self.journal.replaying:
            await self._told(event)

    @property
    def _timeout(self) -> float:
        return self._federation.deadlines.setup

    def _check_parts(self, told: Accepted | Dropped) -> None:
        """Refuse a request whose rows and the remaining ones are not all training rows."""
        train = self.rows[Samples.TRAIN]
        if not told.rows or not told.remaining or told.rows + told.remaining != train:
            said = f"would forget {told.rows} rows and keep {told.remaining}"
            raise PartyError(self._active, f"{said} of {train} training rows, which does not add up")

    async def _ask(
        self,
        message: FromCoordinator | dict[str, FromCoordinator],
        answer: str,
        *,
        timeout: float | None,
        progress: PhaseProgress | SetupProgress | None = None,
        commit: bool = False,
        following: FromCoordinator | None = None,
    ) -> dict[str, FromParty]:
        """Send every party the same message, or some their own, and return their answers.

        With a timeout of None the first answer may take as long as `progress` is told of; once it is there, the others,
        which work in step with it, must follow within the step deadline. With `commit` all parties commit, whenever
        the last time was. What an earlier attempt has asked is not asked again. `following` is the request that comes
        next: parties get it with this one, and need not wait for it.
        """
        messages = message if isinstance(message, dict) else {one.name: message for one in self._connections}
        if entry := self.journal.replay(messages):
            self._took, self._replayed = entry.seconds, True
            self._pace.replayed(entry)
            return {name: entry.answers[name] for name in messages}
        asked = _in_words(next(iter(messages.values())))
        ahead, self._ahead = self._ahead, None
        if ahead:
            commit, sent = ahead.commit, dict.fromkeys(messages, ahead)
            for connection in self._connections:
                connection.meter.count(COORDINATOR, connection.name, begun(ahead))
        else:
            commit = self._pace.due(asked) or commit
            sent = self._addressed(messages, commit)
        if following:
            due = self._pace.due(_in_words(following), after=asked, commits=commit)
            self._ahead = self._numbered(following, due, ahead=1)
        began = time.perf_counter()
        answers = await self._exchange(sent, answer, timeout=timeout, progress=progress, left=bool(ahead))
        self._took, self._replayed = time.perf_counter() - began, False
        readings = [one for connection in self._connections for one in connection.meter.close()]
        self.journal.add(messages, answers, asked=asked, commit=commit, seconds=self._took, readings=readings)
        self._pace.asked(asked, sent, seconds=self._took)
        if commit:
            writing = time.perf_counter()
            await self.journal.write()
            told = (one.commit_seconds for one in answers.values())
            # A party that says something else than can be is taken for a slow one.
            cost = max(seconds if 0 <= seconds <= self._took else self._took for seconds in told)
            self._pace.committed(cost + time.perf_counter() - writing)
        return {name: answers[name] for name in messages}

    def _addressed(self, messages: Mapping[str, FromCoordinator], commit: bool) -> dict[str, FromCoordinator]:
        """Return what is sent, by party; whoever is left out, and has not committed its last request, is asked to."""
        lagging = self._pace.lagging if commit else set()
        only = FromCoordinator(commit_only=Commit())
        return {
            one.name: self._numbered(messages.get(one.name, only), commit)
            for one in self._connections
            if one.name in messages or one.name in lagging
        }

    def _numbered(self, message: FromCoordinator, commit: bool, *, ahead: int = 0) -> FromCoordinator:
        """Return a message as it is sent: with its place in the job, so many requests ahead."""
        sent = FromCoordinator()
        sent.CopyFrom(message)
        sent.number, sent.attempt, sent.commit = self.journal.number + ahead, self.journal.attempt, commit
        sent.confirmed, sent.ahead = self.journal.confirmed, ahead > 0
        return sent

    async def _exchange(
        self,
        messages: Mapping[str, FromCoordinator],
        answer: str,
        *,
        timeout: float | None,
        progress: PhaseProgress | SetupProgress | None,
        left: bool,
    ) -> dict[str, FromParty]:
        """Send some parties their messages, unless these have left before, and return their answers."""
        lag = self._federation.deadlines.step if timeout is None else None
        tasks = {
            asyncio.create_task(self._ask_one(one, messages[one.name], answer, timeout, progress, left)): one.name
            for one in self._connections
            if one.name in messages
        }
        try:
            await all_done(tasks, lag, self._heard)
            return {name: task.result() for task, name in tasks.items()}
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _ask_one(
        self,
        connection: Connection,
        message: FromCoordinator,
        answer: str,
        timeout: float | None,
        progress: PhaseProgress | SetupProgress | None,
        left: bool,
    ) -> FromParty:
        most = MOST_BOOK_BYTES * (self._phases + 1) if answer == "readings" else MOST_ANSWER_BYTES
        most += ROUND_BYTES * message.phase.joint.rounds
        if message.HasField("commit_only"):
            answer = "committed"
        for sent in (None if left else message, self._ahead):
            if sent:
                await connection.link.send(sent, timeout=self._federation.deadlines.step)
        while True:
            one = await connection.link.receive(timeout=timeout, most=most)
            if one.attempt and one.attempt != self.journal.attempt:
                continue  # it was on its way when that attempt ended
            match one.WhichOneof("content"):
                case "progress" if progress:
                    progress.check(connection.name, one.progress)
                    self._heard[connection.name] = time.monotonic()
                    await self._show(connection.name, one.progress)
                case "failure":
                    raise heard_from(connection.name, one.failure, active=self._active)
                case content if content == answer:
                    return one
                case other:
                    raise PartyError(connection.name, f"answered with {other} where {answer} was due")

    async def _show(self, party: str, progress: Progress) -> None:
        """Pass progress on; of an alignment, in which every party has its own, that of the active one."""
        if progress.phase:
            await self._tell(Event(progress=progress))
        elif party == self._active:
            if not self._aligning:
                self._aligning = True
                await self._tell(Event(started=PhaseStarted(name="alignment", round=1, of_rounds=1)))
            await self._tell(Event(progress=progress))


def _check_size(phase: Phase, set_rows: int, *, embedding: int) -> None:
    """Refuse a phase whose batches are more than messages may hold."""
    if phase.HasField("joint"):
        batch = rows_of_round(phase.joint)
    else:
        batch = min(phase.plan.batch_size, rows_of(phase.over, set_rows))
    if batch * embedding > MOST_BATCH_VALUES:
        said = f"{batch} rows of {phase.name} with embeddings of width {embedding}"
        raise SettingsError(f"batch_size: {said} are more than a message may hold: choose smaller batches")
    under_way = 1 + phase.schedule.overlap
    if batch * embedding * under_way > MOST_UNDER_WAY:
        said = f"{under_way} batches of {batch} rows with embeddings of width {embedding}"
        raise SettingsError(f"train.overlap: {said} are more than may be under way: choose fewer or smaller ones")


def _in_words(message: FromCoordinator) -> str:
    """Say what a request is, for readers of the journal."""
    content = message.WhichOneof("content") or ""
    return f"{message.phase.name} {message.phase.round}" if content == "phase" else content


def _privacy(told: Privacy) -> dict[str, Any]:
    """Return what result.json says of a party's noise; an ε of null has no bound."""
    bounded = {
        name: value if math.isfinite(value) else None
        for name, value in (("epsilon", told.epsilon), ("epsilon_whole", told.epsilon_whole))
    }
    return {
        **bounded,
        "delta": told.delta,
        "releases": told.releases,
        "rows_sent": told.rows_sent,
        "repeatable": told.repeatable,
    }
