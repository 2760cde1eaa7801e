"""Transfer times by hand, the laws they obey, and every fault of a log's file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll.errors import DataError
from atoll.simulation.settings import LogFormat
from atoll.simulation.traces import Trace, means_of, read_log, read_logs
from refusals import refused


def trace(*stretches: tuple[float, float]) -> Trace:
    """(seconds, bytes per second), ..."""
    seconds, rates = np.array(stretches, dtype=np.float64).T
    return Trace(seconds, rates, np.zeros(len(stretches)))


# 100 B/s for 1 s, nothing for 2 s, 50 B/s for 2 s: 200 bytes in 5 s, then again.
HAND = trace((1, 100), (2, 0), (2, 50))


@pytest.mark.parametrize(
    ("start", "size", "end"),
    [
        (0, 0, 0),
        (0, 50, 0.5),
        (0, 100, 1),  # not a moment longer: the silence begins after it
        (0, 101, 3.02),
        (0.5, 100, 4),  # 50 before the silence, 50 after it
        (2, 50, 4),  # set out in the silence
        (2, 0, 2),
        (0, 200, 5),
        (0, 250, 5.5),  # the log starts again
        (0, 400, 10),
        (4, 50, 5),
        (4, 51, 5.01),
        (12, 100, 15),
        (1000, 1000 * 200, 6000),
    ],
)
def test_by_hand(start: float, size: float, end: float) -> None:
    assert HAND.end(start, size) == pytest.approx(end, abs=1e-9)


def test_a_silence_at_the_beginning_is_not_waited_for_at_the_end() -> None:
    late = trace((1, 0), (1, 10))
    assert late.end(0, 10) == 2 and late.end(0, 11) == pytest.approx(3.1)


def test_the_rate_of_a_moment() -> None:
    assert [HAND.rate(at) for at in (0, 0.99, 1, 2.99, 3, 4.99, 5, 6)] == [100, 100, 0, 0, 50, 50, 100, 0]


def test_constant() -> None:
    link = Trace.constant(250.0, 0.1)
    assert link.end(3.0, 1000) == pytest.approx(7.0) and link.rate(77.7) == 250.0 and link.latency(5) == 0.1


positive = st.lists(st.tuples(st.floats(0.01, 5), st.floats(1, 1e6)), min_size=1, max_size=6).map(lambda x: trace(*x))
gaps = st.lists(st.tuples(st.floats(0.01, 5), st.sampled_from([0.0, 1.0, 1e3, 1e6])), min_size=1, max_size=6).map(
    lambda stretches: trace(*stretches, (1.0, 10.0))
)
start = st.floats(0, 1000)
size = st.integers(0, 10**6)


@given(positive, start, size, size)
def test_two_messages_one_after_the_other_take_as_long_as_one(link: Trace, at: float, one: int, two: int) -> None:
    assert link.end(link.end(at, one), two) == pytest.approx(link.end(at, one + two), rel=1e-7, abs=1e-6)


@given(gaps, start, st.floats(0, 50), size, size)
def test_more_bytes_or_a_later_start_never_arrive_earlier(
    link: Trace, at: float, later: float, one: int, more: int
) -> None:
    end = link.end(at, one)
    assert at <= end <= link.end(at, one + more) + 1e-6
    assert end <= link.end(at + later, one) + 1e-6


@given(gaps, start, st.integers(1, 10**6))
def test_what_went_through_by_the_end_is_what_was_sent(link: Trace, at: float, size: int) -> None:
    """Summed up stretch by stretch, the slow way."""
    end, through, moment = link.end(at, size), 0.0, at
    if end - at > 3000 * link.length:
        return  # the slow way would take too long
    edges = np.concatenate(([0.0], np.cumsum(link.seconds)))
    turn = int(at // link.length)
    while moment < end:
        for left, right, rate in zip(edges[:-1], edges[1:], link.rates, strict=True):
            low, high = max(turn * link.length + left, at), min(turn * link.length + right, end)
            through += max(0.0, high - low) * rate
        turn += 1
        moment = turn * link.length
    assert through == pytest.approx(size, rel=1e-5, abs=1.0)


def log(folder: Path, text: str, name: str = "report_bus_0001.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_units_and_order_of_columns(tmp_path: Path) -> None:
    found = read_log(log(tmp_path, "latency_ms,duration_ms,bandwidth_kbps\n20,500,8\n30,1500,80\n\n"))
    assert found.means == "bus" and found.trace.length == 2.0
    assert found.trace.rate(0) == 1000.0 and found.trace.rate(0.5) == 10_000.0  # 8 kbit/s is 1000 B/s
    assert found.trace.latency(0) == 0.02 and found.trace.latency(1) == 0.03


def test_latency_may_be_left_out_and_empty_stretches_are_nothing(tmp_path: Path) -> None:
    found = read_log(log(tmp_path, "bandwidth_kbps,duration_ms\n0,1000\n8,1000\n99,0\n"))
    assert found.trace.latency(0) == 0 and found.trace.length == 2 and found.trace.end(0, 1000) == 2


WHEN = {"time": "when", "time_unit": "stamp_date"}


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("timestamp_s bytes_per_second\n100 1000\n102   10000\n104 5000\n", {}),  # blanks, stamps, bytes
        ("time_ms;mbps\n0;0.008\n2000;0.08\n4000;0.04\n", {}),
        ("t\trate\n0\t8\n2\t80\n4\t40\n", {"bandwidth": "rate", "unit": "kbps", "time": "t", "time_unit": "stamp_s"}),
        ("bps,duration_s\n8000,2\n80000,2\n40000,2\n", {}),
        ("Time (ms),Throughput [Mbps]\n0,0.008\n2000,0.08\n4000,0.04\n", {}),
        ("timestamp,kbps\n1700000000000,8\n1700000002000,80\n1700000004000,40\n", {}),  # milliseconds since 1970
        ("timestamp,kbps\n1700000000,8\n1700000002,80\n1700000004,40\n", {}),
        ('"Timestamp","kbps"\n"2024-03-01T12:59:58+01:00","8"\n2024-03-01 12:00:00,80\n2024-03-01T12:00:02Z,40\n', {}),
        ('datetime kbps\n"2024-03-01 11:59:58" 8\n"2024-03-01 12:00:00" 80\n"2024-03-01 12:00:02" 40\n', {}),
        ("Timestamp,DL_bitrate\n2018.01.27_13.58.58,8\n2018.01.27_13.59.00,80\n2018.01.27_13.59.02,40\n", {}),
        ("0 8\n2 80\n4 40\n", {"bandwidth": "2", "unit": "kbps", "time": "1", "time_unit": "stamp_s"}),  # no header
        ("when,kbps\n2024-03-01,8\n2024-03-01T00:00:02,80\n2024-03-01T00:00:04,40\n", WHEN),
    ],
)
def test_formats_that_people_have(tmp_path: Path, text: str, settings: dict[str, Any]) -> None:
    """1,000, 10,000 and 5,000 bytes a second, for two seconds each."""
    found = read_log(log(tmp_path, text, "drive.log"), LogFormat(**settings)).trace
    assert found.length == 6 and [found.rate(at) for at in (0, 3, 5)] == [1000.0, 10_000.0, 5000.0]


def test_a_unit_that_nothing_says_is_asked_for(tmp_path: Path) -> None:
    path = log(tmp_path, "rate,duration_s\n5,5\n")
    with refused(DataError, "trace-unit-unknown", path, "rate", "simulation.log.unit"):
        read_log(path, LogFormat(bandwidth="rate"))


HEAD = "bandwidth_kbps,duration_ms\n"
FAULTS: list[tuple[str, str, list[str]]] = [
    ("", "trace-column-missing", ["line 1", "bandwidth_kbps"]),
    ("bandwidth_kbps\n5\n", "trace-column-missing", ["line 1", "duration_ms", "simulation.log.time"]),
    ("duration_ms,speed\n5,5\n", "trace-column-missing", ["line 1", "bandwidth_kbps", "speed"]),
    ("timestamp_s,kbps\n5,5\n7,5\n6,5\n", "trace-not-in-order", ["line 4", "timestamp_s = 6"]),
    ("bandwidth_kbps,duration_ms,bandwidth_kbps\n5,5,6\n", "trace-column-twice", ["line 1", "2", "bandwidth_kbps"]),
    ("1,5\n2,5\n", "trace-no-header", ["line 1", "2 columns", 'simulation.log.bandwidth = "2"']),
    ("timestamp,kbps\n2024-03-01T12:00:00,5\nnoon,5\n", "trace-not-a-date", ["line 3", "timestamp = 'noon'"]),
    (HEAD, "trace-empty", []),
    (HEAD + "5,1000\n-1,1000\n", "trace-value-range", ["line 3", "bandwidth_kbps = -1", "1e+12"]),
    (HEAD + "5,-1000\n", "trace-value-range", ["line 2", "duration_ms = -1000"]),
    (HEAD + "5,1000\nfast,1000\n", "trace-not-a-number", ["line 3", "bandwidth_kbps = 'fast'"]),
    (HEAD + "5,1000\n\n5\n", "trace-value-missing", ["line 4", "duration_ms"]),
    (HEAD + "nan,1000\n", "trace-value-range", ["line 2", "bandwidth_kbps = nan"]),
    (HEAD + "inf,1000\n", "trace-value-range", ["line 2", "bandwidth_kbps = inf"]),
    (HEAD + "0,1000\n0,1000\n", "trace-all-zero", []),
    (HEAD + "5,0\n0,1000\n", "trace-all-zero", []),
    (HEAD + "1e308,1000\n", "trace-value-range", ["line 2", "bandwidth_kbps = 1e308", "1e+12"]),
    (HEAD + "1e-9,1000\n", "trace-too-slow", ["1.25e-07"]),
]


@pytest.mark.parametrize(("text", "code", "named"), FAULTS)
def test_faults_name_file_and_line(tmp_path: Path, text: str, code: str, named: list[str]) -> None:
    path = log(tmp_path, text)
    with refused(DataError, code, path, *named) as caught:
        read_log(path)
    assert "\n" not in str(caught.value)


def test_files_of_a_folder_that_are_no_logs(tmp_path: Path) -> None:
    log(tmp_path, HEAD + "8,1000\n", "drive.csv")
    log(tmp_path, "Logs of our drives, made in March.\n", "README.txt")
    log(tmp_path, "vehicle,seats\nbus,40\n", "vehicles.csv")
    log(tmp_path, "x" * 200_000 + ",1\n", "long.log")
    (tmp_path / "._drive.csv").write_bytes(b"\x00\xff")
    logs, others = read_logs(tmp_path)
    assert [one.name for one in logs] == ["drive.csv"] and others == ["README.txt", "long.log", "vehicles.csv"]
    log(tmp_path, HEAD + "fast,1000\n", "faulty.csv")  # a log with a fault is not left out
    with refused(DataError, "trace-not-a-number", "faulty.csv"):
        read_logs(tmp_path)


def test_places_without_logs(tmp_path: Path) -> None:
    with refused(DataError, "no-trace-files", tmp_path):
        read_logs(tmp_path)
    log(tmp_path, "vehicle,seats\nbus,40\n", "vehicles.csv")
    with refused(DataError, "no-trace-files", tmp_path, "none of its 1 files", "vehicles.csv", "vehicle, seats"):
        read_logs(tmp_path)
    with refused(DataError, "no-such-traces", tmp_path / "nowhere"):
        read_logs(tmp_path / "nowhere")
    (tmp_path / "x.csv").write_bytes(b"\xff\xfe\x00")
    with refused(DataError, "trace-unreadable", tmp_path / "x.csv"):
        read_logs(tmp_path)


@pytest.mark.parametrize(
    ("name", "means"),
    [
        ("report_tram_0008.csv", "tram"),
        ("office-12.csv", "office"),
        ("home.csv", "other"),
        ("7.csv", "other"),
        ("2024-03-01.csv", "other"),
    ],
)
def test_means_of_transport_by_the_name(name: str, means: str) -> None:
    assert means_of(Path(name)) == means
