"""A job that forgets, in one process: the same original, unlearned and retrained models as on a cluster."""

import math
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from coordinator.cost import CostModel
from coordinator.job import Forget, Job
from coordinator.job_runner import request_message
from coordinator.methods import Method, MethodResult, R, UnlearningTask, phases_in
from coordinator.methods.evaluation import observation
from coordinator.methods.fedora_settings import Fedora
from coordinator.methods.registry import METHODS, Unlearn
from coordinator.methods.retraining import NAME as RETRAIN
from coordinator.methods.retraining import Retrain
from coordinator.methods.training import training
from fedora_vfl.bench.one_process.joining import join
from fedora_vfl.cluster.preparation import JOB_FILE
from fedora_vfl.sampling.seeds import derive
from fedora_vfl.settings.files import load
from fedora_vfl.wire.choice import Encodings
from party.assessment import Assessor
from party.request import resolve
from party.state import Recorded, copied
from protos.fedora.v1.exchange_pb2 import Order
from protos.fedora.v1.phase_pb2 import Samples

Figures = dict[str, float]
CONFIDENCE = "forget_confidence"  # mean probability of the labels that rows to forget were trained on
UNSURE = "forget_unsure"  # mean of 2·H(P)/log C − 1 over these rows: L_u of the goal `uncertain`, 1 at its largest
LEANING = "forget_leaning"  # standard errors by which their labels lean on one party's columns more than is usual


