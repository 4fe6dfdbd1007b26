// The Systems view: the order in which systems would run a profiled program, and schedules of many jobs.
import { ask, Refusal } from "./api";
import { bars, COLOURS, gantt, steps } from "./charts";
import { field, fill, h, percent, short, wide } from "./dom";

/** Where jobs come from, and which files say it: fields of the request. */
const FORMATS: { name: string; title: string; files: Record<string, string>; systems: string }[] = [
  { name: "synthetic", title: "drawn by chance", files: {}, systems: "cpu=8 gpu=2" },
  { name: "table", title: "a table (CSV)", files: { trace: "Table of jobs" }, systems: "" },
  { name: "gavel", title: "a trace of Gavel", files: { trace: "Trace", throughputs: "Steps per second (JSON)" }, systems: "v100=8 p100=8 k80=8" },
  { name: "swf", title: "a log in SWF", files: { trace: "Log", times: "Times of classes (CSV)" }, systems: "" },
  { name: "sacct", title: "output of sacct", files: { trace: "Output", times: "Times of classes (CSV)" }, systems: "" },
];

/** The systems that a table has times of, in its columns `seconds:NAME`. */
function systemsOf(text: string): string[] {
  return text.slice(0, 20_000).split("\n", 1)[0].split(",").map((one) => one.trim().replaceAll('"', ""))
    .filter((one) => one.startsWith("seconds:")).map((one) => one.slice("seconds:".length));
}

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
    const [jobs, load, sigma] = [slider(20, 300, 20, 100), slider(0, 2, 0.05, 0.85), slider(0, 2, 0.1, 0.5)];
    const format = h("select", { onchange: () => changeFormat() }, FORMATS.map((one) => h("option", { value: one.name }, one.title)));
    const chosenFormat = () => FORMATS.find((one) => one.name === format.value)!;
    const systems = h("input", { type: "text", spellcheck: "false", autocomplete: "off", onchange: () => { changeSystems(); void simulate(); } });
    const [sizes, inputs, drawing] = [h("div", { class: "toolbar" }), h("div", { class: "toolbar" }), h("div", { class: "toolbar" }, field("Jobs", jobs), field("Load", load))];
    let slots: Record<string, HTMLInputElement> = {};
    let files: Record<string, string> = {};
    const changeSystems = () => {
      before = latest = [];
      const sized = systems.value.split(/[\s,]+/).map((word) => /^([A-Za-z][\w.-]*)=(\d+)$/.exec(word)).filter((found) => found !== null);
      slots = Object.fromEntries(sized.map(([, name, count]) => [name, slider(1, Math.max(16, 2 * Number(count)), 1, Number(count))]));
      fill(sizes, Object.entries(slots).map(([name, input]) => field(`Slots of ${name}`, input)));
    };
    const changeFormat = () => {
      const { files: wanted, systems: usual } = chosenFormat();
      files = {};
      drawing.hidden = format.value !== "synthetic";
      systems.value = usual;
      fill(inputs, Object.entries(wanted).map(([key, title]) => {
        const input = h("input", { type: "file", onchange: () => void read(key, input) });
        return field(title, input);
      }), format.value !== "synthetic" && field("Systems", systems, "NAME=SLOTS of each, such as v100=8 k80=4"));
      changeSystems();
      void simulate();
    };
    const read = async (key: string, input: HTMLInputElement) => {
      const [file] = input.files ?? [];
      if (!file) return;
      files[key] = await file.text();
      const named = systemsOf(files[key]);
      if (named.length > 0) { systems.value = named.map((name) => `${name}=4`).join(" "); changeSystems(); }
      void simulate();
    };
    const first = names.filter((name) => ["round_robin", "fastest", "eft", "careful"].includes(name));
    const chosen = names.map((name) => h("label", { class: "choice" }, h("input", { type: "checkbox", value: name, checked: first.includes(name), onchange: () => void simulate() }), ` ${name}`));
    const said = h("p", { class: "status", role: "status" });
    const results = h("div", {});
    const simulate = async () => {
      const policies = chosen.map((label) => label.querySelector("input")!).filter((box) => box.checked).map((box) => box.value);
      const sized = Object.entries(slots).map(([name, input]) => `${name} ${input.value} slots`);
      const missing = Object.entries(chosenFormat().files).filter(([key]) => !(key in files)).map(([, title]) => title);
      const drawn = format.value === "synthetic" ? [`${jobs.value} jobs`, `load ${load.value}`] : [];
      said.textContent = [...sized, ...drawn, `times known to a factor of ${short(2 ** Number(sigma.value))}`].join(", ");
      asked?.abort();
      const stopping = asked = new AbortController();
      if (policies.length === 0) { fill(results, h("p", {}, "Choose a policy.")); return; }
      if (missing.length > 0) { fill(results, h("p", {}, `Choose a file: ${missing.join(", ")}.`)); return; }
      if (sized.length === 0) { fill(results, h("p", {}, "Write the systems as NAME=SLOTS, such as v100=8 k80=4.")); return; }
      try {
        const found: any[] = await ask("POST", "/api/schedule", {
          systems: Object.entries(slots).map(([name, input]) => `${name}=${input.value}`), policies: policies.slice(0, 8), sigma: Number(sigma.value), format: format.value, ...files,
          ...(format.value === "synthetic" ? { jobs: Number(jobs.value), load: Number(load.value) } : {}),
        }, stopping.signal);
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
            gantt(one.schedule, `Schedule of ${one.policy}`, Object.fromEntries(Object.entries(slots).map(([name, input]) => [name, Number(input.value)])), last),
            steps(one.queue[0], one.queue[1], last, `Jobs that wait under ${one.policy}`))));
      } catch (error) {
        if (stopping.signal.aborted) return;
        if (!(error instanceof Refusal)) throw error;
        said.textContent = error.problem.message;
        fill(results);
      }
    };
    fill(this.schedules, h("article", { class: "card" }, h("h2", {}, "Schedules"),
      h("p", {}, "The same jobs under several policies: drawn by chance, or those of a file. Drag the size of a system and see what changes."),
      h("div", { class: "toolbar" }, field("Where jobs come from", format), field("Error of times", sigma)), inputs, sizes, drawing,
      h("fieldset", {}, h("legend", {}, "Policies"), chosen), said, results));
    systems.value = chosenFormat().systems;
    changeSystems();
    await simulate();
  }
}
