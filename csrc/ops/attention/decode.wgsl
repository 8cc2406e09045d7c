// What the kernels of few queries do with their results. With one split of the keys they are written; with more, what
// attention_combine.wgsl puts together. A kernel that imports this imports store_group of results.wgsl too.
//
// @operand out: words {f32, f16, bf16} optional // with one split
// @operand lse: out {f32} optional
// @operand parts: out {bits128} optional         // with more: [batch, heads, queries, splits, groups of four]

struct Params {
  out_strides: vec4<u32>, // of batch, head, row and dimension
  lse_batch: u32,         // strides
  lse_head: u32,
  splits: u32,
}

// The lowest finite number. A row's maximum starts here, so that differences with it are defined, and rows masked with
// this very number keep their weights.
const lowest = -0x1.fffffep127f;

// A row of queries, and the largest of its scores and the sum of its weights: of one split, or of all keys.
struct Row {
  batch: u32,
  head: u32,
  query: u32,
  maximum: f32,
  sum: f32,
}

// Four elements of a row's result, from dimension d on.
fn finish_group(row: Row, d: u32, group: vec4<f32>) {
  // With +infinity or NaN among the scores, the whole row is NaN.
  let unseen = row.sum == 0.0 && is_finite_f(row.maximum);
  let inverse = select(select(nan_f(), 1.0 / row.sum, is_finite_f(row.maximum)), 0.0, unseen);
  let row_at = row.batch * p.out_strides.x + row.head * p.out_strides.y + row.query * p.out_strides.z;
  @if(has_out) store_group(row_at, d, group * inverse);
  @if(has_lse) {
    if (d == 0u) {
      store_lse(p.lse_at + row.batch * p.lse_batch + row.head * p.lse_head + row.query,
                select(select(nan_f(), row.maximum + log_f(row.sum), is_finite_f(row.maximum)), -inf_f(), unseen));
    }
  }
}

// The same of a split. Before the groups of a split lies one with its maximum and its sum.
fn store_row_group(row: Row, split: u32, d: u32, group: vec4<f32>) {
  @if(has_parts) {
    let place = ((row.batch * p.heads + row.head) * p.queries + row.query) * p.splits + split;
    let i = p.parts_at + place * ((p.value_dims + 3u) / 4u + 1u);
    store_parts(i + 1u + d / 4u, bitcast<vec4<u32>>(group));
    if (d == 0u) {
      store_parts(i, vec4<u32>(bitcast<u32>(row.maximum), bitcast<u32>(row.sum), 0u, 0u));
    }
  }
  @else finish_group(row, d, group);
}
