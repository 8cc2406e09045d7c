/** The page of ResNet-18. make_pages.py writes shapes.safetensors, pictures.bin and resnet.json. */

import { nn, safetensors, torch } from "../../torch";
import {
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
import { toInput } from "./input";
import { ResNet18 } from "./model";

/** Of the weights that Python trained, from resnet.json. */
interface Facts {
  readonly names: readonly string[];
  /** Height and width of its pictures. */
  readonly side: number;
  /** How many pictures it was trained on. */
  readonly seen: number;
  /** The share of the held-back pictures that it recognizes. */
  readonly accuracy: number;
  readonly held_back: number;
  /** Of the pictures on the page: their shapes, and the logits that PyTorch computed on a CPU. */
  readonly labels: readonly number[];
  readonly logits: readonly (readonly number[])[];
}

// Of ImageNet. What torchvision's weights for it are measured with: the middle 224 pixels of a
// picture whose shorter side has 256.
const IMAGENET_CLASSES = 1000;
const IMAGENET_SIDE = 224;
const IMAGENET_SHORTER = 256;
const LEAST_SIDE = 32; // halved five times
const SHOWN_CLASSES = 8;

/** Something that a visitor wants done. */
interface Wish {
  readonly work: () => Promise<void>;
  readonly sees: boolean;
}

class Page {
  private readonly side = find<HTMLInputElement>("side");
  private network: ResNet18;
  private names: readonly string[];
  private isOurs = true;
  /** The picture that is shown, to be seen again by other weights. */
  private picture: CanvasImageSource | null = null;
  private busy = false;
  /** What is to be done next. */
  private waiting: Wish[] = [];

  constructor(
    state: nn.StateDict,
    private readonly facts: Facts,
    pictures: Uint8Array,
  ) {
    const { side, seen, accuracy, held_back } = facts;
    this.network = this.build(state, facts.names.length);
    this.names = facts.names;
    this.side.value = String(side);
    this.side.disabled = false;
    this.side.addEventListener("change", () => void this.attempt(() => this.seeAgain(), true));
    write(
      "facts",
      `Trained on ${seen.toLocaleString("en")} pictures that a program drew. Of ` +
        `${held_back} others it recognizes ${(100 * accuracy).toFixed(0)} %.`,
    );
    this.addSamples(pictures);
    const open = (file: File) =>
      void this.attempt(async () => {
        const picture = await createImageBitmap(file).catch(() => {
          throw new Error(`${file.name} is no picture that this browser can read.`);
        });
        this.press(null);
        await this.see(picture);
      }, true);
    const load = (file: File) => void this.attempt(() => this.load(file));
    const onFile = (id: string, take: (file: File) => void) => {
      const input = find<HTMLInputElement>(id);
      input.disabled = false;
      input.addEventListener("change", () => {
        const file = input.files?.[0];
        input.value = "";
        if (file !== undefined) {
          take(file);
        }
      });
    };
    onFile("picture", open);
    onFile("weights", load);
    onDrop((file) => {
      (file.type.startsWith("image/") ? open : load)(file);
    });
  }

  /** One after the other. Of pictures to be seen that still wait, the last one is enough. */
  async attempt(work: () => Promise<void>, sees = false): Promise<void> {
    this.waiting = [...this.waiting.filter((wish) => !(sees && wish.sees)), { work, sees }];
    if (this.busy) {
      return;
    }
    this.busy = true;
    for (let wish = this.waiting.shift(); wish !== undefined; wish = this.waiting.shift()) {
      hideError();
      try {
        await wish.work();
      } catch (error) {
        showError(messageOf(error));
      }
    }
    this.busy = false;
  }

  private addSamples(pictures: Uint8Array): void {
    const { side, labels } = this.facts;
    const area = side * side;
    labels.forEach((_, k) => {
      const canvas = document.createElement("canvas");
      canvas.width = canvas.height = side;
      const pixels = new ImageData(side, side);
      for (let at = 0; at < area; at++) {
        const from = 3 * (k * area + at);
        pixels.data.set([...pictures.subarray(from, from + 3), 255], 4 * at);
      }
      canvas.getContext("2d")!.putImageData(pixels, 0, 0);
      const choice = document.createElement("button");
      choice.setAttribute("aria-label", `Picture ${k + 1}`);
      choice.append(canvas);
      choice.addEventListener(
        "click",
        () =>
          void this.attempt(async () => {
            this.press(choice);
            const logits = await this.see(canvas);
            this.compare(logits, k);
          }, true),
      );
      find("samples").append(choice);
    });
  }

  private press(choice: HTMLElement | null): void {
    for (const other of find("samples").children) {
      other.setAttribute("aria-pressed", String(other === choice));
    }
  }

  private build(state: nn.StateDict, classes: number): ResNet18 {
    const network = new ResNet18(classes);
    try {
      network.load_state_dict(state);
    } catch (error) {
      network.dispose();
      throw error;
    }
    return network.eval();
  }

  /** Takes the weights of a visitor's file in place of those in use. */
  private async load(file: File): Promise<void> {
    const bytes = new Uint8Array(await file.arrayBuffer());
    await torch.scope(async () => {
      const state = file.name.endsWith(".safetensors")
        ? safetensors.load(bytes, { convert: true })
        : new Map(Object.entries(torch.load(bytes, { convert: true })));
      const classes = state.get("fc.bias")?.shape[0];
      if (classes === undefined) {
        throw new Error(`${file.name} has no fc.bias: it is no state dict of ResNet-18.`);
      }
      const network = this.build(state, classes);
      await torch.synchronize();
      this.network.dispose();
      this.network = network;
      this.isOurs = false;
      this.names = Array.from({ length: classes }, (_, k) => `class ${k}`);
      if (classes === IMAGENET_CLASSES) {
        this.side.value = String(IMAGENET_SIDE);
      }
      write("facts", `The weights of ${file.name}, for ${classes} classes.`);
    });
    await this.seeAgain();
  }

  private async seeAgain(): Promise<void> {
    if (this.picture !== null) {
      await this.see(this.picture);
    }
  }

  /** Classifies a picture and returns the logits. */
  private async see(picture: CanvasImageSource): Promise<number[]> {
    this.picture = picture;
    const side = this.side.valueAsNumber;
    if (!(side >= LEAST_SIDE && side <= Number(this.side.max) && Number.isInteger(side))) {
      throw new Error(`Pictures have ${LEAST_SIDE} to ${this.side.max} pixels a side.`);
    }
    const isImageNet = this.names.length === IMAGENET_CLASSES;
    const shorter = isImageNet ? (side * IMAGENET_SHORTER) / IMAGENET_SIDE : side;
    const canvas = find<HTMLCanvasElement>("seen");
    canvas.width = canvas.height = side;
    const context = canvas.getContext("2d", { willReadFrequently: true })!;
    const { width, height } = picture as HTMLCanvasElement | ImageBitmap;
    const scale = shorter / Math.min(width, height);
    context.imageSmoothingQuality = "high";
    const [x, y] = [(side - width * scale) / 2, (side - height * scale) / 2];
    context.drawImage(picture, x, y, width * scale, height * scale);
    const input = toInput(context.getImageData(0, 0, side, side).data, 4);
    write("answer", "Looking");
    const begin = performance.now();
    const [logits, shares] = await torch.scope(() =>
      torch.no_grad(async () => {
        const image = torch.tensor(input).view(1, 3, side, side);
        const out = this.network.forward(image).select(0, 0);
        return Promise.all([out.tolist(), out.softmax(0).tolist()]) as Promise<number[][]>;
      }),
    );
    write("status", `Computed in ${(performance.now() - begin).toFixed(0)} ms.`);
    this.show(shares!);
    return logits!;
  }

  private show(shares: readonly number[]): void {
    const order = [...shares.keys()].sort((a, b) => shares[b]! - shares[a]!);
    const percent = (k: number) => `${(100 * shares[k]!).toFixed(0)} %`;
    write("answer", `${this.names[order[0]!]!}: ${percent(order[0]!)}`);
    const bars = order.slice(0, SHOWN_CLASSES).map((k, place) => {
      const bar = document.createElement("li");
      bar.innerHTML = "<b></b><span></span><small></small>";
      bar.classList.toggle("best", place === 0);
      bar.querySelector("b")!.textContent = this.names[k]!;
      bar.querySelector("span")!.style.setProperty("--part", `${100 * shares[k]!}%`);
      bar.querySelector("small")!.textContent = percent(k);
      return bar;
    });
    find("bars").replaceChildren(...bars);
  }

  /** How far the logits of a picture of the page are from PyTorch's. */
  private compare(logits: readonly number[], k: number): void {
    if (!this.isOurs || this.side.valueAsNumber !== this.facts.side) {
      return;
    }
    const wanted = this.facts.logits[k]!;
    const most = Math.max(...logits.map((logit, c) => Math.abs(logit - wanted[c]!)));
    const status = find("status");
    status.textContent +=
      ` It is a ${this.names[this.facts.labels[k]!]!}. From PyTorch's logits, computed on a CPU, ` +
      `these differ by ${most.toExponential(1)} at most.`;
    status.dataset.difference = String(most);
  }
}

/** The bytes of a file, with the bar. */
async function fetchBytes(name: string): Promise<Uint8Array> {
  const response = await fetchFile(name);
  const totalBytes = Number(response.headers.get("content-length"));
  const parts: Uint8Array<ArrayBuffer>[] = [];
  let bytes = 0;
  for (const reader = response.body!.getReader(); ;) {
    const { done, value } = await reader.read();
    if (done) {
      return new Uint8Array(await new Blob(parts).arrayBuffer());
    }
    parts.push(value);
    bytes += value.length;
    showProgress({ bytes, totalBytes, pipelines: 0, totalPipelines: 0 });
  }
}

void start(async () => {
  await torch.init();
  const [facts, pictures] = await Promise.all([
    fetchFile("resnet.json").then((response) => response.json() as Promise<Facts>),
    fetchFile("pictures.bin").then((response) => response.arrayBuffer()),
  ]);
  const bytes = await fetchBytes("shapes.safetensors");
  const page = torch.scope(
    () => new Page(safetensors.load(bytes), facts, new Uint8Array(pictures)),
  );
  Object.assign(globalThis, { page }); // for those who look with the console
  find("samples").querySelector("button")!.click();
});
