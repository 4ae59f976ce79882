"""Figures of reconstruction and property inference: the active party with the embeddings it was sent."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from coordinator.phases import TEST
from fedora_vfl.bench.attacks import features, labels, properties
from fedora_vfl.bench.attacks.defences import NONE
from fedora_vfl.bench.attacks.figures import Figures, beside
from fedora_vfl.bench.attacks.scenes import Extent, Point
from fedora_vfl.bench.attacks.views import TARGET, Seen, Trace, known_anyway, observe
from fedora_vfl.bench.one_process.parties import OneProcess
from fedora_vfl.sampling.seeds import derive
from party.data.inputs import Inputs, TableInputs
from party.privacy import clip_rows

KNOWN_ROWS = (50, 200)
KNOWN_PROPERTIES = 100
RELEASES = 30  # of the same embeddings, with fresh noise
OFTEN = ".often"  # ends the names of figures that all of these were used for


@dataclass(frozen=True)
class Aim:
    """Some rows whose embeddings the attacker has, in an order of chance: the first ones are known to it."""

    rows: Tensor
    truth: Tensor  # the party's encoded columns
    views: dict[str, Tensor]  # embeddings, by how the figures' names end


def feature_figures(
    process: OneProcess, trace: Trace, test: Seen, made: dict[str, Tensor], point: Point, extent: Extent
) -> Figures:
    """Let the active party guess a passive party's rows; `made` are the parameters its bottom began with."""
    aim = _aim(process, test, point)
    found = _inverse_figures(process, aim, point)
    return found | _bottom_figures(process, trace, test, aim, made, point, extent)


def _inputs(process: OneProcess) -> Inputs:
    inputs = process.states[TARGET].inputs
    assert inputs is not None
    return inputs


def _aim(process: OneProcess, test: Seen, point: Point) -> Aim:
    generator = torch.Generator().manual_seed(derive(point.seed, "known rows"))
    chosen = torch.randperm(len(test.rows), generator=generator)
    views = {"": test.embeddings[TARGET][chosen]}
    if point.defence.noise_embeddings:
        others = [observe(process, TEST).embeddings[TARGET][chosen] for _ in range(RELEASES - 1)]
        views[OFTEN] = torch.stack([views[""], *others]).mean(dim=0)
    rows = test.rows[chosen]
    return Aim(rows, _inputs(process).batch(rows), views)


def _inverse_figures(process: OneProcess, aim: Aim, point: Point) -> Figures:
    """Fit inverses to rows that are known, and try them on the others."""
    found: Figures = {}
    anyway = known_anyway(process, aim.rows)
    for count in KNOWN_ROWS if point.defence == NONE else KNOWN_ROWS[-1:]:
        known, target = slice(count), slice(count, None)
        wanted = aim.truth[target]
        without = features.linear_inverse(anyway[known], aim.truth[known], anyway[target])
        guessing = features.explained(without, wanted)
        for end, seen in aim.views.items():
            fitted = (seen[known], aim.truth[known], seen[target])
            linear = features.linear_inverse(*fitted)
            network = features.network_inverse(*fitted, seed=point.seed)
            found |= beside(f"features.linear.{count}{end}", features.explained(linear, wanted), guessing)
            found |= beside(f"features.network.{count}{end}", features.explained(network, wanted), guessing)
            found |= _category_figures(f"{count}{end}", linear, _inputs(process), aim.rows[target])
    return found


def _bottom_figures(
    process: OneProcess, trace: Trace, test: Seen, aim: Aim, made: dict[str, Tensor], point: Point, extent: Extent
) -> Figures:
    """Look for rows through the bottom, as it is and, without a defence, as it was made."""
    assert trace.first_rows is not None and trace.first_embeddings is not None
    inputs, bottom, noise = _inputs(process), process.states[TARGET].networks["bottom"], point.defence.noise_embeddings
    many = extent.image_targets if aim.truth.dim() == 4 else extent.targets
    trained = {name: value.clone() for name, value in bottom.state_dict().items()}
    tries = {
        f"trained{end}": (trained, aim.rows[:many], seen[:many], noise / (RELEASES**0.5 if end else 1))
        for end, seen in aim.views.items()
    }
    if point.defence == NONE:
        tries["initial"] = (made, trace.first_rows[:many], trace.first_embeddings[:many], noise)
    prior = features.Prior.of(inputs.batch(torch.arange(trace.rows)))
    sent = _Sent(bottom, point.defence.clip_embeddings)
    centres = {"initial": trace.first_embeddings.mean(dim=0)}  # of the bottom as it was; else as it is
    found: Figures = {}
    for key, (parameters, rows, seen, blur) in tries.items():
        bottom.load_state_dict(parameters)
        centre = centres.get(key, test.embeddings[TARGET].mean(dim=0))
        guessed = features.with_bottom(sent, seen, prior, noise=blur, centre=centre, steps=extent.steps)
        found |= beside(f"features.bottom.{key}", features.explained(guessed, inputs.batch(rows)), 0.0)
        found |= _category_figures(key, guessed, inputs, rows)
    bottom.load_state_dict(trained)
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


def _category_figures(attack: str, guessed: Tensor, inputs: Inputs, rows: Tensor) -> Figures:
    """Return how many categories an attack names right; nothing where there are none."""
    if not isinstance(inputs, TableInputs) or not inputs.ones.shape[1]:
        return {}
    key = f"features.categories.{attack}"
    named, frequent = features.categories_named(guessed, inputs, rows)
    return beside(key, named, frequent)


def property_figures(process: OneProcess, test: Seen, point: Point) -> Figures:
    """Let the active party guess, from each passive party's embeddings, what only another party has."""
    generator = torch.Generator().manual_seed(derive(point.seed, "known properties"))
    chosen = torch.randperm(len(test.rows), generator=generator)
    rows, known = test.rows[chosen], torch.arange(KNOWN_PROPERTIES)
    found: Figures = {}
    for party in process.passive:
        inputs, truth = process.states[party].inputs, _property(process, party, point)[rows]
        assert inputs is not None
        views = {"": test.embeddings[party][chosen], ".raw": inputs.batch(rows).flatten(1)}
        guessing = _recognised(known_anyway(process, rows), known, truth)
        for end, seen in views.items():
            found |= beside(f"property.{party}{end}", _recognised(seen, known, truth), guessing)
    return found


def _property(process: OneProcess, party: str, point: Point) -> Tensor:
    """Return the property that a party's embeddings are looked at for."""
    if point.scene.properties:
        owner, _, column = point.scene.properties[party].partition(".")
        return properties.other_column(process, owner, column)
    (other,) = (name for name in process.passive if name != party)
    return properties.other_brightness(process, other)


def _recognised(inputs: Tensor, known: Tensor, truth: Tensor) -> float:
    """Return how well a property is recognised in the rows of which it is not known."""
    guessed = properties.inferred(inputs, known, truth)
    return labels.balanced_accuracy(guessed[len(known) :], truth[len(known) :].long())
