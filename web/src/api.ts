// Questions to the service. The token comes in the address behind `#` and stays in this tab.

export interface Problem { kind: string; message: string; line?: number; column?: number; diagnostics?: string }

export class Refusal extends Error {
  constructor(readonly status: number, readonly problem: Problem) { super(problem.message); }
}

const KEY = "apportion-token";

export function token(): string { return sessionStorage.getItem(KEY) ?? ""; }
export function setToken(value: string): void { sessionStorage.setItem(KEY, value); }

let online = true;
const listeners: ((online: boolean) => void)[] = [];
/** Be told when the service stops or starts answering. */
export function watchConnection(listener: (online: boolean) => void): void { listeners.push(listener); }
function connection(now: boolean): void {
  if (now !== online) { online = now; listeners.forEach((listener) => listener(now)); }
}

async function send(method: string, path: string, body?: unknown, signal?: AbortSignal): Promise<Response> {
  const headers: Record<string, string> = { "Content-Type": "application/json" };
  if (token()) headers.Authorization = `Bearer ${token()}`;
  let response: Response;
  try {
    response = await fetch(path, { method, headers, signal, body: body === undefined ? undefined : JSON.stringify(body) });
  } catch (error) {
    if (signal?.aborted) throw error;
    connection(false);
    throw new Refusal(0, { kind: "Offline", message: "The service does not answer. Is `apportion serve` still running?" });
  }
  connection(true);
  if (!response.ok) {
    let problem: Problem = { kind: "Refused", message: `The service answered ${response.status}` };
    try { problem = (await response.json()).error ?? problem; } catch { /* no JSON: the status says enough */ }
    throw new Refusal(response.status, problem);
  }
  return response;
}

/** Ask, and get JSON. */
// eslint-disable-next-line @typescript-eslint/no-explicit-any
export async function ask(method: string, path: string, body?: unknown, signal?: AbortSignal): Promise<any> {
  return (await send(method, path, body, signal)).json();
}

/** Whether somebody wants to give the token; true when there is one now. */
export async function withToken<T>(action: () => Promise<T>): Promise<T> {
  try {
    return await action();
  } catch (error) {
    if (!(error instanceof Refusal) || error.status !== 401) throw error;
    const given = await askForToken();
    if (!given) throw error;
    setToken(given);
    return action();
  }
}

function askForToken(): Promise<string> {
  return new Promise((resolve) => {
    const dialog = document.createElement("dialog");
    dialog.innerHTML = `<form method="dialog"><h2>The token</h2>
      <p>Running code needs the token that <code>apportion serve</code> printed, behind <code>#token=</code> in its address.</p>
      <label class="field"><span>Token</span><input name="token" autocomplete="off" spellcheck="false"></label>
      <p class="actions"><button value="cancel" class="quiet">Cancel</button> <button value="ok" class="primary">Use it</button></p></form>`;
    document.body.append(dialog);
    dialog.addEventListener("close", () => {
      const given = dialog.returnValue === "ok" ? dialog.querySelector("input")!.value.trim() : "";
      dialog.remove();
      resolve(given);
    });
    dialog.showModal();
  });
}

export interface Event_ { number: number; body: Record<string, unknown> }

/** Follow a job to its end, over lost connections; `report` hears what it says. */
export async function follow(id: string, report: (event: Event_) => void, signal: AbortSignal): Promise<void> {
  let last = 0;
  for (let tries = 0; !signal.aborted; tries++) {
    try {
      const response = await send("GET", `/api/jobs/${id}/events?after=${last}`, undefined, signal);
      tries = 0;
      const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
      let text = "";
      for (;;) {
        const { done, value } = await reader.read();
        if (done) break;
        text += value;
        for (let end = text.indexOf("\n\n"); end >= 0; end = text.indexOf("\n\n")) {
          const lines = text.slice(0, end).split("\n");
          text = text.slice(end + 2);
          const data = lines.find((line) => line.startsWith("data: "))?.slice(6);
          if (lines.includes("event: end")) return;
          const number = Number(lines.find((line) => line.startsWith("id: "))?.slice(4));
          if (data && number) { last = number; report({ number, body: JSON.parse(data) }); }
        }
      }
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof Refusal && error.status !== 0 && error.status !== 429) throw error;
      connection(false);
    }
    await new Promise((resolve) => setTimeout(resolve, Math.min(5000, 300 * 2 ** tries)));
  }
}

/** Anything as text that fits into an address, and back. */
export async function packed(value: unknown): Promise<string> {
  const stream = new Blob([JSON.stringify(value)]).stream().pipeThrough(new CompressionStream("deflate-raw"));
  const data = new Uint8Array(await new Response(stream).arrayBuffer());
  return btoa(Array.from(data, (byte) => String.fromCharCode(byte)).join("")).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

export async function unpacked(text: string): Promise<unknown> {
  const data = Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (letter) => letter.charCodeAt(0));
  const stream = new Blob([data]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return JSON.parse(await new Response(stream).text());
}
