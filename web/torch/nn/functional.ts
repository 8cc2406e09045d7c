// torch.nn.functional
import { binary, unary } from "../ops/pointwise";

export * from "../ops/loss";
export * from "../ops/normalize";
export * from "../ops/conv";
export * from "../ops/pool";
export { pad } from "../ops/pad";
export * from "../ops/image";
export { grid_sample, interpolate, type Resampling } from "../ops/resample";
export {
  alpha_dropout,
  dropout,
  dropout1d,
  dropout2d,
  dropout3d,
  feature_alpha_dropout,
  gumbel_softmax,
  rrelu,
} from "../ops/random";
export { embedding, one_hot } from "../ops/indexing";
export { bilinear, linear } from "../ops/matmul";
export { fold, unfold_image as unfold } from "../ops/spatial";
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
