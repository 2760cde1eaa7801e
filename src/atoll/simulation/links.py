"""What lies between the server and each client: a bandwidth log from some moment on, and the speed of a device."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from atoll.data.catalog import data_folder
from atoll.devices import DeviceProfile, device_profile
from atoll.errors import ConfigError, DataError, nearest
from atoll.rng import stream
from atoll.simulation.settings import LTE, SimulationSettings
from atoll.simulation.traces import Log, Trace, read_logs

LTE_FOLDER = "lte_4g_logs"
NAMES = 5  # files that are named in one sentence


@dataclass(frozen=True)
class Journey:
    """A task's way to its client and back, in virtual seconds."""

    began: float
    downloaded: float
    computed: float
    arrived: float

    def cut(self, end: float) -> Journey:
        """It was broken off at this moment."""
        return Journey(*(min(time, end) for time in (self.began, self.downloaded, self.computed, self.arrived)))


@dataclass(frozen=True)
class Link:
    """One client's connection and speed. None: that part takes no time."""

    down: Trace | None = None
    up: Trace | None = None
    offset: float = 0.0  # seconds into the log at the beginning of the run
    speed: float | None = None
    means: str = ""  # of transport

    def rate(self, at: float) -> float | None:
        """Bytes per second towards the client at this moment."""
        return None if self.down is None else self.down.rate(at + self.offset)

    def download(self, start: float, size: float) -> float:
        return self._end(self.down, start, size)

    def journey(self, start: float, bytes_down: int, macs: int, bytes_up: int) -> Journey:
        """Download, compute, upload, one after the other."""
        downloaded = self._end(self.down, start, bytes_down)
        computed = downloaded + (0.0 if self.speed is None else macs / self.speed)
        return Journey(start, downloaded, computed, self._end(self.up, computed, bytes_up))

    def _end(self, trace: Trace | None, start: float, size: float) -> float:
        if trace is None:
            return start
        ready = start + trace.latency(start + self.offset)
        return max(ready, trace.end(ready + self.offset, size) - self.offset)


@dataclass(frozen=True)
class Links:
    """Every client's link, and a digest of the files they come from: a run continues only with the same ones."""

    of: Mapping[str, Link]
    digest: str
    notes: Sequence[str] = ()  # lines about the logs for the user, before the first round


def links_for(settings: SimulationSettings, seed: int, names: Sequence[str], data_dir: Path | None = None) -> Links:
    """A link for each client of these names, drawn by the seed."""
    profile = None if settings.device is None else device_profile(settings.device)
    logs, others = _logs(settings, data_dir)
    links = _travelling(settings, logs, seed, names) if logs else dict.fromkeys(names, _fixed(settings, profile))
    complete = {name: replace(link, speed=_speed(settings, profile, seed, name)) for name, link in links.items()}
    files = [(log.name, log.digest) for log in logs]  # by its name a log belongs to a means of transport
    known = json.dumps([files, None if profile is None else profile.model_dump(mode="json")], sort_keys=True)
    return Links(complete, hashlib.sha256(known.encode()).hexdigest(), _left_out(len(logs), others))


def _left_out(logs: int, others: Sequence[str]) -> list[str]:
    if not others:
        return []
    named = ", ".join(others[:NAMES]) + (f" and {len(others) - NAMES} more" if len(others) > NAMES else "")
    files = f"{len(others)} of {logs + len(others)} files"
    return [f"simulation.traces: {files} have no columns of bandwidth and time and are left out: {named}"]


def _logs(settings: SimulationSettings, data_dir: Path | None) -> tuple[list[Log], list[str]]:
    if settings.traces is None:
        return [], []
    if settings.traces != LTE:
        return read_logs(Path(settings.traces).expanduser(), settings.log)
    folder = data_folder(data_dir)
    if folder is None:
        hint = "name the folder that has them with --data-dir, or in the environment's ATOLL_DATA"
        raise DataError(
            f"simulation.traces = 'lte': the 4G/LTE logs are read from {LTE_FOLDER}/ of the data; {hint}",
            code="no-data-folder",
        )
    if not (folder / LTE_FOLDER).is_dir():
        raise DataError(
            f"simulation.traces = 'lte': '{folder}' has no folder {LTE_FOLDER}; put the logs (.csv) there",
            code="lte-folder-missing",
        )
    return read_logs(folder / LTE_FOLDER)


def _fixed(settings: SimulationSettings, profile: DeviceProfile | None) -> Link:
    latency = settings.latency or 0.0
    if settings.bandwidth is not None:
        both = Trace.constant(settings.bandwidth, latency)
        return Link(both, both)
    if profile is not None:
        return Link(Trace.constant(profile.downlink, latency), Trace.constant(profile.uplink, latency))
    if latency:
        raise ConfigError(
            "simulation.latency is set without traces, bandwidth or device: there is nothing to be slow on",
            code="latency-without-link",
        )
    return Link()


def _travelling(settings: SimulationSettings, logs: Sequence[Log], seed: int, names: Sequence[str]) -> dict[str, Link]:
    """Each client gets one of the logs of its means of transport, and a moment in it to begin at."""
    links: dict[str, Link] = {}
    for name, means in zip(names, _means(settings, logs, seed, len(names)), strict=True):
        rng = stream(seed, "network", "log", name)
        known = [log for log in logs if log.means == means]
        trace = known[int(rng.integers(len(known)))].trace
        if settings.latency is not None:
            trace = replace(trace, latencies=trace.latencies * 0 + settings.latency)
        links[name] = Link(trace, trace, float(rng.random() * trace.length), means=means)
    return links


def _means(settings: SimulationSettings, logs: Sequence[Log], seed: int, clients: int) -> list[str]:
    """The means of transport of each client: as many of each as set, or as evenly as possible. Which client gets which
    is drawn."""
    known = sorted({log.means for log in logs})
    wanted = known if settings.transport == "all" else list(settings.transport)
    for means in wanted:
        if means not in known:
            raise ConfigError(
                f"simulation.transport = {means!r}: no log of that kind; {nearest(means, known)}",
                code="unknown-transport",
            )
    if isinstance(settings.transport, dict):
        named = sum(settings.transport.values())
        if named != clients:
            rule = f"names {named} clients and there are {clients}"
            raise ConfigError(
                f"simulation.transport {rule}; make the numbers add up to {clients}, or give a list",
                code="transport-count-differs",
            )
        assigned = [means for means, count in settings.transport.items() for _ in range(count)]
    else:
        if len(wanted) > clients:  # which of them are used is drawn too
            drawn = stream(seed, "network", "wanted").permutation(len(wanted))[:clients]
            wanted = [wanted[int(place)] for place in drawn]
        assigned = [wanted[number % len(wanted)] for number in range(clients)]
    order = stream(seed, "network", "means").permutation(clients)
    return [assigned[int(place)] for place in order]


def _speed(settings: SimulationSettings, profile: DeviceProfile | None, seed: int, name: str) -> float | None:
    if profile is not None:
        return profile.macs_per_second
    if not isinstance(settings.speed, list):
        return settings.speed
    low, high = (math.log(speed) for speed in settings.speed)
    return math.exp(stream(seed, "network", "speed", name).uniform(low, high))
