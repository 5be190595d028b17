"""Pages of classes: parameters in a table of rows that open, attributes folded, each method on its own page.

``docs/api/parameters.toml`` has the headings. Each parameter has an anchor and is an object of its own: pages
link to it, as ``{parameter}`SharedKernelMixture.n_kernels```, and the search finds it.
"""

from __future__ import annotations

import inspect
import re
import tomllib
from pathlib import Path
from typing import Any

from docutils import nodes
from formulas import set_formulas
from inherited import is_hidden
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import import_object
from sphinx.writers.html5 import HTML5Translator

import skmix

ARRANGED = tomllib.loads(
    (Path(__file__).parents[1] / "api" / "parameters.toml").read_text(encoding="utf-8")
)
WHEN = "When to change:"
NOTE = "A row opens to the type, the effect and when to change it."
MOST_ATTRIBUTES = 3
"""More attributes than these are folded."""
# Where the first clause of a description ends; a colon ends only one that already says something.
CLAUSE = re.compile(r"[.;](?=\s|$)|(?<=.{40}):(?=\s)", re.DOTALL)
FOLDED = ("Notes", "References")
DOTTED = re.compile(r"\w+(?:\.\w+)+")
# Whose parameter the guide means: that of the last of these that has it.
OWNERS = {
    name: owner.__name__
    for owner in (
        skmix.SharedKernelMixtureCV,
        skmix.SharedKernelClassifierCV,
        skmix.SharedKernelClassifier,
        skmix.SharedKernelMixture,
    )
    for name in inspect.signature(owner).parameters
}


class Details(nodes.General, nodes.Element):
    """What opens when its first child, the summary, is clicked."""


class Summary(nodes.General, nodes.Element):
    """The part of `Details` that is always seen."""


def arrange(
    app: Sphinx, domain: str, objtype: str, content: addnodes.desc_content
) -> None:
    """Rearrange the description of a class or a method."""
    if domain != "py" or objtype not in ("class", "method"):
        return
    signature = content.parent[0]
    module, name = signature["module"], signature["fullname"]
    owner = name if objtype == "class" else name.rpartition(".")[0]
    thing = import_object(f"{module}.{owner}")
    if objtype == "class":
        arrange_class(app.env, content, name, thing)
    targets = targets_of(module, owner, thing)
    if objtype == "method":
        # A method's own parameters are not those of its class.
        own = inspect.signature(import_object(f"{module}.{name}")).parameters
        targets = {key: target for key, target in targets.items() if key not in own}
    link_names(content, targets, app.env.docname)


def targets_of(module: str, name: str, thing: Any) -> dict[str, tuple[str, str, str]]:
    """Return what names on pages of a class link to, as domain, role and target."""
    targets = {
        method: ("py", "meth", f"{module}.{name}.{method}")
        for method, found in inspect.getmembers(thing, inspect.isroutine)
        if not method.startswith("_") and found.__doc__ and not is_hidden(method, found)
    }
    for parameter in inspect.signature(thing).parameters if is_estimator(thing) else ():
        targets[parameter] = ("std", "parameter", f"{name}.{parameter}")
    return targets


def is_estimator(thing: Any) -> bool:
    """Say whether the parameters of a class have their places in ``parameters.toml``."""
    return thing.__name__ in set(OWNERS.values())


def arrange_class(
    env: BuildEnvironment, content: addnodes.desc_content, name: str, thing: Any
) -> None:
    """Put the parts of a class's page where they belong."""
    attributes: list[nodes.Node] = []
    for fields in list(content.findall(nodes.field_list)):
        if fields.parent is not content:
            continue
        parts: list[nodes.Node] = []
        for field in fields:
            title, body = field[0].astext(), list(field[1].children)
            if title == "Parameters" and is_estimator(thing):
                parts += table_of_parameters(env, name, body, thing)
            elif title == "Attributes":
                attributes += body
                parts.append(nodes.rubric("", title, classes=["attributes"]))
            else:
                parts += [nodes.rubric("", title), *body]
        place = content.index(fields)
        content.remove(fields)
        content[place:place] = parts
    fold_attributes(content, attributes)
    if is_estimator(thing):
        fold_notes(content)
        shorten(content.parent[0])


def shorten(signature: addnodes.desc_signature) -> None:
    """Leave the parameters of a signature to their table."""
    for listed in list(signature.findall(addnodes.desc_parameterlist)):
        short = addnodes.desc_parameterlist("", "", child_text_separator=", ")
        short += addnodes.desc_parameter("", "", nodes.Text("…"))
        listed.replace_self(short)


