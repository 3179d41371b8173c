// One kind of call that all ranks make in the same order (broadcast, check_equal): running numbers from 1, at most one
// open at a time, and an open one that timed out is continued by the same call. Pure bookkeeping, guarded by the core's
// lock.
#pragma once

#include "base/id.hpp"
#include "base/status.hpp"

#include <optional>

namespace gradsieve::client {

class Collective {
public:
    struct Key {
        std::uint64_t subject = 0;  ///< tensor index or digest
        Rank root = 0;
        bool operator==(const Key&) const = default;
    };

    /// True: a new one is to be sent as `next_number()`. False: the open one has this key and is continued.
    /// Errors: kBusy (another one is open).
    [[nodiscard]] Result<bool> check(const Key& key) const;
    [[nodiscard]] Step next_number() const noexcept { return number_ + 1; }
    [[nodiscard]] Step number() const noexcept { return number_; }
    [[nodiscard]] bool is_open() const noexcept { return is_open_; }
    [[nodiscard]] const Key& key() const noexcept { return key_; }
    /// After it was sent.
    void begin(const Key& key);
    /// False: nothing with this number is open (the daemon's mistake).
    [[nodiscard]] bool on_answer(Step number, Status answer);
    /// The answer to `number`; nothing while it is open.
    [[nodiscard]] std::optional<Status> answer_of(Step number) const;
    /// The caller has its answer: the next call begins a new one.
    void close(Step number) noexcept;

private:
    Step number_ = 0;
    bool is_open_ = false;
    Key key_;
    std::optional<Status> answer_;
};

}  // namespace gradsieve::client
