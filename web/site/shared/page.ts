/** What the pages share: their elements, errors that a visitor sees, and the bar while a file loads. */

import type { Progress } from "../../player";
import { showWhatIsMissing } from "./webgpu";

export const find = <T extends HTMLElement>(id: string): T =>
  document.getElementById(id) as unknown as T;

export const button = (id: string): HTMLButtonElement => find<HTMLButtonElement>(id);

export function write(id: string, text: string): void {
  find(id).textContent = text;
}

export const messageOf = (error: unknown): string =>
  error instanceof Error ? error.message : String(error);

export function showError(text: string): void {
  write("notice", text);
  find("notice").hidden = false;
}

export function hideError(): void {
  find("notice").hidden = true;
}

/** What `load` says of itself, in the bar of the page. */
export function showProgress({ bytes, totalBytes, pipelines, totalPipelines }: Progress): void {
  const parts = [
    [bytes, totalBytes],
    [pipelines, totalPipelines],
  ] as const;
  const ready = parts.map(([done, all]) => (all === 0 ? 0 : done / all));
  find<HTMLProgressElement>("loading-bar").value = (ready[0]! + ready[1]!) / 2;
  const million = (count: number) => (count / 1e6).toFixed(1);
  write(
    "loading-text",
    bytes < totalBytes
      ? `Loading ${million(bytes)} of ${million(totalBytes)} MB`
      : `Compiling shaders: ${pipelines} of ${totalPipelines}`,
  );
}

/** A file beside the page. What is missing names the command that makes it. */
export async function fetchFile(name: string): Promise<Response> {
  const response = await fetch(name);
  if (!response.ok) {
    throw new Error(`${name} cannot be fetched (status ${response.status}): make web makes it.`);
  }
  return response;
}

/** Takes a file that is dropped anywhere on the page, which the browser would open in its place. */
export function onDrop(take: (file: File) => void): void {
  addEventListener("dragover", (event) => {
    event.preventDefault();
  });
  addEventListener("drop", (event) => {
    event.preventDefault();
    const file = event.dataTransfer?.files[0];
    if (file !== undefined) {
      take(file);
    }
  });
}

/** Begins a page: says what to do where there is no WebGPU, and shows what goes wrong. */
export async function start(work: () => Promise<void>): Promise<void> {
  try {
    if (await showWhatIsMissing(find("notice"))) {
      await work();
    } else {
      find("panels").hidden = true;
    }
  } catch (error) {
    showError(messageOf(error));
  }
  find("loading").hidden = true;
}
