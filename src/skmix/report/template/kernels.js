"use strict";
// Drawing kernels: lines, ellipses, axes.

const dark = window.matchMedia("(prefers-color-scheme: dark)");

// On a dark page, the heaviest kernels have the lightest colours.
function lightened(colours) {
  return [...colours].reverse().map((colour, step) => {
    const channels = [1, 3, 5].map((i) => parseInt(colour.slice(i, i + 2), 16));
    const share = 0.5 - 0.03 * step;
    return `rgb(${channels.map((value) => Math.round(value + (255 - value) * share)).join(", ")})`;
  });
}

function range(values, spread) {
  const low = Math.min(...values);
  const high = Math.max(...values);
  const margin = (high - low || 1) * spread;
  return [low - margin, high + margin];
}

// Half axes and angle of the ellipse of one standard deviation of [[a, b], [b, c]].
function ellipseOf(a, b, c) {
  const half = (a + c) / 2;
  const root = Math.hypot((a - c) / 2, b);
  return { major: Math.sqrt(Math.max(half + root, 0)), minor: Math.sqrt(Math.max(half - root, 0)), angle: Math.atan2(2 * b, a - c) / 2 };
}

function ellipsePath(mean, covariance, x, y) {
  const { major, minor, angle } = ellipseOf(...covariance);
  const points = [];
  for (let i = 0; i < 72; i += 1) {
    const t = (i / 72) * 2 * Math.PI;
    const u = major * Math.cos(t);
    const v = minor * Math.sin(t);
    const px = x(mean[0] + u * Math.cos(angle) - v * Math.sin(angle));
    const py = y(mean[1] + u * Math.sin(angle) + v * Math.cos(angle));
    points.push(`${px.toFixed(2)} ${py.toFixed(2)}`);
  }
  return `M${points.join("L")}Z`;
}

// Covariances are kept as upper triangles, row by row.
function entry(triangle, size, i, j) {
  const [a, b] = i <= j ? [i, j] : [j, i];
  return triangle[a * size - (a * (a - 1)) / 2 + (b - a)];
}

function axes(svg, x, y, frame, names) {
  const { left, right, top, bottom } = frame;
  svg.append(draw("path", { class: "axis", fill: "none", d: `M${left} ${top}V${bottom}H${right}` }));
  for (const tick of ticks(...frame.across, 5)) {
    svg.append(draw("line", { class: "axis", x1: x(tick.value), x2: x(tick.value), y1: bottom, y2: bottom + 5 }),
      draw("text", { x: x(tick.value), y: bottom + 18, "text-anchor": "middle" }, tick.text));
  }
  for (const tick of ticks(...frame.up, 5)) {
    svg.append(draw("line", { class: "axis", x1: left - 5, x2: left, y1: y(tick.value), y2: y(tick.value) }),
      draw("text", { x: left - 8, y: y(tick.value) + 4, "text-anchor": "end" }, tick.text));
  }
  svg.append(draw("text", { x: (left + right) / 2, y: bottom + 36, "text-anchor": "middle" }, names[0]),
    draw("text", { x: 12, y: (top + bottom) / 2, "text-anchor": "middle", transform: `rotate(-90 12 ${(top + bottom) / 2})` }, names[1]));
}

// The heaviest last, so that it is drawn on top.
const order = (weights) => weights.map((_, k) => k).sort((a, b) => weights[a] - weights[b] || a - b);

// Densities of one feature between two values: the contribution of each kernel, and their sum.
function densitiesOf(means, sigmas, weights, low, high) {
  // Regular points, and the neighbourhood of every mean, so that a narrow kernel keeps its peak.
  const at = Array.from({ length: 241 }, (_, i) => low + ((high - low) * i) / 240);
  means.forEach((mean, k) => { for (let i = -12; i <= 12; i += 1) at.push(mean + (i / 4) * sigmas[k]); });
  const grid = at.filter((value) => value >= low && value <= high).sort((a, b) => a - b);
  const curves = means.map((mean, k) => grid.map((value) => (
    (weights[k] / (sigmas[k] * Math.sqrt(2 * Math.PI))) * Math.exp(-0.5 * ((value - mean) / sigmas[k]) ** 2))));
  return { grid, curves, total: grid.map((_, i) => curves.reduce((sum, curve) => sum + curve[i], 0)) };
}

// Densities of values in bins between low and high.
function histogramOf(values, low, high, bins = 48) {
  const counts = new Array(bins).fill(0);
  for (const value of values) counts[Math.min(bins - 1, Math.floor(((value - low) / (high - low)) * bins))] += 1;
  const width = (high - low) / bins;
  return { width, heights: counts.map((count) => count / ((values.length || 1) * width)) };
}

// The line of a kernel by its weight, or its weight relative to the largest.
function lineOf(measure) {
  const step = report.steps.reduce((found, start, i) => (measure >= start ? i : found), 0);
  const { colours, widths } = report.styles;
  const shown = dark.matches ? lightened(colours) : colours;
  return { stroke: shown[step], "stroke-width": widths[step], "stroke-dasharray": step === 0 ? "4 3" : null };
}

