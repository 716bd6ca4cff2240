// The three pages: cluster, deployment, host. Each builds its frame once and fills it at each answer.

import { byName, byRack, bytes, done, el, figure, figures, fill, head, heard, isBad, isOld, label, OLD_S, long, mark, note, own, percent, say, seconds, spare, spareFigure, table, toDeployment, wanted, waste,
  toHost, wide, why } from "./dom.js";
import { COLOURS, Grid, RACKS_ONLY_ABOVE, drawRates, rowsOf } from "./grid.js";
import { COLUMNS, NOTHING, SHARE_MAX, binsOf, cellsOf, samplesOf, sketchesOf } from "./samples.js";

const SLOWEST = 10;
const PLAIN = /^[\w.-]{1,64}$/, MODEL = /^\w[\w.-]*(\/\w[\w.-]*)?@\d+$/;  // names of hosts and models that a question may have
const RACKS_OPEN_UP_TO = 100;
const ASKED = { waiting: "It is being asked.", declined: "It declines: it has not accepted this model, or is asked too often.",
  silent: "It does not answer, as gossipd 0.1.", unreachable: "It cannot be reached.", full: "It is not asked: too many hosts are." };
export const part = (title, ...children) => el("section", {}, el("h2", {}, title), children);

export class ClusterPage {
  constructor(root) {
    Object.assign(this, { figures: el("dl", { class: "figures" }), problems: el("ul", { class: "problems" }),
      deployments: el("div"), members: el("div"), opened: new Map() });
    root.replaceChildren(el("h1", {}, "Cluster"), this.figures, this.problems,
      part("Deployments", this.deployments), part("Hosts by rack", this.members));
  }

  show({ status, words }) {
    const hosts = status.members.filter(({ state }) => state !== "unheard");
    const alive = hosts.filter(({ state }) => state === "alive").length;
    const store = status.store;
    const shown = [["Hosts alive", `${alive} / ${hosts.length}`], ["Alarms", String(status.alarms.length)],
      [`Disk free on ${status.node.name}`, bytes(store.free_bytes)], ["Versions", versions(hosts)],
      ["Model bytes", status.security.bulk_encryption === "tls" ? "encrypted" : "not encrypted"]];
    fill(this.figures, shown, () => figures(shown));
    showProblems(this.problems, problemsOf(status, words));
    fill(this.deployments, status.deployments.map(({ hosts, ...row }) => row), () => deploymentTable(status.deployments));
    const signature = status.members.map((one) => [one.name, one.rack, one.state, one.version, one.seed, one.prints,
      one.since_s && Math.floor(one.since_s / 10)]);
    fill(this.members, signature, () => this.racks(status.members, usual(status.members)));
  }

  racks(members, most) {
    return byRack(members).map(([rack, hosts]) => {
      const away = hosts.filter((one) => one.state !== "alive");
      const isOpen = this.opened.get(rack) ?? members.length <= RACKS_OPEN_UP_TO;
      const body = el("div");
      const build = () => { if (!body.firstChild) body.append(memberTable(rack, hosts, most)); };
      if (isOpen) build();
      const box = el("details", {},
        el("summary", {}, el("b", {}, rack), ` – ${hosts.length - away.length} of ${hosts.length} alive`,
          away.length ? el("span", { class: "bad" }, `, ${away.slice(0, 5).map((one) => `${one.name} ${one.state}`).join(", ")}${away.length > 5 ? ", …" : ""}`) : null),
        body);
      box.open = isOpen;
      box.addEventListener("toggle", () => { this.opened.set(rack, box.open); if (box.open) build(); });
      return box;
    });
  }
}

function versions(members) {
  const found = [...new Set(members.map((one) => one.version).filter((one) => one))].sort();
  return found.length > 2 ? `${found.length} different` : found.join(", ") || "–";
}

// By name of what should be the same: the print of most hosts.
function usual(members) {
  const counts = new Map();
  for (const one of members.filter((each) => each.state === "alive" || each.state === "suspect")) {
    for (const [name, print] of Object.entries(one.prints || {})) {
      if (!counts.has(name)) counts.set(name, new Map());
      counts.get(name).set(print, (counts.get(name).get(print) || 0) + 1);
    }
  }
  return new Map([...counts].map(([name, found]) => [name, [...found].reduce((a, b) => (b[1] > a[1] ? b : a))[0]]));
}

