// Matrix products and convolutions beyond ATen's operators, for tests, measurements and compilers:
// by a named strategy, and with a fused text.
#include "python/products.h"

#include <ATen/ops/empty.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "backend/tensor.h"
#include "launch/dtypes.h"
#include "launch/target_scope.h"
#include "ops/attention/attention.h"
#include "ops/attention/strategies.h"
#include "ops/conv/conv.h"
#include "ops/matmul/strategies.h"
#include "ops/matmul/tuning.h"
#include "runtime/context.h"

namespace torch_webgpu {
namespace {

using at::Tensor;

// Name and tile: rows, columns and step of K.
std::vector<std::tuple<std::string, int64_t, int64_t, int64_t>> strategies() {
  std::vector<std::tuple<std::string, int64_t, int64_t, int64_t>> rows;
  for (const Strategy& row : product_strategies()) {
    rows.emplace_back(row.name, row.tile.m, row.tile.n, row.tile.k);
  }
  return rows;
}

// A text and a strategy, which are looked up once.
class Fused {
protected:
  // No statements: result.value = value. An empty strategy: the one of the lowest cost.
  Fused(const std::string& statements, const std::string& strategy)
      : text_(statements.empty() ? 0 : Fusion::number_of(statements)),
        strategy_(strategy.empty() ? nullptr : &strategy_named(strategy)) {}

  uint32_t text() const { return text_; }
  const Strategy* strategy() const { return strategy_; }
  // Whether a product that is computed in this way takes the strategy.
  bool is_wanted(const Strategy& taken) const {
    return strategy_ == nullptr || &taken == strategy_;
  }

private:
  uint32_t text_;
  const Strategy* strategy_;
};

using Given = const std::optional<Tensor>&;

// What the statements read and write besides the product.
struct Further {
  std::array<std::optional<Tensor>, Fusion::kOperands> operands; // e, f, g, h, i
  std::optional<Tensor> second, seed;
};

// `inputs` are the factors, and what is added to their product, of one dtype.
void check_operands(const Tensor& out, std::initializer_list<Tensor> inputs,
                    const Further& further) {
  const at::ScalarType type = inputs.begin()->scalar_type();
  TORCH_CHECK(is_gemm_dtype(type) && is_gemm_dtype(out.scalar_type()), "no product of ", type,
              " in ", out.scalar_type());
  const Kind kind = info(*native_dtype(type)).kind;
  const auto is_apart = [](const Tensor& result, const Tensor& tensor) {
    // Empty tensors have no memory to share.
    return tensor.numel() == 0 || result.numel() == 0 || !same_buffer(result, tensor);
  };
  const auto check = [&](const Tensor& tensor, bool has_type) {
    TORCH_CHECK(is_apart(out, tensor) && is_webgpu(tensor) && has_type &&
                    (!further.second || is_apart(*further.second, tensor)),
                "the operands of a fused product are other webgpu tensors of fitting dtypes");
  };
  TORCH_CHECK(is_webgpu(out) && info(*native_dtype(out.scalar_type())).kind == kind,
              "the result of a fused product is a webgpu tensor of a fitting dtype");
  if (further.second) {
    const at::ScalarType given = further.second->scalar_type();
    const bool has_type = (at::isFloatingType(given) && is_gemm_dtype(given)) || given == at::kBool;
    TORCH_CHECK(is_webgpu(*further.second) && has_type && kind == Kind::kFloat &&
                    further.second->sizes() == out.sizes() && is_apart(out, *further.second),
                "the second result of a fused product of floats is another webgpu tensor of the "
                "result's size, of float32, float16, bfloat16 or bool");
  }
  for (const Tensor& input : inputs) {
    if (input.defined()) {
      check(input, input.scalar_type() == type);
    }
  }
  for (const std::optional<Tensor>& operand : further.operands) {
    if (operand) {
      const auto dtype = native_dtype(operand->scalar_type());
      check(*operand, dtype.has_value() && info(*dtype).kind == kind);
    }
  }
  if (further.seed) {
    check(*further.seed, further.seed->scalar_type() == at::kLong && further.seed->numel() == 1);
  }
}

// out = result.value, by statements, of value = a @ b, of matrices or of batches of them.
class FusedProduct : public Fused {
public:
  FusedProduct(const std::string& statements, const std::string& strategy)
      : Fused(statements, strategy) {}

  void operator()(const Tensor& out, const Tensor& a, const Tensor& b,
                  const Further& further) const {
    check_operands(out, {a, b}, further);
    Gemm problem = product_of(out, a, b);
    Fusion fusion(text());
    std::array<Tensor, Fusion::kOperands> expanded;
    for (size_t k = 0; k < expanded.size(); ++k) {
      if (further.operands[k]) {
        expanded[k] = further.operands[k]->expand(out.sizes());
        fusion.operands[k] = MatrixView::of(expanded[k]);
      }
    }
    if (further.second) {
      fusion.second = MatrixView::of(*further.second);
    }
    fusion.seed = further.seed ? &*further.seed : nullptr;
    problem.fusion = text() == 0 ? nullptr : &fusion;
    problem.wanted = strategy();
    gemm(problem);
  }

