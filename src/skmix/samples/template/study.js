"use strict";
// The page of a study: heat map of proportions, kernels in planes of two markers, map of cells, tree of merges.

const DASHES = [null, "7 3", "2 3", "7 3 2 3"];
const MOST_NUMBERED = 30;
const N_STD = 2;

const nameOf = (g) => report.populations[g].name;
const percent = (value) => `${value === 0 ? 0 : value.toFixed(value >= 1 ? 1 : value >= 0.1 ? 2 : 3)} %`;
const short = (value) => (value >= 0.05 ? value.toFixed(1) : value > 0 ? "<0.1" : "0");
const intervalOf = (i, g) => (report.lower[i][g] === null ? "unknown" : `${percent(report.lower[i][g])} to ${percent(report.upper[i][g])}`.replace(" % to", " to"));
const dashOf = (g) => DASHES[Math.floor(g / report.colours.length) % DASHES.length];
const markOf = (sample) => (sample.unusual ? make("span", { class: "mark" }, " ▲", make("span", { class: "unseen" }, " (unusual)")) : null);

// Long names lose what all have in common at both ends and, if there is no room, their middle.
const shared = (names) => (names.length > 1 ? [...names[0]].findIndex((letter, n) => names.some((name) => name[n] !== letter)) : 0);
const [before, after] = [(name) => name, (name) => [...name].reverse().join("")].map((turn) => shared(report.samples.map(({ name }) => turn(name))));

function ends(name) {
  const first = name.length > 18 && before > 8 ? before - 4 : 0;
  const last = name.length > 18 && after > 8 ? Math.max(first + 4, name.length - after + 4) : name.length;
  const text = `${first ? "…" : ""}${name.slice(first, last)}${last < name.length ? "…" : ""}`;
  return [make("span", { class: "cut" }, text.slice(0, -10)), make("span", {}, text.slice(-10))];
}

function populationKey(g) {
  return draw("svg", { class: "row-key", viewBox: "-5 -5 10 10", "aria-hidden": "true" }, draw("path", { fill: colourOf(g), d: shapeOf(g)(0, 0) }));
}

for (const place of document.querySelectorAll(".population-key")) place.replaceChildren(populationKey(Number(place.dataset.population)));

// ---------------------------------------------------------------- heat map

const heat = document.getElementById("heat");
const heatOrder = document.getElementById("heat-order");

function tellProportion(i, g) {
  const sample = report.samples[i];
  return `${sample.name}, ${nameOf(g)}: ${percent(report.proportions[i][g])}\n95 % interval: ${intervalOf(i, g)}\n${plural(sample.cells, "cell")} in the sample${sample.unusual ? "\nunusual sample" : ""}`;
}

function orderedSamples() {
  const places = report.samples.map((_, i) => i);
  const by = heatOrder.value;
  if (by === "name") places.sort((a, b) => report.samples[a].name.localeCompare(report.samples[b].name, undefined, { numeric: true }));
  else if (by === "cells") places.sort((a, b) => report.samples[b].cells - report.samples[a].cells);
  else if (by === "unusual") places.sort((a, b) => report.samples[b].unusual - report.samples[a].unusual);
  else if (by !== "given") places.sort((a, b) => report.proportions[b][Number(by)] - report.proportions[a][Number(by)]);
  return places;
}

function showHeat() {
  const byPopulation = chosen("shade") === "population";
  const largest = report.populations.map((_, g) => Math.max(...report.proportions.map((row) => row[g])) || 1);
  const head = make("tr", {}, make("td", { class: "corner", "aria-hidden": "true" }),
    ...report.populations.map((population, g) => make("th", { scope: "col", "aria-label": population.name }, populationKey(g), population.label)));
  const body = orderedSamples().map((i) => make("tr", {},
    make("th", { scope: "row", title: report.samples[i].name, class: report.samples[i].unusual ? "unusual" : null }, make("span", { class: "name" }, ...ends(report.samples[i].name)), markOf(report.samples[i])),
    ...report.populations.map((_, g) => {
      const share = report.proportions[i][g];
      // The square root shows rare populations too.
      const shade = Math.sqrt(share / (byPopulation ? largest[g] : 100));
      return make("td", { class: shade > 0.8 ? "deep" : null, "data-i": i, "data-g": g, tabindex: -1, "aria-label": tellProportion(i, g).replaceAll("\n", "; "), style: `--share:${(0.03 + 0.9 * shade).toFixed(2)}` },
        short(share));
    })));
  heat.replaceChildren(make("table", { class: `confusion free heat-map${report.populations.length > 20 ? " dense" : ""}` },
    make("caption", {}, `rows: samples, columns: ${report.noun}s, in percent`), make("thead", {}, head), make("tbody", {}, ...body)));
  heat.querySelector("td[data-i]").tabIndex = 0;
}

