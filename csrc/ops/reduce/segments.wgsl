// What segment_reduce and its gradient share. `p.lanes` invocations of a workgroup of 64 handle a segment of a row.

struct Params {
  results: u32, // rows * segments * inner
  segments: u32,
  inner: u32, // interleaved elements
  size: u32, // of the dimension
  lanes: u32, // 1 or 64
  has_initial: u32,
  initial: f32,
}

const kWorkgroup = 64u;

struct Segment {
  x: u32, // the position of element 0 of the row
  begin: u32, // elements of the row
  end: u32,
}

// The segment of a result; empty if there is no such result.
fn segment_of(result: u32) -> Segment {
  let segment = result / p.inner % p.segments;
  let row = result / p.inner / p.segments;
  var found = Segment(row * p.size * p.inner + result % p.inner, 0u, 0u);
  if (result < p.results) {
    let bound = p.bound_at + row * (p.segments + 1u) + segment;
    found.begin = u32(clamp(load_bound(bound), 0, i32(p.size)));
    found.end = u32(clamp(load_bound(bound + 1u), i32(found.begin), i32(p.size)));
  }
  return found;
}
