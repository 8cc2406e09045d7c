// The loss scale of mixed-precision training: shrinks after an overflow, grows after `interval`
// steps without one.
//
// @operand scale: out {f32}
// @operand tracker: out {i32} // steps without an overflow
// @operand found: in {f32}

struct Params {
  interval: i32,
  growth: f32,
  backoff: f32,
}

@compute @workgroup_size(1)
fn main() {
  let scale = load_scale(p.scale_at);
  if (load_found(p.found_at) != 0.0) {
    store_scale(p.scale_at, scale * p.backoff);
    store_tracker(p.tracker_at, 0);
    return;
  }
  let steps = load_tracker(p.tracker_at) + 1;
  if (steps == p.interval) {
    let grown = scale * p.growth;
    if (is_finite_f(grown)) {
      store_scale(p.scale_at, grown);
    }
    store_tracker(p.tracker_at, 0);
  } else {
    store_tracker(p.tracker_at, steps);
  }
}
