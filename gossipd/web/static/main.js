// Which page is shown, and the questions to the daemon: once a second while the page is in sight.

import { el, fill, own, say, seconds } from "./dom.js";
import { ClusterPage, DeploymentPage, HostPage } from "./pages.js";
import { ReportPage } from "./report.js";
import { sample } from "./samples.js";

const EVERY_MS = 1000, EVERY_SLOW_MS = 5000, TIMEOUT_MS = 12000;
const [main, heard, trouble, form, trail] = ["main", "heard", "trouble", "token", "trail"].map((id) => document.getElementById(id));
let page = null, words = null, status = null, heardAt = 0, token = null;

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
  if (status === null || words === null) return;
  const began = performance.now();
  page.show({ status, words, more });
  const ages = status.deployments.flatMap((row) => row.hosts.map((host) => host.age_s)).filter((age) => age !== null);
  const late = Math.floor((Date.now() - heardAt) / 1000);
  const oldest = ages.length ? `, oldest row ${seconds(ages.reduce((a, b) => Math.max(a, b), 0) + late)}` : "";
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
    if (asking !== page) return look();
    status = found;
    heardAt = Date.now();
    if (!page.isOfHost) sample(status.deployments, heardAt / 1000);
    const more = {};
    for (const path of page.wants ? page.wants(status) : []) {
      try { Object.assign(more, await ask(path)); } catch (error) { if (error.code !== 404) throw error; }
    }
    form.hidden = true;
    tell("");
    paint(more);
  } catch (error) {
    if (!(error instanceof Refused || error instanceof TypeError || error instanceof DOMException)) throw error;
    form.hidden = error.code !== 401;
    const since = heardAt ? ` What is shown is ${seconds((Date.now() - heardAt) / 1000)} old.` : "";
    tell(error instanceof Refused ? `${error.message}.${since}` : `gossipd web does not answer.${since}`);
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
