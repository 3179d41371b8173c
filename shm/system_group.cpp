#include "shm/system_group.hpp"

#include <grp.h>

namespace gradsieve::shm {
namespace {

/// Room for the members' names of one group; a larger group is answered by number only.
constexpr std::size_t kEntryBytes = std::size_t{64} << 10U;

}  // namespace

Result<gid_t> find_group(const std::string& name) {
    std::string buffer(kEntryBytes, '\0');
    group entry{};
    group* found = nullptr;
    ::getgrnam_r(name.c_str(), &entry, buffer.data(), buffer.size(), &found);
    if (found != nullptr) return found->gr_gid;
    return Status(StatusCode::kNotFound, "group '" + name +
                                             "': not known; allowed is a group of this system; `addgroup "
                                             "--system " +
                                             name + "`, or change [socket] group");
}

std::string group_text(gid_t id) {
    std::string buffer(kEntryBytes, '\0');
    group entry{};
    group* found = nullptr;
    ::getgrgid_r(id, &entry, buffer.data(), buffer.size(), &found);
    return found == nullptr ? std::to_string(id) : "'" + std::string(found->gr_name) + "'";
}

}  // namespace gradsieve::shm
