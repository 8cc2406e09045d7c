// Concatenation: one invocation per element of the output.
//
// @operand out: out bits
// @operand in0: in like out
// @operand in1: in like out optional
// @operand in2: in like out optional
// @operand in3: in like out optional
// @operand in4: in like out optional
// @operand in5: in like out optional
// @operand in6: in like out optional
// @operand in7: in like out optional
// @operand in8: in like out optional
// @operand in9: in like out optional
// @operand in10: in like out optional
// @operand in11: in like out optional
// @operand in12: in like out optional
// @require has_in1 || !has_in2
// @require has_in2 || !has_in3
// @require has_in3 || !has_in4
// @require has_in4 || !has_in5
// @require has_in5 || !has_in6
// @require has_in6 || !has_in7
// @require has_in7 || !has_in8
// @require has_in8 || !has_in9
// @require has_in9 || !has_in10
// @require has_in10 || !has_in11
// @require has_in11 || !has_in12

struct Params {
  count: u32,
  rank: u32,
  cat_inner: u32, // elements of the dimensions inside of the concatenated one
  cat_size: u32,
  dims: array<vec4<u32>, 8>,    // innermost first: size, stride in `out`
  inputs: array<vec4<u32>, 39>, // three each: ends of its part of the concatenated dimension; strides, innermost first
}

// `i` counts from the start of the input.
fn load_input(number: u32, i: u32) -> out_t {
  switch (number) {
    @if(has_in1) case 1u: { return load_in1(p.in1_at + i); }
    @if(has_in2) case 2u: { return load_in2(p.in2_at + i); }
    @if(has_in3) case 3u: { return load_in3(p.in3_at + i); }
    @if(has_in4) case 4u: { return load_in4(p.in4_at + i); }
    @if(has_in5) case 5u: { return load_in5(p.in5_at + i); }
    @if(has_in6) case 6u: { return load_in6(p.in6_at + i); }
    @if(has_in7) case 7u: { return load_in7(p.in7_at + i); }
    @if(has_in8) case 8u: { return load_in8(p.in8_at + i); }
    @if(has_in9) case 9u: { return load_in9(p.in9_at + i); }
    @if(has_in10) case 10u: { return load_in10(p.in10_at + i); }
    @if(has_in11) case 11u: { return load_in11(p.in11_at + i); }
    @if(has_in12) case 12u: { return load_in12(p.in12_at + i); }
    default: { return load_in0(p.in0_at + i); }
  }
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) local: u32) {
  let i = (group.y * groups.x + group.x) * 256u + local;
  if (i >= p.count) {
    return;
  }
  let along = (i / p.cat_inner) % p.cat_size;
  var number = 0u;
  while (along >= p.inputs[3u * number].x) {
    number++;
  }
  var out = p.out_at;
  // The input's offset for coordinate 0 of the concatenated dimension. That may lie before the input's first element,
  // and then wraps around below zero.
  var in = p.inputs[3u * number].y;
  var rest = i;
  for (var d = 0u; d < p.rank; d++) {
    let c = rest % p.dims[d].x;
    rest /= p.dims[d].x;
    out += c * p.dims[d].y;
    in += c * p.inputs[3u * number + 1u + d / 4u][d % 4u];
  }
  store_out(out, load_input(number, in));
}
