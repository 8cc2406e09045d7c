/** What chromium.test.ts loads into a page. */

import { cases } from "./cases";

const url = (name: string) => new URL(`/files/${name}`, location.href).href;

Object.assign(globalThis, {
  names: Object.keys(cases),
  /** The stack of what went wrong in a case, or null. */
  run: async (name: string): Promise<string | null> => {
    try {
      await cases[name]!({ gpu: navigator.gpu, url });
      return null;
    } catch (error) {
      return error instanceof Error ? `${error}\n${error.stack}` : String(error);
    }
  },
});
