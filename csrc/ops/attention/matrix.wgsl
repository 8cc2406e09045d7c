// What the kernels of attention on subgroup matrices share. A workgroup of four subgroups keeps `rows` rows of one operand,
// and walks the rows of another in steps of 16, the columns. WGSL cannot read single elements of a subgroup matrix. So the
// products of a step are stored in workgroup memory as [column][row], and each invocation reads those of its own row.
//
// bfloat16 becomes float16 times a power of two for each head: scales.wgsl.
//
// A kernel that imports this imports scales.wgsl too, and declares
//   fn group_of(operand: u32, at: u32) -> vec4<u32>: the group of eight elements at element `at`,
//   const rows, of the workgroup: 64 or 128, and
//   var<workgroup> products: array<vec4<u32>>, of at least 576 elements: 4 subgroups * 16 rows * part_pitch.
//
// @const   wide: bool // heads of up to 128 dimensions, else of up to 64
// @const   converted: bool // operands of bfloat16 are what attention_halves.wgsl made of them

alias Left = subgroup_matrix_left<f16, 16, 16>;

alias Right = subgroup_matrix_right<f16, 16, 16>;

alias Sum = subgroup_matrix_result<f32, 16, 16>;

const threads = 128u;
const columns = 16u;
const log2_e = 1.4426950408889634;

// Groups of eight elements in a staged row of a step, and from one to the next: one is padding, against bank conflicts.
@if(wide) const row_groups = 16u;
@else const row_groups = 8u;
const pitch = row_groups + 1u;
const staged = columns * pitch;
const part_pitch = 9u;                   // of rows of which 64 dimensions are staged
const product_pitch = (rows + 8u) / 4u;  // of the products of a column, in groups of four
const weight_pitch = 3u;                 // of the weights of a row, in groups of eight; one is padding

// Of bfloat16, set by take_scales(): what the elements of the operands are multiplied with.
var<private> q_factor = 1.0;
var<private> k_factor = 1.0;
var<private> v_factor = 1.0;
var<private> g_factor = 1.0;
var<private> with_subnormals = false;
// The exponents of the largest magnitudes.
var<private> q_top = 0;
var<private> k_top = 0;
var<private> v_top = 0;
var<private> g_top = 0;
// What products of staged queries and keys are multiplied with to get those of the operands.
var<private> product_unit = 1.0;

@if(bfloat)
fn take_scales(batch: u32, head: u32) {
  let words = load_scales(p.scales_at + batch * p.heads + head);
  q_top = top_of(words, operand_q);
  k_top = top_of(words, operand_k);
  v_top = top_of(words, operand_v);
  g_top = top_of(words, operand_g);
  q_factor = factor_of(q_top);
  k_factor = factor_of(k_top);
  v_factor = factor_of(v_top);
  g_factor = factor_of(g_top);
  with_subnormals = (words.x & 2u) != 0u;
  product_unit = power_of_two(q_top + k_top - 30);
}

// What is staged of a group.
fn staged_group(group: vec4<u32>, factor: f32) -> vec4<u32> {
  @if(bfloat && !converted) return halves_from(group, factor, with_subnormals);
  @else return group;
}

// What products are multiplied with to get scores.
fn product_scale() -> f32 {
  @if(bfloat) return p.scale * product_unit;
  @else return p.scale;
}

// Eight elements of a row; zero behind its end, and behind the last row.
fn group_or_zero(m: Matrix, row: u32, d: u32) -> vec4<u32> {
  if (row < m.rows && d < m.dims) {
    return group_of(m.operand, m.at + row * m.stride + d);
  }
  return vec4<u32>();
}

// A group of a step.
fn step_group(m: Matrix, first: u32, n: u32) -> vec4<u32> {
  return group_or_zero(m, first + n / row_groups, n % row_groups * 8u);
}

fn staged_at(n: u32) -> u32 {
  return n / row_groups * pitch + n % row_groups;
}

// Stages 64 dimensions, from d0 on, of 16 rows for each subgroup, in `products`. It has barriers: all invocations call it.
fn stage_rows(m: Matrix, factor: f32, first: u32, d0: u32, subgroup: u32, lane: u32) {
  workgroupBarrier();
  for (var n = lane; n < 128u; n += 32u) {
    let group = group_or_zero(m, first + n / 8u, d0 + n % 8u * 8u);
    products[(subgroup * 16u + n / 8u) * part_pitch + n % 8u] = staged_group(group, factor);
  }
  workgroupBarrier();
}

