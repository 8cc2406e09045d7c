/** The page of sentences. make_pages.py writes minilm.twg, vocab.txt and similarity.json. */

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
import { cosine, embed, type Embedded } from "./embed";
import type { Functions } from "./minilm.twg";
import { WordPiece } from "./wordpiece";

const MAX_SENTENCES = 16;

/** Sentences to begin with, and the cosines that PyTorch computed of them on a CPU. */
interface Recorded {
  readonly sentences: readonly string[];
  readonly cosines: readonly (readonly number[])[];
}

class Page {
  private readonly known = new Map<string, Embedded>();

  constructor(
    private readonly player: PlayerOf<Functions>,
    private readonly tokenizer: WordPiece,
    private readonly recorded: Recorded,
  ) {
    find<HTMLTextAreaElement>("sentences").value = recorded.sentences.join("\n");
    button("compare").addEventListener("click", () => void this.compare());
  }

  async compare(): Promise<void> {
    hideError();
    button("compare").disabled = true;
    try {
      await this.show(this.sentences());
    } catch (error) {
      showError(messageOf(error));
    }
    button("compare").disabled = false;
  }

  private sentences(): string[] {
    const lines = find<HTMLTextAreaElement>("sentences").value.split("\n");
    const sentences = lines.map((line) => line.trim()).filter((line) => line !== "");
    if (sentences.length < 2) {
      throw new Error("Type at least two sentences, one a line.");
    }
    if (sentences.length > MAX_SENTENCES) {
      throw new Error(`These are ${sentences.length} sentences; the table takes ${MAX_SENTENCES}.`);
    }
    return sentences;
  }

  private async show(sentences: readonly string[]): Promise<void> {
    const begin = performance.now();
    let computed = 0;
    const found: Embedded[] = [];
    for (const [k, sentence] of sentences.entries()) {
      write("status", `Sentence ${k + 1} of ${sentences.length}`);
      let one = this.known.get(sentence);
      if (one === undefined) {
        one = await embed(this.player, this.tokenizer, sentence);
        this.known.set(sentence, one);
        computed += 1;
      }
      found.push(one);
    }
    const time = (performance.now() - begin).toFixed(0);
    const cosines = found.map((a) => found.map((b) => cosine(a, b)));
    this.showTable(cosines);
    this.showNearest(sentences, found, cosines);
    write(
      "status",
      `${computed} ${computed === 1 ? "sentence" : "sentences"} computed in ${time} ms.` +
        this.compared(sentences, cosines),
    );
  }

  /** How far the examples are from what PyTorch computed. */
  private compared(sentences: readonly string[], cosines: readonly (readonly number[])[]): string {
    const { recorded } = this;
    if (sentences.join("\n") !== recorded.sentences.join("\n")) {
      return "";
    }
    const differences = cosines.flatMap((row, i) =>
      row.map((cosine, j) => Math.abs(cosine - recorded.cosines[i]![j]!)),
    );
    const most = Math.max(...differences);
    find("status").dataset.difference = String(most);
    return ` From PyTorch's cosines, computed on a CPU, they differ by ${most.toExponential(1)} at most.`;
  }

  private showTable(cosines: readonly (readonly number[])[]): void {
    const table = find<HTMLTableElement>("matrix");
    table.replaceChildren();
    const head = table.createTHead().insertRow();
    const addHead = (row: HTMLTableRowElement, text: string, scope: string) => {
      const cell = document.createElement("th");
      cell.textContent = text;
      cell.scope = scope;
      row.append(cell);
    };
    addHead(head, "", "col");
    cosines.forEach((_, k) => addHead(head, String(k + 1), "col"));
    const body = table.createTBody();
    cosines.forEach((row, i) => {
      const line = body.insertRow();
      addHead(line, String(i + 1), "row");
      row.forEach((cosine, j) => {
        const cell = line.insertCell();
        cell.textContent = cosine.toFixed(2);
        cell.classList.toggle("self", i === j);
        cell.style.setProperty("--share", `${Math.max(0, Math.min(1, cosine)) * 100}%`);
      });
    });
  }

  private showNearest(
    sentences: readonly string[],
    found: readonly Embedded[],
    cosines: readonly (readonly number[])[],
  ): void {
    const list = find("nearest");
    list.replaceChildren();
    sentences.forEach((sentence, i) => {
      const others = cosines[i]!.map((cosine, j) => (i === j ? -Infinity : cosine));
      const nearest = Math.max(...others);
      const item = document.createElement("li");
      const note = document.createElement("small");
      const { tokens, cut } = found[i]!;
      note.textContent =
        `nearest: ${others.indexOf(nearest) + 1} (${nearest.toFixed(3)}), ${tokens} tokens` +
        (cut ? ", cut there" : "");
      item.append(sentence, note);
      list.append(item);
    });
  }
}

void start(async () => {
  // First what is small: it tells whether make_pages.py had the model.
  const [vocabulary, recorded] = await Promise.all([
    fetchFile("vocab.txt").then((response) => response.text()),
    fetchFile("similarity.json").then((response) => response.json() as Promise<Recorded>),
  ]);
  const player = await load<Functions>("minilm.twg", { onProgress: showProgress });
  const page = new Page(player, new WordPiece(vocabulary), recorded);
  Object.assign(globalThis, { page, player }); // for those who look with the console
  void page.compare();
});
