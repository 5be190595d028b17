"use strict";
// Box plots of the proportions in each condition, a panel for each population.

const { conditions } = report;
const BOX = { width: 60 + 54 * conditions.names.length, height: 170, left: 34, top: 8, bottom: 150 };
BOX.right = BOX.width - 6;
const centreOf = (c) => BOX.left + (BOX.right - BOX.left) * (c + 0.54) / (conditions.names.length + 0.08);

function quartile(sorted, share) {
  const place = share * (sorted.length - 1);
  const low = Math.floor(place);
  return sorted[low] + (place - low) * ((sorted[low + 1] ?? sorted[low]) - sorted[low]);
}

function drawBox(values, centre, y) {
  const sorted = [...values].sort((a, b) => a - b);
  const [low, middle, high] = [0.25, 0.5, 0.75].map((share) => quartile(sorted, share));
  const reach = 1.5 * (high - low);
  const [bottom, top] = [sorted.find((value) => value >= low - reach), sorted.findLast((value) => value <= high + reach)];
  const [left, right] = [centre - 22, centre + 22];
  return draw("g", {},
    draw("path", { class: "branch box", d: `M${left} ${y(low)}H${right}V${y(high)}H${left}ZM${centre} ${y(low)}V${y(bottom)}M${centre} ${y(high)}V${y(top)}` }),
    draw("path", { class: "branch", d: `M${left} ${y(middle)}H${right}` }));
}

function drawPanel({ population: g, q }) {
  const valueOf = (i) => study.proportions[i][g];
  const top = Math.max(...conditions.samples.flat().map(valueOf)) * 1.05 || 1;
  const y = scale(0, top, BOX.bottom, BOX.top);
  const title = `${study.populations[g].name}, q = ${q}`;
  const svg = draw("svg", { viewBox: `0 0 ${BOX.width} ${BOX.height}`, role: "img", "aria-label": title });
  svg.append(draw("path", { class: "axis", fill: "none", d: `M${BOX.left} ${BOX.top}V${BOX.bottom}H${BOX.right}` }));
  for (const tick of ticks(0, top, 4)) svg.append(draw("text", { x: BOX.left - 4, y: y(tick.value) + 4, "text-anchor": "end" }, tick.text));
  // Points of one condition beside each other, in an order without meaning.
  const across = new Map();
  conditions.names.forEach((name, c) => {
    svg.append(drawBox(conditions.samples[c].map(valueOf), centreOf(c), y));
    svg.append(draw("text", { x: centreOf(c), y: BOX.bottom + 15, "text-anchor": "middle" }, name.length > 11 ? `${name.slice(0, 10)}…` : name));
    conditions.samples[c].forEach((i, n) => across.set(i, centreOf(c) + 26 * ((n * 0.618) % 1 - 0.5)));
  });
  for (const [i, j] of conditions.joined) svg.append(draw("path", { class: "joined", d: `M${across.get(i)} ${y(valueOf(i))}L${across.get(j)} ${y(valueOf(j))}` }));
  for (const [i, x] of across) {
    const point = draw("circle", { cx: x.toFixed(1), cy: y(valueOf(i)).toFixed(1), r: 3.2, fill: colourOf(g) });
    explain(point, tellProportion(i, g));
    svg.append(point);
  }
  return make("figure", {}, make("figcaption", {}, populationKey(g), `${study.populations[g].label}, q = ${q}`), svg);
}

document.getElementById("boxes").append(...conditions.panels.map(drawPanel));
