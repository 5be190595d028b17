"use strict";
// Box plots of the proportions on two sides, a panel for each population.

const { conditions } = report;
const BOX = { width: 168, height: 170, left: 34, right: 162, top: 8, bottom: 150 };
const centreOf = (first) => BOX.left + (BOX.right - BOX.left) * (first ? 0.27 : 0.73);

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
  const own = conditions.samples.map((i) => report.proportions[i][g]);
  const top = Math.max(...own) * 1.05 || 1;
  const y = scale(0, top, BOX.bottom, BOX.top);
  const title = `${nameOf(g)}, q = ${q}`;
  const svg = draw("svg", { viewBox: `0 0 ${BOX.width} ${BOX.height}`, role: "img", "aria-label": title });
  svg.append(draw("path", { class: "axis", fill: "none", d: `M${BOX.left} ${BOX.top}V${BOX.bottom}H${BOX.right}` }));
  for (const tick of ticks(0, top, 4)) svg.append(draw("text", { x: BOX.left - 4, y: y(tick.value) + 4, "text-anchor": "end" }, tick.text));
  // Points of one side beside each other, in an order without meaning.
  const places = conditions.first.map((first, n) => centreOf(first) + 26 * ((n * 0.618) % 1 - 0.5));
  for (const first of [true, false]) {
    svg.append(drawBox(own.filter((_, n) => conditions.first[n] === first), centreOf(first), y));
    const name = conditions.names[first ? 0 : 1];
    svg.append(draw("text", { x: centreOf(first), y: BOX.bottom + 15, "text-anchor": "middle" }, name.length > 11 ? `${name.slice(0, 10)}…` : name));
  }
  for (const [one, other] of conditions.joined) svg.append(draw("path", { class: "joined", d: `M${places[one]} ${y(own[one])}L${places[other]} ${y(own[other])}` }));
  own.forEach((value, n) => {
    const point = draw("circle", { cx: places[n].toFixed(1), cy: y(value).toFixed(1), r: 3.2, fill: colourOf(g) });
    explain(point, tellProportion(conditions.samples[n], g));
    svg.append(point);
  });
  return make("figure", {}, make("figcaption", {}, populationKey(g), `${report.populations[g].label}, q = ${q}`), svg);
}

document.getElementById("boxes").append(...conditions.lines.map(drawPanel));
