"use strict";
// Which histograms are shown together, and over which one they are divided.

const NOMINAL = "nominal";
const TOGETHER = "all together";
const NONE = "none";
const NO_REGION = "all rows";

const shown = { name: null, region: null, variation: NOMINAL, compare: null, dataset: TOGETHER, ratio: null, log: false, area: false };

const regionOf = (item) => item.region === null ? NO_REGION : item.region;
const measured = new Map(DATA.datasets.map((dataset) => [dataset.name, dataset.is_data]));
const distinct = (values) => [...new Set(values)];

const byPlace = new Map(DATA.histograms.map((item) => [placeOf(item.name, regionOf(item), item.variation, item.dataset), item]));

function placeOf(...parts) {
  return JSON.stringify(parts);
}

// Where a weight does not apply it is 1, so its variations are the nominal.
function histogramAt(name, region, variation, dataset) {
  return byPlace.get(placeOf(name, region, variation, dataset)) || byPlace.get(placeOf(name, region, NOMINAL, dataset));
}

function sameBins(a, b) {
  return a.kind === b.kind && JSON.stringify(a.axes) === JSON.stringify(b.axes);
}

function added(items) {
  const plus = (one, two) => Array.isArray(one) ? one.map((value, place) => plus(value, two[place])) : one + two;
  const known = items.every((item) => item.variances);
  return {
    ...items[0],
    values: items.map((item) => item.values).reduce(plus),
    variances: known ? items.map((item) => item.variances).reduce(plus) : null,
    flow: items.every((item) => item.flow) ? items.map((item) => item.flow).reduce(plus) : null,
  };
}

// -- what can be chosen -------------------------------------------------------------------------

function choices() {
  const here = DATA.histograms.filter((item) => item.name === shown.name);
  const regions = distinct(here.map(regionOf));
  if (!regions.includes(shown.region)) shown.region = regions[0];
  const inRegion = here.filter((item) => regionOf(item) === shown.region);
  const variations = distinct(inRegion.map((item) => item.variation));
  if (!variations.includes(shown.variation)) shown.variation = variations.includes(NOMINAL) ? NOMINAL : variations[0];
  const datasets = distinct(inRegion.map((item) => item.dataset));
  const flat = inRegion[0].axes.length === 2;
  const summable = inRegion[0].kind === "count";
  const compares = flat ? [] : comparable(regions, variations, datasets, summable);
  if (!compares.some((one) => one.value === shown.compare)) shown.compare = compares.length ? compares[0].value : "datasets";
  const whose = summable && datasets.length > 1 ? [TOGETHER, ...datasets] : datasets;
  if (!whose.includes(shown.dataset)) shown.dataset = whose[0];
  return { regions, variations, datasets, flat, compares, whose, summable };
}

function comparable(regions, variations, datasets, summable) {
  const kinds = distinct(datasets.map((name) => measured.get(name) === true));
  const compares = [];
  if (summable && kinds.length === 2) compares.push({ value: "stack", text: "data and simulation" });
  compares.push({ value: "datasets", text: "datasets" });
  if (regions.length > 1) compares.push({ value: "regions", text: "regions" });
  if (variations.length > 1) compares.push({ value: "variations", text: "variations" });
  return compares;
}

// -- what is drawn ------------------------------------------------------------------------------

// One curve: a label, a histogram, and how it looks.
function curves(found) {
  const at = (region, variation, dataset) => {
    const names = dataset === TOGETHER ? found.datasets : [dataset];
    const items = names.map((name) => histogramAt(shown.name, region, variation, name)).filter(Boolean);
    return items.length && items.every((item) => sameBins(item, items[0])) ? added(items) : null;
  };
  if (found.flat) return [{ label: shown.dataset, item: at(shown.region, shown.variation, shown.dataset), style: "line", place: 0 }];
  if (shown.compare === "regions") {
    return found.regions.map((region, place) => ({ label: region, item: at(region, shown.variation, shown.dataset), style: "line", place }));
  }
  if (shown.compare === "variations") {
    return found.variations.map((variation, place) => ({ label: variation, item: at(shown.region, variation, shown.dataset), style: "line", place }));
  }
  const each = found.datasets.map((name) => ({
    label: name,
    item: at(shown.region, shown.variation, name),
    style: measured.get(name) === true ? "points" : "line",
    place: datasetColour.get(name) || 0,
  }));
  return shown.compare === "stack" ? stack(each) : each;
}