// One listener for all cells: there may be thousands.
const cellOf = (event) => event.target.closest?.("td[data-i]");
const tellCell = (cell) => tellProportion(Number(cell.dataset.i), Number(cell.dataset.g));

heat.addEventListener("pointermove", (event) => {
  const cell = cellOf(event);
  if (cell) showTip(tellCell(cell), event.clientX, event.clientY);
  else hideTip();
});
heat.addEventListener("pointerleave", hideTip);
heat.addEventListener("focusin", (event) => { if (cellOf(event)) showTipAt(cellOf(event), tellCell(cellOf(event))); });
heat.addEventListener("focusout", hideTip);
heat.addEventListener("keydown", (event) => {
  const moves = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] };
  const cell = cellOf(event);
  if (!cell || !(event.key in moves)) return;
  event.preventDefault();
  const [down, right] = moves[event.key];
  const line = cell.parentElement;
  const next = (down > 0 ? line.nextElementSibling : down < 0 ? line.previousElementSibling : line)?.children[cell.cellIndex + right];
  if (!next?.dataset.i) return;
  cell.tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
});
for (const input of document.querySelectorAll('input[name="shade"]')) input.addEventListener("change", showHeat);
heatOrder.addEventListener("change", showHeat);
function offerOrders() {
  options(heatOrder, [["given", "as given"], ["name", "name"], ["cells", "number of cells"], ...(report.samples.some((sample) => sample.unusual) ? [["unusual", "unusual samples first"]] : []),
    ...report.populations.map((_, g) => [String(g), `proportion of ${nameOf(g)}`])], "given");
}

offerOrders();
showHeat();

// ---------------------------------------------------------------- planes

const control = Object.fromEntries(["sample", "across", "up"].map((name) => [name, document.getElementById(`plane-${name}`)]));
const plot = document.getElementById("plane-plot");
const proportionsBox = document.getElementById("plane-proportions");
const planesBox = document.getElementById("plane-planes");
const ALL = "all";
const { mixture } = report;
const features = [...mixture.features, ...mixture.axes];
const weights = mixture.weights.map(([weight]) => weight);
const valuesOf = (place) => (report.rows ? report.rows.values[place] : []);
const sampleNow = () => (control.sample.value === ALL ? null : Number(control.sample.value));
const isOwn = (n) => sampleNow() === null || report.rows.samples[n] === sampleNow();
const varianceOf = (k, i, j) => entry(mixture.covariances[k], features.length, i, j);
const covarianceOf = (k, i, j) => [varianceOf(k, i, i), varianceOf(k, i, j), varianceOf(k, j, j)].map((value) => value * N_STD ** 2);
// Leave the lightest kernels out of small pictures and of the extent of large ones.
const isLight = (k) => weights[k] < 0.01;
// Many ellipses would hide the cells.
const faint = Math.max(0.3, Math.min(1, 16 / weights.length));
const widthOf = (k) => 1 + 2.2 * Math.sqrt(weights[k] / Math.max(...weights));

// Cut off single cells and light kernels: they would compress everything else.
function extentOf(place) {
  const values = valuesOf(place).filter((value) => value !== null).sort((a, b) => a - b);
  const outer = values.length ? [0.001, 0.999].map((share) => values[Math.round(share * (values.length - 1))]) : [];
  return range([...outer, ...mixture.means.flatMap((mean, k) => {
    if (values.length && isLight(k)) return [];
    const sigma = Math.sqrt(varianceOf(k, place, place));
    return [mean[place] - N_STD * sigma, mean[place] + N_STD * sigma];
  })], 0.04);
}

// One path for the cells of each population.
function rowPaths(places, x, y, every, shape) {
  const [across, up] = places.map(valuesOf);
  const paths = report.populations.map(() => "");
  across.forEach((value, n) => {
    if (n % every || value === null || up[n] === null || !isOwn(n)) return;
    const g = report.rows.populations[n];
    paths[g] += shape(g)(Number(x(value).toFixed(1)), Number(y(up[n]).toFixed(1)));
  });
  return paths.map((d, g) => (d ? draw("path", { class: "row", fill: colourOf(g), d }, draw("title", {}, nameOf(g))) : null)).filter(Boolean);
}

