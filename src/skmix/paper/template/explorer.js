"use strict";
// The explorer: the kernels of the best run of a variant, with one class's weights, over the training rows.

const explorer = report.explorer;
const methodLabel = new Map(report.methods.map((method) => [method.key, method.label]));
const explored = report.variants.filter((variant) => Object.keys(variant.methods).length);
const control = Object.fromEntries(["variant", "method", "digit", "across", "up"].map((name) => [name, document.getElementById(`explore-${name}`)]));
const plot = document.getElementById("explorer-plot");
const weightsBox = document.getElementById("explorer-weights");
const statusLine = document.getElementById("explorer-status");
const styleKey = document.getElementById("explorer-key");
const DENSITY = "density";

const variantOf = () => explored.find((variant) => variant.name === control.variant.value);
const bestOf = () => variantOf().methods[control.method.value];
const allDigits = () => control.digit.value === "all";
const isShown = (label) => allDigits() || label === Number(control.digit.value);

// The mixture of a feature, and the feature's index in it.
function placeOf(feature) {
  const sets = variantOf().feature_sets;
  const set = sets.findIndex((names) => names.includes(feature));
  return { set, index: sets[set].indexOf(feature) };
}

function offerVariant() {
  const variant = variantOf();
  const methods = report.methods.filter(({ key }) => variant.methods[key]).map(({ key, label }) => [key, label]);
  options(control.method, methods, control.method.value);
  options(control.across, variant.feature_sets.flat().map((name) => [name, name]), control.across.value);
  offerUp();
}

function offerUp() {
  const { set } = placeOf(control.across.value);
  const others = variantOf().feature_sets[set].filter((name) => name !== control.across.value);
  options(control.up, [...others.map((name) => [name, name]), [DENSITY, "density"]], control.up.value);
}

function weightsOf(mixture) {
  if (allDigits()) {
    return mixture.weights.map((row) => row.reduce((sum, weight, j) => sum + weight * mixture.prior[j], 0));
  }
  const column = report.digits.indexOf(Number(control.digit.value));
  return mixture.weights.map((row) => row[column]);
}

function rowsOf(feature) {
  const rows = variantOf().dithered ? explorer.dithered : explorer.plain;
  const column = explorer.features.indexOf(feature);
  return rows.map((row) => row[column]);
}

function kernelGroup(k, weight, path) {
  const text = `kernel k${k}, weight ${number(weight)}`;
  const where = allDigits() ? "over all digits" : `in the class of digit ${control.digit.value}`;
  const element = kernelElement(k, `${text}\n${where}`, path, lineOf(weight), text);
  element.setAttribute("tabindex", 0);
  return element;
}

function plane(svg, mixture, weights, frame) {
  const names = [control.across.value, control.up.value];
  const places = names.map((name) => placeOf(name).index);
  const values = names.map(rowsOf);
  const size = mixture.means[0].length;
  const covariances = mixture.covariances.map((triangle) => [
    entry(triangle, size, places[0], places[0]), entry(triangle, size, places[0], places[1]), entry(triangle, size, places[1], places[1])]);
  // Show all kernels that a class uses; a kernel that no class uses may be far away.
  const used = mixture.weights.map((row) => Math.max(...row) >= 0.01);
  const reach = (axis) => mixture.means.flatMap((mean, k) => (used[k]
    ? [-1, 1].map((sign) => mean[places[axis]] + sign * Math.sqrt(covariances[k][2 * axis])) : []));
  frame.across = range([...values[0], ...reach(0)], 0.04);
  frame.up = range([...values[1], ...reach(1)], 0.04);
  const x = scale(...frame.across, frame.left, frame.right);
  const y = scale(...frame.up, frame.bottom, frame.top);
  axes(svg, x, y, frame, names);
  const faint = draw("g");
  const strong = draw("g");
  explorer.labels.forEach((label, i) => {
    const px = x(values[0][i]).toFixed(1);
    const py = y(values[1][i]).toFixed(1);
    if (allDigits()) strong.append(draw("text", { class: "glyph", x: px, y: py }, String(label)));
    else if (isShown(label)) strong.append(draw("circle", { class: "own", cx: px, cy: py, r: 2.6 }));
    else faint.append(draw("circle", { class: "others", cx: px, cy: py, r: 1.6 }));
  });
  svg.append(faint, strong);
  const inside = clipped(svg, frame, 8);
  const numbers = draw("g", { "clip-path": "url(#kernel-clip)" });
  for (const k of order(weights)) {
    const mean = places.map((place) => mixture.means[k][place]);
    inside.append(kernelGroup(k, weights[k], ellipsePath(mean, covariances[k], x, y)));
    if (weights[k] >= 0.01) numbers.append(draw("text", { class: "number", x: x(mean[0]), y: y(mean[1]) }, `k${k}`));
  }
  svg.append(numbers);
}

