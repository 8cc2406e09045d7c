/** Plays PyTorch programs that torch.webgpu.export or Graph.save wrote (docs/graph-format.md). */

export { DeviceLostError, GraphFileError, KernelError } from "./errors";
export type { DType, TypedArray } from "./dtypes";
export {
  type AnyFunctions,
  type File,
  type FunctionType,
  type GpuTensor,
  type Input,
  type InputOf,
  load,
  type LoadOptions,
  type Output,
  type OutputOf,
  type Outputs,
  type Placed,
  Player,
  type PlayerOf,
  type Progress,
  type RunOptions,
  type TensorType,
} from "./player";
