"""One run, attacked from every role: figures by name, each with that of guessing beside it."""

from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from coordinator.job import Job
from coordinator.methods import UnlearningTask
from coordinator.methods.catalogue import Fedora
from coordinator.methods.registry import METHODS
from coordinator.methods.retraining import Retrain
from coordinator.methods.training import training
from coordinator.phases import FORGET, REMAINING, TEST, look
from fedora_vfl.bench.attacks import features, labels, membership, outsiders, properties
from fedora_vfl.bench.attacks.defences import NONE
from fedora_vfl.bench.attacks.one_process import OneProcess, Step, join
from fedora_vfl.bench.attacks.scenes import FORGOTTEN, Extent, Point
from fedora_vfl.sampling.seeds import derive
from fedora_vfl.settings.files import check
from party.assessment import area_under_curve, true_positives
from party.data.inputs import Inputs, TableInputs
from party.privacy import clip_rows
from party.request import resolve
from protos.fedora.v1.control_pb2 import Request
from protos.fedora.v1.phase_pb2 import Samples

TARGET = "passive-1"  # whose gradients and embeddings are looked at
KNOWN_LABELS = (10, 50, 100)
KNOWN_ROWS = (50, 200)
KNOWN_PROPERTIES = 100
DRAWS = 3  # of known rows, over which a figure is the mean
LOOKED_AT = 2000  # rows of a set at most
RELEASES = 30  # of the same embeddings, with fresh noise
GROUPS = (1, 10, 50)
EVALUATION_BATCH = 1024

Figures = dict[str, float | None]


def guess(key: str) -> str:
    """Name the figure of guessing that stands beside another."""
    return f"{key}|guess"


@dataclass
class Trace:
    """What one passive party is sent and sends during training, row by row."""

    rows: int
    gradients: list[Tensor] = field(default_factory=list)  # one per epoch, in the common order, times the batch size
    first_rows: Tensor | None = None
    first_embeddings: Tensor | None = None  # of the first batch, when the bottom was as it had been made

    def __call__(self, step: Step) -> None:
        """Keep what one batch brought."""
        sent = step.gradients[TARGET]
        if self.first_rows is None:
            self.first_rows, self.first_embeddings = step.rows, step.embeddings[TARGET]
        if step.phase.round > len(self.gradients):
            self.gradients.append(torch.zeros(self.rows, sent.shape[1]))
        self.gradients[-1][step.rows] = sent * len(step.rows)

    def joined(self) -> Tensor:
        """Return the directions of all epochs' gradients, side by side."""
        return torch.cat([functional.normalize(one, dim=1) for one in self.gradients], dim=1)


@dataclass(frozen=True)
class Seen:
    """What evaluation shows of a set of rows."""

    rows: Tensor
    embeddings: dict[str, Tensor]
    logits: Tensor


def observe(process: OneProcess, over: Samples) -> Seen:
    """Evaluate a set of rows, or the same draw of a large one, and return what is sent and computed."""
    steps: list[Step] = []
    process.watch = steps.append
    wanted = Samples(set=over.set, share=min(1.0, LOOKED_AT / len(process.active.sets.rows[over.set])))
    process.run(look("evaluation", 1, over=wanted, batch_size=EVALUATION_BATCH))
    process.watch = None
    embeddings = {name: torch.cat([one.embeddings[name] for one in steps]) for name in process.passive}
    return Seen(torch.cat([one.rows for one in steps]), embeddings, torch.cat([one.logits for one in steps]))


def measure(point: Point, extent: Extent, folder: Path) -> Figures:
    """Train as the point says, attack, and return all figures."""
    torch.set_num_threads(1)
    content = point.scene.job(point.defence, point.seed)
    job = check({name: value for name, value in content.items() if name != "data"}, Job, origin="bench attacks")
    process = join(folder, job, point.defence)
    bottom = process.states[TARGET].networks["bottom"]
    made = {name: value.clone() for name, value in bottom.state_dict().items()}
    trace = process.watch = Trace(len(process.order.train))
    process.perform(training(job.train, seed=job.seed))
    process.watch = None
    test = observe(process, TEST)
    found: Figures = {"test_accuracy": float((test.logits.argmax(1) == process.labels[test.rows]).double().mean())}
    found[guess("test_accuracy")] = _largest_share(process.labels[test.rows])
    found |= _label_figures(process, trace, point.seed, whole=point.defence == NONE)
    found |= _feature_figures(process, trace, test, made, point, extent)
    found |= _property_figures(process, test, point)
    loss = process.noises[TARGET].loss()
    found["epsilon"] = loss.epsilon if loss else None
    if point.defence == NONE:
        found |= _coordinator_figures(process, point.seed)
        found |= _outsider_figures(process, trace, job, folder)
        found |= _membership_figures(process, job, folder)
    return found


