"""The model card: what a person must know of a network before using it, in one Markdown page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from atoll.export.predictor import Predictor
from atoll.preparation.value import Preparation, RawColumn
from atoll.privacy.settings import with_earlier
from atoll.spaces import cost
from atoll.training.metrics import class_rates

MOST_COLUMNS = 60
MOST_CLIENTS = 40


@dataclass(frozen=True)
class CardFacts:
    """What a run's result says of a network."""

    pick: str
    method: str
    data: str
    seed: int
    rounds: int
    clients: int
    rows: int
    candidate: Mapping[str, Any] = field(default_factory=dict)  # its entry of result.json
    ledger: Mapping[str, Any] = field(default_factory=dict)
    privacy: Mapping[str, Any] = field(default_factory=dict)  # of result.json; empty without `[privacy]`


def model_card(predictor: Predictor, facts: CardFacts, file: str, size: int, difference: float, rows: int) -> str:
    """The page. `file` is the exported network of `size` bytes, which differs from the original by `difference`."""
    preparation = predictor.preparation
    parts = [
        f"# {file.rpartition('.')[0]}",
        _task(preparation, facts),
        "## Use\n\n" + _use(predictor, file),
        "## Input\n\n" + _inputs(preparation),
        "## Output\n\n" + _output(predictor),
        "## Measured\n\n" + _measured(facts, preparation.classes),
        "## Cost\n\n" + _cost(predictor, facts, size),
        _privacy(facts),
        "## Limits\n\n" + _limits(predictor, facts, difference, rows),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _task(preparation: Preparation, facts: CardFacts) -> str:
    kind = "images" if preparation.kind == "image" else "rows of a table"
    return (
        f"Classifies {kind} into {len(preparation.classes)} classes: {listed(preparation.classes)}.\n\n"
        f"Found by the method `{facts.method}` (pick `{facts.pick}`) of Atoll in {facts.rounds} rounds over "
        f"{facts.clients} clients with {facts.rows:,} rows of `{text(facts.data)}`, seed {facts.seed}. The rows stayed "
        "with their clients."
    )


def _use(predictor: Predictor, file: str) -> str:
    stem, _, kind = file.rpartition(".")
    example = "image.png" if predictor.preparation.kind == "image" else "new.csv"
    if kind == "onnx":
        return (
            f"```\npip install numpy onnxruntime\npython {stem}_predict.py {example} -o answers.csv\n```\n\n"
            f"```python\nfrom {stem}_predict import ExportedNetwork\n\nnetwork = ExportedNetwork({file!r})\n"
            f"answers = network.predict({example!r})  # a path, a DataFrame, dicts or an array\n"
            "print(answers.labels, answers.values)\n```"
        )
    if kind == "pt2":
        return (
            "```python\nimport torch\n\n"
            f"network = torch.export.load({file!r}).module()\n"
            f"print(network(torch.tensor(numbers)))  # numbers in the order and units that {stem}.json lists\n```"
        )
    if kind == "py":
        return f"```python\nfrom {stem} import predict\n\nprint(predict(rows))  # numbers in the order of COLUMNS\n```"
    return (
        f"The weights are in `{file}`, the architecture and the preparation of raw rows in `{stem}.json`.\n\n"
        "```python\nfrom safetensors.numpy import load_file\n\n"
        f"weights = load_file({file!r})\n```"
    )


def _inputs(preparation: Preparation) -> str:
    if preparation.image is not None:
        form = preparation.image
        return (
            f"Images of {form.width}x{form.height} pixels with {form.channels} channel"
            f"{'s' if form.channels > 1 else ''}, type {form.dtype}, values 0 to {form.largest:g}."
        )
    known, place, rows = preparation.statistics, 0, []
    for column in preparation.columns[:MOST_COLUMNS]:
        usual = ""
        if column.kind == "number" and known is not None and known.mean and not preparation.logarithm:
            usual = f"{known.mean[place]:.4g} ± {known.deviation[place]:.3g}"
        rows.append([text(column.name), _kind(column), text(column.unit), usual])
        place += len(column.inputs)
    lines = [table(["column", "values", "unit", "mean and deviation"], rows)]
    if len(preparation.columns) > MOST_COLUMNS:
        lines.append(f"... and {len(preparation.columns) - MOST_COLUMNS} more columns, see the JSON file.")
    if preparation.window is not None:
        lines.append(f"One answer for every {preparation.window.steps} consecutive rows of a series.")
    filled = known is not None and known.fill is not None
    words = ", ".join(repr(word) for word in preparation.missing_words)
    lines.append(
        f"A missing value (one of {words}) is {'filled with a typical value' if filled else 'refused'}. Columns may be "
        "in any order; unknown columns and categories are refused unless options allow them."
    )
    return "\n\n".join(lines)


def _kind(column: RawColumn) -> str:
    if column.kind == "category":
        return "one of " + listed(column.words)
    return "date: " + ", ".join(column.parts) if column.kind == "date" else "number"


def _output(predictor: Predictor) -> str:
    if predictor.kind == "probabilities":
        return "A probability for each class, in the order above (softmax). They were not calibrated."
    return "A score for each class, in the order above: the largest marks the class. Scores are no probabilities."


def _measured(facts: CardFacts, classes: Sequence[str]) -> str:
    found = facts.candidate
    parts = []
    for key, title in (("test", "Test rows"), ("held_out", "Clients that the search never saw")):
        if key not in found:
            continue
        own = found[key]
        if "noisy" in own:
            counted = f"error {own['test_error']:.2%}, counted with noise"
            parts.append(f"{title} of clients ({own['test_rows']:,}): {counted}.")
            continue
        parts.append(
            f"{title} ({own['test_rows']:,}): error {own['test_error']:.2%} (always answering the most frequent class: "
            f"{own['baseline_error']:.2%}), weighted F1 {own['test_f1']:.4f}."
        )
        if "confusion" in own:
            parts.append(_confusion(own["confusion"], classes))
    clients = found.get("clients", {})
    if clients:
        rows = [
            [
                text(name),
                f"{own['test_rows']:,}",
                f"{own['test_error']:.2%}",
                f"{own['test_f1']:.4f}" if "test_f1" in own else "",
            ]
            for name, own in list(clients.items())[:MOST_CLIENTS]
        ]
        parts.append(table(["client", "test rows", "error", "weighted F1"], rows))
    return "\n\n".join(parts) or "Not measured: the run is not finished, or there were no test rows."


def _confusion(confusion: Sequence[Sequence[int]], classes: Sequence[str]) -> str:
    names = [text(name) for name in classes]
    rows = [[name, *map(str, row)] for name, row in zip(names, confusion, strict=True)]
    counts = table(["true class, answers:", *names], rows)
    rates = [
        [name, *(_rate(own[key]) for key in ("sensitivity", "specificity", "ppv", "npv")), str(own["rows"])]
        for name, own in zip(names, class_rates(np.array(confusion, np.int64)), strict=True)
    ]
    return counts + "\n\n" + table(["class", "sensitivity", "specificity", "PPV", "NPV", "rows"], rates)


def _rate(value: float) -> str:
    """A rate without rows to count is no number."""
    return "-" if math.isnan(value) else f"{value:.3f}"


def _cost(predictor: Predictor, facts: CardFacts, size: int) -> str:
    found = cost(predictor.model.architecture)
    lines = [f"{found.params:,} parameters, {found.macs:,} multiply-accumulates for one row, {size:,} bytes on disk."]
    if facts.ledger:
        lines.append(
            f"The search cost its clients {facts.ledger['client_macs'] / 1e9:,.1f} billion multiply-accumulates, "
            f"{facts.ledger['bytes_up'] / 1e6:,.1f} MB sent and {facts.ledger['bytes_down'] / 1e6:,.1f} MB received."
        )
    return "\n\n".join(lines)


def _privacy(facts: CardFacts) -> str:
    """Epsilon and delta of every client, and what no account covers; empty without `[privacy]`."""
    if not facts.privacy:
        return ""
    clients = list(facts.privacy["clients"].items())
    rows = [[text(name), f"{own['epsilon']:.3g}", f"{own['delta']:g}"] for name, own in clients[:MOST_CLIENTS]]
    more = f"\n\n... and {len(clients) - MOST_CLIENTS} more clients." if len(clients) > MOST_CLIENTS else ""
    outside = "\n".join(f"- {one}" for one in facts.privacy["not_covered"])
    most = max(own["epsilon"] for _, own in clients)
    earlier = "".join(f"\n\n{line}." for line in with_earlier(facts.privacy, most))
    return (
        "## Privacy\n\nDifferential privacy of single rows, against everyone who sees what left a client in this run: "
        f"gradients of rows were clipped to {facts.privacy['clip']:g}, with noise {facts.privacy['noise']:.4g} times "
        f"that, and counts had noise {facts.privacy['count_noise']:.4g} times their sensitivity.\n\n"
        f"{table(['client', 'epsilon', 'delta'], rows)}{more}{earlier}\n\nNot covered:\n\n{outside}"
    )


def _limits(predictor: Predictor, facts: CardFacts, difference: float, rows: int) -> str:
    lines = [
        f"- Compared with the original network on {rows} made-up rows, the largest difference was {difference:.1g}.",
        "- It answers every row with one of its classes, also rows that are unlike any it was trained on.",
    ]
    if "held_out" not in facts.candidate:
        lines.append("- It was not tested on clients that took no part in the search.")
    if predictor.preparation.scale == "client":
        lines.append("- It holds the mean and deviation of one client: it is meant for that client's rows.")
    if not facts.privacy:
        lines.append("- Updates left the clients during the search. No formal privacy is promised.")
    return "\n".join(lines)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def listed(words: Sequence[str], most: int = 20) -> str:
    shown = ", ".join(text(word) for word in words[:most])
    return shown + (f" and {len(words) - most} more" if len(words) > most else "")


def text(word: str) -> str:
    """External text inside Markdown: no markup, no line breaks."""
    clean = "".join(character if character.isprintable() else " " for character in word)
    return "".join(f"\\{character}" if character in "\\`*_[]<>|#" else character for character in clean)