class Course:
    """One job, from the folder that `fedora_vfl.cluster.preparation.prepare` has made for it.

    `train` comes first, then any number of `retrain` and of `unlearn`, each from the trained model, and `go_on`.
    """

    def __init__(self, folder: Path) -> None:
        self.job = load(folder / JOB_FILE, Job)
        self.process = join(folder, self.job)
        self._trained: dict[str, dict[str, Tensor]] = {}
        self.ask(self._found())

    def _found(self) -> Tensor:
        """Return the rows that the job means, of those that have not been dropped."""
        job, process = self.job, self.process
        assert job.forget
        rows = process.active.sets.rows[Samples.TRAIN]
        order = Order(train=[process.order.train[row] for row in rows.tolist()])
        classes: list[str] = process.active.description["classes"]["classes"]
        request = request_message(job.forget, seed=job.seed, pending=[])
        return rows[resolve(request, order, process.labels[rows], classes)]

    def ask(self, rows: Tensor) -> None:
        """Ask for these rows to be forgotten."""
        job, process, self.forget = self.job, self.process, rows
        for state in process.states.values():
            state.sets = state.sets.forgetting(rows)
        self.rows = {which: len(rows) for which, rows in process.active.sets.rows.items()}
        links = {name: Encodings.of(job.wire.link(name)) for name in process.passive}
        self._cost = CostModel(self.rows, process.active.model.embedding, links)
        self.task = UnlearningTask(
            job.train,
            classes=process.active.classes,
            forget=self.rows[Samples.FORGET],
            remaining=self.rows[Samples.REMAINING],
            seed=derive(job.seed, "unlearn"),
            passive=tuple(process.passive),
            validation=self.rows[Samples.VALIDATION],
            test=self.rows[Samples.TEST],
            rows_for_one=self._cost.rows_for_one,
            layers=process.layers,
        )

    def go_on(self, forget: Forget, *, seed: int) -> None:
        """Ask for other rows to be forgotten, of the model as the last `unlearn` has left it."""
        self.job = self.job.model_copy(update={"forget": forget, "seed": seed})
        self.ask(self._found())
        self._keep()

    def _keep(self) -> None:
        """Take the model as it is for the trained one, and drop the rows."""
        self._trained = {name: copied(state.networks.state_dict()) for name, state in self.process.states.items()}
        self.process.forget(self.forget)

    def mislabel(self, share: float, *, seed: int) -> Tensor:
        """Give a share of the training rows a wrong label, which can only be learned by heart; return these rows."""
        labels, draw = self.process.labels, torch.Generator().manual_seed(seed)
        train = len(self.process.order.train)
        rows = torch.randperm(train, generator=draw)[: round(share * train)]
        away = torch.randint(1, self.task.classes, (len(rows),), generator=draw)
        labels[rows] = (labels[rows] + away) % self.task.classes
        return rows

    def train(self) -> Figures:
        """Train the original model and drop the rows; return its figures."""
        self.process.perform(training(self.job.train, seed=self.job.seed))
        found = self._figures()
        self._keep()
        return found

    def unlearn(self, settings: Unlearn, *, draw: int = 0) -> tuple[MethodResult, Figures]:
        """Forget, from the trained model; figures have the `bytes` that it takes, too.

        Each `draw` has other rows in its rounds; 0 has those of the job.
        """
        self.process.load(self._trained)
        seed = derive(self.task.seed, "draw", draw) if draw else self.task.seed
        return self._perform(settings, replace(self.task, seed=seed))

    def confidences(self, rows: Tensor) -> list[float]:
        """Return how sure the model, as it is now, is of the labels that some rows to forget were trained on."""
        seen, p = _forgotten(self._observed())
        place = {row: at for at, row in enumerate(seen.tolist())}
        return [float(p[place[row], self.process.labels[row]]) for row in rows.tolist()]

    def leaning(self, rows: Tensor) -> float:
        """Return by how many standard errors the labels of some rows lean on one party, as the trained model has it."""
        self.process.load(self._trained)
        self.ask(rows)
        method = METHODS.get("fedora").run(self.task, Fedora())
        for phase in phases_in(next(method)):  # the first comparison
            self.process.run(phase)
        method.close()
        return self._leaning()

    def _leaning(self) -> float:
        found: float = self.process.active.memory.of("compare").get("leaning", 0.0)
        return found

    def retrain(self, repeat: int = 1) -> Figures:
        """Train from fresh parameters on the rows that remain, from a seed of its own each time."""
        again = [repeat] if repeat > 1 else []
        seed = derive(self.job.seed, RETRAIN, *again)
        self.process.restart(seed)
        return self._perform(Retrain(), replace(self.task, seed=seed))[1]

    def _perform(self, settings: Unlearn, task: UnlearningTask) -> tuple[MethodResult, Figures]:
        counted: list[int] = []
        ending = self.process.perform(self._counting(METHODS.get(settings.method).run(task, settings), counted))
        return ending, {**self._figures(), LEANING: self._leaning(), "bytes": float(sum(counted))}

    def _counting(self, method: Method[R], counted: list[int]) -> Method[R]:
        """Run a method, noting the bytes of each of its phases."""
        step = next(method)
        while True:
            outcome = yield step
            counted += [self._cost.predict(phase) for phase in phases_in(step)]
            try:
                step = method.send(outcome)
            except StopIteration as stop:
                value: R = stop.value
                return value

    def _observed(self) -> Recorded:
        """Return the predictions for all sets that the active party measures."""
        seed = derive(self.job.seed, "observe")
        self.process.perform(observation(1, rows=self.rows, batch_size=self.job.evaluate.batch_size, seed=seed))
        active = self.process.active
        recorded, active.recorded = active.recorded, {}
        return recorded

    def _figures(self) -> Figures:
        """Measure the model as the active party does."""
        recorded = self._observed()
        rows, p = _forgotten(recorded)
        confidence = p[torch.arange(len(rows)), self.process.labels[rows]]
        entropy = torch.special.entr(p).sum(dim=1).mean()
        return {
            **Assessor(self.process.active).figures(recorded),
            CONFIDENCE: float(confidence.mean()),
            UNSURE: 2 * float(entropy) / math.log(p.shape[1]) - 1,
        }


def _forgotten(recorded: Recorded) -> tuple[Tensor, Tensor]:
    """Return the rows to forget and the probabilities of their classes."""
    rows, logits = recorded[Samples.FORGET]
    return rows, logits.double().softmax(dim=1)
