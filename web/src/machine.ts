// The Machine view: devices and their roofline, measuring campaigns, models with their scores, what is installed.
import { ask, follow, Refusal, withToken } from "./api";
import { COLOURS, roofline, RoofPoint } from "./charts";
import { announce, bytes, fill, h, short, wide } from "./dom";
import { drawn, hear, nothingSaid } from "./live";
import { trainedWords } from "./runs";

export class MachineView {
  readonly element = h("section", { class: "machine-view", "aria-label": "Machine" });
  private devices = h("div", {});
  private models = h("div", {});
  private doctor = h("div", {});
  private measuring = h("p", { class: "status", role: "status" });
  private live = h("div", {});
  private following?: AbortController;

  constructor() {
    this.element.append(h("h1", {}, "Machine"), this.devices,
      h("article", { class: "card" }, h("h2", {}, "Measuring and training"),
        h("p", {}, "Measure the examples on every device, then train a model of shares on what was measured. Both are jobs: you may leave the page."),
        h("p", { class: "actions" },
          h("button", { type: "button", class: "primary", onclick: () => void this.measure() }, "Measure the examples here"), " ",
          h("button", { type: "button", onclick: () => void this.train() }, "Train on what was measured")),
        this.measuring, this.live),
      this.models, this.doctor);
  }

  async open(): Promise<void> {
    void this.goOn();
    await Promise.all([this.showDevices(), this.showModels(), this.showDoctor()].map((one) => one.catch((error) => {
      if (!(error instanceof Refusal)) throw error;
    })));
  }

  private async showDevices(): Promise<void> {
    fill(this.devices, h("p", { role: "status" }, "Asking the devices …"));
    const found: any[] = await ask("GET", "/api/devices");
    if (found.length === 0) { fill(this.devices, h("p", {}, "No OpenCL device was found. Install one with: pip install 'apportion[opencl]'")); return; }
    const measured = found.filter((one) => one.calibration);
    const colour = (id: string) => COLOURS[found.findIndex((one) => one.id === id) % COLOURS.length];
    const points = await this.points(colour);
    fill(this.devices, h("article", { class: "card" }, h("h2", {}, "Devices"), wide("Devices", h("table", {},
      h("thead", {}, h("tr", {}, ["id", "name", "driver", "units", "memory", "copies", "kernel", "arithmetic", "launch"].map((title) => h("th", {}, title)))),
      h("tbody", {}, found.map((one) => h("tr", {}, h("td", {}, one.id), h("td", {}, one.name), h("td", {}, `${one.platform} ${one.driver}`), h("td", {}, one.compute_units), h("td", {}, bytes(one.memory_bytes)),
        one.calibration ? [h("td", {}, one.shares_memory ? "none: memory is shared" : `${short(one.calibration.to_device / 1e9)} / ${short(one.calibration.from_device / 1e9)} GB/s`), h("td", {}, `${short(one.calibration.memory / 1e9)} GB/s`),
          h("td", {}, `${short(one.calibration.arithmetic / 1e9)} G/s`), h("td", {}, `${short(1e6 * one.calibration.launch_seconds)} µs`)] : h("td", { colspan: 4 }, "never measured"))))))),
      measured.length > 0 && h("article", { class: "card" }, h("h2", {}, "Roofline"),
        roofline(measured.map((one) => ({ name: one.id, memory: one.calibration.memory, arithmetic: one.calibration.arithmetic, colour: colour(one.id) })), points),
        h("p", { class: "origin" }, `The roofs are measured speeds: memory on the slope, multiply-adds on top. ${points.length ? `The ${points.length} dots are kernels that were run here; their operations are counted from the code, so one may lie above the roof where the driver saves some.` : "Kernels that you run appear as dots."}`)));
  }

  /** Every kernel that was run or measured, on each device alone. */
  private async points(colour: (id: string) => string): Promise<RoofPoint[]> {
    const found: any[] = await ask("GET", "/api/measured").catch(() => []);
    return found.filter((one) => one.seconds > 0 && one.operations > 0).map((one) => (
      { name: `${one.name} on ${one.device}`, intensity: one.operations / one.bytes, rate: one.operations / one.seconds, colour: colour(one.device) }));
  }

