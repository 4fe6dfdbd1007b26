// The Kernel view: what a launch will take, live while it is written.
import { ask, packed, Refusal, unpacked, withToken } from "./api";
import { bars, COLOURS, cutCurve } from "./charts";
import { announce, bytes, chance, download, field, fill, h, percent, percents, short, tabs, time } from "./dom";
import { Editor, Problem } from "./editor";
import { GraphPane } from "./graph";

/** What a kernel and its launch are, as addresses and drafts hold them. */
export interface Draft { text: string; language: string; name: string; size: string; local: string; arguments: string; kernel: string; build?: string }

interface Device { device: string; name: string; milliseconds: number; interval: [number, number]; fixed: number; rate: number; bottleneck: string | null; parts: Record<string, number> }
interface Machine { name: string; origin: string; devices: Device[]; cut: { shares: Record<string, number>; milliseconds: number; alone: string; gain: number; worth_sharing: boolean; share_interval: [number, number] | null; chance: number | null; curve: [number, number, number, number][] } }
interface Line { line: number; times: number; counts: Record<string, number>; milliseconds: Record<string, number> }
interface Inspection { kernel: string; kernels: string[]; global_size: number[]; local_size: number[]; arguments: { name: string; is: string; assumed: boolean }[]; bytes: number; machines: Machine[]; lines: Line[]; warnings: string[]; ir: string; measuring: boolean }
interface Starter { name: string; title: string; language: string; global_size: number[]; arguments: string[]; text: string }

const DRAFT = "apportion-draft";
const LANGUAGES: Record<string, [string, string]> = { opencl: ["OpenCL C", ".cl"], c: ["C", ".c"], llvm: ["LLVM IR", ".ll"] };
const WAIT = 250;
const WORDS: Record<string, string> = {
  "arithmetic": "arithmetic: the device computes as fast as it can",
  "coalesced memory": "memory, coalesced: neighbours read neighbouring bytes",
  "strided memory": "memory, strided: neighbours read far from each other, so most of what is fetched is wasted",
  "local memory": "local memory",
  "copies": "copies between host and device",
  "waiting for other work-groups": "work-groups wait for each other",
  "launch and the longest work-item": "latency: starting the launch, and its longest work-item",
};

export class KernelView {
  readonly element: HTMLElement;
  private editor: Editor;
  private draft: Draft = { text: "", language: "opencl", name: "kernel.cl", size: "1048576", local: "", arguments: "", kernel: "" };
  private stale?: AbortController;
  private timer = 0;
  private last?: Inspection;
  private starters: Starter[] = [];
  private where = "";
  private filling = false;
  private foreign = new Set<string>();

  private example = h("select", { onchange: () => this.load(this.example.value) });
  private language = h("select", { onchange: () => { this.draft.language = this.language.value; this.rename(); this.editor.setLanguage(this.draft.language); this.changed(); } },
    Object.entries(LANGUAGES).map(([value, [title]]) => h("option", { value }, title)));
  private size = h("input", { size: 12, spellcheck: "false", inputmode: "text", oninput: () => this.changed() });
  private local = h("input", { size: 8, placeholder: "usual", spellcheck: "false", oninput: () => this.changed() });
  private values = h("input", { size: 18, placeholder: "n=4096", spellcheck: "false", oninput: () => this.changed() });
  private build = h("input", { size: 18, placeholder: "-D N=4", spellcheck: "false", oninput: () => this.changed() });
  private kernel = h("select", { onchange: () => { this.draft.kernel = this.kernel.value; this.changed(); } });
  private kernelField = field("Kernel", this.kernel);
  private status = h("p", { class: "status", role: "status" });
  private predictions = h("div", { class: "panel", id: "predictions" });
  private why = h("div", { class: "panel" });
  private irPane = h("pre", { class: "ir", tabindex: 0, role: "region", "aria-label": "LLVM IR" });
  private ir = h("div", { class: "panel" }, this.irPane);
  private graph: GraphPane;
  private shown = "Prediction";
  private runButton = h("button", { type: "button", class: "primary", onclick: () => void this.run() }, "Run it here");

