// Names that PyTorch's tensors have and those of here do not: using one is an error that names it, where JavaScript would
// only say "not a function". Modules of functions and classes find this out by themselves (named() of index.ts); of a
// tensor, programs also ask for names that nobody has, such as `then`, which must stay undefined.
import { NotImplementedError } from "./errors";

/** The error for a name that does not exist. */
export const notImplemented = (name: string): NotImplementedError =>
  new NotImplementedError(`${name} is not implemented; web/torch/README.md lists what exists`);

/** Without those for sparse, quantized and other devices' tensors. */
const METHODS = `
  absolute absolute_ addbmm_ addmm_ addmv_ addr addr_ adjoint aminmax angle arccos arccos_ arccosh arccosh_
  arcsin arcsin_ arcsinh arcsinh_ arctan arctan2 arctan2_ arctan_ arctanh arctanh_ as_strided_
  as_strided_scatter baddbmm_ bfloat16 bincount bitwise_left_shift_ bitwise_not_ bitwise_right_shift_ byte
  cauchy_ cdouble cfloat chalf char cholesky cholesky_inverse cholesky_solve clamp_max_ clamp_min_ clip_ conj
  conj_physical conj_physical_ corrcoef cov cpu cross cuda cumprod_ cumsum_ data_ptr deg2rad deg2rad_ det
  detach_ diag_embed diagflat diagonal_scatter diff dist divide divide_ double dsplit element_size eq_
  fill_diagonal_ fix fix_ fliplr flipud float_power_ floor_divide_ frexp gcd_ ge_ geometric_ geqrf get_device
  greater greater_ greater_equal greater_equal_ gt_ heaviside_ histc histogram hsplit hypot_ igamma_ igammac_
  index index_add_ index_copy_ index_fill_ index_reduce index_reduce_ inner int_repr inverse is_complex is_conj
  is_neg is_nonzero is_same_size is_signed isreal istft kron lcm_ ldexp_ le_ less less_ less_equal less_equal_
  log_normal_ logdet logical_and_ logical_not_ logical_or_ logical_xor_ logit_ lt_ lu lu_solve masked_scatter
  masked_scatter_ matrix_exp matrix_power mode multinomial multiply multiply_ mvlgamma mvlgamma_ nan_to_num_
  nanmean nanmedian narrow_copy ndimension ne_ negative negative_ nelement new_empty new_empty_strided new_full
  new_ones new_zeros nextafter_ nonzero_static not_equal not_equal_ numpy orgqr ormqr pin_memory pinverse
  polygamma_ put put_ qr qscheme rad2deg rad2deg_ random_ register_hook register_post_accumulate_grad_hook
  renorm renorm_ resize resize_ resize_as resize_as_ resolve_conj resolve_neg retain_grad rot90 scatter_reduce_
  select_scatter set_ sgn sgn_ share_memory_ short sign_ slice_scatter slogdet split_with_sizes square_ squeeze_
  stft storage_type subtract subtract_ svd swapaxes_ swapdims_ t_ tensor_split trace transpose_ triangular_solve
  tril_ triu_ true_divide_ type_as unique unique_consecutive unsqueeze_ untyped_storage vdot vsplit xlogy_
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
