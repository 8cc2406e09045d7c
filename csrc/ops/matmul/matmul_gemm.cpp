#include "ops/matmul/matmul_gemm.h"

#include <ATen/OpMathType.h>

#include <algorithm>
#include <limits>

#include "backend/empty.h"
#include "backend/tensor.h"
#include "launch/dtypes.h"
#include "launch/grid.h"
#include "launch/pipelines.h"
#include "launch/target_scope.h"
#include "ops/matmul/gemm_source.h"
#include "ops/matmul/matmul_split.h"
#include "runtime/context.h"

namespace torch_webgpu {
namespace {

constexpr int64_t kMaxIndex = std::numeric_limits<uint32_t>::max();

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

bool is_one(const c10::Scalar& value) { return value.equal(1); }

GemmEpilogue epilogue_of(const Gemm& problem) {
  if (problem.d.tensor == nullptr) {
    return is_one(problem.alpha) ? GemmEpilogue::kProduct : GemmEpilogue::kScaled;
  }
  return is_one(problem.alpha) && is_one(problem.beta) ? GemmEpilogue::kAdd
                                                       : GemmEpilogue::kScaledAdd;
}

// Binds the part of the buffer that the matrices use, and sets where they start in the binding.
Binding bind(const MatrixView& view, int64_t batch, int64_t rows, int64_t columns,
             GemmParams::Layout& layout) {
  const Buffer& buffer = buffer_of(*view.tensor);
  const ShaderTarget& caps = plan_target(*buffer.context);
  const int64_t bytes = view.tensor->element_size();
  const int64_t last = view.reach >= 0 ? view.reach
                                       : (std::max<int64_t>(batch, 1) - 1) * view.batch +
                                             (std::max<int64_t>(rows, 1) - 1) * view.row +
                                             (std::max<int64_t>(columns, 1) - 1) * view.column;
  Binding binding{&buffer, 0, 0};
  int64_t offset = view.offset;
  if (buffer.size > caps.max_storage_binding_size) {
    const uint64_t begin = static_cast<uint64_t>(offset * bytes);
    binding.offset = begin - begin % caps.storage_offset_alignment;
    // Ends at a whole word, because 1- and 2-byte elements are read with their word.
    const uint64_t end = static_cast<uint64_t>((offset + last + 1) * bytes + 3) / 4 * 4;
    binding.size = std::min(end, buffer.size) - binding.offset;
    offset -= static_cast<int64_t>(binding.offset) / bytes;
    TORCH_CHECK_NOT_IMPLEMENTED(binding.size <= caps.max_storage_binding_size, "a matrix of ",
                                binding.size, " bytes is larger than this device can bind (",
                                caps.max_storage_binding_size, " bytes)");
  }
  TORCH_CHECK_NOT_IMPLEMENTED(offset + last <= kMaxIndex,
                              "a matrix product over more than 2^32 elements");
  layout = {static_cast<uint32_t>(offset), static_cast<uint32_t>(view.batch),
            static_cast<uint32_t>(view.row), static_cast<uint32_t>(view.column)};
  return binding;
}

// Into how many pieces to cut K: enough workgroups for every processor, pieces long enough to pay
// for the second pass over them.
int64_t choose_splits(int64_t workgroups, int64_t k) {
  constexpr int64_t kEnoughWorkgroups = 64;
  constexpr int64_t kShortestPiece = 256;
  if (workgroups >= kEnoughWorkgroups || k < 2 * kShortestPiece) {
    return 1;
  }
  return std::min(ceil_div(kEnoughWorkgroups, workgroups), k / kShortestPiece);
}

// Whether four elements side by side in C always fill whole words.
bool is_packed(const Gemm& problem, DType dtype) {
  if (info(dtype).bytes >= 4) {
    return false; // an element is a word or more: there is nothing to pack
  }
  const int64_t per_word = 4 / static_cast<int64_t>(info(dtype).bytes);
  const MatrixView& c = problem.c;
  // A convolution's columns have an outer level: see ConvParams.
  const bool by_positions = problem.conv == ConvForm::kOutput || problem.conv == ConvForm::kInput;
  if (by_positions && (problem.conv_params.positions[0] % 4 != 0 ||
                       problem.conv_params.padding[3] % per_word != 0)) {
    return false;
  }
  return problem.n % 4 == 0 && c.column == 1 && c.offset % per_word == 0 && c.row % per_word == 0 &&
         c.batch % per_word == 0;
}

bool in_fours(std::initializer_list<int64_t> values) {
  return std::all_of(values.begin(), values.end(), [](int64_t value) { return value % 4 == 0; });
}

// Whether an operand's elements lie in groups of four along K, or across it. `row` is the stride
// across K, `column` that along it.
bool has_groups(const MatrixView& view, int64_t rows, int64_t k, bool along_k) {
  return along_k ? view.column == 1 && in_fours({view.offset, view.batch, view.row, k})
                 : view.row == 1 && in_fours({view.offset, view.batch, view.column, rows});
}

class Launch {
public:
  explicit Launch(const Gemm& problem)
      : problem_(problem), context_(context_of(*problem.a.tensor)), target_(plan_target(context_)) {
    for (const MatrixView* view : {&problem.b, &problem.c, &problem.d}) {
      if (view->tensor != nullptr) {
        check_context("matmul", buffer_of(*view->tensor), context_);
      }
    }
    variant_.dtype = operand_dtype("matmul", "a", problem.a.tensor->scalar_type());
    check_operand_dtype("matmul", "b", problem.b.tensor->scalar_type(), variant_.dtype);
    if (problem.d.tensor != nullptr) {
      check_operand_dtype("matmul", "d", problem.d.tensor->scalar_type(), variant_.dtype);
    }
    params_.a_along_k = problem.a.column <= problem.a.row;
    params_.b_along_k = problem.b.row < problem.b.column;
    variant_.conv = problem.conv;
    variant_.conv_strided = problem.conv_strided;
    params_.conv = problem.conv_params;
    kernel_ = choose_kernel();
    int64_t rows = 128; // of C that a workgroup computes
    int64_t columns = 128;
    if (kernel_ == GemmKernel::kTiled) {
      // Large tiles of complex numbers leave no workgroup memory for the data of convolutions.
      const bool full =
          info(variant_.dtype).kind == Kind::kComplex && problem.conv != ConvForm::kNone;
      variant_.tile = problem.m <= 32 || problem.n <= 32 || full ? 8 : 16;
      rows = columns = 4 * variant_.tile;
    } else if (kernel_ == GemmKernel::kVector) {
      params_.lanes = vector_lanes();
      rows = 128 / params_.lanes;
      columns = 1;
    } else {
      variant_.a_along_k = params_.a_along_k != 0;
      variant_.b_along_k = params_.b_along_k != 0;
    }
    const int64_t tiles_m = ceil_div(problem.m, rows);
    const int64_t tiles_n = ceil_div(problem.n, columns);
    // The kernel without tiles computes 64 elements per workgroup, one per invocation.
    tiles_ = kernel_ == GemmKernel::kDirect ? ceil_div(problem.batch * problem.m * problem.n, 64)
                                            : problem.batch * tiles_m * tiles_n;
    int64_t splits = choose_splits(tiles_, problem.k);
    if (kernel_ == GemmKernel::kDirect) {
      splits = std::max(splits, ceil_div(problem.k, 2048)); // one invocation adds up a piece
    }
    const int64_t k_piece = ceil_div(std::max<int64_t>(ceil_div(problem.k, splits), 1), 16) * 16;
    params_.m = static_cast<uint32_t>(problem.m);
    params_.n = static_cast<uint32_t>(problem.n);
    params_.k = static_cast<uint32_t>(problem.k);
    params_.batch = static_cast<uint32_t>(problem.batch);
    params_.tiles_m = static_cast<uint32_t>(tiles_m);
    params_.tiles_n = static_cast<uint32_t>(tiles_n);
    params_.splits = static_cast<uint32_t>(std::max<int64_t>(ceil_div(problem.k, k_piece), 1));
    params_.k_piece = static_cast<uint32_t>(k_piece);
  }