// Simulation on top of each other, data added up; the whole simulation is what data is compared with.
function stack(each) {
  const usable = each.filter((curve) => curve.item);
  const data = usable.filter((curve) => curve.style === "points");
  const simulated = usable.filter((curve) => curve.style !== "points");
  const fits = (curve) => sameBins(curve.item, usable[0].item);
  const result = simulated.filter(fits).map((curve) => ({ ...curve, style: "fill" }));
  if (simulated.some(fits)) result.push({ label: "simulation", item: added(simulated.filter(fits).map((curve) => curve.item)), style: "total", place: 0 });
  if (data.some(fits)) result.push({ label: "data", item: added(data.filter(fits).map((curve) => curve.item)), style: "points", place: 0 });
  return result;
}

function defaultRatio(labels) {
  if (shown.compare === "stack" && labels.includes("data") && labels.includes("simulation")) return "simulation";
  if (shown.compare === "variations" && labels.includes(NOMINAL)) return NOMINAL;
  return NONE;
}

function scaledToArea(item) {
  const width = (place) => item.axes[0].edges ? item.axes[0].edges[place + 1] - item.axes[0].edges[place] : 1;
  const area = item.values.reduce((sum, value, place) => sum + (value || 0) * width(place), 0);
  return area ? times(item, 1 / area) : item;
}

// Everything the drawing needs: curves with equal bins, the one to divide by, and what to say below.
function picture() {
  const found = choices();
  const all = curves(found).filter((curve) => curve.item);
  const reference = shown.compare === "regions"
    ? all.find((curve) => curve.label === shown.region) || all[0] : all[0];
  const kept = all.filter((curve) => sameBins(curve.item, reference.item));
  const left = all.filter((curve) => !kept.includes(curve)).map((curve) => curve.label);
  const labels = kept.filter((curve) => curve.style !== "fill").map((curve) => curve.label);
  const ratios = found.flat || labels.length < 2 ? [NONE] : [NONE, ...labels];
  if (!ratios.includes(shown.ratio)) shown.ratio = shown.ratio === null || shown.ratio !== NONE ? defaultRatio(labels) : NONE;
  if (!ratios.includes(shown.ratio)) shown.ratio = NONE;
  const scale = shown.area && found.summable && !found.flat;
  const factor = scale && shown.compare === "stack" ? dataOverSimulation(kept) : 1;
  const drawn = !scale ? kept : kept.map((curve) => ({
    ...curve,
    item: shown.compare !== "stack" ? scaledToArea(curve.item) : curve.style === "points" ? curve.item : times(curve.item, factor),
  }));
  return { found, curves: drawn, ratios, notes: notes(reference, kept, left, scale, factor) };
}

function times(item, factor) {
  return {
    ...item,
    values: item.values.map((value) => value * factor),
    variances: item.variances && item.variances.map((value) => value * factor ** 2),
  };
}

function dataOverSimulation(kept) {
  const sum = (label) => {
    const curve = kept.find((one) => one.label === label);
    return curve ? curve.item.values.reduce((one, two) => one + two, 0) : 0;
  };
  return sum("data") > 0 && sum("simulation") > 0 ? sum("data") / sum("simulation") : 1;
}

function notes(reference, kept, left, scale, factor) {
  const words = [];
  if (factor !== 1) words.push(`Simulation is multiplied by ${number(factor, 4)}.`);
  const item = reference.item;
  const flow = kept.filter((curve) => curve.style !== "fill" && curve.item.flow && curve.item.flow.some((value) => value));
  if (flow.length && !scale) {
    words.push("Outside the bins: " + flow.slice(0, 6).map((curve) =>
      `${curve.label} ${number(curve.item.flow[0], 4)} below and ${number(curve.item.flow[1], 4)} above`).join("; ") + ".");
  }
  if (kept.some((curve) => !curve.item.variances)) words.push("Without error bars, as the histogram does not know its variances.");
  if (left.length) words.push(`With other bins, and so not drawn: ${left.slice(0, 8).join(", ")}${left.length > 8 ? " ..." : ""}.`);
  words.push(...item.notes.map((note) => note[0].toUpperCase() + note.slice(1) + "."));
  words.push(...DATA.histogram_notes);
  return words.join(" ");
}
