"use strict";
// Drawing histograms: steps, points with error bars, stacks, ratios, bars of categories, heat maps.

// More bins than this leave no room for error bars.
const MOST_ERRORS = 400;

// Lines of the box beside the pointer.
const MOST_TIPS = 20;

const lookOf = (curve) => curve.style === "points" || curve.style === "total" ? colour(curve.style === "total" ? "soft" : "data") : palette(curve.place);

// Several measured datasets side by side are told apart by colour; a single one is black.
function coloured(curve, list) {
  const many = list.filter((one) => one.style === "points").length > 1;
  return curve.style === "points" && many ? palette(curve.place) : lookOf(curve);
}

function rows(list) {
  return list.map((curve) => ({
    label: curve.label,
    style: curve.style,
    colour: coloured(curve, list),
    values: curve.item.values,
    errors: curve.item.variances && curve.item.variances.map((value) => value === null ? null : Math.sqrt(Math.max(value, 0))),
  }));
}

// Add up the filled ones, the first at the bottom; drawn from the highest down, each hides the rest of the former.
function piled(list) {
  let below = null;
  const fills = list.filter((row) => row.style === "fill").map((row) => {
    below = below ? row.values.map((value, place) => value + below[place]) : row.values;
    return { ...row, values: below, errors: null };
  });
  return [...fills.reverse(), ...list.filter((row) => row.style !== "fill")];
}

function divided(list, label) {
  const base = list.find((row) => row.label === label);
  const over = (value, place) => base.values[place] > 0 && value !== null ? value / base.values[place] : null;
  const correlated = shown.compare === "variations";
  const others = list.filter((row) => row !== base && row.style !== "fill").map((row) => ({
    ...row,
    style: correlated ? "line" : "points",
    values: row.values.map(over),
    errors: row.errors && !correlated ? row.errors.map(over) : null,
  }));
  const band = base.errors && !correlated ? { band: base.errors.map(over), colour: colour("soft") } : null;
  return { others, band };
}

// Categories are bins of width one, named in their middle.
function edgesOf(axis) {
  return axis.edges || Array.from({ length: axis.categories.length + 1 }, (_, place) => place);
}

// -- one panel ----------------------------------------------------------------------------------

function panel(list, edges, panelNumber, floor, bars) {
  const axes = { xAxisIndex: panelNumber, yAxisIndex: panelNumber };
  const base = { ...axes, silent: true, animation: false };
  const above = (value) => floor === null || value === null ? value : Math.max(value, floor);
  const series = [];
  list.forEach((row, order) => {
    const named = { ...base, name: row.label, z: 2 + order, itemStyle: { color: row.colour } };
    if (row.style === "points") {
      series.push({ ...named, type: "scatter", z: 40 + order, symbolSize: 5.5,
        data: row.values.map((value, place) => [(edges[place] + edges[place + 1]) / 2, floor !== null && value <= 0 ? null : value]) });
    } else {
      series.push({ ...named, type: "line", step: "end", symbol: "none", data: bars ? separate(row.values.map(above), floor || 0) : outline(row.values.map(above), edges, panelNumber ? null : floor || 0),
        lineStyle: { color: row.colour, width: row.style === "fill" ? 0.8 : 1.7 },
        areaStyle: row.style === "fill" || (bars && row.style === "line") ? { color: row.colour, opacity: row.style === "fill" ? 1 : 0.18, origin: floor === null ? "auto" : "start" } : undefined });
    }
    if (row.errors && row.values.length <= MOST_ERRORS) series.push(errorBars(row, bars ? null : edges, base, floor, order));
  });
  return series;
}

function outline(values, edges, floor) {
  const points = values.map((value, place) => [edges[place], value]);
  points.push([edges[edges.length - 1], values[values.length - 1]]);
  return floor === null ? points : [[edges[0], floor], ...points, [edges[edges.length - 1], floor]];
}

// Bars of categories stand apart.
function separate(values, floor) {
  return values.flatMap((value, place) => [[place + 0.12, floor], [place + 0.12, value], [place + 0.88, value], [place + 0.88, floor]]);
}

