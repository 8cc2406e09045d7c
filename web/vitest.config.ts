import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    include: ["tests/**/*.test.ts"],
    globalSetup: ["tests/torch/setup.ts"],
    // Software drivers are slow, and the first test of a file compiles its shaders.
    testTimeout: 60_000,
    hookTimeout: 120_000,
    // A process for each file: a driver that crashes takes one file with it.
    pool: "forks",
    poolOptions: { forks: { maxForks: 2, execArgv: ["--expose-gc"] } },
  },
});
