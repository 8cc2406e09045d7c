// What both kernels of the gradients of attention on subgroup matrices share, beside matrix.wgsl and gradient.wgsl.
//
// Of bfloat16, gradients of scores are staged as float16 times a power of two. A gradient is weight * (z - delta), with a
// weight of at most 2 here, and z and delta of at most value_dims * kept * 2^(top of g's row + top of v + 2). So it is below
// 2^change_top(). The power takes that to 2^15.
//
// A kernel that imports this declares
//   const rows, of the workgroup,
//   var<workgroup> steps: array<vec4<u32>, 2u * staged>, the staged steps of two operands, and
//   var<workgroup> products: array<vec4<u32>, 2u * second>, their products with the rows, later weights of these.

const rows_each = rows / 4u;
// Where the second tile of products starts.
const second = columns * product_pitch;

fn group_of(operand: u32, at: u32) -> vec4<u32> {
  if (operand == operand_q) {
    return load_q(p.q_at + at / 8u);
  }
  if (operand == operand_k) {
    return load_k(p.k_at + at / 8u);
  }
  if (operand == operand_v) {
    return load_v(p.v_at + at / 8u);
  }
  return load_g(p.g_at + at / 8u);
}

// 16 dimensions of the staged step: as left factor of the products, whose rows are the step's rows, and as right factor of
// the results, whose sums run over them.
fn step_matrix(start: u32, d: u32) -> Left {
  return subgroupMatrixLoad<Left, row_major>(&steps, start + d / 8u, pitch);
}

fn step_columns(start: u32, d: u32) -> Right {
  return subgroupMatrixLoad<Right, row_major>(&steps, start + d / 8u, pitch);
}

fn weight_matrix(start: u32, row: u32) -> Left {
  return subgroupMatrixLoad<Left, row_major>(&products, start + row * weight_pitch, weight_pitch);
}

// Above the gradients of the scores of queries with that exponent of the largest magnitude in g.
@if(bfloat)
fn change_top(top: i32) -> i32 {
  var exponent = top + v_top + 4 + i32(32u - countLeadingZeros(p.value_dims - 1u));
  @if(dropped) exponent += max(i32(bitcast<u32>(p.kept) >> 23u) - 126, 0);
  return exponent;
}

// What attention_ranges.wgsl wrote of a query.
@if(bfloat)
fn row_word(batch: u32, head: u32, query: u32) -> u32 {
  var word = 0u;
  if (query < p.queries) {
    word = load_pairs(total_at(batch, head, query)).y;
  }
  return word;
}

// Weights, which a rounded score may have made large. What is NaN stays NaN.
fn bounded(weights: vec4<f32>, most: f32) -> vec4<f32> {
  @if(bfloat && (has_bias || modified)) {
    let above = bitcast<vec4<u32>>(weights) - vec4<u32>(bitcast<u32>(most));
    return select(weights, vec4<f32>(most), above <= vec4<u32>(0x7f800000u - bitcast<u32>(most)));
  }
  @elif(bfloat) {
    return min(weights, vec4<f32>(most));
  }
  @else {
    return weights;
  }
}

// Gradients of scores, from weights and from products of the gradients of results and of values.
fn change_of(weights: vec4<f32>, z: vec4<f32>, z_unit: vec4<f32>, delta: vec4<f32>) -> vec4<f32> {
  @if(bfloat) return weights * fma(z, z_unit, -delta);
  @else return weights * (z - delta);
}
