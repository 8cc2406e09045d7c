// Parameters of unfold (im2col) and fold (col2im).

struct Params {
  count: u32,          // elements of the result
  planes: u32,         // channels of the image (fold), or rows of a matrix of columns (unfold)
  image: vec4<u32>,    // strides of batch, channel, row and column
  columns: vec4<u32>,  // strides of batch, row and column
  sizes: vec4<u32>,    // height and width of the image, then places of the kernel along both
  kernel: vec4<u32>,   // height and width, then the dilation
  sliding: vec4<u32>,  // stride, then padding
}
