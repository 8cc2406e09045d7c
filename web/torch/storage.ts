// The memory of tensors, and when it is given back.
import { RuntimeError } from "./errors";
import { Runtime, type Block } from "./runtime";

let current: Runtime | undefined;

/** The runtime that new tensors use. Raises before init(). */
export function runtime(): Runtime {
  if (current === undefined) {
    throw new RuntimeError("call `await torch.init()` first: it asks for the GPU");
  }
  return current;
}

export function setRuntime(next: Runtime): void {
  current = next;
}

/** The part of a storage that outlives it, so that its buffer is given back when it is collected. */
interface Holding {
  runtime: Runtime;
  block: Block | undefined;
}

function give(holding: Holding): void {
  if (holding.block !== undefined) {
    holding.runtime.release(holding.block);
    holding.block = undefined;
  }
}

const registry = new FinalizationRegistry<Holding>(give);

const scopes: Set<Storage>[] = [];

export class Storage {
  /** Counts changes in place: a gradient that needs an older version of a tensor raises. */
  version = 0;
  /** Not given back at the end of the scope that made it. */
  kept = false;
  private readonly holding: Holding;

  constructor(readonly bytes: number) {
    const from = runtime();
    this.holding = { runtime: from, block: from.allocate(bytes) };
    registry.register(this, this.holding);
    scopes.at(-1)?.add(this);
  }

  get block(): Block {
    if (this.holding.block === undefined) {
      throw new RuntimeError(
        "the memory of this tensor was given back (dispose, or the end of its scope)",
      );
    }
    return this.holding.block;
  }

  get runtime(): Runtime {
    return this.holding.runtime;
  }

  get disposed(): boolean {
    return this.holding.block === undefined;
  }

  dispose(): void {
    give(this.holding);
  }
}

function storagesIn(value: unknown, found: Set<Storage>, seen: Set<unknown>): void {
  if (typeof value !== "object" || value === null || seen.has(value)) {
    return;
  }
  seen.add(value);
  if ("storage" in value && value.storage instanceof Storage) {
    found.add(value.storage);
    return;
  }
  const members =
    value instanceof Map || value instanceof Set ? value.values() : Object.values(value);
  for (const member of members) {
    storagesIn(member, found, seen);
  }
}

function close(scope: Set<Storage>, result: unknown): void {
  if (scopes.pop() !== scope) {
    throw new RuntimeError("scopes must end in the reverse order of their starts");
  }
  const wanted = new Set<Storage>();
  storagesIn(result, wanted, new Set());
  for (const storage of scope) {
    if (!wanted.has(storage) && !storage.kept) {
      storage.dispose();
    } else {
      scopes.at(-1)?.add(storage);
    }
  }
}

/**
 * Calls `work`, then gives back the memory of all tensors that it made, except of those in its
 * result, of parameters, of their gradients and of optimizers' states. `work` may be asynchronous;
 * scopes must then not overlap. Garbage collection gives memory back too, but a page's may come late.
 */
export function scope<T>(work: () => T): T {
  const made = new Set<Storage>();
  scopes.push(made);
  let result: T;
  try {
    result = work();
  } catch (error) {
    close(made, undefined);
    throw error;
  }
  if (result instanceof Promise) {
    return result.then(
      (value: unknown) => {
        close(made, value);
        return value;
      },
      (error: unknown) => {
        close(made, undefined);
        throw error;
      },
    ) as T;
  }
  close(made, result);
  return result;
}
