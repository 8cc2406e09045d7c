import type { Server } from "node:http";

export function serve(root: string, port?: number): Promise<Server>;