  constructor(private opened: (job: string) => void) {
    const place = h("div", { class: "editor" });
    this.editor = new Editor(place, (text) => { this.draft.text = text; if (!this.filling) this.changed(); }, (line) => this.graph?.markLine(line));
    this.graph = new GraphPane((line) => { this.editor.mark(line ? [line] : []); if (line) this.editor.goTo(line); });
    this.element = h("section", { class: "kernel", "aria-label": "Kernel" },
      h("h1", { class: "hidden" }, "Kernel"),
      h("div", { class: "left" },
        h("div", { class: "toolbar" }, field("Start from", this.example), field("Language", this.language), this.kernelField,
          field("Work-items", this.size, "In all: 1048576, or 1024x1024"), field("Work-group", this.local, "Work-items of a group: 64, or 16x16"),
          field("Arguments", this.values, "Arguments that are known: n=4096 x=float32[N]"),
          field("Build options", this.build, "As clBuildProgram takes them: -D N=4 -cl-fast-relaxed-math")),
        place,
        h("div", { class: "toolbar end" }, this.status, h("span", { class: "grow" }),
          h("button", { type: "button", class: "quiet", onclick: () => void this.share() }, "Copy link"),
          h("button", { type: "button", class: "quiet", onclick: () => this.save() }, "Save source"), this.runButton)),
      h("div", { class: "right" }, tabs("Results", [["Prediction", this.predictions], ["Why", this.why], ["Graph", this.graph.element], ["LLVM IR", this.ir]],
        (title) => { this.shown = title; this.showMore(); })));
  }

  /** Fill the view: from the address, the last draft, or the first example. */
  async open(link: string): Promise<void> {
    if (this.starters.length === 0) {
      this.starters = await ask("GET", "/api/examples").catch(() => []);
      fill(this.example, h("option", { value: "" }, "your own"), this.starters.map((one) => h("option", { value: one.name }, one.title)));
    }
    if (link) {
      try { this.show(await unpacked(link) as Draft); return; } catch { announce("The link cannot be read"); }
    }
    if (this.draft.text) return;
    const kept = localStorage.getItem(DRAFT);
    if (kept) { try { this.show(JSON.parse(kept) as Draft); return; } catch { localStorage.removeItem(DRAFT); } }
    this.load("matmul.cl");
  }

  show(draft: Draft): void {
    this.draft = { ...this.draft, ...draft };
    this.language.value = this.draft.language;
    this.size.value = this.draft.size;
    this.local.value = this.draft.local;
    this.values.value = this.draft.arguments;
    this.build.value = this.draft.build ?? "";
    this.example.value = this.starters.find((one) => one.text === this.draft.text)?.name ?? "";
    this.editor.setLanguage(this.draft.language);
    this.filling = true;
    this.editor.text = this.draft.text;
    this.filling = false;
    this.changed(0);
  }

  private load(name: string): void {
    const found = this.starters.find((one) => one.name === name);
    if (!found) return;
    this.show({ text: found.text, language: found.language, name: found.name, size: found.global_size.join("x") || "1048576", local: "", arguments: found.arguments.join(" "), kernel: "", build: "" });
  }

  private rename(): void {
    this.draft.name = this.draft.name.replace(/\.\w+$/, "") + LANGUAGES[this.draft.language][1];
  }

  private source() { return { text: this.draft.text, language: this.draft.language, name: this.draft.name, build_options: this.build.value }; }

  private launch() {
    const sizes = (text: string) => { const parts = text.split(/[x, ]+/).filter(Boolean).map(Number); return parts.length === 1 ? parts[0] : parts; };
    return { source: this.source(), global_size: sizes(this.size.value), local_size: this.local.value.trim() ? sizes(this.local.value) : null,
      kernel: this.draft.kernel || null, arguments: this.values.value.split(/\s+|,\s*(?=\w+=)/).filter((word) => word && !this.foreign.has(word.split("=")[0])) };
  }

  private changed(wait = WAIT): void {
    Object.assign(this.draft, { size: this.size.value, local: this.local.value, arguments: this.values.value, build: this.build.value });
    localStorage.setItem(DRAFT, JSON.stringify(this.draft));
    if (location.hash.startsWith("#/kernel/")) history.replaceState(null, "", "#/kernel");
    this.foreign.clear();
    this.stale?.abort();
    clearTimeout(this.timer);
    this.timer = window.setTimeout(() => void this.update(), wait);
    this.element.classList.add("stale");
  }

