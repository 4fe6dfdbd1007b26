// The page: which view is shown, in which colours, and whether the service answers.
import { AddressesView } from "./addresses";
import { setToken, watchConnection } from "./api";
import { announce, fill, h } from "./dom";
import { KernelView } from "./kernel";
import { MachineView } from "./machine";
import { RunsView, SharedView } from "./runs";
import { SystemsView } from "./systems";

interface View { element: HTMLElement; open(rest: string): Promise<void> | void }

const main = document.getElementById("main")!;
const views: Record<string, [string, View]> = {
  kernel: ["Kernel", new KernelView((job) => { location.hash = `#/runs/${job}`; })],
  runs: ["Runs", new RunsView()],
  machine: ["Machine", new MachineView()],
  systems: ["Systems", new SystemsView()],
  api: ["API", new AddressesView()],
  shared: ["A run", new SharedView()],
};
const LINKED = ["kernel", "runs", "machine", "systems", "api"];

function takeToken(): void {
  const found = location.hash.match(/^#token=([\w-]+)/);
  if (!found) return;
  setToken(found[1]);
  history.replaceState(null, "", "#/kernel"); // so that nobody copies it with the address
}

async function route(): Promise<void> {
  takeToken();
  const [, name = "kernel", rest = ""] = location.hash.match(/^#\/(\w+)\/?(.*)$/) ?? [];
  const [title, view] = views[name] ?? views.kernel;
  document.title = `${title} · apportion studio`;
  for (const link of document.querySelectorAll("#views a")) {
    if (link.getAttribute("href") === `#/${views[name] ? name : "kernel"}`) link.setAttribute("aria-current", "page"); else link.removeAttribute("aria-current");
  }
  if (main.firstElementChild !== view.element) { fill(main, view.element); announce(title); }
  await view.open(decodeURIComponent(rest));
}

function theme(): void {
  const kept = localStorage.getItem("apportion-theme");
  if (kept) document.documentElement.dataset.theme = kept;
  document.getElementById("theme")!.addEventListener("click", () => {
    const dark = document.documentElement.dataset.theme
      ? document.documentElement.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    document.documentElement.dataset.theme = dark ? "light" : "dark";
    localStorage.setItem("apportion-theme", document.documentElement.dataset.theme);
  });
}

fill(document.getElementById("views")!, LINKED.map((name) => h("a", { href: `#/${name}` }, views[name][0])));
watchConnection((online) => {
  const place = document.getElementById("connection")!;
  place.textContent = online ? "" : "The service does not answer";
  if (online) void route();
});
theme();
window.addEventListener("hashchange", () => void route());
void route();
