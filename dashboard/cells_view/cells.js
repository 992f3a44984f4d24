// Rows by columns of coloured cells on one canvas: names left, steps below, the colour scale right, the legend above.
const held = new WeakMap();
const TOP = 30, BELOW = 46, RIGHT = 96, MOST_NAME = 250, LEAST_ROW = 15, MOST_ROW = 34, LEAST_HEIGHT = 250;
const GREY = "#8a8f98";

function themeOf(element) {
  const style = getComputedStyle(element);
  const value = (name, fallback) => style.getPropertyValue(name).trim() || fallback;
  return {
    text: value("--st-text-color", "#1b2430"),
    background: value("--st-background-color", "#ffffff"),
    font: value("--st-font", "sans-serif"),
  };
}

// 256 colours from a few: parsed once, then looked up.
function shades(colours) {
  const parts = colours.map((c) => [1, 3, 5].map((at) => parseInt(c.slice(at, at + 2), 16)));
  return Array.from({ length: 256 }, (_, i) => {
    const at = (i / 255) * (parts.length - 1), low = Math.min(Math.floor(at), parts.length - 2), way = at - low;
    return "rgb(" + parts[low].map((c, k) => Math.round(c + (parts[low + 1][k] - c) * way)).join(",") + ")";
  });
}

function cut(pen, text, room) {
  if (pen.measureText(text).width <= room) return text;
  let most = text.length;
  while (most > 1 && pen.measureText(text.slice(0, most) + "\u2026").width > room) most -= 1;
  return text.slice(0, most) + "\u2026";
}

// Where everything stands, in CSS pixels.
function layout(pen, data, width) {
  const names = data.rows.map((name) => cut(pen, name, Math.min(MOST_NAME, width / 3)));
  const left = 14 + Math.max(0, ...names.map((name) => pen.measureText(name).width));
  const rows = Math.max(data.rows.length, 1), columns = Math.max(data.columns.length, 1);
  const row = Math.max(LEAST_ROW, Math.min(MOST_ROW, (LEAST_HEIGHT - TOP - BELOW) / rows));
  return {
    names, left, row, rows, columns, column: Math.max(1, (width - left - RIGHT) / columns),
    height: Math.max(LEAST_HEIGHT, TOP + rows * row + BELOW), width,
  };
}

function stepsOf(data, column) {
  const first = data.columns[column];
  return data.span === 1 ? "step " + first : "steps " + first + " to " + (first + data.span - 1);
}

function drawCells(pen, data, at, colours) {
  const [low, high] = data.scale, gap = at.column > 4 ? 1 : 0, wide = at.columns;
  data.values.forEach((value, cell) => {
    if (value === null && !data.blank) return;
    const place = value === null ? 0 : Math.max(0, Math.min(255, Math.round(255 * (value - low) / (high - low || 1))));
    pen.fillStyle = value === null ? "rgba(150,150,150,0.38)" : colours[place];
    const x = at.left + (cell % wide) * at.column, y = TOP + Math.floor(cell / wide) * at.row;
    pen.fillRect(x, y, at.column - gap, at.row - 1);
    if (value === null && at.column >= 9) cross(pen, x + at.column / 2, y + at.row / 2);
  });
  data.dots.forEach((cell) => {
    dot(pen, at.left + (cell % wide + 0.5) * at.column, TOP + (Math.floor(cell / wide) + 0.5) * at.row, at.column);
  });
}

function cross(pen, x, y) {
  pen.strokeStyle = GREY;
  pen.lineWidth = 1;
  pen.beginPath();
  for (const side of [-2.5, 2.5]) { pen.moveTo(x - side, y - 2.5); pen.lineTo(x + side, y + 2.5); }
  pen.stroke();
}

function dot(pen, x, y, room) {
  pen.beginPath();
  pen.arc(x, y, Math.max(1.5, Math.min(3, room / 2.5)), 0, 2 * Math.PI);
  pen.fillStyle = "#ffffff";
  pen.fill();
  pen.lineWidth = 1;
  pen.strokeStyle = "#000000";
  pen.stroke();
}

function drawAxes(pen, data, at, theme) {
  const bottom = TOP + at.rows * at.row, wide = at.column * at.columns;
  pen.fillStyle = theme.text;
  pen.textBaseline = "middle";
  pen.textAlign = "right";
  at.names.forEach((name, i) => pen.fillText(name, at.left - 8, TOP + (i + 0.5) * at.row));
  pen.textAlign = "center";
  const every = niceStep(data.columns.length, wide / 52);
  data.columns.forEach((step, i) => {
    if (i % every === 0) pen.fillText(String(step), at.left + (i + 0.5) * at.column, bottom + 12);
  });
  const title = data.span === 1 ? "step" : "step (each column spans " + data.span + ")";
  pen.fillText(title, at.left + wide / 2, bottom + 32);
  const chosen = data.chosen === null ? -1 : data.columns.findIndex((step) => data.chosen >= step && data.chosen < step + data.span);
  if (chosen >= 0) {
    // Around the column, not across it: no value is hidden.
    pen.strokeStyle = theme.text;
    pen.setLineDash([3, 3]);
    pen.lineWidth = 1.5;
    pen.strokeRect(at.left + chosen * at.column - 1, TOP - 3, at.column + 1, at.rows * at.row + 5);
    pen.setLineDash([]);
  }
}

