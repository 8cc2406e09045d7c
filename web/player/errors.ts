/** What the player throws. */

/** A file that is no graph file, is damaged, breaks a rule of docs/graph-format.md, or asks for what
 * the device does not have. */
export class GraphFileError extends Error {
  override readonly name = "GraphFileError";
}

/** What a shader reported about the values that it met, such as an index out of range. */
export class KernelError extends Error {
  override readonly name = "KernelError";
  /** Python's name of it: IndexError, NotImplementedError or RuntimeError. */
  readonly exception: string;

  constructor(exception: string, message: string) {
    super(message);
    this.exception = exception;
  }
}

/** The device was lost: the driver ended it, or somebody destroyed it. */
export class DeviceLostError extends Error {
  override readonly name = "DeviceLostError";
  /** Calls whose effects on the state are gone. */
  readonly callsLost: number;

  constructor(message: string, callsLost: number) {
    super(message);
    this.callsLost = callsLost;
  }
}

export function refuse(message: string): never {
  throw new GraphFileError(message);
}

/** Text of a file as part of a message. */
export function quote(value: unknown): string {
  const text = JSON.stringify(value, (_, part) =>
    typeof part === "bigint" ? part.toString() : part,
  );
  return text === undefined ? String(value) : text.length > 200 ? `${text.slice(0, 200)}...` : text;
}
