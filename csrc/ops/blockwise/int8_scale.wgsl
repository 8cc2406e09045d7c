// out = a * row scale * column scale / 127^2 + bias: the product of matrices of integers -127 to 127 as numbers. The
// factor is bitsandbytes', which has four digits of 1 / 127^2, so that results are the CPU's.
//
// @operand out: out float
// @operand a: in {i32}
// @operand row_scale: in {f32}
// @operand column_scale: in {f32}
// @operand bias: in float optional

struct Params {
  count: u32,
  columns: u32,
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) local: u32) {
  let i = (group.y * groups.x + group.x) * 256u + local;
  if (i >= p.count) {
    return;
  }
  let column = i % p.columns;
  let scale = load_row_scale(p.row_scale_at + i / p.columns) * load_column_scale(p.column_scale_at + column);
  var result = f32(load_a(p.a_at + i)) * scale * 6.200124e-5;
  @if(has_bias) result += load_bias(p.bias_at + column);
  store_out(p.out_at + i, result);
}
