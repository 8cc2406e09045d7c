// A tensor: a view of a storage, its dtype, and its place on the tape.
import { backward, needsGrad, type Node } from "./autograd";
import { dtypeInfo, valueAt, view, type DType, type Scalar, type TypedArray } from "./dtype";
import { check } from "./errors";
import { format } from "./print";
import { checkArgument } from "./signatures";
import { Storage } from "./storage";
import type { Methods as AllMethods } from "./methods";

export type Nested = Scalar | Nested[];

export const numelOf = (shape: readonly number[]): number => shape.reduce((a, b) => a * b, 1);

/** The strides of a contiguous tensor. */
export function contiguousStrides(shape: readonly number[]): number[] {
  const strides = new Array<number>(shape.length);
  let step = 1;
  for (let d = shape.length - 1; d >= 0; d--) {
    strides[d] = step;
    step *= Math.max(shape[d]!, 1);
  }
  return strides;
}

// eslint-disable-next-line @typescript-eslint/no-unsafe-declaration-merging -- methods.ts adds the operators
export class Tensor {
  /** Of a leaf: whether backward() fills `grad`. */
  private leafRequiresGrad = false;
  private ownGrad: Tensor | undefined;
  /** The node that made this tensor; undefined for leaves. */
  grad_fn: Node | undefined;

  /** `strides` and `storage_offset` count elements. */
  constructor(
    readonly storage: Storage,
    readonly dtype: DType,
    readonly shape: readonly number[],
    readonly strides: readonly number[],
    readonly storage_offset = 0,
  ) {}

  /** A new contiguous tensor whose elements have any values. */
  static empty(size: readonly number[] | number, dtype: DType): Tensor {
    const shape = [size].flat();
    check(
      shape.every((size) => Number.isInteger(size) && size >= 0),
      () => `Trying to create tensor with negative dimension: [${shape.join(", ")}]`,
    );
    const storage = new Storage(numelOf(shape) * dtypeInfo(dtype).bytes);
    return new Tensor(storage, dtype, shape, contiguousStrides(shape));
  }

  /** @internal Becomes another tensor of its shape: what modules do to cast their parameters in place. */
  become(other: Tensor): void {
    const { storage, dtype, strides, storage_offset } = other;
    Object.assign(this, { storage, dtype, strides, storage_offset });
  }

  /** The same memory seen with another shape. */
  viewed(shape: readonly number[], strides: readonly number[], storage_offset: number): Tensor {
    return new Tensor(this.storage, this.dtype, shape, strides, storage_offset);
  }

  get ndim(): number {
    return this.shape.length;
  }

  dim(): number {
    return this.shape.length;
  }

  numel(): number {
    return numelOf(this.shape);
  }

  size(): readonly number[];
  size(dim: number): number;
  size(dim?: number): number | readonly number[] {
    return dim === undefined ? this.shape : this.shape[this.wrapDim(dim)]!;
  }

  stride(): readonly number[];
  stride(dim: number): number;
  stride(dim?: number): number | readonly number[] {
    return dim === undefined ? this.strides : this.strides[this.wrapDim(dim)]!;
  }

  /** A dimension counted from the front. A tensor without dimensions takes 0 and -1. */
  wrapDim(dim: number, rank = this.ndim): number {
    const range = Math.max(rank, 1);
    if (!Number.isInteger(dim) || dim < -range || dim >= range) {
      throw new RangeError(
        `Dimension out of range (expected to be in range of [${-range}, ${range - 1}], but got ${dim})`,
      );
    }
    return dim < 0 ? dim + range : dim;
  }

  is_contiguous(): boolean {
    let step = 1;
    for (let d = this.ndim - 1; d >= 0; d--) {
      if (this.shape[d] !== 1 && this.strides[d] !== step) {
        return this.numel() === 0;
      }
      step *= this.shape[d]!;
    }
    return true;
  }

  is_floating_point(): boolean {
    return dtypeInfo(this.dtype).category === 2;
  }

