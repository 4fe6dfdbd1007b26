// The Run view: jobs with their progress, what came of them, and two of them side by side.
import { ask, follow, packed, Refusal, unpacked, withToken } from "./api";
import { bars, COLOURS, cutCurve, timeline } from "./charts";
import { announce, download, fill, h, percents, short, time, wide } from "./dom";
import { drawn, hear, nothingSaid, Said } from "./live";

interface Job { id: string; verb: string; name: string; state: string; created: number; started: number | null; ended: number | null; error: { kind: string; message: string } | null; request: any; answer: any }

const ENDED = ["done", "failed", "cancelled", "interrupted"];

export class RunsView {
  readonly element = h("section", { class: "runs", "aria-label": "Runs" });
  private list = h("div", { class: "list" });
  private detail = h("div", { class: "detail", "aria-live": "off" });
  private chosen: string[] = [];
  private following?: AbortController;
  private jobs: Job[] = [];
  private turn = 0;

  constructor() { this.element.append(h("h1", {}, "Runs"), h("div", { class: "split" }, this.list, this.detail)); }

  /** Show the jobs, and one of them or two side by side. */
  async open(what: string): Promise<void> {
    this.following?.abort();
    this.chosen = what.split(",").filter(Boolean);
    const turn = ++this.turn;
    await this.refresh();
    if (turn !== this.turn) return; // something else was chosen meanwhile
    if (this.chosen.length === 0) { fill(this.detail, h("p", {}, "Choose a run, or two to compare them. Run a kernel from the Kernel view.")); return; }
    const stopping = this.following = new AbortController();
    const jobs = await Promise.all(this.chosen.map((id) => this.watch(id, stopping.signal)));
    const [first, second] = jobs.filter((job) => job?.verb === "run" && job.answer);
    if (first && second && !stopping.signal.aborted) this.detail.prepend(compared(first, second));
  }

  private async refresh(): Promise<void> {
    try {
      this.jobs = await withToken(() => ask("GET", "/api/jobs?limit=100"));
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      fill(this.list, h("p", { class: "bad" }, error.problem.message));
      return;
    }
    fill(this.list, this.jobs.length === 0 ? h("p", {}, "There are no runs yet.") : h("table", { class: "jobs" },
      h("thead", {}, h("tr", {}, ["", "name", "what", "state", "when"].map((title) => h("th", {}, title)))),
      h("tbody", {}, this.jobs.map((job) => h("tr", { class: this.chosen.includes(job.id) ? "chosen" : "" },
        h("td", {}, h("input", { type: "checkbox", "aria-label": `Compare ${job.name}`, checked: this.chosen.includes(job.id), onchange: (event: Event) => this.pick(job.id, (event.target as HTMLInputElement).checked) })),
        h("td", {}, h("a", { href: `#/runs/${job.id}` }, job.name)), h("td", {}, job.verb),
        h("td", {}, h("span", { class: `state ${job.state}` }, job.state)), h("td", {}, new Date(1000 * job.created).toLocaleTimeString()))))));
  }

  private pick(id: string, add: boolean): void {
    const chosen = add ? [...this.chosen, id].slice(-2) : this.chosen.filter((one) => one !== id);
    location.hash = `#/runs/${chosen.join(",")}`;
  }

  private async watch(id: string, signal: AbortSignal): Promise<Job | undefined> {
    const place = h("article", { class: "card run", "data-job": id });
    if (this.chosen[0] === id) fill(this.detail);
    this.detail.classList.toggle("two", this.chosen.length > 1);
    this.detail.append(place);
    try {
      let job = await ask("GET", `/api/jobs/${id}`, undefined, signal) as Job;
      if (!ENDED.includes(job.state)) {
        const said = nothingSaid(job.state);
        this.progress(place, job, said);
        await follow(id, ({ body }) => { hear(said, body); this.progress(place, job, said); }, signal);
        if (signal.aborted) return undefined;
        job = await ask("GET", `/api/jobs/${id}`, undefined, signal) as Job;
        announce(`${job.name}: ${job.state}`);
        void this.refresh();
      }
      const told = nothingSaid("");
      if (job.verb === "train") await follow(id, ({ body }) => hear(told, body), signal);
      this.result(place, job, told);
      return job;
    } catch (error) {
      if (signal.aborted) return undefined;
      if (!(error instanceof Refusal)) throw error;
      fill(place, h("p", { class: "bad" }, error.problem.message));
      return undefined;
    }
  }

