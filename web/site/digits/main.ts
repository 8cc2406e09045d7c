/** The page: draws, classifies, trains, saves. make_pages.py writes digits.twg and digits.bin. */

import { DeviceLostError, load, type PlayerOf } from "../../player";
import {
  button,
  fetchFile,
  find,
  hideError,
  messageOf,
  onDrop,
  showError,
  showProgress,
  start,
  write,
} from "../shared/page";
import type { Functions } from "./digits.twg";
import { Pad, SIDE, toPixels } from "./pad";
import { Plot } from "./plot";

const BATCH = 64;
const EPOCHS = 20; // as examples/digits; 10 stay a little below the goal
const LEARNING_RATE = 5e-3;
const GOAL = 0.97;
const PIXELS = SIDE * SIDE;

/** Images with values from 0 to 1, and their digits. */
interface Digits {
  readonly images: Float32Array;
  readonly labels: BigInt64Array;
}

/** Reads digits.bin: two counts, of training and of held-back images (u32), then all images and then
 * all labels, a byte each; a pixel is 0 to 16. */
async function fetchDigits(): Promise<[training: Digits, heldBack: Digits]> {
  const file = await (await fetchFile("digits.bin")).arrayBuffer();
  const counts = new Uint32Array(file, 0, 2);
  const all = counts[0]! + counts[1]!;
  const images = Float32Array.from(new Uint8Array(file, 8, all * PIXELS), (pixel) => pixel / 16);
  const labels = BigInt64Array.from(new Uint8Array(file, 8 + all * PIXELS, all), BigInt);
  const part = (begin: number, end: number): Digits => ({
    images: images.subarray(begin * PIXELS, end * PIXELS),
    labels: labels.subarray(begin, end),
  });
  return [part(0, counts[0]!), part(counts[0]!, all)];
}

function shuffled(count: number): number[] {
  const order = Array.from({ length: count }, (_, k) => k);
  for (let k = count - 1; k > 0; --k) {
    const other = Math.floor(Math.random() * (k + 1));
    [order[k], order[other]] = [order[other]!, order[k]!];
  }
  return order;
}

interface Kept {
  readonly step: number;
  readonly order: number[];
  readonly loss: string;
  readonly accuracy: string;
}

class Page {
  private readonly pad: Pad;
  private readonly plot: Plot;
  private readonly bars: HTMLElement[];
  private readonly steps: number;
  private step = 0;
  private order: number[] = [];
  private running = false;
  /** Whether the loop that trains has not ended yet: its last step takes a while after a click. */
  private looping = false;
  /** What the page showed at the player's last checkpoint, which a lost device goes back to. */
  private kept: Kept = { step: 0, order: [], loss: "–", accuracy: "–" };
  /** What is to be classified next; one is under way at a time. */
  private wanted: Float32Array<ArrayBuffer> | null = null;
  private classifying = false;

  constructor(
    private readonly player: PlayerOf<Functions>,
    private readonly training: Digits,
    private readonly heldBack: Digits,
    private readonly start: Uint8Array,
  ) {
    this.steps = EPOCHS * Math.floor(training.labels.length / BATCH);
    this.plot = new Plot(find<HTMLCanvasElement>("plot"), this.steps);
    this.pad = new Pad(find<HTMLCanvasElement>("pad"), () => this.classify());
    this.bars = Array.from({ length: 10 }, (_, digit) => {
      const bar = document.createElement("li");
      bar.innerHTML = `${digit}<span></span><small></small>`;
      find("bars").append(bar);
      return bar;
    });
    const on = (id: string, work: () => Promise<void> | void) =>
      button(id).addEventListener("click", () => this.attempt(work));
    on("clear", () => {
      this.pad.clear();
      this.showNothing();
    });
    on("sample", () => {
      const k = Math.floor(Math.random() * heldBack.labels.length);
      const image = heldBack.images.slice(k * PIXELS, (k + 1) * PIXELS);
      this.pad.show(image);
      this.classify(image);
    });
    on("train", () => (this.running ? this.stop() : this.train()));
    on("restart", () => this.alone(() => this.restart()));
    on("save", () => this.save());
    const input = find<HTMLInputElement>("load");
    const take = (file: File | undefined) =>
      void this.attempt(() => this.alone(() => this.loadWeights(file)));
    input.addEventListener("change", () => {
      const file = input.files?.[0];
      input.value = "";
      take(file);
    });
    onDrop((file) => {
      if (input.disabled) {
        showError(`Pause the training before you load ${file.name}.`);
      } else {
        take(file);
      }
    });
    for (const id of ["clear", "sample", "train", "save", "load"]) {
      button(id).disabled = false;
    }
    this.showNothing();
  }