  get is_leaf(): boolean {
    return this.grad_fn === undefined;
  }

  get requires_grad(): boolean {
    return this.leafRequiresGrad || this.grad_fn !== undefined;
  }

  set requires_grad(value: boolean) {
    this.requires_grad_(value);
  }

  requires_grad_(value = true): this {
    checkArgument("requires_grad_", "requires_grad", "bool", value);
    check(
      this.is_leaf || value,
      () => "you can only change requires_grad flags of leaf variables.",
    );
    check(
      !value || this.is_floating_point(),
      () => "only Tensors of floating point dtype can require gradients",
    );
    this.leafRequiresGrad = value;
    return this;
  }

  get grad(): Tensor | undefined {
    return this.ownGrad;
  }

  set grad(value: Tensor | undefined) {
    // None of PyTorch is null, too.
    value ??= undefined;
    if (value !== undefined) {
      checkArgument("grad", "value", "tensor", value);
      check(
        value.shape.join() === this.shape.join() && value.dtype === this.dtype,
        () => "assigned grad has data of a different size or dtype",
      );
      value.storage.kept = true;
    }
    this.ownGrad = value;
  }

  /** The dimensions in reverse order. */
  get T(): Tensor {
    return this.permute(this.shape.map((_, d) => this.ndim - 1 - d));
  }

  /** The last two dimensions exchanged. */
  get mT(): Tensor {
    check(
      this.ndim >= 2,
      () =>
        `tensor.mT is only supported on matrices or batches of matrices. Got ${this.ndim}-D tensor.`,
    );
    return this.transpose(-2, -1);
  }

  /** The same memory without history. */
  detach(): Tensor {
    return this.viewed(this.shape, this.strides, this.storage_offset);
  }

  /** The gradients of all leaves that this tensor was computed from. */
  backward(
    gradient?: Tensor,
    options: { retain_graph?: boolean; create_graph?: boolean } = {},
  ): void {
    backward(this, gradient, options);
  }

  /** Keeps the memory beyond the scope that made it. */
  keep(): this {
    this.storage.kept = true;
    return this;
  }

  /** Gives the memory back at once. Views of it can no longer be used either. */
  dispose(): void {
    this.storage.dispose();
  }

  /** The elements in order, as a typed array; float16 as bits, bool as bytes. */
  async data(): Promise<TypedArray> {
    const packed = this.detach().contiguous();
    const { bytes } = dtypeInfo(this.dtype);
    const length = this.numel() * bytes;
    const values = view(
      await packed.storage.runtime.read(
        packed.storage.block,
        packed.storage_offset * bytes,
        length,
      ),
      this.dtype,
    );
    if (packed.storage !== this.storage) {
      packed.dispose();
    }
    return values;
  }

  /** The elements as nested arrays; a plain value for a tensor without dimensions. */
  async tolist(): Promise<Nested> {
    const values = await this.data();
    let at = 0;
    const nest = (d: number): Nested =>
      d === this.ndim
        ? valueAt(values, at++, this.dtype)
        : Array.from({ length: this.shape[d]! }, () => nest(d + 1));
    return nest(0);
  }

  /** The value of a tensor of one element. */
  async item(): Promise<number | bigint | boolean> {
    check(
      this.numel() === 1,
      () => `a Tensor with ${this.numel()} elements cannot be converted to Scalar`,
    );
    return valueAt(await this.data(), 0, this.dtype);
  }

  /** The text that PyTorch prints. */
  async repr(): Promise<string> {
    return format(this, await this.data());
  }

  /** Without values, which only await can read; see repr(). */
  toString(): string {
    return `Tensor(shape=[${this.shape.join(", ")}], dtype=torch.${this.dtype})`;
  }
}

// eslint-disable-next-line @typescript-eslint/no-unsafe-declaration-merging, @typescript-eslint/no-empty-object-type -- as above
export interface Tensor extends AllMethods {}

/** Whether changing the tensor in place would have to be recorded. */
export const isRecorded = needsGrad;
