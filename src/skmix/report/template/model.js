"use strict";
// The kernels of a fitted model: in a plane of two features or along one, as a class weighs them.

const control = Object.fromEntries(["set", "class", "across", "up", "measure", "light"].map((name) => [name, document.getElementById(`model-${name}`)]));
const plot = document.getElementById("model-plot");
const weightsBox = document.getElementById("model-weights");
const moreNote = document.getElementById("model-more");
const statusLine = document.getElementById("model-status");
const lineKey = document.getElementById("model-key");
const setNote = document.getElementById("model-note");
const planesBox = document.getElementById("model-planes");
const DENSITY = "density";
const ALL = "all";
const MOST_LISTED = 40;

const setNow = () => report.feature_sets[control.set ? Number(control.set.value) : 0];
const featuresOf = (mixture) => [...mixture.features, ...mixture.axes];
// Index of the chosen class; null for all classes.
const classNow = () => (!control.class || control.class.value === ALL ? null : Number(control.class.value));
const inClass = () => (classNow() === null ? (report.classes.length > 1 ? " in all classes" : "") : ` in class ${report.classes[classNow()]}`);
const overall = (row) => row.reduce((sum, weight, j) => sum + weight * report.prior[j], 0);
const weightsIn = (mixture, c) => mixture.weights.map((row) => (c === null ? overall(row) : row[c]));

// What determines a kernel's line: its weight, or its weight relative to the largest.
function measures(weights) {
  const whole = control.measure.value === "share" ? Math.max(...weights) || 1 : 1;
  return weights.map((weight) => weight / whole);
}

const isLight = (measure) => measure < report.steps[1];

// Hide the lightest of many kernels: they would cover the others.
function drawnOf(mixture, weights) {
  const shown = measures(weights);
  return order(weights).filter((k) => control.light.checked || !isLight(shown[k]));
}

const round = (value) => Number(value.toPrecision(4));

function tellKernel(mixture, k, weights) {
  const lines = [`kernel k${k}, weight ${number(weights[k])}${inClass()}`];
  if (report.classes.length > 1) {
    const row = mixture.weights[k];
    const most = row.indexOf(Math.max(...row));
    lines.push(`most used by ${report.classes[most]}: ${number(row[most])}`);
  }
  const names = featuresOf(mixture);
  const places = [Number(control.across.value), ...(control.up.value === DENSITY ? [] : [Number(control.up.value)])];
  lines.push(`mean: ${places.map((place) => `${names[place]} ${round(mixture.means[k][place])}`).join(", ")}`);
  return lines.join("\n");
}

// Lines of dozens of kernels would fill the picture.
const thinness = (drawn) => (drawn.length > 60 ? 0.45 : 1);

function kernelGroup(mixture, k, weights, measure, path, thin) {
  const line = lineOf(measure);
  return kernelElement(k, tellKernel(mixture, k, weights), path, { ...line, "stroke-width": line["stroke-width"] * thin });
}

// ---------------------------------------------------------------- pictures

const varianceOf = (mixture, k, i, j) => entry(mixture.covariances[k], featuresOf(mixture).length, i, j);

// Values that a picture must include: those of the kernels that any class uses.
function extentOf(mixture, place, reach) {
  const largest = Math.max(...mixture.weights.flat()) || 1;
  const whole = control.measure.value === "share" ? largest : 1;
  const ends = mixture.means.flatMap((mean, k) => {
    if (isLight(Math.max(...mixture.weights[k]) / whole)) return [];
    const sigma = Math.sqrt(varianceOf(mixture, k, place, place));
    return [mean[place] - reach * sigma, mean[place] + reach * sigma];
  });
  return range(ends, 0.04);
}

function drawPlane(svg, mixture, weights, frame) {
  const places = [Number(control.across.value), Number(control.up.value)];
  frame.across = extentOf(mixture, places[0], 1);
  frame.up = extentOf(mixture, places[1], 1);
  const x = scale(...frame.across, frame.left, frame.right);
  const y = scale(...frame.up, frame.bottom, frame.top);
  axes(svg, x, y, frame, places.map((place) => featuresOf(mixture)[place]));
  const inside = clipped(svg, frame);
  const numbers = draw("g", { "clip-path": "url(#kernel-clip)" });
  const measure = measures(weights);
  const drawn = drawnOf(mixture, weights);
  for (const k of drawn) {
    const mean = places.map((place) => mixture.means[k][place]);
    const covariance = [[0, 0], [0, 1], [1, 1]].map(([a, b]) => varianceOf(mixture, k, places[a], places[b]));
    inside.append(kernelGroup(mixture, k, weights, measure[k], ellipsePath(mean, covariance, x, y), thinness(drawn)));
    // Numbers of dozens of kernels would cover the picture.
    if (drawn.length <= 30 && !isLight(measure[k])) numbers.append(draw("text", { class: "number", x: x(mean[0]), y: y(mean[1]) }, `k${k}`));
  }
  svg.append(numbers);
}

function drawDensity(svg, mixture, weights, frame) {
  const place = Number(control.across.value);
  frame.across = extentOf(mixture, place, 3);
  const sigmas = mixture.means.map((_, k) => Math.sqrt(varianceOf(mixture, k, place, place)));
  const measure = measures(weights);
  const drawn = drawnOf(mixture, weights);
  drawDensities(svg, frame, featuresOf(mixture)[place], [], mixture.means.map((mean) => mean[place]), sigmas, weights, drawn,
    (k, path) => kernelGroup(mixture, k, weights, measure[k], path, thinness(drawn)));
}

// ---------------------------------------------------------------- next to the picture

