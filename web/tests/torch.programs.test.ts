// Random programs of operators, views and changes in place, with gradients, step by step against PyTorch on
// the CPU. TORCH_PROGRAMS=5000 runs that many, TORCH_PROGRAMS_SEED=7 others.
import { beforeAll, expect, test } from "vitest";
import { torch } from "../torch";
import { long } from "./long";
import { jsonOf } from "./torch/files";
import { initTorch } from "./torch/gpu";
import { runProgram, titleOf, type Program } from "./torch/program";
import { programsFile } from "./torch/setup";

const programs = jsonOf<Program[]>(programsFile);

beforeAll(initTorch);

test("there are as many programs as asked for", () => {
  expect(programs.length).toBe(Number(process.env.TORCH_PROGRAMS ?? 200));
  expect(programs.some(({ backward }) => backward !== undefined)).toBe(true);
});

// `make fuzz-web` asks for a number of programs, and runs all of them.
const all = long || process.env.TORCH_PROGRAMS !== undefined;

test.each(
  programs
    .map((program, k) => [k, titleOf(program), program] as const)
    .filter(([k]) => all || k % 2 === 0),
)("program %i: %s", async (_, title, program) => {
  await torch.scope(() => runProgram(program));
});
