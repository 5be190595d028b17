"""What is published beside the code agrees with it: metadata, workflows, recipe and paper."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pandas as pd
import yaml
from comparison import Outcome, half_of, mean_ranks, summarise
from recording import read_lines

import skmix

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
URLS = PROJECT.get("urls", {})
TARGETS = set(re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
# Names that conda has for the same library.
IN_CONDA = {"torch": "pytorch", "matplotlib": "matplotlib-base"}


def read_yaml(name: str | Path) -> Any:
    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


def only_match(pattern: str, name: str) -> str:
    (found,) = re.findall(pattern, (ROOT / name).read_text(encoding="utf-8"), re.MULTILINE)
    return str(found)


def commands_of(node: Any) -> list[str]:
    """Return all commands of a workflow, wherever they stand in it."""
    if isinstance(node, dict):
        own = [node["run"]] if isinstance(node.get("run"), str) else []
        return own + [each for value in node.values() for each in commands_of(value)]
    return [each for value in node for each in commands_of(value)] if isinstance(node, list) else []


def test_workflows_call_targets_that_exist() -> None:
    workflows = [read_yaml(path) for path in (ROOT / ".github" / "workflows").glob("*.yml")]
    commands = commands_of([each["jobs"] for each in workflows])
    commands += read_yaml(".readthedocs.yaml")["build"]["commands"]
    called = {found for each in commands for found in re.findall(r"\bmake ([a-z-]+)", each)}
    assert called == {"lint", "test", "test-oldest", "sanitize", "setup", "docs", "dist"}
    assert called <= TARGETS
    named = [found for each in commands for found in re.findall(r"\S+\.py\b", each)]
    assert [name for name in named if not (ROOT / name).is_file()] == []


def test_workflows_test_python_versions_that_are_supported() -> None:
    jobs = read_yaml(".github/workflows/ci.yml")["jobs"]
    tested = jobs["test"]["strategy"]["matrix"]["python"]
    supported = [each.split(" :: ")[-1] for each in PROJECT["classifiers"] if " :: 3." in each]
    assert len(tested) >= 3
    assert set(tested) <= set(supported)
    assert {supported[0], supported[-1]} <= set(tested)
    assert PROJECT["requires-python"] == f">={supported[0]}"


def test_wheels_are_for_the_oldest_python_for_the_stable_interface_and_for_python_without_its_lock() -> None:
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    oldest = PROJECT["requires-python"].removeprefix(">=3.")
    stable = tools["scikit-build"]["wheel"]["py-api"]
    assert stable == f"cp3{int(oldest) + 1}"
    first, second, unlocked = tools["cibuildwheel"]["build"]
    assert (first, second) == (f"cp3{oldest}-*", f"{stable}-*")
    assert unlocked.endswith("t-*")


def test_the_version_is_the_same_everywhere() -> None:
    said = {
        "pyproject.toml": PROJECT["version"],
        "CITATION.cff": str(read_yaml("CITATION.cff")["version"]),
        "conda/recipe.yaml": read_yaml("conda/recipe.yaml")["context"]["version"],
        "README.md": only_match(r"^.*Version ([\d.]+) ", "README.md"),
        "CHANGELOG.md": only_match(r"^## \[(.+?)\]", "CHANGELOG.md"),
    }
    assert said == dict.fromkeys(said, skmix.__version__)


def test_the_address_is_that_of_the_project() -> None:
    assert read_yaml("CITATION.cff").get("repository-code") == URLS.get("Repository")


def requirements(*lists: list[str]) -> set[str]:
    """Return requirements as conda writes them, without those on ourselves."""
    found = set()
    for each in (each for group in lists for each in group if not each.startswith("skmix[")):
        name, version = re.fullmatch(r"([\w-]+)(?:\[.*\])?(>=[\d.]+)", each).groups()  # type: ignore[union-attr]
        found.add(f"{IN_CONDA.get(name, name)} {version}")
    return found


def test_the_recipe_needs_what_the_package_needs() -> None:
    recipe = read_yaml("conda/recipe.yaml")
    needs = recipe["requirements"]
    ours = {f"python {PROJECT['requires-python']}", *requirements(PROJECT["dependencies"], EXTRAS["cli"])}
    assert set(needs["run"]) == ours
    optional = [EXTRAS[name] for name in EXTRAS if name not in ("cli", "test", "dev", "docs")]
    assert set(needs["run_constraints"]) == requirements(*optional)
    build = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["build-system"]["requires"]
    assert requirements(build) <= set(needs["host"])
    # It has compiled code, so there is one for each system.
    assert "noarch" not in recipe["build"]
    assert recipe["about"]["summary"] == PROJECT["description"]
    assert recipe["about"]["license"] == PROJECT["license"]


def test_the_extra_all_has_every_other_but_the_large_ones() -> None:
    (named,) = EXTRAS["all"]
    chosen = set(named.removeprefix("skmix[").removesuffix("]").split(","))
    # The report brings the command line and plots.
    assert chosen | {"cli", "plot", "all"} == {*EXTRAS} - {"dask", "torch", "test", "dev", "docs"}
    assert "skmix[cli,plot,tables]" in EXTRAS["report"]


def test_hints_name_extras_that_exist_and_how_to_install_them_is_said_once() -> None:
    sources = {path: path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py")}
    hint = re.compile(r"how_to_install\('(\w+)'\)")
    assert {name for text in sources.values() for name in hint.findall(text)} == {"torch"}
    assert [path.parent.name for path, text in sources.items() if "pip install" in text] == ["skmix"]


def test_pages_install_from_a_checkout() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert not re.search(r"pip install .?skmix", text), page.name
        assert set(re.findall(r'pip install "\.\[(\w+)', text)) <= set(EXTRAS), page.name


def test_numbers_of_the_paper_are_those_that_were_measured() -> None:
    paper = " ".join((ROOT / "paper" / "paper.md").read_text(encoding="utf-8").split())
    results = ROOT / "benchmarks" / "results"
    passes, densities = (pd.read_csv(results / f"{name}.csv") for name in ("passes", "densities"))
    ratios = passes[passes["cores"] == 16]["scikit-learn"]
    judging = densities[densities["half"] == "judging"]["gain"].str.split(" ").str[0].astype(float)
    for said in (
        f"{ratios.min():.1f} to {ratios.max():.1f} times faster",
        f"{judging.mean():.2f} nats a row",
        f"(median {judging.median():.2f})",
    ):
        assert said in paper
    outcomes = map(Outcome.from_dict, read_lines(ROOT / "benchmarks" / "results" / "accuracy.jsonl"))
    judging = summarise(each for each in outcomes if half_of(each.data) == "judging")
    ranks = mean_ranks(judging, "error")
    best = min(rank for name, rank in ranks.items() if "shared" not in name)
    own = f"mean rank of {ranks['shared kernels']:.1f} by test error among {len(ranks)} classifiers"
    assert f"{own}, where the best other has {best:.1f}" in paper


def test_references_of_the_paper_are_in_its_bibliography() -> None:
    text = (ROOT / "paper" / "paper.md").read_text(encoding="utf-8")
    entries = re.findall(r"^@\w+\{(\w+),", (ROOT / "paper" / "paper.bib").read_text("utf-8"), re.MULTILINE)
    assert set(re.findall(r"@(\w+\d{4})", text)) == set(entries)
    for picture in re.findall(r"\]\(([^)]+\.png)\)", text):
        assert (ROOT / "paper" / picture).is_file()


def test_the_algorithm_is_cited_alike_everywhere() -> None:
    (reference,) = read_yaml("CITATION.cff")["references"]
    (author,) = reference["authors"]
    for name in ("paper/paper.bib", "README.md"):
        text = (ROOT / name).read_text(encoding="utf-8")
        entry = re.search(r"^@\w+\{pulford(\d{4}),\n(.*?)^\}", text, re.DOTALL | re.IGNORECASE | re.MULTILINE)
        assert entry is not None
        assert entry[1] == str(reference["year"])
        assert f"author = {{{author['family-names']}, {author['given-names']}}}" in entry[2]
        assert f"year = {{{reference['year']}}}" in entry[2]
        assert reference["identifiers"][0]["value"].removeprefix("arXiv:") in entry[2]
