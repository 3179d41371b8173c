// The bytes of one ring cell. Encoding fills a whole cell; decoding reads untrusted bytes that were copied out of
// shared memory before and checks them against the session's tensors. Layout: docs/shared-memory.md. Pure; any thread.
#pragma once

#include "shm/layout.hpp"
#include "shm/message.hpp"

#include <array>
#include <span>

namespace gradsieve::shm {

using SubmissionCell = std::array<std::byte, kSubmissionCellBytes>;
using CompletionCell = std::array<std::byte, kCompletionCellBytes>;

[[nodiscard]] SubmissionCell build_submission_cell(const Submission& submission) noexcept;
/// Errors: kCorrupt (kind, tensor index, step, sample count or scale out of range; which, and what is allowed).
[[nodiscard]] Result<Submission> parse_submission_cell(const SubmissionCell& cell, std::span<const SlabPlace> slabs);

[[nodiscard]] CompletionCell build_completion_cell(const Completion& completion) noexcept;
/// Errors: kCorrupt (kind, code or index out of range).
[[nodiscard]] Result<Completion> parse_completion_cell(const CompletionCell& cell, std::size_t tensor_count);

}  // namespace gradsieve::shm
