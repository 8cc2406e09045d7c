// Shapes: broadcasting, and the dimensions that a kernel has to walk.
import { check } from "../errors";

/** The common shape of operands; raises as PyTorch does. */
export function broadcastShapes(...shapes: (readonly number[])[]): number[] {
  const rank = Math.max(0, ...shapes.map((shape) => shape.length));
  const result = new Array<number>(rank).fill(1);
  for (const shape of shapes) {
    const skipped = rank - shape.length;
    shape.forEach((size, d) => {
      const at = skipped + d;
      if (size === 1 || size === result[at]) {
        return;
      }
      check(
        result[at] === 1,
        () =>
          `The size of tensor a (${result[at]!}) must match the size of tensor b (${size}) at ` +
          `non-singleton dimension ${at}`,
      );
      result[at] = size;
    });
  }
  return result;
}

/** The strides of a tensor expanded to `shape`. */
export function expandedStrides(
  of: { shape: readonly number[]; strides: readonly number[] },
  shape: readonly number[],
): number[] {
  const skipped = shape.length - of.shape.length;
  return shape.map((size, d) =>
    d < skipped || (of.shape[d - skipped] === 1 && size !== 1) ? 0 : of.strides[d - skipped]!,
  );
}

export interface Walk {
  /** Innermost first. */
  sizes: number[];
  /** Of each operand, innermost first. */
  strides: number[][];
}

/** Merges dimensions where every operand's strides allow it, and leaves out those of size 1. */
export function collapse(shape: readonly number[], operands: readonly (readonly number[])[]): Walk {
  const sizes: number[] = [];
  const strides: number[][] = operands.map(() => []);
  for (let d = shape.length - 1; d >= 0; d--) {
    const size = shape[d]!;
    if (size === 1) {
      continue;
    }
    const last = sizes.length - 1;
    const merges =
      last >= 0 && operands.every((own, k) => own[d]! === strides[k]![last]! * sizes[last]!);
    if (merges) {
      sizes[last] = sizes[last]! * size;
    } else {
      sizes.push(size);
      operands.forEach((own, k) => strides[k]!.push(own[d]!));
    }
  }
  return { sizes, strides };
}
