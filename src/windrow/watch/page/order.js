"use strict";
// Lines of the order's drawing say what they are in a box beside the pointer, as the other charts do.

for (const step of document.querySelectorAll(".bump .step")) {
  const title = step.querySelector("title");
  const [name, ...facts] = title.textContent.split("\n");
  const lines = facts.map((fact) => [null, fact.slice(0, fact.indexOf(": ")), fact.slice(fact.indexOf(": ") + 2)]);
  title.remove();
  let box = null;
  step.addEventListener("pointermove", (event) => {
    if (!box) {
      box = tip(name, lines);
      box.classList.add("floating");
      document.body.append(box);
    }
    const { width, height } = box.getBoundingClientRect();
    box.style.left = Math.min(event.clientX + 14, window.innerWidth - width - 8) + "px";
    box.style.top = Math.min(event.clientY + 14, window.innerHeight - height - 8) + "px";
  });
  step.addEventListener("pointerleave", () => {
    if (box) box.remove();
    box = null;
  });
}
