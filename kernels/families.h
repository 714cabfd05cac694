// The families of operators, one file each; op_table.cc joins them into the table.
#pragma once

#include <span>

#include "kernels/op.h"

namespace stampmill {

std::span<const OpDefinition> ActivationOps();
std::span<const OpDefinition> ArgReduceOps();
std::span<const OpDefinition> AttentionOps();
std::span<const OpDefinition> BinaryOps();
std::span<const OpDefinition> BlockOps();
std::span<const OpDefinition> CastOps();
std::span<const OpDefinition> ChannelNormalizationOps();
std::span<const OpDefinition> ControlOps();
std::span<const OpDefinition> ConvOps();
std::span<const OpDefinition> ConvTransposeOps();
std::span<const OpDefinition> CountedOps();
std::span<const OpDefinition> EinsumOps();
std::span<const OpDefinition> ExpertOps();
std::span<const OpDefinition> GatherOps();
std::span<const OpDefinition> GenerateOps();
std::span<const OpDefinition> GridSampleOps();
std::span<const OpDefinition> LinearAttentionOps();
std::span<const OpDefinition> MatMulOps();
std::span<const OpDefinition> MoveOps();
std::span<const OpDefinition> NormalizationOps();
std::span<const OpDefinition> PagedOps();
std::span<const OpDefinition> PoolOps();
std::span<const OpDefinition> QuantizeOps();
std::span<const OpDefinition> RecurrentOps();
std::span<const OpDefinition> ReduceOps();
std::span<const OpDefinition> RegionOps();
std::span<const OpDefinition> ResizeOps();
std::span<const OpDefinition> RotaryOps();
std::span<const OpDefinition> SampleOps();
std::span<const OpDefinition> ScanOps();
std::span<const OpDefinition> ScatterOps();
std::span<const OpDefinition> SelectOps();
std::span<const OpDefinition> ShapeOps();
std::span<const OpDefinition> SignalOps();
std::span<const OpDefinition> SliceOps();
std::span<const OpDefinition> SoftmaxOps();
std::span<const OpDefinition> TfIdfOps();
std::span<const OpDefinition> UnaryOps();

}  // namespace stampmill
