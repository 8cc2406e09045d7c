// What both kernels of the gradients of attention on subgroup matrices share, beside matrix.wgsl and gradient.wgsl.
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
