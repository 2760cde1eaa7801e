"""The `[privacy]` table of an experiment file."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from atoll.errors import ConfigError

# What leaves a client, or could be learnt of it, and is outside of every account.
NOT_COVERED = (
    "the numbers of rows of each client and of its parts",
    "the names of classes, columns and categories, and the way raw rows are prepared",
    "which rows are training and which are validation rows: the split looks at the classes",
    "how long a task takes, and that it fails",
    "other runs on the same rows, such as the search whose networks are trained again: what they spend adds up",
    "rounding: noise is drawn in floating point numbers",
)
SIMULATED = (
    "a checksum of all rows, in the manifest of the run directory",
    "this is a simulation: anyone who knows the seed of the run can compute the noise",
)
AT_SITES = ("the generator of a site's noise begins at a random place, but it is not one made for cryptography",)


class PrivacySettings(BaseModel):
    """Differential privacy of single rows, against everyone who sees what leaves a client."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    epsilon: float = Field(gt=0, le=1000)  # the budget of each client for the whole run; it is enforced
    delta: float = Field(default=1e-5, gt=0, lt=1)
    clip: float | None = Field(default=None, gt=0)  # longest gradient of one row; None: 1, where noise is left out too
    noise: float | None = Field(default=None, gt=0)  # of gradients, in units of clip; None: what epsilon allows
    count_noise: float | None = Field(default=None, gt=0)  # of counts, in units of their sensitivity; None: the same
    label_noise: float = Field(default=10.0, gt=0)  # of the rows per class, with data.share_labels
    protects: Literal["rows", "clients"] = "rows"  # clients: refused

    @field_validator("protects")
    @classmethod
    def _rows_only(cls, value: str) -> str:
        if value == "clients":
            raise ConfigError(
                "privacy.protects = 'clients': Atoll makes no promise for whole clients, which would need about 1,000 "
                "of them and is not built; write 'rows'",
                code="privacy-of-clients",
            )
        return value

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


def refuse_statistics(scale: str, missing: str | None) -> None:
    """Rows that are prepared with statistics of all rows depend on each other, and the statistics are not covered."""
    if scale != "none":
        raise ConfigError(
            f"[privacy]: data.scale = {scale!r}: the mean and deviation let every row influence all others and are not "
            "covered; scale the columns by known ranges beforehand and set data.scale = 'none'",
            code="privacy-scaling",
        )
    if missing in ("mean", "median"):
        raise ConfigError(
            f"[privacy]: data.missing = {missing!r}: the filled value depends on all rows; set data.missing = 'zero'",
            code="privacy-scaling",
        )
