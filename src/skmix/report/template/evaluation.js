"use strict";
// The confusion matrix, the table of classes, the reliability curve.

const percent = (share) => `${(100 * share).toFixed(1)} %`;
// Remove rounding errors of sums of weights.
const sum = (values) => Number(values.reduce((total, value) => total + value, 0).toPrecision(12));
const truth = report.classes.map((row) => row.n_rows);
const names = report.classes.map(({ label }) => label);
const predictions = names.map((_, j) => sum(report.confusion.map((row) => row[j])));

// ---------------------------------------------------------------- confusion matrix

const matrixBox = document.getElementById("matrix");
const mistakesOnly = document.getElementById("mistakes-only");

function tellCounts(i, j) {
  const count = report.confusion[i][j];
  const [a, b] = [names[i], names[j]];
  const what = i === j ? `rows of ${a} recognised` : `rows of ${a} predicted as ${b}`;
  const shares = [truth[i] ? `${percent(count / truth[i])} of the ${truth[i]} rows of ${a}` : "", predictions[j] ? `${percent(count / predictions[j])} of the ${predictions[j]} predictions of ${b}` : ""];
  return [`${count} ${what}`, ...shares.filter(Boolean)].join("\n");
}

function cross(i, j, on) {
  for (const cell of matrixBox.querySelectorAll(`td[data-i="${i}"], td[data-j="${j}"]`)) cell.classList.toggle("crossed", on);
}

function showMatrix() {
  const n = names.length;
  const byTruth = chosen("share") === "true";
  const shareOf = (i, j) => report.confusion[i][j] / ((byTruth ? truth[i] : predictions[j]) || 1);
  const hidden = (i, j) => mistakesOnly.checked && i === j;
  let largest = 0;
  report.confusion.forEach((row, i) => row.forEach((_, j) => { if (!hidden(i, j)) largest = Math.max(largest, shareOf(i, j)); }));
  const whole = mistakesOnly.checked ? largest || 1 : 1;
  const upright = names.some((name) => name.length > 4);
  const head = make("tr", {}, make("td", { class: "corner", "aria-hidden": "true" }),
    ...names.map((name) => make("th", { scope: "col", class: upright ? "upright" : null, title: name }, make("span", {}, name))));
  const cells = [];
  const body = report.confusion.map((row, i) => make("tr", {}, make("th", { scope: "row", title: names[i] }, names[i]), ...row.map((count, j) => {
    const empty = !count || hidden(i, j);
    // The square root shows rare mistakes too.
    const shade = Math.sqrt(shareOf(i, j) / whole);
    const kind = [empty ? "none" : "", shade > 0.72 && !empty ? "deep" : "", i !== j && count ? "wrong" : ""].filter(Boolean).join(" ");
    const cell = make("td", { class: kind || null, "data-i": i, "data-j": j, style: `--share:${empty ? 0 : (0.06 + 0.9 * shade).toFixed(2)}` }, hidden(i, j) ? "" : String(count));
    explain(cell, tellCounts(i, j), () => cross(i, j, true), () => cross(i, j, false));
    cells.push(cell);
    return cell;
  })));
  rove(cells, n);
  matrixBox.replaceChildren(make("table", { class: `confusion free${n > 20 ? " dense" : ""}` },
    make("caption", {}, "rows: true, columns: predicted"), make("thead", {}, head), make("tbody", {}, ...body)));
}

for (const input of document.querySelectorAll('input[name="share"]')) input.addEventListener("change", showMatrix);
mistakesOnly.addEventListener("change", showMatrix);
showMatrix();

// ---------------------------------------------------------------- classes

const refuses = report.classes.some((row) => "refused" in row);
const counts = [["n_rows", "rows"], ["predicted", "predicted"], ...(refuses ? [["refused", "refused"]] : [])];
const columns = [["label", "class"], ...counts, ["precision", "precision"], ["recall", "recall"], ["f1", "F1"]];
const classHead = document.getElementById("class-head");
const classBody = document.getElementById("class-body");
let sorting = { key: null, down: false };

