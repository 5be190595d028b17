"""The page of an evaluation shows its numbers, and escapes what comes from data."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browsing import PHONE, WIDE, fits, visit, wait_for
from numpy.testing import assert_array_equal

from skmix.metrics import ReliabilityBin
from skmix.report import Evaluation, evaluation_page
from skmix.report.evaluation import evaluation_data

HOSTILE = "</script><img src=x onerror=alert(1)>"
NAN = float("nan")


NUMBERS = Evaluation(
    n_rows=20,
    classes=("cat", "dog", "yeti"),
    accuracy=0.75,
    mean_iou=0.40625,
    log_loss=0.5,
    calibration_error=0.125,
    confusion=np.array([[9, 1, 0], [4, 6, 0], [0, 0, 0]]),
    precision=np.array([9 / 13, 6 / 7, NAN]),
    recall=np.array([0.9, 0.6, NAN]),
    iou=np.array([9 / 14, 6 / 11, NAN]),
    reliability=[ReliabilityBin(0.55, 0.5, 8), ReliabilityBin(0.95, 11 / 12, 12)],
)


def test_the_numbers_of_the_evaluation() -> None:
    data = evaluation_data(NUMBERS, title="animals")
    page = evaluation_page(NUMBERS, title="animals")
    assert dict(re.findall(r'<h3>([^<]+)</h3><div class="number">([^<]+)</div>', page)) == {
        "accuracy": "0.7500",
        "mean IoU": "0.4062",
        "log-loss": "0.5000",
        "calibration error": "0.1250",
    }
    assert '<p class="lead">20 rows of 3 classes; 5 are misclassified.</p>' in page
    assert [(row["true"], row["predicted"], row["count"], row["share"]) for row in data["mistakes"]] == [
        ("dog", "cat", 4, "40.0 %"),
        ("cat", "dog", 1, "10.0 %"),
    ]
    assert data["reliability"] == [
        {"confidence": 0.55, "accuracy": 0.5, "n_rows": 8},
        {"confidence": 0.95, "accuracy": 11 / 12, "n_rows": 12},
    ]
    assert (data["title"], data["n_rows"], data["n_wrong"]) == ("animals", 20, 5)
    assert data["classes"][:2] == [
        {"label": "cat", "n_rows": 10, "precision": 9 / 13, "recall": 0.9, "iou": 9 / 14},
        {"label": "dog", "n_rows": 10, "precision": 6 / 7, "recall": 0.6, "iou": 6 / 11},
    ]
    assert data["confusion"] == [[9, 1, 0], [4, 6, 0], [0, 0, 0]]
    assert data["classes"][2]["precision"] is None
    assert evaluation_page(NUMBERS, title="animals") == page


def test_the_page_says_that_refused_rows_are_errors() -> None:
    refusing = replace(NUMBERS, refused=np.array([0, 10, 0]))
    data, page = evaluation_data(refusing, title="animals"), evaluation_page(refusing, title="animals")
    assert "5 are misclassified, and 10 are refused as outliers.</p>" in page
    assert "share of correct predictions; a refused row is an error" in page
    assert [row["refused"] for row in data["classes"]] == [0, 10, 0]
    assert [row["n_rows"] for row in data["classes"]] == [10, 20, 0]
    assert data["mistakes"][0]["share"] == "20.0 %"
    assert "refused" not in re.sub(r"<script.*?</script>", "", evaluation_page(NUMBERS, title=""), flags=re.S)


def test_a_matrix_of_other_classes_is_refused() -> None:
    with pytest.raises(ValueError, match=r"3 classes but the confusion matrix has shape \(2, 2\)"):
        evaluation_page(replace(NUMBERS, confusion=np.eye(2)), title="animals")


def test_names_are_escaped() -> None:
    page = evaluation_page(replace(NUMBERS, classes=(HOSTILE, "b", "c")), title=HOSTILE)
    assert "<img" not in page
    assert page.count("</script>") == page.count("<script")


@pytest.fixture
def page(tmp_path: Path) -> Path:
    path = tmp_path / "page.html"
    path.write_text(evaluation_page(replace(NUMBERS, classes=(HOSTILE, "dog", "yeti")), title="animals"))
    return path


@pytest.mark.parametrize(("size", "scheme"), [(WIDE, "light"), (PHONE, "dark")])
def test_the_page_loads_and_shows_everything(
    chromium: Any, page: Path, size: tuple[int, int], scheme: str
) -> None:
    visit(chromium, page, size, scheme)
    wait_for(chromium, "return document.querySelector('#reliability-chart svg')")
    assert chromium.get_log("browser") == []
    assert fits(chromium, size)
    assert chromium.execute_script("return document.images.length") == 0
    shown = chromium.execute_script(
        "return [...document.querySelectorAll('#matrix tbody tr')].map((r) => "
        "[...r.querySelectorAll('td')].map((c) => Number(c.textContent)))"
    )
    assert_array_equal(shown, NUMBERS.confusion)
    assert len(chromium.find_elements("css selector", "#reliability-chart .point")) == 2


def test_cells_are_read_out_to_the_keyboard(chromium: Any, page: Path) -> None:
    from selenium.webdriver.common.keys import Keys

    visit(chromium, page)
    cell = wait_for(chromium, "return document.querySelector('#matrix td[tabindex=\"0\"]')")
    chromium.execute_script("arguments[0].focus()", cell)
    cell.send_keys(Keys.ARROW_DOWN)
    told = chromium.find_element("id", "tip").text.splitlines()
    assert told == [
        f"4 rows of dog taken for {HOSTILE}",
        "40.0 % of the 10 rows of dog",
        f"30.8 % of the 13 predictions of {HOSTILE}",
    ]


def test_classes_are_sorted_by_a_column(chromium: Any, page: Path) -> None:
    visit(chromium, page)

    def names() -> list[str]:
        return [cell.text for cell in chromium.find_elements("css selector", "#class-body th")]

    button = wait_for(chromium, "return document.querySelector('th[data-key=recall] button')")
    chromium.execute_script("arguments[0].click()", button)
    assert names() == ["dog", HOSTILE, "yeti"]
    chromium.execute_script("arguments[0].click()", button)
    assert names() == [HOSTILE, "dog", "yeti"]
    assert button.find_element("xpath", "..").get_attribute("aria-sort") == "descending"


def test_mistakes_alone_and_other_shares(chromium: Any, page: Path) -> None:
    visit(chromium, page)
    shades = (
        "return [...document.querySelectorAll('#matrix td[data-i]')]"
        ".map((c) => c.style.getPropertyValue('--share'))"
    )
    before = wait_for(chromium, shades)
    chromium.execute_script("document.querySelector('input[name=share][value=predicted]').click()")
    by_prediction = chromium.execute_script(shades)
    assert by_prediction != before
    chromium.execute_script("document.getElementById('mistakes-only').click()")
    alone = chromium.execute_script(shades)
    assert [alone[0], alone[4]] == ["0", "0"]
    # The most frequent mistake has the deepest shade.
    assert max(map(float, alone)) == float(alone[3]) == pytest.approx(0.96)
