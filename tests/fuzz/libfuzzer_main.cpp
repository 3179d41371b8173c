// The entry that libFuzzer calls.
#include "tests/fuzz/fuzz_target.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    gradsieve::fuzz::run_one({reinterpret_cast<const std::byte*>(data), size});
    return 0;
}
