"use strict";
// Chunks whose memory was limited: how many rows they had over time, and what they used against their rows.

const CHUNK_KINDS = [["", "circle"], [", in blocks", "diamond"], ["used too much", "triangle"]];

// One series for each dataset and each look; what used too much is apart, whosever it was.
function chunkSeries(x, y) {
  const { names, dataset, kind } = DATA.chunks;
  const found = new Map();
  dataset.forEach((own, at) => {
    const bad = kind[at] === 2;
    const name = bad ? CHUNK_KINDS[2][0] : names[own] + CHUNK_KINDS[kind[at]][0];
    if (!found.has(name)) {
      const paint = bad ? colour("bad") : palette(datasetColour.get(names[own]) || 0);
      found.set(name, { type: "scatter", name, symbol: CHUNK_KINDS[kind[at]][1], symbolSize: bad ? 10 : 7, z: bad ? 9 : 3,
        itemStyle: { color: paint, opacity: bad ? 1 : 0.75, borderColor: colour("card"), borderWidth: 0.5 }, data: [] });
    }
    found.get(name).data.push({ value: [x[at], y[at]], at });
  });
  return [...found.values()];
}

function chunkOption(x, y, xAxis, yAxis, lines) {
  const series = chunkSeries(x, y);
  return {
    grid: { left: LEFT, right: RIGHT, top: 44, bottom: 48 },
    legend: { type: "scroll", top: 6, left: "center", itemWidth: 14, itemHeight: 10, textStyle: { color: colour("ink") },
      formatter: (name) => shortened(name), data: series.map(({ name }) => ({ name })) },
    xAxis, yAxis: axisLook({ type: "value", min: 0, nameLocation: "middle", nameGap: 58, nameRotate: 90, splitNumber: 4, splitLine: faintLines(), ...yAxis }),
    tooltip: tooltipLook({ trigger: "item", formatter: chunkTip }),
    series: [...series, ...lines],
  };
}

function chunkTip({ data, seriesName, color }) {
  const { time, rows, peak, limit } = DATA.chunks;
  if (data.at === undefined) return "";
  return tip(seriesName, [[color, "at", seconds(time[data.at])], [null, "rows", count(rows[data.at])],
    [null, "used", bytes(peak[data.at])], [null, "might use", bytes(limit[data.at])]]);
}

// As far as there are chunks, and no higher than the drawing.
function chunkLines(top) {
  const { rows, names, lines, allowed } = DATA.chunks;
  const line = (paint, type, fixed, perRow) => {
    const end = Math.min(Math.max(...rows), perRow > 0 ? Math.max(top - fixed, 0) / perRow : Infinity);
    return { type: "line", symbol: "none", silent: true, z: 2, data: [[0, fixed], [end, fixed + perRow * end]], lineStyle: { color: paint, type, width: 1.6 } };
  };
  return [
    ...lines.flatMap((one, place) => one ? [line(palette(datasetColour.get(names[place]) || 0), "solid", ...one)] : []),
    line(colour("soft"), "dashed", allowed, 0),
  ];
}

function drawChunks() {
  const { time, rows, peak, allowed, span } = DATA.chunks;
  const top = 1.1 * Math.max(allowed, ...peak);
  for (const [name, height] of [["rows", 230], ["memory", 340]]) document.getElementById("chart-chunk-" + name).style.height = height + "px";
  chart("chart-chunk-rows", () => chunkOption(time, rows, timeAxis(span, {}), { name: "rows", axisLabel: { formatter: amount } }, []));
  const across = () => axisLook({ type: "value", min: 0, name: "rows", nameLocation: "middle", nameGap: 30, axisLabel: { formatter: amount } });
  chart("chart-chunk-memory", () => chunkOption(rows, peak, across(), { name: "memory", max: top, axisLabel: { formatter: bytes, showMaxLabel: false } }, chunkLines(top)));
}

if (DATA.chunks) drawChunks();