function errorBars(row, edges, base, floor, order) {
  const band = row.style === "total";
  const data = row.values.map((value, place) => {
    const error = row.errors[place];
    if (value === null || error === null || (floor !== null && value <= 0)) return null;
    return [edges ? edges[place] : place + 0.12, edges ? edges[place + 1] : place + 0.88, floor === null ? value - error : Math.max(value - error, floor), value + error];
  }).filter((point) => point);
  return { ...base, type: "custom", name: row.label, clip: true, z: (band ? 20 : 39) + order, data, itemStyle: { color: row.colour },
    encode: { x: [0, 1], y: [2, 3] },
    renderItem: (params, api) => band ? rectangle(api, row.colour, 0.32) : whisker(api, row.colour) };
}

function whisker(api, stroke) {
  const middle = (api.value(0) + api.value(1)) / 2;
  const [x, low] = api.coord([middle, api.value(2)]);
  const high = api.coord([middle, api.value(3)])[1];
  return { type: "line", shape: { x1: x, y1: low, x2: x, y2: high }, style: { stroke, lineWidth: 1.2 } };
}

function rectangle(api, fill, opacity) {
  const [x, y] = api.coord([api.value(0), api.value(3)]);
  const [right, bottom] = api.coord([api.value(1), api.value(2)]);
  return { type: "rect", shape: { x, y, width: right - x, height: Math.max(bottom - y, 1) }, style: { fill, opacity } };
}

// -- axes ---------------------------------------------------------------------------------------

function extent(list) {
  let low = Infinity, high = -Infinity, positive = Infinity;
  for (const row of list) {
    row.values.forEach((value, place) => {
      if (value === null) return;
      const error = row.errors ? row.errors[place] || 0 : 0;
      low = Math.min(low, value - error);
      high = Math.max(high, value + error);
      if (value > 0) positive = Math.min(positive, value);
    });
  }
  return { low: Number.isFinite(low) ? low : 0, high: Number.isFinite(high) ? high : 1, positive };
}

// Around 1 where the ratios are near it, otherwise from 0; single wild bins do not decide.
function ratioExtent(list) {
  const values = list.flatMap((row) => row.values.filter((value) => value !== null)).sort((one, two) => one - two);
  if (!values.length) return [0, 2, 1];
  const at = (share) => values[Math.min(Math.floor(share * values.length), values.length - 1)];
  const far = 1.25 * Math.max(Math.abs(at(0.05) - 1), Math.abs(at(0.95) - 1));
  const half = [0.02, 0.05, 0.1, 0.2, 0.5, 1].find((width) => far <= width);
  if (half) return [1 - half, 1 + half, half];
  const size = 10 ** Math.floor(Math.log10(Math.max(at(0.95), 1)));
  const [top, interval] = [[1.5, 0.5], [2, 1], [3, 1], [4, 2], [6, 2], [8, 4], [15, 5]].find(([most]) => 1.25 * at(0.95) <= most * size);
  return [0, top * size, interval * size];
}

function yName(items, area) {
  if (items[0].kind !== "count") return "mean";
  if (area) return items[0].axes[0].edges ? "share per " + items[0].axes[0].label : "share";
  const weighted = items.some((item) => item.values.some((value) => value !== null && !Number.isInteger(value)));
  return weighted ? "weighted rows per bin" : "rows per bin";
}