  private async attempt(work: () => Promise<void> | void): Promise<void> {
    try {
      await work();
    } catch (error) {
      if (error instanceof DeviceLostError) {
        this.goBack();
      }
      if (this.looping) {
        this.stop();
      } else {
        this.pause();
      }
      showError(
        error instanceof DeviceLostError
          ? `This page lost the GPU. Training is back at step ${this.step}, where a copy of the ` +
              `network was kept. Press ${this.trainLabel} to go on from there.`
          : messageOf(error),
      );
    }
  }

  /** Keeps what training needs to go on: the player its tensors, the page where it is. */
  private async keep(): Promise<void> {
    const { step, order } = this;
    await this.player.checkpoint();
    const [loss, accuracy] = [find("loss").textContent!, find("accuracy").textContent!];
    this.kept = { step, order, loss, accuracy };
  }

  /** After a loss: the player's next call runs on its last checkpoint. */
  private goBack(): void {
    const { step, order, loss, accuracy } = this.kept;
    Object.assign(this, { step, order });
    this.plot.cut(step);
    write("loss", loss);
    write("accuracy", accuracy);
    write("speed", "–");
    this.showStep();
  }

  // ---- Training

  private async train(): Promise<void> {
    hideError();
    this.looping = true;
    this.disable(true);
    try {
      if (this.step >= this.steps) {
        await this.restart();
      }
      this.running = true;
      button("train").textContent = "Pause";
      button("train").disabled = false;
      await this.trainSteps();
      await this.keep();
    } finally {
      this.looping = false;
      this.pause();
    }
  }

  private async trainSteps(): Promise<void> {
    let [begin, first] = [performance.now(), this.step];
    while (this.running && this.step < this.steps) {
      await this.trainStep();
      if (this.step % this.epochSteps === 0 || this.step === this.steps) {
        await this.measure();
        await this.keep();
        this.classify();
      }
      const now = performance.now();
      if (now - begin > 500) {
        const speed = (1000 * (this.step - first)) / (now - begin);
        write("speed", speed.toFixed(speed < 10 ? 1 : 0));
        [begin, first] = [now, this.step];
        // The page stays alive, however fast the steps are.
        await new Promise((done) => setTimeout(done));
      }
    }
  }

  /** Ends the loop. Nothing begins or changes the network before it has ended. */
  private stop(): void {
    this.running = false;
    button("train").disabled = true;
  }

  /** Changes the network while nothing else does. */
  private async alone(work: () => Promise<void>): Promise<void> {
    this.disable(true);
    try {
      await work();
    } finally {
      this.pause();
    }
  }

  private disable(disabled: boolean): void {
    for (const id of ["train", "restart", "load"]) {
      button(id).disabled = disabled;
    }
  }

  private get epochSteps(): number {
    return this.steps / EPOCHS;
  }

  private async trainStep(): Promise<void> {
    const at = this.step % this.epochSteps;
    if (at === 0 || this.order.length === 0) {
      this.order = shuffled(this.training.labels.length);
    }
    const images = new Float32Array(BATCH * PIXELS);
    const labels = new BigInt64Array(BATCH);
    for (let k = 0; k < BATCH; ++k) {
      const from = this.order[at * BATCH + k]!;
      images.set(this.training.images.subarray(from * PIXELS, (from + 1) * PIXELS), k * PIXELS);
      labels[k] = this.training.labels[from]!;
    }
    const lr = (LEARNING_RATE * (1 + Math.cos((Math.PI * this.step) / this.steps))) / 2;
    const { loss } = await this.player.step({ images, labels, lr });
    this.step += 1;
    this.plot.add(loss[0]!);
    write("loss", loss[0]!.toFixed(3));
    this.showStep();
  }

