// Four accumulators of a matrix product as one value, per kind of number.

alias row_f = vec4<f32>;
alias row_i = vec4<i32>;
alias row_l = array<vec2<u32>, 4>;
// Real and imaginary parts are kept apart, as columns 0 and 1.
alias row_c = mat2x4<f32>;

fn row_of_f(x0: f32, x1: f32, x2: f32, x3: f32) -> row_f {
  return row_f(x0, x1, x2, x3);
}

fn row_of_i(x0: i32, x1: i32, x2: i32, x3: i32) -> row_i {
  return row_i(x0, x1, x2, x3);
}

fn row_of_l(x0: vec2<u32>, x1: vec2<u32>, x2: vec2<u32>, x3: vec2<u32>) -> row_l {
  return row_l(x0, x1, x2, x3);
}

fn row_of_c(x0: vec2<f32>, x1: vec2<f32>, x2: vec2<f32>, x3: vec2<f32>) -> row_c {
  return row_c(vec4<f32>(x0.x, x1.x, x2.x, x3.x), vec4<f32>(x0.y, x1.y, x2.y, x3.y));
}

fn row_get_f(row: row_f, i: u32) -> f32 {
  return row[i];
}

fn row_get_i(row: row_i, i: u32) -> i32 {
  return row[i];
}

fn row_get_l(row: row_l, i: u32) -> vec2<u32> {
  var copy = row;
  return copy[i];
}

fn row_get_c(row: row_c, i: u32) -> vec2<f32> {
  return vec2<f32>(row[0][i], row[1][i]);
}

fn row_mul_add_f(a: f32, b: row_f, acc: row_f) -> row_f {
  return fma(row_f(a), b, acc);
}

fn row_mul_add_i(a: i32, b: row_i, acc: row_i) -> row_i {
  return row_i(a) * b + acc;
}

fn row_mul_add_l(a: vec2<u32>, b: row_l, acc: row_l) -> row_l {
  return row_l(add_l(acc[0], mul_l(a, b[0])), add_l(acc[1], mul_l(a, b[1])),
               add_l(acc[2], mul_l(a, b[2])), add_l(acc[3], mul_l(a, b[3])));
}

fn row_mul_add_c(a: vec2<f32>, b: row_c, acc: row_c) -> row_c {
  return row_c(fma(row_f(a.x), b[0], fma(row_f(-a.y), b[1], acc[0])),
               fma(row_f(a.x), b[1], fma(row_f(a.y), b[0], acc[1])));
}

fn row_is_finite_f(row: row_f) -> bool {
  return all((bitcast<vec4<u32>>(row) & vec4<u32>(0x7f800000u)) != vec4<u32>(0x7f800000u));
}

fn row_is_finite_c(row: row_c) -> bool {
  return row_is_finite_f(row[0]) && row_is_finite_f(row[1]);
}

fn row_where_f(condition: vec4<bool>, yes: row_f, no: row_f) -> row_f {
  return select(no, yes, condition);
}

fn row_where_c(condition: vec4<bool>, yes: row_c, no: row_c) -> row_c {
  return row_c(select(no[0], yes[0], condition), select(no[1], yes[1], condition));
}
