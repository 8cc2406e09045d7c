// Methods of Tensor that are no functions of torch.
import { dtypeInfo, type Scalar } from "../dtype";
import { Tensor } from "../tensor";
import { full, type Options } from "./factory";

export const new_full = (
  self: Tensor,
  size: readonly number[],
  value: Scalar,
  options: Options = {},
): Tensor => full(size, value, { dtype: self.dtype, ...options });
export const new_zeros = (self: Tensor, size: readonly number[], options: Options = {}): Tensor =>
  new_full(self, size, 0, options);
export const new_ones = (self: Tensor, size: readonly number[], options: Options = {}): Tensor =>
  new_full(self, size, 1, options);
export const new_empty = (self: Tensor, size: readonly number[], options: Options = {}): Tensor => {
  const out = Tensor.empty(size, options.dtype ?? self.dtype);
  return options.requires_grad === true ? out.requires_grad_() : out;
};
export const type_as = (self: Tensor, other: Tensor): Tensor => self.to(other.dtype);
export const nelement = (self: Tensor): number => self.numel();
export const ndimension = (self: Tensor): number => self.dim();
export const element_size = (self: Tensor): number => dtypeInfo(self.dtype).bytes;
export const is_same_size = (self: Tensor, other: Tensor): boolean =>
  self.shape.join() === other.shape.join();
export const is_complex = (self: Tensor): boolean => {
  void self;
  return false;
};
export const is_signed = (self: Tensor): boolean => self.dtype !== "bool";
