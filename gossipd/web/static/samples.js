// What this browser has seen of each deployment, second by second: the daemon tells only the present.
//
// 64 columns. When they are full, neighbours are joined and a column lasts twice as long; so any length fits. A replay
// has as many as its report.

import { wanted } from "./dom.js";

export const COLUMNS = 64;
export const NOTHING = 255;
export const SHARE_MAX = 254;
const DEPLOYMENTS_MAX = 16;

class Samples {
  constructor(now, columns = COLUMNS) {
    Object.assign(this, { columns, began: now, step: 1, used: 0, hosts: new Map(), before: null, came: new Map(),
      sums: new Array(columns).fill(null) });
  }

  // Successive looks at the chunks of hosts. A record of all or none, as of a host that is no neighbour, tells no time.
  look(rows, now) {
    for (const row of rows) {
      const before = this.came.get(row.name), isNew = !before || (before.by === "progress" && row.known_by === "progress");
      const times = Array.from(row.bins, (share, at) => {
        if (share !== SHARE_MAX) return share === NOTHING ? null : Infinity;
        return before && before.times[at] !== Infinity ? before.times[at] : isNew ? null : now;
      });
      this.came.set(row.name, { by: row.known_by, times });
    }
  }

  // The later a bin came whole, the darker; the lightest where it has not.
  arrivals() {
    const known = [...this.came.values()].flatMap((one) => one.times).filter((time) => time && time < Infinity).sort((a, b) => a - b);
    const first = known[0] || 0, span = Math.max(1, (known.at(-1) || 0) - first);
    const hosts = new Map();
    let used = 0;
    for (const [name, { times }] of this.came) {
      used = times.length;
      hosts.set(name, cellsOf(times.map((time) => (time === null ? NOTHING : time === Infinity ? 0 : 1 + 253 * (time - first) / span))));
    }
    return { hosts, used, span, isTime: true };
  }

  add(row, now) {
    let at = Math.floor((now - this.began) / this.step);
    while (at >= COLUMNS) { this.join(); at = Math.floor((now - this.began) / this.step); }
    this.used = Math.max(this.used, at + 1);
    this.sums[at] = { now, source: row.source_bytes, same: row.peer_bytes_same_rack, cross: row.peer_bytes_cross_rack };
    const seen = new Map(row.left_out?.length ? this.hosts : []);  // others are complete
    for (const cells of seen.values()) cells[at] = SHARE_MAX;
    for (const host of row.hosts) {
      const cells = this.hosts.get(host.name) || this.unseen(host);
      cells[at] = Math.floor(SHARE_MAX * host.chunks_verified / wanted(host, row));
      seen.set(host.name, cells);
    }
    this.hosts = seen;
  }

  // Only complete hosts are left out, or it is new.
  unseen(host) { return Uint8Array.from(this.sums, (sum) => (sum && host.state === "complete" ? SHARE_MAX : NOTHING)); }

  join() {
    const half = COLUMNS / 2;
    for (const cells of this.hosts.values()) {
      for (let at = 0; at < half; at += 1) cells[at] = cells[2 * at + 1] !== NOTHING ? cells[2 * at + 1] : cells[2 * at];
      cells.fill(NOTHING, half);
    }
    for (let at = 0; at < half; at += 1) this.sums[at] = this.sums[2 * at + 1] || this.sums[2 * at];
    this.sums.fill(null, half);
    this.step *= 2;
    this.used = half;
  }

  // Bytes a second by source, one for each column; null where nothing was seen.
  rates() {
    const found = new Array(this.columns).fill(null);
    let before = this.before;
    this.sums.forEach((sum, at) => {
      if (sum !== null && before !== null) {
        const took = sum.now - before.now;
        const rate = (key) => Math.max(0, (sum[key] - before[key]) / took);
        found[at] = [rate("source"), rate("same"), rate("cross")];
      }
      if (sum !== null) before = sum;
    });
    return found;
  }
}

const all = new Map();

export function sample(deployments, now) {
  for (const row of deployments) {
    const isDone = row.hosts_complete === row.hosts_total || row.state === "cancelled";
    if (isDone && row.left_out?.length) continue;
    let found = all.get(row.id);
    if (found === undefined) {
      if (all.size >= DEPLOYMENTS_MAX) all.delete(all.keys().next().value);
      found = new Samples(now);
      all.set(row.id, found);
    }
    if (!isDone || !found.isDone) found.add(row, now);
    found.isDone = isDone;
  }
}

export const samplesOf = (row) => all.get(row.id);

export const binsOf = (text) => Uint8Array.from(atob(text), (one) => one.charCodeAt(0));
export function cellsOf(bins, columns = COLUMNS) {
  const cells = new Uint8Array(columns).fill(NOTHING);
  cells.set(bins.slice(0, columns));
  return cells;
}

// What is known of the chunks that hosts have: each host's bins of the model in place of columns of time.
export function sketchesOf(rows) {
  const hosts = new Map();
  let used = 0;
  for (const row of rows) {
    used = Math.min(COLUMNS, row.bins.length);
    hosts.set(row.name, cellsOf(row.bins));
  }
  return { hosts, used };
}

// The course that a report holds, as it was up to a column: what else this browser draws is drawn of it, too.
export function replayed(timeline, upTo) {
  const made = new Samples(0, timeline.moved.length);
  const sum = { source: 0, same: 0, cross: 0 };
  Object.assign(made, { step: timeline.step_s, used: timeline.moved.length, before: { now: 0, ...sum } });
  timeline.moved.slice(0, upTo + 1).forEach(([source, same, cross], at) => {
    sum.source += source;
    sum.same += same;
    sum.cross += cross;
    made.sums[at] = { ...sum, now: (at + 1) * made.step };
  });
  for (const [name, text] of Object.entries(timeline.shares)) {
    made.hosts.set(name, cellsOf(binsOf(text).slice(0, upTo + 1), made.columns));
  }
  made.sketches = { hosts: new Map(), used: 0 };
  for (const [name, text] of Object.entries(timeline.sketches || {})) marked(made, name, binsOf(text), upTo);
  return made;
}

// The columns at which the quarters of a host's bins came.
function marked(made, name, raw, upTo) {
  const times = [], shares = [];
  for (let at = 0; at < raw.length; at += 8) {
    const marks = [0, 2, 4, 6].map((mark) => raw[at + mark] * 256 + raw[at + mark + 1]), end = marks[3];
    times.push(end === 65534 ? null : end > upTo ? Infinity : (end + 1) * made.step);
    shares.push(end === 65534 ? NOTHING : Math.floor(SHARE_MAX * marks.filter((mark) => mark <= upTo).length / 4));
  }
  made.came.set(name, { times });
  made.sketches.hosts.set(name, cellsOf(shares));
  made.sketches.used = shares.length;
}

export const keepSamples = (row, samples) => all.set(row.id, samples);
