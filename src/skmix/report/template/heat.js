"use strict";
// Heat map of the weights of all kernels in all classes, on a canvas: there may be fifty thousand.

const heat = document.getElementById("heat");
const heatHead = document.getElementById("heat-head");
const heatBody = document.getElementById("heat-body");
const heatOrder = document.getElementById("heat-order");
const LONGEST_LABEL = 16;
// Browsers limit the size of a canvas, in screen pixels.
const TALLEST = 16000;

let cursor = null;
let grid = null;

function sortedKernels(part) {
  const total = weightsIn(part, null);
  const own = weightsIn(part, classNow());
  const by = (values) => values.map((_, k) => k).sort((a, b) => values[b] - values[a] || a - b);
  if (heatOrder.value === "number") return total.map((_, k) => k);
  if (heatOrder.value === "weight") return by(total);
  if (heatOrder.value === "chosen") return by(own);
  const main = part.weights.map((row) => row.indexOf(Math.max(...row)));
  return total.map((_, k) => k).sort((a, b) => main[a] - main[b] || part.weights[b][main[b]] - part.weights[a][main[a]] || a - b);
}

function sized(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}

const shortened = (label) => (label.length > LONGEST_LABEL ? `${label.slice(0, LONGEST_LABEL - 1)}…` : label);

function paintHeat() {
  const part = setNow();
  const style = getComputedStyle(document.documentElement);
  const [ink, soft, shade, page, link] = ["--ink", "--soft", "--heat", "--page", "--link"].map((name) => style.getPropertyValue(name).trim());
  const font = style.getPropertyValue("--body");
  const kernels = sortedKernels(part);
  const n = report.classes.length;
  const room = heat.parentElement.clientWidth - 4;
  const left = 46;
  const cellWidth = Math.max(14, Math.min(n === 1 ? 420 : 64, Math.floor((room - left - 10) / n)));
  const cellHeight = Math.max(2, Math.min(kernels.length <= 40 ? 22 : 13, Math.floor(TALLEST / (window.devicePixelRatio || 1) / kernels.length)));
  const labels = report.classes.map(shortened);
  const width = left + n * cellWidth + 10;
  let context = sized(heatHead, width, 10);
  context.font = `12px ${font}`;
  const widest = Math.max(...labels.map((label) => context.measureText(label).width));
  const upright = n > 1 && widest > cellWidth - 4;
  const headHeight = n === 1 ? 24 : upright ? Math.ceil(widest) + 14 : 26;
  context = sized(heatHead, width, headHeight);
  context.font = `12px ${font}`;
  context.textBaseline = "middle";
  const chosenClass = classNow();
  labels.forEach((label, c) => {
    context.fillStyle = c === chosenClass ? link : soft;
    context.save();
    context.translate(left + (n === 1 ? 2 : (c + 0.5) * cellWidth), headHeight - 6);
    if (upright) context.rotate(-Math.PI / 2);
    context.textAlign = upright || n === 1 ? "left" : "center";
    if (!upright) context.translate(0, -7);
    context.fillText(n === 1 ? "weight" : label, 0, 0);
    context.restore();
  });
  context.fillStyle = soft;
  context.textAlign = "right";
  context.fillText("kernel", left - 6, headHeight - 13);
  context = sized(heatBody, width, kernels.length * cellHeight + 8);
  context.textBaseline = "middle";
  // With hundreds of kernels every weight is small: the darkest cell is the largest weight.
  const largest = Math.max(...part.weights.flat()) || 1;
  const written = cellWidth >= 34 && cellHeight >= 20;
  const every = Math.ceil(12 / cellHeight);
  kernels.forEach((k, line) => {
    const top = line * cellHeight;
    context.font = `11px ${font}`;
    context.textAlign = "right";
    context.fillStyle = soft;
    if (line % every === 0) context.fillText(`k${k}`, left - 6, top + cellHeight / 2);
    context.textAlign = "center";
    part.weights[k].forEach((weight, c) => {
      const strength = 0.05 + 0.9 * Math.sqrt(weight / largest);
      const gap = cellHeight > 4 ? 1 : 0;
      // One column alone is easier to compare as bars.
      const across = n === 1 ? (cellWidth - 1) * (weight / largest) : cellWidth - 1;
      context.fillStyle = `rgba(${shade}, ${n === 1 ? 0.75 : strength.toFixed(3)})`;
      context.fillRect(left + c * cellWidth, top, across, cellHeight - gap);
      if (written && weight >= 0.005) {
        context.fillStyle = (n === 1 ? across > 40 : strength > 0.6) ? page : ink;
        context.fillText(weight.toFixed(n === 1 ? 3 : 2), left + (n === 1 ? 22 : (c + 0.5) * cellWidth), top + cellHeight / 2 + 0.5);
      }
    });
  });
  grid = { kernels, left, cellWidth, cellHeight, headHeight, n };
  if (cursor && cursor.line < kernels.length) {
    context.strokeStyle = ink;
    context.lineWidth = 2;
    context.strokeRect(left + cursor.c * cellWidth, cursor.line * cellHeight, cellWidth - 1, Math.max(cellHeight - 1, 3));
  }
}

