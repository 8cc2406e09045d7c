// The entry point of the matrix product kernels, for matrix ops and convolutions.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>

#include <array>
#include <cstdint>
#include <limits>
#include <string>

#include "kernels/conv_product.h"
#include "wgsl/target.h"

namespace torch_webgpu {

/// A batch of matrices inside a tensor's storage; strides in elements. Stride 0 repeats.
struct MatrixView {
  const at::Tensor* tensor = nullptr; // null: absent
  int64_t offset = 0;                 // from the start of the storage
  int64_t batch = 0, row = 0, column = 0;
  // The distance from the first to the last element, if the strides do not give it (convolutions).
  int64_t reach = -1;
  // Of a fusion's operand, where columns are images and positions (convolutions): the stride of an
  // image. `column` is that of a position. Of A and B: the stride of a block of K.
  int64_t image = 0;
  // Rows of the layout end in whole groups of 16 bytes, with zeros behind the last element.
  bool padded = false;

  static MatrixView of(const at::Tensor& tensor); // of a 2-D or 3-D tensor
  MatrixView transposed() const {
    return {tensor, offset, batch, column, row, reach, image, padded};
  }
  /// The bytes that a kernel touches of the tensor's buffer if it walks so many matrices. Raises if
  /// they do not lie in the storage.
  struct Range {
    const Buffer& buffer;
    uint64_t begin, end;
  };
  Range range(int64_t batches, int64_t rows, int64_t columns) const;
};

/// The addresses of a convolution's elements, which strides alone do not describe: the parameters
/// of conv_places.wgsl behind those of every product.
struct Convolution {
  kernels::conv_product::Form form{};
  bool strided = false; // the stride is not 1
  // B's channels are neighbours, in whole groups of 16 bytes, and taps are numbered with the
  // channel innermost. A is a matrix with strides, of such groups too.
  bool grouped = false;
  // Of grouped ones in form `input`: into how many phases positions are sorted, see
  // conv_groups.wgsl. Then the product's columns are those of the largest phase, and K its taps.
  struct Phases {
    int64_t count = 1;
    std::array<uint32_t, 4> step{}, inverse{}, taps{}, sizes{};
  } phases;
  // For conv_few.wgsl, conv_planes.wgsl and conv_squares.wgsl: the columns and their divisors, the
  // sizes of the weight and of C's images, the channels that are summed up and their stride in the
  // weight.
  struct Few {
    std::array<uint32_t, 4> volume{}, plane{}, row{}, taps{}, sizes{};
    int64_t columns = 0, channels = 0, channel_stride = 0;
  } few;
  kernels::conv_product::Params params{};
};

/// A function of each element of alpha * A @ B + beta * D, applied before it is stored: WGSL
/// statements that set `result.value` from `value`, from the place in C, `batch`, `row` and
/// `column` (u32), from `e`, `f`, `g`, `h` and `i`, the elements of further matrices at that place,
/// and from `seed` (vec2<u32>). Values have the type that products are summed in: f32, i32,
/// vec2<u32> of int64, vec2<f32> of complex64. The statements may also set `result.second` (f32),
/// the element of a second result. Those for convolutions do not use the place: where their sums
/// are cut into pieces, it is another one.
class Fusion {
public:
  explicit Fusion(const std::string& statements) : text_(number_of(statements)) {}
  /// By a text's number.
  explicit Fusion(uint32_t text) : text_(text) {}

  static constexpr uint32_t kPage = 256; // texts of one `fused_page` in product.wgsl
  static constexpr size_t kOperands = 5; // e, f, g, h, i

  // As large as C, of dtypes with that register type; absent ones are zero.
  std::array<MatrixView, kOperands> operands;
  MatrixView second; // as large as C, of a floating dtype or bool; overlaps no other matrix
  const at::Tensor* seed = nullptr; // an element of int64; absent: zero
  /// The storage buffers that these take.
  uint32_t buffers() const;
  uint32_t text() const { return text_; }
  /// The number of a text, from 1. It is kept for the process, as are pipelines. Raises
  /// NotImplementedError for more than 65535.
  static uint32_t number_of(const std::string& statements);
  static std::string text_of(uint32_t number);

private:
  uint32_t text_; // the text's number in pipeline keys
};

struct Strategy;

/// C = fused(alpha * A @ B + beta * D). All four have one dtype that is_gemm_dtype() accepts, but C
/// may have another with the same register type (int32 for narrower integers, float32 for halves).
/// C overlaps neither A nor B, and is D or does not overlap it. Lazy conjugate bits are ignored.
struct Gemm {
  const char* op = "matmul"; // for errors and profiles
  int64_t batch = 1, m = 0, n = 0, k = 0;
  int64_t blocks = 1; // K has so many blocks of k elements: see README.md
  /// How many matrices an operand has: one if all products share it.
  int64_t batches_of(const MatrixView& view) const { return view.batch != 0 ? batch : 1; }
  MatrixView a, b, c, d;
  c10::Scalar alpha = 1;
  c10::Scalar beta = 1;
  const Convolution* conv = nullptr; // null: a plain product
  const Fusion* fusion = nullptr;    // null: none
  const Strategy* wanted = nullptr;  // the way to compute it, where that takes the product
  // Where a part or the transpose of a product lies in the whole, for a fusion: batch, row, column.
  std::array<int64_t, 3> origin{};
  bool flipped = false;
  // A step of a row that computes its product by other ones: a forced row does not hold for it.
  bool is_part = false;
  // Of a matrix operator, for which torch.set_float32_matmul_precision holds.
  bool is_matmul = false;
};

bool is_gemm_dtype(at::ScalarType type);
void gemm(const Gemm& problem);
inline constexpr int kNoCost = std::numeric_limits<int>::max();
/// A row of the table, and what it costs: 0 or less for one that was forced or wanted, kNoCost
/// where there is none.
struct StrategyChoice {
  const Strategy* row = nullptr;
  int cost = kNoCost;
};
/// The row that gemm() takes for a product whose matrices fit storage bindings. Needs no memory of
/// the tensors, as gemm_strategy().
StrategyChoice gemm_choice(const Gemm& problem, const ShaderTarget& target);
/// The way in which gemm() computes a product whose matrices fit storage bindings. Needs no memory
/// of the tensors: they may be meta tensors.
const Strategy& gemm_strategy(const Gemm& problem, const ShaderTarget& target);

} // namespace torch_webgpu
