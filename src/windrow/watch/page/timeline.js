"use strict";
// What happened when: workers, throughput and memory over the same time, zoomed together.

const LEFT = 76, RIGHT = 26;

// What tasks do: rows of a pipeline, or they are counted themselves.
const COUNTED = DATA.counted || "rows";

// Ticks at whole minutes and hours, not at hundreds of seconds.
function tickInterval(span) {
  const least = span / 8;
  return least <= 20 ? undefined : [30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 86400].find((step) => step >= least);
}

function timeAxis(span, extra) {
  return axisLook({ type: "value", min: 0, max: span, interval: tickInterval(span), axisLabel: { formatter: seconds, showMaxLabel: false }, ...extra });
}

const zoom = () => [{ type: "inside", xAxisIndex: 0, filterMode: "none", zoomOnMouseWheel: "ctrl", moveOnMouseWheel: false }];

// -- workers ------------------------------------------------------------------------------------

function timelineOption() {
  const { span, lanes, colours, blocks, marks, joined } = DATA.timeline;
  const colourOf = (name, place) => name.startsWith("discarded:") ? colour("bad") : palette(datasetColour.has(name) ? datasetColour.get(name) : place);
  const series = colours.map((name, place) => ({
    type: "custom", name, clip: true, encode: { x: [1, 2], y: 0 }, progressive: 0,
    itemStyle: { color: colourOf(name, place) },
    data: blocks.lane.flatMap((lane, at) => blocks.colour[at] !== place ? []
      : [[lane, blocks.begin[at], blocks.end[at], blocks.busy[at], blocks.tasks[at], blocks.rows[at]]]),
    renderItem: (params, api) => block(params, api, joined),
  }));
  if (marks.length) series.push({ type: "scatter", name: "failures", symbol: "triangle", symbolSize: 10, z: 9, itemStyle: { color: colour("bad") },
    data: marks.map((mark) => ({ value: [mark.time, mark.lane], what: mark.what })) });
  return {
    grid: { left: LEFT, right: RIGHT, top: 42, bottom: 34 },
    legend: { type: "scroll", top: 8, left: "center", itemWidth: 14, itemHeight: 10, textStyle: { color: colour("ink") }, formatter: (name) => shortened(name), data: series.map((one) => ({ name: one.name })) },
    xAxis: timeAxis(span, {}),
    yAxis: axisLook({ type: "category", data: lanes, inverse: true, name: "worker", nameLocation: "middle", nameGap: 46, nameRotate: 90, axisTick: { show: false } }),
    dataZoom: zoom(),
    tooltip: tooltipLook({ trigger: "item", formatter: (params) => blockTip(params, lanes, joined) }),
    series,
  };
}

function block(params, api, joined) {
  const [x, middle] = api.coord([api.value(1), api.value(0)]);
  const right = api.coord([api.value(2), api.value(0)])[0];
  const lane = Math.min(api.size([0, 1])[1] * 0.78, 26);
  // As high as its worker was busy, so that idle time shows.
  const height = Math.max(lane * api.value(3), 1);
  const gap = joined || right - x < 4 ? 0 : 0.8;
  const shape = { x, y: middle + lane / 2 - height, width: Math.max(right - x - gap, joined ? 0.5 : 1), height };
  const area = params.coordSys;
  const left = Math.max(shape.x, area.x), end = Math.min(shape.x + shape.width, area.x + area.width);
  return end < left ? null : { type: "rect", shape: { ...shape, x: left, width: end - left }, style: { fill: api.visual("color") } };
}

function blockTip(params, lanes, joined) {
  if (params.data.what) return tip(params.data.what, [[null, "at", seconds(params.value[0])]]);
  const [lane, begin, end, busy, tasks, rows] = params.value;
  return tip(params.seriesName, [
    [null, "worker", lanes[lane]],
    [null, "from", seconds(begin)],
    [null, "for", seconds(end - begin)],
    ...(joined ? [[null, "busy", (100 * busy).toFixed(0) + " %"], [null, "tasks ended", count(tasks)]] : []),
    ...(COUNTED === "rows" ? [[null, "rows", count(rows)]] : []),
  ]);
}

// -- curves -------------------------------------------------------------------------------------

function curveOption(name, points, place, format, step) {
  const span = DATA.timeline ? DATA.timeline.span : points[points.length - 1][0];
  return {
    grid: { left: LEFT, right: RIGHT, top: 34, bottom: 28 },
    xAxis: timeAxis(span, {}),
    yAxis: axisLook({ type: "value", min: 0, name, nameLocation: "end", nameGap: 10, nameTextStyle: { color: colour("ink"), align: "left", padding: [0, 0, 0, 6] },
      splitNumber: 3, splitLine: faintLines(), axisLabel: { formatter: format } }),
    dataZoom: zoom(),
    tooltip: tooltipLook({ trigger: "axis", formatter: (params) => tip(seconds(params[0].value[0]), [[palette(place), name, format(params[0].value[1])]]) }),
    series: [{ type: "line", name, step: step ? "end" : false, symbol: "none", data: points, lineStyle: { width: 1.5, color: palette(place) },
      itemStyle: { color: palette(place) }, areaStyle: { color: palette(place), opacity: 0.16 } }],
  };
}

function drawTimeline() {
  const { timeline, throughput, memory } = DATA;
  if (!timeline) {
    document.getElementById("timeline-charts").replaceChildren(element("p", { class: "hint" }, "No task was logged, so there is nothing to draw over time."));
    return;
  }
  const box = document.getElementById("chart-timeline");
  box.style.height = Math.min(Math.max(110 + 30 * timeline.lanes.length, 150), 720) + "px";
  chart("chart-timeline", timelineOption, { group: "time" });
  const many = "Many tasks: each block stands for all that a lane did in a short time, and is as high as it was busy. ";
  box.after(element("p", { class: "hint" }, (timeline.joined ? many : "") + "Ctrl and the wheel zoom into the time, dragging moves it."));
  const curve = (values) => [...values.map((value, place) => [place * throughput.step, value]), [timeline.span, values[values.length - 1]]];
  if (throughput) {
    chart("chart-rows", () => curveOption(COUNTED + "/s", curve(throughput.rows), 0, amount, true), { group: "time" });
    if (throughput.read) chart("chart-read", () => curveOption("read", curve(throughput.read), 1, (value) => bytes(value) + "/s", true), { group: "time" });
  }
  if (memory) {
    const points = memory.time.map((time, place) => [time, memory.bytes[place]]);
    chart("chart-memory", () => curveOption("resident", points, 3, bytes, false), { group: "time" });
  } else {
    document.getElementById("chart-memory").replaceWith(element("p", { class: "hint" }, "Memory was not logged."));
  }
  echarts.connect("time");
}

drawTimeline();
if (!CHARTS.length) document.documentElement.dataset.drawn = "true";
