"""The page of a composition shows each group's shares with intervals, and escapes what comes from data."""

from __future__ import annotations

import json
import re
import sys
from copy import copy
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browsing import choose, fits, visit, wait_for
from numpy.testing import assert_allclose
from sklearn.base import clone

from skmix import SharedKernelMixture
from skmix.plots._models import kernels_of
from skmix.report import composition_page
from skmix.report.composition_page import _cut, _profile, percent
from skmix.report.model_page import offered_planes

pd = pytest.importorskip("pandas")

HOSTILE = "</script><img src=x onerror=alert(1)>"
GROUPS = [HOSTILE, "blood 2", "blood 10", "bone marrow"]
DESKTOP, PHONE = (1400, 900), (390, 844)
# Shares in percent of three populations, the intervals around them, and rows of the groups.
SHARES = np.array([[60.0, 30.0, 10.0], [55.0, 37.0, 8.0], [58.0, 41.96, 0.04], [20.0, 20.0, 60.0]])
WIDTH = np.array([[1.0, 2.0, 0.5], [1.0, 2.0, 0.5], [1.0, 2.0, 0.03], [3.0, 2.0, 1.0]])
ROWS = [400, 300, 1200, 50]


def named(X: np.ndarray) -> Any:
    return pd.DataFrame(X, columns=[HOSTILE, "CD3", "CD4", "CD8"])


@cache
def merged() -> tuple[SharedKernelMixture, np.ndarray, np.ndarray]:
    """Return a mixture of six kernels in three populations, and the rows and groups it was fitted to."""
    rng = np.random.RandomState(0)
    centres = 6.0 * np.random.RandomState(1).normal(size=(3, 4))
    y = np.repeat(np.array(GROUPS, dtype=object), 100)
    X = centres[rng.randint(3, size=len(y))] + rng.normal(size=(len(y), 4))
    model = SharedKernelMixture(6, random_state=0, tol=1e-2).fit(named(X), y)
    model.sort_kernels()
    model.merge_kernels(n_populations=3)
    return model, X, y


def composition() -> Any:
    columns = (SHARES, SHARES - WIDTH, SHARES + WIDTH)
    lines = [
        (name, g, *(column[i, g] / 100 for column in columns), n)
        for i, (name, n) in enumerate(zip(GROUPS, ROWS, strict=True))
        for g in range(3)
    ]
    return pd.DataFrame(lines, columns=["group", "population", "share", "lower", "upper", "rows"])


def unusual(*names: str, **changed: float) -> Any:
    """Return what is said of the groups, with other values of the last one."""
    last = {"p_composition": 1.5e-9, "z_likelihood": -0.5, "p_likelihood": 0.6, "p_adjusted": 1.2e-8}
    last |= changed
    return pd.DataFrame(
        {
            "group": GROUPS,
            "population": [0, 1, 2, 2],
            "share": [0.6, 0.35, 0.0004, 0.6],
            "usual_share": [0.5, 0.3, 0.1, 0.1],
            **{name: [0.9, 0.8, 0.7, value] for name, value in last.items()},
            "unusual": [name in names for name in GROUPS],
        }
    )


def made_page(**options: Any) -> str:
    model, X, y = merged()
    given: dict[str, Any] = {"unusual": unusual("bone marrow"), "X": X, "groups": y}
    return composition_page(model, composition(), title=HOSTILE, **given | options)


def values(monkeypatch: pytest.MonkeyPatch, *arguments: Any, **options: Any) -> dict[str, Any]:
    """Return the contents of a page as plain values."""
    module = sys.modules[composition_page.__module__]
    monkeypatch.setattr(module, "render_page", lambda template, data: data)
    found: Any = composition_page(*arguments, **options)
    return found


def embedded(page: str) -> dict[str, Any]:
    (found,) = re.findall(r'<script type="application/json" id="report-data">(.*?)</script>', page, re.S)
    return json.loads(found)


# ---------------------------------------------------------------- what it says