const labelAt = (g, x, y) => draw("text", { class: "number", x, y }, report.populations[g].label);

function tellKernel(k, places) {
  const g = report.members[k];
  const of = report.noun === "population" ? `kernel k${k} of ${nameOf(g)}` : nameOf(g);
  const mean = places.map((place) => `${features[place]} ${Number(mixture.means[k][place].toPrecision(4))}`).join(", ");
  return `${of}\n${percent(100 * weights[k])} of the cells that the model was fitted to\nmean: ${mean}`;
}

function drawPlane(svg, frame, places) {
  [frame.across, frame.up] = places.map(extentOf);
  const x = scale(...frame.across, frame.left, frame.right);
  const y = scale(...frame.up, frame.bottom, frame.top);
  axes(svg, x, y, frame, places.map((place) => features[place]));
  const inside = clipped(svg, frame);
  inside.append(...rowPaths(places, x, y, 1, shapeOf));
  const numbers = draw("g", { "clip-path": "url(#kernel-clip)" });
  for (const k of order(weights)) {
    const g = report.members[k];
    const path = ellipsePath(places.map((place) => mixture.means[k][place]), covarianceOf(k, ...places), x, y);
    const heaviest = Math.max(...report.populations[g].kernels.map((each) => weights[each]));
    inside.append(kernelElement(k, tellKernel(k, places), path, { stroke: colourOf(g), "stroke-width": widthOf(k), "stroke-dasharray": dashOf(g), "stroke-opacity": faint }));
    if (weights.length <= MOST_NUMBERED && weights[k] === heaviest) numbers.append(labelAt(g, x(mixture.means[k][places[0]]), y(mixture.means[k][places[1]])));
  }
  svg.append(numbers);
}

// A single marker: the curves of the kernels above the histogram of the cells.
function drawCurves(svg, frame) {
  const [low, high] = extentOf(0);
  frame.across = [low, high];
  const own = valuesOf(0).filter((value, n) => value !== null && value >= low && value <= high && isOwn(n));
  const sigmas = mixture.means.map((_, k) => Math.sqrt(varianceOf(k, 0, 0)));
  drawDensities(svg, frame, features[0], own, mixture.means.map((mean) => mean[0]), sigmas, weights, order(weights), (k, path) => {
    const g = report.members[k];
    return kernelElement(k, tellKernel(k, [0]), path, { stroke: colourOf(g), "stroke-width": 2, "stroke-dasharray": dashOf(g) });
  });
}

function showProportions() {
  const i = sampleNow();
  const mean = (g) => report.proportions.reduce((sum, row) => sum + row[g], 0) / report.proportions.length;
  proportionsBox.caption.textContent = i === null ? `mean of ${plural(report.samples.length, "sample")}, and range` : `${report.samples[i].name}, with 95 % intervals`;
  proportionsBox.tBodies[0].replaceChildren(...report.populations.map((population, g) => {
    const column = report.proportions.map((row) => row[g]);
    const [share, low, high] = i === null ? [mean(g), Math.min(...column), Math.max(...column)] : [report.proportions[i][g], report.lower[i][g], report.upper[i][g]];
    const row = make("tr", {}, make("th", { scope: "row" }, populationKey(g), population.label), make("td", {}, short(share)), make("td", { class: "dim" }, low === null ? "–" : `${short(low)} – ${short(high)}`));
    for (const [name, on] of [["pointerenter", true], ["pointerleave", false]]) row.addEventListener(name, () => population.kernels.forEach((k) => light(k, on)));
    return row;
  }));
}

function planeButton(i, j) {
  const [width, height] = [160, 124];
  const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
  const x = scale(...extentOf(i), 4, width - 4);
  const y = scale(...extentOf(j), height - 4, 4);
  const square = () => (px, py) => `M${px} ${py}h1.4v1.4h-1.4z`;
  svg.append(...rowPaths([i, j], x, y, Math.ceil(valuesOf(i).length / 400) || 1, square));
  for (const k of order(weights).filter((each) => !isLight(each))) {
    const g = report.members[k];
    svg.append(draw("path", { fill: "none", stroke: colourOf(g), "stroke-width": 0.5 * widthOf(k), "stroke-dasharray": dashOf(g), "stroke-opacity": faint, d: ellipsePath([mixture.means[k][i], mixture.means[k][j]], covarianceOf(k, i, j), x, y) }));
  }
  const now = control.across.value === String(i) && control.up.value === String(j);
  const button = make("button", { type: "button", "aria-pressed": now }, svg, `${features[j]} against ${features[i]}`);
  button.addEventListener("click", () => {
    control.across.value = String(i);
    offerUp(String(j));
    showPlane();
    plot.scrollIntoView({ block: "nearest" });
    planesBox.querySelector('[aria-pressed="true"]')?.focus({ preventScroll: true });
  });
  return button;
}

