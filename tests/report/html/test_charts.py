"""Charts: scales, marks, thinning, labels that keep apart; numbers that can be checked by hand."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll.report.html.charts.bars import Bar, bar_list, class_bars, histogram, shares
from atoll.report.html.charts.frame import Axis
from atoll.report.html.charts.heat import confusion_matrix, shade
from atoll.report.html.charts.lines import Line, LineChart, line_chart, sparkline, thinned
from atoll.report.html.charts.rows import IntervalRow, interval_rows
from atoll.report.html.charts.scales import Scale, amount, count, duration, fitting, linear, percent, plain
from atoll.report.html.charts.scatter import Layer, Mark, ScatterChart, marks_of, scatter_chart
from atoll.report.html.charts.timeline import timeline_chart
from page_runs import simulated_tasks


def words(text: str) -> str:
    """With ordinary spaces."""
    return text.replace("\u202f", " ")


def test_scales() -> None:
    assert Scale(0, 10).at(2.5) == 0.25 and Scale(1, 100, True).at(10) == 0.5
    assert Scale(0, 1).ticks(5) == [0, 0.2, 0.4, 0.6, 0.8, 1.0]
    assert Scale(1, 1000, True).ticks(5) == [1, 10, 100, 1000]
    assert Scale(100, 900, True).ticks(5) == [100, 200, 500]
    assert fitting([1, 100]).logarithmic and not fitting([10, 100]).logarithmic and not fitting([0, 100]).logarithmic
    assert linear([0, 10], zero=True, room=0.1) == Scale(0, 11.0)


@given(st.lists(st.floats(-1e12, 1e12), min_size=1))
def test_a_linear_scale_holds_all_its_values(values: list[float]) -> None:
    scale = linear(values)
    assert scale.low < scale.high and all(-1e-9 <= scale.at(value) <= 1 + 1e-9 for value in values)
    assert all(scale.low <= tick <= scale.high for tick in scale.ticks())


def test_numbers_in_words() -> None:
    assert [words(count(value)) for value in (0, 12, 999, 934_080, 2.5e9, 0.25)] == [
        "0",
        "12",
        "999",
        "934 k",
        "2.5 G",
        "0.25",
    ]
    assert [words(percent(value)) for value in (0.5, 0.1234, 1.0, 0.0004)] == ["50 %", "12.3 %", "100 %", "0.04 %"]
    assert [words(amount(value)) for value in (12, 1500, 3e9)] == ["12 B", "1.5 kB", "3 GB"]
    assert [words(duration(value)) for value in (2.5, 600, 7200, 1e6)] == ["2.5 s", "10 min", "2 h", "11.6 days"]
    assert [plain(value) for value in (3.0, 1234567.0, 0.25)] == ["3", "1,234,567", "0.25"]


def test_marks_that_would_read_the_same_are_one() -> None:
    axis = Axis("", Scale(0.99991, 0.99999), percent)
    texts = [axis.form(value) for value in axis.marks()]
    assert len(texts) == len(set(texts))


def test_a_thinned_line_keeps_its_ends_and_its_peaks() -> None:
    points = [(float(x), math.sin(x / 50)) for x in range(5000)]
    points[1234] = (1234.0, 99.0)
    kept = thinned(points, 300)
    assert len(kept) <= 303 and kept[0] == points[0] and kept[-1] == points[-1] and (1234.0, 99.0) in kept
    assert [x for x, _ in kept] == sorted(x for x, _ in kept)


def test_a_line_chart_has_its_words_its_points_and_its_table() -> None:
    lines = [Line("a", [(1, 0.5), (2, 0.75)]), Line("b", [(1, 0.25)], "c1", "dashes")]
    text = str(line_chart(LineChart("Accuracy", lines, "share", percent, boundaries=[(1.5, "search")])))
    label = re.search(r'aria-label="([^"]*)"', text)
    assert label is not None
    assert words(label[1]) == "Accuracy: a from 50 % at round 1 to 75 % at 2; b from 25 % at round 1 to 25 % at 1"
    assert text.count("<path") == 2 and "search" in text
    root = ElementTree.fromstring(text)
    cells = [[words("".join(cell.itertext())) for cell in row] for row in root.iter("tr")]
    assert cells == [["round", "a", "b"], ["1", "50 %", "25 %"], ["2", "75 %", ""]]
    assert line_chart(LineChart("x", [Line("a", [])], "y")) is None


def test_a_sparkline_of_one_point_is_a_dot() -> None:
    assert "circle" in sparkline([(1, 2.0)]) and "path" in sparkline([(1, 2.0), (2, 3.0)]) and sparkline([]) == ""


def test_labels_of_neighbouring_marks_keep_apart() -> None:
    x, y = Axis("", Scale(0, 1)), Axis("", Scale(0, 1))
    marks = [
        Mark(0.5, 0.5, "", label="High"),
        Mark(0.51, 0.5, "", label="Knee"),
        Mark(0.98, 0.5, "", label="Rival of all"),
    ]
    drawn = [ElementTree.fromstring(str(one)) for one in marks_of(marks, x, y, 300)]
    texts = [one for one in drawn if one.tag == "text"]
    places = {(one.get("dx"), one.get("dy"), one.get("text-anchor")) for one in texts[:2]}
    assert len(places) == 2, "two labels at nearly the same point are on different sides"
    assert texts[2].get("text-anchor") == "end", "a label at the right end leads inwards"


def test_a_slider_has_a_layer_for_each_round_and_shows_the_last() -> None:
    layers = [Layer(str(number), [Mark(1, 0.5, f"n{number}")]) for number in (1, 2, 9)]
    chart = ScatterChart("t", Axis("x", Scale(0, 2)), Axis("y", Scale(0, 1)), layers, slider="round")
    root = ElementTree.fromstring(
        str(scatter_chart(chart)).replace(
            '<input type="range" min="0" max="2" value="2" step="1" class="slider">', "<i/>"
        )
    )
    shown = {layer.get("data-name"): layer.get("display") for layer in root.iter("g") if layer.get("class") == "layer"}
    assert shown == {"1": "none", "2": "none", "9": None}


def test_bars_and_shares() -> None:
    text = str(bar_list("t", [Bar("a", 2.0, "two"), Bar("b", 1.0, "one")]))
    assert re.findall(r'width="([\d.]+%)"', text) == ["100%", "100.00%", "100%", "50.00%"]
    text = str(shares([(3, "c0", "used"), (1, "c1", "late")], 4))
    assert re.findall(r'x="([\d.]+)%"', text) == ["0.00", "75.00"] and 'aria-label="used 3, late 1"' in text
    assert 'aria-label="a: 2, c: 1"' in class_bars([("a", 2), ("b", 0), ("c", 1)])


def test_a_histogram_counts_every_value_once() -> None:
    text = str(histogram("t", [1, 1, 1, 2, 3, 9], x_label="rows"))
    root = ElementTree.fromstring(text)
    counts = [int(row[1].text or 0) for row in root.iter("tr") if row[1].tag == "td"]
    assert sum(counts) == 6 and counts[0] == 4
    assert histogram("t", [2, 2, 2], x_label="rows") is None


def test_the_confusion_matrix_shades_by_the_share_of_the_row() -> None:
    assert [shade(count, 16) for count in (0, 1, 4, 9, 16)] == [0, 2, 4, 6, 8] and shade(1, 10_000) == 1
    text = str(confusion_matrix([[3, 1], [0, 0]], ["<b>", "x"], "m"))
    root = ElementTree.fromstring(text)
    rows = ["".join(cell.itertext()) for cell in root.iter("td")]
    assert rows == ["3", "1", "4", "", "", "0"] and "&lt;b&gt; answered as x: 1 of 4 rows" in text


def test_rows_of_intervals_have_one_axis() -> None:
    rows = [IntervalRow("a", 2.0, 1.0, 3.0, [1.0, 3.0], "2"), IntervalRow("b", math.nan, math.nan, math.nan, [], "-")]
    text = str(interval_rows("t", rows, label="x", form=plain, scale=Scale(0, 4)))
    assert 'cx="50.00%"' in text and 'x1="25.00%"' in text and 'x2="75.00%"' in text
    assert interval_rows("t", rows[1:], label="x", form=plain) is None


def test_a_timeline_has_three_parts_for_a_reply_and_a_dotted_line_for_none() -> None:
    rounds = [{"round": one["round"], **one["simulation"]} for one in simulated_tasks(2)]
    text = str(timeline_chart(rounds, "t"))
    assert text.count("<rect") == 2 * 2 * 3 + 3, "two rounds, two clients, three parts; and three in the legend"
    assert text.count('class="waiting"') == 2 and "no reply" in text and "north" in text
    assert timeline_chart([], "t") is None


@pytest.mark.parametrize("chart", ["line", "scatter"])
def test_names_in_charts_are_text(chart: str) -> None:
    evil = '</svg><script>x</script>"onload="x'
    if chart == "line":
        text = str(line_chart(LineChart(evil, [Line(evil, [(1, 1)]), Line("b", [(1, 2)])], evil)))
    else:
        layer = Layer(evil, [Mark(1, 1, evil, label=evil)])
        text = str(
            scatter_chart(ScatterChart(evil, Axis(evil, Scale(0, 2)), Axis(evil, Scale(0, 2)), [layer], about=evil))
        )
    assert "<script" not in text and not any(one.tag == "script" for one in ElementTree.fromstring(text).iter())
