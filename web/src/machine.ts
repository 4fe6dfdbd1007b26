// The Machine view: devices and their roofline, measuring campaigns, models with their scores, what is installed.
import { ask, Refusal, withToken } from "./api";
import { COLOURS, roofline, RoofPoint } from "./charts";
import { bytes, fill, h, short } from "./dom";

export class MachineView {
  readonly element = h("section", { class: "machine-view", "aria-label": "Machine" });
  private devices = h("div", {});
  private models = h("div", {});
  private doctor = h("div", {});
  private measuring = h("p", { class: "status", role: "status" });

  constructor() {
    this.element.append(h("h1", {}, "Machine"), this.devices, this.measuring,
      h("p", { class: "actions" }, h("button", { type: "button", class: "primary", onclick: () => void this.measure() }, "Measure the examples here")),
      this.models, this.doctor);
  }

  async open(): Promise<void> {
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
    fill(this.devices, h("article", { class: "card" }, h("h2", {}, "Devices"), h("div", { class: "wide" }, h("table", {},
      h("thead", {}, h("tr", {}, ["id", "name", "driver", "units", "memory", "copies", "kernel", "arithmetic", "launch"].map((title) => h("th", {}, title)))),
      h("tbody", {}, found.map((one) => h("tr", {}, h("td", {}, one.id), h("td", {}, one.name), h("td", {}, `${one.platform} ${one.driver}`), h("td", {}, one.compute_units), h("td", {}, bytes(one.memory_bytes)),
        one.calibration ? [h("td", {}, one.shares_memory ? "none: memory is shared" : `${short(one.calibration.to_device / 1e9)} / ${short(one.calibration.from_device / 1e9)} GB/s`), h("td", {}, `${short(one.calibration.memory / 1e9)} GB/s`),
          h("td", {}, `${short(one.calibration.arithmetic / 1e9)} G/s`), h("td", {}, `${short(1e6 * one.calibration.launch_seconds)} µs`)] : h("td", { colspan: 4 }, "never measured"))))))),
      measured.length > 0 && h("article", { class: "card" }, h("h2", {}, "Roofline"),
        roofline(measured.map((one) => ({ name: one.id, memory: one.calibration.memory, arithmetic: one.calibration.arithmetic, colour: colour(one.id) })), points),
        h("p", { class: "origin" }, `The roofs are measured speeds: memory on the slope, multiply-adds on top. ${points.length ? `The ${points.length} dots are kernels that were run here; their operations are counted from the code, so one may lie above the roof where the driver saves some.` : "Kernels that you run appear as dots."}`)));
  }

  /** Every kernel that was run, on each device alone. */
  private async points(colour: (id: string) => string): Promise<RoofPoint[]> {
    const jobs: any[] = await ask("GET", "/api/jobs?limit=50&state=done").catch(() => []);
    const runs = await Promise.all(jobs.filter((job) => job.verb === "run").slice(0, 30).map((job) => ask("GET", `/api/jobs/${job.id}`).catch(() => null)));
    return runs.filter((job) => job?.answer?.work?.bytes > 0).flatMap(({ name, answer }) =>
      Object.entries(answer.alone as Record<string, number>).map(([device, milliseconds]) => ({
        name: `${name} on ${device}`, intensity: answer.work.operations / answer.work.bytes, rate: answer.work.operations / (milliseconds / 1000), colour: colour(device),
      })));
  }

  private async showModels(): Promise<void> {
    const found: any[] = await ask("GET", "/api/models");
    fill(this.models, h("article", { class: "card" }, h("h2", {}, "Models"), h("div", { class: "wide" }, h("table", {},
      h("thead", {}, h("tr", {}, ["model", "answers", "about", "score", "size"].map((title) => h("th", {}, title)))),
      h("tbody", {}, found.map((one) => h("tr", {}, h("td", {}, one.name), h("td", {}, one.question), h("td", {}, one.about), h("td", {}, one.score), h("td", {}, bytes(one.size)))))))));
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
      const job = await withToken(() => ask("POST", "/api/measure", { sources, sizes: [65536], local_sizes: [64], seconds: 0.2, budget: 90, name: "examples" }));
      location.hash = `#/runs/${job.id}`;
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      this.measuring.textContent = error.problem.message;
    }
  }
}