  private async update(): Promise<void> {
    const stopping = this.stale = new AbortController();
    if (!this.draft.text.trim()) { this.say("Write a kernel, or start from an example."); return; }
    const began = performance.now();
    try {
      const found = await ask("POST", "/api/inspect", this.launch(), stopping.signal) as Inspection;
      this.last = found;
      this.editor.showProblems([]);
      fill(this.kernel, found.kernels.map((name) => h("option", { value: name, selected: name === found.kernel }, name)));
      this.kernelField.hidden = found.kernels.length < 2;
      this.element.classList.remove("stale");
      this.say(`Predicted in ${time(performance.now() - began)}.`);
      this.runButton.disabled = false;
      this.showPrediction(found);
      this.showCosts();
      await this.showShares(stopping.signal);
      if (found.measuring) this.timer = window.setTimeout(() => void this.update(), 3000);
    } catch (error) {
      if (stopping.signal.aborted) return;
      this.fail(error);
    }
    this.graph.forget();
    this.showMore();
  }

  private fail(error: unknown): void {
    this.last = undefined;
    this.element.classList.remove("stale");
    this.runButton.disabled = true;
    this.editor.showCosts([]);
    if (!(error instanceof Refusal)) throw error;
    const { problem } = error;
    const foreign = problem.message.match(/No argument called '(\w+)'/)?.[1];
    if (foreign && !this.foreign.has(foreign)) { // a value for another kernel: it is left out, not refused
      this.foreign.add(foreign);
      void this.update();
      return;
    }
    this.editor.showProblems(problemsOf(problem, this.draft.name));
    const noKernel = problem.message.includes("no OpenCL kernel");
    this.say(problem.line ? `Line ${problem.line}: ${problem.message}` : problem.message, !noKernel);
    if (noKernel) {
      this.element.classList.remove("stale");
      fill(this.predictions, h("p", {}, "There is no OpenCL kernel in this source, so there is no launch to predict. Its graph, its analyses and its IR are in the other tabs."));
    } else if (problem.diagnostics) {
      fill(this.predictions, h("h2", {}, "The compiler refuses it"), h("pre", { class: "diagnostics" }, problem.diagnostics));
    }
  }

  private say(text: string, bad = false): void {
    this.status.textContent = text;
    this.status.classList.toggle("bad", bad);
  }

  private showPrediction(found: Inspection): void {
    if (!found.machines.some((machine) => machine.devices.some((one) => `${machine.name}/${one.device}` === this.where))) {
      const [machine] = found.machines;
      this.where = machine ? `${machine.name}/${machine.devices[0].device}` : "";
    }
    fill(this.predictions,
      found.warnings.map((warning) => h("p", { class: "warning" }, `Note: ${warning}.`)),
      found.measuring && h("p", { class: "warning", role: "status" }, "The devices of this machine are being found and measured, once. They follow in a moment."),
      found.machines.map((machine) => this.card(machine)),
      h("div", { id: "shares" }),
      h("details", {}, h("summary", {}, "What was assumed"),
        h("table", {}, h("thead", {}, h("tr", {}, h("th", {}, "argument"), h("th", {}, "taken to be"), h("th", {}, ""))),
          h("tbody", {}, found.arguments.map((one) => h("tr", {}, h("td", {}, one.name), h("td", {}, h("code", {}, one.is)), h("td", {}, one.assumed ? "assumed" : "given"))))),
        h("p", {}, `${found.global_size.join(" × ")} work-items in groups of ${found.local_size.join(" × ")}; ${bytes(found.bytes)} in arrays. Nothing was run.`)));
  }

