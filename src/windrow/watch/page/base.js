"use strict";
// What all parts of the page share: the data, elements, numbers as text, and charts that follow the page.

const DATA = JSON.parse(document.getElementById("data").textContent);

// What is not there, and why.
const absent = (text) => DATA.unfinished ? "Not known, as the run left no result." : text;

// Texts are never parsed as HTML: names come from users.
function element(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === false || value === null || value === undefined) continue;
    node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

function count(value) {
  return value === null ? "-" : whole.format(value);
}

function percent(part, all) {
  return all ? (100 * part / all).toFixed(2) + " %" : "-";
}

// Six digits, without trailing zeros; large whole numbers in full.
function number(value, digits = 6) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "-";
  if (Number.isInteger(value) && Math.abs(value) < 1e12) return whole.format(value);
  return String(Number(value.toPrecision(digits)));
}

function scaled(value, units, base = 1000) {
  let place = 0;
  while (Math.abs(value) >= base && place + 1 < units.length) {
    value /= base;
    place += 1;
  }
  return Number(value.toPrecision(3)) + (units[place] ? " " + units[place] : "");
}

const amount = (value) => scaled(value, ["", "k", "M", "G", "T"]);
const bytes = (value) => scaled(value, ["B", "kB", "MB", "GB", "TB"]);

function seconds(value) {
  if (value !== 0 && Math.abs(value) < 1) return Number((1000 * value).toPrecision(3)) + " ms";
  if (value < 60) return Number(value.toPrecision(4)) + " s";
  const two = (large, one, small, other) => large + " " + one + (small ? ` ${small} ${other}` : "");
  const minutes = Math.floor(value / 60);
  if (minutes < 120) return two(minutes, "min", Math.round(value - 60 * minutes), "s");
  return two(Math.floor(minutes / 60), "h", minutes % 60, "min");
}

// -- colours and charts -------------------------------------------------------------------------

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
}

const COLOURS = 10;
const palette = (place) => colour("c" + (place % COLOURS));

// Every dataset keeps its colour wherever it appears; data is mostly black, so simulation chooses first.
const datasetColour = new Map([...(DATA.datasets || [])].sort((one, two) => (one.is_data === true) - (two.is_data === true))
  .map((dataset, place) => [dataset.name, place]));

// Long names of datasets must not take the room of the drawing.
function shortened(text, most = 34) {
  return text.length <= most ? text : text.slice(0, most - 12) + "..." + text.slice(-9);
}

const CHARTS = [];

// Draw into an element now, and again whenever size, colours or the wish to print change.
function chart(id, option, { group = null } = {}) {
  const node = document.getElementById(id);
  const instance = echarts.init(node, null, { renderer: "canvas" });
  const entry = { id, node, instance, option, drawn: false };
  if (group) instance.group = group;
  instance.on("finished", () => {
    entry.drawn = true;
    allDrawn();
  });
  CHARTS.push(entry);
  redraw(entry);
  new ResizeObserver(() => instance.resize()).observe(node);
  return () => redraw(entry);
}

function redraw(entry) {
  entry.instance.setOption({ ...common(), ...entry.option() }, { notMerge: true });
}

function common() {
  return {
    animation: false,
    textStyle: { fontFamily: getComputedStyle(document.body).fontFamily, color: colour("ink") },
  };
}

function allDrawn() {
  if (CHARTS.every((entry) => entry.drawn)) document.documentElement.dataset.drawn = "true";
}

function redrawAll() {
  CHARTS.forEach(redraw);
}

window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawAll);

function printing(on) {
  document.documentElement.toggleAttribute("data-print", on);
  redrawAll();
  // At once: paper does not wait for the next frame.
  CHARTS.forEach((entry) => entry.instance.getZr().flush());
}

window.addEventListener("beforeprint", () => printing(true));
window.addEventListener("afterprint", () => printing(false));

// -- parts of charts ----------------------------------------------------------------------------

function axisLook(extra) {
  return {
    axisLine: { onZero: false, lineStyle: { color: colour("soft") } },
    axisTick: { lineStyle: { color: colour("soft") } },
    splitLine: { show: false },
    nameTextStyle: { color: colour("soft"), fontSize: 13 },
    ...extra,
    axisLabel: { color: colour("soft"), fontSize: 12, hideOverlap: true, ...(extra.axisLabel || {}) },
  };
}

function faintLines() {
  return { show: true, lineStyle: { color: colour("line"), opacity: 0.6 } };
}

function tooltipLook(extra) {
  return {
    confine: true,
    backgroundColor: colour("card"),
    borderColor: colour("line"),
    textStyle: { color: colour("ink"), fontSize: 12.5 },
    extraCssText: "box-shadow: 0 4px 18px rgba(0,0,0,.14)",
    ...extra,
  };
}

function tip(title, lines) {
  const rows = lines.map(([swatch, ...cells]) => element("tr", null,
    ...cells.map((cell, place) => element("td", null,
      place === 0 && swatch ? element("span", { class: "swatch", style: "background:" + swatch }) : null,
      cell))));
  return element("div", { class: "tip" }, element("b", null, title), element("table", null, element("tbody", null, ...rows)));
}