// The key of the lines.
function showLines(list, unit = "") {
  const line = (i) => draw("line", { x1: 1, x2: 29, y1: 6, y2: 6, ...lineOf(report.steps[i]) });
  list.replaceChildren(...report.step_names.map((name, i) => make("li", {},
    make("span", { class: "swatch" }, draw("svg", { viewBox: "0 0 30 12", "aria-hidden": "true" }, line(i))),
    `${name}${i === report.step_names.length - 1 ? unit : ""}`)));
}

function light(k, on) {
  for (const element of document.querySelectorAll(`[data-kernel="${k}"]`)) element.classList.toggle("lit", on);
}

// A kernel in the picture, with its description.
function kernelElement(k, text, path, line, label = text) {
  const element = draw("g", { class: "kernel-group", role: "img", "aria-label": label.replaceAll("\n", "; "), "data-kernel": k },
    draw("path", { class: "kernel-hit", d: path }), draw("path", { class: "kernel", d: path, ...line }));
  explain(element, text, () => light(k, true), () => light(k, false));
  return element;
}

// A kernel in the table of weights.
function weightRow(k, weight, length, line) {
  const drawn = draw("svg", { viewBox: "0 0 100 16", preserveAspectRatio: "none" },
    draw("line", { x1: 0, x2: Math.max(2, 100 * length), y1: 8, y2: 8, ...line, "vector-effect": "non-scaling-stroke" }));
  const row = make("tr", { "data-kernel": k }, make("th", { scope: "row" }, `k${k}`), make("td", {}, number(weight)),
    make("td", { class: "line", "aria-hidden": "true" }, drawn));
  row.addEventListener("pointerenter", () => light(k, true));
  row.addEventListener("pointerleave", () => light(k, false));
  return row;
}

// A part of the picture that is clipped at its frame, or a little above.
function clipped(svg, frame, above = 0) {
  const inside = draw("g", { "clip-path": "url(#kernel-clip)" });
  svg.append(draw("clipPath", { id: "kernel-clip" }, draw("rect", { x: frame.left, y: frame.top - above, width: frame.right - frame.left, height: frame.bottom - frame.top + above })), inside);
  return inside;
}

// A single feature: the histogram of its rows, the curves of the drawn kernels, and the sum of all, dashed.
function drawDensities(svg, frame, name, rows, means, sigmas, weights, drawn, element) {
  const [low, high] = frame.across;
  const { width, heights } = histogramOf(rows, low, high);
  const { grid, curves, total } = densitiesOf(means, sigmas, weights, low, high);
  // A kernel on a constant feature is a needle; the histogram must stay visible next to it.
  const tallest = Math.max(...heights);
  const top = tallest > 0 ? Math.min(Math.max(...total, tallest), 4 * tallest) : Math.max(...total);
  frame.up = [0, top * 1.06];
  const x = scale(...frame.across, frame.left, frame.right);
  const y = scale(...frame.up, frame.bottom, frame.top);
  heights.forEach((height, i) => {
    if (height) svg.append(draw("rect", { class: "histogram", x: x(low + i * width) + 0.5, width: x(low + width) - x(low) - 1, y: y(height), height: frame.bottom - y(height) }));
  });
  axes(svg, x, y, frame, [name, "density"]);
  const inside = clipped(svg, frame);
  const trace = (curve) => `M${grid.map((value, i) => `${x(value).toFixed(2)} ${y(Math.min(curve[i], top * 3)).toFixed(2)}`).join("L")}`;
  for (const k of drawn) inside.append(element(k, trace(curves[k])));
  inside.append(draw("path", { class: "total", d: trace(total) }));
}

// Colour and shape of the rows of a class or population: the shape changes when colours repeat.
const shapes = [
  (x, y) => `M${x - 2.6} ${y}a2.6 2.6 0 1 0 5.2 0a2.6 2.6 0 1 0 -5.2 0`,
  (x, y) => `M${x - 2.3} ${y - 2.3}h4.6v4.6h-4.6z`,
  (x, y) => `M${x} ${y - 3}l3 5.2h-6z`,
  (x, y) => `M${x} ${y - 3.3}l3.3 3.3l-3.3 3.3l-3.3 -3.3z`,
  (x, y) => `M${x} ${y + 3}l3 -5.2h-6z`,
];
const colourOf = (c) => report.colours[c % report.colours.length];
const shapeOf = (c) => shapes[Math.floor(c / report.colours.length) % shapes.length];

// Draw again when the width of a plot changes.
function onResize(plot, redraw) {
  let last = 0;
  new ResizeObserver(() => {
    const width = Math.floor(plot.clientWidth) - 14;
    if (width === last || width < 120) return;
    last = width;
    redraw(width);
  }).observe(plot);
}
