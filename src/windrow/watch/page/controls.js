"use strict";
// Controls made of the browser's own inputs: they work with the keyboard and with screen readers.

let controlCount = 0;

// One of several: a row of buttons where they are few and short, otherwise a list.
function choice(name, options, chosen, change) {
  const letters = options.reduce((sum, option) => sum + option.text.length, 0);
  if (options.length > 5 || letters > 48) return listChoice(name, options, chosen, change);
  controlCount += 1;
  const group = "choice-" + controlCount;
  const labels = options.map((option) => {
    const input = element("input", { type: "radio", name: group, value: option.value, checked: option.value === chosen });
    input.addEventListener("change", () => change(option.value));
    return element("label", null, input, option.text);
  });
  return element("fieldset", { class: "control", "data-control": name },
    element("legend", null, name), element("div", { class: "segments" }, ...labels));
}

function listChoice(name, options, chosen, change) {
  const list = element("select", null, ...options.map((option) =>
    element("option", { value: option.value, selected: option.value === chosen }, shortened(option.text, 60))));
  list.addEventListener("change", () => change(list.value));
  return element("label", { class: "control", "data-control": name }, element("span", { class: "name" }, name), list);
}

function tick(name, on, change) {
  const input = element("input", { type: "checkbox", checked: on });
  input.addEventListener("change", () => change(input.checked));
  return element("label", { class: "tick", "data-control": name }, input, name);
}

// Put controls in place of others; whoever had the keyboard keeps it.
function showControls(id, controls) {
  const box = document.getElementById(id);
  const held = box.contains(document.activeElement) ? document.activeElement.closest("[data-control]") : null;
  const name = held && held.dataset.control;
  box.replaceChildren(...controls.filter(Boolean));
  if (!name) return;
  const again = [...box.children].find((node) => node.dataset.control === name);
  const target = again && (again.querySelector(":checked:not(option)") || again.querySelector("select, input"));
  if (target) target.focus();
}

const asOptions = (values) => values.map((value) => ({ value, text: value }));
