// All that differs between the versions of PyTorch that this backend compiles with.
#pragma once

#include <ATen/core/IListRef.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/Padding.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <torch/version.h>

#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

/// Whether PyTorch has this version or a later one.
#define TORCH_WEBGPU_TORCH_AT_LEAST(major, minor)                                                  \
  (TORCH_VERSION_MAJOR > (major) ||                                                                \
   (TORCH_VERSION_MAJOR == (major) && TORCH_VERSION_MINOR >= (minor)))

/// Whether there is torch.accelerator.Graph.
#define TORCH_WEBGPU_HAS_ACCELERATOR_GRAPH TORCH_WEBGPU_TORCH_AT_LEAST(2, 12)

/// ATen's check of an argument. A failure is a RuntimeError before this version of PyTorch. From
/// then on it is an error of `kind`: TYPE, VALUE, INDEX or NOT_IMPLEMENTED.
#define TORCH_WEBGPU_CHECK_SINCE(major, minor, kind, ...)                                          \
  do {                                                                                             \
    if constexpr (TORCH_WEBGPU_TORCH_AT_LEAST(major, minor)) {                                     \
      TORCH_CHECK_##kind(__VA_ARGS__);                                                             \
    } else {                                                                                       \
      TORCH_CHECK(__VA_ARGS__);                                                                    \
    }                                                                                              \
  } while (false)

namespace torch_webgpu {

/// The list of scales of _scaled_mm_v2.
#if TORCH_WEBGPU_TORCH_AT_LEAST(2, 14)
using ScaleList = const at::ITensorListRef&;
#else
using ScaleList = at::TensorList;
#endif

/// A kind of our own of what c10 keeps for a thread. Kinds are the addresses of names; before torch
/// 2.13 they are numbers, of which c10 uses the first few.
template <class Kind = c10::DebugInfoKind>
constexpr Kind debug_info_kind(const std::string_view* name) {
  if constexpr (std::is_enum_v<Kind>) {
    return static_cast<Kind>(0xd7);
  } else {
    return Kind(name);
  }
}

/// Gives the storage other memory, and ends that it shares what it had. Since torch 2.13 a storage
/// says so itself, before that its memory does.
template <class StorageImpl>
void replace_memory(StorageImpl& storage, c10::DataPtr&& memory) {
  storage.set_data_ptr_noswap(std::move(memory));
  if constexpr (requires { storage.clear_materializer(); }) {
    storage.clear_materializer();
  }
}

/// ATen's check of a tensor that is padded along its last `dims` dimensions.
template <int dims>
void check_padded_input(const at::Tensor& input, at::IntArrayRef padding) {
#if TORCH_WEBGPU_TORCH_AT_LEAST(2, 15)
  at::native::padding::check_valid_input(input, padding, dims);
#else
  at::native::padding::check_valid_input<dims>(input, padding);
#endif
}

/// ATen's check of the sizes of _int_mm.
inline void check_int_mm_sizes(const at::Tensor& self, const at::Tensor& mat2) {
#if TORCH_WEBGPU_TORCH_AT_LEAST(2, 15)
  TORCH_CHECK(self.dim() == 2, "_int_mm: self must be a matrix, got ", self.dim(), "-D tensor");
  TORCH_CHECK(mat2.dim() == 2, "_int_mm: mat2 must be a matrix, got ", mat2.dim(), "-D tensor");
  TORCH_CHECK(self.size(1) == mat2.size(0), "_int_mm: mat1 and mat2 shapes cannot be multiplied (",
              self.size(0), "x", self.size(1), " and ", mat2.size(0), "x", mat2.size(1), ")");
#else
  constexpr const char* op = "int_mm_out_cpu";
  TORCH_CHECK(self.dim() == 2, op, ": Expected self to be of dimension 2 but got ", self.dim());
  TORCH_CHECK(mat2.dim() == 2, op, ": Expected mat2 to be of dimension 2 but got ", mat2.dim());
  TORCH_CHECK(self.size(1) == mat2.size(0), op,
              ": self.size(1) needs to match mat2.size(0) but got ", self.size(1), " and ",
              mat2.size(0));
#endif
}

/// ATen's check of the sizes of a product of sparse matrices.
inline void check_sparse_product(const char* op, const at::Tensor& mat1, const at::Tensor& mat2) {
  constexpr bool names_operator = TORCH_WEBGPU_TORCH_AT_LEAST(2, 15);
  TORCH_CHECK(mat1.size(1) == mat2.size(0), names_operator ? op : "", names_operator ? ": " : "",
              "mat1 and mat2 shapes cannot be multiplied (", mat1.size(0), "x", mat1.size(1),
              " and ", mat2.size(0), "x", mat2.size(1), ")");
}

/// How the error of max_unpool3d about the dtype of indices ends.
inline std::string long_indices_suffix(const at::Tensor& indices) {
  constexpr bool is_reworded = TORCH_WEBGPU_TORCH_AT_LEAST(2, 15);
  return is_reworded ? std::string(" but got: ") + c10::toString(indices.scalar_type()) : "";
}

/// ATen's check of max_unpool's input: of the dimensions from `first` on, none is empty.
inline void check_unpooled_sizes(const at::Tensor& self, const std::string& name, int64_t first) {
  constexpr bool is_reworded = TORCH_WEBGPU_TORCH_AT_LEAST(2, 15);
  for (int64_t d = first; d < self.dim(); ++d) {
    TORCH_CHECK(self.size(d) > 0, name,
                "_forward_out_cpu(): Expected input to have non-zero size for non-batch "
                "dimensions, but ",
                is_reworded ? "input has sizes " : "got ", self.sizes(), " with dimension ", d,
                " being empty", is_reworded ? "" : ".");
  }
}

} // namespace torch_webgpu
