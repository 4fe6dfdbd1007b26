// Drawings. Each is an SVG with a name for people who do not see it; numbers stand beside it as text.
import { h, s, short, time, percent } from "./dom";

export const COLOURS = ["var(--c0)", "var(--c1)", "var(--c2)", "var(--c3)", "var(--c4)", "var(--c5)"];

/** What every chart of times over shares shows. */
export interface Curve { name: string; points: [number, number][]; band?: [number, number, number][]; dots?: boolean; colour: string }

function ticks(most: number, count = 4): number[] {
  const step = 10 ** Math.floor(Math.log10(most / count));
  const nice = [1, 2, 5, 10].map((factor) => factor * step).find((one) => most / one <= count) ?? step;
  return Array.from({ length: Math.floor(most / nice) + 1 }, (_, place) => place * nice);
}

/** Milliseconds over the share of the first device. */
export function cutCurve(first: string, second: string, curves: Curve[], mark?: [number, number, string]): SVGElement {
  const [width, height, left, right, bottom, top] = [560, 240, 88, 32, 50, 12];
  const all = curves.flatMap((curve) => curve.points.map(([, y]) => y));
  const most = 1.08 * Math.max(...all, mark ? mark[1] : 0, ...curves.flatMap((c) => (c.band ?? []).map(([, low]) => low)));
  const x = (share: number) => left + share * (width - left - right);
  const y = (value: number) => top + (height - bottom - top) * (1 - Math.min(value, most * 1.02) / most);
  const line = (points: [number, number][]) => points.map(([a, b]) => `${x(a).toFixed(1)},${y(b).toFixed(1)}`).join(" ");
  return s("svg", { viewBox: `0 0 ${width} ${height}`, class: "chart", role: "img",
    "aria-label": `Time over the share of ${first}. ${mark ? `Best: ${percent(mark[0])} for ${first}, ${time(mark[1])}.` : ""}` },
    ticks(most).map((value) => [
      s("line", { x1: left, x2: width - right, y1: y(value), y2: y(value), class: "grid" }),
      s("text", { x: left - 6, y: y(value) + 4, "text-anchor": "end", class: "tick" }, value === 0 ? "0" : time(value)),
    ]).flat(),
    [0, 0.25, 0.5, 0.75, 1].map((share) => s("text", { x: x(share), y: height - bottom + 22, "text-anchor": "middle", class: "tick" }, percent(share))),
    s("text", { x: left, y: height - 6, class: "tick" }, `all to ${second}`),
    s("text", { x: width - right, y: height - 6, "text-anchor": "end", class: "tick" }, `all to ${first}`),
    curves.filter((curve) => curve.band).map((curve) => s("polygon", { class: "band", style: `fill:${curve.colour}`,
      points: `${line(curve.band!.map(([a, low]) => [a, low]))} ${line(curve.band!.map(([a, , high]) => [a, high] as [number, number]).reverse())}` })),
    curves.filter((curve) => !curve.dots).map((curve) => s("polyline", { points: line(curve.points), class: "line", style: `stroke:${curve.colour}` })),
    curves.filter((curve) => curve.dots).map((curve) => curve.points.map(([a, b]) =>
      s("circle", { cx: x(a), cy: y(b), r: 4, style: `fill:${curve.colour}` }, s("title", {}, `${percent(a)}: ${time(b)}`)))).flat(),
    mark && [s("path", { class: "mark", d: `M${x(mark[0])} ${y(mark[1]) - 8}l8 8-8 8-8-8z` }, s("title", {}, `${mark[2]}: ${percent(mark[0])}, ${time(mark[1])}`))],
  );
}

