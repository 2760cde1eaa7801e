"""Experiments of method `retrain`: selected networks of a run, trained from scratch or from their weights.

Besides the picks of a run there are picks that do not come from a search:

| pick        | the network                                                                              |
|-------------|------------------------------------------------------------------------------------------|
| `standard`  | the fully connected network that sparse ones are compared with                           |
| `high:0.3`  | a sparse network, such as `high` or `standard`, at this learning rate instead of its own  |
| `width:0.5` | the initial network of a pruning search (`m0`) with all widths multiplied by 0.5          |
| `width:=m5` | the same, with the largest factor that needs no more MACs than `m5`, filled up with filters |
| `resnet18`  | a hand-designed network, or `mlp`, `cnn`, ...; its widths and so on are settings          |

With `--from found`, a `width:` network is pruned from `m0` by the L2 norm of its filters, and trained further; from
scratch it is the classic width multiplier. `standard` and hand-designed networks
always start from scratch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from atoll.config import Raw, override, read_file, settings_table
from atoll.data.settings import name_or_folder
from atoll.errors import ConfigError, RunDirectoryError, nearest
from atoll.run.assemble import put
from atoll.run.carried import carried_privacy
from atoll.run.launch import IN_MEMORY
from atoll.run.reader import Run

STANDARD, WIDTH, FIRST = "standard", "width:", "m0"
STARTS = ("scratch", "found")
# Training settings that are taken from the search, where its method has them.
INHERITED = (
    *("fraction", "epochs", "batch", "lr", "decay", "momentum", "server_momentum"),
    *("weight_decay", "prox", "clip", "crop", "flip", "cutout"),
)
SIZES = ("cells", "channels")  # of networks that consist of found cells
PARTITIONING = ("clients", "partition")  # data settings that apply to other data too


@dataclass(frozen=True)
class _SelectedNetwork:
    """A network to be trained."""

    architecture: dict[str, Any]
    run: Run | None = None  # the run with its weights; None: it can only start from scratch
    pick: str = ""

    def weights_file(self, run: Run) -> str:
        """An absolute path: the new run may be resumed from another working directory."""
        return str(run.weights_file(FIRST if self.pick.startswith(WIDTH) else self.pick).resolve())


def assemble_retraining(
    run: Run,
    picks: Sequence[str],
    options: Mapping[str, Any],
    settings: Sequence[str] = (),
    start: str = "scratch",
    beside: Sequence[Run] = (),
    private: bool = True,
) -> Raw:
    """The tables of an experiment that trains these picks on the run's data, with the run's training settings.

    The same picks of the runs `beside` it are trained too, under the names `FOLDER-PICK`.

    `options` overrides settings by name (`rounds`, `data.partition`, ...). Its `data` is the name or the table of other
    data, `cells` and `channels` set another size for networks of found cells, and `central` trains on all data in one
    place. `start` is "scratch", or "found" for the weights of the run. Unless it is not `private`, the `[privacy]` of
    the run is taken over.
    """
    if start not in STARTS:
        raise ConfigError(f"--from {start}: unknown; {nearest(start, STARTS)}", code="unknown-start")
    method = "retrain_central" if options.get("central") else "retrain"
    groups = options.get("retrain.groups")
    if groups is not None and method != "retrain":
        raise ConfigError(
            f"--groups {groups}: --central has no clients to group; leave one of the two out",
            code="conflicting-settings",
        )
    before = read_file(run.path / "config.toml")
    own = before.get(settings_table(before["method"]), {})
    selected = _sized(_selected(run, beside, picks), options)
    data = _data(before["data"], options.get("data"))
    raw: Raw = {
        "method": method,
        "seed": before["seed"],
        "data": data,
        "engine": before.get("engine", {}),
        method: _training(own, bool(options.get("central"))),
        **(carried_privacy([run, *beside], data) if private else {}),
    }
    raw[method]["networks"] = {name: network.architecture for name, network in selected.items()}
    if start == "found":
        _refuse_derived(selected)
        raw[method]["start"] = {n: network.weights_file(network.run) for n, network in selected.items() if network.run}
    for name, value in options.items():
        if value is not None and name not in ("data", "central", *SIZES):
            raw = put(raw, f"{method}.rounds" if name == "rounds" else name, value)
    for assignment in settings:
        raw = override(raw, assignment)
    return raw


def _training(own: Mapping[str, Any], central: bool) -> Raw:
    """The training settings of the run, or the method's separate ones for retraining (`retrain_...`) if it has them.

    The latter are for federated training and are not used for `central`, except augmentation. `epochs` = 0 means
    single batches, which retraining does not support, so it is left out.
    """
    plain = {name: own[name] for name in INHERITED if name in own and (name, own[name]) != ("epochs", 0)}
    found = {name: own[f"retrain_{name}"] for name in INHERITED if f"retrain_{name}" in own}
    if central or not found:
        return plain | {name: found[name] for name in ("crop", "flip", "cutout") if name in found}
    return {name: plain[name] for name in ("fraction", "batch") if name in plain} | found


def _data(table: Mapping[str, Any], other: str | Mapping[str, Any] | None) -> Raw:
    """The data table of the run, or that of other data, partitioned as in the run unless it states otherwise."""
    if other is None:
        return dict(table)
    named = name_or_folder(other) if isinstance(other, str) else other
    if named.get("name") == IN_MEMORY:  # it is assigned to clients already
        return dict(named)
    return {key: table[key] for key in PARTITIONING if key in table} | dict(named)


def _selected(run: Run, beside: Sequence[Run], picks: Sequence[str]) -> dict[str, _SelectedNetwork]:
    """Name -> network: the picks of the run, then the same picks of the runs beside it."""
    wanted = [pick.strip() for pick in picks if pick.strip()]
    if not wanted:
        raise ConfigError(
            "--pick: it names no network; give picks of the run, for instance --pick high,knee", code="no-pick-named"
        )
    selected = {pick: _network(run, pick) for pick in wanted}
    found = [pick for pick, network in selected.items() if network.run is run and not pick.startswith(WIDTH)]
    for other in beside:
        for pick in found:
            name = f"{other.path.resolve().name}-{pick}"
            if name in selected:
                raise ConfigError(
                    f"--beside {other.path}: the name '{name}' is in use already; rename one of the folders",
                    code="duplicate-network-name",
                )
            selected[name] = _network(other, pick)
    if beside and not found:
        raise ConfigError(
            f"--beside {beside[0].path}: --pick names no network that the run found; add one, such as high",
            code="no-found-network",
        )
    return selected


def _network(run: Run, pick: str) -> _SelectedNetwork:
    from atoll.spaces.fixed import MODELS

    if pick.startswith(WIDTH):
        return _SelectedNetwork(_narrower(run, pick), run, pick)
    name, colon, rate = pick.partition(":")
    if colon:
        return _at_rate(_network(run, name), pick, rate)
    if pick == STANDARD:
        return _SelectedNetwork(_standard(run))
    found = _found_names(run)
    if pick in MODELS and pick not in found:
        return _SelectedNetwork({"space": "fixed", "model": pick})
    if found and pick not in found:
        raise RunDirectoryError(
            f"{run.path}: no model '{pick}'; {nearest(pick, [*found, *MODELS])}", code="unknown-pick"
        )
    return _SelectedNetwork(_architecture(run, pick), run, pick)


def _architecture(run: Run, pick: str) -> dict[str, Any]:
    """The architecture of a pick, or the one that its method derived from it for training from scratch."""
    own: dict[str, Any] = run.load_model(pick).architecture
    for candidate in run.result["candidates"] if run.finished else []:
        if pick in (candidate["id"], *candidate["picks"]):
            own = candidate.get("about", {}).get("derived", own)
    return own


def _refuse_derived(selected: Mapping[str, _SelectedNetwork]) -> None:
    """A network derived from a supernet differs from the stored one, so there are no weights for it."""
    for name, network in selected.items():
        if network.run and not network.pick.startswith(WIDTH):
            own = network.run.load_model(network.pick).architecture
            if own.get("form") != network.architecture.get("form"):
                raise ConfigError(
                    f"--from found: network '{name}' is derived from a supernet and has no trained weights yet; "
                    "leave --from out, or choose a network that the run has trained",
                    code="start-without-weights",
                )


def _found_names(run: Run) -> list[str]:
    candidates = run.result["candidates"] if run.finished else []
    return [name for candidate in candidates for name in (candidate["id"], *candidate["picks"])]


def _narrower(run: Run, pick: str) -> dict[str, Any]:
    """The initial network of a pruning search with all widths multiplied by a factor."""
    from atoll.spaces import cost
    from atoll.spaces.pruned.pruning import scaled, scaled_within

    known = [candidate["id"] for candidate in run.result["candidates"]] if run.finished else []
    first = run.load_model(FIRST).architecture if FIRST in known else {}
    word = pick.removeprefix(WIDTH)
    if first.get("space") != "widths":
        raise RunDirectoryError(
            f"{run.path}: --pick {pick} needs a run with pruned networks, and this run has none",
            code="no-pruned-networks",
        )
    if word.startswith("="):
        return scaled_within(first, cost(run.load_model(word[1:]).architecture).macs)
    try:
        return scaled(first, float(word))
    except ValueError:
        raise ConfigError(
            f"--pick {pick}: give a factor, such as width:0.5, or a network, such as width:=m5",
            code="invalid-width-pick",
        ) from None


def _sized(selected: Mapping[str, _SelectedNetwork], options: Mapping[str, Any]) -> dict[str, _SelectedNetwork]:
    """The networks with the requested numbers of cells and channels; hand-designed networks are not changed."""
    sizes = {name: options[name] for name in SIZES if options.get(name) is not None}
    for pick, network in selected.items():
        for name, value in sizes.items():
            if network.run and network.architecture.get("form") != "genotype":
                raise ConfigError(
                    f"--{name} {value}: network '{pick}' does not consist of found cells; leave it out",
                    code="inapplicable-setting",
                )
    return {
        pick: replace(network, architecture={**network.architecture, **sizes}) if network.run else network
        for pick, network in selected.items()
    }


def _at_rate(network: _SelectedNetwork, pick: str, word: str) -> _SelectedNetwork:
    """A sparse network with this learning rate. Others share the run's, so they have none of their own."""
    try:
        rate = float(word)
    except ValueError:
        rate = 0.0
    if not 0 < rate < math.inf:
        raise ConfigError(f"--pick {pick}: give a learning rate above 0, such as {STANDARD}:0.1", code="invalid-rates")
    if network.architecture.get("space") != "sparse":
        raise ConfigError(
            f"--pick {pick}: only sparse networks have a learning rate of their own; use --set retrain.lr={rate:g}",
            code="inapplicable-setting",
        )
    return replace(network, architecture={**network.architecture, "lr": rate})


def _standard(run: Run) -> dict[str, Any]:
    """The fully connected counterpart of sparse networks; it is not defined for other search spaces."""
    known = _found_names(run)
    if STANDARD in known:
        return run.load_model(STANDARD).architecture
    from atoll.spaces.sparse import space as sparse

    found = [c["architecture"] for c in run.result["candidates"] if c["architecture"].get("space") == "sparse"]
    if not found:
        raise RunDirectoryError(
            f"{run.path}: --pick {STANDARD} needs a run with sparse networks, and this run has none; "
            f"{nearest(STANDARD, known)}",
            code="no-sparse-networks",
        )
    return sparse.standard(found[0])
