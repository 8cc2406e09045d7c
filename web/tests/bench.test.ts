/** What could go wrong in `make bench-web` without a word: the check of results, and the tables. */

import { describe, expect, test } from "vitest";
import { BOUND, checkRun, relativeDifference } from "../bench/check";
import { figure, figures, losses, median, ratios, type Row, spread } from "../bench/table";

describe("the check of results", () => {
  test("is relative to the largest element that is wanted", () => {
    expect(relativeDifference([1, 200, -399], [1, 200, -400])).toBe(1 / 400);
    expect(relativeDifference([0.5, 0], [0, 0])).toBe(Infinity);
    expect(relativeDifference([0, 0], [0, 0])).toBe(0);
  });

  test.each([
    ["another number of elements", [1, 2], [1, 2, 3]],
    ["no elements", [], []],
    ["NaN", [1, NaN], [1, 2]],
    ["infinity", [1, Infinity], [1, Infinity]],
  ])("refuses %s", (_, actual, wanted) => {
    expect(relativeDifference(actual, wanted)).toBe(Infinity);
    expect(() => checkRun(0, actual, [wanted])).toThrow(RangeError);
  });

  test("takes the row of the run, or the only one", () => {
    const rows = [[1], [2], [3]];
    expect(checkRun(2, [3], rows)).toBe(0);
    expect(() => checkRun(1, [3], rows)).toThrow("run 1 is wrong");
    expect(() => checkRun(3, [3], rows)).toThrow("no result of run 3");
    expect(checkRun(7, [1], [[1]])).toBe(0);
  });

  test("lets pass what is below the bound only", () => {
    expect(checkRun(0, [1 + BOUND / 2], [[1]])).toBeCloseTo(BOUND / 2);
    expect(() => checkRun(0, [1 + 2 * BOUND], [[1]])).toThrow(RangeError);
  });
});

describe("the tables", () => {
  const row = (player: string, first: number, run: number, megabytes: number): Row => ({
    ...{ program: "net", unit: "run", player, version: "1.0", environment: "Chromium" },
    outcome: {
      download: {
        code: { raw: 1e6, gzip: 5e5 },
        model: { raw: megabytes * 1e6, gzip: megabytes * 9e5 },
      },
      firsts: [first],
      runs: [run, run, run],
      difference: 2e-6,
    },
  });
  const lost: Row = {
    ...{ program: "net", unit: "run", player: "other", version: "1.0", environment: "Chromium" },
    outcome: { lost: "it has no training\nat all" },
  };

  test("median and spread", () => {
    expect(median([5, 1, 3])).toBe(3);
    expect(median([4, 1, 3, 2])).toBe(2.5);
    expect(() => median([])).toThrow(RangeError);
    expect(spread([1, 2, 3, 4, 5])).toBe(1 / 3);
    expect([figure(3.14159), figure(31.4159), figure(314.159)]).toEqual(["3.14", "31.4", "314"]);
  });

  test("a row for each player that ran", () => {
    const lines = figures([row("torch-webgpu", 500, 20, 9), lost]).split("\n");
    expect(lines).toHaveLength(3);
    expect(lines[2]).toBe(
      "| net | torch-webgpu | 1.00 (0.50) | 9.00 (8.10) | 500 | 20.0 ±0 % | 3 | 2e-6 |",
    );
    const columns = lines.map((line) => line.split("|").length);
    expect(new Set(columns).size).toBe(1);
  });

  test("ratios are to the best of the others, above 1 where this project's player is better", () => {
    const rows = [
      row("torch-webgpu", 500, 20, 9),
      row("slow", 2000, 50, 19),
      row("large", 1000, 60, 39),
    ];
    expect(ratios(rows).split("\n")[2]).toBe(
      "| net | 2.50 (slow) | 2.00 (large) | 2.00 (slow) | 2.05 (slow) |",
    );
    expect(ratios([row("torch-webgpu", 500, 20, 9), lost]).split("\n")[2]).toBe(
      "| net |  |  |  |  |",
    );
  });

  test("what did not run is named with its reason", () => {
    expect(losses([row("torch-webgpu", 500, 20, 9), lost, { ...lost, program: "gpt" }])).toBe(
      "- Not run (net, gpt): other: it has no training",
    );
  });
});