def _label_figures(process: OneProcess, trace: Trace, seed: int, *, whole: bool) -> Figures:
    """Let a passive party guess the training rows' labels; only the strongest attacks unless `whole`."""
    truth, classes = process.labels[: trace.rows], process.active.classes
    joined, first = trace.joined(), trace.gradients[0]
    generator = torch.Generator().manual_seed(derive(seed, "known labels"))
    shuffled = joined[torch.randperm(len(joined), generator=generator)]
    tried: dict[str, list[Tensor]] = {}
    rows_known: dict[str, list[Tensor]] = {}

    def note(key: str, guessed: Tensor, known: Tensor) -> None:
        tried.setdefault(key, []).append(guessed)
        rows_known.setdefault(key, []).append(known)

    inputs = process.states[TARGET].inputs
    assert inputs is not None
    every = torch.arange(trace.rows)
    raw = inputs.batch(every).flatten(1).double().numpy()
    with torch.no_grad():
        embedded = process.states[TARGET].networks["bottom"].eval()(inputs.batch(every)).relu().double().numpy()
    for _ in range(DRAWS):
        one_each = labels.draw_known(truth, classes, classes, generator)
        for key, gradients in (("first", first), ("all", joined), ("control", shuffled)):
            note(f"label.direction.{key}", labels.by_direction(gradients, one_each, truth[one_each], classes), one_each)
    heads = {"completion": embedded}
    if whole:  # what own columns give depends on no defence
        heads["own"] = labels.narrowed(raw)
    for count in KNOWN_LABELS if whole else KNOWN_LABELS[-1:]:
        for _ in range(DRAWS):
            known = labels.draw_known(truth, count, classes, generator)
            for key, rows in heads.items():
                guessed = labels.completed(rows, known.numpy(), truth[known].numpy())
                note(f"label.{key}.{count}", torch.from_numpy(guessed), known)
    main = labels.narrowed(joined.double().numpy())
    for _ in range(DRAWS):
        known = labels.draw_known(truth, KNOWN_LABELS[-1], classes, generator)
        guessed = labels.completed(main, known.numpy(), truth[known].numpy())
        note(f"label.gradients.{KNOWN_LABELS[-1]}", torch.from_numpy(guessed), known)
    clusters = labels.by_clusters(joined, classes, derive(seed, "clusters") % 2**32)
    note("label.clusters", labels.named_by_truth(clusters, truth, classes), torch.arange(0))
    found: Figures = {}
    for key, guesses in tried.items():
        scores, plain = [], []
        for guessed, known in zip(guesses, rows_known[key], strict=True):
            others = ~torch.isin(every, known)
            scores.append(labels.balanced_accuracy(guessed[others], truth[others]))
            plain.append(float((guessed[others] == truth[others]).double().mean()))
        found |= {key: _mean(scores), guess(key): 1 / classes}
        found |= {f"{key}.accuracy": _mean(plain), guess(f"{key}.accuracy"): _largest_share(truth)}
    if classes == 2:
        rare = int(torch.bincount(truth).argmin())
        for key, gradients in (("first", first), ("last", trace.gradients[-1])):
            lengths = labels.by_norm(gradients)
            found[f"label.norm.{key}"] = area_under_curve(lengths[truth == rare], lengths[truth != rare])
            found[guess(f"label.norm.{key}")] = 0.5
    return found


