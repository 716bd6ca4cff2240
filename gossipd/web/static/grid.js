// The grid of hosts over time or over the chunks of a model, and the chart of rates. Only the rows in sight are drawn.

import { COLUMNS, NOTHING } from "./samples.js";
import { byRack, el, isBad, isOld, percent, shape, wanted } from "./dom.js";

export const RACKS_ONLY_ABOVE = 400;
export const COLOURS = { storage: "#d55e00", same: "#0072b2", cross: "#101820" };
const ROW = 20;
const INK = "#16202c", SOFT = "#55606e", ALARM = "#a32a00", RULE = "#c5ccd5";
const FONT = '13px system-ui, "DejaVu Sans", sans-serif';

// One hue, from light to dark: 0 is the grey of an empty cell.
const SHADES = Array.from({ length: 255 }, (_, share) => {
  if (share === 0) return "#e9edf2";
  const part = share / 254;
  const mix = (light, dark) => Math.round(light + (dark - light) * part);
  return `rgb(${mix(168, 8)},${mix(204, 48)},${mix(238, 107)})`;
});

export function rowsOf(deployment, samples, opened) {
  const isFolded = deployment.hosts.length > RACKS_ONLY_ABOVE;
  const rows = [];
  for (const [rack, hosts] of byRack(deployment.hosts)) {
    const isOpen = isFolded ? opened.has(rack) : !opened.has(rack);
    const chunks = hosts.reduce((sum, host) => sum + host.chunks_verified / wanted(host, deployment), 0);
    const complete = hosts.filter((host) => host.state === "complete").length;
    const failed = hosts.filter(isBad).length;
    rows.push({ rack, isRack: true, isOpen, name: rack, share: chunks / hosts.length,
      state: failed ? "failed" : complete === hosts.length ? "complete" : "downloading", failed,
      word: `${complete}/${hosts.length} complete${failed ? `, ${failed} failed or dead` : ""}`, isOld: false,
      cells: isOpen ? null : mean(hosts.map((host) => samples.hosts.get(host.name)), samples.isTime) });
    if (!isOpen) continue;
    for (const host of hosts) {
      rows.push({ rack, isRack: false, name: host.name, share: host.chunks_verified / wanted(host, deployment),
        state: host.reason === "dead" ? "dead" : host.state, failed: isBad(host),
        word: host.reason || host.state, isOld: isOld(host), cells: samples.hosts.get(host.name) });
    }
  }
  return rows;
}

// Of times, those of the hosts where it has come.
function mean(all, isTime) {
  const columns = (all.find((cells) => cells) || new Uint8Array(COLUMNS)).length;
  const found = new Uint8Array(columns).fill(NOTHING);
  for (let at = 0; at < columns; at += 1) {
    const known = all.filter((cells) => cells && cells[at] !== NOTHING), seen = isTime ? known.filter((cells) => cells[at]) : known;
    if (known.length) found[at] = Math.floor(seen.reduce((sum, cells) => sum + cells[at], 0) / Math.max(1, seen.length));
  }
  return found;
}

export class Grid {
  // onOpen(row) is told of each row that a click or Enter opens.
  constructor(box, said, onOpen) {
    Object.assign(this, { box, said, onOpen, rows: [], used: 0, chosen: -1, spacer: el("div") });
    this.canvas = el("canvas", { tabindex: "0", role: "application",
      "aria-label": "Hosts by rack. Arrow keys choose a row, Enter opens it. The table below says the same." });
    box.append(this.canvas, this.spacer);
    box.addEventListener("scroll", () => this.draw());
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    this.canvas.addEventListener("click", (event) => this.click(event));
  }

  show(rows, used) {
    this.rows = rows;
    this.used = used;
    this.chosen = Math.min(this.chosen, rows.length - 1);
    this.draw();
  }

