"use strict";
// The order of the steps over time: a lane for each place, a line for each step, crossings where steps move.

const LANE = 24;

// Colours that can be told apart as lines; the steps that move most have them, cuts before others.
const LINE_COLOURS = [0, 2, 1, 3, 5, 9, 4, 7];

function movingColours({ orders, cuts }) {
  const far = new Map(orders[0].map((name) => {
    const places = orders.map((order) => order.indexOf(name));
    return [name, Math.max(...places) - Math.min(...places)];
  }));
  const moved = orders[0].filter((name) => far.get(name));
  moved.sort((one, two) => cuts.includes(two) - cuts.includes(one) || far.get(two) - far.get(one));
  return new Map(moved.map((name, place) => [name, place < LINE_COLOURS.length ? palette(LINE_COLOURS[place]) : colour("soft")]));
}

function orderOption({ orders, times, cuts }) {
  const colours = movingColours({ orders, cuts });
  const names = (order, place) => axisLook({
    type: "category", data: order, inverse: true, position: place, axisLine: { show: false }, axisTick: { show: false },
    axisLabel: {
      color: (name) => colour(cuts.includes(name) ? "ink" : "soft"), interval: 0, hideOverlap: false,
      formatter: (name, at) => place === "left" ? `${shortened(name, 26)}  ${at + 1}` : `${at + 1}  ${shortened(name, 26)}`,
    },
  });
  return {
    grid: { left: 8, right: 8, top: 12, bottom: 46, containLabel: true },
    xAxis: axisLook({
      type: "category", data: times, boundaryGap: false, name: "work of all workers", nameLocation: "middle", nameGap: 30,
      splitLine: { show: true, lineStyle: { color: colour("line"), type: "dashed" } },
    }),
    yAxis: [names(orders[0], "left"), names(orders[orders.length - 1], "right")],
    tooltip: tooltipLook({ trigger: "item", formatter: ({ seriesName }) => tip(seriesName, []) }),
    series: orders[0].map((name) => ({
      type: "line", name, data: orders.map((order) => order.indexOf(name)), smooth: 0.5, smoothMonotone: "x",
      symbol: "circle", symbolSize: 8, showAllSymbol: true, emphasis: { focus: "series" }, z: colours.has(name) ? 3 : 2,
      itemStyle: { color: colours.get(name) || colour("line") },
      lineStyle: { color: colours.get(name) || colour("line"), width: cuts.includes(name) ? 2.4 : 1.3 },
    })),
  };
}

function drawOrder(number) {
  const drawn = DATA.orders[number];
  const box = document.getElementById("chart-order-" + number);
  if (!drawn || !box) return;
  box.style.height = 70 + LANE * drawn.orders[0].length + "px";
  const fold = box.closest("details");
  const draw = () => chart(box.id, () => orderOption(drawn));
  // What is folded away has no width to draw into.
  if (!fold || fold.open) draw();
  else fold.addEventListener("toggle", draw, { once: true });
}

DATA.orders.forEach((_, number) => drawOrder(number));
