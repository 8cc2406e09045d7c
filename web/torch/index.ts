// torch-webgpu/torch: PyTorch's names for eager tensors on WebGPU, in a page and in Node.
import * as autograd from "./autograd";
import { addMethods } from "./methods";
import * as asynchronous from "./ops/asynchronous";
import * as compose from "./ops/compose";
import * as conv from "./ops/conv";
import * as factory from "./ops/factory";
import { pixel_shuffle, pixel_unshuffle, channel_shuffle } from "./ops/image";
import * as indexing from "./ops/indexing";
import * as loss from "./ops/loss";
import * as matmul from "./ops/matmul";
import * as movement from "./ops/movement";
import * as normalize from "./ops/normalize";
import * as pointwise from "./ops/pointwise";
import * as pool from "./ops/pool";
import * as random from "./ops/random";
import * as reduce from "./ops/reduce";
import * as sort from "./ops/sort";
import { fold, unfold_image } from "./ops/spatial";
import { NotImplementedError, RuntimeError } from "./errors";
import { notImplemented } from "./missing";
import * as nnModule from "./nn";
import * as optimModule from "./optim";
import * as pt from "./io/pt";
import { save } from "./io/save";
import * as safetensors from "./io/safetensors";
import { Runtime } from "./runtime";
import {
  checkedClasses,
  checkedFunction,
  checkedFunctional,
  checkedFunctions,
  checkMethods,
} from "./signatures";
import { runtime, scope, setRuntime } from "./storage";
import { Tensor } from "./tensor";

addMethods();
checkMethods("Tensor", Tensor.prototype);
checkMethods("Module", nnModule.Module.prototype);
checkMethods("Optimizer", optimModule.Optimizer.prototype);

const WANTED_LIMITS = [
  "maxBufferSize",
  "maxStorageBufferBindingSize",
  "maxStorageBuffersPerShaderStage",
] as const;

/**
 * Asks for a GPU, or takes a device that the caller has; both by the standard's names. Tensors live
 * on the device of the last call. In Node, pass the device of a WebGPU module.
 */
async function init(device?: GPUDevice): Promise<GPUDevice> {
  let chosen = device;
  if (chosen === undefined) {
    // navigator is absent in Node, and its gpu in browsers without WebGPU.
    const gpu = (globalThis.navigator as Partial<Navigator> | undefined)?.gpu;
    if (gpu === undefined) {
      throw new NotImplementedError(
        "there is no WebGPU here: open the page in a browser that has it (Chrome, Edge, Safari 26, " +
          "Firefox 141), over https or on localhost; in Node, pass a GPUDevice",
      );
    }
    const adapter = await gpu.requestAdapter({ powerPreference: "high-performance" });
    if (adapter === null) {
      throw new RuntimeError("WebGPU finds no GPU");
    }
    const requiredLimits = Object.fromEntries(
      WANTED_LIMITS.map((name) => [name, adapter.limits[name]]),
    );
    chosen = await adapter.requestDevice({ requiredLimits });
  }
  setRuntime(new Runtime(chosen));
  return chosen;
}

const { unary, binary, ...plain } = pointwise;
const { aliases, ...composed } = compose;

const operators = checkedFunctions({
  ...unary,
  ...binary,
  ...plain,
  ...asynchronous,
  ...aliases,
  ...composed,
  ...conv,
  ...factory,
  ...indexing,
  ...loss,
  ...matmul,
  ...movement,
  ...normalize,
  ...pool,
  ...random,
  ...reduce,
  ...sort,
  ...{ channel_shuffle, fold, pixel_shuffle, pixel_unshuffle, unfold_image },
  var: reduce.variance,
});

/** What a name that does not exist gives: an error that says so, where undefined would only say "not a function". */
function named<T extends object>(members: T, prefix: string): T {
  return new Proxy(members, {
    get(target, name, receiver) {
      if (typeof name === "string" && !(name in target) && name !== "then" && name !== "toJSON") {
        throw notImplemented(`${prefix}.${name}`);
      }
      return Reflect.get(target, name, receiver) as unknown;
    },
  });
}

