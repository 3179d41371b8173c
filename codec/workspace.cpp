#include "codec/workspace.hpp"

namespace gradsieve::codec {

EncodeWorkspace::EncodeWorkspace() : impl_(std::make_unique<Impl>()) {}
EncodeWorkspace::EncodeWorkspace(EncodeWorkspace&&) noexcept = default;
EncodeWorkspace& EncodeWorkspace::operator=(EncodeWorkspace&&) noexcept = default;
EncodeWorkspace::~EncodeWorkspace() = default;

}  // namespace gradsieve::codec