def test_the_shares_are_those_of_the_table() -> None:
    page = made_page()
    data = embedded(page)
    assert_allclose(data["shares"], SHARES)
    assert_allclose(data["lower"], SHARES - WIDTH)
    assert_allclose(data["upper"], SHARES + WIDTH)
    assert [group["name"] for group in data["groups"]] == GROUPS
    assert [group["rows"] for group in data["groups"]] == ROWS
    assert '<td>60.0<span class="dim interval">59.0 – 61.0</span></td>' in page
    # A share below a tenth of a percent has digits too.
    assert '<td>0.040<span class="dim interval">0.010 – 0.070</span></td>' in page
    assert made_page() == page


def test_populations_are_those_of_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    model, X, y = merged()
    data = values(monkeypatch, model, composition(), title="", X=X, groups=y)
    assert [part["kernels"] for part in data["parts"]] == [
        np.flatnonzero(model.populations_ == g).tolist() for g in range(3)
    ]
    assert [part["label"] for part in data["parts"]] == ["0", "1", "2"]
    assert [part["name"] for part in data["parts"]] == ["population 0", "population 1", "population 2"]
    for part in data["parts"]:
        assert re.findall(r"k\d+", part["listed"]) == [f"k{k}" for k in part["kernels"]]
    assert data["members"] == model.populations_.tolist()
    assert_allclose(np.array(data["tree"], dtype=float), model.merge_tree_, rtol=1e-4)
    assert data["rows"]["parts"] == model.predict(named(X), populations=True).tolist()
    assert [GROUPS[place] for place in data["rows"]["groups"]] == y.tolist()
    weights = model.weights_ @ model.class_prior_
    for g, means in enumerate(data["profile"]["means"]):
        own = model.populations_ == g
        expected = np.average(model.means_[own], axis=0, weights=weights[own])
        assert_allclose(np.array(means, dtype=float), expected, atol=0.051)
    # Places go from the lowest population of a feature to the highest.
    means = np.array(data["profile"]["means"], dtype=float)
    places = (means - means.min(axis=0)) / np.ptp(means, axis=0)
    assert_allclose(data["profile"]["places"], places, atol=0.011)
    assert data["profile"]["features"] == [HOSTILE, "CD3", "CD4", "CD8"]
    assert [(part["mean"], part["range"]) for part in data["parts"]] == [
        ("48.2", "20.0 – 60.0"),
        ("32.2", "20.0 – 42.0"),
        ("19.5", "0.040 – 60.0"),
    ]
    assert (data["n_rows"], data["n_kernels"], data["n_features"]) == ("1,950", 6, 4)
    assert (data["kernel"], data["kind"], data["n_numbered"]) == ("Gaussian", "population", 3)
    assert (data["judged"], data["n_unusual"], data["unusual_rows"]) == (False, 0, [])
    assert data["rows_note"] == "400 rows are drawn."
    # The weights of the picture are those of all groups together.
    assert_allclose(np.ravel(data["mixture"]["weights"]), weights, atol=5e-6)


