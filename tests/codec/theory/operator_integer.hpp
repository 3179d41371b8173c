// Rows of integer rounding, which is in none of the classes: what it errs by has no bound relative to the vector.
#pragma once

#include "operator_theory.hpp"

namespace gradsieve::codec {

void add_integer(std::vector<OperatorTheory>& inout_rows);

}  // namespace gradsieve::codec
