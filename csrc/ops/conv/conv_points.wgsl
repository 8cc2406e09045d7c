// The values of tiles or taps at the 36 points of winograd.wgsl: [point][channel][column] or [point][column][channel] of f32.
// A point's number is six times that of its x plus that of its y.
// An invocation computes those of one channel of a tile of an image, of its gradient, or of a filter. A column is a tile, of
// all images one after another, or a filter.
//
// @operand out: out {f32}
// @operand in: in {f32}
// @const   source: {any, images, gradients, filters} // what the tiles are: see below
// @const   clamped: bool // loads from the edge, and no branches, for software adapters, which compile these slowly
// @grid invocations p.columns * p.channels
// @require !any || clamped
//
// Tiles of images have 6 x 6 elements and start every 4 rows and columns, tiles of gradients 4 x 4, filters 3 x 3. The source
// `any` takes the size of a tile and the factors of its elements as parameters. It is for software adapters, which compile
// its text in a third of the time, and once for all sources. They take almost twice as long to run it.

@if(!any) import package::conv::winograd::{line_t, Square, transposed, image_points, values_of_three, values_of_four};

struct Params {
  columns: u32,        // of `out`; those from `tiles` on are zeros
  tiles: u32,          // how many are read
  first: u32,          // the number of the first one
  channels: u32,
  tiles_of_line: u32,
  tiles_of_image: u32,
  height: u32,         // sizes of `in`
  width: u32,
  top: i32,            // row of `in` where the first tile starts; negative: in the padding
  left: i32,           // and its column
  image_stride: u32,   // of `in`
  channel_stride: u32,
  row_stride: u32,
  column_stride: u32,
  out_point: u32,      // strides of `out`
  out_channel: u32,
  out_column: u32,
  column_step: u32,    // invocation i computes column i / column_step % columns
  channel_step: u32,   // and channel i / channel_step % channels
  start: u32,          // the element of a channel of `in` at row 0 and column 0: not the first if the strides are negative
  // From here on of `any`.
  size: u32,           // rows of a tile, and columns
  points: u32,         // values of x, and of y: six
  factors: array<vec4<f32>, 12>, // element k of a line has at point i the factor factors[2k + i / 3][i % 3]
}

fn element(channel: u32, row: i32, column: i32) -> f32 {
  // Negative coordinates are large as unsigned numbers.
  let y = bitcast<u32>(row);
  let x = bitcast<u32>(column);
  let is_inside = y < p.height && x < p.width;
  @if(clamped) {
    let place = channel + min(y, p.height - 1u) * p.row_stride + min(x, p.width - 1u) * p.column_stride;
    return select(0.0, load_in(place), is_inside);
  }
  @else {
    if (is_inside) {
      return load_in(channel + y * p.row_stride + x * p.column_stride);
    }
    return 0.0;
  }
}

@if(!any)
fn line(channel: u32, row: i32, column: i32) -> line_t {
  @if(filters) {
    return line_t(element(channel, row, 0), element(channel, row, 1), element(channel, row, 2), 0.0, 0.0, 0.0);
  }
  @elif(gradients) {
    return line_t(element(channel, row, column), element(channel, row, column + 1), element(channel, row, column + 2),
                  element(channel, row, column + 3), 0.0, 0.0);
  }
  @else {
    return line_t(element(channel, row, column), element(channel, row, column + 1), element(channel, row, column + 2),
                  element(channel, row, column + 3), element(channel, row, column + 4), element(channel, row, column + 5));
  }
}

@if(!any)
fn lines(channel: u32, row: i32, column: i32) -> Square {
  @if(filters) {
    return Square(line(channel, 0, 0), line(channel, 1, 0), line(channel, 2, 0), line_t(), line_t(), line_t());
  }
  @elif(gradients) {
    return Square(line(channel, row, column), line(channel, row + 1, column), line(channel, row + 2, column),
                  line(channel, row + 3, column), line_t(), line_t());
  }
  @else {
    return Square(line(channel, row, column), line(channel, row + 1, column), line(channel, row + 2, column),
                  line(channel, row + 3, column), line(channel, row + 4, column), line(channel, row + 5, column));
  }
}