function niceStep(count, fit) {
  const least = count / Math.max(fit, 1);
  return [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000].find((step) => step >= least) || Math.ceil(least);
}

function drawScale(pen, data, at, theme, colours) {
  const x = at.width - RIGHT + 18, long = Math.min(220, at.rows * at.row), [low, high] = data.scale;
  colours.forEach((colour, i) => {
    pen.fillStyle = colour;
    pen.fillRect(x, TOP + long * (1 - (i + 1) / 256), 14, long / 256 + 1);
  });
  pen.fillStyle = theme.text;
  pen.textAlign = "left";
  for (const tick of data.ticks) {
    const y = TOP + long * (1 - (tick - low) / (high - low || 1));
    pen.fillText(tick.toFixed(Math.min(data.digits, 2)), x + 19, Math.max(TOP + 6, Math.min(TOP + long - 6, y)));
  }
  pen.save();
  pen.translate(at.width - 9, TOP + long / 2);
  pen.rotate(-Math.PI / 2);
  pen.textAlign = "center";
  pen.fillText(cut(pen, data.unit, long), 0, 0);
  pen.restore();
}

function drawLegend(pen, data, at, theme) {
  let x = at.left;
  pen.textAlign = "left";
  const name = (text, swatch) => {
    swatch(x + 6, 14);
    pen.fillStyle = theme.text;
    pen.fillText(text, x + 18, 14);
    x += 36 + pen.measureText(text).width;
  };
  if (data.blank && data.values.includes(null)) {
    name(data.blank + " (no data)", (at_x, y) => {
      pen.fillStyle = "rgba(150,150,150,0.38)";
      pen.fillRect(at_x - 6, y - 6, 12, 12);
      cross(pen, at_x, y);
    });
  }
  if (data.dots.length) name(data.dotted, (at_x, y) => dot(pen, at_x, y, 9));
}

function draw(view) {
  const { canvas, data } = view, width = canvas.parentElement.clientWidth;
  if (!width) return;
  const theme = themeOf(canvas), ratio = window.devicePixelRatio || 1, pen = canvas.getContext("2d");
  const font = "12px " + theme.font;
  pen.font = font;
  const at = view.at = layout(pen, data, width);
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(at.height * ratio);
  canvas.style.height = at.height + "px";
  pen.scale(ratio, ratio);
  pen.font = font;
  pen.fillStyle = theme.background;
  pen.fillRect(0, 0, width, at.height);
  const colours = shades(data.colours);
  drawCells(pen, data, at, colours);
  drawAxes(pen, data, at, theme);
  drawScale(pen, data, at, theme, colours);
  drawLegend(pen, data, at, theme);
}

function cellAt(view, event) {
  const box = view.canvas.getBoundingClientRect(), { at } = view;
  const column = Math.floor((event.clientX - box.x - at.left) / at.column);
  const row = Math.floor((event.clientY - box.y - TOP) / at.row);
  const inside = column >= 0 && row >= 0 && column < view.data.columns.length && row < view.data.rows.length;
  return inside ? row * at.columns + column : null;
}

// Whether there is something to say of a cell: its value, or that it has none.
function told(view, cell) {
  return view.data.values[cell] !== null || view.data.blank !== "";
}

function tell(view, event) {
  const { data, tip } = view, cell = cellAt(view, event), value = cell === null ? null : data.values[cell];
  if (cell === null || !told(view, cell)) { tip.style.display = "none"; return; }
  const row = Math.floor(cell / view.at.columns);
  const said = value === null ? data.blank : data.unit + " " + value.toFixed(data.digits);
  tip.textContent = data.rows[row] + "\n" + stepsOf(data, cell % view.at.columns) + "\n" + said;
  tip.style.display = "block";
  const box = view.canvas.getBoundingClientRect(), x = event.clientX - box.x, y = event.clientY - box.y;
  tip.style.left = Math.max(4, Math.min(x + 14, box.width - tip.offsetWidth - 8)) + "px";
  tip.style.top = Math.max(4, Math.min(y + 16, box.height - tip.offsetHeight - 4)) + "px";
}

function begin(parent) {
  const canvas = parent.querySelector(".cells");
  const view = { canvas, tip: parent.querySelector(".tip") };
  canvas.addEventListener("mousemove", (event) => tell(view, event));
  canvas.addEventListener("mouseleave", () => { view.tip.style.display = "none"; });
  canvas.addEventListener("click", (event) => {
    const cell = cellAt(view, event);
    if (cell !== null && told(view, cell)) view.send(cell);
  });
  const save = parent.querySelector(".save");
  save.title = "Save as a picture";
  save.addEventListener("click", () => {
    const link = document.createElement("a");
    link.download = view.data.name + ".png";
    link.href = canvas.toDataURL("image/png");
    link.click();
  });
  view.watch = new ResizeObserver(() => { if (view.at && canvas.parentElement.clientWidth !== view.at.width) draw(view); });
  view.watch.observe(canvas.parentElement);
  return view;
}

export default function ({ data, parentElement, setTriggerValue }) {
  const canvas = parentElement.querySelector(".cells");
  const view = held.get(canvas) || begin(parentElement);
  held.set(canvas, view);
  view.data = data;
  view.send = (cell) => setTriggerValue("clicked", cell);
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", data.alt);
  draw(view);
  canvas.envschedCells = view; // for tests: where a cell is
  return () => {
    if (canvas.isConnected) return;
    view.watch.disconnect();
    held.delete(canvas);
  };
}
