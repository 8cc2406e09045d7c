// Gradients of pointwise rows, by the names of rows: a formula for each input, as tools/gradients.mjs makes them of
// csrc/ops/pointwise/rows.yaml.
import * as generated from "./generated/gradients.mjs";
import type { Context } from "./ops/elementwise";
import type { Tensor } from "./tensor";

/** The gradient of an input from that of the result. */
export type Formula = (g: Tensor, x: Context) => Tensor;

/** Undefined for an input that PyTorch has no gradient for. */
export const formulas = (): Partial<Record<string, readonly (Formula | undefined)[]>> =>
  generated.formulas;