const differs = (one, most) =>
  Object.entries(one.prints || {}).filter(([name, print]) => most.has(name) && most.get(name) !== print).map(([name]) => name).join(", ");

function memberTable(rack, hosts, most) {
  return table(`Hosts of rack ${rack}`,
    [head("Host"), head("State"), figure("For"), head("Reads storage"), spare("Differs in"), spare("Version"), spare("Address")],
    hosts.map((one) => ({ cells: [toHost(one.name), mark(one.state), seconds(one.since_s), one.seed ? "yes" : "–", differs(one, most) || "–",
      one.version || "–", one.address] })));
}

function deploymentTable(rows) {
  if (!rows.length) return note("None is known here.");
  return table("Deployments", [head("Model"), head("State"), figure("Hosts"), figure("Share"), figure("ETA"), spareFigure("From storage")],
    rows.map((row) => ({ cells: [toDeployment(row), row.hosts_failed ? `${row.state}, ${row.hosts_failed} failed` : row.state,
      `${row.hosts_complete}/${row.hosts_total}`, percent(row.cluster_bytes_verified, row.cluster_bytes_total),
      seconds(row.eta_s), ratio(row)] })));
}

function problemsOf(status, words) {
  const found = status.alarms.map((one) => ({ title: `${one.code} since ${one.since}`, text: one.sentence,
    cure: own(words.alarms, one.code)?.cure, code: one.code }));
  const said = new Set(status.alarms.map((one) => one.sentence));
  const name = status.node.name, add = (title, text) => found.push({ title, text });
  for (const text of status.security.reasons) if (!said.has(text)) add("Security is degraded", text);
  if (status.store.condition !== "ok") add(`Disk of ${name}: ${status.store.condition}`, status.store.detail);
  if (status.inbox.trouble) add(`Inbox of ${name}`, status.inbox.trouble);
  if (status.audit.trouble) add(`Audit log of ${name}`, status.audit.trouble);
  return found;
}

const showProblems = (list, problems) => fill(list, problems, () => problems.map(problem));

function problem(one) {
  const more = one.code ? el("a", { href: `/manual/runbook#${encodeURIComponent(one.code.toLowerCase())}` }, "runbook") : null;
  return el("li", {}, el("b", {}, one.title), ` ${one.text}`,
    one.cure ? el("span", { class: "cure" }, `Cure: ${one.cure} `, more) : more && [" ", more]);
}

const lot = (host) => (host.reason === "dead" ? "dead" : host.state);
const ratio = (row) => (row.bytes_total ? `${(row.source_bytes / row.bytes_total).toFixed(3)}×` : "–");

export class DeploymentPage {
  constructor(root, name, version) {
    const asks = MODEL.test(`${name}@${version}`) ? `?name=${name}&version=${version}` : "";
    Object.assign(this, { name, version, asks, opened: new Set(), since: "this browser began to look", mode: 0, looks: 0, sketches: sketchesOf([]), bound: null,
      title: el("h1", {}, `${name}@${version}`), state: note(), report: note(), about: note(), slowest: el("div"), allRows: el("div"),
      figures: el("dl", { class: "figures" }), egress: el("dl", { class: "figures" }), legend: el("ul", { class: "legend" }), box: el("div", { class: "grid" }),
      chart: el("canvas", { class: "chart", role: "img" }), said: el("p", { class: "note", role: "status" }, "Choose a row to read it here.") });
    this.modes = ["Over time", "By chunk", "Time it came"].map((name, mode) => {
      const made = el("button", { type: "button", "aria-pressed": String(mode === 0) }, name);
      made.addEventListener("click", () => this.draw(mode));
      return made;
    });
    this.chooser = el("p", { class: "player", role: "group", "aria-label": "What the columns are" }, this.modes);
    this.all = el("details", {}, el("summary", {}, "All hosts as a table"), this.allRows);
    this.all.addEventListener("toggle", () => this.showAll());
    root.replaceChildren(this.title, this.state, this.report, this.figures,
      part("Not complete: the slowest", this.slowest),
      part("Hosts", this.chooser, this.about, this.box, this.said, this.all),
      part("Rates by source", this.chart, this.legend), part("Traffic so far", this.egress));
    this.grid = new Grid(this.box, this.said, (row) => this.open(row));
  }

  mine(status) { return status.deployments.find((one) => one.name === this.name && one.version === this.version); }

