// Tensors as text, as PyTorch prints them (torch/_tensor_str.py describes the format).
import { valueAt, type TypedArray } from "./dtype";
import type { Tensor } from "./tensor";

const PRECISION = 4;
const THRESHOLD = 1000;
const EDGE_ITEMS = 3;
const LINE_WIDTH = 80;

// Python's %.{digits}e: an exponent of at least two digits, and exact halves round to even, where JavaScript rounds up.
function exponential(value: number, digits: number): string {
  const exact = value.toExponential(100);
  const point = exact.indexOf(".");
  const kept = exact.slice(0, point + 1 + digits);
  const tie = /^50*e/.test(exact.slice(kept.length));
  const isEven = Number(kept.at(-1)) % 2 === 0;
  const text = tie && isEven ? kept + exact.slice(exact.indexOf("e")) : value.toExponential(digits);
  return text.replace(/e([+-])(\d)$/, "e$10$2");
}

interface Formatter {
  width: number;
  format: (value: number | bigint | boolean) => string;
}

// Python's %.4f, which rounds exact halves to even. A float32 times 10^4 is exact in a double.
function fixed(value: number): string {
  const scaled = Math.abs(value) * 10 ** PRECISION;
  const below = Math.floor(scaled);
  const tie = scaled - below === 0.5;
  const text = tie
    ? ((below + (below % 2)) / 10 ** PRECISION).toFixed(PRECISION)
    : Math.abs(value).toFixed(PRECISION);
  return (value < 0 || Object.is(value, -0) ? "-" : "") + text;
}

// The width counts the finite values other than zero.
function formatter(values: (number | bigint | boolean)[], floating: boolean): Formatter {
  const widest = (texts: string[]): number =>
    texts.reduce((w, text) => Math.max(w, text.length), 1);
  if (!floating) {
    const plain = (value: number | bigint | boolean): string =>
      typeof value === "boolean" ? (value ? "True" : "False") : String(value);
    return { width: widest(values.map(plain)), format: plain };
  }
  const finite = values.map(Number).filter((value) => Number.isFinite(value) && value !== 0);
  const sizes = finite.map(Math.abs);
  const largest = sizes.reduce((a, b) => Math.max(a, b), 0);
  const least = sizes.reduce((a, b) => Math.min(a, b), Infinity);
  const whole = finite.every(Number.isInteger);
  const scientific = finite.length > 0 && (largest / least > 1000 || largest > 1e8 || least < 1e-4);
  const plain = (value: number | bigint | boolean): string => {
    const number = Number(value);
    if (!Number.isFinite(number)) {
      return Number.isNaN(number) ? "nan" : number > 0 ? "inf" : "-inf";
    }
    const sign = Object.is(number, -0) ? "-" : "";
    return scientific
      ? sign + exponential(number, PRECISION)
      : whole
        ? `${sign}${number.toFixed(0)}.`
        : fixed(number);
  };
  return { width: widest(finite.map(plain)), format: plain };
}

/** The text of a tensor whose elements are `values`, in order. */
export function format(tensor: Tensor, values: TypedArray): string {
  const { shape, dtype } = tensor;
  const count = tensor.numel();
  const prefix = "tensor(";
  const suffixes: string[] = [];
  const floating = tensor.is_floating_point();
  if (count === 0) {
    if (shape.length !== 1) {
      suffixes.push(`size=(${shape.join(", ")}${shape.length === 1 ? "," : ""})`);
    }
  }
  if (!["float32", "int64", "bool"].includes(dtype) || (count === 0 && dtype !== "float32")) {
    suffixes.push(`dtype=torch.${dtype}`);
  }
  const summarize = count > THRESHOLD;
  const shown: number[] = [];
  const visit = (d: number, at: number): void => {
    if (d === shape.length) {
      shown.push(at);
      return;
    }
    const step = shape.slice(d + 1).reduce((a, b) => a * b, 1);
    for (let i = 0; i < shape[d]!; i++) {
      if (summarize && shape[d]! > 2 * EDGE_ITEMS && i === EDGE_ITEMS) {
        i = shape[d]! - EDGE_ITEMS;
      }
      visit(d + 1, at + i * step);
    }
  };
  visit(0, 0);
  const value = (i: number): number | bigint | boolean => valueAt(values, i, dtype);
  const { width, format: plain } = formatter(shown.map(value), floating);

  const body = (d: number, at: number, indent: number): string => {
    if (d === shape.length) {
      return plain(value(at)).padStart(width);
    }
    const size = shape[d]!;
    const step = shape.slice(d + 1).reduce((a, b) => a * b, 1);
    const short = summarize && size > 2 * EDGE_ITEMS;
    const places = short
      ? [0, 1, 2, -1, size - 3, size - 2, size - 1]
      : Array.from({ length: size }, (_, i) => i);
    const dots = d + 1 < shape.length ? "..." : " ...";
    const parts = places.map((i) => (i < 0 ? dots : body(d + 1, at + i * step, indent + 1)));
    if (d + 1 < shape.length) {
      const gap = `,${"\n".repeat(shape.length - d - 1)}${" ".repeat(indent + 1)}`;
      return `[${parts.join(gap)}]`;
    }
    const perLine = Math.max(1, Math.floor((LINE_WIDTH - indent) / (width + 2)));
    const lines: string[] = [];
    for (let i = 0; i < parts.length; i += perLine) {
      lines.push(parts.slice(i, i + perLine).join(", "));
    }
    return `[${lines.join(`,\n${" ".repeat(indent + 1)}`)}]`;
  };
  const text = count === 0 ? "[]" : body(0, 0, prefix.length);
  if (tensor.grad_fn !== undefined) {
    suffixes.push(`grad_fn=<${tensor.grad_fn.name}>`);
  } else if (tensor.requires_grad) {
    suffixes.push("requires_grad=True");
  }
  let all = prefix + text;
  let lineLength = all.length - all.lastIndexOf("\n") + 1;
  for (const suffix of suffixes) {
    const fits = lineLength + suffix.length + 2 <= LINE_WIDTH;
    all += fits ? `, ${suffix}` : `,\n${" ".repeat(prefix.length)}${suffix}`;
    lineLength = fits ? lineLength + suffix.length + 2 : prefix.length + suffix.length;
  }
  return `${all})`;
}
