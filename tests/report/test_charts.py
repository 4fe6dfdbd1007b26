from xml.etree import ElementTree

import pytest

from apportion.report.charts import bars, curves, histogram
from apportion.report.svg import drawing


def test_curves_reach_from_corner_to_corner_of_their_axes():
    chart = ElementTree.fromstring(curves({"a": [(0, 0), (5, 10)]}, across="steps", up="loss"))
    line = next(chart.iter("polyline"))
    (left, low), (right, high) = (map(float, at.split(",")) for at in line.get("points", "").split())
    assert (left, right) == (70, 706)
    assert low > high
    assert [each.text for each in chart.iter("text")][:2] == ["0", "0"]


def test_axes_need_not_begin_at_zero():
    chart = curves({"a": [(1, 5), (2, 6)]}, across="x", up="y", from_zero=False)
    assert {"1", "2", "5", "6"} <= {each.text for each in ElementTree.fromstring(chart).iter("text")}


def test_several_lines_and_dots_are_named_below():
    chart = curves({"a": [(0, 1)], "b" * 60: [(0, 2)]}, dots={"c" * 60: [(0, 3)]}, across="x", up="y")
    root = ElementTree.fromstring(chart)
    assert [each.text for each in root.iter("text")][-3:] == ["a", "b" * 60, "c" * 60]
    places = [(each.get("x"), each.get("y")) for each in root.iter("text")][-3:]
    assert places[0][1] == places[1][1] != places[2][1]
    assert len(list(root.iter("circle"))) == 1


def test_curves_of_nothing_say_so():
    assert curves({"a": []}, across="steps", up="loss") == "<p>loss over steps: there are no values.</p>"


def test_a_bar_is_as_long_as_its_value():
    chart = ElementTree.fromstring(bars([("a", 1.0, "1"), ("b", 4.0, "4")]))
    quarter, whole = (float(each.get("width", 0)) for each in chart.iter("rect"))
    assert quarter == pytest.approx(whole / 4, abs=0.1)


def test_a_long_name_makes_room_for_itself():
    chart = ElementTree.fromstring(bars([("chosen by validation, one time known", 0.5, "0.50")], most=1.0))
    name, bar = next(chart.iter("text")), next(chart.iter("rect"))
    assert float(name.get("x", 0)) > 6 * len(name.text or "")
    assert float(bar.get("x", 0)) > float(name.get("x", 0))


def test_errors_are_drawn_as_whiskers_inside_the_axis():
    chart = ElementTree.fromstring(bars([("a", 0.5, "0.50")], most=1.0, errors=[(0.25, 2.0)]))
    whisker = next(chart.iter("path")).get("d", "")
    begin, end = float(whisker[1:].split()[0]), float(whisker.partition("H")[2])
    bar = next(chart.iter("rect"))
    left, width = float(bar.get("x", 0)), float(bar.get("width", 0))
    assert begin == pytest.approx(left + width / 2, abs=0.2)
    assert end == pytest.approx(left + 2 * width, abs=0.2)


def test_a_histogram_has_a_bar_for_each_count_and_a_name_for_every_second():
    parts = histogram("shares", [1, 0, 3], ["0", "1", "2"], below="share", every=2)
    chart = ElementTree.fromstring(drawing(420, 260, parts, label="it", paper=None))
    heights = [float(bar.get("height", 0)) for bar in chart.iter("rect")]
    assert heights[0] == pytest.approx(heights[2] / 3, abs=0.1)
    assert heights[1] == 0
    assert [each.text for each in chart.iter("text")] == ["shares", "1", "0", "0", "3", "2", "3", "share"]