  wants(status) {
    const row = this.mine(status);
    if (!row || !this.asks) return [];
    const isSketched = this.mode || (row.hosts_complete < row.hosts_total && this.looks++ % 5 === 0);  // for the times
    return [`/page/bound${this.asks}`, ...(isSketched ? [`/v1/sketch${this.asks}`] : [])];
  }

  draw(mode) {
    this.mode = mode;
    this.modes.forEach((one, at) => one.setAttribute("aria-pressed", String(mode === at)));
    if (this.row) this.showGrid(this.row);
  }

  show({ status, words, more }) {
    const row = this.mine(status);
    if (row === undefined) {
      this.state.textContent = `${status.node.name} does not know this deployment.`;
      return;
    }
    this.chooser.hidden = this.isReplay && !samplesOf(row).came.size;
    this.row = row;
    say(this.title, label(row));
    if (more) this.hear(row, more);
    if (!this.isReplay) this.showReport(row);
    const began = row.started_at ? `, began ${row.started_at}` : "";
    const ended = row.completed_at ? `, complete ${row.completed_at}` : "";
    this.state.textContent = `${row.state}${row.stall ? `, stalls here: ${row.stall}` : ""}; ${bytes(row.bytes_total)} in ${row.chunks_total} chunks${began}${ended}`;
    const shown = [["Hosts complete", `${row.hosts_complete} / ${row.hosts_total}`],
      ["Verified", percent(row.cluster_bytes_verified, row.cluster_bytes_total)], ["ETA p50, last", `${seconds(row.eta_p50_s)}, ${seconds(row.eta_s)}`],
      ["Read from storage", ratio(row)], ["Failed", String(row.hosts_failed)], ["Corrupt chunks", String(row.corrupt_chunks)],
      ...(this.bound ? [["Limited by", this.bound.limiting_resource]] : [])];
    fill(this.figures, shown, () => figures(shown));
    this.showSlowest(row, words);
    this.showGrid(row);
    this.showRates(row);
    const traffic = [["From storage", `${bytes(row.source_bytes)} (${ratio(row)})`],
      ...(this.price ? [["Price of that", (row.source_bytes / 1e9 * this.price).toFixed(2)]] : []),
      ["Inside racks", bytes(row.peer_bytes_same_rack)], ["Between racks", bytes(row.peer_bytes_cross_rack)], ...waste(row)];
    fill(this.egress, traffic, () => figures(traffic));
    this.showAll();
  }

  hear(row, more) {
    if (more.name !== this.name || more.version !== this.version) return;
    Object.assign(this, { bound: more.bound, price: more.money_per_gb });
    if (!more.hosts) return;
    for (const one of more.hosts) one.bins = binsOf(one.shares);
    this.sketches = sketchesOf(more.hosts);
    samplesOf(row)?.look(more.hosts, Date.now() / 1000);
  }

  showSlowest(row, words) {
    const behind = row.hosts.filter((host) => host.state !== "complete")
      .sort((a, b) => isBad(b) - isBad(a) || a.chunks_verified / wanted(a, row) - b.chunks_verified / wanted(b, row) || byName(a, b));
    const first = behind.slice(0, SLOWEST);
    fill(this.slowest, [behind.length, first.map((host) => [host.name, host.state, host.reason, host.subject, host.chunks_verified, isOld(host)])], () => {
      if (!behind.length) return note("Every target has what it wants.");
      const made = [table("The slowest hosts", [head("Host"), spare("Rack"), head("State"), figure("Share"), wide("Why, and the cure")],
        first.map((host) => ({ old: isOld(host), cells: [toHost(host.name), host.rack, mark(lot(host)),
          done(host, row), why(host, words) || "no hindrance told"] })))];
      if (behind.length > SLOWEST) made.push(note(`${behind.length - SLOWEST} more are not complete.`));
      return made;
    });
  }

  showGrid(row) {
    const seen = samplesOf(row);
    if (seen === undefined) return;
    const samples = [() => seen, () => seen.sketches || this.sketches, () => seen.arrivals()][this.mode]();
    const what = row.hosts.length > RACKS_ONLY_ABOVE ? "A rack" : "A host's page";
    const left = this.mode
      ? `${row.chunks_total} chunks, from the first to the last, in ${samples.used} columns; a bar where this daemon knows only how many a host has: ${row.hosts.length - samples.hosts.size} of ${row.hosts.length}`
      : `${seconds(samples.used * samples.step)} since ${this.since}, ${samples.step} s a column`;
    const shade = ["more of the model a host has", "more of these chunks a host has",
      `later these chunks came: the darkest ${seconds(samples.span)} after the lightest; grey: not yet; white: not seen. A diagonal is a chain of hosts`][this.mode];
    say(this.about, `The darker, the ${shade}. Left to right: ${left}. Hatched: not heard for 30 s. ${what} opens by a click or Enter.`);
    this.grid.show(rowsOf(row, samples, this.opened), samples.used);
  }

