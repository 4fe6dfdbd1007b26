// What measuring and training say while they go on, as curves; the Machine and the Run views show it.
import { COLOURS, curves, Line } from "./charts";
import { h, short, time } from "./dom";

/** What a job has said so far. */
export interface Said { stage: string; part: number; points: any[]; values: Record<string, [number, number][]> }

export function nothingSaid(stage: string): Said { return { stage, part: 0, points: [], values: {} }; }

/** Add what one event says. */
export function hear(said: Said, body: Record<string, any>): void {
  said.stage = body.stage ?? said.stage;
  said.part = body.total ? body.done / body.total : body.part ?? said.part;
  if (body.point) said.points.push(body.point);
  for (const [name, value] of Object.entries((body.values ?? {}) as Record<string, number>)) (said.values[name] ??= []).push([body.at, value]);
}

/** Points of measuring as times over work-items, and values of training over its steps; nothing where there are none. */
export function drawn(said: Said): HTMLElement | null {
  const figures = [measured(said.points), ...Object.entries(said.values).map(([name, points], place) => learned(name, points, place))].filter((one) => one !== null);
  return figures.length ? h("div", { class: "live" }, figures) : null;
}

function measured(points: any[]): HTMLElement | null {
  const lines = new Map<string, Line>();
  for (const point of points.filter((one) => one.seconds > 0)) {
    const name = `${point.kernel} on ${point.device}`;
    if (!lines.has(name)) lines.set(name, { name, colour: COLOURS[lines.size % COLOURS.length], points: [] });
    lines.get(name)!.points.push([point.work_items, 1000 * point.seconds]);
  }
  if (lines.size === 0) return null;
  const found = [...lines.values()].map((line) => ({ ...line, points: line.points.sort((a, b) => a[0] - b[0]) }));
  return h("figure", {}, curves(found, { label: "Measured times over work-items", x: "work-items", logarithmic: true, unit: time }),
    h("figcaption", {}, `${points.length} points: time of a launch over its work-items. Both scales are logarithmic. `,
      found.slice(0, 12).map((line) => h("span", { class: "key" }, h("i", { style: `background:${line.colour}` }), line.name))));
}

function learned(name: string, points: [number, number][], place: number): HTMLElement {
  return h("figure", {}, curves([{ name, colour: COLOURS[place % COLOURS.length], points }], { label: `Training: ${name}`, x: "done", logarithmic: false, unit: short }),
    h("figcaption", {}, `${name}: ${short(points[points.length - 1][1])} after ${short(points[points.length - 1][0])}`));
}