  void run() {
    const Binding a = bind(problem_.a, problem_.batch, problem_.m, problem_.k, params_.a);
    const Binding b = bind(problem_.b, problem_.batch, problem_.k, problem_.n, params_.b);
    if (params_.splits == 1) {
      finish();
      variant_.packed = kernel_ == GemmKernel::kTiled && is_packed(problem_, variant_.out);
      dispatch(a, b);
      return;
    }
    const at::Tensor pieces = new_pieces(params_.splits);
    variant_.pieces = true;
    variant_.out = accumulator_dtype(variant_.dtype);
    c_ = bind_pieces(pieces);
    dispatch(a, b);
    combine(pieces);
  }

  /// A tensor for the products of `count` parts of K.
  at::Tensor new_pieces(int64_t count) const {
    const DType sum = accumulator_dtype(variant_.dtype);
    const at::ScalarType type = sum == variant_.dtype ? problem_.a.tensor->scalar_type()
                                : sum == DType::kF32  ? at::kFloat
                                                      : at::kInt;
    return empty_webgpu({count, problem_.batch, problem_.m, problem_.n}, type);
  }

  /// Adds up the parts' products to C.
  void combine(const at::Tensor& pieces) {
    params_.splits = static_cast<uint32_t>(pieces.size(0));
    const Binding sums = bind_pieces(pieces);
    finish();
    params_.a = {}; // the pieces start at their buffer
    const int64_t elements = problem_.batch * problem_.m * problem_.n;
    const Pipeline& pipeline =
        pipeline_for(context_, target_, variant_.key(GemmKernel::kReduce),
                     [&] { return gemm_source(GemmKernel::kReduce, variant_); });
    std::array<Binding, 3> bindings = {c_, sums, d_};
    context_.stream.dispatch(pipeline, bindings.data(), has_d_binding() ? 3 : 2, &params_,
                             sizeof(params_),
                             grid_1d(static_cast<uint64_t>(elements), 64, target_));
  }

private:
  Binding bind_pieces(const at::Tensor& pieces) {
    return bind({&pieces, 0, problem_.m * problem_.n, problem_.n, 1},
                problem_.batch * pieces.size(0), problem_.m, problem_.n, params_.c);
  }