function histogramOption(view) {
  const item = view.curves[0].item;
  const axis = item.axes[0];
  const edges = edgesOf(axis);
  const list = rows(view.curves);
  const { low, high, positive } = extent(list);
  // Weights that nearly cancel leave bins that are all but empty: they are not worth ten decades.
  const least = Math.max(0.8 * positive, 1e-7 * high);
  const floor = shown.log && Number.isFinite(positive) ? 10 ** Math.floor(Math.log10(least)) : null;
  const series = panel(piled(list), edges, 0, floor, Boolean(axis.categories));
  const grids = [{ left: 76, right: 26, top: 46, bottom: 52 }];
  const narrow = document.getElementById("chart-histogram").clientWidth < 560;
  if (narrow) Object.assign(grids[0], { left: 62, right: 14, top: 64 });
  const xAxes = [{ ...binAxis(axis, 32), gridIndex: 0 }];
  const yAxes = [axisLook({ type: floor === null ? "value" : "log", name: yName(view.curves.map((curve) => curve.item), shown.area && shown.compare !== "stack"), nameLocation: "middle", nameGap: narrow ? 44 : 56,
    min: floor === null ? (low >= 0 ? 0 : 1.1 * low) : floor, max: floor === null ? (high > 0 ? 1.1 * high : undefined) : 10 ** Math.ceil(Math.log10(high * 1.4)),
    splitLine: faintLines(), axisLabel: { showMaxLabel: floor !== null, formatter: (value) => high >= 1e4 ? amount(value) : number(value, 3) } })];
  if (shown.ratio !== NONE) {
    const { others, band } = divided(list, shown.ratio);
    grids[0].bottom = 178;
    grids.push({ ...grids[0], top: undefined, bottom: 52, height: 104 });
    xAxes[0] = { ...xAxes[0], name: "", axisLabel: { show: false } };
    xAxes.push({ ...binAxis(axis, 32), gridIndex: 1 });
    const [from, to, interval] = ratioExtent(others);
    yAxes.push(axisLook({ gridIndex: 1, type: "value", min: from, max: to, interval, name: ratioName(others), nameLocation: "middle",
      nameGap: narrow ? 44 : 56, splitLine: faintLines(), axisLabel: { formatter: (value) => number(value, 3) } }));
    series.push(unity(edges), ...(band ? [ratioBand(band, edges)] : []), ...panel(others, edges, 1, null, false));
  }
  return { grid: grids, xAxis: xAxes, yAxis: yAxes, series, legend: legend(list), tooltip: histogramTip(list, edges, axis),
    axisPointer: { link: [{ xAxisIndex: "all" }], lineStyle: { color: colour("soft"), type: "dashed" } } };
}

function binAxis(axis, nameGap) {
  const shared = { type: "value", name: axis.label, nameLocation: "middle", nameGap };
  if (axis.edges) return axisLook({ ...shared, min: axis.edges[0], max: axis.edges[axis.edges.length - 1], axisLabel: { formatter: (value) => number(value, 5) } });
  const every = Math.ceil(axis.categories.length / 24);
  const middles = axis.categories.map((_, place) => place + 0.5).filter((_, place) => place % every === 0);
  return axisLook({ ...shared, min: 0, max: axis.categories.length, axisTick: { show: false },
    axisLabel: { customValues: middles, formatter: (value) => shortened(axis.categories[Math.floor(value)] || "", 18) } });
}

function ratioName(others) {
  return shortened(`${others.length === 1 ? others[0].label : "ratio"} / ${shown.ratio}`, 22);
}

function unity(edges) {
  const ends = [edges[0], edges[edges.length - 1]];
  return { type: "line", xAxisIndex: 1, yAxisIndex: 1, silent: true, symbol: "none", tooltip: { show: false },
    data: ends.map((end) => [end, 1]), lineStyle: { color: colour("soft"), width: 1 }, z: 1 };
}

function ratioBand(band, edges) {
  const data = band.band.map((error, place) => error === null ? null
    : [edges[place], edges[place + 1], 1 - error, 1 + error]).filter((point) => point);
  return { type: "custom", xAxisIndex: 1, yAxisIndex: 1, silent: true, clip: true, z: 1, data, encode: { x: [0, 1], y: [2, 3] },
    renderItem: (params, api) => rectangle(api, band.colour, 0.25) };
}

function legend(list) {
  return { type: "scroll", top: 8, left: "center", itemWidth: 15, itemHeight: 10, textStyle: { color: colour("ink"), fontSize: 12.5 },
    formatter: (name) => shortened(name),
    data: list.map((row) => ({ name: row.label, icon: row.style === "points" ? "circle" : "rect" })) };
}

const binName = (axis, place) => axis.edges ? `${number(axis.edges[place], 5)} to ${number(axis.edges[place + 1], 5)}` : axis.categories[place];

