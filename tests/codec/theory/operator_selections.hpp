// Rows of the operator table: selectors that draw what they send.
#pragma once

#include "operator_theory.hpp"

namespace gradsieve::codec {

void add_random_selectors(std::vector<OperatorTheory>& inout_rows);

}  // namespace gradsieve::codec
