// The page of all operators: runs each on its samples, one after the other, and shows what came out.
import { torch } from "../../torch";
import { fetchFile, find, start } from "../shared/page";
import { replay, type Operator, type Outcome } from "./replay";

type Status = "waiting" | "equal" | "differs" | "partly";

interface Row {
  operator: Operator;
  status: Status;
  line: HTMLTableRowElement;
}

const total = find("total");
const progress = find<HTMLProgressElement>("progress");
const search = find<HTMLInputElement>("search");
const stop = find<HTMLButtonElement>("stop");
const rows: Row[] = [];
let stopped = false;

function addRow(operator: Operator): Row {
  const line = document.createElement("tr");
  for (const text of [operator.op, "waiting", String(operator.samples.length), ""]) {
    line.insertCell().textContent = text;
  }
  // Long names break behind a dot or before a line.
  line.cells[0]!.replaceChildren(
    ...operator.op.split(/(?<=\.)|(?=_)/).flatMap((part) => [document.createElement("wbr"), part]),
  );
  line.cells[1]!.className = "faint";
  line.cells[2]!.className = "number";
  line.cells[3]!.className = "number";
  find("rows").append(line);
  return { operator, status: "waiting", line };
}

const WORDS: Record<Status, string> = {
  waiting: "waiting",
  equal: "equal",
  differs: "different",
  partly: "equal, but not everything is here",
};

function show(row: Row, outcomes: Outcome[]): void {
  const has = (status: Outcome["status"]): boolean =>
    outcomes.some((outcome) => outcome.status === status);
  row.status = has("differs") ? "differs" : has("absent") || has("forward") ? "partly" : "equal";
  const cell = row.line.cells[1]!;
  const somethingRan = has("equal") || has("forward");
  cell.textContent = row.status === "partly" && !somethingRan ? "not here" : WORDS[row.status];
  cell.className = row.status;
  const message = outcomes.find((outcome) => outcome.status === "differs")?.message;
  const reason = message ?? outcomes.find((outcome) => outcome.message !== "")?.message;
  if (reason !== undefined) {
    const note = document.createElement("span");
    note.className = "message";
    note.textContent = reason.split("\n")[0]!;
    cell.append(note);
  }
  const equal = outcomes.filter((outcome) => ["equal", "forward"].includes(outcome.status)).length;
  row.line.cells[2]!.textContent = `${equal} / ${outcomes.length}`;
  const error = Math.max(0, ...outcomes.map((outcome) => outcome.error));
  row.line.cells[3]!.textContent = error === 0 ? "0" : error.toFixed(2);
}

function filter(): void {
  const wanted = new FormData(find<HTMLFormElement>("controls")).get("show");
  const text = search.value.trim().toLowerCase();
  for (const { operator, status, line } of rows) {
    line.hidden =
      !operator.op.toLowerCase().includes(text) || (wanted !== "all" && status !== wanted);
  }
}

function count(done: boolean): void {
  const of = (status: Status): number => rows.filter((row) => row.status === status).length;
  const ran = rows.length - of("waiting");
  progress.value = ran / Math.max(rows.length, 1);
  const parts = [
    `${of("equal")} of ${rows.length} operators equal`,
    `${of("partly")} equal in part`,
    `${of("differs")} different`,
  ];
  total.textContent = parts.join(", ") + (done ? "" : ` (${ran} have run)`);
  total.dataset.done = String(done);
  total.dataset.different = String(of("differs"));
}

async function run(): Promise<void> {
  for (const row of rows) {
    if (stopped) {
      break;
    }
    const outcomes: Outcome[] = [];
    for (const sample of row.operator.samples) {
      outcomes.push(await torch.scope(() => replay(row.operator, sample)));
    }
    show(row, outcomes);
    count(false);
    filter();
  }
  count(true);
  stop.disabled = true;
}

stop.addEventListener("click", () => {
  stopped = true;
});
search.addEventListener("input", filter);
find("controls").addEventListener("change", filter);
find("controls").addEventListener("submit", (event) => {
  event.preventDefault();
});
void start(async () => {
  await torch.init();
  const response = await fetchFile("ops.json");
  const only = new URLSearchParams(location.search).get("only")?.split(",");
  for (const operator of (await response.json()) as Operator[]) {
    if (operator.samples.length > 0 && (only === undefined || only.includes(operator.op))) {
      rows.push(addRow(operator));
    }
  }
  stop.disabled = false;
  find("loading").hidden = true;
  await run();
});
