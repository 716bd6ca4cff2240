// What a deployment did: figures, racks, hosts that were late, and its course with a slider.

import { bytes, el, figure, figures, head, note, own, seconds, spare, spareFigure, table, toHost, wanted, waste, wide } from "./dom.js";
import { DeploymentPage, part } from "./pages.js";
import { NOTHING, SHARE_MAX, keepSamples, replayed } from "./samples.js";

const PLAY_MS = 120, PLAY_STEPS = 64;
const times = (ratio) => `${ratio.toFixed(3)}×`;

export class ReportView {
  // shown: the report and its summary, as gossipd report --json prints them.
  constructor(root, shown, words) {
    this.report = shown.report;
    this.words = words;
    const sum = shown.summary, bound = sum.bound, price = sum.money === null ? [] : [["Price of that", sum.money.toFixed(2)]];
    const ends = { first: "First host after", half: "Half after", p95: "95 % after", last: "Last after" };
    const pairs = [["Hosts complete", `${sum.hosts_complete} / ${sum.hosts_total}`],
      ...Object.entries(ends).map(([key, name]) => [name, seconds(sum.quantiles[key])]),
      ["Links allowed", bound ? seconds(bound.seconds) : "–"],
      ["From storage", `${bytes(sum.source_bytes)} (${times(sum.source_ratio)})`], ...price,
      ["Between racks", `${bytes(sum.cross_rack_bytes)} (${times(sum.cross_rack_ratio)})`],
      ...waste(sum), ["Corrupt chunks", String(sum.corrupt_chunks)]];
    root.replaceChildren(el("h1", {}, `Report of ${sum.label}`),
      note(`${sum.state}; ${bytes(sum.bytes_total)}; as ${this.report.told_by} had heard it${this.report.told_at && `, ${this.report.told_at}`}`),
      el("dl", { class: "figures" }, figures(pairs)), ...(bound ? [note(this.allowed(sum, bound))] : []),
      part("Late hosts", this.late(sum.stragglers)), part("By rack", this.moved("Racks", sum.racks, true)),
      el("details", {}, el("summary", {}, "By host"), this.moved("Hosts of the report", sum.hosts, false)));
    if (this.report.timeline !== null) root.append(...this.replay(sum));
    else root.append(note("This host heard of the deployment only when it had ended: its course is not known."));
  }

  allowed(sum, bound) {
    const rates = `${bytes(bound.link_bytes_per_s)}/s a host and ${bytes(bound.external_bytes_per_s)}/s from storage`;
    const took = sum.reached_ratio === null ? "" : `; it took ${sum.reached_ratio.toFixed(2)} times that`;
    return `The links allowed ${seconds(bound.seconds)}, by ${bound.limiting_resource}, at ${rates}${bound.is_measured ? ", the highest seen" : ""}${took}.`;
  }

  late(rows) {
    if (!rows.length) return note("No host was much later than most.");
    return table("Late hosts", [head("Host"), spare("Rack"), head("State"), figure("After"), wide("Why")],
      rows.map((one) => ({ cells: [toHost(one.name), one.rack, one.state, seconds(one.seconds), this.why(one)] })));
  }

  why(one) {
    const told = one.reasons.map(([word, lasted]) => `${word} for ${seconds(lasted)}`);
    if (one.reason && !one.reasons.some(([word]) => word === one.reason)) told.unshift(one.reason);
    if (one.silent_s !== null) told.push(`not heard for ${seconds(one.silent_s)}, from ${seconds(one.silent_from_s)} on`);
    const word = one.reason || (one.reasons[0] || [""])[0], known = word && own(this.words.reasons, word);
    return [told.join("; ") || "no hindrance told", known ? el("span", { class: "cure" }, known.sentence) : null];
  }

  moved(caption, rows, isRacks) {
    const heads = isRacks ? [head("Rack"), figure("Complete"), spareFigure("First"), figure("Last")] : [head("Host"), head("State"), figure("After")];
    const counted = ["source_bytes", "peer_bytes_same_rack", "peer_bytes_cross_rack", "duplicate_bytes"];
    return table(caption, [...heads, figure("Storage"), figure("Same rack"), figure("Other racks"), spareFigure("Twice")], rows.map((one) => ({ cells: [
      one.name || "–", ...(isRacks ? [`${one.complete}/${one.hosts}`, seconds(one.first_seconds)] : [one.state || "–"]),
      seconds(one.seconds), ...counted.map((name) => bytes(one[name]))] })));
  }

