// Divides gradients by the loss scale, and sets found_inf if one is not finite (torch.amp.GradScaler).
//
// @operand gradient[]: out float
// @operand inv_scale: in {f32}
// @operand found_inf: update {f32}

import package::foreach::lists::{main};

fn combine_found_inf(old: f32, v: f32) -> f32 {
  return v;
}

fn prepare(t: u32) {}

fn element(v: ptr<function, Elements>, t: u32) {
  let g = (*v).gradient;
  if (!is_finite_f(g)) {
    atomic_update_found_inf(p.found_inf_at, 1.0);
  }
  let factor = load_inv_scale(p.inv_scale_at);
  (*v).gradient = select(g * factor, g, factor == 1.0);
}