function showWeights(weights) {
  const measure = measures(weights);
  const whole = Math.max(...weights) || 1;
  const sorted = order(weights).reverse();
  weightsBox.replaceChildren(...sorted.slice(0, MOST_LISTED).map((k) => weightRow(k, weights[k], weights[k] / whole, lineOf(measure[k]))));
  moreNote.textContent = sorted.length > MOST_LISTED ? `and ${plural(sorted.length - MOST_LISTED, "lighter kernel")}` : "";
}

function describe(mixture, weights) {
  const heaviest = order(weights).at(-1);
  const hidden = weights.length - drawnOf(mixture, weights).length;
  const what = classNow() === null ? (report.classes.length > 1 ? "All classes together, by their priors" : "The mixture") : `Class ${report.classes[classNow()]}`;
  const used = plural(weights.filter((weight) => weight >= report.steps[1]).length, "weight");
  return `${what}: ${used} of 0.01 or more, the heaviest of kernel k${heaviest} with ${number(weights[heaviest])}.`
    + (hidden ? ` ${plural(hidden, "kernel")} lighter than these lines show ${hidden === 1 ? "is" : "are"} left out.` : "");
}

// ---------------------------------------------------------------- planes side by side

function planeButton(mixture, i, j, weights) {
  const width = 160;
  const height = 124;
  const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
  const [across, up] = [extentOf(mixture, i, 1), extentOf(mixture, j, 1)];
  const x = scale(...across, 4, width - 4);
  const y = scale(...up, height - 4, 4);
  const measure = measures(weights);
  const drawn = drawnOf(mixture, weights);
  for (const k of drawn) {
    const covariance = [varianceOf(mixture, k, i, i), varianceOf(mixture, k, i, j), varianceOf(mixture, k, j, j)];
    const line = lineOf(measure[k]);
    svg.append(draw("path", { fill: "none", d: ellipsePath([mixture.means[k][i], mixture.means[k][j]], covariance, x, y), ...line, "stroke-width": (0.3 + 0.5 * line["stroke-width"]) * thinness(drawn) }));
  }
  const names = featuresOf(mixture);
  const now = control.across.value === String(i) && control.up.value === String(j);
  const button = make("button", { type: "button", "aria-pressed": now }, svg, `${names[j]} against ${names[i]}`);
  button.addEventListener("click", () => {
    control.across.value = String(i);
    offerUp();
    control.up.value = String(j);
    show();
    plot.scrollIntoView({ block: "nearest" });
    document.querySelector('#model-planes [aria-pressed="true"]')?.focus({ preventScroll: true });
  });
  return button;
}

function showPlanes(mixture, weights) {
  document.getElementById("model-projections").hidden = !mixture.planes.length;
  planesBox.replaceChildren(...mixture.planes.flatMap((i, n) => mixture.planes.slice(n + 1).map((j) => planeButton(mixture, i, j, weights))));
}

// ---------------------------------------------------------------- the whole

function offerSet() {
  const mixture = setNow();
  const entries = featuresOf(mixture).map((name, place) => [String(place), name]);
  options(control.across, entries, String(mixture.first[0]));
  offerUp(String(mixture.first[1] ?? DENSITY));
  const explained = mixture.axes.length ? `Besides the features, you can choose ${mixture.axes.join(", ")}: the directions along which the kernels differ most (linear discriminants), in standard deviations within kernels.` : "";
  setNote.textContent = [mixture.note, explained].filter(Boolean).join(" ");
  // With dozens of kernels all weights are small: show them relative to the largest.
  const many = mixture.means.length > 30;
  control.measure.value = many ? "share" : "weight";
  control.light.checked = !many;
}

function offerUp(wanted = control.up.value) {
  const entries = featuresOf(setNow()).map((name, place) => [String(place), name]).filter(([place]) => place !== control.across.value);
  options(control.up, [...entries, [DENSITY, DENSITY]], wanted);
}

let plotWidth = 0;

function show() {
  hideTip();
  const mixture = setNow();
  const weights = weightsIn(mixture, classNow());
  showLines(lineKey, control.measure.value === "share" ? " of the largest" : "");
  const height = Math.round(Math.min(540, Math.max(300, plotWidth * 0.74)));
  const frame = { left: 56, right: plotWidth - 14, top: 12, bottom: height - 46 };
  const names = featuresOf(mixture);
  const up = control.up.value === DENSITY ? DENSITY : names[Number(control.up.value)];
  const svg = draw("svg", { viewBox: `0 0 ${plotWidth} ${height}`, role: "group", "aria-label": `Kernels: ${up} against ${names[Number(control.across.value)]}` });
  if (control.up.value === DENSITY) drawDensity(svg, mixture, weights, frame);
  else drawPlane(svg, mixture, weights, frame);
  plot.replaceChildren(svg);
  // The heaviest kernel is drawn last and focused first.
  rove([...svg.querySelectorAll(".kernel-group")].reverse());
  showWeights(weights);
  statusLine.textContent = describe(mixture, weights);
  showPlanes(mixture, weights);
  document.dispatchEvent(new Event("model-shown"));
}

function chooseClass(c) {
  if (!control.class) return;
  control.class.value = c === null ? ALL : String(c);
  show();
}

if (control.set) options(control.set, report.feature_sets.map((mixture, g) => [String(g), `${mixture.name}: ${mixture.features.slice(0, 3).join(", ")}${mixture.features.length > 3 ? ", …" : ""}`]), "0");
if (control.class) options(control.class, [[ALL, "all"], ...report.classes.map((name, c) => [String(c), name])], ALL);
offerSet();
control.set?.addEventListener("change", () => { offerSet(); show(); });
control.across.addEventListener("change", () => { offerUp(); show(); });
for (const name of ["class", "up", "measure", "light"]) control[name]?.addEventListener("change", show);
dark.addEventListener("change", show);
onResize(plot, (width) => {
  plotWidth = width;
  show();
});
