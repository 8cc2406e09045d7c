// The entry point of the kernels that find elements by index tensors. gather, scatter, index, index_put, take and their
// relatives differ only in strides, in whether an index applies to `in` or to `out`, and in what is done with an
// element. A kernel that imports `main` defines place_element(out, in), and out_begin() and in_begin(), which return
// the offsets of the two tensors.
//
// An invocation handles one coordinate of the first `rank` dimensions. It visits all coordinates of the next
// `serial_rank` dimensions in order, so updates of an element along these have a fixed order and need no atomics.
//
// @grid invocations p.count

struct Params {
  count: u32, // coordinates of the parallel dimensions
  rank: u32,
  serial_count: u32,
  serial_rank: u32,
  wrap_negative: u32, // 1: negative indices count from the end
  dim: u32,           // the dimension that the first index selects from, for errors
  error: u32,         // the code to write
  value: vec4<u32>,             // the bits of the element that is filled in
  indices: array<vec4<u32>, 5>, // of each index tensor: valid size, stride in `out`, stride in `in`
  dims: array<vec4<u32>, 24>,   // innermost first, two vectors each: size, strides in out, in, index 0; in index 1...4
}

struct Place {
  out: u32,
  in: u32,
  index0: u32,
  index: vec4<u32>,
}

// Reports an index out of range to the host. The first invocation to do so also reports the index.
fn report(index: vec2<u32>, dim: u32, size: u32) {
  loop {
    let claim = atomicCompareExchangeWeak(&errors[0], 0u, p.error);
    if (claim.exchanged) {
      atomicStore(&errors[1], index.x);
      atomicStore(&errors[2], index.y);
      atomicStore(&errors[3], dim);
      atomicStore(&errors[4], size);
    }
    if (claim.exchanged || claim.old_value != 0u) {
      break;
    }
  }
}

// Moves `place` by the index of tensor k. False if the index is out of range.
fn steer(place: ptr<function, Place>, k: u32, index: vec2<u32>) -> bool {
  let axis = p.indices[k];
  var low = index.x;
  var high = index.y;
  if (p.wrap_negative == 1u && (high >> 31u) == 1u) {
    let sum = low + axis.x;
    high += select(0u, 1u, sum < low);
    low = sum;
  }
  if (high != 0u || low >= axis.x) {
    report(index, p.dim + k, axis.x);
    return false;
  }
  (*place).out += low * axis.y;
  (*place).in += low * axis.z;
  return true;
}

// Moves `place` by every index. False if one is out of range.
fn follow_indices(place: ptr<function, Place>) -> bool {
  var ok = true;
  @if(index0_is_i32) ok = steer(place, 0u, l_from_i(load_index0((*place).index0)));
  @elif(has_index0) ok = steer(place, 0u, load_index0((*place).index0));
  @if(index1_is_i32) ok = ok && steer(place, 1u, l_from_i(load_index1((*place).index[0])));
  @elif(has_index1) ok = ok && steer(place, 1u, load_index1((*place).index[0]));
  @if(index2_is_i32) ok = ok && steer(place, 2u, l_from_i(load_index2((*place).index[1])));
  @elif(has_index2) ok = ok && steer(place, 2u, load_index2((*place).index[1]));
  @if(index3_is_i32) ok = ok && steer(place, 3u, l_from_i(load_index3((*place).index[2])));
  @elif(has_index3) ok = ok && steer(place, 3u, load_index3((*place).index[2]));
  @if(index4_is_i32) ok = ok && steer(place, 4u, l_from_i(load_index4((*place).index[3])));
  @elif(has_index4) ok = ok && steer(place, 4u, load_index4((*place).index[3]));
  return ok;
}

fn advance(place: ptr<function, Place>, number: u32, first: u32, rank: u32) {
  var rest = number;
  for (var d = first; d < first + rank; d++) {
    let dim = p.dims[2u * d];
    let c = rest % dim.x;
    rest /= dim.x;
    (*place).out += c * dim.y;
    (*place).in += c * dim.z;
    (*place).index0 += c * dim.w;
    (*place).index += c * p.dims[2u * d + 1u];
  }
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) local: u32) {
  let i = (group.y * groups.x + group.x) * 256u + local;
  if (i >= p.count) {
    return;
  }
  var start = Place(out_begin(), in_begin(), p.index0_at,
                    vec4<u32>(p.index1_at, p.index2_at, p.index3_at, p.index4_at));
  advance(&start, i, 0u, p.rank);
  for (var j = 0u; j < p.serial_count; j++) {
    var place = start;
    advance(&place, j, p.rank, p.serial_rank);
    if (follow_indices(&place)) {
      place_element(place.out, place.in);
    }
  }
}
