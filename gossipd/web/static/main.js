// Which page is shown, and the questions to the daemon: once a second while the page is in sight.

import { el, fill, own, say, seconds } from "./dom.js";
import { ClusterPage, DeploymentPage, HostPage } from "./pages.js";
import { ReportPage } from "./report.js";
import { sample } from "./samples.js";

const EVERY_MS = 1000, EVERY_SLOW_MS = 5000, TIMEOUT_MS = 12000;
const [main, heard, trouble, form, trail] = ["main", "heard", "trouble", "token", "trail"].map((id) => document.getElementById(id));
let page = null, words = null, status = null, statusOf = null, heardAt = 0, token = null;

class Refused extends Error {
  constructor(code, sentence) { super(sentence); this.code = code; }
}

async function ask(path) {
  const headers = token === null ? {} : { Authorization: `Bearer ${token}` };
  const answer = await fetch(path, { headers, signal: AbortSignal.timeout(TIMEOUT_MS), redirect: "error" });
  const said = await answer.json();
  if (!answer.ok) throw new Refused(answer.status, said.error ? said.error.message : `answer ${answer.status}`);
  return said;
}

function route() {
  const given = location.hash.match(/^#token=(.+)$/);
  if (given) {
    token = decodeURIComponent(given[1]);
    history.replaceState(null, "", "#/");
  }
  const parts = location.hash.replace(/^#\/?/, "").split("/").map((one) => { try { return decodeURIComponent(one); } catch { return one; } });
  const steps = [el("a", { href: "#/" }, "gossipd")];
  const [kind, name, version] = parts, Page = own({ deployment: DeploymentPage, report: ReportPage, host: HostPage }, kind);
  if (Page && parts.length === (kind === "host" ? 2 : 3)) {
    page = new Page(main, name, Number(version));
    steps.push("›", el("span", {}, kind === "report" ? `Report of ${name}` : name));
  } else {
    page = new ClusterPage(main);
  }
  trail.replaceChildren(...steps);
  document.title = kind && name ? `${name} – gossipd` : "gossipd";
  window.scrollTo(0, 0);
}

function paint(more) {
  if (statusOf !== page || words === null) return;  // it has other hosts
  const began = performance.now();
  page.show({ status, words, more });
  const age = status.deployments.flatMap((row) => row.hosts).reduce((most, host) => Math.max(most, host.age_s ?? -1), -1);
  const oldest = age < 0 ? "" : `, oldest row ${seconds(age + Math.floor((Date.now() - heardAt) / 1000))}`;
  fill(heard, [status.node.name, oldest], () => `As ${status.node.name} has heard it${oldest}`);
  performance.measure("paint", { start: began, end: performance.now() });
}

function tell(sentence) {
  say(trouble, sentence);
  trouble.hidden = sentence === "";
}

async function look() {
  try {
    if (words === null) words = await ask("/words.json");
    const asking = page, found = await ask(`/page/status${page.asks || ""}`);
    heardAt = Date.now();
    sample(found.deployments, heardAt / 1000);
    if (asking !== page) return look();
    [status, statusOf] = [found, page];
    const more = {};
    for (const path of page.wants ? page.wants(status) : []) {
      try { Object.assign(more, await ask(path)); } catch (error) { if (error.code !== 404) throw error; }
    }
    if (asking !== page) return look();
    form.hidden = true;
    tell("");
    paint(more);
  } catch (error) {
    if (![Refused, TypeError, DOMException].some((kind) => error instanceof kind)) throw error;
    form.hidden = error.code !== 401;
    const since = statusOf === page ? ` What is shown is ${seconds((Date.now() - heardAt) / 1000)} old.` : "";
    tell(`${error instanceof Refused ? error.message : "gossipd web does not answer"}.${since}`);
    paint(null);
  }
}

let timer = null;
async function turn() {
  clearTimeout(timer);
  timer = null;
  const began = performance.now();
  try { if (!document.hidden) await look(); } finally {
    // A page that takes long to ask or to paint asks less often.
    const took = performance.now() - began;
    timer = setTimeout(turn, took > EVERY_MS ? EVERY_SLOW_MS : EVERY_MS);
  }
}

window.addEventListener("hashchange", () => { route(); if (timer !== null) turn(); });
window.addEventListener("resize", () => paint(null));
document.addEventListener("visibilitychange", () => { if (!document.hidden && timer !== null) turn(); });
form.addEventListener("submit", (event) => {
  event.preventDefault();
  token = new FormData(form).get("token");
  if (timer !== null) turn();
});
route();
turn();
