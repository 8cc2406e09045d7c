/** The playground: an editor, and a worker that runs what is in it. */

import { button, find, hideError, showError, start, write } from "../shared/page";
import { EXAMPLES } from "./examples";
import type { Message } from "./worker";

const KEPT = "torch-webgpu playground"; // of what was typed, in localStorage
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

class Page {
  private readonly code = find<HTMLTextAreaElement>("code");
  private readonly output = find("output");
  private runner = this.makeRunner();
  /** Whether the worker could not be loaded; the next run tries again. */
  private broken = false;
  private wanted = false;
  private running = false;
  private shown = 0;
  private leaves = false;

  constructor() {
    const { code } = this;
    const example = find<HTMLSelectElement>("example");
    for (const name of Object.keys(EXAMPLES)) {
      example.add(new Option(name));
    }
    example.addEventListener("change", () => {
      code.value = EXAMPLES[example.value]!;
      this.keep();
    });
    code.value = this.kept() ?? EXAMPLES[example.value]!;
    code.addEventListener("input", () => this.keep());
    code.addEventListener("keydown", (event) => this.press(event));
    code.addEventListener("focus", () => {
      this.leaves = false;
    });
    button("run").addEventListener("click", () => (this.running ? this.stop() : this.run()));
  }

  // A browser may refuse to keep anything.
  private kept(): string | null {
    try {
      return localStorage.getItem(KEPT);
    } catch {
      return null;
    }
  }

  private keep(): void {
    try {
      localStorage.setItem(KEPT, this.code.value);
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
      this.keep();
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
