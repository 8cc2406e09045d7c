// Names that PyTorch's tensors have and those of here do not: using one is an error that names it, where JavaScript would
// only say "not a function". Modules of functions and classes find this out by themselves (named() of index.ts); of a
// tensor, programs also ask for names that nobody has, such as `then`, which must stay undefined.
import { NotImplementedError } from "./errors";

/** The error for a name that does not exist. */
export const notImplemented = (name: string): NotImplementedError =>
  new NotImplementedError(`${name} is not implemented; web/torch/README.md lists what exists`);

/** Without those for sparse, quantized and other devices' tensors. */
const METHODS = `
  adjoint angle as_strided_ as_strided_scatter bfloat16 bincount byte cauchy_ cdouble cfloat chalf char cholesky
  cholesky_inverse cholesky_solve conj conj_physical conj_physical_ corrcoef cov cpu cuda data_ptr det detach_
  double fill_diagonal_ float_power_ frexp geometric_ geqrf get_device histc histogram index index_reduce
  index_reduce_ int_repr inverse is_conj is_neg is_nonzero isreal istft log_normal_ logdet lu lu_solve
  matrix_exp mode multinomial mvlgamma mvlgamma_ nanmedian narrow_copy new_empty_strided nonzero_static numpy
  orgqr ormqr pin_memory pinverse polygamma_ put put_ qr qscheme random_ register_hook
  register_post_accumulate_grad_hook renorm renorm_ resize resize_ resize_as resize_as_ resolve_conj resolve_neg
  retain_grad set_ share_memory_ short slogdet squeeze_ stft storage_type svd swapaxes_ swapdims_ t_ transpose_
  triangular_solve unique unique_consecutive unsqueeze_ untyped_storage
`;

/** Read without a call. */
const ATTRIBUTES = `
  H device imag itemsize layout mH nbytes output_nr real retains_grad
`;

const words = (text: string): string[] => text.trim().split(/\s+/);

export const missingMethods = words(METHODS);
export const missingAttributes = words(ATTRIBUTES);

/** Defines the names on a prototype that does not have them. */
export function addMissing(prototype: object, prefix: string): void {
  const fail = (name: string) => () => {
    throw notImplemented(`${prefix}.${name}`);
  };
  for (const name of missingMethods) {
    Object.defineProperty(prototype, name, { value: fail(name) });
  }
  for (const name of missingAttributes) {
    Object.defineProperty(prototype, name, { get: fail(name) });
  }
}