/** Bars with intervals, on a logarithmic scale where they differ much. */
export function bars(rows: { name: string; value: number; low?: number; high?: number; colour: string }[], label: string, unit: (value: number) => string): SVGElement {
  const [width, row] = [560, 34];
  const left = Math.min(230, Math.max(100, 14 + 11 * Math.max(...rows.map((one) => Math.min(20, one.name.length)))));
  const ends = rows.flatMap((one) => [one.value, one.low ?? one.value, one.high ?? one.value]).filter((value) => value > 0);
  const most = Math.max(...ends), least = Math.min(...ends);
  const wide = most / least > 30;
  const scale = (value: number) => Math.max(2, (width - left - 96) * (wide
    ? Math.log(value / (least / 2)) / Math.log(most / (least / 2)) : value / most));
  return s("svg", { viewBox: `0 0 ${width} ${row * rows.length + (wide ? 14 : 0)}`, class: "chart", role: "img",
    "aria-label": `${label}: ${rows.map((one) => `${one.name} ${unit(one.value)}`).join(", ")}` },
    rows.map((one, place) => [
      s("text", { x: 0, y: place * row + 20, class: "name" }, one.name.length > 20 ? one.name.slice(0, 19) + "…" : one.name),
      s("rect", { x: left, y: place * row + 6, width: scale(one.value), height: 18, rx: 3, style: `fill:${one.colour}` }),
      one.low !== undefined && one.high !== undefined && s("path", { class: "whisker",
        d: `M${left + scale(one.low)} ${place * row + 15}H${left + scale(one.high)}m0-6v12M${left + scale(one.low)} ${place * row + 9}v12` }),
      s("text", { x: left + scale(Math.max(one.value, one.high ?? 0)) + 8, y: place * row + 20, class: "name" }, unit(one.value)),
    ]).flat(),
    wide && s("text", { x: left, y: row * rows.length + 10, class: "tick" }, "logarithmic scale"),
  );
}

/** Each device's copies and launches over the time of a launch. */
export function timeline(rows: { device: string; began: number; upload: number; kernel: number; download: number }[], merge: number, whole: number): HTMLElement {
  const [width, row, left] = [560, 32, 80];
  const scale = (width - left - 16) / Math.max(whole, 1e-9);
  const phases: [string, string][] = [["upload", "var(--c5)"], ["kernel", "var(--c0)"], ["download", "var(--c3)"], ["merge", "var(--c2)"]];
  const bar = (at: number, long: number, place: number, phase: string) => long > 0 &&
    s("rect", { x: left + at * scale, y: place * row + 6, width: Math.max(1, long * scale), height: 18, style: `fill:${phases.find(([name]) => name === phase)![1]}` },
      s("title", {}, `${phase}: ${time(long)}`));
  const height = row * (rows.length + (merge > 0 ? 1 : 0)) + 22;
  return h("figure", {},
    s("svg", { viewBox: `0 0 ${width} ${height}`, class: "chart", role: "img", "aria-label": "Timeline of the last run" },
      rows.map((one, place) => [
        s("text", { x: 0, y: place * row + 20, class: "name" }, one.device),
        bar(one.began, one.upload, place, "upload"), bar(one.began + one.upload, one.kernel, place, "kernel"),
        bar(one.began + one.upload + one.kernel, one.download, place, "download"),
      ]).flat(),
      merge > 0 && [s("text", { x: 0, y: rows.length * row + 20, class: "name" }, "merge"), bar(whole - merge, merge, rows.length, "merge")],
      [0, 0.5, 1].map((part) => s("text", { x: left + part * (width - left - 16), y: height - 4, class: "tick",
        "text-anchor": part === 0 ? "start" : part === 1 ? "end" : "middle" }, part === 0 ? "0" : time(part * whole)))),
    h("figcaption", {}, phases.map(([name, colour]) => h("span", { class: "key" }, h("i", { style: `background:${colour}` }), name))));
}

export interface Roof { name: string; memory: number; arithmetic: number; colour: string }
export interface RoofPoint { name: string; intensity: number; rate: number; colour: string }

