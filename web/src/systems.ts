// The Systems view: the order in which systems would run a profiled program, and schedules of many jobs.
import { ask, Refusal } from "./api";
import { bars, COLOURS, gantt, steps } from "./charts";
import { field, fill, h, percent, short, wide } from "./dom";

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
    if (this.schedules.childElementCount > 0) return;
    let names: string[];
    try { names = await ask("GET", "/api/policies"); } catch (error) { if (error instanceof Refusal) return; throw error; }
    let latest: any[] = [], before: any[] = [], dragged = false, waiting = 0;
    let asked: AbortController | undefined;
    const moved = (ended: boolean) => { // what was shown before the drag is what it is compared with
      if (!dragged) before = latest;
      dragged = !ended;
      clearTimeout(waiting);
      waiting = window.setTimeout(() => void simulate(), ended ? 0 : 120);
    };
    const slider = (min: number, max: number, step: number, value: number) => h("input", { type: "range", min, max, step, value, oninput: () => moved(false), onchange: () => moved(true) });
    const change = (now: number, old: number | undefined) => {
      if (old === undefined || old === 0 || !Number.isFinite(now / old)) return null;
      const part = Math.round(100 * (now / old - 1));
      return h("span", { class: "change" }, part === 0 ? " =" : ` ${part > 0 ? "+" : "−"}${Math.abs(part)} %`);
    };
    const [cpu, gpu, jobs, load, sigma] = [slider(1, 16, 1, 8), slider(1, 16, 1, 2), slider(20, 300, 20, 100), slider(0, 2, 0.05, 0.85), slider(0, 2, 0.1, 0.5)];
    const first = names.filter((name) => ["round_robin", "fastest", "eft", "careful"].includes(name));
    const chosen = names.map((name) => h("label", { class: "choice" }, h("input", { type: "checkbox", value: name, checked: first.includes(name), onchange: () => void simulate() }), ` ${name}`));
    const said = h("p", { class: "status", role: "status" });
    const results = h("div", {});
    const simulate = async () => {
      const policies = chosen.map((label) => label.querySelector("input")!).filter((box) => box.checked).map((box) => box.value);
      said.textContent = `cpu ${cpu.value} slots, gpu ${gpu.value} slots, ${jobs.value} jobs, load ${load.value}, times known to a factor of ${short(2 ** Number(sigma.value))}`;
      asked?.abort();
      const stopping = asked = new AbortController();
      if (policies.length === 0) { fill(results, h("p", {}, "Choose a policy.")); return; }
      try {
        const found: any[] = await ask("POST", "/api/schedule", { systems: [`cpu=${cpu.value}`, `gpu=${gpu.value}`], policies: policies.slice(0, 8), jobs: Number(jobs.value), load: Number(load.value), sigma: Number(sigma.value) }, stopping.signal);
        latest = found;
        const rows: [string, string, (one: any) => string][] = [
          ["makespan", "makespan_s", (one) => `${short(one.makespan_s)} s`], ["mean completion", "avg_jct_s", (one) => `${short(one.avg_jct_s)} s`],
          ["mean wait", "avg_wait_s", (one) => `${short(one.avg_wait_s)} s`], ["slots in use", "utilisation", (one) => percent(one.utilisation)],
          ["time over the least", "placement_regret", (one) => `${short(one.placement_regret)} ×`]];
        const last = Math.max(...found.map((one) => one.makespan_s));
        fill(results, wide("Schedules in numbers", h("table", {}, h("thead", {}, h("tr", {}, h("th", {}, "policy"), rows.map(([title]) => h("th", {}, title)))),
          h("tbody", {}, found.map((one) => h("tr", {}, h("td", {}, one.policy), rows.map(([, key, text]) => h("td", {}, text(one), change(one[key], before.find((old) => old.policy === one.policy)?.[key])))))))),
          before.length > 0 && h("p", { class: "origin" }, "Percentages are against the numbers before the last change."),
          found.map((one) => h("figure", {}, h("figcaption", {}, h("b", {}, one.policy), ": jobs over the slots of each system, and how many wait"),
            gantt(one.schedule, `Schedule of ${one.policy}`, { cpu: Number(cpu.value), gpu: Number(gpu.value) }, last),
            steps(one.queue[0], one.queue[1], last, `Jobs that wait under ${one.policy}`))));
      } catch (error) {
        if (stopping.signal.aborted) return;
        if (!(error instanceof Refusal)) throw error;
        said.textContent = error.problem.message;
      }
    };
    fill(this.schedules, h("article", { class: "card" }, h("h2", {}, "Schedules"),
      h("p", {}, "The same drawn jobs under several policies. Drag the size of a system and see what changes."),
      h("div", { class: "toolbar" }, field("Slots of cpu", cpu), field("Slots of gpu", gpu), field("Jobs", jobs), field("Load", load), field("Error of times", sigma)),
      h("fieldset", {}, h("legend", {}, "Policies"), chosen), said, results));
    await simulate();
  }
}
