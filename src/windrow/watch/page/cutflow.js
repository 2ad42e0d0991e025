"use strict";
// Cutflow tables: one region at a time, for all datasets together, for one, or side by side.

const ALL = "all:", SIDE = "side:", ONE = "one:";

const cutflow = { region: null, view: ALL, kind: "written" };

function drawCutflow() {
  const regions = Object.keys(DATA.cutflow);
  const target = document.getElementById("cutflow-table");
  if (!regions.length) {
    target.replaceChildren(element("p", { class: "hint" }, absent("There is no region with cuts in this run.")));
    return;
  }
  const first = cutflow.region === null;
  if (first) {
    cutflow.region = regions[0];
    if (!DATA.cutflow[regions[0]].all.written) cutflow.kind = "executed";
  }
  const found = DATA.cutflow[cutflow.region];
  const datasets = Object.keys(found.datasets);
  const views = [{ value: ALL, text: "all together" }];
  if (datasets.length > 1) {
    views.push({ value: SIDE, text: "side by side" });
    views.push(...datasets.map((name) => ({ value: ONE + name, text: name })));
  }
  if (!views.some((view) => view.value === cutflow.view)) cutflow.view = ALL;
  const set = (name) => (value) => { cutflow[name] = value; drawCutflow(); };
  showControls("cutflow-controls", [
    choice("Region", asOptions(regions), cutflow.region, set("region")),
    choice("Datasets", views, cutflow.view, set("view")),
    choice("Order of the cuts", [{ value: "written", text: "written" }, { value: "executed", text: "executed" }], cutflow.kind, set("kind")),
  ]);
  target.replaceChildren(cutflow.view === SIDE ? sideBySide(found, datasets) : oneTable(found));
}

function oneTable(found) {
  const table = cutflow.view === ALL ? found.all : found.datasets[cutflow.view.slice(ONE.length)];
  const lines = table[cutflow.kind];
  if (!lines) return noWritten(table.why_no_written);
  const weighted = isWeighted([table]);
  const initial = lines.length ? lines[0].passed : 0;
  const heads = ["cut", "passed", "of cut", "of all", ...(weighted ? ["weighted", "+-"] : []), ""];
  const rows = lines.map((line, place) => element("tr", { class: place + 1 === lines.length && "last" },
    element("th", { scope: "row" }, line.cut),
    element("td", { title: interval(line) }, passed(line)),
    element("td", null, place ? percent(line.passed, line.entered) : "-"),
    barCell(line.passed, initial),
    ...(weighted ? [element("td", null, number(line.sumw)), element("td", null, number(line.sumw_error, 4))] : []),
    element("td", { class: "remark" }, remarks(line, isEstimated([table])))));
  return tableOf(`${table.region}, ${table.dataset || "all datasets"}: ${exactness([table])}, ${kindWords(table)}`, heads, rows);
}

function sideBySide(found, datasets) {
  const tables = datasets.map((name) => found.datasets[name]);
  const without = tables.find((table) => !table[cutflow.kind]);
  if (without) return noWritten(`${without.dataset}: ${without.why_no_written}`);
  const names = [...new Set(tables.flatMap((table) => table[cutflow.kind].map((line) => line.cut)))];
  const heads = ["cut", ...datasets.map((name) => shortened(name)), "all"];
  const rows = names.map((name, place) => {
    const lines = tables.map((table) => table[cutflow.kind].find((line) => line.cut === name));
    const total = lines.reduce((sum, line) => sum + (line ? line.passed : 0), 0);
    const about = lines.some((line) => line && line.kind === "estimated") ? "~" : "";
    return element("tr", { class: place + 1 === names.length && "last" },
      element("th", { scope: "row" }, name),
      ...lines.map((line) => element("td", { title: line ? remarks(line) : null },
        line ? passed(line) + (line.applies ? "" : " n/a") : "-")),
      element("td", null, about + count(total)));
  });
  return tableOf(`${cutflow.region}, rows passed by dataset: ${exactness(tables)}, ${kindWords(tables[0])}`, heads, rows);
}

function kindWords(table) {
  const last = table.executed[table.executed.length - 1];
  if (cutflow.kind === "written") return "in the written order";
  return last && last.cut === "selected" && table.why_no_written
    ? "executed in several orders: what reached and what passed each cut"
    : "in the order that ran";
}

function noWritten(why) {
  return element("p", { class: "hint", "data-reason": true },
    `There is no table in the written order: ${why}. The executed one is exact.`);
}

function isWeighted(tables) {
  return tables.some((table) => table.executed.some((line) => line.sumw !== line.passed));
}

function isEstimated(tables) {
  return tables.some((table) => (table[cutflow.kind] || []).some((line) => line.kind === "estimated"));
}

function exactness(tables) {
  return isEstimated(tables) ? "estimated" : "exact";
}

// "~123,400 +- 900": both to the two leading digits of the error.
function passed(line) {
  if (line.kind !== "estimated" || !line.passed_error) return count(line.passed);
  const unit = Math.max(1, 10 ** (Math.floor(Math.log10(line.passed_error)) - 1));
  const rounded = (value) => count(Math.round(value / unit) * unit);
  return `~${rounded(line.passed)} \u00b1 ${rounded(line.passed_error)}`;
}

function interval(line) {
  return line.kind === "estimated" ? `95 %: ${count(line.interval[0])} to ${count(line.interval[1])}` : null;
}

function remarks(line, mixed) {
  const words = [];
  if (line.kind === "estimated") words.push(`estimated from ${count(line.sampled)} rows`);
  else if (mixed) words.push("exact");
  if (!line.applies) words.push("n/a here: every row passes");
  if (line.undefined) words.push(count(line.undefined) + " undefined");
  if (line.nan) words.push(count(line.nan) + " with NaN");
  return words.join(", ");
}

function barCell(part, all) {
  const width = all ? 100 * part / all : 0;
  return element("td", { class: "barcell" },
    element("span", { class: "bar", style: `width:${width.toFixed(2)}%` }),
    element("span", null, percent(part, all)));
}

function tableOf(caption, heads, rows) {
  return element("div", { class: "scroll", tabindex: "0" },
    element("table", { class: "cutflow" },
      element("caption", null, caption),
      element("thead", null, element("tr", null,
        ...heads.map((head, place) => element("th", { scope: "col", class: place === 0 && "left" }, head === "+-" ? "\u00b1" : head)))),
      element("tbody", null, ...rows)));
}

drawCutflow();