  replay(sum) {
    const last = this.report.timeline.moved.length;
    this.slider = el("input", { type: "range", min: "1", max: String(last), value: String(last), "aria-label": "Time of the replay" });
    this.clock = el("output", { role: "status" });
    this.button = el("button", { type: "button" }, "Play");
    const box = el("div");
    this.page = new DeploymentPage(box, this.report.deployment.name, this.report.deployment.version);
    Object.assign(this.page, { isReplay: true, since: "the deployment began", bound: sum.bound });
    this.slider.addEventListener("input", () => this.at(Number(this.slider.value) - 1));
    this.button.addEventListener("click", () => this.play());
    return [el("section", {}, el("h2", {}, `Replay of ${sum.label}`),
      el("p", { class: "player" }, this.button, this.slider, this.clock)), box];
  }

  // Drawn only when it is in the document: a canvas has no width before.
  show() {
    if (this.page) this.at(Number(this.slider.value) - 1);
  }

  at(column) {
    const { timeline, deployment } = this.report;
    const samples = replayed(timeline, column);
    const row = column + 1 === timeline.moved.length ? { ...deployment } : rowAt(deployment, timeline, column, samples);
    row.id = `replay of ${deployment.id}`;
    keepSamples(row, samples);
    this.clock.textContent = `${seconds((column + 1) * timeline.step_s)} of ${seconds(timeline.moved.length * timeline.step_s)}`;
    this.page.show({ status: { deployments: [row], node: { name: this.report.told_by } }, words: this.words });
  }

  play() {
    const last = this.report.timeline.moved.length;
    clearInterval(this.playing);
    let column = Number(this.slider.value) >= last ? 0 : Number(this.slider.value);
    this.playing = setInterval(() => {
      if (column >= last || !this.slider.isConnected) { clearInterval(this.playing); return; }
      column = Math.min(last, column + Math.ceil(last / PLAY_STEPS));
      this.slider.value = String(column);
      this.at(column - 1);
    }, PLAY_MS);
  }
}

// The deployment as it was at the end of a column.
function rowAt(row, timeline, column, samples) {
  const end = (column + 1) * timeline.step_s;
  const hosts = row.hosts.map((host) => {
    const cells = samples.hosts.get(host.name), cell = cells ? cells[column] : NOTHING;
    if (cell === NOTHING) return { ...host, state: "init", chunks_verified: 0, reason: "", subject: "", age_s: null };
    const told = (own(timeline.reasons, host.name) || []).filter(([since]) => since <= end);
    return { ...host, state: cell === SHARE_MAX ? "complete" : "downloading", subject: "", age_s: 0,
      chunks_verified: Math.round(wanted(host, row) * cell / SHARE_MAX), reason: told.length ? told[told.length - 1][1] : "" };
  });
  const done = hosts.filter((host) => host.state === "complete").length;
  const { source, same, cross } = samples.sums[column];
  const share = hosts.reduce((sum, host) => sum + host.chunks_verified / wanted(host, row), 0) / Math.max(1, hosts.length);
  return { ...row, hosts, hosts_complete: done, hosts_failed: 0, eta_s: null, stall: null, completed_at: null,
    state: done === hosts.length ? "complete" : "downloading", source_bytes: source, peer_bytes_same_rack: same,
    peer_bytes_cross_rack: cross, cluster_bytes_verified: Math.round(share * row.cluster_bytes_total) };
}

export class ReportPage {
  constructor(root, name, version) {
    this.root = root;
    this.asked = `/page/report?name=${name}&version=${version}`;
    root.replaceChildren(note("Asking the daemon …"));
  }

  // Asked once: a report is of the moment in which it was made.
  wants() { return this.view ? [] : [this.asked]; }

  show({ words, more }) {
    if (more && more.report && !this.view) this.view = new ReportView(this.root, more, words);
    if (this.view) this.view.show();
  }
}
