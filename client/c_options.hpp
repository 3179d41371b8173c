// Reads the options structs of the C ABI, whose size the caller states: shorter ones of older programs get defaults for
// the rest, longer ones of newer programs must leave what this library does not know at zero. Never reads past
// struct_size. Pure; any thread.
#pragma once

#include "base/status.hpp"
#include "gradsieve/gradsieve.h"

#include <algorithm>
#include <cstring>
#include <string>

namespace gradsieve::client {

/// `ret_options` holds the defaults and is overwritten as far as `options` goes. `first_size` = the struct's size in
/// the first release. Errors: kInvalidArgument (struct_size too small), kVersionMismatch (a field unknown here is set).
template <typename Options>
[[nodiscard]] Status read_options(const char* what, const Options* options, std::size_t first_size,
                                  Options& ret_options) {
    if (options == nullptr) return {};
    std::size_t size = 0;
    std::memcpy(&size, options, sizeof(size));
    if (size < first_size)
        return {StatusCode::kInvalidArgument, std::string(what) + ".struct_size is " + std::to_string(size) +
                                                  ": allowed is " + std::to_string(first_size) +
                                                  " or more; start from the _INIT macro"};
    const auto* bytes = reinterpret_cast<const unsigned char*>(options);
    if (size > sizeof(Options)) {
        const auto* unknown =
            std::find_if(bytes + sizeof(Options), bytes + size, [](unsigned char byte) { return byte != 0; });
        if (unknown != bytes + size)
            return {StatusCode::kVersionMismatch,
                    std::string(what) + " sets the byte at " + std::to_string(unknown - bytes) +
                        ": version " GRADSIEVE_VERSION " knows " + std::to_string(sizeof(Options)) +
                        " bytes; install the newer library"};
    }
    std::memcpy(&ret_options, options, std::min(size, sizeof(Options)));
    ret_options.struct_size = sizeof(Options);
    return {};
}

}  // namespace gradsieve::client