  // Whether a call with tensors that lie like these takes the strategy. They may be meta tensors.
  bool accepts(const Tensor& out, const Tensor& a, const Tensor& b) const {
    Gemm problem = product_of(out, a, b);
    problem.wanted = strategy();
    return strategy() == nullptr ||
           is_wanted(gemm_strategy(problem, plan_target(current_context())));
  }

  static Gemm product_of(const Tensor& out, const Tensor& a, const Tensor& b) {
    const bool batched = out.dim() == 3;
    TORCH_CHECK((batched || out.dim() == 2) && a.dim() == out.dim() && b.dim() == out.dim() &&
                    (!batched || (a.size(0) == out.size(0) && b.size(0) == out.size(0))) &&
                    a.size(-2) == out.size(-2) && b.size(-1) == out.size(-1) &&
                    a.size(-1) == b.size(-2),
                "the sizes of a fused product do not fit: ", out.sizes(), " of ", a.sizes(),
                " and ", b.sizes());
    Gemm problem;
    problem.is_matmul = true;
    problem.op = "fused_product";
    problem.batch = batched ? out.size(0) : 1;
    problem.m = out.size(-2);
    problem.n = out.size(-1);
    problem.k = a.size(-1);
    problem.a = MatrixView::of(a);
    problem.b = MatrixView::of(b);
    problem.c = MatrixView::of(out);
    return problem;
  }
};

// Of bfloat16 matrices or batches of them: their ranges, and their copies in float16.
std::tuple<Tensor, Tensor, Tensor> halves(const Tensor& a, const Tensor& b) {
  TORCH_CHECK(is_webgpu(a) && is_webgpu(b) && a.scalar_type() == at::kBFloat16,
              "ranges are of bfloat16 webgpu tensors");
  std::vector<int64_t> sizes = a.sizes().vec();
  sizes.back() = b.size(-1);
  const Tensor out = at::empty(sizes, a.options().device(at::kMeta));
  const Gemm gemm = FusedProduct::product_of(out, a, b);
  const Product product(gemm);
  const Tensor ranges = product_ranges(product);
  const auto [of_a, of_b] = product_halves(product, ranges);
  return {ranges, of_a, of_b};
}

// out = result.value, by statements, of value = convolution(x, weight, bias).
class FusedConvolution : public Fused {
public:
  FusedConvolution(const std::string& statements, const std::string& strategy,
                   ConvArguments arguments)
      : Fused(statements, strategy), arguments_(std::move(arguments)) {}

  void operator()(const Tensor& out, const Tensor& x, const Tensor& weight,
                  const std::optional<Tensor>& bias, const Further& further) const {
    const at::AutoDispatchBelowADInplaceOrView guard; // for the operators that it may call
    const Tensor given_bias = bias.value_or(Tensor());
    check_operands(out, {x, weight, given_bias}, further);
    TORCH_CHECK(at::isFloatingType(out.scalar_type()), "no fused convolution of ",
                out.scalar_type());
    ConvEpilogue epilogue{.text = text(),
                          .operands = {},
                          .second = further.second.value_or(Tensor()),
                          .wanted = strategy()};
    std::ranges::transform(further.operands, epilogue.operands.begin(), [&](Given operand) {
      return operand ? operand->expand(out.sizes()) : Tensor();
    });
    convolve_into(out, x, weight, given_bias, arguments_, epilogue);
  }