  private card(machine: Machine): HTMLElement {
    const { cut } = machine;
    const colour = (place: number) => COLOURS[place % COLOURS.length];
    const used = Object.entries(cut.shares).filter(([, share]) => share > 0);
    const portions = percents(used.map(([, share]) => share));
    const shared = cut.worth_sharing
      ? [h("b", { class: "good" }, `Share it: ${short(cut.gain)} × `), `the speed of ${cut.alone} alone, `,
        used.map(([name], place) => `${portions[place]} on ${name}`).join(", "),
        cut.chance === null ? "." : `. It is faster with probability ${chance(cut.chance)}.`]
      : [h("b", {}, `Run it on ${cut.alone}. `), "Sharing it is not worth it."];
    const [first, second] = machine.devices;
    return h("article", { class: "card machine", "data-machine": machine.name },
      h("h2", {}, machine.name === "this machine" ? "This machine" : machine.name),
      h("p", { class: "verdict" }, shared),
      bars(machine.devices.map((one, place) => ({ name: one.device, value: one.milliseconds, low: one.interval[0], high: one.interval[1], colour: colour(place) })), "Time alone", time),
      h("ul", { class: "plain" }, machine.devices.map((one) => h("li", {}, h("b", {}, one.device), ` ${one.name}: `,
        one.bottleneck ? `bound by ${WORDS[one.bottleneck] ?? one.bottleneck}.` : "its speeds are not known."))),
      cut.curve.length > 0 && h("figure", {},
        cutCurve(first.device, second.device, [{ name: "predicted", colour: "var(--c0)", points: cut.curve.map(([share, middle]) => [share, middle]),
          band: cut.curve.map(([share, , low, high]) => [share, low, high]) }], [cut.shares[first.device], cut.milliseconds, "best cut"]),
        h("figcaption", {}, `Time over the cut. The band holds the truth four times in five`,
          cut.share_interval ? `; the best share of ${first.device} lies between ${percent(cut.share_interval[0])} and ${percent(cut.share_interval[1])}.` : ".")),
      h("p", { class: "origin" }, `From ${machine.origin}.`));
  }

  private async showShares(signal: AbortSignal): Promise<void> {
    const { source, local_size, global_size } = this.launch();
    const local = local_size ?? this.last!.local_size;
    const pairs = ["cgo17-nvidia", "cgo17-amd"];
    const answers = await Promise.all(pairs.map((pair) => ask("POST", "/api/predict",
      { source, local_size: local, global_size, kernel: this.last!.kernel, bytes: this.last!.bytes, pair }, signal).catch((error) => { if (signal.aborted) throw error; return null; })));
    const place = this.predictions.querySelector("#shares");
    if (!place) return;
    fill(place, h("article", { class: "card" }, h("h2", {}, "Learned shares of two published machines"),
      h("table", {}, h("thead", {}, h("tr", {}, ["pair", "CPU's share", "interval", "familiarity"].map((title) => h("th", {}, title)))),
        h("tbody", {}, answers.map((answer, number) => answer && h("tr", {}, h("td", {}, pairs[number]), h("td", {}, percent(answer.cpu_share)),
          h("td", {}, `${percent(answer.interval[0])} to ${percent(answer.interval[1])}`),
          h("td", {}, h("meter", { min: 0, max: 1, value: answer.familiarity, "aria-label": "familiarity" }), ` ${short(answer.familiarity)}`))))),
      nearest(answers.find(Boolean)?.nearest ?? []),
      h("p", { class: "origin" }, "Familiarity says how near the kernel is to those that the model learned from: 1 for one of them, 0 for one farther than any. A distance counts the differences of features in standard deviations. The interval holds the best share nine times in ten.")));
  }

  private showCosts(): void {
    const found = this.last;
    if (!found || !this.where) return;
    const whole = found.lines.reduce((sum, line) => sum + (line.milliseconds[this.where] ?? 0), 0) || 1;
    this.editor.showCosts(found.lines.filter((line) => line.line > 0).map((line) => ({
      line: line.line, part: (line.milliseconds[this.where] ?? 0) / whole,
      words: `${percent((line.milliseconds[this.where] ?? 0) / whole)} of the work on ${this.where}; runs ${short(line.times)} × for each work-item. ` + counted(line),
    })));
  }

  private showMore(): void {
    if (this.shown === "LLVM IR") void this.showIR();
    if (this.shown === "Graph") void this.graph.show(this.source(), this.last?.kernel ?? null);
    if (this.shown === "Why") void this.explain();
  }

  private async showIR(): Promise<void> {
    this.irPane.textContent = this.last?.ir ?? (this.draft.language === "llvm" ? this.draft.text : "There is IR once the source compiles as a kernel.");
  }

