// The program graph: drawn by the service, moved and enlarged here; nodes and lines find each other.
import { ask, Refusal } from "./api";
import { field, h, percent } from "./dom";

const STYLE = `svg { width: 100%; height: 100%; display: block; filter: var(--drawing) } g.node { cursor: pointer }
g.of-line rect { stroke: #0b5cad !important; stroke-width: 4 !important } g.labelled rect { fill: #fdbb5c !important } g.root rect { fill: #f08a80 !important } g.chosen rect { stroke: #b3261e !important; stroke-width: 4 !important }`;

interface Picture { svg: string; lines: Record<string, number>; nodes: number; edges: number; shown: number }

export class GraphPane {
  readonly element = h("div", { class: "panel graph" });
  private paper = h("div", { class: "paper", tabindex: 0, role: "application", "aria-label": "Program graph: arrow keys move it, + and - enlarge it, n and p choose the next and the previous instruction, Enter analyses from it" });
  private shadow = this.paper.attachShadow({ mode: "open" });
  private status = h("p", { class: "status", role: "status" });
  private analysis = h("select", {}, ["reachability", "dominance", "datadep", "liveness", "subexpressions"].map((name) => h("option", {}, name)));
  private picture?: Picture;
  private wanted = "";
  private source: unknown;
  private function_: string | null = null;
  private drawing?: SVGSVGElement;
  private view = { x: 0, y: 0, width: 100, height: 100 };
  private line = 0;
  private at = -1;

  constructor(private chosen: (line: number) => void) {
    const move = (x: number, y: number) => { this.view.x += x * this.view.width; this.view.y += y * this.view.height; this.apply(); };
    this.element.append(
      h("div", { class: "toolbar" }, field("Analysis from a clicked node", this.analysis),
        h("button", { type: "button", class: "quiet", "aria-label": "Enlarge", onclick: () => this.zoom(0.75) }, "+"),
        h("button", { type: "button", class: "quiet", "aria-label": "Shrink", onclick: () => this.zoom(4 / 3) }, "−"),
        h("button", { type: "button", class: "quiet", onclick: () => this.whole() }, "Whole graph")),
      this.status, this.paper);
    this.paper.addEventListener("keydown", (event) => {
      const steps: Record<string, () => void> = { ArrowLeft: () => move(-0.1, 0), ArrowRight: () => move(0.1, 0), ArrowUp: () => move(0, -0.1), ArrowDown: () => move(0, 0.1), "+": () => this.zoom(0.75), "-": () => this.zoom(4 / 3),
        n: () => this.step(1), p: () => this.step(-1), Enter: () => { const node = this.nodes()[this.at]; if (node) void this.click(Number(node.getAttribute("data-node"))); } };
      if (steps[event.key]) { event.preventDefault(); steps[event.key](); }
    });
    this.paper.addEventListener("wheel", (event) => { if (event.ctrlKey || event.metaKey) { event.preventDefault(); this.zoom(event.deltaY > 0 ? 1.15 : 0.87); } }, { passive: false });
    let from: { x: number; y: number } | null = null;
    let moved = 0;
    this.paper.addEventListener("pointerdown", (event) => { from = { x: event.clientX, y: event.clientY }; moved = 0; });
    this.paper.addEventListener("pointermove", (event) => {
      if (!from || !event.buttons) return;
      const box = this.paper.getBoundingClientRect();
      moved += Math.abs(event.clientX - from.x) + Math.abs(event.clientY - from.y);
      move((from.x - event.clientX) / box.width, (from.y - event.clientY) / box.height);
      from = { x: event.clientX, y: event.clientY };
    });
    this.paper.addEventListener("pointerup", () => { from = null; });
    this.paper.addEventListener("click", (event) => {
      const node = (event.composedPath()[0] as Element).closest?.("g.node");
      if (node && moved < 6) void this.click(Number(node.getAttribute("data-node")));
    });
  }

  forget(): void { this.wanted = ""; }

  async show(source: unknown, kernel: string | null): Promise<void> {
    const key = JSON.stringify([source, kernel]);
    if (key === this.wanted) return;
    this.wanted = key;
    [this.source, this.function_] = [source, kernel];
    try {
      const picture = await ask("POST", "/api/picture", { source, function: kernel }) as Picture;
      if (key !== this.wanted) return;
      this.picture = picture;
      const parsed = new DOMParser().parseFromString(picture.svg, "image/svg+xml");
      this.drawing = document.importNode(parsed.documentElement, true) as unknown as SVGSVGElement;
      this.drawing.removeAttribute("width");
      this.drawing.removeAttribute("height");
      this.shadow.replaceChildren(h("style", {}, STYLE), this.drawing); // its style is not for the rest of the page
      this.status.textContent = `${picture.nodes} nodes, ${picture.edges} edges${picture.shown < picture.nodes ? `; ${picture.shown} are drawn` : ""}. Click a node to analyse from it.`;
      this.start();
      this.markLine(this.line);
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      this.shadow.replaceChildren();
      this.drawing = undefined;
      this.status.textContent = error.problem.message;
    }
  }

