"use strict";
// Distribution of accuracy, accuracy against K, reasons for failures, confusion matrices.

function panel(parent, title, detail) {
  const body = make("div");
  parent.append(make("figure", { class: "chart panel" }, make("h3", {}, title, " ", make("small", {}, detail)), body));
  return body;
}

const methodLabel = new Map(report.methods.map((method) => [method.key, method.label]));

// ---------------------------------------------------------------- distribution of accuracy over runs

function distribution(variant, width) {
  const rowHeight = 58;
  const left = 4;
  const right = width - 10;
  const x = scale(0, 1, left, right);
  const rows = report.methods.filter((method) => variant.methods[method.key]);
  const height = rows.length * rowHeight + 34;
  const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "img",
    "aria-label": `Accuracy of the runs of ${variant.name}, a histogram for each method` });
  const floor = rows.length * rowHeight;
  svg.append(draw("line", { class: "rule", x1: x(0.5), x2: x(0.5), y1: 14, y2: floor }));
  rows.forEach((method, i) => {
    const record = variant.methods[method.key];
    const base = (i + 1) * rowHeight;
    const tall = rowHeight - 20;
    const group = draw("g", { class: `method-${method.key}` });
    const failed = record.failed ? `${record.failed} of ${record.n} failed` : `none of ${record.n} failed`;
    group.append(draw("text", { class: "strong", x: left, y: base - tall - 4 }, `${method.label}: ${failed}`));
    group.append(draw("line", { class: "axis", x1: left, x2: right, y1: base, y2: base }));
    for (const [bin, count] of record.counts) {
      const a = x(bin * report.bin);
      const b = x((bin + 1) * report.bin);
      const high = Math.max(1.5, tall * Math.sqrt(count / record.n));
      group.append(draw("rect", { class: "bar", x: a, width: Math.max(1, b - a - 0.6), y: base - high, height: high }));
    }
    for (const [bin, count] of record.counts) {
      const hit = draw("rect", { class: "hit", x: x(bin * report.bin) - 1, width: (right - left) * report.bin + 2, y: base - tall, height: tall });
      const from = (bin * report.bin).toFixed(2);
      const to = ((bin + 1) * report.bin).toFixed(2);
      explain(hit, `${plural(count, "run")} of ${record.n}\nwith accuracy ${from} to ${to}\n${method.label}`);
      group.append(hit);
    }
    if (method.key === "published") {
      for (const value of [variant.paper.median, variant.paper.max]) {
        group.append(draw("line", { class: "tick-paper", x1: x(value), x2: x(value), y1: base - 3, y2: base + 5 }));
      }
    }
    svg.append(group);
  });
  for (const tick of ticks(0, 1, 5)) {
    svg.append(draw("text", { x: x(tick.value), y: floor + 17, "text-anchor": tick.value === 0 ? "start" : tick.value === 1 ? "end" : "middle" }, tick.text));
  }
  svg.append(draw("text", { x: x(0.5), y: floor + 31, "text-anchor": "middle" }, "accuracy"));
  return svg;
}

const distributionBox = document.getElementById("distribution-charts");
for (const variant of report.variants) {
  const paper = `paper: ${variant.paper.failed} of ${variant.paper.n} failed`;
  responsive(panel(distributionBox, variant.name, paper), (width) => distribution(variant, width));
}

// ---------------------------------------------------------------- accuracy against K

const marks = {
  paper: (x, y) => draw("circle", { class: "mark", cx: x, cy: y, r: 3.4 }),
  published: (x, y) => draw("rect", { class: "mark", x: x - 3.2, y: y - 3.2, width: 6.4, height: 6.4 }),
  robust: (x, y) => draw("path", { class: "mark", d: `M${x} ${y - 4.4}l4.4 4.4l-4.4 4.4l-4.4 -4.4z` }),
  "class-wise": (x, y) => draw("path", { class: "mark", d: `M${x} ${y - 4.2}l4.2 7.4h-8.4z` }),
};