  private async explain(): Promise<void> {
    const found = this.last;
    if (!found) { fill(this.why, h("p", {}, "There is nothing to explain until the kernel compiles.")); return; }
    const choice = h("select", { "aria-label": "Device", onchange: () => { this.where = choice.value; this.showCosts(); void this.explain(); } },
      Object.keys(found.lines[0]?.milliseconds ?? {}).map((name) => h("option", { value: name, selected: name === this.where }, name)));
    const [machine, id] = [this.where.slice(0, this.where.lastIndexOf("/")), this.where.slice(this.where.lastIndexOf("/") + 1)];
    const device = found.machines.find((one) => one.name === machine)?.devices.find((one) => one.device === id);
    const whole = found.lines.reduce((sum, line) => sum + (line.milliseconds[this.where] ?? 0), 0) || 1;
    const text = this.draft.text.split("\n");
    fill(this.why, h("div", { class: "toolbar" }, field("What costs on", choice)),
      device && Object.keys(device.parts).length > 0 && h("article", { class: "card" }, h("h2", {}, "What bounds it"),
        bars(Object.entries(device.parts).sort((a, b) => b[1] - a[1]).map(([name, value], place) => ({ name, value, colour: COLOURS[place % 6] })), "What bounds the launch", time),
        h("p", { class: "origin" }, "Each bar is the time this alone would take; they overlap, so the launch takes about the longest.")),
      h("article", { class: "card" }, h("h2", {}, "Lines"),
        h("table", { class: "lines" }, h("thead", {}, h("tr", {}, ["line", "part", "times", "source", "does, for each work-item"].map((title) => h("th", {}, title)))),
          h("tbody", {}, [...found.lines].sort((a, b) => (b.milliseconds[this.where] ?? 0) - (a.milliseconds[this.where] ?? 0)).slice(0, 20).map((line) =>
            h("tr", {}, h("td", {}, line.line ? h("button", { type: "button", class: "link", onclick: () => { this.editor.goTo(line.line); this.editor.mark([line.line]); this.graph.markLine(line.line); } }, line.line) : "–"),
              h("td", {}, percent((line.milliseconds[this.where] ?? 0) / whole)), h("td", {}, short(line.times)),
              h("td", {}, h("code", {}, (text[line.line - 1] ?? "moved by the compiler").trim().slice(0, 60))), h("td", {}, counted(line))))))));
  }

  private async run(): Promise<void> {
    this.runButton.disabled = true;
    try {
      const launch = this.launch();
      const job = await withToken(() => ask("POST", "/api/run", { ...launch, name: this.last?.kernel ?? this.draft.name }));
      this.opened(job.id);
    } catch (error) {
      if (error instanceof Refusal) this.say(error.problem.message, true); else throw error;
    } finally {
      this.runButton.disabled = false;
    }
  }

  private async share(): Promise<void> {
    const link = `#/kernel/${await packed(this.draft)}`;
    history.replaceState(null, "", link);
    try { await navigator.clipboard.writeText(location.href); this.say("The link is copied; it holds the kernel itself."); }
    catch { this.say("The link is in the address bar; it holds the kernel itself."); }
  }

  private save(): void { download(this.draft.name, "text/plain", this.draft.text); }
}

/** Every error and warning that the compiler has for a line of the source. */
function problemsOf(problem: { message: string; line?: number; column?: number; diagnostics?: string }, name: string): Problem[] {
  const found: Problem[] = [];
  for (const [, file, line, column, severity, message] of (problem.diagnostics ?? "").matchAll(/^(.+?):(\d+):(\d+): (?:fatal )?(error|warning): (.*)$/gm)) {
    if (file.endsWith(name)) found.push({ message, line: Number(line), column: Number(column), severity: severity as "error" | "warning" });
  }
  if (found.length === 0 && problem.line) found.push({ message: problem.message, line: problem.line, column: problem.column ?? 1, severity: "error" });
  return found;
}

/** The kernels that a model learned from which are most like this one. */
function nearest(known: { kernel: string; distance: number }[]): HTMLElement | false {
  return known.length > 0 && h("p", { class: "nearest" }, "Nearest known kernels: ",
    known.map(({ kernel, distance }, place) => [place > 0 && "; ", h("b", {}, kernel), ` at distance ${short(distance)}`]).flat(), ".");
}

/** What the counts are called in the field. */
const COUNTED: Record<string, string> = {
  "coalesced bytes": "bytes, coalesced", "strided bytes": "bytes, strided", "broadcast bytes": "bytes that all read alike", "scattered bytes": "bytes, scattered",
  "coalesced bytes stored": "bytes stored, coalesced", "other bytes stored": "bytes stored, strided or scattered",
};

function counted(line: Line): string {
  return Object.entries(line.counts).filter(([name]) => name !== "instructions").sort((a, b) => b[1] - a[1]).slice(0, 4)
    .map(([name, value]) => `${short(value)} ${COUNTED[name] ?? name}`).join("; ");
}