def test_profiles_are_of_the_features_that_are_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of four features, and three axes: names, means and rows belong together."""
    monkeypatch.setitem(offered_planes.__globals__, "_MAX_FEATURES", 5)
    model, X, y = merged()
    data = values(monkeypatch, model, composition(), title="", X=X, groups=y)
    kept = kernels_of(model).most_separate(2)
    assert kept != [0, 1]
    assert data["profile"]["features"] == data["mixture"]["features"]
    assert data["profile"]["features"] == [[HOSTILE, "CD3", "CD4", "CD8"][d] for d in kept]
    weights = model.weights_ @ model.class_prior_
    for g, means in enumerate(data["profile"]["means"]):
        own = model.populations_ == g
        expected = np.average(model.means_[own], axis=0, weights=weights[own])[kept]
        assert_allclose(np.array(means, dtype=float), expected, atol=0.051)
    assert_allclose(data["rows"]["values"][:2], X[:, kept].T, rtol=1e-4)


def test_groups_count_by_their_priors(monkeypatch: pytest.MonkeyPatch) -> None:
    model = copy(merged()[0])
    model.class_prior_ = np.array([0.7, 0.1, 0.1, 0.1])
    data = values(monkeypatch, model, composition(), title="")
    weights = model.weights_ @ [0.7, 0.1, 0.1, 0.1]
    assert_allclose(np.ravel(data["mixture"]["weights"]), weights, atol=5e-6)
    own = model.populations_ == 0
    expected = np.average(model.means_[own], axis=0, weights=weights[own])
    assert_allclose(np.array(data["profile"]["means"][0], dtype=float), expected, atol=0.051)


def test_profiles_of_populations_without_weight_and_of_features_that_do_not_differ() -> None:
    model, _, _ = merged()
    kernels = replace(kernels_of(model), means=np.array([[1.0, 5.0], [3.0, 5.0], [100.0, 5.0]]))
    found = _profile(kernels, np.array([0.0, 0.0, 1.0]), np.array([0, 0, 1]), [0, 1])
    # The plain mean of kernels without weight; three digits of what populations differ by.
    assert found["means"] == [["2.0", "5.00"], ["100.0", "5.00"]]
    assert found["places"] == [[0.0, 0.0], [1.0, 0.0]]


def test_many_rows_are_sampled_with_their_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    model, X, y = merged()
    monkeypatch.setitem(_profile.__globals__, "_MAX_ROWS", 50)
    data = values(monkeypatch, model, composition(), title="", X=X, groups=np.where(X[:, 0] > 0, y, "new"))
    assert data["rows_note"] == "50 rows are drawn, chosen at random."
    shown = np.array(data["rows"]["values"])[:4].T
    places = [int(np.abs(X - row).sum(axis=1).argmin()) for row in shown]
    assert len(set(places)) == 50
    assert places == sorted(places)
    assert places[-1] > 100
    expected = [GROUPS.index(y[row]) if X[row, 0] > 0 else None for row in places]
    assert data["rows"]["groups"] == expected
    found = model.predict(named(X), populations=True)
    assert data["rows"]["parts"] == [int(found[row]) for row in places]


def test_new_groups_are_compared_with_those_of_the_fit() -> None:
    """Their shares are not compared with each other's."""
    model, _, _ = merged()
    names = dict(zip(GROUPS, ["new 1", "new 2", "new 3", "new 4"], strict=True))
    table, odd = composition(), unusual("bone marrow").replace({"group": names})
    odd.loc[3, ["population", "share", "usual_share"]] = [1, 0.2, 0.33]
    page = composition_page(model, table.replace({"group": names}), title="", unusual=odd)
    fitted = model.composition(populations=True).pivot(index="group", columns="population", values="share")
    medians = fitted.median()
    differ = (np.array([0.2, 0.2, 0.6]) - medians.to_numpy()).tolist()
    g = int(np.abs(differ).argmax())
    said = f"population {g}: {[20.0, 20.0, 60.0][g]} %, usually {percent(medians[g])} %"
    assert said in page


@pytest.mark.parametrize(
    ("share", "shown"),
    [(0.5, "50.0"), (0.01, "1.0"), (0.00999, "1.00"), (0.001, "0.10"), (0.0004, "0.040"), (4e-6, "0")],
)
def test_small_shares_have_more_digits(share: float, shown: str) -> None:
    assert percent(share) == shown


def test_names_of_features_can_be_given(monkeypatch: pytest.MonkeyPatch) -> None:
    model, _, _ = merged()
    page = composition_page(model, composition(), title="", names=["p", "q", "r", "s"])
    assert embedded(page)["mixture"]["features"] == ["p", "q", "r", "s"]
    with pytest.raises(ValueError, match="The model has 4 features, but names has 1"):
        composition_page(model, composition(), title="", names=["p"])
    # Four groups are too few to judge them; as many as it takes are enough.
    assert "were not judged" in page
    monkeypatch.setitem(composition_page.__globals__, "FEWEST_GROUPS", 4)
    assert "were not judged" not in composition_page(model, composition(), title="")


