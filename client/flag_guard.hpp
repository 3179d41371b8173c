// Marks that a thread is inside a call, as long as the guard lives. The flag and both its changes are guarded by
// whatever guards the flag: the caller holds that lock when the guard begins and ends.
#pragma once

namespace gradsieve::client {

class FlagGuard {
public:
    explicit FlagGuard(bool& flag) : flag_(flag) { flag_ = true; }
    FlagGuard(const FlagGuard&) = delete;
    FlagGuard& operator=(const FlagGuard&) = delete;
    ~FlagGuard() { flag_ = false; }

private:
    bool& flag_;
};

}  // namespace gradsieve::client
