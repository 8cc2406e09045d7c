// Padding of images (nn.functional.pad).
import { check, NotImplementedError } from "../errors";
import type { Tensor } from "../tensor";
import { tensor } from "./factory";
import { index_select } from "./indexing";
import { checkRoom } from "./checks";
import { constant_pad } from "./movement";

export type PadMode = "constant" | "reflect" | "replicate" | "circular";

interface Mode {
  /** Whether so many places beyond an end of the dimension can be filled. */
  fits: (places: number, size: number) => boolean;
  refusal: string;
  /** Which place of the dimension lies at a place outside of it. */
  source: (place: number, size: number) => number;
}

const MODES: Record<Exclude<PadMode, "constant">, Mode> = {
  reflect: {
    fits: (places, size) => places < size,
    refusal: "Padding size should be less than the corresponding input dimension",
    source: (place, size) => (place < 0 ? -place : place >= size ? 2 * (size - 1) - place : place),
  },
  replicate: {
    fits: (places, size) => places <= 0 || size > 0,
    refusal: "Expected a non-empty dimension",
    source: (place, size) => Math.min(Math.max(place, 0), size - 1),
  },
  circular: {
    fits: (places, size) => places <= size,
    refusal: "Padding value causes wrapping around more than once",
    source: (place, size) => (place + size) % size,
  },
};

/** Padding from the last dimension: [left, right, top, bottom, ...]. Negative numbers cut. */
export function pad(
  input: Tensor,
  sizes: readonly number[],
  mode: PadMode = "constant",
  value?: number,
): Tensor {
  if (mode === "constant") {
    return constant_pad(input, sizes, value);
  }
  if (!Object.hasOwn(MODES, mode)) {
    throw new NotImplementedError(`Unrecognised padding mode ${String(mode)}`);
  }
  check(
    value === undefined || value === 0,
    () => `Padding mode "${mode}" doesn't take in value argument`,
  );
  const dims = sizes.length / 2;
  if (
    ![1, 2, 3].includes(dims) ||
    (input.dim() !== dims + 1 && input.dim() !== dims + 2) ||
    input.dim() < 2
  ) {
    throw new NotImplementedError(
      "Only 2D, 3D, 4D, 5D padding with non-constant padding are supported for now",
    );
  }
  const { fits, refusal, source } = MODES[mode];
  let out = input;
  for (let k = 0; k < dims; k++) {
    const d = input.dim() - 1 - k;
    const [before, after] = [sizes[2 * k]!, sizes[2 * k + 1]!];
    const size = input.shape[d]!;
    // In circles goes what a negative padding has left.
    const first = mode === "circular" ? Math.max(-before, 0) : 0;
    const left = mode === "circular" ? size - first + Math.min(after, 0) : size;
    const length = size + before + after;
    check(
      fits(before, left) && fits(after, left) && length >= 0,
      () =>
        `${refusal}, but got: padding (${before}, ${after}) at dimension ${d} of input [${input.shape.join(", ")}]`,
    );
    checkRoom(length);
    if (before !== 0 || after !== 0) {
      const index = Array.from(
        { length },
        (_, place) => first + source(place - before - first, left),
      );
      out = index_select(out, d, tensor(index, { dtype: "int64" }));
    }
  }
  return out;
}