  GemmKernel choose_kernel() const {
    const Gemm& g = problem_;
    const bool tiny = g.m <= 8 && g.n <= 8 && g.k <= 64;
    if (g.conv != ConvForm::kNone) {
      return tiny || g.m <= 2 ? GemmKernel::kDirect : GemmKernel::kTiled;
    }
    if (tiny) {
      return GemmKernel::kDirect;
    }
    if (g.n == 1) {
      return GemmKernel::kVector;
    }
    // For smaller matrices much of a tile would lie beyond the edge.
    constexpr int64_t kLarge = 96;
    const bool fits = target_.max_workgroup_storage >= kGemmF32Storage;
    const bool groups = has_groups(g.a, g.m, g.k, params_.a_along_k != 0) &&
                        has_groups(g.b.transposed(), g.n, g.k, params_.b_along_k != 0) &&
                        g.c.column == 1 && in_fours({g.c.offset, g.c.batch, g.c.row, g.n});
    return variant_.dtype == DType::kF32 && g.m >= kLarge && g.n >= kLarge && fits && groups
               ? GemmKernel::kF32
               : GemmKernel::kTiled;
  }

  // With fewer lanes a workgroup computes more rows; with more lanes a long row is shared.
  uint32_t vector_lanes() const {
    if (params_.a_along_k == 0) {
      return problem_.m >= 4096 ? 4 : problem_.m >= 128 ? 16 : 64;
    }
    return problem_.k < 64 ? 8 : problem_.m <= 16 ? 128 : 32;
  }

  bool has_d_binding() const { return reads_d(variant_.epilogue) && !variant_.d_in_c; }

