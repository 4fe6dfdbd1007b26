// Elements, numbers in words, and what several views need of the document.

type Child = Node | string | number | null | undefined | false;
type Attributes = Record<string, unknown>;

/** An element: attributes, listeners (`onclick`), and children. */
export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K, attributes: Attributes = {}, ...children: (Child | Child[])[]
): HTMLElementTagNameMap[K] {
  return filled(document.createElement(tag), attributes, children);
}

/** The same for SVG. */
export function s(tag: string, attributes: Attributes = {}, ...children: (Child | Child[])[]): SVGElement {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function filled<E extends Element>(element: E, attributes: Attributes, children: (Child | Child[])[]): E {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value as EventListener);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat()) {
    if (child !== null && child !== undefined && child !== false) element.append(child instanceof Node ? child : String(child));
  }
  return element;
}

/** Put these in place of what an element holds. */
export function fill(element: Element, ...children: (Child | Child[])[]): void {
  element.replaceChildren(...children.flat().filter((child) => child !== null && child !== undefined && child !== false)
    .map((child) => (child instanceof Node ? child : String(child))));
}

/** Milliseconds in the unit that reads best. */
export function time(milliseconds: number): string {
  if (milliseconds >= 1000) return `${short(milliseconds / 1000)} s`;
  if (milliseconds >= 1) return `${short(milliseconds)} ms`;
  return `${short(milliseconds * 1000)} µs`;
}

/** Three digits. */
export function short(value: number): string {
  if (!Number.isFinite(value)) return "–";
  return Math.abs(value) >= 1e5 || (value !== 0 && Math.abs(value) < 1e-3)
    ? value.toExponential(1)
    : Number(value.toPrecision(3)).toLocaleString("en");
}

export function percent(part: number): string {
  return `${Math.round(100 * part)} %`;
}

/** Parts of a whole in percent that add up to a hundred, if the parts do. */
export function percents(parts: number[]): string[] {
  const whole = parts.map((part) => Math.floor(100 * part + 1e-9));
  const left = Math.round(100 * parts.reduce((sum, part) => sum + part, 0)) - whole.reduce((sum, part) => sum + part, 0);
  const order = parts.map((part, place) => [100 * part - whole[place], place]).sort((a, b) => b[0] - a[0]);
  for (const [, place] of order.slice(0, Math.max(0, left))) whole[place]++;
  return whole.map((part) => `${part} %`);
}

/** How likely something is; never certain. */
export function chance(part: number): string {
  return part > 0.99 ? "more than 99 %" : part < 0.01 ? "less than 1 %" : percent(part);
}

/** Bytes in words. */
export function bytes(count: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let place = 0;
  while (count >= 1024 && place < units.length - 1) { count /= 1024; place++; }
  return `${short(count)} ${units[place]}`;
}

/** Say something to people who do not see the page. */
export function announce(text: string): void {
  const place = document.getElementById("announce");
  if (place) place.textContent = text;
}

/** A labelled control. */
export function field(label: string, control: HTMLElement, hint = ""): HTMLElement {
  return h("label", { class: "field", title: hint || null }, h("span", {}, label), control);
}

/** A table that is moved sideways where the screen is narrow, with the keyboard too. */
export function wide(label: string, ...children: (Child | Child[])[]): HTMLElement {
  return h("div", { class: "wide", tabindex: 0, role: "region", "aria-label": label }, ...children);
}

/** Let somebody keep a file. */
export function download(name: string, kind: string, text: string): void {
  const link = h("a", { href: URL.createObjectURL(new Blob([text], { type: kind })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

/** Tabs: their buttons and panels, moved between with the arrow keys. */
export function tabs(name: string, panels: [string, HTMLElement][], chosen: (title: string) => void = () => {}): HTMLElement {
  const buttons = panels.map(([title, panel], place) => {
    panel.id = `${name}-${place}`;
    panel.setAttribute("role", "tabpanel");
    panel.setAttribute("tabindex", "0");
    panel.setAttribute("aria-labelledby", `${name}-tab-${place}`);
    return h("button", {
      type: "button", role: "tab", id: `${name}-tab-${place}`, "aria-controls": panel.id,
      onclick: () => choose(place),
      onkeydown: (event: KeyboardEvent) => {
        const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
        if (!step) return;
        event.preventDefault();
        choose((place + step + panels.length) % panels.length);
        buttons[(place + step + panels.length) % panels.length].focus();
      },
    }, title);
  });
  function choose(place: number): void {
    panels.forEach(([, panel], number) => { panel.hidden = number !== place; });
    buttons.forEach((button, number) => {
      button.setAttribute("aria-selected", String(number === place));
      button.tabIndex = number === place ? 0 : -1;
    });
    chosen(panels[place][0]);
  }
  choose(0);
  return h("div", { class: "tabs" }, h("div", { role: "tablist", "aria-label": name }, buttons), ...panels.map(([, panel]) => panel));
}
