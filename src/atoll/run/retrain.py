"""From a run and the picks of it to a run of method `retrain`: chosen networks, trained from scratch or further.

Besides what a run found there are picks that no search finds:

| pick        | the network                                                                              |
|-------------|------------------------------------------------------------------------------------------|
| `standard`  | the fully connected network that sparse ones are compared with                            |
| `width:0.5` | the start network of a search by pruning (`m0`) with all its widths times 0.5             |
| `width:=m5` | the same with the largest factor that takes no more multiply-accumulates than `m5` does   |
| `resnet18`  | a network made by hand, or `mlp`, `cnn`, ...; its widths and the like are settings        |

Started from found weights, a `width:` network is pruned from `m0` by the L2 norm of its filters, all layers alike, and
goes on from there; from scratch it is the classic width multiplier. `standard` and networks made by hand always start
from scratch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from atoll.config import Raw, override, read_file, settings_table
from atoll.data.settings import name_or_folder
from atoll.errors import ConfigError, RunDirectoryError, nearest
from atoll.run.assemble import put
from atoll.run.launch import IN_MEMORY
from atoll.run.reader import Run

STANDARD, WIDTH, FIRST = "standard", "width:", "m0"
STARTS = ("scratch", "found")
# How the searching run trained its networks, as far as the method has such a setting.
INHERITED = ("fraction", "epochs", "batch", "lr", "decay", "momentum", "weight_decay", "clip", "crop", "flip", "cutout")
SIZES = ("cells", "channels")  # of networks that are built of found cells
DEALING = ("clients", "partition")  # what holds for other data too


@dataclass(frozen=True)
class _Chosen:
    """A network to be trained."""

    architecture: dict[str, Any]
    run: Run | None = None  # whose weights it may go on from; without one it always starts from scratch
    pick: str = ""

    def weights_file(self, run: Run) -> str:
        """Absolute: the new run may be gone on with from another folder."""
        return str(run.weights_file(FIRST if self.pick.startswith(WIDTH) else self.pick).resolve())


def assemble_retraining(
    run: Run,
    picks: Sequence[str],
    options: Mapping[str, Any],
    settings: Sequence[str] = (),
    start: str = "scratch",
    beside: Sequence[Run] = (),
) -> Raw:
    """The tables of an experiment that trains these picks as the run trained its networks, on its data.

    What the runs `beside` it found under the same picks is trained likewise, as `FOLDER-PICK`.

    `options` are places and values on top (`rounds`, `data.partition`, ...); `data` is the name or the table of other
    data, `cells` and `channels` give networks of found cells another size, `central` trains on all data in one place.
    They start from scratch, or from the weights that the run found.
    """
    if start not in STARTS:
        raise ConfigError(f"--from {start}: unknown; {nearest(start, STARTS)}", code="unknown-start")
    method = "retrain_central" if options.get("central") else "retrain"
    groups = options.get("retrain.groups")
    if groups is not None and method != "retrain":
        raise ConfigError(
            f"--groups {groups}: with --central nobody trains in groups; leave one of them out",
            code="conflicting-settings",
        )
    before = read_file(run.path / "config.toml")
    own = before.get(settings_table(before["method"]), {})
    chosen = _sized(_chosen(run, beside, picks), options)
    raw: Raw = {
        "method": method,
        "seed": before["seed"],
        "data": _data(before["data"], options.get("data")),
        "engine": before.get("engine", {}),
        method: _training(own, bool(options.get("central"))),
    }
    raw[method]["networks"] = {name: network.architecture for name, network in chosen.items()}
    if start == "found":
        _refuse_derived(chosen)
        raw[method]["start"] = {n: network.weights_file(network.run) for n, network in chosen.items() if network.run}
    for name, value in options.items():
        if value is not None and name not in ("data", "central", *SIZES):
            raw = put(raw, f"{method}.rounds" if name == "rounds" else name, value)
    for assignment in settings:
        raw = override(raw, assignment)
    return raw


def _training(own: Mapping[str, Any], central: bool) -> Raw:
    """How the run trained. Some methods train what they found in another way than they search: that way then.

    Theirs is federated, so it is no model for training in one place. No epochs mean single batches: not here.
    """
    plain = {name: own[name] for name in INHERITED if name in own and (name, own[name]) != ("epochs", 0)}
    found = {name: own[f"retrain_{name}"] for name in INHERITED if f"retrain_{name}" in own}
    if central or not found:
        return plain | {name: found[name] for name in ("crop", "flip", "cutout") if name in found}
    return {name: plain[name] for name in ("fraction", "batch") if name in plain} | found


def _data(table: Mapping[str, Any], other: str | Mapping[str, Any] | None) -> Raw:
    """The run's own data, or other data, dealt out like it where that is not said."""
    if other is None:
        return dict(table)
    named = name_or_folder(other) if isinstance(other, str) else other
    if named.get("name") == IN_MEMORY:  # it is dealt out already
        return dict(named)
    return {key: table[key] for key in DEALING if key in table} | dict(named)


