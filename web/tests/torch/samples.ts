// Which samples of the operators a test runs.
import type { Operator } from "../../site/operators/replay";

/**
 * One sample of a dtype, but three of float32, unless TORCH_SAMPLES=all asks for each: software drivers take long to
 * compile shaders.
 */
export function chosen(operator: Operator): Operator["samples"] {
  if (process.env.TORCH_SAMPLES === "all") {
    return operator.samples;
  }
  const left: Record<string, number> = { float32: 3, float16: 0, int64: 1, bool: 1, int32: 0 };
  return operator.samples.filter(({ input }) => {
    const [first] = [input].flat() as { dtype: string }[];
    return left[first?.dtype ?? "float32"]!-- > 0;
  });
}
