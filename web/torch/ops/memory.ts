// Memory that tensors share. Operators that write a tensor of the caller's check it here, with PyTorch's rules and errors.
// It is stricter than PyTorch where a tensor has an element twice without a stride of 0, as windows of unfold() do: PyTorch
// cannot tell and writes in some order, and here that raises.
import { check } from "../errors";
import type { Tensor } from "../tensor";

/** The dimensions that are walked, from the smallest stride. */
const steps = ({ shape, strides }: Tensor): { size: number; stride: number }[] =>
  shape
    .map((size, d) => ({ size, stride: strides[d]! }))
    .filter(({ size }) => size !== 1)
    .sort((a, b) => a.stride - b.stride);

/** Whether the tensor has each element from its first to its last once. */
function isDense(tensor: Tensor): boolean {
  let next = 1;
  return steps(tensor).every(({ size, stride }) => {
    const fits = stride === next;
    next *= size;
    return fits;
  });
}

/** The elements of the storage from the first of the tensor to behind its last. */
function reach(tensor: Tensor): [begin: number, end: number] {
  const last = steps(tensor).reduce(
    (at, { size, stride }) => at + (size - 1) * stride,
    tensor.storage_offset,
  );
  return [tensor.storage_offset, last + 1];
}

/** Whether two elements of the tensor are one in memory. */
function sharesWithin(tensor: Tensor): boolean {
  if (tensor.numel() < 2) {
    return false;
  }
  const dims = steps(tensor);
  let end = 0;
  const apart = dims.every(({ size, stride }) => {
    const beyond = stride > end;
    end += (size - 1) * stride;
    return beyond;
  });
  if (apart) {
    return false;
  }
  if (dims[0]!.stride === 0) {
    return true;
  }
  // Strides that interleave need not meet. This is rare, so each place is looked at.
  const seen = new Uint8Array(end + 1);
  const meets = (d: number, at: number): boolean => {
    if (d < 0) {
      const before = seen[at];
      seen[at] = 1;
      return before === 1;
    }
    const { size, stride } = dims[d]!;
    for (let k = 0; k < size; k++) {
      if (meets(d - 1, at + k * stride)) {
        return true;
      }
    }
    return false;
  };
  return meets(dims.length - 1, 0);
}

/** Raises for a tensor of which two elements share memory (expanded ones): writing it has no order. */
export function checkWritable(out: Tensor, label: string): void {
  check(
    !sharesWithin(out),
    () =>
      "unsupported operation: more than one element of the written-to tensor refers to a single " +
      `memory location. Please clone() the tensor before performing the operation. (${label})`,
  );
}

/** The memory that two tensors touch is the same, element by element. */
export const sameView = (a: Tensor, b: Tensor): boolean =>
  a.storage === b.storage &&
  a.storage_offset === b.storage_offset &&
  a.shape.join() === b.shape.join() &&
  a.strides.join() === b.strides.join();

type Overlap = "none" | "partial" | "same" | "unknown";

/** As PyTorch decides it: what interleaves with gaps is unknown. */
function overlap(a: Tensor, b: Tensor): Overlap {
  if (a.storage !== b.storage || a.numel() === 0 || b.numel() === 0) {
    return "none";
  }
  if (a === b) {
    return "same";
  }
  if (!isDense(a) || !isDense(b)) {
    return "unknown";
  }
  const [begin, end] = reach(a);
  const [from, to] = reach(b);
  if (begin === from && end === to) {
    return a.strides.join() === b.strides.join() ? "same" : "partial";
  }
  return begin < to && from < end ? "partial" : "none";
}

/**
 * Raises where PyTorch does for an operator that writes `out` and reads `input`: if the two are known to share a part of
 * their memory, and, for operators that write elements in another order than they read (`anyOrder`), also if they are the
 * same.
 */
export function checkBeside(out: Tensor, input: Tensor, label: string, anyOrder = false): void {
  const found = overlap(out, input);
  check(
    found !== "partial" && !(anyOrder && found === "same"),
    () =>
      "unsupported operation: some elements of the input tensor and the written-to tensor refer to a single " +
      `memory location. Please clone() the tensor before performing the operation. (${label})`,
  );
}

/** What is read in place of `input` while `out` is written: a copy, if some of it may be written before it is read. */
export function readWhileWriting(out: Tensor, input: Tensor, anyOrder = false): Tensor {
  const found = overlap(out, input);
  const isShared = found === "unknown" || found === "partial";
  return isShared && (anyOrder || !sameView(out, input)) ? input.detach().clone() : input;
}

/** Both: what an operator reads that computes at once into `out`. */
export function readBeside(out: Tensor, input: Tensor, label: string, anyOrder = false): Tensor {
  checkBeside(out, input, label, anyOrder);
  return readWhileWriting(out, input, anyOrder);
}
