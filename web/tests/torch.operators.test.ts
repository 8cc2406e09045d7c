// Every operator on samples of PyTorch's op_db: results and gradients.
import { readFileSync } from "node:fs";
import { beforeAll, expect, test } from "vitest";
import { torch } from "../torch";
import { replay, type Operator } from "../site/operators/replay";
import { initTorch } from "./torch/gpu";

const operators = JSON.parse(
  readFileSync(new URL("files/torch/ops.json", import.meta.url), "utf8"),
) as Operator[];

beforeAll(initTorch);

// Software drivers take long to compile shaders: one sample of a dtype, but three of float32, unless
// TORCH_SAMPLES=all asks for each.
function chosen(operator: Operator): Operator["samples"] {
  if (process.env.TORCH_SAMPLES === "all") {
    return operator.samples;
  }
  const left: Record<string, number> = { float32: 3, float16: 0, int64: 1, bool: 1, int32: 0 };
  return operator.samples.filter(({ input }) => {
    const [first] = [input].flat() as { dtype: string }[];
    return left[first?.dtype ?? "float32"]!-- > 0;
  });
}

test.each(operators.map((operator) => [operator.op, operator] as const))(
  "%s",
  async (_, operator) => {
    const failed: string[] = [];
    for (const [k, sample] of chosen(operator).entries()) {
      const outcome = await torch.scope(() => replay(operator, sample));
      // What is not implemented says so, and never gives a wrong result.
      if (outcome.status === "differs") {
        failed.push(`sample ${k} ${outcome.status}: ${outcome.message}`);
      }
    }
    expect(failed.join("\n")).toBe("");
  },
);
