/** The tables that `make bench-web` prints. */

export const OURS = "torch-webgpu";

export interface Bytes {
  readonly raw: number;
  readonly gzip: number;
}

export interface Measured {
  /** What a visitor fetches until the first result. Absent in Node, where nothing is. */
  readonly download?: { readonly code: Bytes; readonly model: Bytes };
  /** Milliseconds until the first result, of pages that were opened anew. */
  readonly firsts: readonly number[];
  /** Milliseconds of each run after it. */
  readonly runs: readonly number[];
  /** The largest of all runs. */
  readonly difference: number;
}

export interface Row {
  readonly program: string;
  /** What a run is: "run", "token", "step". */
  readonly unit: string;
  readonly player: string;
  readonly version: string;
  readonly environment: string;
  /** Figures, or why there are none. */
  readonly outcome: Measured | { readonly lost: string };
}

export function median(values: readonly number[]): number {
  if (values.length === 0) {
    throw new RangeError("the median of no values");
  }
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 === 1 ? sorted[middle]! : (sorted[middle - 1]! + sorted[middle]!) / 2;
}

/** Half of the distance between the quartiles, as a part of the median. */
export function spread(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const at = (part: number) => {
    const place = (sorted.length - 1) * part;
    const low = sorted[Math.floor(place)]!;
    return low + (sorted[Math.ceil(place)]! - low) * (place % 1);
  };
  return (at(0.75) - at(0.25)) / 2 / median(values);
}

/** Three significant digits, without an exponent. */
export function figure(value: number): string {
  return value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2);
}

const megabytes = (bytes: number) => figure(bytes / 1e6);
/** One value has no spread. */
const withSpread = (values: readonly number[]) =>
  figure(median(values)) + (values.length > 1 ? ` ±${(100 * spread(values)).toFixed(0)} %` : "");
const sum = ({ code, model }: NonNullable<Measured["download"]>, kind: keyof Bytes) =>
  code[kind] + model[kind];
const isMeasured = (outcome: Row["outcome"]): outcome is Measured => "runs" in outcome;

const line = (cells: readonly string[]) => `| ${cells.join(" | ")} |`;

/** One row for each player that ran, in the order given. */
export function figures(all: readonly Row[]): string {
  const head = [
    ...["program", "player", "code MB (gzip)", "model MB (gzip)", "first result ms"],
    ...["run ms", "runs", "difference"],
  ];
  const lines = all.flatMap(({ program, unit, player, outcome }) => {
    if (!isMeasured(outcome)) {
      return [];
    }
    const { download, firsts, runs, difference } = outcome;
    const size = (kind: "code" | "model") =>
      download === undefined
        ? ""
        : `${megabytes(download[kind].raw)} (${megabytes(download[kind].gzip)})`;
    return [
      line([
        unit === "run" ? program : `${program}, a ${unit}`,
        ...[player, size("code"), size("model"), withSpread(firsts), withSpread(runs)],
        ...[String(runs.length), difference.toExponential(0)],
      ]),
    ];
  });
  return [line(head), "|---|---|--:|--:|--:|--:|--:|--:|", ...lines].join("\n");
}

/** How many times better this project's player is than the best of the others: their figure over
 * ours, above 1 where ours is smaller. */
export function ratios(all: readonly Row[]): string {
  const quantities: [string, (outcome: Measured) => number | undefined][] = [
    ["run", ({ runs }) => median(runs)],
    ["first result", ({ firsts }) => median(firsts)],
    ["download", ({ download }) => download && sum(download, "raw")],
    ["gzip", ({ download }) => download && sum(download, "gzip")],
  ];
  const lines = [...new Set(all.map(({ program }) => program))].map((program) => {
    const here = all.filter((row) => row.program === program);
    const cells = quantities.map(([, quantity]) => {
      const values = here.flatMap(({ player, outcome }) => {
        const value = isMeasured(outcome) ? quantity(outcome) : undefined;
        return value === undefined ? [] : [{ player, value }];
      });
      const ours = values.find(({ player }) => player === OURS);
      const others = values.filter(({ player }) => player !== OURS);
      if (ours === undefined || others.length === 0) {
        return "";
      }
      const best = others.reduce((a, b) => (b.value < a.value ? b : a));
      return `${figure(best.value / ours.value)} (${best.player})`;
    });
    return line([program, ...cells]);
  });
  return [
    line(["program", ...quantities.map(([name]) => name)]),
    "|---|--:|--:|--:|--:|",
    ...lines,
  ].join("\n");
}

/** What did not run, and why: one line for each reason. */
export function losses(all: readonly Row[]): string {
  const reasons = new Map<string, string[]>();
  for (const { program, player, outcome } of all) {
    if (!isMeasured(outcome)) {
      const key = `${player}: ${outcome.lost.split("\n")[0]}`;
      reasons.set(key, [...(reasons.get(key) ?? []), program]);
    }
  }
  return [...reasons]
    .map(([reason, programs]) => `- Not run (${programs.join(", ")}): ${reason}`)
    .join("\n");
}
