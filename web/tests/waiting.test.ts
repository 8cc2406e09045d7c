import { expect, test } from "vitest";
import { finished } from "../player/waiting";

/** Waits as the package `webgpu` does, and counts how often it asks. */
async function turnsOf(isFallbackAdapter: boolean): Promise<number> {
  const device = { adapterInfo: { isFallbackAdapter } } as GPUDevice;
  const end = performance.now() + 200;
  let turns = 0;
  const work = new Promise<void>((resolve) => {
    const ask = () => {
      turns += 1;
      if (performance.now() < end) {
        setImmediate(ask);
      } else {
        resolve();
      }
    };
    ask();
  });
  await finished(device, work);
  return turns;
}

test("the event loop rests while an adapter computes on the cores, and only then", async () => {
  const resting = await turnsOf(true);
  const busy = await turnsOf(false);
  expect(resting).toBeGreaterThan(20);
  expect(10 * resting).toBeLessThan(busy);
});

test("a wait passes on results and errors, and nothing turns afterwards", async () => {
  const device = { adapterInfo: { isFallbackAdapter: true } } as GPUDevice;
  await expect(finished(device, Promise.resolve(7))).resolves.toBe(7);
  await expect(finished(device, Promise.reject(new Error("lost")))).rejects.toThrow("lost");
  await finished(device, new Promise((resolve) => setTimeout(resolve, 50)));
  const start = performance.now();
  for (let turn = 0; turn < 200; ++turn) {
    await new Promise((resolve) => setImmediate(resolve));
  }
  expect(performance.now() - start).toBeLessThan(100);
});

test("many waits sleep once in a turn", async () => {
  const device = { adapterInfo: { isFallbackAdapter: true } } as GPUDevice;
  const end = performance.now() + 200;
  let turns = 0;
  const count = () => {
    turns += 1;
    if (performance.now() < end) {
      setImmediate(count);
    }
  };
  count();
  const waits = Array.from({ length: 100 }, () =>
    finished(device, new Promise((resolve) => setTimeout(resolve, 200))),
  );
  await Promise.all(waits);
  expect(turns).toBeGreaterThan(20);
});