function offerUp(wanted = control.up.value) {
  options(control.up, features.map((name, place) => [String(place), name]).filter(([place]) => place !== control.across.value), wanted);
}

let plotWidth = 0;

function showPlane() {
  hideTip();
  const height = Math.round(Math.min(560, Math.max(300, plotWidth * 0.74)));
  const frame = { left: 56, right: plotWidth - 14, top: 12, bottom: height - 46 };
  const places = [Number(control.across.value), Number(control.up.value)];
  const svg = draw("svg", { viewBox: `0 0 ${plotWidth} ${height}`, role: "group", "aria-label": `Kernels: ${features.length > 1 ? features[places[1]] : "density"} against ${features[places[0]]}` });
  if (features.length > 1) drawPlane(svg, frame, places);
  else drawCurves(svg, frame);
  plot.replaceChildren(svg);
  // The heaviest kernel is drawn last and focused first.
  rove([...svg.querySelectorAll(".kernel-group")].reverse());
  showProportions();
  document.getElementById("plane-others").hidden = !mixture.planes.length;
  planesBox.replaceChildren(...mixture.planes.flatMap((i, n) => mixture.planes.slice(n + 1).map((j) => planeButton(i, j))));
}

options(control.sample, [[ALL, "all"], ...report.samples.map((sample, i) => [String(i), `${sample.name}${sample.unusual ? " ▲" : ""}`])], ALL);
options(control.across, features.map((name, place) => [String(place), name]), String(mixture.first[0]));
offerUp(String(mixture.first[1]));
control.across.addEventListener("change", () => { offerUp(); showPlane(); });
for (const name of ["sample", "up"]) control[name].addEventListener("change", showPlane);
onResize(plot, (width) => {
  plotWidth = width;
  showPlane();
});

// ---------------------------------------------------------------- map of cells

const mapBox = document.getElementById("map-plot");

function showMap() {
  const width = Math.floor(mapBox.clientWidth) - 14;
  const height = Math.round(Math.min(560, Math.max(300, width * 0.62)));
  const frame = { left: 56, right: width - 14, top: 12, bottom: height - 46 };
  // The positions come after the features and axes.
  const places = [features.length, features.length + 1];
  [frame.across, frame.up] = places.map((place) => range(valuesOf(place).filter((value) => value !== null), 0.03));
  const x = scale(...frame.across, frame.left, frame.right);
  const y = scale(...frame.up, frame.bottom, frame.top);
  const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `Map of cells: ${report.rows.map.join(", ")}` });
  axes(svg, x, y, frame, report.rows.map);
  svg.append(...rowPaths(places, x, y, 1, shapeOf));
  report.populations.forEach((_, g) => {
    const own = places.map((place) => valuesOf(place).filter((value, n) => value !== null && report.rows.populations[n] === g && isOwn(n)).sort((a, b) => a - b));
    const [px, py] = own.map((values) => values[Math.floor(values.length / 2)]);
    if (px !== undefined && report.populations.length <= MOST_NUMBERED) svg.append(labelAt(g, x(px), y(py)));
  });
  mapBox.replaceChildren(svg);
}

if (mapBox) {
  control.sample.addEventListener("change", showMap);
  onResize(mapBox, showMap);
}

// ---------------------------------------------------------------- tree of merges