  private showStep(): void {
    write("step", `${this.step} of ${this.steps}`);
    find<HTMLProgressElement>("progress").value = this.step / this.steps;
  }

  /** The share of the held-back images that are recognized. */
  private async measure(): Promise<void> {
    const { digits } = await this.player.recognize({ images: this.heldBack.images });
    const right = digits.filter((digit, k) => digit === this.heldBack.labels[k]).length;
    const share = right / this.heldBack.labels.length;
    write("accuracy", `${(100 * share).toFixed(1)} %${share >= GOAL ? " ✓" : ""}`);
  }

  private get trainLabel(): string {
    return this.step > 0 && this.step < this.steps ? "Go on" : "Train";
  }

  private pause(): void {
    this.running = false;
    button("train").textContent = this.trainLabel;
    this.disable(false);
    button("restart").disabled = this.step === 0;
  }

  private async restart(): Promise<void> {
    await this.player.loadState(this.start);
    this.step = 0;
    this.showStep();
    write("loss", "–");
    write("speed", "–");
    await this.measure();
    await this.keep();
    // Only now: a loss before goes back to what the curve shows.
    this.plot.cut(0);
    this.classify();
  }

  private async save(): Promise<void> {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([await this.player.state("model")]));
    link.download = "digits.safetensors";
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  }

  private async loadWeights(file: File | undefined): Promise<void> {
    if (file !== undefined) {
      await this.player.loadState(await file.arrayBuffer(), "model");
      hideError();
      await this.measure();
      await this.keep();
      this.classify();
    }
  }

  // ---- Drawing

  private classify(image = this.pad.image()): void {
    if (image === null) {
      return;
    }
    this.wanted = image;
    if (!this.classifying) {
      void this.attempt(() => this.classifyWanted());
    }
  }

  private async classifyWanted(): Promise<void> {
    this.classifying = true;
    try {
      while (this.wanted !== null) {
        const image = this.wanted;
        this.wanted = null;
        const { probabilities } = await this.player.classify({ image });
        this.show(image, [...probabilities]);
      }
    } finally {
      this.classifying = false;
    }
  }

  private show(image: Float32Array, probabilities: number[]): void {
    find<HTMLCanvasElement>("seen").getContext("2d")!.putImageData(toPixels(image), 0, 0);
    const most = Math.max(...probabilities);
    probabilities.forEach((part, digit) => {
      const bar = this.bars[digit]!;
      bar.classList.toggle("best", part === most);
      bar.querySelector("span")!.style.setProperty("--part", `${part * 100}%`);
      bar.querySelector("small")!.textContent = `${(part * 100).toFixed(0)} %`;
    });
    const digit = probabilities.indexOf(most);
    const sure = `${(most * 100).toFixed(0)} %`;
    write(
      "answer",
      this.step === 0 && !this.running
        ? `${digit}? It has not learned anything yet: press Train.`
        : `It is a ${digit}: ${sure}.`,
    );
  }

  private showNothing(): void {
    this.wanted = null;
    const { width, height } = find<HTMLCanvasElement>("seen");
    find<HTMLCanvasElement>("seen").getContext("2d")!.clearRect(0, 0, width, height);
    this.bars.forEach((bar) => {
      bar.classList.remove("best");
      bar.querySelector("span")!.style.setProperty("--part", "0%");
      bar.querySelector("small")!.textContent = "";
    });
    write("answer", "Draw with the mouse or a finger.");
    this.showStep();
  }
}

void start(async () => {
  const digits = fetchDigits();
  digits.catch(() => undefined); // awaited below
  const player = await load<Functions>("digits.twg", { onProgress: showProgress });
  const page = new Page(player, ...(await digits), await player.state());
  Object.assign(globalThis, { page, player }); // for those who look with the console
});
