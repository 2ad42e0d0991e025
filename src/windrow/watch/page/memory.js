"use strict";
// Chunks whose memory was limited: how many rows they had over time, and what they used against their rows.

const chunkColour = (own) => palette(datasetColour.get(DATA.chunks.names[own]) || 0);

// One series for each dataset and look; what used too much is apart, whosever it was.
function chunkSeries(x, y) {
  const { names, dataset, block, failed, rows } = DATA.chunks;
  const found = new Map();
  dataset.forEach((own, at) => {
    const blocks = block[at] > 0 && block[at] < rows[at];
    const name = failed[at] ? "used too much" : names[own] + (blocks ? ", in blocks" : "");
    if (!found.has(name)) found.set(name, { type: "scatter", name, symbol: failed[at] ? "triangle" : blocks ? "diamond" : "circle",
      symbolSize: failed[at] ? 10 : 7, z: failed[at] ? 9 : 3, itemStyle: { color: failed[at] ? colour("bad") : chunkColour(own), opacity: 0.8 }, data: [] });
    found.get(name).data.push({ value: [x[at], y[at]], at });
  });
  return [...found.values()];
}

function chunkOption(x, y, xAxis, yAxis, lines) {
  const { time, rows, peak, limit } = DATA.chunks;
  const series = chunkSeries(x, y);
  const said = ({ data: { at }, seriesName, color }) => tip(seriesName, [[color, "at", seconds(time[at])], [null, "rows", count(rows[at])],
    [null, "used", bytes(peak[at])], [null, "might use", bytes(limit[at])]]);
  return {
    grid: { left: LEFT, right: RIGHT, top: 44, bottom: 48 }, xAxis, series: [...series, ...lines],
    legend: { type: "scroll", top: 6, itemWidth: 14, itemHeight: 10, textStyle: { color: colour("ink") }, formatter: (name) => shortened(name), data: series.map(({ name }) => ({ name })) },
    yAxis: axisLook({ type: "value", min: 0, nameLocation: "middle", nameGap: 58, nameRotate: 90, splitNumber: 4, splitLine: faintLines(), ...yAxis }),
    tooltip: tooltipLook({ trigger: "item", formatter: said }),
  };
}

// As far as there are chunks, and no higher than the drawing.
function chunkLine(paint, type, [fixed, perRow], most, top) {
  const end = Math.min(most, perRow > 0 ? Math.max(top - fixed, 0) / perRow : most);
  return { type: "line", symbol: "none", silent: true, z: 2, data: [[0, fixed], [end, fixed + perRow * end]], lineStyle: { color: paint, type, width: 1.6 } };
}

if (DATA.chunks && DATA.chunks.rows.length) {
  const { time, rows, peak, lines, allowed, span } = DATA.chunks;
  const most = Math.max(...rows), top = 1.1 * Math.max(allowed, ...peak);
  const across = () => axisLook({ type: "value", min: 0, name: "rows", nameLocation: "middle", nameGap: 30, axisLabel: { formatter: amount } });
  const drawn = () => [...lines.flatMap((one, own) => one ? [chunkLine(chunkColour(own), "solid", one, most, top)] : []), chunkLine(colour("soft"), "dashed", [allowed, 0], most, top)];
  chart("chart-chunk-rows", () => chunkOption(time, rows, timeAxis(span, {}), { name: "rows", axisLabel: { formatter: amount } }, []));
  chart("chart-chunk-memory", () => chunkOption(rows, peak, across(), { name: "memory", max: top, axisLabel: { formatter: bytes, showMaxLabel: false } }, drawn()));
} else if (document.getElementById("chunk-charts")) document.getElementById("chunk-charts").remove();
