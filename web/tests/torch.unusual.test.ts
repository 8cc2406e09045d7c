// Operators with unusual arguments (torch/record_edges.py), beside PyTorch, without a GPU. It runs where TORCH_EDGES asks
// for it, as `make fuzz-web` does. Not all differences are errors: PyTorch's CPU has its own ones, float64 has no infinity
// where float32 has, and some calls are allowed here that PyTorch refuses. So the differences are written to a file, to be
// looked at, and the test fails where a call goes on with arguments that nothing looked at, or never ends.
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { torch } from "../torch";
import { replay, STUMBLES, type Operator, type Sample } from "../site/operators/replay";
import { cpuDevice } from "./cpu/device";
import { jsonOf } from "./torch/files";
import { edgesFile } from "./torch/setup";

const shown = (value: unknown): string =>
  JSON.stringify(value, (_, one: unknown) => {
    if (typeof one !== "object" || one === null || !("data" in one)) {
      return one;
    }
    const { dtype, shape } = one as unknown as { dtype: string; shape: number[] };
    return `${dtype}[${shape.join()}]`;
  });

const call = (op: string, { input, args, options }: Sample): string =>
  `${op}(${[input, ...args, options].map(shown).join(", ")})`;

test.runIf(edgesFile !== undefined)(
  "unusual arguments",
  async () => {
    const lines: string[] = [];
    for (const operator of jsonOf<Operator[]>(edgesFile!)) {
      await torch.init(cpuDevice());
      for (const sample of operator.samples) {
        const { status, message } = await torch.scope(() => replay(operator, sample));
        if (status === "differs") {
          lines.push(`${call(operator.op, sample)}: ${message}`);
        }
        if (status !== "equal" || sample.raises !== undefined) {
          // What is left of an error is not the next call's.
          await torch.synchronize().catch(() => torch.init(cpuDevice()));
        }
      }
    }
    const report = join(import.meta.dirname, "files", "torch", "edges.txt");
    writeFileSync(report, lines.map((line) => line + "\n").join(""));
    console.log(`${lines.length} calls differ: ${report}`);
    expect(lines.filter((line) => STUMBLES.test(line.replace(/^.*\): /, "")))).toEqual([]);
  },
  1_800_000,
);
