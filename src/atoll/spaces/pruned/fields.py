"""Field types of network descriptions with their limits, shape arithmetic, and one-line validation messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StrictBool, ValidationError

from atoll.errors import ArchitectureError, nearest

# A description may come from the server: it must not make a client allocate or loop without limit.
MOST_CHANNELS = 2**20
MOST_VALUES = 2**28  # of one sample, summed over all nodes
MOST_PARAMETERS = 2**28
MOST_NODES = 20_000
MOST_STEP = 2**12  # a kernel's side, a stride, a padding

Shape = tuple[int, ...]  # of one sample: (features,) or (channels, height, width)
Channels = Annotated[int, Field(strict=True, ge=1, le=MOST_CHANNELS)]
Side = Annotated[int, Field(strict=True, ge=1, le=MOST_STEP)]
Margin = Annotated[int, Field(strict=True, ge=0, le=MOST_STEP)]
Sides = tuple[Side, Side]
Margins = tuple[Margin, Margin]
Number = Annotated[float, Field(allow_inf_nan=False)]
Flag = StrictBool


class DescriptionPart(BaseModel):
    """A part of a network as plain data: unknown fields are rejected, defaults may be omitted."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def plain(self) -> dict[str, Any]:
        """As JSON values, without fields that have their default value."""
        return self.model_dump(mode="json", exclude_defaults=True)


def first_fault(problem: ValidationError) -> str:
    """The first validation error of a description as a short text."""
    first = problem.errors(include_url=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    if first["type"] == "union_tag_invalid":
        context = first["ctx"]
        tag = str(context["tag"])[:60]
        known = [word.strip("'") for word in context["expected_tags"].split(", ")]
        return f"{place}: unknown {context['discriminator'].strip(chr(39))} {tag!r}; {nearest(tag, known)}"
    return f"{place or 'description'} = {_short(first['input'])}: {first['msg'][:1].lower()}{first['msg'][1:]}"


def window_count(size: int, kernel: int, stride: int, padding: int, dilation: int, round_up: bool = False) -> int:
    """The number of positions of a sliding window along one side, by torch's rules, including ceil mode."""
    span = size + 2 * padding - dilation * (kernel - 1) - 1
    positions = (span + (stride - 1 if round_up else 0)) // stride + 1
    starts_outside = round_up and (positions - 1) * stride >= size + padding
    return positions - 1 if starts_outside else positions


def window_output(
    shape: Shape,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    up: bool,
) -> Shape:
    """Height and width of the output of a sliding window over an image."""
    if len(shape) != 3:
        raise ArchitectureError(f"it needs images, but its input has shape {list(shape)}", code="images-required")
    sides = tuple(
        window_count(shape[axis + 1], kernel[axis], stride[axis], padding[axis], dilation[axis], up) for axis in (0, 1)
    )
    if min(sides) < 1:
        raise ArchitectureError(
            f"a window of {kernel[0]}x{kernel[1]} is too large for an image of {shape[1]}x{shape[2]}",
            code="window-too-large",
        )
    return sides


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
