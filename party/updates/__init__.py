"""Update rules: what a party does with its gradients. Each stands in one place and knows nothing of methods."""

from collections.abc import Iterable

from torch.nn import Parameter

from fedora_vfl.errors import SettingsError
from party.updates.descent import Adam, Observe, Sgd
from party.updates.influence import Ascent, Correction, Influence, Shift
from party.updates.joint_rounds import Compare, JointRounds, Retreat
from party.updates.primal_dual import DualAscent, PrimalDescent, Residual
from party.updates.rule import PhaseEnd, Rule, RuleMemory
from party.updates.soften import Soften
from protos.fedora.v1.phase_pb2 import Update

__all__ = ["RULES", "JointRounds", "PhaseEnd", "Rule", "RuleMemory", "rule_for"]

RULES: dict[str, type[Rule]] = {
    "observe": Observe,
    "sgd": Sgd,
    "adam": Adam,
    "dual_ascent": DualAscent,
    "primal_descent": PrimalDescent,
    "residual": Residual,
    "ascent": Ascent,
    "influence": Influence,
    "shift": Shift,
    "correction": Correction,
    "joint_rounds": JointRounds,
    "retreat": Retreat,
    "compare": Compare,
    "soften": Soften,
}

if set(RULES) != {one.name for one in Update.DESCRIPTOR.oneofs_by_name["rule"].fields}:
    raise ImportError("an update rule of the wire contract is not implemented")


def rule_for(update: Update, parameters: Iterable[Parameter], memory: RuleMemory) -> Rule:
    """Return the rule that a phase asks for."""
    name = update.WhichOneof("rule")
    if name is None:
        raise SettingsError(f"the phase names no update rule; known are {', '.join(RULES)}")
    return RULES[name](update, parameters, memory)