def _chosen(run: Run, beside: Sequence[Run], picks: Sequence[str]) -> dict[str, _Chosen]:
    """Name -> network: the picks of the run, then those that the runs beside it have found."""
    wanted = [pick.strip() for pick in picks if pick.strip()]
    if not wanted:
        raise ConfigError(
            "--pick: no network is named; give picks of the run, for instance --pick high,knee", code="no-pick-named"
        )
    chosen = {pick: _network(run, pick) for pick in wanted}
    found = [pick for pick, network in chosen.items() if network.run is run and not pick.startswith(WIDTH)]
    for other in beside:
        for pick in found:
            name = f"{other.path.resolve().name}-{pick}"
            if name in chosen:
                raise ConfigError(
                    f"--beside {other.path}: '{name}' is there already; rename one of the folders",
                    code="duplicate-network-name",
                )
            chosen[name] = _Chosen(_architecture(other, pick), other, pick)
    if beside and not found:
        raise ConfigError(
            f"--beside {beside[0].path}: no pick is a network that was found; add one, such as high",
            code="no-found-network",
        )
    return chosen


def _network(run: Run, pick: str) -> _Chosen:
    from atoll.spaces.fixed import MODELS

    if pick.startswith(WIDTH):
        return _Chosen(_narrower(run, pick), run, pick)
    if pick == STANDARD:
        return _Chosen(_standard(run))
    found = _found_names(run)
    if pick in MODELS and pick not in found:
        return _Chosen({"space": "fixed", "model": pick})
    if found and pick not in found:
        raise RunDirectoryError(
            f"{run.path}: no model '{pick}'; {nearest(pick, [*found, *MODELS])}", code="unknown-pick"
        )
    return _Chosen(_architecture(run, pick), run, pick)


def _architecture(run: Run, pick: str) -> dict[str, Any]:
    """The pick's own, or what its method derived from it to be trained anew."""
    own: dict[str, Any] = run.load_model(pick).architecture
    for candidate in run.result["candidates"] if run.finished else []:
        if pick in (candidate["id"], *candidate["picks"]):
            own = candidate.get("about", {}).get("derived", own)
    return own


def _refuse_derived(chosen: Mapping[str, _Chosen]) -> None:
    """What was derived from a supernet is another network than the one whose weights are there."""
    for name, network in chosen.items():
        if network.run and not network.pick.startswith(WIDTH):
            own = network.run.load_model(network.pick).architecture
            if own.get("form") != network.architecture.get("form"):
                raise ConfigError(
                    f"--from found: network '{name}' is derived from a supernet and has no weights of its own yet; "
                    "leave --from out, or take a network that the run has trained",
                    code="start-without-weights",
                )


def _found_names(run: Run) -> list[str]:
    candidates = run.result["candidates"] if run.finished else []
    return [name for candidate in candidates for name in (candidate["id"], *candidate["picks"])]


def _narrower(run: Run, pick: str) -> dict[str, Any]:
    """The start network of a search by pruning with all widths times a factor."""
    from atoll.spaces import cost
    from atoll.spaces.pruned.pruning import factor_within, scaled

    known = [candidate["id"] for candidate in run.result["candidates"]] if run.finished else []
    first = run.load_model(FIRST).architecture if FIRST in known else {}
    word = pick.removeprefix(WIDTH)
    if first.get("space") != "widths":
        raise RunDirectoryError(
            f"{run.path}: --pick {pick} stands beside pruned networks, and the run has none", code="no-pruned-networks"
        )
    if word.startswith("="):
        return scaled(first, factor_within(first, cost(run.load_model(word[1:]).architecture).macs))
    try:
        return scaled(first, float(word))
    except ValueError:
        raise ConfigError(
            f"--pick {pick}: give a factor, such as width:0.5, or a network, such as width:=m5",
            code="invalid-width-pick",
        ) from None


def _sized(chosen: Mapping[str, _Chosen], options: Mapping[str, Any]) -> dict[str, _Chosen]:
    """The networks that were found with another number of cells and channels, where that is asked for."""
    sizes = {name: options[name] for name in SIZES if options.get(name) is not None}
    for pick, network in chosen.items():
        for name, value in sizes.items():
            if network.run and network.architecture.get("form") != "genotype":
                raise ConfigError(
                    f"--{name} {value}: network '{pick}' is not built of found cells; leave it out",
                    code="inapplicable-setting",
                )
    return {
        pick: replace(network, architecture={**network.architecture, **sizes}) if network.run else network
        for pick, network in chosen.items()
    }


def _standard(run: Run) -> dict[str, Any]:
    """The standard network of a search for sparse ones; what it would be for other methods nobody has said."""
    known = _found_names(run)
    if STANDARD in known:
        return run.load_model(STANDARD).architecture
    from atoll.spaces.sparse import space as sparse

    found = [c["architecture"] for c in run.result["candidates"] if c["architecture"].get("space") == "sparse"]
    if not found:
        raise RunDirectoryError(
            f"{run.path}: --pick {STANDARD} stands beside sparse networks, and the run has none; "
            f"{nearest(STANDARD, known)}",
            code="no-sparse-networks",
        )
    return sparse.standard(found[0])
