// The start of a report that lies in a file of its own: see gossipd/web/report_file.py.

import { ReportView } from "./report.js";

const given = (id) => JSON.parse(document.getElementById(id).textContent);
const began = performance.now();
document.body.classList.add("file");
const view = new ReportView(document.getElementById("main"), given("report"), given("words"));
view.show();
performance.measure("paint", { start: began, end: performance.now() });
window.addEventListener("resize", () => view.show());
