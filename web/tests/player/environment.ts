/** What a test needs of Node or of a page, and its assertions: those of vitest need Node. */

export interface Environment {
  readonly gpu: GPU;
  /** The address of a file of web/tests/files. */
  readonly url: (name: string) => string;
}

export function check(condition: boolean, what: string): asserts condition {
  if (!condition) {
    throw new Error(`expected ${what}`);
  }
}

export function equal(actual: unknown, wanted: unknown, what = "a value"): void {
  const show = (value: unknown) =>
    JSON.stringify(value, (_, part) => {
      if (typeof part === "bigint") {
        return `${part}n`;
      }
      return ArrayBuffer.isView(part) ? [part.constructor.name, ...(part as Uint8Array)] : part;
    });
  check(show(actual) === show(wanted), `${what} to be ${show(wanted)}, not ${show(actual)}`);
}

/** Whether numbers differ by no more than `atol + rtol * wanted`. */
export function close(
  actual: ArrayLike<number | bigint>,
  wanted: ArrayLike<number | bigint>,
  rtol: number,
  atol: number,
  what: string,
): void {
  equal(actual.length, wanted.length, `the length of ${what}`);
  for (let k = 0; k < wanted.length; ++k) {
    const [a, b] = [actual[k]!, wanted[k]!];
    if (a === b) {
      continue;
    }
    const difference = Math.abs(Number(a) - Number(b));
    const same = Number.isNaN(a) && Number.isNaN(b);
    check(
      same || difference <= atol + rtol * Math.abs(Number(b)),
      `${what}[${k}] to be ${b}, not ${a}`,
    );
  }
}

/** The error that `work` rejects with, which must match. */
export async function rejects(
  work: Promise<unknown> | (() => Promise<unknown>),
  pattern: RegExp,
  name?: string,
): Promise<Error> {
  try {
    await (typeof work === "function" ? work() : work);
  } catch (error) {
    check(error instanceof Error, "an Error");
    check(pattern.test(error.message), `${error} to match ${pattern}`);
    check(name === undefined || error.name === name, `${error.name} to be ${name}`);
    return error;
  }
  throw new Error(`expected an error that matches ${pattern}`);
}
