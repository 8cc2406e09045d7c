// The rows of rows.yaml.
#pragma once

#include <array>
#include <string_view>

#include "kernels/generate.h"
#include "tables/factory.h"

namespace torch_webgpu {

/// A row of rows.yaml, which describes the fields.
struct FactoryRow {
  const char* name = nullptr;
  kernels::generate::Kind kind{};
  std::string_view value{};
};

using FactoryTable = std::array<FactoryRow, static_cast<size_t>(FactoryOp::kCount)>;
extern const FactoryTable kFactoryRows;

inline const FactoryRow& row(FactoryOp op) { return kFactoryRows[static_cast<size_t>(op)]; }

} // namespace torch_webgpu
