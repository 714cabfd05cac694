// What lowerings to skeletons (kernels/skeletons) share: operands in the one type that a skeleton
// takes. Internal to the families.
#pragma once

#include "graph/dtype.h"
#include "kernels/op.h"
#include "kernels/stage_builder.h"

namespace stampmill {

// Writes `from`, of the given type, to `to` of another, element by element.
inline void EmitConversion(LowerContext& context, ValueId from, DType from_type, const Shape& shape,
                           ValueId to, DType to_type) {
  StageOperands operands;
  const int32_t operand = operands.Add(from, from_type, shape);
  Nest nest;
  nest.kept = shape;
  nest.result = Expr::Cast(to_type, operands.Load(operand, Coords(0, shape.size())));
  nest.output = {.dtype = to_type, .shape = shape};
  EmitNest(context, std::move(operands), std::move(nest), to);
}

// Input `i` as a value of `dtype`: itself where it is one.
inline ValueId InputAs(LowerContext& context, size_t i, DType dtype) {
  const Value& value = context.input(i);
  const ValueId id = context.node().inputs[i];
  if (value.dtype == dtype) return id;
  const Shape shape = *value.shape;
  const DType from = value.dtype;
  const ValueId converted = context.NewValue(dtype, shape, "converted");
  EmitConversion(context, id, from, shape, converted, dtype);
  return converted;
}

}  // namespace stampmill
