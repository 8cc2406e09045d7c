/** A page's module in a process: `node node.mjs ADDRESS PLAYER`. The runner talks to it by messages. */

import { create, globals } from "webgpu";
import "./pages/page";

// Node 20 has no navigator, later ones have one without WebGPU.
const gpu = create([]);
Object.defineProperty(globalThis, "navigator", { value: { gpu }, configurable: true });
Object.assign(globalThis, globals); // GPUBufferUsage and the like

const failed = (error: unknown) => ({
  error: error instanceof Error ? error.message : String(error),
});

async function answer(work: Promise<unknown>): Promise<void> {
  process.send!(await work.catch(failed));
}

await answer(
  (async () => {
    const { bench } =
      (await import(new URL(`${process.argv[3]}.mjs`, import.meta.url).href)) && globalThis;
    return bench!.first;
  })(),
);
process.on("message", (k: number | "adapter") => {
  void answer(k === "adapter" ? bench!.adapter() : bench!.run(k));
});