  private progress(place: Element, job: Job, said: Said): void {
    fill(place, h("h2", {}, job.name), h("p", { role: "status" }, `${said.stage} …`),
      h("progress", { max: 1, value: said.part, "aria-label": "progress" }),
      drawn(said), said.points.length > 0 && pointTable(said.points),
      h("p", {}, h("button", { type: "button", onclick: () => void this.cancel(job.id) }, "Cancel")));
  }

  private async cancel(id: string): Promise<void> {
    await ask("POST", `/api/jobs/${id}/cancel`, {}).catch((error) => { if (!(error instanceof Refusal)) throw error; });
  }

  private result(place: HTMLElement, job: Job, told: Said): void {
    const said = h("span", { class: "status", role: "status" });
    showResult(place, job, told, h("p", { class: "actions" },
      h("button", { type: "button", class: "quiet", onclick: () => void this.rename(job) }, "Rename"),
      h("button", { type: "button", class: "quiet", onclick: () => void this.remove(job) }, "Delete"),
      job.verb === "run" && h("button", { type: "button", class: "quiet", onclick: () => void edit(job) }, "Open the kernel"),
      job.answer && h("button", { type: "button", class: "quiet", onclick: () => void share(job, said) }, "Copy link"),
      job.answer && h("button", { type: "button", class: "quiet", onclick: () => keep(place, job) }, "Save as HTML"), said));
  }

  private async rename(job: Job): Promise<void> {
    const name = prompt("A name for this run", job.name);
    if (!name) return;
    await ask("PATCH", `/api/jobs/${job.id}`, { name });
    await this.open(this.chosen.join(","));
  }

  private async remove(job: Job): Promise<void> {
    await ask("DELETE", `/api/jobs/${job.id}`);
    location.hash = "#/runs/" + this.chosen.filter((one) => one !== job.id).join(",");
    await this.refresh();
  }
}

/** A run as its link holds it: nothing is asked of the service. */
export class SharedView {
  readonly element = h("section", { class: "runs", "aria-label": "A run" });

  async open(link: string): Promise<void> {
    const place = h("article", { class: "card run" });
    fill(this.element, h("h1", {}, "A run, as its link holds it"), place);
    try {
      const job = { state: "done", error: null, created: 0, started: null, ended: null, ...(await unpacked(link) as object) } as Job;
      showResult(place, job, nothingSaid(""), h("p", { class: "actions" },
        job.verb === "run" && h("button", { type: "button", class: "quiet", onclick: () => void edit(job) }, "Open the kernel"),
        h("button", { type: "button", class: "quiet", onclick: () => keep(place, job) }, "Save as HTML")));
    } catch {
      fill(place, h("p", { class: "bad", role: "alert" }, "The link cannot be read. Was it copied whole?"));
    }
  }
}

async function share(job: Job, said: HTMLElement): Promise<void> {
  const { id, verb, name, request, answer } = job;
  const link = `${location.origin}/#/shared/${await packed({ id, verb, name, request, answer })}`;
  try { await navigator.clipboard.writeText(link); said.textContent = "The link is copied; it holds the run itself."; }
  catch { location.hash = link.slice(link.indexOf("#")); }
}