class _Sent(nn.Module):
    """A bottom with the clipping that follows it, as its embeddings are sent."""

    def __init__(self, bottom: nn.Module, clip: float | None) -> None:
        super().__init__()
        self._bottom, self._clip = bottom, clip

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the embeddings before noise."""
        embedding: Tensor = self._bottom(inputs)
        return embedding if self._clip is None else clip_rows(embedding, self._clip)


def _feature_figures(
    process: OneProcess, trace: Trace, test: Seen, made: dict[str, Tensor], point: Point, extent: Extent
) -> Figures:
    """Let the active party guess a passive party's rows."""
    inputs = process.states[TARGET].inputs
    assert inputs is not None and trace.first_rows is not None and trace.first_embeddings is not None
    generator = torch.Generator().manual_seed(derive(point.seed, "known rows"))
    chosen = torch.randperm(len(test.rows), generator=generator)
    rows, noise = test.rows[chosen], point.defence.noise_embeddings
    truth = inputs.batch(rows)
    views = {"": test.embeddings[TARGET][chosen]}
    if noise:
        others = [observe(process, TEST).embeddings[TARGET][chosen] for _ in range(RELEASES - 1)]
        views[".often"] = torch.stack([views[""], *others]).mean(dim=0)
    found: Figures = {}
    for count in KNOWN_ROWS if point.defence == NONE else KNOWN_ROWS[-1:]:
        known, target = slice(count), slice(count, None)
        beside = _known_anyway(process, rows)
        base = features.explained(features.linear_inverse(beside[known], truth[known], beside[target]), truth[target])
        for key, seen in views.items():
            fitted = (seen[known], truth[known], seen[target])
            linear = features.linear_inverse(*fitted)
            network = features.network_inverse(*fitted, seed=point.seed)
            found[f"features.linear.{count}{key}"] = features.explained(linear, truth[target])
            found[f"features.network.{count}{key}"] = features.explained(network, truth[target])
            found |= {guess(f"features.{kind}.{count}{key}"): base for kind in ("linear", "network")}
            found |= _category_figures(f"{count}{key}", linear, inputs, rows[target])
    images = truth.dim() == 4
    many = extent.image_targets if images else extent.targets
    bottom = process.states[TARGET].networks["bottom"]
    prior = features.Prior.of(inputs.batch(torch.arange(trace.rows)))
    trained = {name: value.clone() for name, value in bottom.state_dict().items()}
    tries = {
        f"trained{key}": (trained, rows[:many], seen[:many], noise / (RELEASES**0.5 if key else 1))
        for key, seen in views.items()
    }
    centre = test.embeddings[TARGET].mean(dim=0)
    if point.defence == NONE:
        tries["initial"] = (made, trace.first_rows[:many], trace.first_embeddings[:many], noise)
    for key, (parameters, aimed, seen, blur) in tries.items():
        bottom.load_state_dict(parameters)
        chained = _Sent(bottom, point.defence.clip_embeddings)
        guessed = features.with_bottom(chained, seen, prior, noise=blur, centre=centre, steps=extent.steps)
        found |= {f"features.bottom.{key}": features.explained(guessed, inputs.batch(aimed))}
        found[guess(f"features.bottom.{key}")] = 0.0
        found |= _category_figures(key, guessed, inputs, aimed)
    bottom.load_state_dict(trained)
    return found


def _category_figures(attack: str, guessed: Tensor, inputs: Inputs, rows: Tensor) -> Figures:
    """Return how many categories an attack names right; nothing where there are none."""
    if not isinstance(inputs, TableInputs) or not inputs.ones.shape[1]:
        return {}
    key = f"features.categories.{attack}"
    named, frequent = features.categories_named(guessed, inputs, rows)
    return {key: named, guess(key): frequent}


def _known_anyway(process: OneProcess, rows: Tensor) -> Tensor:
    """Return what the active party has without any embedding: labels, and its own columns if it has any."""
    beside = functional.one_hot(process.labels[rows], process.active.classes).float()
    own = process.active.inputs
    return torch.cat([beside, own.batch(rows).flatten(1)], dim=1) if own else beside


def _property_figures(process: OneProcess, test: Seen, point: Point) -> Figures:
    """Let the active party guess, from each passive party's embeddings, what only another party has."""
    found: Figures = {}
    generator = torch.Generator().manual_seed(derive(point.seed, "known properties"))
    chosen = torch.randperm(len(test.rows), generator=generator)
    rows, known = test.rows[chosen], torch.arange(KNOWN_PROPERTIES)
    others = torch.arange(KNOWN_PROPERTIES, len(rows))
    for place, party in enumerate(process.passive):
        other = process.passive[1 - place]
        if point.scene.properties:
            owner, _, column = point.scene.properties[party].partition(".")
            truth = properties.other_column(process, owner, column)[rows]
        else:
            truth = properties.other_brightness(process, other)[rows]
        inputs = process.states[party].inputs
        assert inputs is not None
        tried = {
            f"property.{party}": test.embeddings[party][chosen],
            f"property.{party}.raw": inputs.batch(rows).flatten(1),
        }
        beside = properties.inferred(_known_anyway(process, rows), known, truth)
        base = labels.balanced_accuracy(beside[others], truth[others].long())
        for key, seen in tried.items():
            guessed = properties.inferred(seen, known, truth)
            found[key] = labels.balanced_accuracy(guessed[others], truth[others].long())
            found[guess(key)] = base
    return found


