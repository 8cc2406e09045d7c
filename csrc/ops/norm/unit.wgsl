// The elements of a row that an invocation loads and stores together: one, or two neighbours. Where `y` owns its words,
// every row starts at a word boundary.

@if(owns_y) const unit = 2u;
@else const unit = 1u;
@if(owns_y) alias unit_t = vec2<f32>;
@else alias unit_t = f32;

fn store_unit(i: u32, v: unit_t) {
  @if(owns_y) store2_y(p.y_at + i, v.x, v.y);
  @else store_y(p.y_at + i, v);
}

// The sum of the elements.
fn total(v: unit_t) -> f32 {
  @if(owns_y) return v.x + v.y;
  @else return v;
}
