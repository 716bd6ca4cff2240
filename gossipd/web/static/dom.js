// Elements, and words for figures. Text from other hosts goes through el() and becomes text nodes: nothing here, or
// anywhere in this page, reads markup from a string.

export function el(tag, given = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(given)) made.setAttribute(name, value);
  for (const child of children.flat()) if (child !== null && child !== undefined) made.append(child);
  return made;
}

export const note = (...children) => el("p", { class: "note" }, ...children);

export const say = (node, text) => { if (node.textContent !== text) node.textContent = text; };

// Replaces what is in a node when the signature has changed; a link that had the focus gets it back.
const signatures = new WeakMap();
export function fill(node, signature, build) {
  const text = JSON.stringify(signature);
  if (signatures.get(node) === text) return;
  signatures.set(node, text);
  const focused = node.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
  node.replaceChildren(...[build()].flat().filter((one) => one !== null));
  if (focused) [...node.querySelectorAll("a")].find((link) => link.getAttribute("href") === focused)?.focus();
}

export function table(caption, heads, rows) {
  const cell = (tag, column, value) => el(tag, { class: column.class, ...(tag === "th" ? { scope: "col" } : {}) }, value);
  return el("div", { class: "scroll" }, el("table", { "aria-label": caption },
    el("thead", {}, el("tr", {}, heads.map((head) => cell("th", head, head.name)))),
    el("tbody", {}, rows.map((row) => el("tr", { class: row.old ? "old" : "" },
      row.cells.map((value, at) => cell("td", heads[at], value)))))));
}

const column = (kind) => (name) => ({ name, class: kind });
export const head = column(""), wide = column("wide"), long = column("open"), spare = column("spare"),
  figure = column("number"), spareFigure = column("number spare");

export function figures(pairs) {
  return pairs.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value)));
}

export function bytes(count) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let at = 0;
  while (count >= 1024 && at < units.length - 1) { count /= 1024; at += 1; }
  return `${at === 0 || count >= 100 ? Math.round(count) : count.toFixed(1)} ${units[at]}`;
}

export function seconds(count) {
  if (count === null || count === undefined) return "–";
  const whole = Math.floor(count);
  for (const [unit, size, next, part] of [["d", 86400, "h", 3600], ["h", 3600, "m", 60], ["m", 60, "s", 1]]) {
    if (whole >= size) return `${Math.floor(whole / size)}${unit} ${Math.floor(whole % size / part)}${next}`;
  }
  return `${whole} s`;
}

// 100 % only when all is there.
export function percent(part, whole) {
  if (whole <= 0 || part >= whole) return "100 %";
  return part <= 0 ? "0 %" : `${(Math.floor(part * 1000 / whole) / 10).toFixed(1)} %`;
}

export const toHost = (name) => el("a", { href: `#/host/${encodeURIComponent(name)}` }, name);
// A step of a run as commands show it; a daemon of 0.1 tells plain versions.
export const label = (row) => `${row.name}@${row.version_label || row.version}`;
export const toDeployment = (row) =>
  el("a", { href: `#/deployment/${encodeURIComponent(row.name)}/${row.version}` }, label(row));

// A state is a shape and a word; colour only repeats it.
const SHAPES = { complete: "●", verifying: "◆", downloading: "▶", init: "○", failed: "✕", cancelled: "–", expired: "–",
  removed: "–", evicted: "–", paused: "‖",
  alive: "●", suspect: "?", dead: "✕", left: "–" };
// What a table says of a word of another host's: "__proto__" is no word of it.
export const own = (words, key) => (Object.hasOwn(words, key) ? words[key] : undefined);
export const shape = (state) => own(SHAPES, state) || "?";
export function mark(state) {
  return el("span", { class: state === "failed" || state === "dead" ? "state bad" : "state" },
    el("span", { class: "mark", "aria-hidden": "true" }, shape(state)), state);
}

export const heard = (host) => (host.age_s === null ? "never" : `${seconds(host.age_s)} ago`);
export const done = (host, row) => percent(host.chunks_verified, wanted(host, row));
export const wanted = (host, row) => Math.max(1, host.chunks_wanted || row.chunks_total);
const order = new Intl.Collator("en", { numeric: true }).compare;
export const byName = (a, b) => order(a.name, b.name);
// Racks with their hosts, both by name.
export function byRack(hosts) {
  const racks = new Map();
  for (const one of hosts) racks.has(one.rack) ? racks.get(one.rack).push(one) : racks.set(one.rack, [one]);
  return [...racks].sort(([a], [b]) => order(a, b)).map(([rack, found]) => [rack, found.sort(byName)]);
}

// What came for nothing, by reason.
export const waste = (row) => [["Fetched twice", bytes(row.duplicate_bytes)], ["Cut off", bytes(row.cancelled_bytes || 0)],
  ["Damaged", bytes(row.corrupt_bytes || 0)]];
export const isBad = (host) => host.state === "failed" || host.reason === "dead";
export const OLD_S = 30;
export const isOld = (host) => host.age_s !== null && host.age_s > OLD_S;

// A host's reason with its sentence, whom it is about, and the cure.
export function why(host, words) {
  if (!host.reason) return null;
  const known = own(words.reasons, host.reason);
  const about = host.subject ? ` (${host.subject})` : "";
  return [`${host.reason}${about}${known ? `: ${known.sentence}` : ""}`,
    known ? el("span", { class: "cure" }, `Cure: ${known.cure}. By: ${known.who}.`) : null];
}
