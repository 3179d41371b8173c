// The tensors a program registered before `start`, in its own order, and the groups they fall into. Must never change
// after `start`. Owned by the job's core and guarded by its lock.
#pragma once

#include "base/status.hpp"
#include "gradsieve/gradsieve.hpp"
#include "shm/message.hpp"

#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gradsieve::client {

class Registry {
public:
    struct Group {
        std::string name;
        std::uint32_t first_tensor = 0;
    };

    /// Index of the new tensor. Errors: kInvalidArgument (name, sizes, samples_max), kAlreadyExists (name taken),
    /// kResourceExhausted (more than kTensorLimit tensors).
    [[nodiscard]] Result<std::uint32_t> add(std::string_view name, std::span<const std::uint64_t> shape,
                                            const TensorOptions& options);

    /// Of a tensor registered with on_device: whether it goes through host memory all the same.
    void set_staged(std::uint32_t index, bool is_staged);

    [[nodiscard]] std::span<const shm::TensorEntry> tensors() const noexcept { return tensors_; }
    [[nodiscard]] std::span<const Group> groups() const noexcept { return groups_; }
    [[nodiscard]] std::uint32_t group_of(std::uint32_t tensor_index) const { return group_of_[tensor_index]; }
    [[nodiscard]] std::optional<std::uint32_t> find_group(std::string_view name) const;
    /// "'', 'generator'": for error texts.
    [[nodiscard]] std::string group_list() const;

private:
    std::vector<shm::TensorEntry> tensors_;
    std::vector<std::uint32_t> group_of_;
    std::vector<Group> groups_;
    std::map<std::string, std::uint32_t, std::less<>> group_index_;
    std::set<std::string, std::less<>> names_;
};

}  // namespace gradsieve::client