function drawTree(width) {
  const { tree } = report;
  const n = tree.length + 1;
  const merged = n - new Set(report.members).size;
  const height = 300;
  const [left, right, top, bottom] = [44, width - 8, 10, height - 42];
  const leaves = [];
  const walk = (node) => { if (node < n) leaves.push(node); else [tree[node - n][0], tree[node - n][1]].forEach(walk); };
  walk(2 * n - 2);
  const step = (right - left) / n;
  const y = scale(0, 1.05, bottom, top);
  // Position and height of each node, and the population of all kernels below it, or null.
  const at = new Array(2 * n - 1);
  leaves.forEach((k, place) => { at[k] = { x: left + (place + 0.5) * step, height: 0, population: report.members[k] }; });
  const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": "Tree of merges" });
  svg.append(draw("path", { class: "axis", fill: "none", d: `M${left} ${top}V${bottom}` }));
  for (const tick of ticks(0, 1, 5)) svg.append(draw("text", { x: left - 7, y: y(tick.value) + 4, "text-anchor": "end" }, tick.text));
  svg.append(draw("text", { x: 10, y: (top + bottom) / 2, "text-anchor": "middle", transform: `rotate(-90 10 ${(top + bottom) / 2})` }, "height of the merge"),
    draw("text", { x: (left + right) / 2, y: height - 4, "text-anchor": "middle" }, "kernel"));
  const links = tree.map(([one, two, at_height], i) => {
    const [a, b] = [at[one], at[two]];
    const population = i < merged ? a.population : null;
    at[n + i] = { x: (a.x + b.x) / 2, height: at_height, population };
    const d = `M${a.x} ${y(a.height)}V${y(at_height)}H${b.x}V${y(b.height)}`;
    const colourIn = (own) => (own === null ? null : `stroke:${colourOf(own)}`);
    const leg = (child) => draw("path", { class: "branch", d: `M${child.x} ${y(child.height)}V${y(at_height)}`, style: colourIn(child.population) });
    const text = population === null ? `two branches meet at ${number(at_height)}, above the cut` : `merged at ${number(at_height)}, in ${nameOf(population)}`;
    const link = draw("g", { class: "link", role: "img", "aria-label": text }, draw("path", { class: "link-hit", d }),
      leg(a), leg(b), draw("path", { class: "branch", d: `M${a.x} ${y(at_height)}H${b.x}`, style: colourIn(population) }));
    explain(link, text);
    return link;
  });
  rove(links);
  const heights = [0, ...tree.map(([, , at_height]) => at_height), 1.05];
  // Midway between the merges below and above another cut than that of the study.
  const cut = y(isStudy() ? report.cut : (heights[merged] + heights[merged + 1]) / 2);
  svg.append(...links, draw("line", { class: "diagonal", x1: left, x2: right, y1: cut, y2: cut }));
  const every = Math.ceil(24 / step);
  leaves.forEach((k, place) => {
    const { x } = at[k];
    svg.append(draw("path", { fill: colourOf(report.members[k]), d: shapeOf(report.members[k])(x, bottom + 7) }));
    if (place % every === 0) svg.append(draw("text", { x, y: bottom + 24, "text-anchor": "middle" }, `k${k}`));
  });
  return svg;
}

const treeBox = document.getElementById("tree");

// Finer and coarser cuts: what is drawn follows, the tables are those of the study.
const study = Object.fromEntries(["populations", "members", "proportions", "lower", "upper"].map((name) => [name, report[name]]));
const studyRows = report.rows?.populations;
const cutBox = document.getElementById("cut-number");

function isStudy() {
  return report.populations.length === study.populations.length;
}

function offerCuts(place) {
  const { cuts } = report.cuts;
  cutBox.textContent = plural(cuts[place].populations.length, report.noun);
  document.getElementById("cut-next").textContent = cuts[place].next.join("; ");
  for (const [name, step] of [["coarser", -1], ["finer", 1]]) {
    const button = document.getElementById(name);
    button.disabled = !cuts[place + step];
    button.onclick = () => showCut(place + step);
  }
}

function showCut(place) {
  const { cuts, kernels } = report.cuts;
  const cut = cuts[place];
  if (cut.populations.length === study.populations.length) Object.assign(report, study);
  else {
    const none = kernels.map(() => cut.populations.map(() => null));
    const proportions = kernels.map((row) => cut.populations.map((population) => population.kernels.reduce((sum, k) => sum + row[k], 0)));
    Object.assign(report, { populations: cut.populations, members: cut.members, proportions, lower: none, upper: none });
  }
  if (report.rows) report.rows.populations = isStudy() ? studyRows : report.rows.kernels.map((k) => cut.members[k]);
  offerCuts(place);
  offerOrders();
  showHeat();
  showPlane();
  if (mapBox) showMap();
  treeBox.replaceChildren(drawTree(Math.floor(treeBox.clientWidth)));
}

if (treeBox) responsive(treeBox, drawTree);
if (cutBox) offerCuts(report.cuts.cuts.findIndex((cut) => cut.populations.length === study.populations.length));