function tellCell({ line, c }) {
  const k = grid.kernels[line];
  const row = setNow().weights[k];
  if (grid.n === 1) return `kernel k${k}: weight ${number(row[0], 4)}`;
  const users = row.filter((weight) => weight >= report.steps[1]).length;
  return `kernel k${k} in class ${report.classes[c]}: weight ${number(row[c], 4)}\n${users === 1 ? "one class has" : `${users || "no"} classes have`} a weight of 0.01 or more`;
}

function cellAt(event) {
  const box = heatBody.getBoundingClientRect();
  const c = Math.floor((event.clientX - box.left - grid.left) / grid.cellWidth);
  const line = Math.floor((event.clientY - box.top) / grid.cellHeight);
  return c >= 0 && c < grid.n && line >= 0 && line < grid.kernels.length ? { line, c } : null;
}

// Show the class above, and light up the kernel until the pointer leaves.
function showAbove({ line, c }) {
  const k = grid.kernels[line];
  control.light.checked = true;
  if (grid.n > 1) chooseClass(c);
  else show();
  light(k, true);
}

heatBody.addEventListener("pointermove", (event) => {
  const cell = cellAt(event);
  if (cell) showTip(tellCell(cell), event.clientX, event.clientY);
  else hideTip();
});
heatBody.addEventListener("pointerleave", hideTip);
heatBody.addEventListener("click", (event) => {
  const cell = cellAt(event);
  if (!cell) return;
  cursor = cell;
  showAbove(cell);
});

function focusCell() {
  paintHeat();
  const { line, c } = cursor;
  const top = line * grid.cellHeight;
  if (top < heat.scrollTop) heat.scrollTop = top;
  const bottom = grid.headHeight + top + grid.cellHeight + 4;
  if (bottom > heat.scrollTop + heat.clientHeight) heat.scrollTop = bottom - heat.clientHeight;
  const start = grid.left + c * grid.cellWidth;
  if (start - grid.left < heat.scrollLeft) heat.scrollLeft = start - grid.left;
  if (start + grid.cellWidth > heat.scrollLeft + heat.clientWidth) heat.scrollLeft = start + grid.cellWidth - heat.clientWidth;
  const box = heatBody.getBoundingClientRect();
  showTip(tellCell(cursor), box.left + start + grid.cellWidth / 2, box.top + top + grid.cellHeight / 2);
}

heat.addEventListener("keydown", (event) => {
  const moves = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] };
  if (event.key === "Enter" && cursor) { showAbove(cursor); return; }
  if (!(event.key in moves)) return;
  event.preventDefault();
  const [down, right] = moves[event.key];
  const within = (value, size) => Math.min(size - 1, Math.max(0, value));
  cursor = cursor ? { line: within(cursor.line + down, grid.kernels.length), c: within(cursor.c + right, grid.n) } : { line: 0, c: 0 };
  focusCell();
});
heat.addEventListener("blur", () => { cursor = null; hideTip(); paintHeat(); });
heat.addEventListener("scroll", hideTip, { passive: true });

options(heatOrder, [["number", "number of the kernel"], ["weight", report.classes.length > 1 ? "weight in all classes" : "weight"],
  ...(report.classes.length > 1 ? [["main", "class that uses it most"], ["chosen", "weight in the class chosen above"]] : [])],
report.classes.length > 1 ? "main" : "weight");
heatOrder.addEventListener("change", () => { cursor = null; paintHeat(); });
document.addEventListener("model-shown", paintHeat);
responsiveHeat();

function responsiveHeat() {
  let last = 0;
  new ResizeObserver(() => {
    const width = heat.parentElement.clientWidth;
    if (width === last) return;
    last = width;
    paintHeat();
  }).observe(heat.parentElement);
}
