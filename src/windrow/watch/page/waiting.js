"use strict";
// What tasks waited for, by name; drawn before the timeline, which says when the page is complete.

function waitingOption() {
  const { names, causes, seconds: spent } = DATA.waiting;
  return {
    grid: { left: 8, right: 40, top: 40, bottom: 28, containLabel: true },
    legend: { type: "scroll", top: 8, left: "center", itemWidth: 14, itemHeight: 10, textStyle: { color: colour("ink") } },
    xAxis: axisLook({ type: "value", min: 0, splitLine: faintLines(), axisLabel: { formatter: seconds } }),
    yAxis: axisLook({ type: "category", data: names, inverse: true, axisTick: { show: false }, axisLabel: { formatter: (name) => shortened(name, 30) } }),
    tooltip: tooltipLook({ trigger: "item", formatter: (params) => tip(params.name, [[params.color, params.seriesName, seconds(params.value)]]) }),
    series: causes.map((name, place) => ({
      type: "bar", name, stack: "waiting", barMaxWidth: 22, itemStyle: { color: palette(place) }, data: spent[place],
    })),
  };
}

function drawWaiting() {
  const box = document.getElementById("chart-waiting");
  if (!DATA.waiting) {
    box.remove();
    return;
  }
  box.style.height = 96 + 30 * DATA.waiting.names.length + "px";
  chart("chart-waiting", waitingOption);
}

drawWaiting();