  showRates(row) {
    const samples = samplesOf(row);
    if (samples === undefined) return;
    const rates = samples.rates();
    this.chart.hidden = !rates.some((rate) => rate && rate[0] + rate[1] + rate[2] > 0);
    const link = this.bound?.link_bytes_per_s || 0, count = row.hosts.length;
    const most = drawRates(this.chart, rates, samples.used, count * link);
    const last = rates.filter((one) => one).pop() || [0, 0, 0];
    const now = row.hosts_complete < row.hosts_total ? last : [0, 0, 0];
    const parts = [["From storage", COLOURS.storage], ["Inside racks", COLOURS.same], ["Between racks", COLOURS.cross]];
    const words = parts.map(([name], at) => `${name} ${bytes(now[at])}/s`);
    const line = link ? `. The line: ${count} links of ${bytes(link)}/s` : "";
    const top = this.chart.hidden ? `Nothing has come since ${this.since}.` : `Highest of all: ${bytes(most)}/s${line}`;
    fill(this.legend, [words, top], () => {
      this.chart.setAttribute("aria-label", `Bytes a second by source. ${words.join(", ")}. ${top}`);
      return [...parts.map(([, colour], at) => {
        const swatch = el("span", { class: "swatch" });
        swatch.style.background = colour;
        return el("li", {}, swatch, words[at]);
      }), el("li", {}, top)];
    });
  }

  showReport(row) {
    const href = `#/report/${encodeURIComponent(row.name)}/${row.version}`;
    fill(this.report, href, () => el("a", { href }, "Report and replay"));
  }

  open(row) {
    if (!row.isRack) { location.hash = `#/host/${encodeURIComponent(row.name)}`; return; }
    if (this.opened.has(row.rack)) this.opened.delete(row.rack);
    else this.opened.add(row.rack);
    this.showGrid(this.row);
  }

  showAll() {
    if (!this.all.open || !this.row) return;
    const row = this.row;
    fill(this.allRows, row.hosts.map((host) => [host.name, host.state, host.reason, host.subject, host.chunks_verified, host.age_s && Math.floor(host.age_s / 5)]), () =>
      table("All hosts", [head("Host"), spare("Rack"), head("State"), figure("Share"), figure("Heard"), long("Reason")],
        [...row.hosts].sort(byName).map((host) => ({ old: isOld(host), cells: [toHost(host.name), host.rack, mark(lot(host)), done(host, row), heard(host),
          host.reason + (host.subject ? ` (${host.subject})` : "")] }))));
  }
}

export class HostPage {
  constructor(root, name) {
    const [member, deployments, peers, reasons] = Array.from({ length: 4 }, () => el("div"));
    const asks = PLAIN.test(name) ? `?host=${name}` : "";
    Object.assign(this, { name, asks, member, deployments, peers, reasons, problems: el("ul", { class: "problems" }) });
    this.about = el("p", { class: "note", role: "status" });
    const box = el("div", { class: "grid" });
    this.chunks = part("Its chunks", this.about, box);
    this.chunks.hidden = true;
    root.replaceChildren(el("h1", {}, name), this.member, this.problems, part("Deployments on this host", this.deployments),
      part("Reasons over time", this.reasons), this.chunks, part("Traffic with each peer", this.peers));
    this.grid = new Grid(box, el("p"), () => {});
  }

  // Of the first deployment that is not complete here, else of the first.
  wants(status) {
    const of = (row) => row.hosts.find((one) => one.name === this.name), isOpen = (row) => of(row) && of(row).state !== "complete";
    const row = this.asks && (status.deployments.find(isOpen) || status.deployments.find(of));
    const which = row && `?name=${row.name}&version=${row.version}&host=${this.name}`;
    return [...(status.node.name === this.name ? ["/v1/peers", "/v1/members"] : []),
      ...(row ? [`/page/bound${which}`] : []), ...(row && isOpen(row) ? [`/v1/sketch${which}&bins=256`] : [])];
  }

