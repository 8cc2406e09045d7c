// The site of the tests: `npm run build tests` and `make_pages.py --quick` make it.
import { join } from "node:path";

export const site = join(import.meta.dirname, "..", "..", "dist", "tests", "site");