function sweep(variant, width) {
  const left = 34;
  const right = width - 12;
  const top = 20;
  const middle = 196;
  const second = middle + 48;
  const bottom = second + 70;
  const kernels = report.sweep.kernels;
  const x = scale(kernels[0], kernels[kernels.length - 1], left + 8, right);
  const y = scale(0.2, 1, middle, top);
  const lost = scale(0, 1, bottom, second);
  const svg = draw("svg", { viewBox: `0 0 ${width} ${bottom + 36}`, role: "img",
    "aria-label": `Accuracy of ${variant.name} against the number of kernels, and the share of runs lost` });
  svg.append(draw("text", { x: 0, y: 10 }, "mean accuracy of the runs counted, ± standard deviation"));
  svg.append(draw("text", { x: 0, y: second - 12 }, "share of runs lost"));
  for (const tick of ticks(0.2, 1, 4)) {
    svg.append(draw("line", { class: "axis", x1: left, x2: right, y1: y(tick.value), y2: y(tick.value) }),
      draw("text", { x: left - 6, y: y(tick.value) + 4, "text-anchor": "end" }, tick.text));
  }
  for (const value of [0, 0.5, 1]) {
    svg.append(draw("line", { class: "axis", x1: left, x2: right, y1: lost(value), y2: lost(value) }),
      draw("text", { x: left - 6, y: lost(value) + 4, "text-anchor": "end" }, `${100 * value} %`));
  }
  for (const K of kernels) {
    svg.append(draw("text", { x: x(K), y: bottom + 17, "text-anchor": "middle" }, String(K)));
  }
  svg.append(draw("text", { x: (left + right) / 2, y: bottom + 32, "text-anchor": "middle" }, "number of kernels K"));
  const sources = [["paper", variant.paper], ...report.methods.map((method) => [method.key, variant.methods[method.key]])];
  for (const [key, points] of sources.filter(([, list]) => list && list.length)) {
    const group = draw("g", { class: `method-${key}` });
    const known = points.filter((point) => point.mean !== null);
    if (key !== "paper" && known.length > 1) {
      const upper = known.map((p) => `${x(p.K)},${y(Math.min(1, p.mean + (p.std ?? 0)))}`);
      const lower = known.map((p) => `${x(p.K)},${y(Math.max(0.2, p.mean - (p.std ?? 0)))}`).reverse();
      group.append(draw("polygon", { class: "band", points: [...upper, ...lower].join(" ") }));
    }
    const dash = key === "paper" ? "5 3" : null;
    group.append(draw("polyline", { class: "curve", "stroke-dasharray": dash, points: known.map((p) => `${x(p.K)},${y(p.mean)}`).join(" ") }));
    group.append(draw("polyline", { class: "curve", "stroke-dasharray": dash, points: points.map((p) => `${x(p.K)},${lost(p.lost / p.n)}`).join(" ") }));
    for (const p of known) {
      if (key === "paper") {
        group.append(draw("line", { class: "tick-paper", x1: x(p.K), x2: x(p.K), y1: y(Math.min(1, p.mean + (p.std ?? 0))), y2: y(Math.max(0.2, p.mean - (p.std ?? 0))) }));
      }
      group.append(marks[key](x(p.K), y(p.mean)));
    }
    for (const p of points) group.append(marks[key](x(p.K), lost(p.lost / p.n)));
    svg.append(group);
  }
  kernels.forEach((K, i) => {
    const from = i ? (x(K) + x(kernels[i - 1])) / 2 : x(K) - 14;
    const to = i + 1 < kernels.length ? (x(K) + x(kernels[i + 1])) / 2 : x(K) + 12;
    const lines = [`${variant.name}, K = ${K}`];
    for (const [key, points] of sources) {
      const p = (points || []).find((point) => point.K === K);
      if (p) lines.push(`${methodLabel.get(key) ?? "paper"}: ${number(p.mean)} ± ${number(p.std)}, ${p.lost} of ${p.n} lost`);
    }
    const hit = draw("rect", { class: "hit", x: from, width: to - from, y: top, height: bottom - top });
    explain(hit, lines.join("\n"));
    svg.append(hit);
  });
  return svg;
}

const sweepBox = document.getElementById("sweep-charts");
if (sweepBox) {
  for (const variant of report.sweep.variants) {
    responsive(panel(sweepBox, variant.name, ""), (width) => sweep(variant, width));
  }
}

// ---------------------------------------------------------------- confusion matrices

function confusion(matrix, caption) {
  const digits = report.digits;
  const head = make("tr", {}, make("td", { class: "corner", "aria-hidden": "true" }), ...digits.map((d) => make("th", { scope: "col" }, String(d))));
  const body = matrix.map((row, i) => {
    const total = row.reduce((sum, count) => sum + count, 0) || 1;
    return make("tr", {}, make("th", { scope: "row" }, String(digits[i])), ...row.map((count, j) => {
      const share = count / total;
      const kind = [count === 0 ? "none" : "", share > 0.72 ? "deep" : "", i !== j && count ? "wrong" : ""].filter(Boolean).join(" ");
      const cell = make("td", { class: kind || null, style: `--share:${count ? (0.08 + 0.87 * share).toFixed(2) : 0}` }, String(count));
      if (count) explain(cell, `${count} of ${total} images of ${digits[i]}\npredicted as ${digits[j]}`);
      return cell;
    }));
  });
  return make("table", { class: "confusion" }, make("caption", {}, caption), make("thead", {}, head), make("tbody", {}, ...body));
}

const confusionBox = document.getElementById("confusion-matrices");

function showConfusions() {
  const method = chosen("confusion-method");
  confusionBox.replaceChildren(...report.variants.map((variant) => {
    const ours = variant.methods[method]?.best;
    const right = ours
      ? confusion(ours.matrix, `${methodLabel.get(method)}: run ${ours.run}, accuracy ${number(ours.accuracy)}`)
      : make("p", { class: "note" }, "no run of this method");
    const left = confusion(variant.paper.best.matrix, `paper: accuracy ${number(variant.paper.best.accuracy)}`);
    return make("figure", { class: "pair-card panel" }, make("h3", {}, variant.name), make("div", { class: "pair" }, left, right));
  }));
}

for (const input of document.querySelectorAll('input[name="confusion-method"]')) {
  input.addEventListener("change", showConfusions);
}
showConfusions();
