// Operators whose result, or its size, is known only on the GPU: to be awaited.
import { isFloating } from "../dtype";
import { check } from "../errors";
import { numelOf, type Tensor } from "../tensor";
import { broadcastShapes } from "./collapse";
import { arange, zeros } from "./factory";
import { scatter, take } from "./indexing";
import { stack } from "./movement";
import { where } from "./pointwise";
import { all } from "./reduce";

// The places of the elements that are not zero, counted in row-major order. Their number is read back.
async function places(self: Tensor): Promise<Tensor> {
  const chosen = self.detach().ne(0).reshape(-1);
  const count = chosen.numel();
  if (count === 0) {
    return zeros([0], { dtype: "int64" });
  }
  const upTo = chosen.long().cumsum(0);
  const found = Number(await upTo.select(0, count - 1).item());
  // One place more takes those that are zero.
  const target = where(chosen, upTo.sub(1), found);
  return scatter(zeros([found + 1], { dtype: "int64" }), 0, target, arange(count))
    .narrow(0, 0, found)
    .clone();
}

function coordinates(flat: Tensor, shape: readonly number[]): Tensor[] {
  return shape.map((size, d) => {
    const step = numelOf(shape.slice(d + 1));
    return flat.floor_divide(Math.max(step, 1)).remainder(Math.max(size, 1));
  });
}

/** The indices of elements that are not zero, a row each; as_tuple gives a tensor for each dimension, to index with. */
export async function nonzero(
  self: Tensor,
  { as_tuple = false }: { as_tuple?: boolean } = {},
): Promise<Tensor | Tensor[]> {
  const flat = await places(self);
  if (as_tuple) {
    return self.dim() === 0 ? [flat] : coordinates(flat, self.shape);
  }
  return self.dim() === 0
    ? zeros([flat.numel(), 0], { dtype: "int64" })
    : stack(coordinates(flat, self.shape), 1);
}
export const argwhere = async (self: Tensor): Promise<Tensor> => (await nonzero(self)) as Tensor;

/** The elements where the mask holds, of one dimension. */
export async function masked_select(self: Tensor, mask: Tensor): Promise<Tensor> {
  check(
    mask.dtype === "bool",
    () => `masked_select: expected BoolTensor for mask, but got ${mask.dtype}`,
  );
  const shape = broadcastShapes(self.shape, mask.shape);
  return take(self.expand(shape), await places(mask.expand(shape)));
}

function sameDType(self: Tensor, other: Tensor): void {
  check(self.dtype === other.dtype, () => `${self.dtype} did not match ${other.dtype}`);
}

/** Whether shapes and all elements are equal. */
export async function equal(self: Tensor, other: Tensor): Promise<boolean> {
  return self.shape.join() === other.shape.join() && (await all(self.eq(other)).item()) === true;
}

export interface Closeness {
  rtol?: number;
  atol?: number;
  equal_nan?: boolean;
}

/** Where |self - other| <= atol + rtol * |other|. */
export function isclose(
  self: Tensor,
  other: Tensor,
  { rtol = 1e-5, atol = 1e-8, equal_nan = false }: Closeness = {},
): Tensor {
  sameDType(self, other);
  check(
    rtol >= 0 && atol >= 0,
    () => "isclose: rtol and atol must be greater than or equal to zero",
  );
  const [a, b] = [self.detach(), other.detach()];
  let close = a.eq(b);
  if (equal_nan && isFloating(a.dtype)) {
    close = close.logical_or(a.isnan().logical_and(b.isnan()));
  }
  if (a.dtype === "bool" || (rtol === 0 && atol === 0)) {
    return close;
  }
  const error = a.sub(b).abs();
  const near = error.le(b.mul(rtol).abs().add(atol)).logical_and(error.isfinite());
  return close.logical_or(near);
}

export async function allclose(
  self: Tensor,
  other: Tensor,
  options: Closeness = {},
): Promise<boolean> {
  return (await all(isclose(self, other, options)).item()) === true;
}
