/** Waiting for a device that computes on the cores of the processor. */

/** Waits shorter than this are left alone. */
const PATIENCE_MS = 4;
/** A turn of the event loop sleeps for this part of the time waited so far, up to MOST_MS. */
const PART = 1 / 16;
const MOST_MS = 1;

type Immediate = (turn: () => void) => unknown;

/** Node's, where the event loop is the process's own: a page in Electron has one, too. */
function immediateOfNode(): Immediate | undefined {
  const scope = globalThis as {
    process?: { versions?: { node?: string } };
    setImmediate?: Immediate;
    document?: unknown;
  };
  const isNode = scope.process?.versions?.node !== undefined && scope.document === undefined;
  return isNode ? scope.setImmediate : undefined;
}

/** All waits share one turn, so that the loop sleeps once. */
let waits = 0;
let since = 0;
let isTurning = false;
let never: Int32Array<SharedArrayBuffer> | undefined;

function rest(immediate: Immediate): void {
  if (waits === 0) {
    isTurning = false;
    return;
  }
  never ??= new Int32Array(new SharedArrayBuffer(4));
  Atomics.wait(never, 0, 0, Math.min((performance.now() - since) * PART, MOST_MS));
  immediate(() => rest(immediate));
}

/**
 * What `work`, which a device does, gives. In Node the package `webgpu` asks the device in each turn
 * of the event loop whether it is done, and so keeps a core busy, which an adapter that computes on
 * the cores then lacks. For such an adapter each turn sleeps for up to a millisecond.
 */
export async function finished<T>(device: GPUDevice, work: Promise<T>): Promise<T> {
  const immediate = immediateOfNode();
  if (immediate === undefined || device.adapterInfo?.isFallbackAdapter !== true) {
    return work;
  }
  if (waits === 0) {
    since = performance.now();
  }
  waits += 1;
  const timer = setTimeout(() => {
    if (!isTurning) {
      isTurning = true;
      rest(immediate);
    }
  }, PATIENCE_MS);
  try {
    return await work;
  } finally {
    waits -= 1;
    clearTimeout(timer);
  }
}
