/** Something that PyTorch has and this room does not. */
export class NotImplementedError extends Error {
  override name = "NotImplementedError";
}

/** What PyTorch raises as a RuntimeError. */
export class RuntimeError extends Error {
  override name = "RuntimeError";
}

export function check(condition: boolean, message: () => string): asserts condition {
  if (!condition) {
    throw new RuntimeError(message());
  }
}

/** Raises for a dimension that a list, counted from the front, has twice. */
export function checkDistinct(dims: readonly number[]): void {
  const twice = dims.find((d, k) => dims.indexOf(d) !== k);
  check(twice === undefined, () => `dim ${twice!} appears multiple times in the list of dims`);
}
