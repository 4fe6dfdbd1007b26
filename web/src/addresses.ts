// The API view: every address of the service, from its own OpenAPI description, and a way to ask it.
import { ask, Refusal, withToken } from "./api";
import { fill, h, wide } from "./dom";

/* eslint-disable @typescript-eslint/no-explicit-any */
type Schema = any;

const EXAMPLES: Record<string, unknown> = {
  text: "__kernel void f(__global float* x) { x[get_global_id(0)] += 1.0f; }", global_size: 65536, bytes: 262144, analysis: "reachability", systems: ["cpu=8", "gpu=2"],
};

export class AddressesView {
  readonly element = h("section", { class: "addresses", "aria-label": "API" });
  private list = h("div", {});
  private schemas: Record<string, Schema> = {};

  constructor() {
    this.element.append(h("h1", {}, "API"),
      h("p", {}, "What the page asks, programs can ask too: send JSON to these addresses, or use ", h("code", {}, "apportion.Client"), " in Python. The whole description: ",
        h("a", { href: "/api/openapi.json" }, "/api/openapi.json"), "."),
      this.list);
  }

  async open(): Promise<void> {
    if (this.list.childElementCount > 0) return;
    let described: any;
    try { described = await withToken(() => ask("GET", "/api/openapi.json")); } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      fill(this.list, h("p", { class: "bad" }, error.problem.message));
      return;
    }
    this.schemas = described.components.schemas;
    fill(this.list, Object.entries(described.paths as Record<string, any>).flatMap(([path, methods]) =>
      Object.entries(methods as Record<string, any>).map(([method, how]) => this.address(method.toUpperCase(), path, how))));
  }

  private address(method: string, path: string, how: any): HTMLElement {
    const form = how.requestBody?.content["application/json"].schema;
    const done = how.responses["200"] ?? how.responses["202"];
    const answer = done?.content?.["application/json"]?.schema;
    const filled = h("div", {});
    const shown = h("details", { class: "card address" },
      h("summary", {}, h("b", {}, method), " ", h("code", {}, path), h("span", { class: "origin" }, ` ${how.summary}`)), filled);
    shown.addEventListener("toggle", () => {
      if (!shown.open || filled.childElementCount > 0) return;
      fill(filled, (how.parameters ?? []).length > 0 && this.table("Parameters", how.parameters.map((one: any) => [one.name, one.schema, one.required, one.in])),
        form && this.table("Send", this.fields(form)),
        answer ? this.table(answer.type === "array" ? "Answer: a list, each with" : "Answer", this.fields(answer), "always") : h("p", {}, "Answer: server-sent events, until the job ends."),
        h("h3", {}, "Ask"), this.trial(method, path, form));
    });
    return shown;
  }

  private resolved(schema: Schema): Schema { return schema?.$ref ? this.schemas[schema.$ref.split("/").pop()] : schema; }

  /** The fields of an object, and those of the objects in it behind a dot. */
  private fields(schema: Schema, prefix = "", depth = 0): [string, Schema, boolean, string][] {
    const found = this.resolved(schema);
    if (found?.type === "array") return this.fields(found.items, prefix, depth);
    const options = (found?.anyOf ?? []).filter((one: Schema) => one.type !== "null");
    if (options.length === 1) return this.fields(options[0], prefix, depth);
    return Object.entries((found?.properties ?? {}) as Record<string, Schema>).flatMap(([name, one]) => {
      const own: [string, Schema, boolean, string] = [prefix + name, one, (found.required ?? []).includes(name), one.description ?? ""];
      return depth < 2 ? [own, ...this.fields(one, `${prefix}${name}.`, depth + 1)] : [own];
    });
  }

  private word(schema: Schema): string {
    if (schema.$ref) return "object";
    if (schema.anyOf) return [...new Set(schema.anyOf.map((one: Schema) => this.word(one)))].join(" or ");
    if (schema.enum) return schema.enum.map((one: unknown) => JSON.stringify(one)).join(" | ");
    if (schema.const !== undefined) return JSON.stringify(schema.const);
    if (schema.type === "array") return schema.items ? `list of ${this.word(schema.items)}` : "list";
    return schema.type ?? "anything";
  }

  private table(title: string, rows: [string, Schema, boolean, string][], must = "required"): HTMLElement {
    if (rows.length === 0) return h("p", {}, `${title}: JSON.`);
    return wide(title, h("h3", {}, title), h("table", {}, h("thead", {}, h("tr", {}, ["name", "type", "", ""].map((one) => h("th", {}, one)))),
      h("tbody", {}, rows.map(([name, schema, required, words]) => h("tr", {}, h("td", {}, h("code", {}, name)), h("td", {}, this.word(schema)),
        h("td", {}, required ? must : schema.default !== undefined ? `usually ${JSON.stringify(schema.default)}` : ""), h("td", {}, words))))));
  }

  /** A request to send from here. */
  private trial(method: string, path: string, form: Schema): HTMLElement {
    const place = h("input", { value: path, spellcheck: "false", size: 40, "aria-label": "Address" });
    const body = h("textarea", { rows: 8, spellcheck: "false", "aria-label": "Body" });
    if (form) body.value = JSON.stringify(this.example(form), null, 1);
    const said = h("pre", { class: "ir", tabindex: 0, role: "region", "aria-label": "What came back", hidden: true });
    const send = async () => {
      said.hidden = false;
      try {
        const value = form ? JSON.parse(body.value) : method === "POST" ? {} : undefined;
        const found = path.endsWith("/events") ? "Server-sent events: follow a job in Runs, or with curl." : await withToken(() => ask(method, place.value, value));
        said.textContent = typeof found === "string" ? found : JSON.stringify(found, null, 1);
      } catch (error) {
        if (error instanceof Refusal) said.textContent = `${error.status}: ${JSON.stringify(error.problem, null, 1)}`;
        else if (error instanceof SyntaxError) said.textContent = `The body is not JSON: ${error.message}`;
        else throw error;
      }
    };
    return h("div", { class: "trial" }, h("p", { class: "actions" }, place, h("button", { type: "button", class: "primary", onclick: () => void send() }, method)), form && body, said);
  }

  /** What is required, with values that stand for themselves. */
  private example(schema: Schema): unknown {
    const found = this.resolved(schema);
    if (found.anyOf) return this.example(found.anyOf[0]);
    if (found.default !== undefined) return found.default;
    if (found.enum) return found.enum[0];
    if (found.type === "array") return found.items ? [this.example(found.items)] : [];
    if (found.type === "object" && !found.properties) return {};
    if (found.type === "object") return Object.fromEntries((found.required ?? []).map((name: string) => [name, EXAMPLES[name] ?? this.example(found.properties[name])]));
    return found.type === "string" ? "" : found.type === "boolean" ? false : 64;
  }
}