def _coordinator_figures(process: OneProcess, seed: int) -> Figures:
    """Let the coordinator guess labels from the accuracies of groups."""
    truth = process.labels[: len(process.order.train)]
    rare = int(torch.bincount(truth).argmin())
    generator = torch.Generator().manual_seed(derive(seed, "groups"))
    found: Figures = {}
    for size in GROUPS:
        key = f"coordinator.group.{size}"
        found[key] = outsiders.told_by_group_accuracy(truth == rare, size, generator)
        found[guess(key)] = _largest_share((truth == rare).long())
    return found


def _outsider_figures(process: OneProcess, trace: Trace, job: Job, folder: Path) -> Figures:
    """Let an outsider look at sizes of messages, with the true labels and with others."""
    sizes: list[list[int]] = []
    batches: list[int] = []
    for shuffled in (False, True):
        again = join(folder, job, process.defence)
        if shuffled:
            assert again.active.labels is not None
            again.active.labels = again.active.labels[torch.randperm(len(again.labels))]
        steps: list[Step] = []
        again.watch = steps.append
        again.run(next(training(job.train, seed=job.seed)))  # type: ignore[arg-type]
        sizes.append(outsiders.message_sizes([one.gradients[TARGET] for one in steps]))
        batches = [len(one.rows) for one in steps]
    width = trace.gradients[0].shape[1]
    found = outsiders.rows_from_sizes(sizes[0], width)
    right = _mean([float(one == other) for one, other in zip(found, batches, strict=True)])
    return {
        "outsider.rows": right,
        guess("outsider.rows"): 0.0,
        "outsider.labels": _mean([float(one != other) for one, other in zip(*sizes, strict=True)]),
        guess("outsider.labels"): 0.0,
    }


def _membership_figures(process: OneProcess, job: Job, folder: Path) -> Figures:
    """Let both kinds of party tell forgotten rows from rows never seen, before and after unlearning."""
    classes = process.active.description["classes"]["classes"]
    train = len(process.order.train)
    request = Request(seed=job.seed, samples=train // FORGOTTEN)
    forget = resolve(request, process.order, process.labels[:train], classes)
    found = _remembered(process, forget, "original")
    test = observe(process, TEST)
    task = UnlearningTask(
        job.train,
        classes=len(classes),
        forget=len(forget),
        remaining=train - len(forget),
        seed=derive(job.seed, "unlearn"),
        passive=tuple(process.passive),
        held_out_loss=float(functional.cross_entropy(test.logits, process.labels[test.rows])),
    )
    process.forget(forget)
    process.perform(METHODS["fedora"].run(task, Fedora()))
    found |= _remembered(process, forget, "unlearned")
    seed = derive(job.seed, "retrain")
    anew = join(folder, job.model_copy(update={"seed": seed}), process.defence)
    anew.forget(forget)
    retrained = UnlearningTask(job.train, len(classes), len(forget), train - len(forget), seed)
    anew.perform(METHODS["retrain"].run(retrained, Retrain()))
    return found | _remembered(anew, forget, "retrain")


def _remembered(process: OneProcess, forget: Tensor, model: str) -> Figures:
    """Return how well rows to forget, and rows that remain, can be told from test rows."""
    for state in process.states.values():
        state.sets = state.sets.forgetting(forget)
    gone, kept, test = (observe(process, over) for over in (FORGET, REMAINING, TEST))
    scores = {
        name: membership.by_loss(one.logits, process.labels[one.rows])
        for name, one in (("gone", gone), ("kept", kept), ("test", test))
    }
    found: Figures = {}
    odd = torch.arange(len(test.rows)) % 2 == 1
    embedded = {name: one.embeddings[TARGET] for name, one in (("gone", gone), ("kept", kept), ("test", test))}
    half = torch.arange(len(kept.rows)) % 2 == 1
    judged = membership.by_embedding(
        embedded["kept"][half], embedded["test"][odd], embedded["gone"], embedded["kept"][~half], embedded["test"][~odd]
    )
    passive = dict(zip(("gone", "kept", "test"), judged, strict=True))
    for role, told in (("active", scores), ("passive", passive)):
        for which in ("gone", "kept"):
            key = f"membership.{role}.{model}.{which}"
            found |= {key: area_under_curve(told[which], told["test"]), guess(key): 0.5}
            found |= {f"{key}.tpr": true_positives(told[which], told["test"]), guess(f"{key}.tpr"): 0.01}
    accuracies = {
        name: float((one.logits.argmax(1) == process.labels[one.rows]).double().mean())
        for name, one in (("gone", gone), ("test", test))
    }
    found |= {f"accuracy.{model}.{name}": value for name, value in accuracies.items()}
    return found


def _largest_share(truth: Tensor) -> float:
    return float(torch.bincount(truth).max() / len(truth))


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)