@if(!any)
fn points(s: Square) -> Square {
  @if(filters) return values_of_three(s);
  @elif(gradients) return values_of_four(s);
  @else return image_points(s);
}

@if(!any)
fn store_line(at: u32, values: line_t) {
  store_out(at, values[0].x);
  store_out(at + p.out_point, values[0].y);
  store_out(at + 2u * p.out_point, values[0].z);
  store_out(at + 3u * p.out_point, values[1].x);
  store_out(at + 4u * p.out_point, values[1].y);
  store_out(at + 5u * p.out_point, values[1].z);
}

// The points of three rows of a tile, and of the three others, from the points of its elements' columns.
@if(any)
struct Halves {
  low: vec3<f32>,
  high: vec3<f32>,
}

@if(any)
fn add_element(value: f32, y: u32, halves: Halves) -> Halves {
  // An element behind the tile belongs to another one, and must not count.
  let v = vec3<f32>(select(0.0, value, y < p.size));
  return Halves(fma(p.factors[2u * y].xyz, v, halves.low), fma(p.factors[2u * y + 1u].xyz, v, halves.high));
}

// The points of a column of a tile.
@if(any)
fn column_points(channel: u32, row: i32, column: i32) -> Halves {
  var halves = add_element(element(channel, row, column), 0u, Halves());
  halves = add_element(element(channel, row + 1, column), 1u, halves);
  halves = add_element(element(channel, row + 2, column), 2u, halves);
  halves = add_element(element(channel, row + 3, column), 3u, halves);
  halves = add_element(element(channel, row + 4, column), 4u, halves);
  return add_element(element(channel, row + 5, column), 5u, halves);
}

// Points of `size` rows and columns. The loops' bounds are parameters, so that no compiler unrolls them.
@if(any)
fn store_points(first: u32, channel: u32, row: i32, column: i32, size: u32) {
  var columns = array<f32, 36>();
  for (var x = 0u; x < size; x++) {
    let found = column_points(channel, row, column + i32(x));
    columns[x] = found.low.x;
    columns[x + 6u] = found.low.y;
    columns[x + 12u] = found.low.z;
    columns[x + 18u] = found.high.x;
    columns[x + 24u] = found.high.y;
    columns[x + 30u] = found.high.z;
  }
  var at = first;
  for (var y = 0u; y < p.points; y++) {
    var line = Halves();
    for (var x = 0u; x < size; x++) {
      line = add_element(columns[y * 6u + x], x, line);
    }
    let column_stride = 6u * p.out_point;
    store_out(at, line.low.x);
    store_out(at + column_stride, line.low.y);
    store_out(at + 2u * column_stride, line.low.z);
    store_out(at + 3u * column_stride, line.high.x);
    store_out(at + 4u * column_stride, line.high.y);
    store_out(at + 5u * column_stride, line.high.z);
    at += p.out_point;
  }
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  let i = (wid.y * groups.x + wid.x) * 64u + t;
  if (i >= p.columns * p.channels) {
    return;
  }
  let column = i / p.column_step % p.columns;
  let channel = i / p.channel_step % p.channels;
  let at = p.out_at + channel * p.out_channel + column * p.out_column;
  let tile = p.first + column;
  let image = tile / p.tiles_of_image;
  let in_image = tile % p.tiles_of_image;
  let row = p.top + 4 * i32(in_image / p.tiles_of_line);
  let left = p.left + 4 * i32(in_image % p.tiles_of_line);
  let start = p.in_at + image * p.image_stride + channel * p.channel_stride + p.start;
  @if(any) {
    store_points(at, start, row, left, select(0u, p.size, column < p.tiles));
  }
  @else {
    var found = Square();
    if (column < p.tiles) {
      found = points(transposed(points(lines(start, row, left))));
    }
    let line_stride = 6u * p.out_point;
    store_line(at, found.r0);
    store_line(at + line_stride, found.r1);
    store_line(at + 2u * line_stride, found.r2);
    store_line(at + 3u * line_stride, found.r3);
    store_line(at + 4u * line_stride, found.r4);
    store_line(at + 5u * line_stride, found.r5);
  }
}