def fold_attributes(
    content: addnodes.desc_content, attributes: list[nodes.Node]
) -> None:
    """Put the attributes, and properties, where their heading is; many of them open with it."""
    heading = next(
        (each for each in content if "attributes" in each.get("classes", ())), None
    )
    if heading is None:
        return
    own = [
        each
        for each in content
        if isinstance(each, addnodes.desc)
        and each["objtype"] in ("property", "attribute")
    ]
    names = [
        item[0][0].astext()
        for part in attributes
        for item in part.findall(nodes.definition_list_item)
    ]
    names += [each[0]["fullname"].rpartition(".")[2] for each in own]
    for each in own:
        content.remove(each)
    parts = [*attributes, *own]
    if len(names) > MOST_ATTRIBUTES:
        title = nodes.inline("", heading.astext(), classes=["rubric"])
        listed = nodes.inline(
            "", " ".join(dict.fromkeys(names)), classes=["attribute-names"]
        )
        parts = [Details("", Summary("", title, listed), *parts, classes=["folded"])]
        content.replace(heading, parts)
    else:
        place = content.index(heading) + 1
        content[place:place] = parts


def fold_notes(content: addnodes.desc_content) -> None:
    """Fold the notes and references of an estimator into one."""
    ends = (nodes.rubric, addnodes.desc, addnodes.seealso, Details)
    folded: list[nodes.Node] = []
    titles = []
    for heading in list(content.children):
        if isinstance(heading, nodes.rubric) and heading.astext() in FOLDED:
            start = content.index(heading)
            parts = [heading]
            for each in content.children[start + 1 :]:
                if isinstance(each, ends):
                    break
                parts.append(each)
            titles.append(heading.astext().lower())
            folded += parts[1:]
            place = start
            for each in parts:
                content.remove(each)
    if folded:
        title = nodes.inline("", " and ".join(titles).capitalize(), classes=["rubric"])
        whole = Details("", Summary("", title), *folded, classes=["folded"])
        content.insert(place, whole)


def table_of_parameters(
    env: BuildEnvironment, name: str, body: list[nodes.Node], thing: Any
) -> list[nodes.Node]:
    """Return the parameters under their headings: a row each with name, default, first clause and page."""
    found = {
        item[0][0].astext(): item
        for part in body
        for item in part.findall(nodes.definition_list_item)
    }
    parts: list[nodes.Node] = [
        nodes.rubric("", "", nodes.Text("Parameters "), nodes.inline("", NOTE)),
    ]
    defaults = {
        key: parameter.default
        for key, parameter in inspect.signature(thing).parameters.items()
    }
    for heading, pages in ARRANGED["parameters"].items():
        own = [key for key in pages if key in found]
        if own:
            rows = [
                parameter_row(
                    env, f"{name}.{key}", found[key], defaults[key], pages[key]
                )
                for key in own
            ]
            parts += [
                nodes.rubric("", heading, classes=["parameter-group"]),
                nodes.container("", *rows, classes=["parameters"]),
            ]
    return parts


def parameter_row(
    env: BuildEnvironment,
    anchor: str,
    item: nodes.definition_list_item,
    default: Any,
    page: str,
) -> Details:
    """Return the row of a parameter, which opens to all that is said of it."""
    definition = item[-1]
    line = first_clause(definition)
    say_when(definition)
    text = list(definition.children)
    if isinstance(item[-2], nodes.classifier):
        kind = item[-2].astext().partition("default=")[0].removesuffix(", ")
        text.insert(0, nodes.paragraph("", "", nodes.emphasis("", kind)))
    word = nodes.inline("", "Guide" if page.startswith("guide/") else "More")
    guide = link_to("std", "doc", f"/{page}", env.docname, word)
    guide["refexplicit"] = True
    row = Details(
        "",
        Summary(
            "",
            nodes.literal("", anchor.rpartition(".")[2], classes=["name"]),
            nodes.literal("", repr(default), classes=["default"]),
            nodes.inline("", "", *line, classes=["line"]),
            nodes.inline("", "", guide, classes=["guide"]),
        ),
        *text,
        see_guide(env.docname, page, anchor),
        ids=[anchor],
        classes=["parameter"],
    )
    env.domains.standard_domain.note_object("parameter", anchor, anchor, location=item)
    return row


def first_clause(definition: nodes.Element) -> list[nodes.Node]:
    """Return what a description says up to the first full stop or semicolon."""
    line: list[nodes.Node] = []
    for node in next(definition.findall(nodes.paragraph)).children:
        end = CLAUSE.search(node) if isinstance(node, nodes.Text) else None
        if end:
            return [*line, nodes.Text(node[: end.start()])]
        line.append(node.deepcopy())
    return line


def say_when(definition: nodes.Element) -> None:
    """Put what is said of when to change a parameter into a paragraph of its own."""
    for text in list(definition.findall(nodes.Text)):
        before, found, after = text.partition(WHEN)
        if found:
            paragraph = text.parent
            rest = paragraph.children[paragraph.index(text) + 1 :]
            for each in (text, *rest):
                paragraph.remove(each)
            paragraph += nodes.Text(before.rstrip())
            own = nodes.paragraph(
                "", "", nodes.strong("", WHEN), nodes.Text(after), *rest
            )
            definition.insert(definition.index(paragraph) + 1, own)


