// What the kernels of the gradients of attention share, tiled or on subgroup matrices. g: the gradient of the result. Kernels that
// import this declare an operand `pairs` of bits64: those of attention_delta.wgsl, then the totals of the queries that
// attention_gradient_queries.wgsl writes, [2 * (batch * heads * queries + 1)].
//
// @operand g: in like q

struct Params {
  g_strides: vec4<u32>, // of batch, head, row and dimension
  batches: u32,
}

@if(g_is_bits128)
fn g_group(row_at: u32, d: u32) -> vec4<f32> {
  return bitcast<vec4<f32>>(load_g(p.g_at + (row_at + d) / 4u));
}
@elif(g_is_bits64)
fn g_group(row_at: u32, d: u32) -> vec4<f32> {
  return from_halves(load_g(p.g_at + (row_at + d) / 4u));
}
@else
fn g_group(row_at: u32, d: u32) -> vec4<f32> {
  var group = vec4<f32>();
  for (var i = 0u; i < min(p.value_dims - d, 4u); i++) {
    group[i] = load_g(p.g_at + row_at + (d + i) * p.g_strides.w);
  }
  return group;
}

fn matrix_g(batch: u32, head: u32) -> Matrix {
  return Matrix(operand_g, batch * p.g_strides.x + head * p.g_strides.y, p.g_strides.z, p.queries, p.value_dims);
}

fn group_of(operand: u32, row_at: u32, d: u32) -> vec4<f32> {
  if (operand == operand_q) {
    return q_group(row_at, d);
  }
  if (operand == operand_k) {
    return k_group(row_at, d);
  }
  if (operand == operand_v) {
    return v_group(row_at, d);
  }
  return g_group(row_at, d);
}

// (lse, delta) of a query; (0, 0) behind the last.
fn pair_of(batch: u32, head: u32, query: u32) -> vec2<f32> {
  var pair = vec2<f32>();
  if (query < p.queries) {
    pair = bitcast<vec2<f32>>(load_pairs(p.pairs_at + (batch * p.heads + head) * p.queries + query));
  }
  return pair;
}

// Where the total of a query lies: 1 / the sum of its weights as weight_of() gives them. That sum is 1 but for rounding:
// where scores are as large as a mask of -1e9 makes them, their logarithm, a part of lse, was rounded away.
fn total_at(batch: u32, head: u32, query: u32) -> u32 {
  return p.pairs_at + p.batches * p.heads * p.queries + 2u + (batch * p.heads + head) * p.queries + query;
}

fn draws_of_call() -> Draws {
  let end = p.pairs_at + p.batches * p.heads * p.queries;
  return draws_of(load_pairs(end), load_pairs(end + 1u));
}

// The weight that a score had. A query that saw no key gave none.
fn weight_of(score: f32, lse: f32) -> f32 {
  if (is_neginf_f(lse)) {
    return 0.0;
  }
  return exp_f(score - lse);
}

// Stores of four elements of a row of a gradient, from dimension d on. What lies behind the row's end is left out.
@repeat(x, {dq, dk})
fn store_group_of_$x(row_at: u32, d: u32, group: vec4<f32>) {
  let i = p.${x}_at + row_at + d * p.${x}_strides.w;
  @if(owns_$x) {
    store4_$x(i, group.x, group.y, group.z, group.w);
  }
  @else {
    for (var k = 0u; k < min(p.dims - d, 4u); k++) {
      store_$x(i + k * p.${x}_strides.w, group[k]);
    }
  }
}

fn store_group_of_dv(row_at: u32, d: u32, group: vec4<f32>) {
  let i = p.dv_at + row_at + d * p.dv_strides.w;
  @if(owns_dv) {
    store4_dv(i, group.x, group.y, group.z, group.w);
  }
  @else {
    for (var k = 0u; k < min(p.value_dims - d, 4u); k++) {
      store_dv(i + k * p.dv_strides.w, group[k]);
    }
  }
}