export const torch = named(
  {
    ...operators,
    ...({ float32: "float32", float16: "float16", int32: "int32", int64: "int64" } as const),
    ...({ bool: "bool", float: "float32", half: "float16", int: "int32", long: "int64" } as const),
    ...{ init, scope, Tensor, autograd: { grad: checkedFunction("autograd.grad", autograd.grad) } },
    no_grad: autograd.no_grad,
    enable_grad: autograd.enable_grad,
    set_grad_enabled: autograd.set_grad_enabled,
    is_grad_enabled: autograd.is_grad_enabled,
    /** Reads a .pt file of tensors that Python's torch.save wrote. */
    load: pt.load,
    /** Writes a .pt file that Python's torch.load reads. */
    save,
    /** Waits until the GPU is done; raises what went wrong since. */
    synchronize: () => runtime().synchronize(),
    /** Bytes of GPU memory in use, free for reuse, and most in use. */
    memory: () => ({ ...runtime().memory }),
    empty_cache: () => {
      runtime().emptyCache();
    },
  } as const,
  "torch",
);

export const nn = named(
  {
    ...checkedClasses(nnModule),
    functional: named(checkedFunctional({ ...nnModule.functional }), "torch.nn.functional"),
    utils: named(checkedFunctions({ ...nnModule.utils }), "torch.nn.utils"),
  },
  "torch.nn",
);

// A constant has no types: these are the classes of nn as such.
/* eslint-disable-next-line @typescript-eslint/no-namespace -- there is no other way to give them */
export declare namespace nn {
  export type Module = nnModule.Module;
  export type Parameter = nnModule.Parameter;
  export type StateDict = nnModule.StateDict;
  export type Identity = nnModule.Identity;
  export type Linear = nnModule.Linear;
  export type Conv2d = nnModule.Conv2d;
  export type Conv3d = nnModule.Conv3d;
  export type Conv1d = nnModule.Conv1d;
  export type ConvTranspose2d = nnModule.ConvTranspose2d;
  export type ConvTranspose3d = nnModule.ConvTranspose3d;
  export type ConvTranspose1d = nnModule.ConvTranspose1d;
  export type Embedding = nnModule.Embedding;
  export type LayerNorm = nnModule.LayerNorm;
  export type RMSNorm = nnModule.RMSNorm;
  export type BatchNorm1d = nnModule.BatchNorm1d;
  export type BatchNorm2d = nnModule.BatchNorm2d;
  export type BatchNorm3d = nnModule.BatchNorm3d;
  export type InstanceNorm1d = nnModule.InstanceNorm1d;
  export type InstanceNorm2d = nnModule.InstanceNorm2d;
  export type InstanceNorm3d = nnModule.InstanceNorm3d;
  export type GroupNorm = nnModule.GroupNorm;
  export type Dropout = InstanceType<typeof nnModule.Dropout>;
  export type PReLU = nnModule.PReLU;
  export type Bilinear = nnModule.Bilinear;
  export type ParameterList = nnModule.ParameterList;
  export type Sequential = nnModule.Sequential;
  export type ModuleList = nnModule.ModuleList;
  export type ModuleDict = nnModule.ModuleDict;
  export type MultiheadAttention = nnModule.MultiheadAttention;
  export type Transformer = nnModule.Transformer;
  export type TransformerDecoder = nnModule.TransformerDecoder;
  export type TransformerDecoderLayer = nnModule.TransformerDecoderLayer;
  export type TransformerEncoder = nnModule.TransformerEncoder;
  export type TransformerEncoderLayer = nnModule.TransformerEncoderLayer;
  export type LSTM = nnModule.LSTM;
  export type LSTMCell = nnModule.LSTMCell;
  export type GRU = nnModule.GRU;
  export type GRUCell = nnModule.GRUCell;
  export type RNN = nnModule.RNN;
  export type RNNCell = nnModule.RNNCell;
}

export const optim = named({ ...optimModule }, "torch.optim");

/* eslint-disable-next-line @typescript-eslint/no-namespace -- as above */
export declare namespace optim {
  export type Adam = optimModule.Adam;
  export type AdamOptions = optimModule.AdamOptions;
  export type AdamW = optimModule.AdamW;
  export type OptimizerStateDict = optimModule.OptimizerStateDict;
  export type Params<Options> = optimModule.Params<Options>;
  export type SGD = optimModule.SGD;
  export type SGDOptions = optimModule.SGDOptions;
}

export { safetensors };
export { NotImplementedError, RuntimeError } from "./errors";
export type { DType, Scalar } from "./dtype";
export { Slice, type Index } from "./ops/movement";
export { Tensor, type Nested } from "./tensor";
