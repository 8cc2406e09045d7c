#include "backend/fallback.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/op_registration/adaption.h>
#include <torch/library.h>

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "backend/generator.h"
#include "backend/graph.h"
#include "backend/registration.h"
#include "backend/tensor.h"

namespace torch_webgpu {
namespace {

FallbackMode mode_from_environment() {
  const char* value = std::getenv("TORCH_WEBGPU_FALLBACK");
  const std::string_view mode = value == nullptr ? "" : value;
  if (mode == "error") {
    return FallbackMode::kError;
  }
  if (mode == "silent") {
    return FallbackMode::kSilent;
  }
  if (!mode.empty() && mode != "warn") {
    TORCH_WARN("TORCH_WEBGPU_FALLBACK='", mode, "' is not warn, error or silent; warn is used");
  }
  return FallbackMode::kWarn;
}

std::atomic<FallbackMode>& mode() {
  static std::atomic<FallbackMode> value{mode_from_environment()};
  return value;
}

struct Counts {
  std::mutex mutex;
  std::map<std::string, uint64_t, std::less<>> by_op;
  std::map<std::string, bool, std::less<>>
      warned; // kept by a reset: one warning per op and process
};

Counts& counts() {
  static auto* value = new Counts; // kernels may run while the process exits
  return *value;
}

// CPU kernels take CPU generators only. This one is seeded from the webgpu generator's state, so
// that results depend on that generator's seed and differ from call to call.
void replace_generators(const c10::FunctionSchema& schema, torch::jit::Stack* stack) {
  static const c10::TypePtr optional_generator =
      c10::OptionalType::create(c10::GeneratorType::get());
  const size_t begin = stack->size() - schema.arguments().size();
  c10::Device device = webgpu_device();
  for (size_t i = begin; i < stack->size(); ++i) {
    const at::Tensor tensor = (*stack)[i].isTensor() ? (*stack)[i].toTensor() : at::Tensor();
    if (tensor.defined() && is_webgpu(tensor)) {
      device = tensor.device();
      break;
    }
  }
  for (size_t i = begin; i < stack->size(); ++i) {
    c10::IValue& value = (*stack)[i];
    std::optional<at::Generator> generator;
    if (value.isGenerator() && value.toGenerator().device().type() == kWebGPU) {
      generator = value.toGenerator();
    } else if (!value.isNone() || *schema.arguments()[i - begin].type() != *optional_generator) {
      continue;
    }
    const PhiloxState state =
        generator_of(generator, generator ? generator->device() : device).philox_state(4);
    value = at::detail::createCPUGenerator(state.seed + state.offset * 0x9e3779b97f4a7c15ull);
  }
}

// Raises for arguments on the CPU, as PyTorch does. Once all arguments are copied to the CPU, these
// would not be noticed. 0-d tensors may be on any device, and so may the indices of index_put_, the
// only lists of optional tensors; ops of other libraries check their own arguments.
void check_common_device(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  const c10::FunctionSchema& schema = op.schema();
  if (schema.operator_name().getNamespace() != "aten") {
    return;
  }
  std::optional<at::Device> common;
  const size_t begin = stack.size() - schema.arguments().size();
  auto check = [&](const at::Tensor& tensor, const std::string& name) {
    if (tensor.defined() && tensor.dim() > 0 && (is_webgpu(tensor) || tensor.is_cpu())) {
      c10::impl::check_and_update_common_device(common, tensor, schema.name().c_str(),
                                                name.c_str());
    }
  };
  for (size_t i = begin; i < stack.size(); ++i) {
    const std::string& name = schema.arguments()[i - begin].name();
    if (stack[i].isTensor()) {
      check(stack[i].toTensor(), name);
    } else if (stack[i].isTensorList()) {
      for (const at::Tensor& tensor : stack[i].toTensorVector()) {
        check(tensor, name);
      }
    }
  }
}

// `cpu_key` is the CPU's key for the layout that the operator was called for.
void run_on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack, c10::DispatchKey cpu_key) {
  check_common_device(op, *stack);
  const std::string name = c10::toString(op.operator_name());
  const bool sparse = cpu_key != c10::DispatchKey::CPU;
  const std::string_view layout = sparse ? "for sparse tensors" : "";
  // The CPU has few kernels for sparse tensors. The operator is not counted where it has none.
  TORCH_CHECK_NOT_IMPLEMENTED(!sparse || op.hasComputedKernelForDispatchKey(cpu_key),
                              "Could not run '", name,
                              "' with arguments from the 'webgpu' backend: there is no kernel ",
                              layout, ", and the CPU has none either.");
  note_fallback(name, layout);
  replace_generators(op.schema(), stack);
  // A view of a CPU copy would not alias its source: better an error than a lost write.
  at::native::cpu_fallback(op, stack, /*error_on_views=*/true, cpu_key);
}

void sparse_cpu_fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  run_on_cpu(op, stack, c10::DispatchKey::SparseCPU);
}

