"use strict";
// Sorts tables, filters topics and zooms the timeline. The page has the same content without this script.

for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  table.querySelectorAll("th").forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const numeric = head.classList.contains("n");
      const was = head.getAttribute("aria-sort");
      const order = was ? (was === "ascending" ? "descending" : "ascending") : numeric ? "descending" : "ascending";
      for (const other of table.querySelectorAll("th")) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", order);
      const value = (row) => {
        const cell = row.cells[column];
        return numeric ? Number(cell.dataset.v ?? -1) : (cell.dataset.v ?? cell.textContent);
      };
      const sign = order === "ascending" ? 1 : -1;
      const rows = [...body.rows].map((row) => [value(row), row]);
      rows.sort(([one], [other]) => sign * (numeric ? one - other : one.localeCompare(other)));
      body.append(...rows.map(([, row]) => row));
    });
  });
}

for (const input of document.querySelectorAll("input.filter")) {
  const rows = [...document.getElementById(input.dataset.table).tBodies[0].rows];
  input.hidden = false;
  input.addEventListener("input", () => {
    const wanted = input.value.trim().toLowerCase();
    for (const row of rows) row.hidden = !row.cells[0].textContent.toLowerCase().includes(wanted);
  });
}

const chart = document.querySelector(".chart");
if (chart) {
  const start = Number(chart.dataset.start);
  const length = Number(chart.dataset.length);
  const marks = [...chart.querySelectorAll("[data-a]")].map((mark) => [
    mark, Number(mark.dataset.a), Number(mark.dataset.b ?? mark.dataset.a),
  ]);
  const ticks = [...chart.querySelectorAll("[data-tick]")];
  const whole = document.getElementById("whole");
  const DAY = 86400000;

  function show(from, to) {
    const percent = (at) => `${((at - from) / (to - from)) * 100}%`;
    for (const [mark, a, b] of marks) {
      const outside = b < from || a > to;
      mark.style.display = outside ? "none" : "";
      if (outside) continue;
      if (mark.tagName === "line") {
        mark.setAttribute("x1", percent(a));
        mark.setAttribute("x2", percent(a));
      } else if (mark.tagName === "rect") {
        // Clip to the visible range: browsers cannot draw very large coordinates.
        const left = Math.max(a, from), right = Math.min(b, to);
        mark.setAttribute("x", percent(left));
        mark.setAttribute("width", `${((right - left) / (to - from)) * 100}%`);
      } else {
        mark.setAttribute("x", percent(a));
      }
    }
    ticks.forEach((tick, index) => {
      const at = new Date(start + from + ((to - from) * index) / (ticks.length - 1)).toISOString();
      tick.textContent = to - from > DAY ? at.slice(5, 19).replace("T", " ") : at.slice(11, 23);
    });
    whole.hidden = from === 0 && to === length;
  }

  const lane = chart.querySelector("svg");
  const at = (event) => {
    const box = lane.getBoundingClientRect();
    return Math.min(Math.max((event.clientX - box.left) / box.width, 0), 1);
  };
  let shown = [0, length];
  let dragStart = null;
  const zoom = (from, to) => {
    shown = [Math.max(0, from), Math.min(length, Math.max(to, from + 10))];
    show(...shown);
  };
  const selection = document.createElement("div");
  selection.className = "selection";
  selection.hidden = true;
  chart.append(selection);
  chart.addEventListener("pointerdown", (event) => {
    if (event.button === 0) dragStart = at(event);
  });
  window.addEventListener("pointermove", (event) => {
    if (dragStart === null) return;
    const [left, right] = [dragStart, at(event)].sort((one, other) => one - other);
    const box = lane.getBoundingClientRect(), outer = chart.getBoundingClientRect();
    selection.hidden = false;
    selection.style.left = `${box.left - outer.left + left * box.width}px`;
    selection.style.width = `${(right - left) * box.width}px`;
  });
  window.addEventListener("pointerup", (event) => {
    if (dragStart === null) return;
    const [left, right] = [dragStart, at(event)].sort((one, other) => one - other);
    dragStart = null;
    selection.hidden = true;
    const [from, to] = shown;
    if (right - left > 0.01) zoom(from + left * (to - from), from + right * (to - from));
  });
  window.addEventListener("pointercancel", () => {
    dragStart = null;
    selection.hidden = true;
  });
  chart.addEventListener("dblclick", () => zoom(0, length));
  whole.addEventListener("click", () => zoom(0, length));
  for (const button of document.querySelectorAll(".zoom")) {
    button.hidden = false;
    button.addEventListener("click", () => {
      const from = Number(button.dataset.from) - start, to = Number(button.dataset.to) - start;
      const margin = Math.max((to - from) * 0.5, 20);
      zoom(from - margin, to + margin);
      chart.scrollIntoView({ behavior: "smooth", block: "nearest" });
    });
  }
}
