#include "client/collective.hpp"

#include <utility>

namespace gradsieve::client {

Result<bool> Collective::check(const Key& key) const {
    if (!is_open_) return true;
    if (key == key_) return false;
    return Status(StatusCode::kBusy,
                  "call number " + std::to_string(number_) +
                      " of this kind is still open with other arguments: allowed is one at a time, in the "
                      "same order on all ranks; repeat that call until it ends");
}

void Collective::begin(const Key& key) {
    ++number_;
    is_open_ = true;
    key_ = key;
    answer_.reset();
}

bool Collective::on_answer(Step number, Status answer) {
    if (number != number_ || !is_open_ || answer_) return false;
    answer_ = std::move(answer);
    return true;
}

std::optional<Status> Collective::answer_of(Step number) const {
    if (number == number_) return answer_;
    return Status(
        StatusCode::kFailedPrecondition,
        "call number " + std::to_string(number) + " was overtaken by call number " + std::to_string(number_) +
            " from another thread: allowed is one thread at a time for calls that all ranks make; order them");
}

void Collective::close(Step number) noexcept {
    if (number == number_) is_open_ = false;
}

}  // namespace gradsieve::client