  // Sets up the kernel that stores C itself.
  void finish() {
    variant_.pieces = false;
    variant_.out = operand_dtype("matmul", "c", problem_.c.tensor->scalar_type());
    variant_.epilogue = epilogue_of(problem_);
    c_ = bind(problem_.c, problem_.batch, problem_.m, problem_.n, params_.c);
    if (reads_d(variant_.epilogue)) {
      d_ = bind(problem_.d, problem_.batch, problem_.m, problem_.n, params_.d);
      variant_.d_in_c = c_.buffer == d_.buffer;
      TORCH_INTERNAL_ASSERT(!variant_.d_in_c || c_ == d_);
    }
    const at::ScalarType type = at::toOpMathType(problem_.c.tensor->scalar_type());
    check_fits(problem_.alpha, type);
    check_fits(problem_.beta, type);
    write_scalar(problem_.alpha, accumulator_dtype(variant_.dtype), params_.alpha.data());
    write_scalar(problem_.beta, accumulator_dtype(variant_.dtype), params_.beta.data());
  }

  void dispatch(const Binding& a, const Binding& b) {
    const Pipeline& pipeline = pipeline_for(context_, target_, variant_.key(kernel_),
                                            [&] { return gemm_source(kernel_, variant_); });
    std::array<Binding, 4> bindings = {c_, a, b, d_};
    const auto splits = static_cast<int64_t>(params_.splits);
    const auto workgroups =
        static_cast<uint64_t>(kernel_ == GemmKernel::kDirect
                                  ? ceil_div(problem_.batch * problem_.m * problem_.n * splits, 64)
                                  : tiles_ * splits);
    context_.stream.dispatch(pipeline, bindings.data(), has_d_binding() ? 4 : 3, &params_,
                             sizeof(params_), grid_1d(workgroups, 1, target_));
  }

  const Gemm& problem_;
  Context& context_;
  const ShaderTarget& target_;
  GemmKernel kernel_ = GemmKernel::kTiled;
  GemmVariant variant_;
  GemmParams params_;
  Binding c_, d_;
  int64_t tiles_ = 0;
};

// Computes the product of each part of K, then the sum of these products.
void gemm_in_parts(const Gemm& problem, int64_t k_part) {
  Launch whole(problem);
  const int64_t elements = problem.batch * problem.m * problem.n;
  const at::Tensor pieces = whole.new_pieces(ceil_div(problem.k, k_part));
  for (int64_t s = 0; s < pieces.size(0); ++s) {
    Gemm part =
        part_of(problem, GemmCut::Dim::kK, s * k_part, std::min(k_part, problem.k - s * k_part));
    part.c = {&pieces, s * elements, problem.m * problem.n, problem.n, 1};
    part.d = {};
    part.alpha = 1;
    gemm(part);
  }
  whole.combine(pieces);
}

} // namespace

MatrixView MatrixView::of(const at::Tensor& tensor) {
  const bool batched = tensor.dim() == 3;
  return {&tensor, tensor.storage_offset(), batched ? tensor.stride(0) : 0, tensor.stride(-2),
          tensor.stride(-1)};
}

bool is_gemm_dtype(at::ScalarType type) {
  return native_dtype(type).has_value() && type != at::kBool;
}

void gemm(const Gemm& problem) {
  if (problem.batch == 0 || problem.m == 0 || problem.n == 0) {
    return;
  }
  const GemmCut cut = choose_cut(problem);
  if (cut.dim == GemmCut::Dim::kK) {
    gemm_in_parts(problem, cut.at);
    return;
  }
  if (cut.dim != GemmCut::Dim::kNone) {
    const int64_t size = size_of(problem, cut.dim);
    gemm(part_of(problem, cut.dim, 0, cut.at));
    gemm(part_of(problem, cut.dim, cut.at, size - cut.at));
    return;
  }
  // The kernels store along the rows of C, and take a vector as a column. If C's columns are
  // contiguous, or C is one row, the transposed product is computed.
  const bool by_columns = problem.c.row == 1 && problem.c.column != 1;
  if (problem.conv == ConvForm::kNone && problem.n != 1 && (problem.m == 1 || by_columns)) {
    Gemm flipped = problem;
    std::swap(flipped.m, flipped.n);
    flipped.a = problem.b.transposed();
    flipped.b = problem.a.transposed();
    flipped.c = problem.c.transposed();
    flipped.d = problem.d.transposed();
    Launch(flipped).run();
    return;
  }
  Launch(problem).run();
}

} // namespace torch_webgpu
