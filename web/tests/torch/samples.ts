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
  tensor_split: [/the places as a tensor$/],
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
