"use strict";
// Shared by the other scripts: the data, elements, scales, the tooltip.
const report = JSON.parse(document.getElementById("report-data").textContent);

function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  return fill(element, attributes, children);
}

function draw(name, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  return fill(element, attributes, children);
}

function fill(element, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined) element.setAttribute(key, value);
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

// A linear map of [a, b] onto [from, to].
function scale(a, b, from, to) {
  const span = b - a || 1;
  return (value) => from + ((value - a) / span) * (to - from);
}

// About `count` round numbers between a and b.
function ticks(a, b, count = 5) {
  const raw = (b - a) / count || 1;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((candidate) => candidate >= raw);
  const first = Math.ceil(a / step - 1e-9);
  const last = Math.floor(b / step + 1e-9);
  const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  return Array.from({ length: Math.max(0, last - first + 1) }, (_, i) => {
    const value = (first + i) * step;
    return { value, text: value.toFixed(digits) };
  });
}

const number = (value, digits = 3) => (value === null ? "–" : value.toFixed(digits));
const plural = (count, word) => `${count} ${word}${count === 1 ? "" : "s"}`;

const tip = document.getElementById("tip");

function showTip(text, x, y) {
  tip.textContent = text;
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  const left = Math.min(Math.max(8, x + 14), document.documentElement.clientWidth - box.width - 8);
  const top = y + 18 + box.height > window.innerHeight ? y - box.height - 12 : y + 18;
  tip.style.left = `${Math.max(8, left)}px`;
  tip.style.top = `${Math.max(8, top)}px`;
}

// The focused element that the tip follows when the page scrolls.
let focused = null;

function hideTip() {
  tip.hidden = true;
  focused = null;
}

function showTipAt(element, text) {
  const box = element.getBoundingClientRect();
  showTip(text, box.left + box.width / 2, box.top + box.height / 2);
  focused = element;
}

// Show `text` while the element is under the pointer or has the focus.
function explain(element, text, enter = () => {}, leave = () => {}) {
  element.addEventListener("pointermove", (event) => { showTip(text, event.clientX, event.clientY); });
  element.addEventListener("pointerenter", enter);
  element.addEventListener("pointerleave", () => { hideTip(); leave(); });
  element.addEventListener("focus", () => { showTipAt(element, text); enter(); });
  element.addEventListener("blur", () => { hideTip(); leave(); });
}

document.addEventListener("keydown", (event) => { if (event.key === "Escape") hideTip(); });
document.addEventListener("scroll", () => {
  if (focused) showTipAt(focused, tip.textContent);
  else hideTip();
}, { passive: true });

function options(select, entries, wanted) {
  select.replaceChildren(...entries.map(([value, text]) => make("option", { value }, text)));
  if (entries.some(([value]) => value === wanted)) select.value = wanted;
}

// The chosen value of a set of radio buttons.
const chosen = (name) => document.querySelector(`input[name="${name}"]:checked`)?.value;

// Calls paint(width) now and whenever the width of the container changes, so that text keeps its size.
function responsive(container, paint) {
  let last = 0;
  const repaint = () => {
    const width = Math.floor(container.clientWidth);
    if (width === last || width < 40) return;
    last = width;
    const old = container.querySelector(":scope > svg");
    const fresh = paint(width);
    if (old) old.replaceWith(fresh);
    else container.append(fresh);
  };
  new ResizeObserver(repaint).observe(container);
  repaint();
}

// Make many elements a single Tab stop: arrow keys move between them.
function rove(elements, columns = 1) {
  elements.forEach((element, i) => {
    element.setAttribute("tabindex", i === 0 ? 0 : -1);
    element.addEventListener("keydown", (event) => {
      const column = i % columns;
      const steps = { ArrowRight: columns === 1 || column + 1 < columns ? 1 : 0, ArrowLeft: columns === 1 || column > 0 ? -1 : 0,
        ArrowDown: columns, ArrowUp: -columns, Home: -i, End: elements.length - 1 - i };
      const next = elements[i + (steps[event.key] ?? 0)];
      if (!(event.key in steps) || !next) return;
      event.preventDefault();
      element.setAttribute("tabindex", -1);
      next.setAttribute("tabindex", 0);
      next.focus();
    });
  });
}

// The entry of the contents for the section on screen.
if ("IntersectionObserver" in window) {
  const links = new Map([...document.querySelectorAll("nav.contents a")].map((a) => [a.hash.slice(1), a]));
  const seen = new Set();
  const observer = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (entry.isIntersecting) seen.add(entry.target.id);
      else seen.delete(entry.target.id);
    }
    const first = [...links.keys()].find((id) => seen.has(id));
    if (first === undefined) return;
    for (const [id, link] of links) link.classList.toggle("here", id === first);
  }, { rootMargin: "-10% 0px -60% 0px" });
  for (const id of links.keys()) {
    const target = document.getElementById(id);
    if (target) observer.observe(target);
  }
}

// On wide screens the contents are always open.
const contents = document.querySelector("nav.contents details");
const wide = window.matchMedia("(min-width: 1080px)");
const settle = () => { contents.open = wide.matches; };
wide.addEventListener("change", settle);
settle();
