// The Systems view: the order in which systems would run a profiled program, and schedules of many jobs.
import { ask, Refusal } from "./api";
import { bars, COLOURS, gantt } from "./charts";
import { field, fill, h, short } from "./dom";

export class SystemsView {
  readonly element = h("section", { class: "systems", "aria-label": "Systems and schedules" });
  private status = h("p", { class: "status", role: "status" });
  private answers = h("div", {});
  private schedules = h("div", {});
  private target = h("select", {}, ["centred", "slowest"].map((name) => h("option", {}, name)));
  private file = h("input", { type: "file", accept: ".json,application/json", onchange: () => void this.read() });
  private profiles: unknown[] = [];

  constructor() {
    this.target.addEventListener("change", () => void this.predict());
    this.element.append(h("h1", {}, "Systems and schedules"),
      h("article", { class: "card" }, h("h2", {}, "Relative performance"),
        h("p", {}, "Give a profile: JSON with ", h("code", {}, "counters"), ", as ", h("code", {}, "apportion counters"), " makes them. Times that are known on a system help more than any counter."),
        h("div", { class: "toolbar" }, field("Profile", this.file), field("In terms of", this.target),
          h("button", { type: "button", class: "quiet", onclick: () => void this.example() }, "Use an example")),
        this.status, this.answers),
      this.schedules);
  }

  async open(): Promise<void> { await this.showSchedules(); }

  private async example(): Promise<void> {
    this.profiles = await ask("GET", "/api/examples/profiles").catch(() => []);
    await this.predict();
  }

  private async read(): Promise<void> {
    const [file] = this.file.files ?? [];
    if (!file) return;
    try {
      const said = JSON.parse(await file.text());
      this.profiles = (Array.isArray(said) ? said : [said]).map((one, place) => ({ name: one.name ?? `${file.name} ${place + 1}`, counters: one.counters, seconds: one.seconds ?? {} }));
    } catch {
      this.status.textContent = `${file.name} is not JSON.`;
      return;
    }
    await this.predict();
  }

  private async predict(): Promise<void> {
    if (this.profiles.length === 0) return;
    try {
      const found: any[] = await ask("POST", "/api/relative", { profiles: this.profiles, target: this.target.value });
      this.status.textContent = `${found.length} ${found.length === 1 ? "run" : "runs"} predicted.`;
      fill(this.answers, found.map((one) => h("article", { class: "card" }, h("h3", {}, one.run),
        one.abstains ? h("p", { class: "warning" }, "The run is too unlike the known ones for an answer. Measure it on one system.") : [
          h("p", {}, "Fastest first: ", h("b", {}, one.order.join(", ")), `. Familiarity ${short(one.familiarity)}.`),
          bars(one.order.map((system: string, place: number) => {
            const factor = one.target === "centred" ? 2 ** one.vector[system] : one.vector[system];
            return { name: system, value: factor, low: factor * 2 ** -one.sigma[system], high: factor * 2 ** one.sigma[system], colour: COLOURS[place % COLOURS.length] };
          }), "Time of each system", (value) => `${short(value)} ×`),
          h("p", { class: "origin" }, one.target === "centred" ? "Times over the systems' mean; whiskers are one sigma." : "Times in parts of the slowest; whiskers are one sigma.")],
        one.warnings.map((warning: string) => h("p", { class: "warning" }, warning)))));
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      this.status.textContent = error.problem.message;
      fill(this.answers);
    }
  }

  private async showSchedules(): Promise<void> {
    try {
      if (!(await ask("GET", "/api/health")).schedules) return;
      const known = await ask("GET", "/api/schedule");
      if (this.schedules.childElementCount > 0) return;
      const slots = h("input", { type: "range", min: 1, max: 16, value: 4 });
      const jobs = h("input", { type: "range", min: 10, max: 200, step: 10, value: 60 });
      const shown = h("output", {}, "4 and 60");
      const results = h("div", {});
      const simulate = async () => {
        shown.textContent = `${slots.value} and ${jobs.value}`;
        const found = await ask("POST", "/api/schedule/simulate", { policies: known.shown, slots: Number(slots.value), jobs: Number(jobs.value), seed: 0 });
        fill(results, h("div", { class: "wide" }, h("table", {}, h("thead", {}, h("tr", {}, ["policy", "makespan, s", "mean completion, s", "mean wait, s", "use"].map((title) => h("th", {}, title)))),
          h("tbody", {}, found.policies.map((one: any) => h("tr", {}, h("td", {}, one.policy), h("td", {}, short(one.makespan)), h("td", {}, short(one.mean_completion)), h("td", {}, short(one.mean_wait)), h("td", {}, `${Math.round(100 * one.use)} %`)))))),
          found.policies.map((one: any) => h("figure", {}, gantt(one.jobs, `Schedule of ${one.policy}`), h("figcaption", {}, one.policy))));
      };
      slots.addEventListener("change", () => void simulate());
      jobs.addEventListener("change", () => void simulate());
      fill(this.schedules, h("article", { class: "card" }, h("h2", {}, "Schedules"), h("p", {}, "The same jobs by several policies. Drag the size of the first system and see what changes."),
        h("div", { class: "toolbar" }, field("Slots of the first system", slots), field("Jobs", jobs), shown), results));
      await simulate();
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      fill(this.schedules);
    }
  }
}