  private async showModels(): Promise<void> {
    const found: any[] = await ask("GET", "/api/models");
    fill(this.models, h("article", { class: "card" }, h("h2", {}, "Models"), wide("Models", h("table", {},
      h("thead", {}, h("tr", {}, ["model", "answers", "about", "score (in brackets: what a trivial answer gets)", "size"].map((title) => h("th", {}, title)))),
      h("tbody", {}, found.map((one) => h("tr", {}, h("td", {}, one.name), h("td", {}, one.question), h("td", {}, one.about), h("td", {}, one.score, one.misses.map((miss: string) => h("p", { class: "bad" }, `Missed: ${miss}.`))), h("td", {}, bytes(one.size)))))))));
  }

  private async showDoctor(): Promise<void> {
    const found = await ask("GET", "/api/doctor");
    fill(this.doctor, h("article", { class: "card" }, h("h2", {}, "What is installed"),
      h("p", {}, `apportion ${found.apportion.version}, Python ${found.python.version}, ${found.machine.system}, ${found.machine.processors} processors, ${bytes(found.machine.memory_bytes)}.`),
      found.missing.length ? h("ul", {}, found.missing.map((one: any) => h("li", {}, `${one.what}: `, h("code", {}, one.command)))) : h("p", { class: "good" }, "Nothing is missing.")));
  }

  private async measure(): Promise<void> {
    try {
      const starters: any[] = await ask("GET", "/api/examples");
      const sources = starters.filter((one) => one.language === "opencl").map(({ text, name, language }) => ({ text, name, language }));
      const job = await withToken(() => ask("POST", "/api/measure", { sources, sizes: [4096, 65536], local_sizes: [64], seconds: 0.2, budget: 90, name: "examples" }));
      await this.watch(job.id);
    } catch (error) { this.tell(error); }
  }

  private async train(): Promise<void> {
    try {
      const done: any[] = await withToken(() => ask("GET", "/api/jobs?limit=500&state=done"));
      const jobs = done.filter((job) => job.verb === "measure").map((job) => job.id).slice(0, 50);
      if (jobs.length === 0) { this.measuring.textContent = "Nothing was measured yet. Measure the examples first."; return; }
      const job = await withToken(() => ask("POST", "/api/train", { jobs, name: "this-machine" }));
      await this.watch(job.id);
    } catch (error) { this.tell(error); }
  }

  private tell(error: unknown): void {
    if (!(error instanceof Refusal)) throw error;
    this.measuring.textContent = error.problem.message;
  }

  /** Follow the measuring or training that goes on already, as after a reload. */
  private async goOn(): Promise<void> {
    for (const state of ["running", "waiting"]) {
      const jobs: any[] = await ask("GET", `/api/jobs?state=${state}`).catch(() => []);
      const found = jobs.find((job) => job.verb === "measure" || job.verb === "train");
      if (found) { await this.watch(found.id).catch((error) => this.tell(error)); return; }
    }
  }

  private async watch(id: string): Promise<void> {
    this.following?.abort();
    const stopping = this.following = new AbortController();
    const said = nothingSaid("waiting");
    const show = () => {
      this.measuring.textContent = `${said.stage} …`;
      fill(this.live, h("progress", { max: 1, value: said.part, "aria-label": "progress" }), drawn(said));
    };
    show();
    await follow(id, ({ body }) => { hear(said, body); show(); }, stopping.signal);
    if (stopping.signal.aborted) return;
    const job = await ask("GET", `/api/jobs/${id}`, undefined, stopping.signal);
    announce(`${job.name}: ${job.state}`);
    this.measuring.textContent = job.error?.message ?? `${job.name}: ${job.state}.`;
    fill(this.live, job.verb === "train" && job.answer ? trainedWords(job.answer) : null, drawn(said),
      h("p", {}, h("a", { href: `#/runs/${id}` }, "All of it, in Runs")));
    await Promise.all([this.showDevices(), this.showModels()]);
  }
}