async function edit(job: Job): Promise<void> {
  const { source, global_size, local_size, kernel } = job.request;
  const size = (value: number | number[] | null) => (value === null ? "" : [value].flat().join("x"));
  location.hash = `#/kernel/${await packed({ text: source.text, language: source.language, name: source.name, size: size(global_size), local: size(local_size), arguments: job.request.arguments.join(" "), kernel: kernel ?? "" })}`;
}

function keep(place: HTMLElement, job: Job): void {
  const copy = place.cloneNode(true) as HTMLElement;
  copy.querySelectorAll("button, .actions").forEach((one) => one.remove());
  const style = [...document.styleSheets].flatMap((sheet) => { try { return [...sheet.cssRules].map((rule) => rule.cssText); } catch { return []; } }).join("\n");
  const page = h("html", { lang: "en" }, h("head", {}, h("meta", { charset: "utf-8" }), h("title", {}, `${job.name}: apportion`), h("style", {}, style)), h("body", {}, h("main", {}, copy)));
  download(`${job.name.replace(/\W+/g, "-")}.html`, "text/html", `<!doctype html>\n${page.outerHTML}`);
}

/** What came of a job, with what can be done about it. */
function showResult(place: HTMLElement, job: Job, told: Said, buttons: HTMLElement): void {
  const { answer, error, request } = job;
  if (!answer) {
    const words: Record<string, string> = { cancelled: "It was cancelled.", interrupted: "The service ended while it ran. Open the kernel and run it again." };
    fill(place, h("h2", {}, job.name), h("p", { class: "bad", role: "alert" }, error ? error.message : words[job.state] ?? job.state), buttons);
    return;
  }
  if (job.verb === "measure") {
    fill(place, h("h2", {}, job.name), h("p", {}, `${answer.points.length} points, ${answer.failures} failures`), drawn({ ...told, points: answer.points }), pointTable(answer.points), buttons);
    return;
  }
  if (job.verb === "train") { fill(place, h("h2", {}, job.name), trainedWords(answer), drawn(told), buttons); return; }
  const devices = Object.keys(answer.devices);
  const portions = percents(devices.map((name) => answer.split[name] ?? 0));
  const colour = (device: string) => COLOURS[devices.indexOf(device) % COLOURS.length];
  const [first, second] = devices;
  const forecast = answer.forecast?.devices ?? {};
  const predicted: [number, number][] = forecast[first] && forecast[second] ? Array.from({ length: 41 }, (_, step) => {
    const share = step / 40;
    return [share, Math.max(share > 0 ? forecast[first].fixed + forecast[first].rate * share : 0, share < 1 ? forecast[second].fixed + forecast[second].rate * (1 - share) : 0)];
  }) : [];
  const spread = answer.forecast?.spread ?? 1;
  fill(place, h("h2", {}, job.name),
    h("div", { class: "facts" },
      fact(time(answer.milliseconds), `median of ${answer.repeats.length} runs`),
      answer.speedup !== null && fact(`${short(answer.speedup)} ×`, "the best device alone", answer.speedup >= 1.02 ? "good" : answer.speedup < 0.95 ? "bad" : ""),
      fact(answer.verified ? "verified" : "not verified", answer.verified ? "devices agree on the results" : "nothing was compared", answer.verified ? "good" : "bad"),
      answer.metered?.joules > 0 && fact(`${short(answer.metered.joules)} J`, "energy of a launch, with all else that ran"),
      answer.energy && fact(`${short(answer.energy.joules)} J`, "energy of a launch, by what its devices draw"),
      answer.conflicts > 0 && fact(String(answer.conflicts), "elements written differently", "bad")),
    h("p", {}, `Policy ${answer.policy}: ${answer.reason}.`),
    answer.checked && h("p", { class: "origin" }, answer.checked.failure ? `Bounds were not checked: ${answer.checked.failure}.` : `Bounds checked in ${answer.checked.groups} of ${answer.checked.of} work-groups: no access outside of an array.`),
    answer.metered?.joules === null && h("p", { class: "origin" }, `${answer.metered.reason}.`),
    h("h3", {}, "Who did how much"),
    h("div", { class: "shares", role: "img", "aria-label": devices.map((name, place) => `${name} ${portions[place]}`).join(", ") },
      devices.map((name, place) => answer.split[name] > 0 && h("span", { style: `flex:${answer.split[name]};background:${colour(name)}` }, `${name} ${portions[place]}`))),
    h("h3", {}, "When"), timeline(answer.timeline, answer.merge_milliseconds, Math.max(...answer.timeline.map((one: any) => one.began + one.upload + one.kernel + one.download)) + answer.merge_milliseconds),
    h("h3", {}, "Against the alternatives"),
    bars([...Object.entries(answer.alone as Record<string, number>).map(([name, value]) => ({ name: `${name} alone`, value, colour: colour(name) })),
      { name: "as chosen", value: answer.milliseconds, colour: "var(--c2)" },
      ...(answer.curve.length ? [{ name: "best cut", value: Math.min(...answer.curve.map(([, value]: [number, number]) => value)), colour: "var(--c3)" }] : [])], "Times", time),
    answer.curve.length > 0 && [h("h3", {}, "Cuts: measured on the predicted curve"),
      cutCurve(first, second, [
        ...(predicted.length ? [{ name: "predicted", colour: "var(--c0)", points: predicted, band: predicted.map(([share, value]) => [share, value / spread, value * spread] as [number, number, number]) }] : []),
        { name: "measured", colour: "var(--c1)", points: answer.curve, dots: true }], [answer.split[first] ?? 0, answer.milliseconds, "as chosen"]),
      h("p", { class: "origin" }, h("span", { class: "key" }, h("i", { style: "background:var(--c1)" }), "measured"), predicted.length > 0 && [h("span", { class: "key" }, h("i", { style: "background:var(--c0)" }), "predicted"), `from ${answer.forecast.origin}, give or take a factor of ${short(spread)}`])],
    answer.printed && [h("h3", {}, "What the kernel printed"), h("pre", { class: "ir", tabindex: 0, role: "region", "aria-label": "What the kernel printed" }, answer.printed)],
    h("details", {}, h("summary", {}, "Arguments and source"),
      h("p", {}, Object.entries(answer.launch.arguments).map(([name, word]) => `${name}=${word}`).join(", "), `; ${answer.launch.global_size.join(" × ")} work-items in groups of ${answer.launch.local_size.join(" × ")}`),
      h("pre", { class: "ir", tabindex: 0, role: "region", "aria-label": "Source" }, request.source.text)),
    buttons);
}

