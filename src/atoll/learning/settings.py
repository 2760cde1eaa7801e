"""How a client trains."""

from __future__ import annotations

from dataclasses import dataclass

from atoll.errors import ConfigError


@dataclass(frozen=True)
class TrainSettings:
    """Stochastic gradient descent on cross-entropy. The momentum starts at zero in every call of `train`."""

    epochs: int = 1
    batch: int = 50
    lr: float = 0.1
    momentum: float = 0.0
    weight_decay: float = 0.0
    clip: float | None = None  # the longest that a step's gradient, all parameters together, may be

    def __post_init__(self) -> None:
        rules = {
            "epochs": (self.epochs >= 0, "0 or more"),
            "batch": (self.batch >= 1, "1 or more"),
            "lr": (0 <= self.lr < float("inf"), "a finite number of 0 or more"),
            "momentum": (0 <= self.momentum < 1, "0 or more and below 1"),
            "weight_decay": (0 <= self.weight_decay < float("inf"), "a finite number of 0 or more"),
            "clip": (self.clip is None or 0 < self.clip < float("inf"), "a finite number above 0"),
        }
        for name, (holds, rule) in rules.items():
            if not holds:
                raise ConfigError(f"{name} = {getattr(self, name)}: give {rule}", code="invalid-setting")
