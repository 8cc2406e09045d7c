// The operands of attention, as all its kernels read them.
//
// q: queries [batch, heads, queries, dims]. k: keys [batch, heads / group, keys, dims]. v: values [batch, heads /
// group, keys, value_dims]. bias: is added to the scaled scores [batch, heads, queries, keys].
//
// @operand q: in {f32, f16, bf16, bits64, bits128} // raw bits: groups of four elements, of eight in attention_matrix*.wgsl
// @operand k: in like q
// @operand v: in like q
// @operand bias: in {f32, f16, bf16} optional
// @const   bfloat: bool // halves in raw bits are bfloat16
// @const   causal: bool // a query sees the keys up to its own place
// @const   dropped: bool // weights are dropped at random, the same ones in every kernel

struct Params {
  q_strides: vec4<u32>, // of batch, head, row and dimension
  k_strides: vec4<u32>,
  v_strides: vec4<u32>,
  bias_strides: vec4<u32>,
  heads: u32,
  group: u32,           // heads of queries that share one of keys
  queries: u32,
  keys: u32,
  dims: u32,
  value_dims: u32,
  scale: f32,
  // Of dropout: what a kept weight is multiplied with, the probability to keep it, and where the batches and heads lie
  // in the whole call.
  kept: f32,
  keep: f32,
  first_batch: u32,
  first_head: u32,
  all_heads: u32,
}

// The rows of one head of an operand.
struct Matrix {
  operand: u32,
  at: u32,     // of the first row,
  stride: u32, // of rows, in elements
  rows: u32,
  dims: u32,
}

const operand_q = 0u;
const operand_k = 1u;
const operand_v = 2u;
const operand_g = 3u;

fn matrix_q(batch: u32, head: u32) -> Matrix {
  return Matrix(operand_q, batch * p.q_strides.x + head * p.q_strides.y, p.q_strides.z, p.queries, p.dims);
}

fn matrix_k(batch: u32, head: u32) -> Matrix {
  return Matrix(operand_k, batch * p.k_strides.x + head * p.k_strides.y, p.k_strides.z, p.keys, p.dims);
}

fn matrix_v(batch: u32, head: u32) -> Matrix {
  return Matrix(operand_v, batch * p.v_strides.x + head * p.v_strides.y, p.v_strides.z, p.keys, p.value_dims);
}

// Four elements of a row, from dimension d on. Behind the row's end they are zero.
@repeat(x, {q, k}) {
  @if(${x}_is_bits128)
  fn ${x}_group(row_at: u32, d: u32) -> vec4<f32> {
    return bitcast<vec4<f32>>(load_$x(p.${x}_at + (row_at + d) / 4u));
  }
  @elif(${x}_is_bits64)
  fn ${x}_group(row_at: u32, d: u32) -> vec4<f32> {
    return from_halves(load_$x(p.${x}_at + (row_at + d) / 4u));
  }
  @else
  fn ${x}_group(row_at: u32, d: u32) -> vec4<f32> {
    var group = vec4<f32>();
    for (var i = 0u; i < min(p.dims - d, 4u); i++) {
      group[i] = load_$x(p.${x}_at + row_at + (d + i) * p.${x}_strides.w);
    }
    return group;
  }
}

@if(v_is_bits128)
fn v_group(row_at: u32, d: u32) -> vec4<f32> {
  return bitcast<vec4<f32>>(load_v(p.v_at + (row_at + d) / 4u));
}
@elif(v_is_bits64)
fn v_group(row_at: u32, d: u32) -> vec4<f32> {
  return from_halves(load_v(p.v_at + (row_at + d) / 4u));
}
@else
fn v_group(row_at: u32, d: u32) -> vec4<f32> {
  var group = vec4<f32>();
  for (var i = 0u; i < min(p.value_dims - d, 4u); i++) {
    group[i] = load_v(p.v_at + row_at + (d + i) * p.v_strides.w);
  }
  return group;
}

// Whether a query sees a key.
fn sees(query: u32, key: u32) -> bool {
  return query < p.queries && key < p.keys && (!causal || key <= query);
}

// How many keys a query sees: the first ones.
fn keys_seen(query: u32) -> u32 {
  return select(0u, select(p.keys, min(p.keys, query + 1u), causal), query < p.queries);
}

fn score_of(product: f32, batch: u32, head: u32, query: u32, key: u32) -> f32 {
  if (!sees(query, key)) {
    return -inf_f();
  }
  var score = product * p.scale;
  @if(has_bias) {
    score += load_bias(p.bias_at + batch * p.bias_strides.x + head * p.bias_strides.y + query * p.bias_strides.z +
                       key * p.bias_strides.w);
  }
  return score;
}

// Where the random numbers of a call start.
struct Draws {
  seed: vec2<u32>,
  counter: vec2<u32>,
}

fn draws_of(seed: vec2<u32>, offset: vec2<u32>) -> Draws {
  return Draws(seed, vec2<u32>((offset.x >> 2u) | (offset.y << 30u), offset.y >> 2u));
}

// What dropout multiplies the weights of four keys with, of which `key` is one: those at key / 4 * 4 and behind it.
fn factors_of(draws: Draws, batch: u32, head: u32, query: u32, key: u32) -> vec4<f32> {
  let row = ((p.first_batch + batch) * p.all_heads + p.first_head + head) * p.queries + query;
  let bits = philox(draws.seed, vec4<u32>(draws.counter, row, key / 4u));
  let drawn = vec4<f32>(uniform_f(bits.x), uniform_f(bits.y), uniform_f(bits.z), uniform_f(bits.w));
  return select(vec4<f32>(), vec4<f32>(p.kept), drawn < vec4<f32>(p.keep));
}
