// torch.nn.functional
import { NotImplementedError } from "../errors";
import { constant_pad } from "../ops/movement";
import { binary, unary } from "../ops/pointwise";
import type { Tensor } from "../tensor";

export * from "../ops/loss";
export * from "../ops/normalize";
export {
  adaptive_avg_pool1d,
  adaptive_avg_pool2d,
  adaptive_max_pool1d,
  adaptive_max_pool2d,
  avg_pool1d,
  avg_pool2d,
  conv1d,
  conv2d,
  conv_transpose1d,
  conv_transpose2d,
  fold,
  max_pool1d,
  max_pool2d,
  max_pool2d_with_indices,
} from "../ops/spatial";
export { dropout } from "../ops/random";
export { embedding, one_hot } from "../ops/indexing";
export { linear } from "../ops/matmul";
export { unfold_image as unfold } from "../ops/spatial";
export {
  celu,
  elu,
  gelu,
  glu,
  hardshrink,
  hardtanh,
  leaky_relu,
  logsigmoid,
  prelu,
  relu,
  relu6,
  selu,
  softplus,
  softshrink,
  softsign,
  tanhshrink,
  threshold,
} from "../ops/pointwise";
export const { hardsigmoid, hardswish, mish, sigmoid, silu, tanh } = unary;
export const { maximum, minimum } = binary;

/** Padding from the last dimension: [left, right, top, bottom, ...]. */
export function pad(
  input: Tensor,
  sizes: readonly number[],
  mode: "constant" = "constant",
  value = 0,
): Tensor {
  if ((mode as string) !== "constant") {
    throw new NotImplementedError(`pad(): the mode ${String(mode)}; there is "constant"`);
  }
  return constant_pad(input, sizes, value);
}