def see_guide(docname: str, page: str, anchor: str) -> nodes.paragraph:
    """Return a line with a link to a page of the guide, by its title, and to the row itself."""
    link = link_to("std", "doc", f"/{page}", docname, nodes.inline("", page))
    own = nodes.reference("", "Link to this row", refid=anchor)
    parts = (nodes.Text("See "), link, nodes.Text(". "), own, nodes.Text("."))
    return nodes.paragraph("", "", *parts, classes=["see-guide"])


def link_to(
    domain: str, kind: str, target: str, docname: str, text: nodes.Node
) -> addnodes.pending_xref:
    """Return a link; to a page it gets the page's title."""
    return addnodes.pending_xref(
        "", text, refdomain=domain, reftype=kind, reftarget=target, refdoc=docname, refwarn=True,
        refexplicit=kind != "doc",
    )  # fmt: skip


def link_names(
    content: nodes.Element, targets: dict[str, tuple[str, str, str]], docname: str
) -> None:
    """Make names between single backticks code: those of estimators, parameters and methods are links."""
    for node in list(content.findall(nodes.title_reference)):
        text = node.astext()
        target = targets.get(text)
        if target is None and text in skmix.__all__:
            target = ("py", "obj", f"skmix.{text}")
        code = nodes.literal("", text)
        node.replace_self(link_to(*target, docname, code) if target else code)


def link_code(app: Sphinx, document: nodes.document) -> None:
    """Link names in the text of a page.

    Names from ``skmix.`` on are links wherever they stand; those of the package, and on pages of the guide
    `name` or `name=value` of a parameter, where they stand first. So pages need no roles, which are not read
    where they are seen as they are written. "scikit-learn's `GaussianMixture`" is not ours.
    """
    docname = app.env.docname
    if docname.startswith("api/"):
        # Tables of methods have their first sentences.
        link_names(document, {}, docname)
        return
    linked = {"tune"}  # a method has the same name
    for code in list(document.findall(nodes.literal)):
        text = code.astext()
        name = text.partition("=")[0]
        inside = (nodes.reference, nodes.title, addnodes.pending_xref)
        if isinstance(code.parent, inside) or name in linked or is_anothers(code):
            continue
        shown = code.deepcopy()
        if text.startswith("skmix.") and DOTTED.fullmatch(text):
            target = ("py", "obj", text)
            if text.startswith("skmix.engine."):
                thing = import_object(text)
                shown = nodes.literal("", getattr(thing, "__qualname__", text))
        elif text in skmix.__all__:
            target = ("py", "obj", f"skmix.{text}")
            linked.add(text)
        elif name in OWNERS and docname.startswith("guide/"):
            target = ("std", "parameter", f"{OWNERS[name]}.{name}")
            linked.add(name)
        else:
            continue
        link = link_to(*target, docname, shown)
        link["plain"] = True
        code.replace_self(link)


def is_anothers(code: nodes.literal) -> bool:
    """Return whether a name is said to be that of another library."""
    before = "".join(node.astext() for node in code.parent[: code.parent.index(code)])
    return before.rstrip().endswith(("scikit-learn's", "Spark ML's"))


def leave_plain(
    app: Sphinx, env: BuildEnvironment, node: addnodes.pending_xref, text: nodes.Node
) -> nodes.Node | None:
    """Leave a name in the text as it is if the reference does not have it."""
    return text if node.get("plain") else None


def on_docstring(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]
) -> None:
    lines[:] = set_formulas("\n".join(lines)).split("\n")


def shorten_title(app: Sphinx, document: nodes.document) -> None:
    """Call the page of a method by its name alone in the sidebar, which lists it below its class."""
    described = next(document.findall(addnodes.desc), None)
    if described is not None and described["objtype"] == "method":
        name = described[0]["fullname"].rpartition(".")[2]
        app.env.titles[app.env.docname] = nodes.title("", name)
        listed = next(app.env.tocs[app.env.docname].findall(nodes.reference))
        listed[:] = [nodes.Text(name)]


def drop_neighbours(
    app: Sphinx, name: str, template: str, context: dict[str, Any], document: Any
) -> None:
    """Leave out the links to the page before and after, which would be methods of other classes."""
    if name.startswith("api/generated/"):
        context["prev"] = context["next"] = None


def visit(self: HTML5Translator, node: nodes.Element) -> None:
    self.body.append(self.starttag(node, node.tagname.lower()))


def depart(self: HTML5Translator, node: nodes.Element) -> None:
    self.body.append(f"</{node.tagname.lower()}>\n")


def group_methods(app: Sphinx, config: Any) -> None:
    """Give the template of classes the headings of methods."""
    config.autosummary_context = {"method_groups": ARRANGED["methods"]}


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_object_type("parameter", "parameter", objname="parameter")
    app.add_node(Details, html=(visit, depart))
    app.add_node(Summary, html=(visit, depart))
    app.connect("config-inited", group_methods)
    # Before numpydoc, which reads the sections.
    app.connect("autodoc-process-docstring", on_docstring, priority=400)
    app.connect("object-description-transform", arrange)
    app.connect("doctree-read", link_code)
    app.connect("missing-reference", leave_plain)
    app.connect("html-page-context", drop_neighbours)
    app.connect("doctree-read", shorten_title, priority=600)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