  showChunks(status, more) {
    if (!more) return;
    const row = status.deployments.find((one) => one.name === more.name && one.version === more.version);
    const host = row && row.hosts.find((one) => one.name === this.name), [sketch] = more.hosts || [], told = more.reasons;
    if (row && told) fill(this.reasons, [row.id, told], () => [note(toDeployment(row), told.length ? "" : ": none"), told.length
      ? table("Reasons over time", [head("After"), long("Reason")], told.map(([at, word]) => ({ cells: [seconds(at), word || "none"] }))) : null]);
    this.chunks.hidden = !host || !more.hosts;
    if (this.chunks.hidden) return;
    const bins = sketch ? binsOf(sketch.shares) : [], total = row.chunks_total, first = (bin) => Math.floor(bin * total / bins.length);
    const said = sketch ? `${sketch.chunks_held} of ${label(row)}, in ${bins.length} columns from the first of its ${total} chunks to the last; by ${sketch.known_by === "answer" ? "its own answer" : sketch.known_by}, ${seconds(sketch.age_s)} ago.`
      : `Of ${label(row)} it is not known here which.`;
    say(this.about, `${said} ${own(ASKED, more.asked) || ""}`);
    const rows = [];
    for (let at = 0; at < bins.length; at += COLUMNS) {
      const cells = cellsOf(bins.slice(at, at + COLUMNS)), known = cells.filter((one) => one !== NOTHING);
      rows.push({ name: `${first(at)}–${first(Math.min(bins.length, at + COLUMNS)) - 1}`, state: host.state, word: "", cells,
        share: known.length ? known.reduce((sum, one) => sum + one, 0) / known.length / SHARE_MAX : 1, isOld: sketch.age_s > OLD_S });
    }
    this.grid.show(rows, Math.min(COLUMNS, bins.length));
  }

  show({ status, words, more }) {
    this.showChunks(status, more);
    showProblems(this.problems, status.node.name === this.name ? problemsOf(status, words) : []);
    const found = status.members.filter((one) => one.name === this.name);
    fill(this.member, found.map((one) => [one.state, one.since_s && Math.floor(one.since_s / 10), one.address, one.version]), () =>
      (found.length ? table("This host", [head("State"), figure("For"), head("Rack"), spare("Zone"), head("Reads storage"), spare("Version"), long("Address")],
        found.map((one) => ({ cells: [mark(one.state), seconds(one.since_s), one.rack, one.zone || "–", one.seed ? "yes" : "–", one.version || "–", one.address] })))
        : note(`${status.node.name} has no host of this name on its roster.`)));
    const rows = status.deployments.flatMap((row) => row.hosts.filter((host) => host.name === this.name).map((host) => ({ row, host })));
    fill(this.deployments, rows.map(({ row, host }) => [row.id, host.state, host.chunks_verified, host.reason, host.subject, host.age_s && Math.floor(host.age_s / 5)]), () =>
      (rows.length ? table("Deployments on this host", [head("Model"), head("State"), figure("Share"), spareFigure("Heard"), wide("Why, and the cure")],
        rows.map(({ row, host }) => ({ old: isOld(host), cells: [toDeployment(row), mark(host.state), done(host, row),
          heard(host), why(host, words) || "–"] })))
        : note("It is a target of none.")));
    this.showPeers(status, more);
  }

  showPeers(status, more) {
    if (status.node.name !== this.name) {
      fill(this.peers, status.node.name, () => note(
        `Only the host itself knows: run gossipd web there. This page asks ${status.node.name}.`));
      return;
    }
    if (!more || !more.peers) return;
    const names = new Map(more.members.map((one) => [one.id, one]));
    const rows = Object.entries(more.peers).sort(([, a], [, b]) => b.bytes_in + b.bytes_out - a.bytes_in - a.bytes_out);
    fill(this.peers, rows, () => (rows.length ? table("Traffic with each peer since the daemon's start",
      [head("Peer"), head("Rack"), figure("In"), figure("Out"), spare("Chunks in"), spare("Chunks out"), spare("Had no slot for us")],
      rows.map(([id, peer]) => ({ cells: [names.has(id) ? toHost(names.get(id).name) : id.slice(0, 16), names.has(id) ? names.get(id).rack : "–",
        bytes(peer.bytes_in), bytes(peer.bytes_out), String(peer.chunks_in), String(peer.chunks_out), String(peer.busy_in)] })))
      : note("No chunk has gone from or to a peer since the daemon's start.")));
  }
}
