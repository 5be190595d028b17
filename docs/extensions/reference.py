"""Pages of classes: a summary of the methods first, then the parameters under headings.

``docs/api/parameters.toml`` has the headings. Each parameter has an anchor and is an object of its own: pages
link to it, as ``{parameter}`SharedKernelMixture.n_kernels```, and the search finds it.
"""

from __future__ import annotations

import inspect
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

import skmix

ARRANGED = tomllib.loads(
    (Path(__file__).parents[1] / "api" / "parameters.toml").read_text(encoding="utf-8")
)
WHEN = "When to change:"
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


def arrange(
    app: Sphinx, domain: str, objtype: str, content: addnodes.desc_content
) -> None:
    """Rearrange the page of a class."""
    if domain != "py" or objtype != "class":
        return
    name = content.parent[0]["fullname"]
    methods = {
        each[0]["fullname"].rpartition(".")[2]: each
        for each in content.findall(addnodes.desc)
        if each["objtype"] == "method" and each[0]["ids"]
    }
    links = {method: node[0]["ids"][0] for method, node in methods.items()}
    for fields in list(content.children):
        if isinstance(fields, nodes.field_list):
            parts = [
                part
                for field in fields
                for part in arranged(app.env, name, field, links)
            ]
            place = content.index(fields)
            content.remove(fields)
            content[place:place] = parts
    link_names(content, links, app.env.docname)
    if len(methods) > 2:
        ends = (nodes.rubric, addnodes.desc)
        first = next(i for i, each in enumerate(content) if isinstance(each, ends))
        content[first:first] = [nodes.rubric("", "Methods"), summary(methods, links)]


def arranged(
    env: BuildEnvironment, name: str, field: nodes.field, links: dict[str, str]
) -> list[nodes.Node]:
    """Return what stands for a field of a docstring: for parameters of estimators, headings and anchors."""
    title, body = field[0].astext(), list(field[1].children)
    parts: list[nodes.Node] = [nodes.rubric("", title)]
    entries = [
        item for part in body for item in part.findall(nodes.definition_list_item)
    ]
    found = {item[0][0].astext(): item for item in entries}
    if title != "Parameters" or not set(found) <= set(OWNERS):
        return [*parts, *body]
    for parameter, item in found.items():
        links[parameter] = anchor = f"{name}.{parameter}"
        item[0]["ids"].append(anchor)
        item[-2] += nodes.reference("", "#", refid=anchor, classes=["headerlink"])
        env.domains.standard_domain.note_object(
            "parameter", anchor, anchor, location=item
        )
        say_when(item[-1])
    for heading, pages in ARRANGED["parameters"].items():
        own = [key for key in pages if key in found]
        if own:
            parts += [
                nodes.rubric("", heading, classes=["parameter-group"]),
                nodes.definition_list("", *(found[key] for key in own)),
            ]
            for key in own:
                found[key][-1] += see_guide(env.docname, pages[key])
    return parts


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


def see_guide(docname: str, page: str) -> nodes.paragraph:
    """Return a line with a link to a page of the guide."""
    link = link_to("doc", f"/{page}", docname, nodes.inline("", page))
    return nodes.paragraph(
        "", "", nodes.Text("See "), link, nodes.Text("."), classes=["see-guide"]
    )


def link_to(
    kind: str, target: str, docname: str, text: nodes.Node, domain: str = "std"
) -> addnodes.pending_xref:
    """Return a link; to a page it gets the page's title."""
    return addnodes.pending_xref(
        "", text, refdomain=domain, reftype=kind, reftarget=target, refdoc=docname, refwarn=True,
        refexplicit=kind != "doc",
    )  # fmt: skip


def link_names(content: nodes.Element, links: dict[str, str], docname: str) -> None:
    """Make names between single backticks code: those of estimators, parameters and methods are links."""
    for node in list(content.findall(nodes.title_reference)):
        text = node.astext()
        code = nodes.literal("", text)
        target = links.get(text)
        if target:
            node.replace_self(nodes.reference("", "", code, refid=target))
        elif text in skmix.__all__:
            node.replace_self(
                link_to("obj", f"skmix.{text}", docname, code, domain="py")
            )
        else:
            node.replace_self(code)


def summary(methods: dict[str, addnodes.desc], links: dict[str, str]) -> nodes.table:
    """Return a table of methods under headings, each with its first sentence."""
    headings = dict(ARRANGED["methods"])
    listed = {name for names in headings.values() for name in names}
    rest = [name for name in links if name in methods and name not in listed]
    body = nodes.tbody()
    for heading, names in (
        {**headings, "Others": rest} if len(rest) < len(methods) else {"": rest}
    ).items():
        own = [name for name in names if name in methods]
        if own and heading:
            body += nodes.row("", cell([nodes.strong("", heading)], morecols=1))
        for name in own:
            link = nodes.reference("", "", nodes.literal("", name), refid=links[name])
            body += nodes.row("", cell([link]), cell(first_sentence(methods[name])))
    columns = [nodes.colspec(colwidth=width) for width in (30, 70)]
    return nodes.table(
        "", nodes.tgroup("", *columns, body, cols=2), classes=["method-summary"]
    )


def cell(content: Iterable[nodes.Node], **attributes: Any) -> nodes.entry:
    return nodes.entry("", nodes.paragraph("", "", *content), **attributes)


def first_sentence(method: addnodes.desc) -> list[nodes.Node]:
    paragraph = next(method[-1].findall(nodes.paragraph), None)
    return [] if paragraph is None else [each.deepcopy() for each in paragraph.children]


def link_guide(app: Sphinx, document: nodes.document) -> None:
    """Link the first mention of each parameter on a page of the guide, as `name` or `name=value`."""
    if not app.env.docname.startswith("guide/"):
        return
    linked = {"tune"}  # a method has the same name
    for code in list(document.findall(nodes.literal)):
        name = code.astext().partition("=")[0]
        inside = isinstance(
            code.parent, (nodes.reference, nodes.title, addnodes.pending_xref)
        )
        if name in OWNERS and name not in linked and not inside:
            linked.add(name)
            link = link_to(
                "parameter", f"{OWNERS[name]}.{name}", app.env.docname, code.deepcopy()
            )
            code.replace_self(link)


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_object_type("parameter", "parameter", objname="parameter")
    app.connect("object-description-transform", arrange)
    app.connect("doctree-read", link_guide)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
