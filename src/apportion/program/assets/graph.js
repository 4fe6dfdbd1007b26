"use strict";
const stage = document.querySelector("main");
const picture = stage.querySelector("svg");
const tip = document.querySelector("aside");
const nodes = JSON.parse(document.getElementById("nodes").textContent);
const size = { width: picture.viewBox.baseVal.width, height: picture.viewBox.baseVal.height };
let x = 0, y = 0, scale = 1, held = null;

function move() { picture.style.transform = `translate(${x}px, ${y}px) scale(${scale})`; }
function zoom(factor, at) {
  const next = Math.min(8, Math.max(0.02, scale * factor));
  x = at.x - (at.x - x) * next / scale;
  y = at.y - (at.y - y) * next / scale;
  scale = next;
  move();
}
function fit(whole) {
  const room = stage.getBoundingClientRect();
  const across = room.width / size.width;
  scale = whole ? Math.min(across, room.height / size.height) : 1;
  x = whole ? (room.width - size.width * scale) / 2 : Math.min(0, (room.width - size.width) / 2);
  y = 0;
  move();
}
function inside(event) {
  const frame = stage.getBoundingClientRect();
  return { x: event.clientX - frame.left, y: event.clientY - frame.top };
}
const centre = () => ({ x: stage.clientWidth / 2, y: stage.clientHeight / 2 });

stage.addEventListener("wheel", event => {
  event.preventDefault();
  zoom(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0015)), inside(event));
}, { passive: false });

const fingers = new Map();
stage.addEventListener("pointerdown", event => {
  fingers.set(event.pointerId, inside(event));
  held = { x: event.clientX - x, y: event.clientY - y };
  stage.classList.add("moving");
});
addEventListener("pointerup", event => { fingers.delete(event.pointerId); held = null; stage.classList.remove("moving"); });
addEventListener("pointercancel", event => { fingers.delete(event.pointerId); held = null; });
stage.addEventListener("pointermove", event => {
  if (fingers.size === 2 && fingers.has(event.pointerId)) {
    const before = [...fingers.values()];
    fingers.set(event.pointerId, inside(event));
    const after = [...fingers.values()];
    const apart = pair => Math.hypot(pair[0].x - pair[1].x, pair[0].y - pair[1].y);
    zoom(apart(after) / Math.max(1, apart(before)), { x: (after[0].x + after[1].x) / 2, y: (after[0].y + after[1].y) / 2 });
  } else if (held) {
    x = event.clientX - held.x;
    y = event.clientY - held.y;
    move();
  } else {
    show(event);
  }
});
stage.addEventListener("pointerleave", () => { tip.hidden = true; });

function show(event) {
  const group = event.target.closest(".node");
  tip.hidden = !group;
  if (!group) return;
  const [kind, text, full, name, block] = nodes[group.dataset.node];
  tip.replaceChildren();
  const line = (tag, words) => { const part = document.createElement(tag); part.textContent = words; tip.append(part, "\n"); };
  line("b", text);
  if (full) line("i", full);
  line("span", `${kind} ${group.dataset.node} · function ${name || "–"} · block ${block}`);
  const frame = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - frame.width - 8))}px`;
  tip.style.top = `${event.clientY + 18 + frame.height > innerHeight ? event.clientY - frame.height - 10 : event.clientY + 18}px`;
}

// The browser's own tooltips would stand on top of ours.
for (const title of picture.querySelectorAll(".node title")) title.remove();

// A click keeps a node, its copies and its neighbours in sight; a click beside it lets go.
let chosen = null, from = null;
stage.addEventListener("pointerdown", event => { from = { x: event.clientX, y: event.clientY }; }, true);
stage.addEventListener("click", event => {
  if (from && Math.hypot(event.clientX - from.x, event.clientY - from.y) > 4) return;
  const group = event.target.closest(".node");
  const node = group ? group.dataset.node : null;
  for (const element of picture.querySelectorAll(".near")) element.classList.remove("near");
  chosen = node === chosen ? null : node;
  stage.classList.toggle("focused", chosen !== null);
  if (chosen === null) return;
  const near = new Set([chosen]);
  for (const edge of picture.querySelectorAll(".edge[data-edge]")) {
    if (edge.dataset.from === chosen || edge.dataset.to === chosen) {
      edge.classList.add("near");
      near.add(edge.dataset.from).add(edge.dataset.to);
    }
  }
  for (const other of picture.querySelectorAll(".node")) other.classList.toggle("near", near.has(other.dataset.node));
});

for (const box of document.querySelectorAll("[data-flow]")) {
  box.addEventListener("change", () => {
    for (const edge of picture.querySelectorAll(`.edge.${box.dataset.flow}[data-edge]`)) edge.classList.toggle("gone", !box.checked);
  });
}
for (const button of document.querySelectorAll("[data-zoom]")) {
  button.addEventListener("click", () => {
    const factor = Number(button.dataset.zoom);
    if (factor) zoom(factor, centre()); else fit(button.dataset.zoom === "fit");
  });
}

const search = document.querySelector("input[type=search]"), count = document.querySelector("output");
let hits = [], hit = -1;
search.addEventListener("input", () => {
  const wanted = search.value.toLowerCase();
  hits = [];
  hit = -1;
  for (const group of picture.querySelectorAll(".node")) {
    const found = wanted !== "" && nodes[group.dataset.node].some(part => String(part ?? "").toLowerCase().includes(wanted));
    group.classList.toggle("found", found);
    if (found) hits.push(group);
  }
  count.textContent = wanted ? `${hits.length} found` : "";
});
document.querySelector("form").addEventListener("submit", event => {
  event.preventDefault();
  if (!hits.length) return;
  hit = (hit + 1) % hits.length;
  const shape = hits[hit].querySelector("rect"), there = hits[hit].getBoundingClientRect(), middle = centre();
  const frame = stage.getBoundingClientRect();
  x += middle.x - (there.left - frame.left + there.width / 2);
  y += middle.y - (there.top - frame.top + there.height / 2);
  if (shape) move();
  count.textContent = `${hit + 1} of ${hits.length}`;
});
stage.addEventListener("keydown", event => {
  const step = { ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60] }[event.key];
  if (step) { x += step[0]; y += step[1]; move(); }
  else if (event.key === "+" || event.key === "=") zoom(1.25, centre());
  else if (event.key === "-") zoom(0.8, centre());
  else if (event.key === "0") fit(true);
  else return;
  event.preventDefault();
});
fit(size.width * size.height < 4e6);
