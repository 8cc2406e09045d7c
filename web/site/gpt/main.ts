/** The page of the GPT. make_pages.py writes gpt.twg and gpt.json. */

import { load, type PlayerOf } from "../../player";
import {
  button,
  fetchFile,
  find,
  hideError,
  messageOf,
  showError,
  showProgress,
  start,
  write,
} from "../shared/page";
import type { Functions } from "./gpt.twg";
import { Text } from "./text";

/** Of the network, from gpt.json. */
interface Facts {
  readonly parameters: number;
  /** How many bytes it sees. */
  readonly context: number;
  readonly steps: number;
  /** The mean cross-entropy on text that it has not read, in nats a byte. */
  readonly loss: number;
}

class Page {
  private text: Text | null = null;
  /** Where the text appears. */
  private shown = document.createTextNode("");
  private running = false;

  constructor(
    private readonly player: PlayerOf<Functions>,
    private readonly facts: Facts,
  ) {
    const { parameters, context, steps, loss } = facts;
    write(
      "facts",
      `${parameters.toLocaleString("en")} parameters, trained in ${steps.toLocaleString("en")} ` +
        `steps. It sees the last ${context} bytes. On text that it has not read it pays ` +
        `${(loss / Math.LN2).toFixed(2)} bits a byte.`,
    );
    button("write").addEventListener("click", () => {
      if (this.running) {
        this.running = false;
        // Until the byte under way is there: a second text would mix with the first.
        button("write").disabled = true;
      } else {
        void this.attempt(() => this.begin());
      }
    });
    button("more").addEventListener("click", () => void this.attempt(() => this.continue()));
    const temperature = find<HTMLInputElement>("temperature");
    const show = () => {
      const value = Number(temperature.value);
      write("temperature-text", value === 0 ? "0, always the most probable" : value.toFixed(1));
    };
    temperature.addEventListener("input", show);
    show();
    button("write").disabled = false;
  }

  private async attempt(work: () => Promise<void>): Promise<void> {
    hideError();
    this.running = true;
    button("write").textContent = "Stop";
    button("more").disabled = true;
    try {
      await work();
    } catch (error) {
      // What the cache holds is not known then.
      this.text = null;
      showError(messageOf(error));
    }
    this.running = false;
    button("write").textContent = "Write";
    button("write").disabled = false;
    button("more").disabled = this.text === null;
  }

  private async begin(): Promise<void> {
    const prompt = find<HTMLTextAreaElement>("prompt").value;
    if (prompt === "") {
      throw new Error("The prompt is empty: type a word or two.");
    }
    const span = document.createElement("span");
    span.textContent = prompt;
    this.shown = document.createTextNode("");
    find("text").replaceChildren(span, this.shown);
    write("count", "0");
    write("speed", "–");
    write("first", "–");
    const from = performance.now();
    this.text = new Text(this.player);
    await this.text.begin(new TextEncoder().encode(prompt), this.facts.context);
    await this.continue(from);
  }

  /** Writes until it is stopped or as long as is asked for. `from`: when the prompt was given. */
  private async continue(from?: number): Promise<void> {
    const text = this.text!;
    const box = find("text");
    const end = text.written + (find<HTMLInputElement>("length").valueAsNumber || 1);
    let [begin, first] = [performance.now(), text.written];
    while (this.running && text.written < end) {
      const temperature = Number(find<HTMLInputElement>("temperature").value);
      const piece = await text.next(temperature, Math.random());
      const follows = box.scrollTop + box.clientHeight > box.scrollHeight - 40;
      this.shown.appendData(piece);
      if (follows) {
        box.scrollTop = box.scrollHeight;
      }
      write("count", String(text.written));
      const now = performance.now();
      if (from !== undefined) {
        write("first", `${(now - from).toFixed(0)} ms`);
        [begin, first, from] = [now, text.written, undefined];
      } else if (now - begin > 500 || text.written === end) {
        const speed = (1000 * (text.written - first)) / (now - begin);
        write("speed", speed.toFixed(speed < 10 ? 1 : 0));
        [begin, first] = [now, text.written];
        // The page stays alive, however fast the steps are.
        await new Promise((done) => setTimeout(done));
      }
    }
  }
}

void start(async () => {
  const facts = fetchFile("gpt.json").then((response) => response.json() as Promise<Facts>);
  facts.catch(() => undefined); // awaited below
  const player = await load<Functions>("gpt.twg", { onProgress: showProgress });
  const page = new Page(player, await facts);
  Object.assign(globalThis, { page, player }); // for those who look with the console
});
