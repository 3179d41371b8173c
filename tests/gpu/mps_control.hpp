// An MPS control daemon of this program's own, for clients of any user id, in folders of its own: only processes that
// are given its pipe folder use it. Changes nothing of the card: no compute mode, no reset. It ends with the object, or
// with this program, however that ends. One thread.
#pragma once

#include "tests/e2e/cluster.hpp"

#include <optional>
#include <string>

namespace gradsieve::gpu_check {

/// Sets a variable for children that are started during its life.
class ChildVariable {
public:
    ChildVariable(std::string name, const std::string& value);
    ~ChildVariable();
    ChildVariable(const ChildVariable&) = delete;
    ChildVariable& operator=(const ChildVariable&) = delete;

private:
    std::string name_;
    std::optional<std::string> before_;
};

class MpsControl {
public:
    /// Nothing runs yet if `why_not` says so afterwards. Needs root for clients of several users.
    MpsControl();
    /// Asks it to quit; what has not ended by a deadline is killed, as far as this object started it.
    ~MpsControl();
    MpsControl(const MpsControl&) = delete;
    MpsControl& operator=(const MpsControl&) = delete;

    /// Why there is none, in the program's own words; empty: it runs.
    [[nodiscard]] const std::string& why_not() const noexcept { return why_not_; }
    [[nodiscard]] std::string pipe_folder() const { return folder_ + "/pipe"; }
    /// Last lines of what control daemon and server wrote, for a report of what went wrong.
    [[nodiscard]] std::string log_tail() const;
    /// Whether programs of this environment would use a control daemon that is there already.
    [[nodiscard]] static bool is_one_there();

private:
    void start();

    std::string folder_;
    std::string why_not_;
    std::optional<e2e::Process> keeper_;  ///< quits the control daemon when told, or when nobody can tell it any more
    pid_t control_ = -1;
};

}  // namespace gradsieve::gpu_check