// A right factor: 16 of the dimensions that stage_rows() staged, by the 16 rows.
fn row_matrix(subgroup: u32, d: u32) -> Right {
  return subgroupMatrixLoad<Right, col_major>(&products, subgroup * 16u * part_pitch + d / 8u, part_pitch);
}

// A row's products with four columns of the step. The tile of products starts at `start`.
fn products_of(start: u32, row: u32, column: u32) -> vec4<f32> {
  let i = start + column * product_pitch + row / 4u;
  let e = row % 4u;
  return bitcast<vec4<f32>>(vec4<u32>(products[i][e], products[i + product_pitch][e],
                                      products[i + 2u * product_pitch][e], products[i + 3u * product_pitch][e]));
}

fn halves_of(a: vec4<f32>, b: vec4<f32>) -> vec4<u32> {
  return vec4<u32>(pack2x16float(a.xy), pack2x16float(a.zw), pack2x16float(b.xy), pack2x16float(b.zw));
}

fn four_from(first: u32) -> vec4<u32> {
  return vec4<u32>(first, first + 1u, first + 2u, first + 3u);
}

fn are_seen(queries: vec4<u32>, keys: vec4<u32>) -> vec4<bool> {
  return vec4<bool>(sees(queries.x, keys.x), sees(queries.y, keys.y), sees(queries.z, keys.z),
                    sees(queries.w, keys.w));
}

// Scores from products. `unit`: what the products are multiplied with first, if there is a bias or a score_mod, else
// product_scale() or a vector that has it as a factor. With these, pairs that do not see each other get -infinity. Without one nothing is
// masked here: callers do, by keys_seen() or are_seen().
fn scores_of(x: vec4<f32>, unit: vec4<f32>, batch: u32, head: u32, queries: vec4<u32>,
             keys: vec4<u32>) -> vec4<f32> {
  @if(has_bias || modified) {
    @if(bfloat) let y = x * unit;
    @else let y = x;
    return final_scores(y, batch, head, queries, keys);
  }
  @else return x * unit;
}

// The unit of the scores that have no other.
fn score_unit() -> vec4<f32> {
  @if(has_bias || modified) return vec4<f32>(product_unit);
  @else return vec4<f32>(product_scale());
}

// The gradients of scaled products, from those of their scores. `unit` as in scores_of().
fn gradients_of(x: vec4<f32>, unit: vec4<f32>, given: vec4<f32>, batch: u32, head: u32, queries: vec4<u32>,
                keys: vec4<u32>) -> vec4<f32> {
  @if(bfloat) return final_gradients(x * unit, given, batch, head, queries, keys);
  @else return final_gradients(x, given, batch, head, queries, keys);
}

// exp(score - lse). An lse of +infinity gives weights of 0. Without a bias, pairs that do not see each other get arbitrary
// weights, infinity included: callers replace them.
fn weights_of(x: vec4<f32>, unit: vec4<f32>, lse: vec4<f32>, batch: u32, head: u32, queries: vec4<u32>,
              keys: vec4<u32>) -> vec4<f32> {
  return exp2((scores_of(x, unit, batch, head, queries, keys) - lse) * log2_e);
}

// Whether a step has pairs of rows and columns of which some do not see each other.
fn is_masked(first_query: u32, queries: u32, first_key: u32, keys: u32) -> bool {
  return first_query + queries > p.queries || first_key + keys > p.keys ||
         (causal && first_key + keys > first_query + 1u);
}

// Stores 16 x 16 results of each subgroup in `products`. It has barriers. Lanes 2r and 2r + 1 share row r; results_of()
// gives four of a lane's eight elements.
fn stage_results(results: Sum, subgroup: u32) {
  workgroupBarrier();
  subgroupMatrixStore<row_major>(&products, subgroup * 80u, results, 5u);
  workgroupBarrier();
}

fn results_of(subgroup: u32, lane: u32, half: u32) -> vec4<f32> {
  return bitcast<vec4<f32>>(products[subgroup * 80u + lane / 2u * 5u + lane % 2u * 2u + half]);
}