void sparse_csr_cpu_fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  run_on_cpu(op, stack, c10::DispatchKey::SparseCsrCPU);
}

// common_dtype() asserts that operands are promoted. The oldest supported PyTorch has no function
// that tells whether they are.
c10::ScalarType common_dtype(const at::TensorIteratorBase& iter) {
  struct Access : at::TensorIteratorBase {
    using at::TensorIteratorBase::common_dtype_;
  };
  return iter.*(&Access::common_dtype_);
}

// Whether the kernel writes an output in that output's dtype, and not in the dtype it computes in:
// the bool of a comparison, the index of argmax, the exponent of frexp, the result of complex(),
// the norm of complex numbers. (The iterator does not record whether it casts outputs.)
bool writes_own_dtype(const at::TensorIteratorBase& iter, c10::ScalarType common,
                      IteratorForm form) {
  // A comparison writes numbers in the dtype it computes in.
  const bool compares = form != IteratorForm::kReduction && iter.noutputs() == 1;
  for (int i = 0; i < iter.noutputs(); ++i) {
    const c10::ScalarType out = iter.dtype(i);
    const bool joins = c10::isComplexType(out) && c10::toRealValueType(out) == common;
    const bool counts = !compares && c10::isIntegralType(out, /*includeBool=*/false) &&
                        !c10::isIntegralType(common, /*includeBool=*/true);
    const bool measures = !compares && c10::isFloatingType(out) && c10::isComplexType(common);
    if (out == at::kBool || joins || counts || measures) {
      return true;
    }
  }
  return false;
}

// CPU copies of whole storages, so that operands keep their strides, offsets and aliasing.
class StorageMirror {
public:
  at::Tensor on_cpu(const at::TensorBase& tensor) {
    if (!is_webgpu(tensor)) {
      return at::Tensor(tensor);
    }
    const c10::Storage& storage = tensor.storage();
    auto [it, added] = copies_.try_emplace(storage.unsafeGetStorageImpl());
    if (added) {
      it->second = {bytes_of(storage, c10::DispatchKey::PrivateUse1), {}};
      it->second.host = it->second.device.to(at::kCPU);
    }
    at::Tensor view = at::detail::make_tensor<c10::TensorImpl>(
        c10::Storage(it->second.host.storage()), c10::DispatchKeySet(c10::DispatchKey::CPU),
        tensor.dtype());
    view.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides(),
                                                      tensor.storage_offset());
    return view;
  }

  void copy_back(const at::TensorBase& tensor) {
    auto it = copies_.find(tensor.storage().unsafeGetStorageImpl());
    if (it != copies_.end()) {
      it->second.device.copy_(it->second.host);
    }
  }

private:
  struct Copy {
    at::Tensor device;
    at::Tensor host;
  };

  static at::Tensor bytes_of(const c10::Storage& storage, c10::DispatchKey key) {
    at::Tensor bytes = at::detail::make_tensor<c10::TensorImpl>(
        c10::Storage(storage), c10::DispatchKeySet(key), caffe2::TypeMeta::Make<uint8_t>());
    bytes.unsafeGetTensorImpl()->set_sizes_contiguous({static_cast<int64_t>(storage.nbytes())});
    return bytes;
  }

  std::unordered_map<c10::StorageImpl*, Copy> copies_;
};

} // namespace

