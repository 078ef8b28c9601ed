"""The page in a real Chromium: figures appear, change, and survive reloads and restarts."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from live.browser import new_browser
from live.records import full_record, record
from semistream.cli.report import write_report
from semistream.live.feed import Feed
from semistream.live.page import LivePage


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with new_browser() as opened:
        yield opened


@pytest.fixture
def tab(browser: Any) -> Iterator[Any]:
    """A tab that fails the test if the page raises, logs an error or loads another resource."""
    wrong: list[str] = []
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda message: message.type == "error" and wrong.append(message.text))
    yield page
    page.close()
    wrong = [text for text in wrong if "net::ERR_" not in text]  # a server that is gone
    assert not wrong


@pytest.fixture
def feed() -> Feed:
    return Feed()


@pytest.fixture
def live(feed: Feed) -> Iterator[LivePage]:
    page = LivePage(feed, port=0)
    yield page
    page.close()


def figure(tab: Any, name: str) -> str:
    return str(tab.locator(f".tile[data-figure={name}] b").inner_text())


def wait_for(tab: Any, name: str, text: str) -> None:
    tab.locator(f".tile[data-figure={name}] b", has_text=text).wait_for(timeout=5000)


def test_figures_appear_change_and_survive(tab: Any, feed: Feed, live: LivePage) -> None:
    tab.goto(live.url + "?poll=100")
    tab.get_by_text("Waiting for the first micro-batch").wait_for()
    feed.set_state("q1", "running")
    for batch in range(3):
        feed.add(record(batch) | {"rows_per_second": 1_230_000.0})
    wait_for(tab, "rows_per_second", "1.23 M/s")
    assert tab.locator("#state").inner_text() == "running"
    assert figure(tab, "rows") == "1.50 M"
    assert tab.locator(".lookup").count() == 2
    feed.add(record(3) | {"rows_per_second": 456_000.0, "seconds": 1.5})
    wait_for(tab, "rows_per_second", "456 k/s")
    assert figure(tab, "seconds") == "1.50 s"
    tab.reload()
    wait_for(tab, "rows_per_second", "456 k/s")
    assert figure(tab, "rows") == "2.00 M"
    feed.set_state("q1", "failed", "the disk is full")
    tab.locator("#error", has_text="the disk is full").wait_for()
    # The query starts again with its checkpoint: the same id, another run, the next batch.
    feed.set_state("q1", "running")
    feed.add(record(4, run="r2") | {"rows_per_second": 789_000.0})
    wait_for(tab, "rows_per_second", "789 k/s")
    assert tab.locator("#error").is_hidden()
    assert figure(tab, "rows") == "2.50 M"
    assert tab.locator("[data-chart=rows_per_second] .restart").count() == 1


def test_another_process_on_the_same_port(tab: Any, feed: Feed) -> None:
    live = LivePage(feed, port=0)
    port = int(live.url.rstrip("/").rsplit(":", 1)[1])
    feed.add(record(0) | {"rows_per_second": 1_000.0})
    tab.goto(live.url + "?poll=100")
    wait_for(tab, "rows_per_second", "1.00 k/s")
    live.close()
    tab.locator("#state", has_text="disconnected").wait_for()
    assert figure(tab, "rows_per_second") == "1.00 k/s", "what was shown stays"
    other = Feed()
    other.add(record(1) | {"rows_per_second": 2_000.0})
    live = LivePage(other, port)
    try:
        wait_for(tab, "rows_per_second", "2.00 k/s")
        tab.locator("#state", has_text="running").wait_for()
    finally:
        live.close()


def test_what_is_missing_and_what_is_unknown(tab: Any, feed: Feed, live: LivePage) -> None:
    bare = {"query": "q1", "batch": 0, "time": "2026-03-02T09:00:00Z", "later": {"new": [1]}}
    feed.add(bare)
    tab.goto(live.url + "?poll=100")
    tab.locator(".tile").first.wait_for()
    assert figure(tab, "rows_per_second") == "not reported"
    assert tab.locator("[data-chart=lag]").inner_text() == "not reported"
    strange = record(1, lookups=1, mood="good")
    strange["lookups"][0] |= {"future": {"a": 1}, "memory": {"new part": 5_000_000}}
    strange["lookups"][0]["counters"]["new_counter"] = 17
    feed.add(strange)
    tab.locator(".lookup").wait_for()
    assert tab.locator(".lookup [data-figure=parked] b").inner_text() == "not reported"
    assert tab.locator(".lookup [data-figure=shed] b").inner_text() == "0"
    assert tab.locator(".lookup [data-chart=predicted]").inner_text() == "not reported"
    tab.get_by_text("all counters of the last batch").click()
    assert tab.get_by_text("new counter").is_visible()


def test_predictions_overload_and_queries(tab: Any, feed: Feed, live: LivePage) -> None:
    feed.add(record(0, query="q2", lookups=1) | {"rows_per_second": 99_000.0})
    for batch in range(60):
        feed.add(full_record(batch))
    tab.goto(live.url + "?poll=100")
    first = tab.locator(".lookup").first
    first.wait_for()
    assert first.locator("[data-figure=parked] b").inner_text() == "0"
    assert first.locator("[data-chart=predicted-hit_rate] path").count() == 2
    first.locator("[data-chart=waiting] svg").hover()
    tip = first.locator("[data-chart=waiting] .tip").inner_text()
    assert "parked" in tip
    assert re.search(r"parked\s+2\.[4-9]\d k", tip), "near the middle of the burst"
    tab.mouse.move(2, 2)
    tab.locator("#query").select_option("q2")
    wait_for(tab, "rows_per_second", "99.0 k/s")


def test_themes_and_names_that_look_like_html(tab: Any, feed: Feed, live: LivePage) -> None:
    feed.add(record(0) | {"name": "<img src=x onerror=alert(1)>"})
    tab.emulate_media(color_scheme="dark")
    tab.goto(live.url + "?poll=100")
    tab.locator(".tile").first.wait_for()
    assert tab.locator("#name").inner_text() == "<img src=x onerror=alert(1)>"
    background = "getComputedStyle(document.body).backgroundColor"
    dark = tab.evaluate(background)
    tab.locator("#theme").click()
    light = tab.evaluate(background)
    assert sum(map(int, light[4:-1].split(","))) > 600 > 100 > sum(map(int, dark[4:-1].split(",")))
    tab.reload()
    tab.locator(".tile").first.wait_for()
    assert tab.evaluate(background) == light, "the choice is kept"


def test_the_report_is_the_same_page(tab: Any, tmp_path: Path) -> None:
    records = [full_record(batch, run="r1" if batch < 35 else "r2") for batch in range(60)]
    metrics = tmp_path / "metrics.jsonl"
    metrics.write_text("".join(json.dumps(one) + "\n" for one in records))
    write_report(metrics, tmp_path / "report.html")
    tab.goto(f"file://{tmp_path}/report.html?theme=light")
    assert tab.locator(".lookup").count() == 2
    assert tab.locator("#state").inner_text() == "report"
    assert tab.locator("[data-chart=memory] path").count() == 10
    wide = tab.evaluate("document.documentElement.scrollWidth - innerWidth")
    assert wide <= 0, "the page does not scroll sideways"
    pictures = os.environ.get("SEMISTREAM_PICTURES")  # a folder, to look at what is tested
    if pictures:
        tab.screenshot(path=f"{pictures}/report-light.png", full_page=True)
        tab.goto(f"file://{tmp_path}/report.html?theme=dark")
        tab.screenshot(path=f"{pictures}/report-dark.png", full_page=True)
        tab.set_viewport_size({"width": 420, "height": 900})
        tab.screenshot(path=f"{pictures}/report-narrow.png", full_page=True)
