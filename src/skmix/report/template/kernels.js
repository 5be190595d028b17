"use strict";
// Drawing kernels: lines, ellipses, axes.

const dark = window.matchMedia("(prefers-color-scheme: dark)");

// On a dark page the heaviest kernels are the lightest, and the others still stand out from the page.
function lightened(colours) {
  return [...colours].reverse().map((colour, step) => {
    const parts = [1, 3, 5].map((i) => parseInt(colour.slice(i, i + 2), 16));
    const share = 0.5 - 0.03 * step;
    return `rgb(${parts.map((part) => Math.round(part + (255 - part) * share)).join(", ")})`;
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

// Densities of one feature between two values: what each kernel adds, and their sum.
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