/** Two runs in numbers, and what is different in their sources. */
function compared(first: Job, second: Job): HTMLElement {
  const [one, two] = [first.answer, second.answer];
  const factor = one.milliseconds / two.milliseconds;
  const ends = (answer: any) => [Math.min(...answer.repeats), Math.max(...answer.repeats)];
  const [[low, high], [least, most]] = [ends(one), ends(two)];
  const apart = high < least || most < low;
  const devices = Object.keys({ ...one.alone, ...two.alone });
  const rows: [string, number | undefined, number | undefined][] = [["as chosen", one.milliseconds, two.milliseconds],
    ...devices.map((name): [string, number | undefined, number | undefined] => [`${name} alone`, one.alone[name], two.alone[name]])];
  const same = String(one.launch.global_size) === String(two.launch.global_size);
  return h("article", { class: "card compared" }, h("h2", {}, "Side by side"),
    h("p", { class: "verdict" }, h("b", {}, `${second.name} takes ${short(1 / factor)} × the time of ${first.name}`),
      apart ? ", and no repeat of one is among those of the other." : ", but repeats of both overlap: run them more often.", !same && " Their ranges differ."),
    wide("Times of both", h("table", {}, h("thead", {}, h("tr", {}, ["", first.name, second.name, "second over first"].map((title) => h("th", {}, title)))),
      h("tbody", {}, rows.map(([title, before, after]) => h("tr", {}, h("td", {}, title), h("td", {}, before === undefined ? "–" : time(before)), h("td", {}, after === undefined ? "–" : time(after)),
        h("td", {}, before === undefined || after === undefined ? "–" : `${short(after / before)} ×`)))))),
    sourceDifference(first.request.source.text, second.request.source.text));
}