  draw() {
    const width = this.box.clientWidth;
    if (width === 0) return;
    const height = Math.min(this.rows.length * ROW, Math.floor(window.innerHeight * 0.62) - 2);  // the box's border
    this.spacer.style.height = `${this.rows.length * ROW - height}px`;
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${height}px`;
    const pen = penOf(this.canvas, width, height);
    solid(pen, "#fff", 0, 0, width, height);
    pen.font = FONT;
    pen.textBaseline = "middle";
    const from = this.box.scrollTop;
    const first = Math.floor(from / ROW);
    for (let at = first; at < Math.min(this.rows.length, first + Math.ceil(height / ROW) + 1); at += 1) {
      this.row(pen, this.rows[at], at * ROW - from, width, at === this.chosen);
    }
  }

  row(pen, row, top, width, isChosen) {
    const name = Math.min(190, Math.floor(width * 0.3)), word = width > 800 ? 250 : 0;
    const left = name + 82, right = width - word - 6, middle = top + ROW / 2 + 1;
    if (row.isRack) solid(pen, "#e3e9f0", 0, top, width, ROW);
    pen.fillStyle = row.failed ? ALARM : INK;
    cut(pen, row.isRack ? `${row.isOpen ? "▾" : "▸"} ${row.name}` : row.name, row.isRack ? 6 : 20, middle, name - 24);
    pen.fillText(shape(row.state), name + 4, middle);
    pen.textAlign = "right";
    pen.fillText(percent(row.share, 1), left - 8, middle);
    pen.textAlign = "left";
    if (row.cells) this.cells(pen, row.cells, left, top, right - left);
    else bar(pen, row.share, left, top, right - left);
    if (row.isOld) hatch(pen, left, top + 1, right - left, ROW - 2);
    pen.fillStyle = row.failed ? ALARM : INK;
    if (word) cut(pen, row.word, right + 10, middle, word - 12);
    const frame = (colour, thick, x, w) => {
      Object.assign(pen, { strokeStyle: colour, lineWidth: thick });
      pen.strokeRect(x, top + thick / 2, w, ROW - thick);
    };
    frame(RULE, 1, left - 0.5, right - left + 1);
    if (isChosen) frame("#b35c00", 3, 1.5, width - 3);
  }

  cells(pen, cells, left, top, width) {
    const used = Math.max(1, this.used);
    for (let at = 0; at < used; at += 1) {
      if (cells[at] === NOTHING) continue;
      const x = Math.round(left + at * width / used), end = Math.round(left + (at + 1) * width / used);
      solid(pen, SHADES[cells[at]], x, top + 1, end - x, ROW - 2);
    }
  }

  choose(at) {
    if (!this.rows.length) return;
    this.chosen = Math.max(0, Math.min(this.rows.length - 1, at));
    const top = this.chosen * ROW, height = this.canvas.clientHeight;
    if (top < this.box.scrollTop) this.box.scrollTop = top;
    if (top + ROW > this.box.scrollTop + height) this.box.scrollTop = top + ROW - height;
    const row = this.rows[this.chosen];
    this.said.textContent = `${row.isRack ? "Rack " : ""}${row.name}: ${percent(row.share, 1)}, ${row.word}`;
    this.draw();
  }

  key(event) {
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: 20, PageUp: -20, Home: -1e9, End: 1e9 };
    if (event.key in steps) this.choose(this.chosen + steps[event.key]);
    else if ((event.key === "Enter" || event.key === " ") && this.chosen >= 0) this.onOpen(this.rows[this.chosen]);
    else return;
    event.preventDefault();
  }

  click(event) {
    const at = Math.floor((event.offsetY + this.box.scrollTop) / ROW);
    if (at >= this.rows.length) return;
    this.choose(at);
    this.onOpen(this.rows[at]);
  }
}

function solid(pen, colour, left, top, width, height) {
  pen.fillStyle = colour;
  pen.fillRect(left, top, width, height);
}

function bar(pen, share, left, top, width) {
  solid(pen, SHADES[0], left, top + 1, width, ROW - 2);
  solid(pen, SHADES[190], left, top + 4, Math.floor(width * Math.min(1, share)), ROW - 8);
}

function hatch(pen, left, top, width, height) {
  pen.save();
  pen.beginPath();
  pen.rect(left, top, width, height);
  pen.clip();
  pen.beginPath();
  for (let x = left - height; x < left + width; x += 8) {
    pen.moveTo(x, top + height);
    pen.lineTo(x + height, top);
  }
  pen.lineWidth = 4;
  pen.strokeStyle = "#fff";
  pen.stroke();
  pen.lineWidth = 1.5;
  pen.strokeStyle = SOFT;
  pen.stroke();
  pen.restore();
}

function cut(pen, text, x, y, width) {
  let shown = String(text).slice(0, 60);
  while (shown.length > 1 && pen.measureText(shown).width > width) shown = `${shown.slice(0, -2)}…`;
  pen.fillText(shown, x, y);
}

// A pen for an empty canvas of this size in CSS pixels.
function penOf(canvas, width, height) {
  const dots = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * dots);
  canvas.height = Math.round(height * dots);
  const pen = canvas.getContext("2d");
  pen.setTransform(dots, 0, 0, dots, 0, 0);
  return pen;
}

// With a line at what links carry; 0: unknown.
export function drawRates(canvas, rates, used, capacity) {
  const width = canvas.clientWidth, height = canvas.clientHeight;
  if (width === 0) return 0;
  const pen = penOf(canvas, width, height);
  const most = Math.max(1, ...rates.map((rate) => (rate ? rate[0] + rate[1] + rate[2] : 0)));
  const tallOf = (rate) => rate / Math.max(most, capacity) * (height - 8);
  rates.forEach((rate, at) => {
    if (rate === null) return;
    const x = Math.round(at * width / used), end = Math.round((at + 1) * width / used);
    let y = height;
    [COLOURS.storage, COLOURS.same, COLOURS.cross].forEach((colour, part) => {
      const tall = tallOf(rate[part]);
      solid(pen, colour, x, y - tall, Math.max(1, end - x - 1), Math.max(0, tall - (tall > 3 ? 1 : 0)));
      y -= tall;
    });
  });
  if (capacity) solid(pen, ALARM, 0, height - tallOf(capacity) - 2, width, 2);
  return most;
}
