/** A curve of losses, with a running mean. */

export class Plot {
  private readonly losses: number[] = [];
  private drawing = 0;

  constructor(
    private readonly canvas: HTMLCanvasElement,
    private readonly steps: number,
  ) {
    new ResizeObserver(() => this.draw()).observe(canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  /** The curve of the first steps only. */
  cut(steps: number): void {
    this.losses.length = Math.min(this.losses.length, steps);
    this.draw();
  }

  add(loss: number): void {
    this.losses.push(loss);
    this.drawing ||= requestAnimationFrame(() => this.draw());
  }

  private draw(): void {
    this.drawing = 0;
    const { canvas } = this;
    const height = 220;
    const width = canvas.clientWidth;
    const scale = devicePixelRatio;
    canvas.width = width * scale;
    canvas.height = height * scale;
    canvas.style.height = `${height}px`;
    const context = canvas.getContext("2d")!;
    const style = getComputedStyle(document.documentElement);
    const color = (name: string) => style.getPropertyValue(name);
    context.scale(scale, scale);
    context.font = "12px system-ui, sans-serif";
    const [left, right, top, bottom] = [32, width - 8, 8, height - 22];
    const most = Math.max(2.5, ...this.losses);
    const x = (step: number) => left + ((right - left) * step) / this.steps;
    const y = (loss: number) => bottom - ((bottom - top) * loss) / most;
    context.fillStyle = color("--faint");
    context.strokeStyle = color("--line");
    context.textAlign = "right";
    for (let loss = 0; loss <= most; loss += 0.5) {
      context.beginPath();
      context.moveTo(left, y(loss));
      context.lineTo(right, y(loss));
      context.stroke();
      context.fillText(loss.toFixed(1), left - 6, y(loss) + 4);
    }
    for (let step = 0; step <= this.steps; step += 100) {
      context.textAlign = step === 0 ? "left" : "center";
      context.fillText(String(step), x(step), height - 6);
    }
    this.curve(context, this.losses, x, y, color("--bar"), 1);
    let mean = this.losses[0] ?? 0;
    const smooth = this.losses.map((loss) => (mean += 0.2 * (loss - mean)));
    this.curve(context, smooth, x, y, color("--accent"), 2);
  }

  private curve(
    context: CanvasRenderingContext2D,
    losses: readonly number[],
    x: (step: number) => number,
    y: (loss: number) => number,
    color: string,
    width: number,
  ): void {
    context.strokeStyle = color;
    context.lineWidth = width;
    context.beginPath();
    losses.forEach((loss, step) => context.lineTo(x(step), y(loss)));
    context.stroke();
  }
}