  // As of FusedProduct.
  bool accepts(const Tensor& out, const Tensor& x, const Tensor& weight) const {
    return strategy() == nullptr ||
           is_wanted(convolution_strategy(out, x, weight, arguments_, strategy(),
                                          plan_target(current_context())));
  }

private:
  ConvArguments arguments_;
};

using TunedResult = std::tuple<int64_t, std::string, std::string, int64_t, int64_t, int64_t,
                               int64_t, int64_t, std::string, double>;

// In files, a product that takes the row of the lowest cost.
const std::string kDefaultRow = "Default";

std::vector<TunedResult> tuned_results() {
  std::vector<TunedResult> all;
  for (const auto& [key, row, milliseconds] : tuning::results()) {
    all.emplace_back(key.device, c10::toString(key.type), c10::toString(key.out_type), key.batch,
                     key.m, key.n, key.k, key.traits,
                     row == nullptr ? kDefaultRow : std::string(row->name), milliseconds);
  }
  return all;
}

at::ScalarType type_named(const std::string& name) {
  for (int8_t i = 0; i < static_cast<int8_t>(at::ScalarType::NumOptions); ++i) {
    const auto type = static_cast<at::ScalarType>(i);
    if (name == c10::toString(type)) {
      return type;
    }
  }
  TORCH_CHECK_VALUE(false, "there is no dtype ", name);
}

// All or, if one has an unknown dtype or row, none of them. Raises ValueError then.
void add_tuned_results(const std::vector<TunedResult>& given) {
  std::vector<tuning::Result> results;
  for (const auto& [device, type, out_type, batch, m, n, k, traits, row, milliseconds] : given) {
    results.push_back({{device, type_named(type), type_named(out_type), batch, m, n, k, traits},
                       row == kDefaultRow ? nullptr : &strategy_named(row),
                       milliseconds});
  }
  for (const tuning::Result& result : results) {
    tuning::add(result);
  }
}

} // namespace

void register_products(pybind11::module_& m) {
  namespace py = pybind11;
  m.def("_product_strategies", &strategies);
  m.def("_product_halves", &halves, py::arg("a"), py::arg("b"),
        py::call_guard<py::gil_scoped_release>());
  m.def("_tuning_enable", &tuning::enable, py::arg("value"));
  m.def("_tuning_is_enabled", &tuning::is_enabled);
  m.def("_tuning_settings", [] {
    const tuning::Settings now = tuning::settings();
    return std::tuple(now.tunes, now.milliseconds, now.iterations);
  });
  m.def(
      "_set_tuning_settings",
      [](bool tunes, double milliseconds, int64_t iterations) {
        tuning::set_settings({tunes, milliseconds, iterations});
      },
      py::arg("tunes"), py::arg("milliseconds"), py::arg("iterations"));
  m.def("_tuned_results", &tuned_results);
  m.def("_add_tuned_results", &add_tuned_results, py::arg("results"));
  m.def("_force_product_strategy", [](const std::string& name) { force_strategy(name); });
  m.def("_attention_strategies", [] {
    return std::pair(attention_names(AttentionPass::kForward),
                     attention_names(AttentionPass::kBackward));
  });
  m.def("_force_attention_strategy", [](const std::string& name) { force_attention(name); });
  const py::call_guard<py::gil_scoped_release> without_gil;
  m.def("_attention_scales", &attention_scales, py::arg("q"), py::arg("k"), py::arg("v"),
        py::arg("scale"), py::arg("g") = py::none(), without_gil);
  py::class_<FusedProduct>(m, "FusedProduct")
      .def(py::init<const std::string&, const std::string&>(), py::arg("statements") = "",
           py::arg("strategy") = "")
      .def(
          "__call__",
          [](const FusedProduct& product, const Tensor& out, const Tensor& a, const Tensor& b,
             Given e, Given f, Given g, Given h, Given i, Given second,
             Given seed) { product(out, a, b, {{e, f, g, h, i}, second, seed}); },
          py::arg("out"), py::arg("a"), py::arg("b"), py::arg("e") = py::none(),
          py::arg("f") = py::none(), py::arg("g") = py::none(), py::arg("h") = py::none(),
          py::arg("i") = py::none(), py::arg("second") = py::none(), py::arg("seed") = py::none(),
          without_gil)
      .def("accepts", &FusedProduct::accepts, py::arg("out"), py::arg("a"), py::arg("b"),
           without_gil);
  py::class_<FusedConvolution>(m, "FusedConvolution")
      .def(py::init([](const std::string& statements, const std::string& strategy,
                       std::vector<int64_t> stride, std::vector<int64_t> padding,
                       std::vector<int64_t> dilation, bool transposed,
                       std::vector<int64_t> output_padding, int64_t groups) {
             return FusedConvolution(statements, strategy,
                                     {.stride = std::move(stride),
                                      .padding = std::move(padding),
                                      .dilation = std::move(dilation),
                                      .output_padding = std::move(output_padding),
                                      .transposed = transposed,
                                      .groups = groups});
           }),
           py::arg("statements") = "", py::arg("strategy") = "", py::kw_only(), py::arg("stride"),
           py::arg("padding"), py::arg("dilation"), py::arg("transposed"),
           py::arg("output_padding"), py::arg("groups"))
      .def(
          "__call__",
          [](const FusedConvolution& convolution, const Tensor& out, const Tensor& x,
             const Tensor& weight, Given bias, Given e, Given f, Given g, Given h, Given i,
             Given second) { convolution(out, x, weight, bias, {{e, f, g, h, i}, second, {}}); },
          py::arg("out"), py::arg("x"), py::arg("weight"), py::arg("bias") = py::none(),
          py::arg("e") = py::none(), py::arg("f") = py::none(), py::arg("g") = py::none(),
          py::arg("h") = py::none(), py::arg("i") = py::none(), py::arg("second") = py::none(),
          without_gil)
      .def("accepts", &FusedConvolution::accepts, py::arg("out"), py::arg("x"), py::arg("weight"),
           without_gil);
}

} // namespace torch_webgpu
