/** Drawing with the mouse, a pen or a finger, and what of it the network sees. */

/** The side of the images of the data set, and the side of the pictures that they were made of: a
 * pixel is the share of the 4x4 points under it that are set. */
export const SIDE = 8;
const POINTS = 32;

export class Pad {
  private readonly context: CanvasRenderingContext2D;

  constructor(
    private readonly canvas: HTMLCanvasElement,
    onChange: () => void,
  ) {
    this.context = canvas.getContext("2d", { willReadFrequently: true })!;
    this.clear();
    let last: [number, number] | null = null;
    const place = (event: PointerEvent): [number, number] => {
      const box = canvas.getBoundingClientRect();
      const scale = canvas.width / box.width;
      return [(event.clientX - box.left) * scale, (event.clientY - box.top) * scale];
    };
    canvas.addEventListener("pointerdown", (event) => {
      if (event.button === 0) {
        canvas.setPointerCapture(event.pointerId);
        last = place(event);
        this.line(last, last);
        onChange();
      }
    });
    canvas.addEventListener("pointermove", (event) => {
      if (last !== null) {
        const now = place(event);
        this.line(last, now);
        last = now;
        onChange();
      }
    });
    for (const name of ["pointerup", "pointercancel"]) {
      canvas.addEventListener(name, () => {
        last = null;
      });
    }
  }

  clear(): void {
    this.context.fillStyle = "#000";
    this.context.fillRect(0, 0, this.canvas.width, this.canvas.height);
  }

  /** Shows an image of the data set. */
  show(image: Float32Array): void {
    this.clear();
    const small = new OffscreenCanvas(SIDE, SIDE);
    small.getContext("2d")!.putImageData(toPixels(image), 0, 0);
    const { width, height } = this.canvas;
    this.context.imageSmoothingEnabled = false;
    this.context.drawImage(small, 0, 0, width, height);
  }

  /** The drawing as the images of the data set are: as large as fits, in the middle. Null if nothing
   * is drawn. */
  image(): Float32Array<ArrayBuffer> | null {
    const { width, height } = this.canvas;
    const { data } = this.context.getImageData(0, 0, width, height);
    let [left, right, top, bottom] = [width, -1, height, -1];
    for (let y = 0; y < height; ++y) {
      for (let x = 0; x < width; ++x) {
        if (data[(y * width + x) * 4]! > 127) {
          left = Math.min(left, x);
          right = Math.max(right, x);
          top = Math.min(top, y);
          bottom = Math.max(bottom, y);
        }
      }
    }
    if (right < 0) {
      return null;
    }
    const [w, h] = [right - left + 1, bottom - top + 1];
    const scale = Math.max(w, h) / POINTS;
    const image = new Float32Array(SIDE * SIDE);
    const step = POINTS / SIDE;
    for (let y = 0; y < POINTS; ++y) {
      for (let x = 0; x < POINTS; ++x) {
        const fromX = Math.floor(left + w / 2 + (x + 0.5 - POINTS / 2) * scale);
        const fromY = Math.floor(top + h / 2 + (y + 0.5 - POINTS / 2) * scale);
        const isInside = fromX >= 0 && fromX < width && fromY >= 0 && fromY < height;
        if (isInside && data[(fromY * width + fromX) * 4]! > 127) {
          image[Math.floor(y / step) * SIDE + Math.floor(x / step)]! += 1 / step ** 2;
        }
      }
    }
    return image;
  }

  private line(from: [number, number], to: [number, number]): void {
    this.context.strokeStyle = "#fff";
    this.context.lineWidth = this.canvas.width / 11;
    this.context.lineCap = "round";
    this.context.beginPath();
    this.context.moveTo(...from);
    this.context.lineTo(...to);
    this.context.stroke();
  }
}

export function toPixels(image: Float32Array): ImageData {
  const pixels = new ImageData(SIDE, SIDE);
  image.forEach((value, k) => {
    const shade = Math.round(Math.min(Math.max(value, 0), 1) * 255);
    pixels.data.set([shade, shade, shade, 255], k * 4);
  });
  return pixels;
}