  /** Mark the nodes of a line of the source. */
  markLine(line: number): void {
    if (line !== this.line) this.at = -1;
    this.line = line;
    if (!this.drawing || !this.picture) return;
    for (const node of this.drawing.querySelectorAll("g.node")) {
      node.classList.toggle("of-line", line > 0 && this.picture.lines[node.getAttribute("data-node") ?? ""] === line);
    }
  }

  /** Instructions in the order of the program; those of the marked line first, where there is one. */
  private nodes(): Element[] {
    const all = [...this.drawing?.querySelectorAll("g.node:has(rect.instruction)") ?? []].sort((a, b) => Number(a.getAttribute("data-node")) - Number(b.getAttribute("data-node")));
    return [...all.filter((node) => node.classList.contains("of-line")), ...all.filter((node) => !node.classList.contains("of-line"))];
  }

  private step(by: number): void {
    const nodes = this.nodes();
    if (nodes.length === 0) return;
    this.at = (this.at + by + nodes.length) % nodes.length;
    const node = nodes[this.at] as SVGGraphicsElement;
    nodes.forEach((one) => one.classList.toggle("chosen", one === node));
    const box = node.getBBox();
    const place = node.transform.baseVal.consolidate()?.matrix;
    this.view.x = box.x + box.width / 2 + (place?.e ?? 0) - this.view.width / 2;
    this.view.y = box.y + box.height / 2 + (place?.f ?? 0) - this.view.height / 2;
    this.apply();
    const number = node.getAttribute("data-node") ?? "";
    const line = this.picture?.lines[number];
    const words = [...node.querySelectorAll("text")].map((one) => one.textContent).join(": ");
    this.status.textContent = `Node ${number}${line ? `, line ${line}` : ""}: ${words}. Enter analyses from it.`;
  }

  private async click(node: number): Promise<void> {
    const line = this.picture?.lines[String(node)] ?? 0;
    this.chosen(line);
    this.markLine(line);
    try {
      const found = await ask("POST", "/api/analyze", { source: this.source, function: this.function_, analysis: this.analysis.value, root: node });
      const [run] = found.runs;
      if (run.length === 2) { this.status.textContent = `Node ${node}: ${run[1]}`; this.label(node, []); return; }
      this.label(node, run[3]);
      this.status.textContent = `Node ${node}${line ? `, line ${line}` : ""}: ${this.analysis.value} takes ${run[1]} steps and marks ${run[3].length} nodes (${percent(run[3].length / (this.picture?.nodes || 1))}).`;
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      this.label(node, []);
      this.status.textContent = error.problem.message;
    }
  }

  private label(root: number, labelled: number[]): void {
    const marked = new Set(labelled);
    for (const node of this.drawing?.querySelectorAll("g.node") ?? []) {
      const number = Number(node.getAttribute("data-node"));
      node.classList.toggle("labelled", marked.has(number));
      node.classList.toggle("root", number === root);
    }
  }

  private size() {
    const [, , width, height] = (this.drawing?.dataset.whole ?? this.drawing?.getAttribute("viewBox") ?? "0 0 100 100").split(" ").map(Number);
    return { width, height };
  }

  private start(): void {
    if (!this.drawing) return;
    this.drawing.dataset.whole = this.drawing.getAttribute("viewBox") ?? "";
    const { width, height } = this.size();
    this.view = { x: 0, y: 0, width, height: Math.min(height, width * 0.8) };
    this.apply();
  }

  private whole(): void { this.view = { x: 0, y: 0, ...this.size() }; this.apply(); }

  private zoom(factor: number): void {
    const { x, y, width, height } = this.view;
    this.view = { x: x + (width * (1 - factor)) / 2, y: y + (height * (1 - factor)) / 2, width: width * factor, height: height * factor };
    this.apply();
  }

  private apply(): void {
    const { x, y, width, height } = this.view;
    this.drawing?.setAttribute("viewBox", `${x} ${y} ${width} ${height}`);
  }
}