/** What each device could do at most, and what kernels did: operations per second over operations per byte. */
export function roofline(roofs: Roof[], points: RoofPoint[]): SVGElement {
  const [width, height, left, bottom] = [640, 340, 70, 44];
  const xs: [number, number] = [1 / 64, 256];
  const tops = roofs.map((roof) => roof.arithmetic).concat(points.map((point) => point.rate));
  const ys: [number, number] = [Math.min(...roofs.map((roof) => roof.memory * xs[0]), ...points.map((point) => point.rate)) / 2, 3 * Math.max(...tops)];
  const on = (value: number, [low, high]: [number, number]) => Math.log(Math.min(Math.max(value, low), high) / low) / Math.log(high / low);
  const x = (value: number) => left + on(value, xs) * (width - left - 16);
  const y = (value: number) => (height - bottom) * (1 - on(value, ys)) + 8;
  const decades = [];
  for (let power = Math.ceil(Math.log10(ys[0])); power <= Math.log10(ys[1]); power++) decades.push(10 ** power);
  return s("svg", { viewBox: `0 0 ${width} ${height}`, class: "chart", role: "img",
    "aria-label": `Roofline of ${roofs.map((roof) => roof.name).join(", ")} with ${points.length} measured kernels` },
    decades.map((value) => [s("line", { x1: left, x2: width - 16, y1: y(value), y2: y(value), class: "grid" }),
      s("text", { x: left - 6, y: y(value) + 4, "text-anchor": "end", class: "tick" }, value >= 1e9 ? `${short(value / 1e9)} G/s` : `${short(value / 1e6)} M/s`)]).flat(),
    [1 / 64, 1 / 16, 1 / 4, 1, 4, 16, 64, 256].map((value) => s("text", { x: x(value), y: height - bottom + 24, class: "tick", "text-anchor": "middle" }, value < 1 ? `1/${1 / value}` : value)),
    s("text", { x: (left + width) / 2, y: height - 4, class: "tick", "text-anchor": "middle" }, "multiply-adds for each byte from memory"),
    roofs.map((roof, place) => {
      const knee = roof.arithmetic / roof.memory;
      return [
        s("path", { class: "line", style: `stroke:${roof.colour}`, d: `M${x(xs[0])} ${y(roof.memory * xs[0])}L${x(knee)} ${y(roof.arithmetic)}H${x(xs[1])}` }),
        s("text", { x: x(xs[1]) - 90 * place, y: y(roof.arithmetic) - 8, class: "tick", "text-anchor": "end", style: `fill:${roof.colour}` }, roof.name),
      ];
    }).flat(),
    points.map((point) => s("circle", { cx: x(point.intensity), cy: y(point.rate), r: 5, class: "point", style: `fill:${point.colour}` },
      s("title", {}, `${point.name}: ${short(point.rate / 1e9)} G multiply-adds/s at ${short(point.intensity)} per byte`))));
}

/** Jobs over time, each in the lowest free slot of its system. */
export function gantt(jobs: { system: string; job: string; begin: number; end: number; slots: number }[], label: string, slots: Record<string, number>, last: number): SVGElement {
  const [width, left, tall] = [640, 70, 64];
  const scale = (width - left - 10) / Math.max(last, 1e-9);
  const systems = Object.keys(slots);
  return s("svg", { viewBox: `0 0 ${width} ${(tall + 8) * systems.length + 18}`, class: "chart", role: "img", "aria-label": label },
    systems.map((system, place) => {
      const free = new Array<number>(slots[system]).fill(0);
      const row = tall / slots[system];
      return [
        s("text", { x: 0, y: place * (tall + 8) + tall / 2, class: "name" }, system),
        jobs.map((one, number) => ({ ...one, colour: COLOURS[number % COLOURS.length] })).filter((one) => one.system === system).sort((a, b) => a.begin - b.begin).flatMap((one) => Array.from({ length: one.slots }, () => {
          const found = free.findIndex((until) => until <= one.begin + 1e-6);
          const slot = found < 0 ? free.indexOf(Math.min(...free)) : found;
          free[slot] = one.end;
          return s("rect", { x: left + one.begin * scale, y: place * (tall + 8) + slot * row, height: Math.max(1, row - 1), width: Math.max(0.7, (one.end - one.begin) * scale - 0.5), style: `fill:${one.colour}` },
            s("title", {}, `job ${one.job}: ${short(one.begin)} to ${short(one.end)} s`));
        })),
      ].flat();
    }).flat(),
    [0, 0.5, 1].map((part) => s("text", { x: left + part * (width - left - 10), y: (tall + 8) * systems.length + 12, class: "tick",
      "text-anchor": part === 0 ? "start" : part === 1 ? "end" : "middle" }, part === 0 ? "0" : `${short(part * last)} s`)));
}

