"""The `[privacy]` table of an experiment file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from atoll.errors import ConfigError

LEAST_NOISE = 0.1  # in units of what one row can change; less hides nothing, and the accountant would take very long
MOST_ROWS = 2**40  # of a client: noisy counts of rows are below this
LEAST_CLIP = 1e-6  # a shorter gradient is hardly more than rounding in float32

# What leaves a client, or could be learnt of it, and is outside of every account.
NOT_COVERED = (
    "the numbers of rows of each client and of its parts",
    "the names of classes, columns and categories, the first day of columns of dates, and how raw rows are prepared",
    "several rows of one person or measurement, such as overlapping windows: k rows have k times the epsilon",
    "how long a task takes, and that it fails",
    "other runs on the same rows, also those that have chosen a learning rate: what they spend adds up",
    "rounding: noise is drawn in floating point numbers",
)
TESTED = "rows of the test set that no client holds: correct ones are counted exactly"
SIMULATED = (
    "a checksum of all rows, in the manifest of the run directory",
    "which client has which row: data.rows and most partitions look at the classes",
    "this is a simulation: anyone who knows the seed of the run can compute the noise",
)
AT_SITES = (
    "the kind of problem, if a site's rows cannot be used, and the day on which its files were found to be changed",
    "a server that chooses noise and rates of later tasks by earlier replies: sums are of tasks chosen beforehand",
    "a site's noise generator is seeded with 32 bytes from the operating system, but not made for cryptography",
)

BY_CLASS = ("random", "by_class")  # values of data.blocks that look at the classes

Noise = Annotated[float, Field(ge=LEAST_NOISE)]


class PrivacySettings(BaseModel):
    """Differential privacy of single rows, against everyone who sees what leaves a client."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    epsilon: float = Field(gt=0, le=1000)  # the budget of each client for the whole run; it is enforced
    delta: float = Field(default=1e-5, gt=0, lt=1)
    clip: float | None = Field(
        default=None, ge=LEAST_CLIP
    )  # longest gradient of one row; None: 1, where noise is left out too
    noise: float | None = Field(
        default=None, ge=LEAST_NOISE
    )  # of gradients, in units of clip; None: what epsilon allows
    count_noise: float | None = Field(
        default=None, ge=LEAST_NOISE
    )  # of counts, in units of their sensitivity; None: the same
    label_noise: float = Field(default=10.0, ge=LEAST_NOISE)  # of the rows per class, with data.share_labels
    bounds: dict[str, list[float]] = {}  # with data.scale = "federated": the lowest and highest value of each column
    moment_noise: float = Field(default=10.0, ge=LEAST_NOISE)  # of the sums for that scaling
    protects: Literal["rows", "clients"] = "rows"  # clients: refused, see `refuse_clients`
    least_clients: int = Field(default=1000, ge=2)  # with fewer of them nothing is promised for whole clients
    earlier_epsilon: float = Field(default=0.0, ge=0)  # what earlier runs have spent on the same rows: it is named
    earlier_delta: float = Field(default=0.0, ge=0)  # beside what this run spends, which alone is limited

    @field_validator("bounds")
    @classmethod
    def _bounds_are_pairs(cls, value: dict[str, list[float]]) -> dict[str, list[float]]:
        for name, pair in value.items():
            if len(pair) != 2 or not pair[0] < pair[1]:
                raise ConfigError(
                    f"privacy.bounds.{name} = {pair}: give the lowest and the highest value, such as [0, 100]",
                    code="privacy-bounds",
                )
        return value

    def refuse_clients(self, clients: int) -> None:
        """Nothing is promised for whole clients: with few of them noise would hide what is learnt, too."""
        if self.protects == "rows":
            return
        why = "and this is not built"
        if clients < self.least_clients:
            why = f"which requires at least privacy.least_clients = {self.least_clients:,}, there are {clients:,}"
        raise ConfigError(
            f"privacy.protects = 'clients': Atoll makes no promise for whole clients, {why}; write 'rows'",
            code="privacy-of-clients",
        )

    @property
    def longest(self) -> float:
        """The longest gradient of one row."""
        return 1.0 if self.clip is None else self.clip

    def refuse_unclipped(self) -> None:
        """Noise that is given is in units of the clipping, which must be given with it."""
        if self.noise is not None and self.clip is None:
            raise ConfigError(
                f"privacy.noise = {self.noise:g}: it is in units of privacy.clip, which is missing; without clipping "
                "noise hides nothing; set privacy.clip, for instance to 1.0",
                code="privacy-without-clipping",
            )


def with_earlier(settings: Mapping[str, Any], epsilon: float) -> list[str]:
    """This epsilon together with what earlier runs have spent on the same rows, in words; none if that is nothing."""
    before, delta = settings["earlier_epsilon"], settings["earlier_delta"]
    if not before:
        return []
    both = f"together up to epsilon {before + epsilon:.3g} at delta {settings['delta'] + delta:.3g}"
    return [f"privacy: earlier runs have spent epsilon {before:.3g} at delta {delta:.3g} on the same rows: {both}"]


def refuse_coupled_rows(
    scale: str,
    missing: str | None = None,
    blocks: str | None = None,
    window: int | None = None,
    window_step: int | None = None,
) -> None:
    """Each row must be prepared by itself, and be in one part by a draw that looks at no row: otherwise one row changes
    what others give, and no account covers that."""
    if scale == "client":
        raise ConfigError(
            "[privacy]: data.scale = 'client': the mean and deviation let every row influence all others and are not "
            "covered; set data.scale = 'federated', with privacy.bounds, or 'none'",
            code="privacy-scaling",
        )
    if missing in ("mean", "median"):
        raise ConfigError(
            f"[privacy]: data.missing = {missing!r}: the filled value depends on all rows; set data.missing = 'zero'",
            code="privacy-scaling",
        )
    if blocks in BY_CLASS:
        raise ConfigError(
            f"[privacy]: data.blocks = {blocks!r}: the class of one row can change the part that other rows are "
            "assigned to; set data.blocks to 'shuffled', or to 'contiguous' for series",
            code="privacy-split",
        )
    if window is not None and window_step is not None and window_step < window:
        raise ConfigError(
            f"[privacy]: data.window_step = {window_step} is less than data.window = {window}: a line would be part of "
            f"several rows; set data.window_step to {window} or more",
            code="privacy-windows",
        )
