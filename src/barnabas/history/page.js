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
  const steps = chart.dataset.steps.split(",").map(Number);
  const axis = chart.querySelector(".axis svg"), grid = chart.querySelector(".grid");
  const whole = document.getElementById("whole");
  const SECOND = 1000, MINUTE = 60000, DAY = 86400000;
  const LABEL = 110; // pixels of a label of the axis with its margin

  function svg(name, attributes, text = "") {
    const made = document.createElementNS(axis.namespaceURI, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.textContent = text;
    return made;
  }

  // The same rules as tick_step and tick_slice in timeline.py, but for the visible range and the width of the window.
  function showTicks(from, to, percent) {
    const width = axis.getBoundingClientRect().width;
    const count = Math.max(2, Math.min(8, Math.floor(width / LABEL)));
    const step = steps.find((each) => Math.floor((to - from) / each) < count) ?? steps.at(-1);
    const end = step >= DAY ? 10 : step >= MINUTE ? 16 : step >= SECOND ? 19 : 23;
    const begin = to - from > DAY || step >= DAY ? 5 : 11;
    const times = [];
    for (let at = Math.ceil((start + from) / step) * step; at <= start + to; at += step) times.push(at);
    axis.classList.remove("fixed");
    axis.replaceChildren(...times.map((at) => {
      const text = new Date(at).toISOString().replace("T", " ").slice(begin, end);
      const x = ((at - start - from) / (to - from)) * width;
      const anchor = x < LABEL / 3 ? "start" : x > width - LABEL / 3 ? "end" : "middle";
      return svg("text", { x: percent(at - start), y: 14, "text-anchor": anchor }, text);
    }));
    grid.replaceChildren(...times.map((at) => {
      const x = percent(at - start);
      return svg("line", { x1: x, x2: x, y1: 0, y2: "100%" });
    }));
  }

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
    showTicks(from, to, percent);
    whole.hidden = from === 0 && to === length;
  }

  const lane = chart.querySelector(".lane svg");
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
  show(...shown);
  window.addEventListener("resize", () => show(...shown));
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