def test_kernels_without_populations(monkeypatch: pytest.MonkeyPatch) -> None:
    model, X, y = merged()
    table = composition().rename(columns={"population": "kernel"})
    more = table.assign(kernel=table["kernel"] + 3, share=0.0, lower=0.0, upper=0.01)
    page = composition_page(model, pd.concat([table, more]), title="")
    data = values(monkeypatch, model, pd.concat([table, more]), title="", X=X, groups=y)
    assert data["kind"] == "kernel"
    assert [part["label"] for part in data["parts"]] == ["k0", "k1", "k2", "k3", "k4", "k5"]
    assert [part["name"] for part in data["parts"]] == [f"kernel k{k}" for k in range(6)]
    assert data["tree"] is None
    assert data["rows"]["parts"] == model.predict(named(X)).tolist()
    assert '<section id="merges">' not in page


def test_unusual_groups_are_marked_with_what_differs() -> None:
    page = made_page(unusual=unusual("bone marrow"))
    assert [group["unusual"] for group in embedded(page)["groups"]] == [False, False, False, True]
    assert "population 2: 60.0 %, usually 10.0 %</td><td>1.5e-09</td><td>0.6</td><td>1.2e-08</td>" in page
    assert page.count('<span class="unseen"> (unusual)</span>') == 1
    # The share is that of the table, whatever the rows were counted to.
    assert made_page(unusual=unusual("bone marrow").assign(share=0.7)) == page
    rows = made_page(unusual=unusual("bone marrow", p_composition=0.7, p_likelihood=1e-6, z_likelihood=-6.0))
    assert ">its rows are less likely than those of others (-6.0 SD)</td>" in rows
    both = made_page(unusual=unusual("bone marrow", p_likelihood=1e-6, z_likelihood=6.0))
    assert "usually 10.0 %; its rows are more likely than those of others (+6.0 SD)</td>" in both
    unknown = made_page(unusual=unusual("bone marrow", p_likelihood=np.nan, z_likelihood=np.nan))
    assert "usually 10.0 %</td><td>1.5e-09</td><td>–</td>" in unknown
    # The share that differs most from the median of the others, 10 %, is named beside the least probable one.
    table = unusual("bone marrow")
    table.loc[3, ["population", "share", "usual_share"]] = [1, 0.2, 0.33]
    two = made_page(unusual=table)
    assert "population 1: 20.0 %, usually 33.0 %; population 2: 60.0 %, usually 8.0 %</td>" in two
    # It may be one that is smaller than usual: 30 % of the first group, where the others have 37 %.
    less = made_page(unusual=unusual(HOSTILE))
    assert "population 0: 60.0 %, usually 50.0 %; population 1: 30.0 %, usually 37.0 %" in less
    assert "No group differs from the others" in made_page(unusual=unusual())
    assert '<section id="unusual">' not in made_page(unusual=None)


def test_the_most_unusual_group_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    odd = unusual("blood 2", "bone marrow")
    data = values(monkeypatch, merged()[0], composition(), title="", unusual=odd)
    assert [row["name"] for row in data["unusual_rows"]] == ["bone marrow", "blood 2"]
    assert (data["judged"], data["n_unusual"]) == (True, 2)
    assert [group["unusual"] for group in data["groups"]] == [False, True, False, True]


def test_how_it_was_made() -> None:
    page = made_page(made=[("files", f"2: a.fcs, {HOSTILE}"), ("seed", "0")], notes=["c.fcs was left out."])
    assert '<tr><th scope="row">seed</th><td class="words breaking">0</td></tr>' in page
    assert '<p class="note">c.fcs was left out.</p>' in page


def test_the_scale_of_the_values() -> None:
    page = made_page(scale="arcsinh:150")
    assert page.count("Values are on the arcsinh scale with cofactor 150.") == 2
    assert "Values are on the logicle scale." in made_page(scale="logicle")
    assert "Values are on" not in made_page(scale="none") + made_page()


