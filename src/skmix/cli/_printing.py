"""What commands print: lines, tables, JSON, and results in words."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from skmix.report import Evaluation

# Lines of a long table that are printed: classes, kernels or samples.
_MAX_LINES = 20
# Features that are named.
_MAX_NAMES = 12
# Classes whose confusion matrix fits on a terminal; of more, its largest entries are printed.
_MAX_CLASSES = 12
# Classes that fit on a screen; of more, the worst are printed.
_MAX_CLASS_LINES = 40

# Control characters, those that turn the direction of writing, and halves of characters.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def verbatim(text: str) -> str:
    r"""Return text for a line of a terminal; control characters, which data may have, become ``\x1b``."""
    return _UNPRINTABLE.sub(lambda found: ascii(found[0])[1:-1], text)


def console() -> Console:
    """Return a console that prints text as it is: no markup and no emoji."""
    return Console(markup=False, emoji=False, highlight=False)


def say(text: str = "", *, err: bool = False) -> None:
    """Print a line without wrapping it; new lines and tabs in it, as names may have them, are escaped."""
    typer.echo(verbatim(text), err=err)


def table(headings: Iterable[str], rows: Iterable[Sequence[str]], *, wrapped: bool = False) -> Table:
    """Return a table for `console`: names, then numbers; `wrapped` headings have a word on each line."""
    shown = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    for place, heading in enumerate(headings):
        words = heading.split(" ") if wrapped else [heading]
        heading = "\n".join(verbatim(word) for word in words)
        shown.add_column(heading, justify="right" if place else "left", no_wrap=place > 0)
    for row in rows:
        shown.add_row(*(verbatim(cell) for cell in row))
    return shown


def counted(number: int, one: str, several: str | None = None) -> str:
    """Return a number with its noun in the singular or plural."""
    return f"{number} {one if number == 1 else several or one + 's'}"


def count(number: float) -> str:
    """Return a number of rows as text; it need not be whole where they have weights."""
    return str(int(number)) if float(number).is_integer() else f"{number:.6g}"


def print_json(content: Any) -> None:
    """Print numbers, strings, lists and dictionaries as JSON in ASCII, with null for NaN and infinities."""
    plain = json.loads(json.dumps(content), parse_constant=lambda name: None)
    typer.echo(json.dumps(plain, indent=2))


# ---------------------------------------------------------------- results


def print_fit(outcome: dict[str, Any], *, err: bool) -> None:
    """Print the result of `skmix fit` in sentences."""
    classes = outcome["classes"]
    first = f"{outcome['n_rows']} rows, {counted(len(outcome['columns']), 'feature')}"
    if classes:
        sizes = {each["n_rows"] for each in classes}
        shown = ", ".join(f"{each['label']} {count(each['n_rows'])}" for each in classes[:10])
        shown += " ..." if len(classes) > 10 else ""
        shown = f"{count(sizes.pop())} rows each" if len(sizes) == 1 else shown
        first += f", {len(classes)} classes ({shown})"
    if outcome["n_unlabelled"]:
        first += f", {outcome['n_unlabelled']} rows without a label"
    lines = [first, *_about(outcome)]
    if outcome["n_candidates"]:
        chosen = f"chosen among {counted(outcome['n_candidates'], 'candidate')}"
        if outcome["n_untried"]:
            chosen += f"; {outcome['n_untried']} more were not tried within --time-limit"
        lines.append(chosen)
    lines += accuracies(outcome)
    if outcome["model"] is not None:
        lines.append(f"written into {outcome['model']}")
    for line in lines:
        say(line, err=err)


def accuracies(described: dict[str, Any]) -> list[str]:
    """Return lines on the accuracy of a described model, on its training rows and on others."""
    from skmix.report.intervals import outwards

    quality = described["quality"]
    if not quality:
        return []
    lines = [f"Accuracy on the training rows: {100 * quality['training_accuracy']:.1f} %"]
    if tested := quality["tested"]:
        shares = [100 * share for share in tested["by_fold"]]
        where = f"by {len(shares)}-fold cross-validation"
        more = f"folds from {outwards(min(shares), max(shares), '.1f')} %"
        if len(shares) == 1:
            where = f"on {count(tested['n_rows'])} held-out rows"
            more = "by a second fit; the model is fitted to all rows"
        found = f"{100 * tested['accuracy']:.1f} % ({more}), log-loss {tested['log_loss']:.3f}"
        lines.append(f"Accuracy {where}: {found}")
    return lines


def _about(described: dict[str, Any]) -> list[str]:
    """Return lines on a model that `report.describe` describes."""
    from skmix._words import listed
    from skmix.report.description import facts, serving

    names = [
        each["name"] + (f" ({listed(each['categories'], _MAX_NAMES)})" if each["categories"] else "")
        for each in described["columns"]
    ]
    kernels = ", ".join(str(each["n_kernels"]) for each in described["feature_sets"])
    found = {
        "features": (f"{len(names)}: " if len(names) <= _MAX_NAMES else "") + listed(names, _MAX_NAMES),
        "kernels": kernels + (f", {serving(described)}" if len(described["classes"]) > 1 else ""),
    }
    for key, fact in facts(described).items():
        found[key] = f"{found[key]}, {fact}" if key in found else fact
    return [f"  {key:<12}{fact}" for key, fact in found.items()]


def print_evaluation(found: Evaluation) -> None:
    """Print measures, classes and the confusion matrix."""
    say(f"{count(found.n_rows)} rows, {len(found.classes)} classes")
    say()
    console().print(table(["", "value", "95 % interval", "baseline"], found.lines()))
    console().print(*found.remarks())
    places: Sequence[int] = range(len(found.classes))
    if len(places) > _MAX_CLASS_LINES:
        # NaN, of classes without rows, sorts last.
        places = found.f1.argsort(kind="stable")[:_MAX_LINES].tolist()
    refused = {} if found.refused is None else {"refused": found.refused}
    rows = [
        [
            found.classes[place],
            *(count(each[place]) for each in (found.n_labelled, *refused.values())),
            *(f"{each[place]:.3f}".replace("nan", "") for each in (found.precision, found.recall, found.f1)),
        ]
        for place in places
    ]
    say()
    console().print(table(["class", "rows", *refused, "precision", "recall", "F1"], rows))
    if len(places) < len(found.classes):
        say(f"These have the lowest F1 of {len(found.classes)} classes; --json has all.")
    say()
    if len(found.classes) > _MAX_CLASSES:
        headings = ["most frequent mistakes", "taken for", "rows"]
        rows = [[found.classes[true], found.classes[taken], count(n)] for true, taken, n in found.mistakes()]
    else:
        headings = ["true \\ predicted", *found.classes]
        rows = [
            [label, *map(count, line)] for label, line in zip(found.classes, found.confusion, strict=True)
        ]
    console().print(table(headings, rows))


def print_model(described: dict[str, Any], name: str) -> None:
    """Print what `report.describe` returns for a model."""
    from skmix._words import listed

    classes, sets = described["classes"], described["feature_sets"]
    say(f"{name}: {described['kind']}")
    for line in _about(described):
        say(line)
    if described["target"]:
        say(f"  {'target':<12}{described['target']}")
    for line in accuracies(described):
        say(line)
    if classes:
        rows = [
            [each["label"], "" if each["n_rows"] is None else f"{each['n_rows']:g}", f"{each['prior']:.3f}"]
            for each in classes[:_MAX_LINES]
        ]
        say()
        console().print(table(["class", "rows", "prior"], rows))
        _print_more(len(classes) - _MAX_LINES, "classes")
    for each in sets:
        say()
        if len(sets) > 1:
            say(f"feature set {listed(each['features'], _MAX_NAMES)}")
        _print_weights(each, [own["label"] for own in classes] or ["weight"])


def _print_weights(part: dict[str, Any], labels: list[str]) -> None:
    """Print how much each class uses each kernel: the kernels with most rows, and the classes that fit."""
    from skmix.plots.style import short_name

    weights, shares = part["weights"], part["shares"]
    terminal = console()
    # A column has one blank beside it.
    ends = itertools.accumulate((max(len(label), 5) + 1 for label in labels), initial=len("kernel share "))
    n_shown = max(1, sum(end <= terminal.width for end in ends) - 1)
    kernels = sorted(range(len(shares)), key=lambda k: -shares[k])[:_MAX_LINES]
    rows = [
        [short_name(k), *(f"{number:.3f}" for number in (shares[k], *weights[k][:n_shown]))] for k in kernels
    ]
    terminal.print(table(["kernel", "share", *labels[:n_shown]], rows))
    _print_more(len(weights) - _MAX_LINES, "kernels")
    _print_more(len(labels) - n_shown, "classes")


def _print_more(number: int, what: str) -> None:
    if number > 0:
        say(f"... and {number} more {what}; --json has all.")


def print_study(
    outcome: dict[str, Any],
    proportions: Any,
    differences: Any = None,
    *,
    name: str | None = None,
    fitted: bool = True,
    err: bool = False,
) -> None:
    """Print what `Study.describe` returns, the first proportions, and the differences between conditions.

    `name` is that of the study's file; `fitted` is whether its kernels were fitted to these samples.
    """
    from skmix._words import listed
    from skmix.data.recipe import in_words
    from skmix.report.description import ending
    from skmix.samples.judging import FEWEST_SAMPLES
    from skmix.samples.study import MOST_LISTED, search_in_words

    samples, markers = outcome["samples"], outcome["markers"]
    kernels = counted(outcome["n_kernels"], "kernel")
    if fitted and outcome["search"] is not None:
        kernels += f" ({search_in_words(outcome['search'])})"
    if outcome["n_populations"] is not None:
        kernels += f", merged into {counted(outcome['n_populations'], 'population')}"
    if outcome["joined"]:
        kernels += f"; joined: {'; '.join(' + '.join(names) for names in outcome['joined'])}"
    lines = [
        f"{counted(len(samples), 'sample')}, {outcome['n_cells']} cells, "
        f"{counted(len(markers), 'marker')} ({listed(markers, MOST_LISTED)})",
        f"transform {in_words(outcome)}",
        kernels,
        *([ending(outcome)] if fitted else []),
    ]
    if name is not None:
        say(f"{name}: Study")
    for line in lines:
        say(line, err=err)
    if not err:
        say()
        _print_proportions(samples, proportions, "--table" if name is None else "--json")
    for warning in outcome["warnings"]:
        say(f"Warning: {warning}", err=err)
    unusual = [each["sample"] for each in samples if each["unusual"]]
    if unusual:
        say(f"* unusual: {listed(unusual, MOST_LISTED)}", err=err)
    elif any(each["unusual"] is None for each in samples):
        say(
            f"unusual samples were not judged: this takes at least {FEWEST_SAMPLES} samples in the model",
            err=err,
        )
    if differences is not None and not err:
        _print_differences(differences, outcome["design"], "--comparison" if name is None else "--json")


def _print_proportions(samples: Sequence[dict[str, Any]], proportions: Any, rest: str) -> None:
    """Print the proportions in the first samples and populations in percent; an option has the `rest`."""
    from skmix.plots.style import short_name

    part = "population" if "population" in proportions else "kernel"
    shares = 100.0 * proportions["proportion"].to_numpy().reshape(len(samples), -1)
    terminal = console()
    names = [f"{each['sample']}{' *' if each['unusual'] else ''}" for each in samples[:_MAX_LINES]]
    width = max(map(len, [*names, "sample"])) + len(f" {max(each['cells'] for each in samples)}") + 3
    heads = [short_name(each, part) for each in proportions[part][: shares.shape[1]]]
    ends = itertools.accumulate((max(5, *map(len, head.split(" "))) + 1 for head in heads), initial=width)
    n_shown = max(1, sum(end <= terminal.width for end in ends) - 1)
    rows = [
        [name, str(each["cells"]), *(f"{share:.1f}" for share in own[:n_shown])]
        for name, each, own in zip(names, samples, shares, strict=False)
    ]
    terminal.print(table(["sample", "cells", *heads[:n_shown]], rows, wrapped=True))
    left = {"sample": len(samples) - len(names), part: shares.shape[1] - n_shown}
    more = " and ".join(counted(number, f"more {what}") for what, number in left.items() if number > 0)
    say(f"Percent of each sample by {part}" + (f"; {more}: {rest} has all." if more else "."))


def _print_differences(differences: Any, design: dict[str, str | None], rest: str) -> None:
    """Print the clearest differences between two conditions in percent; an option has the `rest`."""
    from skmix.plots.style import short_name
    from skmix.report.intervals import outwards
    from skmix.samples.differences import by_q_value

    part, *columns = list(differences)
    order = by_q_value(differences)
    # Adding zero turns -0.0 into 0.0.
    percents = (100.0 * differences[columns[:5]].to_numpy()).round(6) + 0.0
    tests = differences[columns[5:]].to_numpy()
    rows = [
        [
            short_name(differences[part][g], part),
            *(f"{value:.3g}" for value in percents[g, :2]),
            f"{percents[g, 2]:+.3g}",
            outwards(percents[g, 3], percents[g, 4], "+.3g"),
            *(f"{value:.2g}" for value in tests[g]),
        ]
        for g in order[:_MAX_LINES]
    ]
    one, other = (name.removeprefix("proportion_") for name in columns[:2])
    say()
    console().print(table([part, one, other, "difference", "95 % interval", "p", "q"], rows))
    how = f", within pairs by {design['pair']}" if design["pair"] else ""
    how = f", adjusted for {design['covariate']}" if design["covariate"] else how
    more = len(order) - len(rows)
    what = f"; {counted(more, f'more {part}')}: {rest} has all." if more > 0 else "."
    say(f"Percent by {design['condition']}{how}; the clearest difference, {one} − {other}, first{what}")
