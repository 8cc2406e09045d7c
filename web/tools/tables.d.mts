export function writeTables(): Promise<void>;
