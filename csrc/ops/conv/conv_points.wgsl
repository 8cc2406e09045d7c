// The values of tiles or taps at the 36 points of winograd.wgsl: [point][channel][column] or [point][column][channel] of f32.
// An invocation computes those of one channel of a tile of an image, of its gradient, or of a filter. A column is a tile, of
// all images one after another, or a filter.
//
// @operand out: out {f32}
// @operand in: in {f32}
// @const   source: {images, gradients, filters} // tiles of 6 x 6 elements that start every 4 rows and columns; of 4 x 4; of 3 x 3
// @const   mirrored: bool // both dimensions of the taps
// @const   channels_inner: bool // channels are neighbours in `out`, else columns
// @const   clamped: bool // loads from the edge, and no branches, for software adapters, which compile these slowly
// @grid invocations p.columns * p.channels
// @require !mirrored || filters

import package::conv::winograd::{line_t, Square, transposed, image_points, values_of_three, values_of_four};

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

fn line(channel: u32, row: i32, column: i32) -> line_t {
  @if(filters && mirrored) {
    return line_t(element(channel, row, 2), element(channel, row, 1), element(channel, row, 0), 0.0, 0.0, 0.0);
  }
  @elif(filters) {
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

fn lines(channel: u32, row: i32, column: i32) -> Square {
  @if(filters && mirrored) {
    return Square(line(channel, 2, 0), line(channel, 1, 0), line(channel, 0, 0), line_t(), line_t(), line_t());
  }
  @elif(filters) {
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

fn points(s: Square) -> Square {
  @if(filters) return values_of_three(s);
  @elif(gradients) return values_of_four(s);
  @else return image_points(s);
}

fn store_line(at: u32, values: line_t) {
  store_out(at, values[0].x);
  store_out(at + p.out_point, values[0].y);
  store_out(at + 2u * p.out_point, values[0].z);
  store_out(at + 3u * p.out_point, values[1].x);
  store_out(at + 4u * p.out_point, values[1].y);
  store_out(at + 5u * p.out_point, values[1].z);
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  let i = (wid.y * groups.x + wid.x) * 64u + t;
  if (i >= p.columns * p.channels) {
    return;
  }
  @if(channels_inner) let column = i / p.channels;
  @else let column = i % p.columns;
  @if(channels_inner) let channel = i % p.channels;
  @else let channel = i / p.columns;
  var found = Square();
  if (column < p.tiles) {
    let tile = p.first + column;
    let image = tile / p.tiles_of_image;
    let in_image = tile % p.tiles_of_image;
    let row = p.top + 4 * i32(in_image / p.tiles_of_line);
    let left = p.left + 4 * i32(in_image % p.tiles_of_line);
    let start = p.in_at + image * p.image_stride + channel * p.channel_stride;
    found = points(transposed(points(lines(start, row, left))));
  }
  let at = p.out_at + channel * p.out_channel + column * p.out_column;
  let line_stride = 6u * p.out_point;
  store_line(at, found.r0);
  store_line(at + line_stride, found.r1);
  store_line(at + 2u * line_stride, found.r2);
  store_line(at + 3u * line_stride, found.r3);
  store_line(at + 4u * line_stride, found.r4);
  store_line(at + 5u * line_stride, found.r5);
}
