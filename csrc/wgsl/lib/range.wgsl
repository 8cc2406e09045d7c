// Elements of ranges, from their index.

// 64-bit fixed point in units of `unit.x * unit.y`, two factors since their product may be too
// small for an f32.
fn fixed_point_f(start: vec2<u32>, step: vec2<u32>, i: u32, unit: vec2<f32>) -> f32 {
  return f_from_l(add_l(start, mul_l(step, vec2<u32>(i, 0u)))) * unit.x * unit.y;
}

// From the nearer end, so that both are exact.
fn linspace_f(start: f32, end: f32, step: f32, i: u32, count: u32) -> f32 {
  if (i < count / 2u) {
    return start + step * f32(i);
  }
  return end - step * f32(count - 1u - i);
}

// start + i * (whole + part / parts), cut off towards 0; part < parts.
fn linspace_l(start: vec2<u32>, whole: vec2<u32>, part: u32, parts: u32, i: u32) -> vec2<u32> {
  let product = mul_wide_u(part, i);
  let quotient = div_ul(product, vec2<u32>(parts, 0u));
  let exact = all(mul_l(quotient, vec2<u32>(parts, 0u)) == product);
  let value = add_l(add_l(start, mul_l(whole, vec2<u32>(i, 0u))), quotient);
  return add_l(value, vec2<u32>(select(0u, 1u, is_neg_l(value) && !exact), 0u));
}

// Elements of the lower triangle in the first `rows` rows of a matrix, `col` columns wide. Row r
// has r + offset + 1 of them, but at most `col`.
fn tril_count_u(rows: u32, col: u32, offset: i32) -> u32 {
  let empty = u32(max(0, -offset));
  if (rows <= empty) {
    return 0u;
  }
  let first = u32(i32(empty) + offset + 1);
  let rest = rows - empty;
  let growing = min(rest, col - min(first, col));
  return growing * first + select(growing * (growing - 1u) / 2u, 0u, growing == 0u) +
         (rest - growing) * col;
}

// The same of the upper triangle, whose row r begins at column r + offset.
fn triu_count_u(rows: u32, col: u32, offset: i32) -> u32 {
  return rows * col - tril_count_u(rows, col, offset - 1);
}

// Row and column of element i of a triangle.
fn triangle_position_u(i: u32, rows: u32, col: u32, offset: i32, upper: bool) -> vec2<u32> {
  var low = 0u;
  var high = rows - 1u;
  while (low < high) { // the last row that begins at or before i
    let middle = (low + high + 1u) / 2u;
    let before = select(tril_count_u(middle, col, offset), triu_count_u(middle, col, offset), upper);
    if (before <= i) {
      low = middle;
    } else {
      high = middle - 1u;
    }
  }
  if (!upper) {
    return vec2<u32>(low, i - tril_count_u(low, col, offset));
  }
  let start = u32(clamp(i32(low) + offset, 0, i32(col)));
  return vec2<u32>(low, start + i - triu_count_u(low, col, offset));
}
