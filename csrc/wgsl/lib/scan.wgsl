// Combinations of cummax and cummin (ops/scan/rows.yaml): a stands before b. The last of equals wins, and so does the
// last NaN; an accumulator without index is the identity.

fn last_larger_f(a: Indexed_f, b: Indexed_f) -> Indexed_f {
  if (b.index == no_index) {
    return a;
  }
  if (a.index == no_index || is_nan_f(b.value) || (!is_nan_f(a.value) && b.value >= a.value)) {
    return b;
  }
  return a;
}

fn last_larger_i(a: Indexed_i, b: Indexed_i) -> Indexed_i {
  if (b.index == no_index) {
    return a;
  }
  if (a.index == no_index || b.value >= a.value) {
    return b;
  }
  return a;
}

fn last_larger_l(a: Indexed_l, b: Indexed_l) -> Indexed_l {
  if (b.index == no_index) {
    return a;
  }
  if (a.index == no_index || ge_l(b.value, a.value)) {
    return b;
  }
  return a;
}

fn last_smaller_f(a: Indexed_f, b: Indexed_f) -> Indexed_f {
  if (b.index == no_index) {
    return a;
  }
  if (a.index == no_index || is_nan_f(b.value) || (!is_nan_f(a.value) && b.value <= a.value)) {
    return b;
  }
  return a;
}

fn last_smaller_i(a: Indexed_i, b: Indexed_i) -> Indexed_i {
  if (b.index == no_index) {
    return a;
  }
  if (a.index == no_index || b.value <= a.value) {
    return b;
  }
  return a;
}

fn last_smaller_l(a: Indexed_l, b: Indexed_l) -> Indexed_l {
  if (b.index == no_index) {
    return a;
  }
  if (a.index == no_index || le_l(b.value, a.value)) {
    return b;
  }
  return a;
}
