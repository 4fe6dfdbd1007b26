// The editor: OpenCL C, C and LLVM IR, errors at their line, and lines coloured by what they cost.
import { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
import { bracketMatching, HighlightStyle, indentOnInput, StreamLanguage, syntaxHighlighting } from "@codemirror/language";
import { lintGutter, setDiagnostics } from "@codemirror/lint";
import { Compartment, EditorState, StateEffect, StateField, RangeSetBuilder } from "@codemirror/state";
import { Decoration, DecorationSet, drawSelection, EditorView, gutter, GutterMarker, highlightActiveLine, hoverTooltip, keymap, lineNumbers } from "@codemirror/view";
import { tags } from "@lezer/highlight";

/** What a line costs: its part of the whole, and the same in words. */
export interface LineHeat { line: number; part: number; words: string }

/** An error or a warning of the compiler. */
export interface Problem { message: string; line: number; column: number; severity: "error" | "warning" }

const types = /^(?:(?:u?(?:char|short|int|long)|float|double|half)(?:2|3|4|8|16)?|void|bool|size_t|unsigned|signed|u?int(?:8|16|32|64)_t)\b/;
const keywords = /^(?:if|else|for|while|do|switch|case|default|break|continue|return|goto|struct|union|enum|typedef|sizeof|const|volatile|restrict|static|inline|extern|(?:__)?(?:kernel|global|local|constant|private)|__attribute__|read_only|write_only)\b/;

const c = StreamLanguage.define<{ comment: boolean }>({
  name: "c",
  startState: () => ({ comment: false }),
  token(stream, state) {
    if (state.comment || stream.match("/*")) {
      state.comment = !stream.match(/^.*?\*\//);
      if (state.comment) stream.skipToEnd();
      return "comment";
    }
    if (stream.match(/^\/\/.*/)) return "comment";
    if (stream.sol() && stream.match(/^\s*#.*/)) return "meta";
    if (stream.match(/^"(?:[^"\\]|\\.)*"?/) || stream.match(/^'(?:[^'\\]|\\.)*'?/)) return "string";
    if (stream.match(/^(?:0x[\da-f]+|\d*\.?\d+(?:e[+-]?\d+)?)[ulfh]*/i)) return "number";
    if (stream.match(types)) return "typeName";
    if (stream.match(keywords)) return "keyword";
    if (!stream.match(/^\w+/)) stream.next();
    return null;
  },
});

const llvm = StreamLanguage.define<null>({
  name: "llvm",
  startState: () => null,
  token(stream) {
    if (stream.match(/^;.*/)) return "comment";
    if (stream.match(/^"(?:[^"\\]|\\.)*"/)) return "string";
    if (stream.match(/^[%@][-\w$.]+/)) return "variableName";
    if (stream.match(/^(?:i\d+|float|double|half|void|ptr|label)\b/)) return "typeName";
    if (stream.match(/^-?\d[\d.e+-]*/)) return "number";
    if (stream.match(/^(?:define|declare|ret|br|phi|call|load|store|add|mul|sub|icmp|fcmp|getelementptr|switch|select|[sz]ext|trunc)\b/)) return "keyword";
    stream.next();
    return null;
  },
});

const colours = HighlightStyle.define([
  { tag: [tags.keyword, tags.modifier, tags.controlKeyword], color: "var(--code-keyword)" },
  { tag: [tags.typeName, tags.standard(tags.typeName)], color: "var(--code-type)" },
  { tag: [tags.comment], color: "var(--code-comment)", fontStyle: "italic" },
  { tag: [tags.number, tags.string, tags.bool], color: "var(--code-number)" },
  { tag: [tags.processingInstruction, tags.meta], color: "var(--code-meta)" },
]);

const setHeat = StateEffect.define<LineHeat[]>();
const setMarked = StateEffect.define<number[]>();

const heat = StateField.define<LineHeat[]>({
  create: () => [],
  update(value, transaction) {
    for (const effect of transaction.effects) if (effect.is(setHeat)) return effect.value;
    return value;
  },
});

const marked = StateField.define<number[]>({
  create: () => [],
  update(value, transaction) {
    for (const effect of transaction.effects) if (effect.is(setMarked)) return effect.value;
    return value;
  },
});

function decorated(state: EditorState): DecorationSet {
  const builder = new RangeSetBuilder<Decoration>();
  const chosen = new Set(state.field(marked));
  const costs = new Map(state.field(heat).map((one) => [one.line, one]));
  for (const number of [...new Set([...costs.keys(), ...chosen])].sort((a, b) => a - b)) {
    if (number < 1 || number > state.doc.lines) continue;
    const part = costs.get(number)?.part ?? 0;
    const classes = [part >= 0.01 ? "line-cost" : "", chosen.has(number) ? "line-marked" : ""].join(" ").trim();
    if (!classes) continue;
    builder.add(state.doc.line(number).from, state.doc.line(number).from, Decoration.line({
      attributes: { class: classes, style: `--cost:${(100 * Math.min(1, 0.08 + 0.62 * part)).toFixed(0)}%` },
    }));
  }
  return builder.finish();
}

class Cost extends GutterMarker {
  constructor(readonly part: number) { super(); }
  eq(other: Cost) { return other.part === this.part; }
  toDOM() { return document.createTextNode(this.part >= 0.005 ? `${Math.round(100 * this.part)} %` : ""); }
}

export class Editor {
  readonly view: EditorView;
  private language = new Compartment();

  constructor(parent: HTMLElement, private changed: (text: string) => void, clicked: (line: number) => void) {
    this.view = new EditorView({
      parent,
      state: EditorState.create({
        extensions: [
          lineNumbers(), history(), drawSelection(), indentOnInput(), bracketMatching(), highlightActiveLine(),
          syntaxHighlighting(colours), lintGutter(), heat, marked, this.language.of(c),
          keymap.of([...defaultKeymap, ...historyKeymap, indentWithTab]),
          EditorView.lineWrapping,
          EditorView.contentAttributes.of({ "aria-label": "Source of the kernel" }),
          EditorView.decorations.compute([heat, marked, "doc"], decorated),
          gutter({
            class: "cost-gutter",
            lineMarker: (view, line) => {
              const number = view.state.doc.lineAt(line.from).number;
              const found = view.state.field(heat).find((one) => one.line === number);
              return found ? new Cost(found.part) : null;
            },
            lineMarkerChange: (update) => update.transactions.some((one) => one.effects.some((effect) => effect.is(setHeat))),
            initialSpacer: () => new Cost(1),
          }),
          hoverTooltip((view, place) => {
            const line = view.state.doc.lineAt(place);
            const found = view.state.field(heat).find((one) => one.line === line.number);
            if (!found) return null;
            return { pos: line.from, end: line.to, above: true, create: () => {
              const dom = document.createElement("div");
              dom.className = "line-tip";
              dom.textContent = found.words;
              return { dom };
            } };
          }),
          EditorView.updateListener.of((update) => {
            if (update.docChanged) this.changed(update.state.doc.toString());
            if (update.selectionSet || update.focusChanged) clicked(update.state.doc.lineAt(update.state.selection.main.head).number);
          }),
        ],
      }),
    });
  }

  get text(): string { return this.view.state.doc.toString(); }

  set text(text: string) {
    this.view.dispatch({ changes: { from: 0, to: this.view.state.doc.length, insert: text }, effects: [setHeat.of([]), setMarked.of([])] });
  }

  setLanguage(name: string): void {
    this.view.dispatch({ effects: this.language.reconfigure(name === "llvm" ? llvm : c) });
  }

  showCosts(costs: LineHeat[]): void { this.view.dispatch({ effects: setHeat.of(costs) }); }

  mark(lines: number[]): void { this.view.dispatch({ effects: setMarked.of(lines) }); }

  /** Show what the compiler says where it is; an empty list takes it away. */
  showProblems(problems: Problem[]): void {
    const { doc } = this.view.state;
    const found = problems.filter(({ line }) => line >= 1 && line <= doc.lines).map(({ message, line, column, severity }) => {
      const there = doc.line(line);
      const from = Math.min(there.from + Math.max(0, column - 1), there.to);
      return { from, to: Math.max(from, Math.min(there.to, from + 1)), severity, message };
    });
    this.view.dispatch(setDiagnostics(this.view.state, found));
  }

  goTo(line: number): void {
    const there = this.view.state.doc.line(Math.min(Math.max(1, line), this.view.state.doc.lines));
    this.view.dispatch({ selection: { anchor: there.from }, effects: EditorView.scrollIntoView(there.from, { y: "center" }) });
  }
}
