"""The paper's adaptive step sizes: both shrink when the model begins to jump, and grow while it hardly moves."""

from dataclasses import dataclass, replace

SMALLEST = 1e-12  # a floor, so that a long calm can bring a step size back


@dataclass(frozen=True)
class StepSizes:
    """τ and σ, with the rule ξ by which they follow the change of the model."""

    tau: float
    sigma: float
    tau_max: float
    sigma_max: float
    alpha: float
    beta: float
    shrink: float  # κ_d
    grow: float  # κ_i
    change: float | None = None  # Δ_k of the last round

    def xi(self, ratio: float) -> float:
        """ξ(x): κ_i below β, κ_d above α, else 1."""
        if ratio < self.beta:
            return self.grow
        return self.shrink if ratio > self.alpha else 1.0

    def adapt(self, change: float) -> "StepSizes":
        """Return the step sizes after a round that changed the model by Δ_{k+1}; the first has none to compare with."""
        ξ = self.xi(change / self.change) if self.change else 1.0
        return replace(
            self,
            tau=max(SMALLEST, min(self.tau * ξ, self.tau_max)),
            sigma=max(SMALLEST, min(self.sigma * ξ, self.sigma_max)),
            change=change,
        )
