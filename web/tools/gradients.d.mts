interface Row {
  inputs: string[];
  grad: (string | null)[];
  grad_as: Record<string, (string | null)[]>;
}

/** A module with the formulas of all rows, by the names of rows and of operators that differentiate otherwise. */
export function gradients(rows: Record<string, Row>): string;
