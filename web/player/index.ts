/** Plays graph files (docs/graph-format.md). */

/** The version of the format that this player reads. */
export const FORMAT_VERSION = 1;
