// Builds the page into src/apportion/serve/page: `make web`, or `npm run build` here.
import { build } from "esbuild";
import { createHash } from "node:crypto";
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync, copyFileSync } from "node:fs";
import { dirname, join } from "node:path";

const here = import.meta.dirname;
const page = join(here, "../src/apportion/serve/page");
const out = process.argv[2] ?? page;
rmSync(out, { recursive: true, force: true });
mkdirSync(out, { recursive: true });

const result = await build({
  entryPoints: { app: join(here, "src/main.ts"), style: join(here, "src/style.css") },
  bundle: true,
  minify: true,
  format: "esm",
  target: "es2022",
  outdir: out,
  metafile: true,
  legalComments: "none",
  logLevel: "warning",
  absWorkingDir: here,
});
copyFileSync(join(here, "src/index.html"), join(out, "index.html"));
copyFileSync(join(here, "src/icon.svg"), join(out, "icon.svg"));

// The licences of everything that is in the bundle.
const packages = new Set();
for (const file of Object.keys(result.metafile.inputs)) {
  const found = file.match(/node_modules\/((?:@[^/]+\/)?[^/]+)\//);
  if (found) packages.add(found[1]);
}
let licences = "The page holds these libraries.\n";
for (const name of [...packages].sort()) {
  const folder = join(here, "node_modules", name);
  const { version, license } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
  const file = readdirSync(folder).find((entry) => /^licen[cs]e/i.test(entry));
  licences += `\n${"=".repeat(80)}\n${name} ${version} (${license})\n\n${file ? readFileSync(join(folder, file), "utf8") : ""}`;
}
writeFileSync(join(out, "LICENSES.txt"), licences);

// What the page was built from, and what came of it: a test compares both, where there is no node too.
const sources = ["build.mjs", "package-lock.json", ...readdirSync(join(here, "src")).sort().map((name) => `src/${name}`)];
const digest = createHash("sha256");
for (const name of sources) digest.update(name + "\0").update(readFileSync(join(dirname(here), "web", name))).update("\0");
const built = createHash("sha256");
for (const name of readdirSync(out).sort()) built.update(name + "\0").update(readFileSync(join(out, name))).update("\0");
writeFileSync(join(out, "built-from.txt"), `${digest.digest("hex")}\n${built.digest("hex")}\n`);
