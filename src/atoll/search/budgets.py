"""Falling resource budgets, and the fewest filters whose removal meets one (Yuan et al., section 4 and 4.1; NetAdapt).

The target of iteration t is Res(GM_{t-1}) - Res(GM_0) * step * decay^(t-1), and never below the final budget. The steps
add up to step / (1 - decay), 71 % for 5 % and 0.93: a minimal step lets a run go further.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from atoll.errors import ConfigError

Resources = Mapping[str, float]  # kind -> amount


@dataclass(frozen=True)
class Schedule:
    """How fast the budgets fall. Shares are of the start network's resources."""

    step: float = 0.05
    decay: float = 1.0
    minimal: float = 0.0

    def share(self, iteration: int) -> float:
        """How much of the start network's resources iteration 1, 2, ... takes away."""
        return max(self.step * self.decay ** (iteration - 1), self.minimal)

    def targets(self, iteration: int, before: Resources, start: Resources, final: Resources) -> dict[str, float]:
        """What a candidate of this iteration may take of each kind; a kind within its final budget stays there."""
        share = self.share(iteration)
        return {kind: max(final[kind], before[kind] - start[kind] * share) for kind in final}


def final_budget(wanted: Resources, start: Resources) -> dict[str, float]:
    """Amounts from settings: a value up to 1 is a share of the start network, a larger one an amount."""
    return {kind: value * start[kind] if value <= 1 else value for kind, value in wanted.items()}


def met(amounts: Resources, budget: Resources) -> bool:
    """Whether all kinds are within the budget."""
    return all(amounts[kind] <= limit for kind, limit in budget.items())


def most(width: int, multiple: int) -> int:
    """How many filters can go, in multiples, if one stays."""
    return (width - 1) // multiple * multiple


def fewest(width: int, multiple: int, targets: Resources, with_width: Callable[[int], Resources]) -> int | None:
    """How many filters must go at least, in multiples; None if even the most that can go do not meet the targets.

    `with_width(w)` are the resources with w filters left, which never grow when w falls; at least one filter stays.
    Found by halving: a wide layer is asked for ten times, not a thousand.
    """
    low, high = 0, most(width, multiple) // multiple  # in multiples: `low` is too few, `high` is enough
    if high == 0 or not met(with_width(width - high * multiple), targets):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        if met(with_width(width - middle * multiple), targets):
            high = middle
        else:
            low = middle
    return high * multiple


def require_reachable(wanted: Resources, budget: Resources, least: Resources) -> None:
    """A `ConfigError` for a final budget below what the narrowest network takes."""
    for kind, limit in budget.items():
        if least[kind] > limit:
            raise ConfigError(
                f"resources.{kind} = {wanted[kind]:g}: that is a budget of {limit:,.6g}, and with every layer pruned "
                f"as far as it goes the network still takes {least[kind]:,.6g}; raise the budget, or prune fewer "
                "filters at a time (multiple)",
                code="unreachable-budget",
            )