function histogramTip(list, edges, axis) {
  return tooltipLook({ trigger: "axis", formatter: (params) => {
    const place = binOf(edges, params[0].axisValue);
    if (place < 0) return "";
    return tip(`${axis.label}: ${binName(axis, place)}`, list.slice(0, MOST_TIPS).map((row) => [row.colour, row.label, number(row.values[place], 5),
      row.errors && row.errors[place] !== null ? "\u00b1 " + number(row.errors[place], 3) : ""]));
  } });
}

function binOf(edges, at) {
  for (let place = 0; place + 1 < edges.length; place += 1) if (at >= edges[place] && at < edges[place + 1]) return place;
  return at === edges[edges.length - 1] ? edges.length - 2 : -1;
}

// -- two dimensions -----------------------------------------------------------------------------

function heatOption(view) {
  const item = view.curves[0].item;
  const [first, second] = item.axes;
  const firsts = edgesOf(first), seconds = edgesOf(second);
  const data = [];
  item.values.forEach((line, x) => line.forEach((value, y) => {
    if (value) data.push([firsts[x], firsts[x + 1], seconds[y], seconds[y + 1], value, x, y]);
  }));
  const values = data.map((point) => point[4]);
  const most = values.reduce((one, two) => Math.max(one, two), 0), least = values.reduce((one, two) => Math.min(one, two), 0);
  return {
    grid: { left: 76, right: 92, top: 24, bottom: 52 },
    xAxis: binAxis(first, 32), yAxis: binAxis(second, 56),
    visualMap: { min: least, max: most || 1, dimension: 4, calculable: false, right: 8, top: "middle", itemHeight: 220, textStyle: { color: colour("soft") },
      text: [number(most, 3), number(least, 3)], inRange: { color: [0, 1, 2, 3].map((place) => colour("heat" + place)) } },
    tooltip: tooltipLook({ trigger: "item", formatter: (params) => tip(`${first.label}: ${binName(first, params.value[5])}`,
      [[null, `${second.label}: ${binName(second, params.value[6])}`, number(params.value[4], 5)]]) }),
    series: [{ type: "custom", data, encode: { x: [0, 1], y: [2, 3] }, clip: true, progressive: 0, renderItem: cell }],
  };
}

function cell(params, api) {
  const [x, y] = api.coord([api.value(0), api.value(3)]);
  const [right, bottom] = api.coord([api.value(1), api.value(2)]);
  return { type: "rect", shape: { x, y, width: right - x + 0.5, height: bottom - y + 0.5 }, style: { fill: api.visual("color") } };
}

// -- together -----------------------------------------------------------------------------------

function drawHistograms() {
  const note = document.getElementById("histogram-note");
  if (!DATA.histograms.length) {
    document.getElementById("chart-histogram").remove();
    note.textContent = [absent("No output of this run is a histogram."), ...DATA.histogram_notes].join(" ");
    return;
  }
  const names = distinct(DATA.histograms.map((item) => item.name));
  shown.name = names[0];
  let view = picture();
  const draw = chart("chart-histogram", () => view.found.flat ? heatOption(view) : histogramOption(view));
  const set = (field, forget) => (value) => {
    shown[field] = value;
    if (forget) shown.ratio = null;
    view = picture();
    controls();
    draw();
  };
  const controls = () => {
    const { found, ratios } = view;
    const pick = shown.compare === "regions" || shown.compare === "variations" || found.flat;
    showControls("histogram-controls", [
      names.length > 1 && choice("Output", asOptions(names), shown.name, set("name", true)),
      found.regions.length > 1 && choice("Region", asOptions(found.regions), shown.region, set("region")),
      found.variations.length > 1 && shown.compare !== "variations" && choice("Variation", asOptions(found.variations), shown.variation, set("variation")),
      found.compares.length > 1 && choice("Compare", found.compares, shown.compare, set("compare", true)),
      pick && found.whose.length > 1 && listChoice("Dataset", asOptions(found.whose), shown.dataset, set("dataset")),
      ratios.length > 1 && listChoice("Ratio to", asOptions(ratios), shown.ratio, set("ratio")),
      !found.flat && tick("logarithmic", shown.log, set("log")),
      !found.flat && found.summable && tick(shown.compare === "stack" ? "scale simulation to data" : "equal areas", shown.area, set("area")),
    ]);
    note.textContent = view.notes;
  };
  controls();
}

drawHistograms();