FallbackMode fallback_mode() { return mode().load(); }

void set_fallback_mode(FallbackMode value) { mode().store(value); }

std::map<std::string, uint64_t> fallback_counts() {
  std::lock_guard<std::mutex> lock(counts().mutex);
  return {counts().by_op.begin(), counts().by_op.end()};
}

void reset_fallback_counts() {
  std::lock_guard<std::mutex> lock(counts().mutex);
  counts().by_op.clear();
}

void note_fallback(std::string_view op, std::string_view reason) {
  const FallbackMode now = fallback_mode();
  TORCH_CHECK_NOT_IMPLEMENTED(now != FallbackMode::kError, "Could not run '", op,
                              "' with arguments from the 'webgpu' backend: there is no kernel",
                              reason.empty() ? "" : " ", reason,
                              ". TORCH_WEBGPU_FALLBACK=warn would run it on the CPU.");
  check_not_capturing(op, "it runs on the CPU");
  bool warn = false;
  {
    std::lock_guard<std::mutex> lock(counts().mutex);
    ++counts().by_op[std::string(op)];
    warn = now == FallbackMode::kWarn && counts().warned.try_emplace(std::string(op)).second;
  }
  if (warn) {
    TORCH_WARN("'", op, "' has no webgpu kernel", reason.empty() ? "" : " ", reason,
               " and runs on the CPU, which is slow. torch.webgpu.fallbacks() counts such calls.");
  }
}

void note_fallback(std::string_view op, at::ScalarType dtype) {
  note_fallback(op, std::string("for ") + c10::toString(dtype));
}

void cpu_fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  run_on_cpu(op, stack, c10::DispatchKey::CPU);
}

void fallback_iterator(at::TensorIteratorBase& iter, std::string_view op,
                       c10::function_ref<void(at::TensorIteratorBase&)> kernel, IteratorForm form) {
  const c10::ScalarType common = common_dtype(iter);
  const bool has_common = form != IteratorForm::kMixed && common != c10::ScalarType::Undefined;
  note_fallback(op, has_common ? common : iter.dtype());
  StorageMirror mirror;
  std::vector<at::Tensor> operands;
  for (int i = 0; i < iter.ntensors(); ++i) {
    operands.push_back(mirror.on_cpu(iter.tensor_base(i)));
  }
  at::TensorIteratorConfig config;
  config
      .set_check_mem_overlap(false) // checked when `iter` was built
      .check_all_same_dtype(false)
      .resize_outputs(false)
      .is_reduction(iter.num_reduce_dims() > 0);
  if (has_common) {
    config.promote_inputs_to_common_dtype(true)
        .promote_integer_inputs_to_float(c10::isFloatingType(common))
        .cast_common_dtype_to_outputs(!writes_own_dtype(iter, common, form));
  }
  for (int i = 0; i < iter.ntensors(); ++i) {
    if (i < iter.noutputs()) {
      config.add_output(operands[i]);
    } else {
      config.add_const_input(operands[i]);
    }
  }
  at::TensorIterator cpu = config.build();
  kernel(cpu);
  for (int i = 0; i < iter.noutputs(); ++i) {
    mirror.copy_back(iter.tensor_base(i));
  }
}

void without_kernel(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                    torch::jit::Stack* stack) {
  register_operators();
  if (op.hasKernelForDispatchKey(c10::DispatchKey::PrivateUse1)) {
    op.redispatchBoxed(keys, stack);
  } else {
    cpu_fallback(op, stack);
  }
}

TW_LIBRARY_IMPL(_, SparsePrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&sparse_cpu_fallback>());
}

TW_LIBRARY_IMPL(_, SparseCsrPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&sparse_csr_cpu_fallback>());
}

} // namespace torch_webgpu
