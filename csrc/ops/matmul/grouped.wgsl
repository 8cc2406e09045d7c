// What the kernels for float32 matrices whose elements lie in groups of four share. A kernel imports this before
// Params, acc_t, acc_scalar and fuse of product.wgsl: then these declarations of e to i hold.
//
// @operand c: out {bits128} // groups of four
// @operand a: in {bits128}
// @operand b: in {bits128}
// @operand d: in {f32} optional
// @operand e: in float optional
// @operand f: in float optional
// @operand g: in float optional
// @operand h: in float optional
// @operand i: in float optional
// @const   a_along_k: bool // groups of four run along K, else across it
// @const   b_along_k: bool
// @const   d_in_c: bool // C's own memory is D
// @require !d_in_c || !has_d

fn load4_a(group: u32) -> vec4<f32> {
  return bitcast<vec4<f32>>(load_a(group));
}

fn load4_b(group: u32) -> vec4<f32> {
  return bitcast<vec4<f32>>(load_b(group));
}

// C's group of four that starts at column n.
fn store_group_c(group: u32, acc: vec4<f32>, batch: u32, m: u32, n: u32) {
  var value = acc;
  @if(scaled) value *= acc_scalar(p.alpha);
  var d = vec4<f32>();
  @if(d_in_c) d = bitcast<vec4<f32>>(load_c(group));
  @if(has_d) {
    let i = p.d_at + batch * p.d_batch + m * p.d_row + n * p.d_column;
    d = vec4<f32>(load_d(i), load_d(i + p.d_column), load_d(i + 2u * p.d_column), load_d(i + 3u * p.d_column));
  }
  @if(scaled && (d_in_c || has_d)) value += acc_scalar(p.beta) * d;
  @elif(d_in_c || has_d) value += d;
  value = vec4<f32>(fuse(value.x, batch, m, n), fuse(value.y, batch, m, n + 1u), fuse(value.z, batch, m, n + 2u),
                    fuse(value.w, batch, m, n + 3u));
  store_c(group, bitcast<vec4<u32>>(value));
}

fn outer_add(a: vec4<f32>, b: vec4<f32>, acc: mat4x4<f32>) -> mat4x4<f32> {
  return mat4x4<f32>(fma(vec4<f32>(a.x), b, acc[0]), fma(vec4<f32>(a.y), b, acc[1]),
                     fma(vec4<f32>(a.z), b, acc[2]), fma(vec4<f32>(a.w), b, acc[3]));
}

fn store_groups(c_batch: u32, batch: u32, m: u32, n: u32, acc: mat4x4<f32>) {
  if (n >= p.n) {
    return;
  }
  let group = (p.c_at * 4u + c_batch * p.c_batch + m * p.c_row + n) >> 2u;
  let step = p.c_row >> 2u;
  if (m < p.m) { store_group_c(group, acc[0], batch, m, n); }
  if (m + 1u < p.m) { store_group_c(group + step, acc[1], batch, m + 1u, n); }
  if (m + 2u < p.m) { store_group_c(group + 2u * step, acc[2], batch, m + 2u, n); }
  if (m + 3u < p.m) { store_group_c(group + 3u * step, acc[3], batch, m + 3u, n); }
}
