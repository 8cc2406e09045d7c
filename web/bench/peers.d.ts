/** What the pages use of the peers, whose packages are installed by `make bench-web` only. */

declare module "onnxruntime-web/webgpu" {
  export const env: {
    wasm: { wasmPaths?: string | { mjs?: string; wasm?: string }; numThreads?: number };
  };
  export class Tensor {
    constructor(
      type: "float32" | "int64",
      data: Float32Array | BigInt64Array,
      shape: readonly number[],
    );
    readonly data: Float32Array;
    dispose(): void;
  }
  export const InferenceSession: {
    create(
      url: string,
      options: object,
    ): Promise<{ run(feeds: Record<string, Tensor>): Promise<Record<string, Tensor>> }>;
  };
}

declare module "@huggingface/transformers" {
  export const env: {
    allowRemoteModels: boolean;
    allowLocalModels: boolean;
    localModelPath: string;
    backends: {
      onnx: { wasm: { wasmPaths?: { mjs: string; wasm: string }; numThreads?: number } };
    };
  };
  export class Tensor {
    constructor(
      type: "float32" | "int64",
      data: Float32Array | BigInt64Array,
      shape: readonly number[],
    );
    readonly data: Float32Array;
  }
  type Model = (inputs: Record<string, Tensor>) => Promise<Record<string, Tensor>>;
  interface Loader {
    from_pretrained(name: string, options: { device: string; dtype: string }): Promise<Model>;
  }
  export const AutoModel: Loader;
  export const AutoModelForImageClassification: Loader;
}

declare module "@tensorflow/tfjs-backend-webgpu";
declare module "@tensorflow/tfjs-core/dist/register_all_gradients.js";

declare module "@tensorflow/tfjs-core" {
  export class Tensor {
    readonly shape: number[];
    data(): Promise<Float32Array>;
    dispose(): void;
  }
  // Ranks are the page's own business: an operation returns what is asked of it.
  export class Scalar extends Tensor {}
  export class Tensor1D extends Tensor {}
  export class Tensor2D extends Tensor {
    override readonly shape: [number, number];
  }
  export class Tensor3D extends Tensor {}
  export class Tensor4D extends Tensor {}
  type Values = Float32Array | Int32Array | readonly number[];
  type Unary = <T extends Tensor>(x: T) => T;
  type Binary = <T extends Tensor>(a: T, b: Tensor | number) => T;
  export function setBackend(name: string): Promise<boolean>;
  export function tidy<T>(work: () => T): T;
  export function keep<T extends Tensor>(x: T): T;
  export function dispose(all: readonly Tensor[]): void;
  export function tensor(values: Values, shape: readonly number[], dtype?: string): Tensor;
  export function tensor1d(values: Values, dtype?: string): Tensor1D;
  export function tensor4d(values: Values, shape: readonly number[]): Tensor4D;
  export function variable<T extends Tensor>(x: T): T;
  export const add: Binary;
  export const sub: Binary;
  export const mul: Binary;
  export const div: Binary;
  export const pow: Binary;
  export const clone: Unary;
  export const neg: Unary;
  export const sqrt: Unary;
  export const rsqrt: Unary;
  export const square: Unary;
  export const cos: Unary;
  export const sin: Unary;
  export const tanh: Unary;
  export const erf: Unary;
  export const relu: Unary;
  export const softmax: Unary;
  export const logSoftmax: Unary;
  export function cast<T extends Tensor>(x: T, dtype: string): T;
  export function oneHot(indices: Tensor, depth: number): Tensor2D;
  export function sum(x: Tensor, axis?: number, keep?: boolean): Tensor;
  export function mean(x: Tensor, axis: readonly number[]): Tensor2D;
  export function moments(
    x: Tensor,
    axis: number,
    keep: boolean,
  ): { mean: Tensor; variance: Tensor };
  export function gather(x: Tensor, indices: Tensor): Tensor;
  export function slice<T extends Tensor>(
    x: T,
    begin: readonly number[],
    size: readonly number[],
  ): T;
  export function concat<T extends Tensor>(all: readonly T[], axis: number): T;
  export function split(x: Tensor, parts: number, axis: number): Tensor[];
  export function pad<T extends Tensor>(x: T, sizes: readonly (readonly [number, number])[]): T;
  export function reshape(x: Tensor, shape: readonly number[]): Tensor;
  export function transpose(x: Tensor, order: readonly number[]): Tensor;
  export function matMul<T extends Tensor>(
    a: T,
    b: Tensor,
    transposeA?: boolean,
    transposeB?: boolean,
  ): T;
  export function conv2d(x: Tensor4D, filter: Tensor4D, strides: number, pad: number): Tensor4D;
  export function maxPool(
    x: Tensor4D,
    size: number,
    strides: number,
    pad: number | "valid",
  ): Tensor4D;
  export const fused: {
    matMul(given: { a: Tensor2D; b: Tensor2D; transposeB: boolean; bias?: Tensor }): Tensor2D;
    conv2d(given: {
      x: Tensor4D;
      filter: Tensor4D;
      strides: number;
      pad: number;
      bias: Tensor;
      activation: string;
    }): Tensor4D;
  };
  export const train: {
    adam(
      rate: number,
      beta1: number,
      beta2: number,
      epsilon: number,
    ): { minimize(loss: () => Scalar, returnCost: boolean): Scalar | null };
  };
}
