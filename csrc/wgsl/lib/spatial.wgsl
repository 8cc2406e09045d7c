// Tensors of up to three spatial dimensions behind a batch and a channel dimension: pooling,
// resampling, unfolding. Missing dimensions have size 1.

struct Cell {
  at: vec3<u32>, // depth, row, column
  batch: u32,
  channel: u32,
}

// Strides in elements.
struct Layout {
  step: vec3<u32>,
  offset: u32,
  batch: u32,
  channel: u32,
}

// The layout of a tensor that starts at element `at`; `step` has the strides of depth, row, column and channel.
fn layout_of(at: u32, batch: u32, step: vec4<u32>) -> Layout {
  return Layout(step.xyz, at, batch, step.w);
}

// Cell i of a tensor in memory order: `channels_last` or contiguous.
fn cell_of(i: u32, channels: u32, size: vec3<u32>, channels_last: bool) -> Cell {
  var cell = Cell();
  var rest = i;
  if (channels_last) {
    cell.channel = rest % channels;
    rest /= channels;
  }
  cell.at.z = rest % size.z;
  rest /= size.z;
  cell.at.y = rest % size.y;
  rest /= size.y;
  cell.at.x = rest % size.x;
  rest /= size.x;
  if (!channels_last) {
    cell.channel = rest % channels;
    rest /= channels;
  }
  cell.batch = rest;
  return cell;
}

// The first element of the cell's batch and channel.
fn plane_of(place: Layout, cell: Cell) -> u32 {
  return place.offset + cell.batch * place.batch + cell.channel * place.channel;
}

fn element_of(place: Layout, cell: Cell) -> u32 {
  return plane_of(place, cell) + dot(cell.at, place.step);
}
