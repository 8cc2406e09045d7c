// Which samples of the operators a test runs, and which of them may be not implemented.
import type { Operator, Outcome } from "../../site/operators/replay";

/**
 * One sample of a dtype, but three of float32, unless there are few or TORCH_SAMPLES=all asks for each: software drivers take long to
 * compile shaders.
 */
export function chosen(operator: Operator): Operator["samples"] {
  if (process.env.TORCH_SAMPLES === "all" || operator.samples.length <= 3) {
    return operator.samples;
  }
  const left: Record<string, number> = { float32: 3, float16: 0, int64: 1, bool: 1, int32: 0 };
  return operator.samples.filter(({ input }) => {
    const [first] = [input].flat() as { dtype: string }[];
    return left[first?.dtype ?? "float32"]!-- > 0;
  });
}

const NO_GRADIENT = /^the gradient is not implemented$/;
const NO_BOOL = /not implemented for '?Bool'?$/;
const NO_LONG = /not implemented for Long$/;
const NO_FRACTIONS = /^fractions as beta or alpha of integer matrices$/;

/** What is not implemented of an operator, by its name in op_db: what the error says. */
const MISSING: Record<string, RegExp[] | undefined> = {
  as_strided: [NO_GRADIENT],
  addbmm: [NO_FRACTIONS],
  addmv: [NO_FRACTIONS],
  baddbmm: [NO_FRACTIONS],
  clamp_max: [NO_BOOL],
  clamp_min: [NO_BOOL],
  fmax: [NO_BOOL],
  fmin: [NO_BOOL],
  index_add: [NO_BOOL],
  index_fill: [/the value as a tensor$/],
  index_put: [NO_BOOL, /^an index of booleans: /],
  logcumsumexp: [NO_GRADIENT],
  narrow: [/the start as a tensor$/],
  nextafter: [NO_GRADIENT],
  logspace: [/^logspace\(\) of integers$/],
  "nn.functional.batch_norm": [/of a tensor without channels$/],
  "nn.functional.one_hot": [/^one_hot\(\): say num_classes/],
  scatter: [NO_BOOL],
  scatter_add: [NO_BOOL],
  repeat_interleave: [/the repeats as a tensor$/],
  "scatter_reduce.amax": [NO_LONG],
  "scatter_reduce.amin": [NO_LONG],
  "scatter_reduce.prod": [NO_LONG],
  "scatter_reduce.sum": [NO_BOOL],
  square: [NO_BOOL],
  unfold: [/of a tensor without dimensions$/],
};

/** What is wrong with the outcomes of an operator's samples: a line each. */
export function problems(op: string, outcomes: readonly Outcome[]): string[] {
  const missing = MISSING[op] ?? [];
  const found = outcomes.flatMap(({ status, message }, k) => {
    const known =
      status === "equal" ||
      (status !== "differs" && missing.some((expected) => expected.test(message)));
    return known ? [] : [`sample ${k} ${status}: ${message}`];
  });
  if (outcomes.every(({ status }) => status === "absent")) {
    found.push("no sample ran: an operator that only raises is none");
  }
  // With all samples, what has come to exist is no longer to be listed.
  if (process.env.TORCH_SAMPLES === "all") {
    for (const expected of missing) {
      if (!outcomes.some(({ message }) => expected.test(message))) {
        found.push(`nothing is missing any more with ${String(expected)}`);
      }
    }
  }
  return found;
}

/** Functions that have no samples, by the reason. */
const WITHOUT: Record<string, string> = {
  "another name of one that has": `
    absolute arccos arccosh arcsin arcsinh arctan arctan2 arctanh cast clip concat concatenate constant_pad divide fix
    ger greater greater_equal less less_equal moveaxis multiply negative not_equal row_stack subtract swapaxes
    swapdims to trapz variance
  `,
  "chance decides the result": `
    alpha_dropout bernoulli dropout dropout1d dropout2d dropout3d feature_alpha_dropout gumbel_softmax rand rand_like
    randint randn randn_like randperm rrelu
  `,
  "op_db has none, or large ones: torch.layers compares it": `
    affine_grid fold kron lp_pool1d lp_pool2d lp_pool3d matrix_power slice_scatter
    triplet_margin_with_distance_loss vander
  `,
  "the same without indices has": `
    adaptive_max_pool1d_with_indices adaptive_max_pool2d_with_indices adaptive_max_pool3d_with_indices
    max_pool1d_with_indices max_pool2d_with_indices max_pool3d_with_indices
  `,
  "it only raises": "float_power",
  "no tensor of values comes out": `
    allclose empty empty_like equal initial_seed is_floating_dtype is_grad_enabled memory promote_types reducedDims
    refuseBool result_type
  `,
  "it is no operator": `
    Slice Tensor at empty_cache enable_grad from_bytes index_get init load manual_seed no_grad save scope set_grad_enabled
    synchronize tensor
  `,
};

/** The functions that have neither samples nor a reason, and those that have both. */
export function unaccounted(
  operators: readonly Operator[],
  functions: readonly string[],
): string[] {
  const sampled = new Set(operators.map(({ name }) => name));
  const excused = new Set(Object.values(WITHOUT).flatMap((text) => text.trim().split(/\s+/)));
  return [
    // torch.programs has those that change their tensor.
    ...functions.filter((name) => !name.endsWith("_") && sampled.has(name) === excused.has(name)),
    ...[...excused].filter((name) => !functions.includes(name)),
  ];
}