function density(svg, mixture, weights, frame) {
  const feature = control.across.value;
  const place = placeOf(feature).index;
  const values = rowsOf(feature);
  frame.across = range(values, 0.04);
  const sigmas = mixture.covariances.map((triangle) => Math.sqrt(entry(triangle, mixture.means[0].length, place, place)));
  drawDensities(svg, frame, feature, values.filter((_, i) => isShown(explorer.labels[i])), mixture.means.map((mean) => mean[place]), sigmas, weights,
    order(weights), (k, path) => kernelGroup(k, weights[k], path));
}

function describe(best, weights) {
  const heaviest = order(weights).at(-1);
  const several = weights.filter((weight) => weight >= 0.1).length;
  const run = `Best run of ${control.variant.value}, ${methodLabel.get(control.method.value)}: run ${best.run}, accuracy ${number(best.accuracy)}.`;
  if (allDigits()) return `${run} Weights of all digits together, by their priors.`;
  const heavy = `Digit ${control.digit.value}: heaviest kernel k${heaviest} with weight ${number(weights[heaviest])}`;
  const modes = [weights[heaviest] >= 0.5 ? "unimodal (one weight of 0.5 or more)" : "", several > 1 ? `multimodal (${several} weights of 0.1 or more)` : ""].filter(Boolean);
  const words = ["neither unimodal nor multimodal in the paper’s words", `in the paper’s words ${modes[0]}`, `meets both of the paper’s definitions: ${modes.join(" and ")}`];
  return `${run} ${heavy}; ${words[modes.length]}.`;
}

let width = 0;

function show() {
  hideTip();
  const best = bestOf();
  const mixture = best.mixtures[placeOf(control.across.value).set];
  const weights = weightsOf(mixture);
  showLines(styleKey);
  const height = Math.round(Math.min(520, Math.max(320, width * 0.74)));
  const frame = { left: 56, right: width - 14, top: 12, bottom: height - 46 };
  const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "group",
    "aria-label": `Kernels of ${control.variant.value}: ${control.up.value} against ${control.across.value}` });
  (control.up.value === DENSITY ? density : plane)(svg, mixture, weights, frame);
  plot.replaceChildren(svg);
  weightsBox.replaceChildren(...order(weights).reverse().map((k) => weightRow(k, weights[k], weights[k], lineOf(weights[k]))));
  statusLine.textContent = describe(best, weights);
}

if (explored.length) {
  // Begin with the smallest variant whose kernels the paper draws.
  options(control.variant, explored.map(({ name }) => [name, name]), "4D");
  options(control.digit, [...report.digits.map((d) => [String(d), String(d)]), ["all", "all"]], "0");
  offerVariant();
  control.variant.addEventListener("change", () => { offerVariant(); show(); });
  control.across.addEventListener("change", () => { offerUp(); show(); });
  for (const name of ["method", "digit", "up"]) control[name].addEventListener("change", show);
  dark.addEventListener("change", show);
  onResize(plot, (plotWidth) => {
    width = plotWidth;
    show();
  });
}
