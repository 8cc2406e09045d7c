// The store of results that the kernels without subgroup matrices share. A kernel that imports this declares the operand
// `out`, p.out_strides and p.value_dims.

// Stores four elements of a row of the result, from dimension d on. What lies behind the row's end is left out.
fn store_group(row_at: u32, d: u32, group: vec4<f32>) {
  let i = p.out_at + row_at + d * p.out_strides.w;
  @if(owns_out) {
    store4_out(i, group.x, group.y, group.z, group.w);
  }
  @else {
    for (var k = 0u; k < min(p.value_dims - d, 4u); k++) {
      store_out(i + k * p.out_strides.w, group[k]);
    }
  }
}