function showClasses() {
  const rows = report.classes.map((row, i) => ({ ...row, predicted: predictions[i] }));
  const { key, down } = sorting;
  if (key) {
    // Classes without a value come last either way.
    rows.sort((a, b) => {
      if (a[key] === null || b[key] === null) return (a[key] === null) - (b[key] === null);
      const order = key === "label" ? a.label.localeCompare(b.label, undefined, { numeric: true }) : a[key] - b[key];
      return down ? -order : order;
    });
  }
  classBody.replaceChildren(...rows.map((row) => make("tr", {}, make("th", { scope: "row", class: "label" }, row.label),
    ...columns.slice(1).map(([name]) => make("td", {}, Number.isInteger(row[name]) && counts.some(([count]) => count === name) ? String(row[name]) : number(row[name]))))));
  for (const cell of classHead.children) {
    const state = cell.dataset.key === key ? (down ? "descending" : "ascending") : "none";
    cell.setAttribute("aria-sort", state);
  }
}

classHead.append(...columns.map(([key, title]) => {
  const button = make("button", { type: "button" }, title);
  button.addEventListener("click", () => {
    sorting = { key, down: sorting.key === key ? !sorting.down : false };
    showClasses();
  });
  return make("th", { scope: "col", class: key === "label" ? "words" : null, "data-key": key }, button);
}));
showClasses();

// ---------------------------------------------------------------- reliability

function reliability(width) {
  const side = Math.min(width, 400);
  const [left, right, top, bottom] = [40, side - 10, 12, side - 44];
  const x = scale(0, 1, left, right);
  const y = scale(0, 1, bottom, top);
  const svg = draw("svg", { viewBox: `0 0 ${side} ${side}`, role: "group", "aria-label": "Share of correct predictions against the probability of the predicted class", style: `max-width:${side}px` });
  svg.append(draw("path", { class: "axis", fill: "none", d: `M${left} ${top}V${bottom}H${right}` }));
  for (const tick of ticks(0, 1, 5)) {
    svg.append(draw("text", { x: x(tick.value), y: bottom + 17, "text-anchor": "middle" }, tick.text),
      draw("text", { x: left - 7, y: y(tick.value) + 4, "text-anchor": "end" }, tick.text));
  }
  svg.append(draw("text", { x: (left + right) / 2, y: bottom + 36, "text-anchor": "middle" }, "probability of the predicted class"),
    draw("text", { x: 10, y: (top + bottom) / 2, "text-anchor": "middle", transform: `rotate(-90 10 ${(top + bottom) / 2})` }, "share of correct predictions"));
  const bins = report.reliability;
  const total = sum(bins.map((bin) => bin.n_rows));
  const narrow = (right - left) / 20;
  for (const bin of bins) {
    const high = (bin.n_rows / total) * (bottom - top);
    svg.append(draw("rect", { class: "column", x: x(bin.confidence) - narrow / 2, width: narrow, y: bottom - high, height: high }));
  }
  svg.append(draw("line", { class: "diagonal", x1: x(0), y1: y(0), x2: x(1), y2: y(1) }));
  for (const bin of bins) svg.append(draw("line", { class: "gap", x1: x(bin.confidence), x2: x(bin.confidence), y1: y(bin.confidence), y2: y(bin.accuracy) }));
  svg.append(draw("polyline", { class: "reliability", points: bins.map((bin) => `${x(bin.confidence)},${y(bin.accuracy)}`).join(" ") }));
  const points = bins.map((bin) => {
    const text = `probability ${number(bin.confidence)}, correct ${number(bin.accuracy)}\n${plural(bin.n_rows, "row")}, ${percent(bin.n_rows / total)}`;
    const point = draw("circle", { class: "point", cx: x(bin.confidence), cy: y(bin.accuracy), r: 5, role: "img", "aria-label": text.replace("\n", "; ") });
    explain(point, text);
    return point;
  });
  rove(points);
  svg.append(...points);
  return svg;
}

const reliabilityBox = document.getElementById("reliability-chart");
if (reliabilityBox) responsive(reliabilityBox, reliability);
