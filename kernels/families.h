// The families of operators, one file each; op_table.cc joins them into the table.
#pragma once

#include <span>

#include "kernels/op.h"

namespace stampmill {}  // namespace stampmill