def test_the_tree_is_cut_where_its_parts_are() -> None:
    heights = np.array([0.2, 0.5, 0.8, 0.95, 1.0])
    # Cut at 0.9 unless another number of populations was asked for.
    assert [_cut(heights, n) for n in range(1, 7)] == pytest.approx([1.025, 0.975, 0.9, 0.65, 0.35, 0.1])
    model, X, _ = merged()
    alone = clone(model).fit(X).merge_kernels()
    table = alone.composition()
    page = composition_page(alone, table, title="")
    assert embedded(page)["cut"] == 0.9
    assert "Unusual groups were not judged: this takes at least 5 groups." in page


def test_what_comes_from_data_is_escaped() -> None:
    page = made_page(made=[("files", HOSTILE)], notes=[HOSTILE])
    assert "<img" not in page
    assert page.count("</script>") == page.count("<script")
    assert not re.search(r'(src|href)="(?!data:|#)', page)


def test_what_does_not_fit_is_refused() -> None:
    model, X, y = merged()
    with pytest.raises(ValueError, match="X has 3 features, but the model was fitted to 4"):
        composition_page(model, composition(), title="", X=X[:, :3])
    with pytest.raises(ValueError, match="X has 400 rows but there are 399 groups"):
        composition_page(model, composition(), title="", X=X, groups=y[1:])
    with pytest.raises(ValueError, match="groups was given without X"):
        composition_page(model, composition(), title="", groups=y)


# ---------------------------------------------------------------- in a browser


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("composition") / "page.html"
    files = ", ".join(n * "blood_" + f"{n}.fcs" for n in range(4, 12))
    path.write_text(made_page(made=[("files", files)], notes=[f"{files} were left out."]), encoding="utf-8")
    return path


@pytest.mark.parametrize(("size", "scheme"), [(DESKTOP, "light"), (PHONE, "dark")])
def test_the_page_loads_and_fits(chromium: Any, page: Path, size: tuple[int, int], scheme: str) -> None:
    visit(chromium, page, size, scheme)
    assert wait_for(chromium, "return document.querySelectorAll('#plane-plot .kernel').length") == 6
    assert chromium.get_log("browser") == []
    assert fits(chromium, size)
    assert chromium.execute_script(
        "const box = document.querySelector('#made .scroll'); return box.scrollWidth <= box.clientWidth"
    )
    shown = chromium.execute_script(
        "return [...document.querySelectorAll('#heat tbody tr')].map((r) => "
        "[...r.querySelectorAll('td')].map((c) => c.textContent))"
    )
    assert shown[0] == ["60.0", "30.0", "10.0"]
    assert shown[2] == ["58.0", "42.0", "<0.1"]
    # Every cell has its interval, also for those who cannot see the picture.
    told = chromium.execute_script(
        "return [...document.querySelectorAll('#heat td[data-i]')].map((c) => c.ariaLabel)"
    )
    assert len(told) == 12
    assert all(re.search(r"95 % interval: [\d.]+ to [\d.]+ %", each) for each in told)
    assert len(chromium.find_elements("css selector", "#tree .link")) == 5
    assert chromium.execute_script("return [...document.images].every((i) => i.complete && i.naturalWidth)")
    messages = [json.loads(each["message"])["message"] for each in chromium.get_log("performance")]
    wanted = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    assert [url for url in wanted if not url.startswith(("data:", "file:"))] == []
    unnamed = "return [...document.querySelectorAll('select, input')].filter((c) => !c.labels.length).length"
    assert chromium.execute_script(unnamed) == 0


def test_intervals_on_hover_and_focus(chromium: Any, page: Path) -> None:
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    visit(chromium, page, DESKTOP)
    cell = wait_for(chromium, "return document.querySelector('#heat td[tabindex=\"0\"]')")
    chromium.execute_script("arguments[0].focus()", cell)
    cell.send_keys(Keys.ARROW_DOWN)
    tip = chromium.find_element("id", "tip")
    assert tip.text.splitlines() == [
        "blood 2, population 0: 55.0 %",
        "95 % interval: 54.0 to 56.0 %",
        "300 rows in the group",
    ]
    last = chromium.find_elements("css selector", "#heat td[data-i]")[-1]
    pointer = ActionChains(chromium)
    pointer.move_to_element(last).perform()
    said = tip.text.splitlines()
    # Back to the corner, from where other tests move it.
    pointer.reset_actions()
    assert said == [
        "bone marrow, population 2: 60.0 %",
        "95 % interval: 59.0 to 61.0 %",
        "50 rows in the group",
        "unusual group",
    ]


