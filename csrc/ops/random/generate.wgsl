// Fills a dense tensor with values that follow from their position alone: ranges, random numbers.
// An invocation makes four consecutive elements.
//
// @operand out: words any
// @operand x: in float optional // an input of as many elements
// @const   table: {random_rows, factory_rows} // random/rows.yaml or factory/rows.yaml
// @const   row: u32 in 0..31
// @const   source: {bits, bits64, normal, tensor, draws, position} // what a value is made of, see these tables
// @const   kind: {floats, ints, longs} // of the values
// @const   whole: bool // the elements are a multiple of four
// @require has_x == (tensor || draws)

struct Params {
  count: u32, // elements of this dispatch
  first: u32, // blocks of four elements in front of it
  philox: vec4<u32>, // key, counter
  s: array<vec4<u32>, 2>, // arguments
}

@if(floats) alias value_t = f32;
@elif(ints) alias value_t = i32;
@else alias value_t = vec2<u32>;

@if(bits64) alias random_t = vec2<u32>;
@elif(normal) alias random_t = f32;
@else alias random_t = u32;

fn rounded(v: f32) -> f32 {
  @if(out_is_f16) return round_f16_f(v);
  @elif(out_is_bf16) return round_bf16_f(v);
  @else return v;
}

// The value of element i. x is random, y an element of the input.
fn value(x: random_t, y: f32, i: u32) -> value_t {
  @if(position) let a = p.s[0];
  @if(position) let b = p.s[1];
  @if(bits64) let s0 = p.s[0].xy;
  @elif(!position) let s0 = bitcast<f32>(p.s[0].x);
  @if(bits64) let s1 = p.s[0].zw;
  @elif(!position) let s1 = bitcast<f32>(p.s[0].y);
  @if(draws) var draws = Draws(p.philox.xy, p.philox.zw, i, 0u, vec4<u32>(0u));
  return (
// @region value: an expression of x, y, i, a, b, s0, s1 and draws
  );
}

// Values made of random numbers alone.
fn values_of(a: random_t, b: random_t, c: random_t, d: random_t) -> array<value_t, 4> {
  return array<value_t, 4>(value(a, 0.0, 0u), value(b, 0.0, 0u), value(c, 0.0, 0u), value(d, 0.0, 0u));
}

// The elements 4 * block and on; those of the input begin at `index`.
fn values(block: u32, index: u32) -> array<value_t, 4> {
  @if(draws || position) {
    var v = array<value_t, 4>();
    for (var k = 0u; k < min(4u, p.count - index); k++) {
      @if(draws) v[k] = value(0u, load_x(p.x_at + index + k), 4u * block + k);
      @else v[k] = value(0u, 0.0, 4u * block + k);
    }
    return v;
  }
  @else {
    let w = philox_at(p.philox.xy, block, p.philox.zw);
    @if(bits) return values_of(w.x, w.y, w.z, w.w);
    @elif(normal) {
      let a = normal_pair_f(w.x, w.y);
      let b = normal_pair_f(w.z, w.w);
      return values_of(a.x, a.y, b.x, b.y);
    }
    @elif(bits64) {
      let v = philox_at(p.philox.xy, block, add_l(p.philox.zw, vec2<u32>(1u, 0u)));
      return values_of(w.xy, w.zw, v.xy, v.zw);
    }
    @else {
      // The last invocation has fewer elements; it may read the last one more than once.
      let last = p.count - 1u;
      return array<value_t, 4>(value(w.x, load_x(p.x_at + index), 0u),
                               value(w.y, load_x(p.x_at + min(index + 1u, last)), 0u),
                               value(w.z, load_x(p.x_at + min(index + 2u, last)), 0u),
                               value(w.w, load_x(p.x_at + min(index + 3u, last)), 0u));
    }
  }
}

fn stored(v: value_t) -> out_t {
  return (
// @region stored: v as a value of the output
  );
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) local: u32) {
  let id = (group.y * groups.x + group.x) * 256u + local;
  let start = id * 4u;
  if (start >= p.count) {
    return;
  }
  var v = values(p.first + id, start);
  let at = p.out_at + start;
  @if(!whole) {
    if (p.count - start < 4u) {
      for (var k = 0u; k < p.count - start; k++) {
        store_out(at + k, stored(v[k]));
      }
      return;
    }
  }
  store4_out(at, stored(v[0]), stored(v[1]), stored(v[2]), stored(v[3]));
}
