/** What a visitor can do where there is no WebGPU. */

/** A sentence that says what to do, or null if there is WebGPU. */
export async function whatIsMissing(): Promise<string | null> {
  if (!isSecureContext) {
    return "Browsers have WebGPU for https and localhost only. Open this page at such an address.";
  }
  const gpu = (navigator as { gpu?: GPU }).gpu;
  if (gpu === undefined) {
    return (
      "This browser has no WebGPU. Open this page in a current Chrome, Edge, Firefox or Safari; " +
      "in Chrome on Linux, switch on chrome://flags/#enable-unsafe-webgpu first."
    );
  }
  if ((await gpu.requestAdapter()) === null) {
    return (
      "This browser has WebGPU but finds no GPU that it can use. Update the graphics driver, or " +
      "switch on hardware acceleration in the browser's settings."
    );
  }
  return null;
}

/** Fills in the sentence. Returns whether there is WebGPU. */
export async function showWhatIsMissing(notice: HTMLElement): Promise<boolean> {
  const text = await whatIsMissing();
  if (text !== null) {
    notice.textContent = text;
    notice.hidden = false;
  }
  return text === null;
}