/** Lines that only one of two sources has, with those around them. */
function sourceDifference(before: string, after: string): HTMLElement {
  if (before === after) return h("p", { class: "origin" }, "The sources are the same.");
  const [old, now] = [before.split("\n"), after.split("\n")];
  if (old.length * now.length > 1e6) return h("p", { class: "origin" }, "The sources differ, and are too long to be compared here.");
  // The longest common subsequence of lines, from the end.
  const common = Array.from({ length: old.length + 1 }, () => new Array<number>(now.length + 1).fill(0));
  for (let i = old.length - 1; i >= 0; i--) for (let j = now.length - 1; j >= 0; j--)
    common[i][j] = old[i] === now[j] ? common[i + 1][j + 1] + 1 : Math.max(common[i + 1][j], common[i][j + 1]);
  const lines: [string, string][] = [];
  for (let i = 0, j = 0; i < old.length || j < now.length;) {
    if (i < old.length && j < now.length && old[i] === now[j]) { lines.push([" ", old[i++]]); j++; }
    else if (j >= now.length || (i < old.length && common[i + 1][j] >= common[i][j + 1])) lines.push(["−", old[i++]]);
    else lines.push(["+", now[j++]]);
  }
  const near = (place: number) => lines.slice(Math.max(0, place - 2), place + 3).some(([sign]) => sign !== " ");
  return h("details", { open: true }, h("summary", {}, "What is different in the source"),
    h("pre", { class: "ir difference", tabindex: 0, role: "region", "aria-label": "Difference of the sources" },
      lines.flatMap(([sign, text], place) => (near(place) ? [h("span", { class: sign === "+" ? "added" : sign === "−" ? "gone" : "" }, `${sign} ${text}\n`)] : []))));
}

function fact(value: string, words: string, kind = ""): HTMLElement { return h("div", { class: `fact ${kind}` }, h("b", {}, value), h("span", {}, words)); }

/** What training found. */
export function trainedWords(answer: any): HTMLElement {
  const numbers = Object.entries((answer.test ?? {}) as Record<string, unknown>).filter(([, value]) => typeof value === "number" || (value !== null && typeof value === "object" && "value" in value));
  return h("div", {}, h("p", {}, "The model ", h("b", {}, answer.model), ` answers about ${answer.question}. It took ${short(answer.seconds ?? 0)} s, and is among the models of the Machine view.`),
    h("table", {}, h("thead", {}, h("tr", {}, h("th", {}, "on what was held out"), h("th", {}, "value"))),
      h("tbody", {}, numbers.map(([name, value]: [string, any]) => h("tr", {}, h("td", {}, name.replaceAll("_", " ")),
        h("td", {}, typeof value === "number" ? short(value) : `${short(value.value)} (${short(value.low ?? NaN)} to ${short(value.high ?? NaN)})`))))));
}

/** Measured points as a table. */
export function pointTable(points: any[]): HTMLElement {
  return h("table", {}, h("thead", {}, h("tr", {}, ["kernel", "device", "work-items", "group", "time"].map((title) => h("th", {}, title)))),
    h("tbody", {}, points.slice(-200).map((point) => h("tr", {}, h("td", {}, point.kernel), h("td", {}, point.device), h("td", {}, String(point.global_size)), h("td", {}, String(point.local_size)),
      h("td", {}, point.failure ? h("span", { class: "bad" }, point.failure) : time(1000 * point.seconds))))));
}
