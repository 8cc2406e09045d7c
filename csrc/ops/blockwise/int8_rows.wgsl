// Rows of a matrix as integers -127 to 127 and a scale each, the row's greatest magnitude. A workgroup takes a row.
// Elements of at least `threshold` are outliers: they count as zeros, and so do whole columns that are `skipped`.
//
// @operand codes: out {i8, bits32} // bits32: rows of whole words
// @operand absmax: out {f32}
// @operand x: in float
// @operand skipped: in {bool} optional // columns

struct Params {
  rows: u32,
  columns: u32,
  threshold: f32, // 0: no outliers
}

var<workgroup> greatest: array<f32, 256>;

fn element(i: u32) -> f32 {
  let x = load_x(p.x_at + i);
  return select(x, 0.0, p.threshold > 0.0 && abs(x) >= p.threshold);
}

fn code(row: u32, column: u32, factor: f32) -> i32 {
  @if(has_skipped) {
    if (load_skipped(p.skipped_at + column) != 0) {
      return 0;
    }
  }
  let x = round(element(row * p.columns + column) * factor);
  return select(i32(clamp(x, -127.0, 127.0)), 0, is_nan_f(x));
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) local: u32) {
  let row = group.y * groups.x + group.x;
  if (row >= p.rows) {
    return; // all invocations of the group
  }
  var result = 0.0;
  for (var column = local; column < p.columns; column += 256u) {
    result = max_flat_f(result, abs(element(row * p.columns + column)));
  }
  greatest[local] = result;
  for (var half = 128u; half > 0u; half /= 2u) {
    workgroupBarrier();
    if (local < half) {
      greatest[local] = max_flat_f(greatest[local], greatest[local + half]);
    }
  }
  workgroupBarrier();
  let absmax = greatest[0];
  if (local == 0u) {
    store_absmax(p.absmax_at + row, absmax);
  }
  var factor = 0.0; // all elements are zeros, or the row is not finite
  if (is_finite_f(absmax) && absmax > 0.0) {
    factor = div_f(127.0, absmax);
  }
  @if(codes_is_i8) {
    for (var column = local; column < p.columns; column += 256u) {
      store_codes(p.codes_at + row * p.columns + column, code(row, column, factor));
    }
  }
  @else {
    for (var word = local; word * 4u < p.columns; word += 256u) {
      var packed = 0u;
      for (var j = 0u; j < 4u; j++) {
        packed |= (bitcast<u32>(code(row, word * 4u + j, factor)) & 255u) << (j * 8u);
      }
      store_codes(p.codes_at + row * (p.columns / 4u) + word, packed);
    }
  }
}
