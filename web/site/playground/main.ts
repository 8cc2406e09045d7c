/** The playground: an editor, and a worker that runs what is in it. */

import { button, find, hideError, showError, start, write } from "../shared/page";
import { EXAMPLES } from "./examples";
import type { Message } from "./worker";

const KEPT = "torch-webgpu playground"; // of what was typed, in localStorage
const OWN = "Your own program";
const BEGUN: Record<string, string> = {
  ...EXAMPLES,
  [OWN]: 'import { torch, nn, optim } from "torch-webgpu/torch";\n\n',
};
const MAX_SHOWN = 200_000; // characters of output; the first ones go

/** A worker that waits for a program, and runs one only. */
class Runner {
  private readonly worker = new Worker("worker.js", { type: "module" });

  constructor(listen: (message: Message) => void) {
    this.worker.addEventListener("message", ({ data }: MessageEvent<Message>) => listen(data));
    this.worker.addEventListener("error", ({ message }) =>
      listen({ kind: "error", text: message || "the worker cannot be loaded from the server" }),
    );
  }

  run(program: string): void {
    this.worker.postMessage(program);
  }

  stop(): void {
    this.worker.terminate();
  }
}

/** What was typed: the program that was open, and all that are not as they began. */
interface Typed {
  open: string;
  changed: Map<string, string>;
}

const isText = (value: unknown): value is string => typeof value === "string";

// A browser may refuse to keep anything, and what it kept may be of another version of this page.
function readTyped(): Typed {
  const typed: Typed = { open: Object.keys(EXAMPLES)[0]!, changed: new Map() };
  try {
    const kept = JSON.parse(localStorage.getItem(KEPT) ?? "{}") as Record<string, unknown> | null;
    if (isText(kept?.open) && Object.hasOwn(BEGUN, kept.open)) {
      typed.open = kept.open;
    }
    for (const [name, text] of Object.entries(kept?.changed ?? {})) {
      if (isText(text) && Object.hasOwn(BEGUN, name)) {
        typed.changed.set(name, text);
      }
    }
  } catch {
    // then the programs are as they began
  }
  return typed;
}

class Page {
  private readonly example = find<HTMLSelectElement>("example");
  private readonly code = find<HTMLTextAreaElement>("code");
  private readonly output = find("output");
  private runner = this.makeRunner();
  /** Whether the worker could not be loaded; the next run tries again. */
  private broken = false;
  private wanted = false;
  private running = false;
  private shown = 0;
  private leaves = false;

  /** What was typed in this page. Others keep theirs in the same place. */
  private readonly typed = readTyped();

  constructor() {
    const { code, example } = this;
    for (const name of Object.keys(BEGUN)) {
      example.add(new Option(name, name));
    }
    example.value = this.typed.open;
    this.showProgram();
    example.addEventListener("change", () => {
      this.showProgram();
      this.keep(false);
    });
    code.addEventListener("input", () => this.changeProgram());
    code.addEventListener("keydown", (event) => this.press(event));
    code.addEventListener("focus", () => {
      this.leaves = false;
    });
    button("restore").addEventListener("click", () => {
      if (confirm(`Put "${example.value}" back as it began? What you typed there is lost.`)) {
        this.code.value = BEGUN[example.value]!;
        this.changeProgram();
      }
    });
    button("run").addEventListener("click", () => (this.running ? this.stop() : this.run()));
  }

  private showProgram(): void {
    const name = this.example.value;
    this.typed.open = name;
    this.code.value = this.typed.changed.get(name) ?? BEGUN[name]!;
    this.mark();
  }

  private changeProgram(): void {
    const name = this.example.value;
    if (this.code.value === BEGUN[name]) {
      this.typed.changed.delete(name);
    } else {
      this.typed.changed.set(name, this.code.value);
    }
    this.mark();
    this.keep(true);
  }

  // The menu says which programs are not as they began.
  private mark(): void {
    for (const option of this.example.options) {
      const changed = option.value !== OWN && this.typed.changed.has(option.value);
      option.text = changed ? `${option.value} (changed)` : option.value;
    }
    button("restore").hidden = !this.typed.changed.has(this.example.value);
  }

  private keep(isTyped: boolean): void {
    const name = this.typed.open;
    // Another page of this browser may have kept other programs since, and newer text of those that
    // are only looked at here.
    const kept = readTyped();
    kept.open = name;
    const text = this.typed.changed.get(name);
    if (isTyped) {
      if (text === undefined) {
        kept.changed.delete(name);
      } else {
        kept.changed.set(name, text);
      }
    }
    try {
      localStorage.setItem(
        KEPT,
        JSON.stringify({ ...kept, changed: Object.fromEntries(kept.changed) }),
      );
    } catch {
      // then it is gone with the page
    }
  }

  private press(event: KeyboardEvent): void {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      if (!this.running && !button("run").disabled) {
        this.run();
      }
    } else if (event.key === "Escape") {
      this.leaves = true;
    } else if (event.key === "Tab" && !event.shiftKey && !this.leaves) {
      event.preventDefault();
      const { selectionStart, selectionEnd } = this.code;
      this.code.setRangeText("  ", selectionStart, selectionEnd, "end");
      this.changeProgram();
    }
  }

  private makeRunner(): Runner {
    const runner: Runner = new Runner((message) => {
      if (runner === this.runner) {
        this.hear(message);
      }
    });
    return runner;
  }

  private run(): void {
    hideError();
    this.output.replaceChildren();
    this.shown = 0;
    if (this.broken) {
      this.wanted = true;
      this.renew();
      return;
    }
    this.running = true;
    button("run").textContent = "Stop";
    write("status", "Running");
    this.runner.run(this.code.value);
  }

  private renew(): void {
    this.broken = false;
    button("run").disabled = true;
    this.runner = this.makeRunner();
  }

  private stop(): void {
    this.end("Stopped");
  }

  /** Ends the run, and gets the next worker ready. */
  private end(status: string): void {
    this.runner.stop();
    this.running = false;
    button("run").textContent = "Run";
    write("status", status);
    this.renew();
  }

  private hear(message: Message): void {
    switch (message.kind) {
      case "ready":
        button("run").disabled = false;
        if (this.wanted) {
          this.wanted = false;
          this.run();
        }
        break;
      case "print":
        this.show(message.text);
        break;
      case "done": {
        const { milliseconds, peak } = message;
        this.end(
          `Done in ${milliseconds.toFixed(0)} ms, with ${(peak / 1e6).toFixed(1)} MB of the GPU.`,
        );
        break;
      }
      case "error":
        if (this.running) {
          this.show(message.text, "error");
          this.end("Failed");
        } else {
          // The output of the last run stays.
          this.broken = true;
          this.wanted = false;
          button("run").disabled = false;
          showError(`Nothing can run now: ${message.text}. Run tries again.`);
        }
    }
  }

  private show(text: string, kind = ""): void {
    const { output } = this;
    const follows = output.scrollTop + output.clientHeight > output.scrollHeight - 40;
    const line = document.createElement("div");
    line.className = kind;
    line.textContent = text === "" ? "\n" : text;
    output.append(line);
    this.shown += text.length;
    while (this.shown > MAX_SHOWN && output.childElementCount > 1) {
      this.shown -= output.firstElementChild!.textContent.length;
      output.firstElementChild!.remove();
    }
    if (follows) {
      output.scrollTop = output.scrollHeight;
    }
  }
}

void start(() => {
  Object.assign(globalThis, { page: new Page() }); // for those who look with the console
  return Promise.resolve();
});
