/** Waiting for a device that computes on the cores of the processor. */

/** Waits shorter than this are left alone. */
const PATIENCE_MS = 4;
/** A turn of the event loop sleeps for this part of the time waited so far, */
const PART = 1 / 16;
/** and at most so long. */
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
  let isDone = false;
  const never = new Int32Array(new SharedArrayBuffer(4));
  const start = performance.now();
  const turn = () => {
    if (!isDone) {
      const waited = performance.now() - start;
      Atomics.wait(never, 0, 0, Math.min(waited * PART, MOST_MS));
      immediate(turn);
    }
  };
  const timer = setTimeout(turn, PATIENCE_MS);
  try {
    return await work;
  } finally {
    isDone = true;
    clearTimeout(timer);
  }
}
