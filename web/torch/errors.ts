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
