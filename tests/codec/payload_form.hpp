// The fixture of suites that hold every instruction set's payload kernels to one answer. Tests only.
#pragma once

#include "codec/payload_kernels.hpp"

#include <gtest/gtest.h>

namespace gradsieve::test {

/// Runs each test once per instruction set's form; skips those that this CPU lacks.
class PayloadForm : public ::testing::TestWithParam<codec::CpuForm> {
protected:
    void SetUp() override {
        kernels_ = codec::payload_kernels_of(GetParam());
        if (kernels_ == nullptr) GTEST_SKIP() << "this CPU lacks the instruction set";
    }
    const codec::PayloadKernels& kernels() const { return *kernels_; }

private:
    const codec::PayloadKernels* kernels_ = nullptr;
};

}  // namespace gradsieve::test