def test_the_page_follows_its_controls(chromium: Any, page: Path) -> None:
    visit(chromium, page, DESKTOP)
    wait_for(chromium, "return document.querySelector('#plane-plot svg')")

    def lines() -> list[str]:
        return [each.text for each in chromium.find_elements("css selector", "#heat tbody th .cut")]

    assert lines() == GROUPS
    choose(chromium, "heat-order", "name")
    assert lines() == [HOSTILE, "blood 2", "blood 10", "bone marrow"]
    choose(chromium, "heat-order", "2")
    assert lines() == ["bone marrow", HOSTILE, "blood 2", "blood 10"]
    shades = "return [...document.querySelectorAll('#heat td[data-i]')].map((c) => c.style.cssText)"
    before = chromium.execute_script(shades)
    chromium.execute_script("document.querySelector('input[name=shade][value=part]').click()")
    assert chromium.execute_script(shades) != before

    def drawn() -> str:
        return chromium.execute_script("return document.querySelector('#plane-plot').innerHTML")

    seen = {drawn()}
    for control, value in (("plane-across", "2"), ("plane-up", "3"), ("plane-group", "3")):
        choose(chromium, control, value)
        seen.add(drawn())
    assert len(seen) == 4
    beside = chromium.find_elements("css selector", "#plane-shares tbody tr")
    assert [row.text for row in beside] == ["0 20.0 17.0 – 23.0", "1 20.0 18.0 – 22.0", "2 60.0 59.0 – 61.0"]
    button = chromium.find_elements("css selector", "#plane-planes button")[0]
    chromium.execute_script("arguments[0].click()", button)
    assert chromium.execute_script("return document.getElementById('plane-across').value") == "0"


def test_a_single_feature_and_a_single_group(chromium: Any, tmp_path: Path) -> None:
    X = np.random.RandomState(0).normal(size=(60, 1))
    model = SharedKernelMixture(1, random_state=0).fit(X)
    table = pd.DataFrame(
        {"group": ["a"], "kernel": [0], "share": [1.0], "lower": [1.0], "upper": [1.0], "rows": [60]}
    )
    path = tmp_path / "one.html"
    path.write_text(composition_page(model, table, title="one", X=X), encoding="utf-8")
    visit(chromium, path, PHONE)
    assert wait_for(chromium, "return document.querySelectorAll('#plane-plot .kernel').length") == 1
    assert chromium.get_log("browser") == []
    assert fits(chromium, PHONE)


def test_the_background_is_a_column_without_kernels(chromium: Any, tmp_path: Path) -> None:
    model, X, y = merged()
    table = composition()
    more = table[table["population"] == 0].assign(population="background", share=0.05, lower=0.04, upper=0.06)
    path = tmp_path / "background.html"
    page = composition_page(model, pd.concat([table, more]), title="", X=X, groups=y)
    path.write_text(page, encoding="utf-8")
    visit(chromium, path, DESKTOP)
    assert wait_for(chromium, "return document.querySelectorAll('#plane-plot .kernel').length") == 6
    heads = [each.text for each in chromium.find_elements("css selector", "#heat thead th")]
    assert heads == ["0", "1", "2", "background"]
    assert (
        chromium.find_elements("css selector", "#plane-shares tbody tr")[-1].text
        == "background 5.0 5.0 – 5.0"
    )
    assert len(chromium.find_elements("css selector", "#tree .link")) == 5
    assert chromium.get_log("browser") == []
    visit(chromium, path, PHONE)
    wait_for(chromium, "return document.querySelector('#plane-plot svg')")
    assert fits(chromium, PHONE)
