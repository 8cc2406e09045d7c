// What the kernels of LSTM and GRU cells share: what input and hidden state add to the gates before they are
// activated. The gates of a row lie side by side, `width` columns each.

struct Params {
  count: u32,        // elements of the state
  width: u32,        // of the state
  x_row: u32,        // strides
  x_column: u32,
  h_row: u32,
  h_column: u32,
  state_row: u32,
  state_column: u32,
  bias_x_step: u32,
  bias_h_step: u32,
}

fn from_x(row: u32, column: u32) -> f32 {
  var sum = load_x(p.x_at + row * p.x_row + column * p.x_column);
  @if(has_bias_x) sum += load_bias_x(p.bias_x_at + column * p.bias_x_step);
  return sum;
}

fn from_h(row: u32, column: u32) -> f32 {
  var sum = load_h(p.h_at + row * p.h_row + column * p.h_column);
  @if(has_bias_h) sum += load_bias_h(p.bias_h_at + column * p.bias_h_step);
  return sum;
}

fn preactivation(row: u32, column: u32) -> f32 {
  return from_x(row, column) + from_h(row, column);
}

fn old_state(row: u32, column: u32) -> f32 {
  return load_state(p.state_at + row * p.state_row + column * p.state_column);
}