/** A number that changes in steps over time. */
export function steps(times: number[], values: number[], last: number, label: string): SVGElement {
  const [width, height, left] = [640, 60, 70];
  const most = Math.max(...values, 1);
  const x = (time: number) => left + (time / Math.max(last, 1e-9)) * (width - left - 10);
  const y = (value: number) => 6 + (height - 12) * (1 - value / most);
  const path = times.map((time, place) => `${place ? "H" : "M"}${x(time).toFixed(1)}${place ? "V" : " "}${y(values[place]).toFixed(1)}`).join("");
  return s("svg", { viewBox: `0 0 ${width} ${height}`, class: "chart", role: "img", "aria-label": `${label}: up to ${most}` },
    s("text", { x: 0, y: 16, class: "tick" }, `${most} wait`), s("path", { class: "line", style: "stroke:var(--c3);stroke-width:1.5", d: path }));
}

/** Values over something that grows. */
export interface Line { name: string; colour: string; points: [number, number][] }

/** Lines with dots, on scales that are both logarithmic or both not. */
export function curves(lines: Line[], how: { label: string; x: string; logarithmic: boolean; unit: (value: number) => string }): SVGElement {
  const [width, height, left, bottom] = [640, 240, 74, 40];
  const all = lines.flatMap((line) => line.points);
  const on = how.logarithmic ? (value: number) => Math.log10(value) : (value: number) => value;
  const ends = (values: number[], room: number): [number, number] => {
    const [low, high] = [Math.min(...values), Math.max(...values)];
    const more = high > low ? room * (high - low) : Math.abs(high) * 0.1 || 1;
    return [low - more, high + more];
  };
  const [x0, x1] = ends(all.map(([x]) => on(x)), 0);
  const [y0, y1] = ends(all.map(([, y]) => on(y)), 0.08);
  const x = (value: number) => left + ((on(value) - x0) / (x1 - x0)) * (width - left - 16);
  const y = (value: number) => 8 + (height - bottom) * (1 - (on(value) - y0) / (y1 - y0));
  const back = (value: number) => (how.logarithmic ? 10 ** value : value);
  return s("svg", { viewBox: `0 0 ${width} ${height}`, class: "chart", role: "img",
    "aria-label": `${how.label}: ${lines.map((line) => `${line.name} ${how.unit(line.points[line.points.length - 1][1])}`).join(", ")}` },
    [0, 1 / 3, 2 / 3, 1].map((part) => back(y0 + part * (y1 - y0))).map((value) => [
      s("line", { x1: left, x2: width - 16, y1: y(value), y2: y(value), class: "grid" }),
      s("text", { x: left - 6, y: y(value) + 4, "text-anchor": "end", class: "tick" }, how.unit(value))]).flat(),
    [0, 1 / 2, 1].map((part) => s("text", { x: x(back(x0 + part * (x1 - x0))), y: height - 18, class: "tick", "text-anchor": part === 0 ? "start" : part === 1 ? "end" : "middle" }, short(back(x0 + part * (x1 - x0))))),
    s("text", { x: (left + width) / 2, y: height - 3, class: "tick", "text-anchor": "middle" }, how.x),
    lines.map((line) => [
      s("polyline", { points: line.points.map(([a, b]) => `${x(a).toFixed(1)},${y(b).toFixed(1)}`).join(" "), class: "line", style: `stroke:${line.colour}` }),
      ...line.points.map(([a, b]) => s("circle", { cx: x(a), cy: y(b), r: 3.5, style: `fill:${line.colour}` }, s("title", {}, `${line.name}: ${how.unit(b)} at ${short(a)}`)))]).flat());
}
