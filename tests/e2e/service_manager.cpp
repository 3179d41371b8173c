// A service manager's descriptor store, as sd_notify(3) tells it. Test thread only.
#include "tests/e2e/cluster.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <array>
#include <cstddef>
#include <cstring>
#include <sstream>
#include <stdexcept>

namespace gradsieve::e2e {

ServiceManager::ServiceManager() : socket_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    socklen_t bytes = sizeof(address);
    if (::bind(socket_, reinterpret_cast<sockaddr*>(&address), sizeof(sa_family_t)) != 0 ||
        ::getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &bytes) != 0)
        throw std::runtime_error("notify socket");
    address_ = "@" + std::string(address.sun_path + 1, bytes - offsetof(sockaddr_un, sun_path) - 1);
}

ServiceManager::~ServiceManager() {
    forget();
    ::close(socket_);
}

void ServiceManager::remove(const std::string& name) {
    std::erase_if(parked_, [&](const auto& entry) {
        if (entry.first == name) ::close(entry.second);
        return entry.first == name;
    });
}

void ServiceManager::listen() {
    while (true) {
        std::array<char, 4096> text{};
        alignas(cmsghdr) std::array<char, CMSG_SPACE(4 * sizeof(int))> control{};
        iovec part{text.data(), text.size()};
        msghdr message{};
        message.msg_iov = &part;
        message.msg_iovlen = 1;
        message.msg_control = control.data();
        message.msg_controllen = control.size();
        const auto count = ::recvmsg(socket_, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        if (count < 0) return;
        int fd = -1;
        for (auto* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header))
            if (header->cmsg_type == SCM_RIGHTS) std::memcpy(&fd, CMSG_DATA(header), sizeof(fd));
        std::istringstream lines(std::string(text.data(), static_cast<std::size_t>(count)));
        std::string name;
        bool is_store = false, is_remove = false;
        for (std::string line; std::getline(lines, line);) {
            if (line.rfind("FDNAME=", 0) == 0) name = line.substr(7);
            is_store = is_store || line == "FDSTORE=1";
            is_remove = is_remove || line == "FDSTOREREMOVE=1";
        }
        if (is_remove) remove(name);
        if (is_store && fd >= 0)
            parked_.emplace_back(name, fd);
        else if (fd >= 0)
            ::close(fd);
    }
}

Process ServiceManager::start(std::vector<std::string> arguments) {
    listen();
    std::vector<std::string> environment{"NOTIFY_SOCKET=" + address_};
    std::vector<int> handed;
    std::string names;
    for (const auto& [name, fd] : parked_) {
        handed.push_back(fd);
        names += (names.empty() ? "" : ":") + name;
    }
    if (!handed.empty()) {
        environment.push_back("LISTEN_FDS=" + std::to_string(handed.size()));
        environment.push_back("LISTEN_FDNAMES=" + names);
    }
    return Process(std::move(arguments), std::move(environment), handed);
}

std::vector<std::string> ServiceManager::parked() {
    listen();
    std::vector<std::string> names;
    for (const auto& entry : parked_) names.push_back(entry.first);
    return names;
}

int ServiceManager::descriptor(const std::string& name) {
    listen();
    for (const auto& entry : parked_)
        if (entry.first == name) return entry.second;
    return -1;
}

void ServiceManager::replace(const std::string& name, int fd) {
    listen();
    remove(name);
    parked_.emplace_back(name, ::fcntl(fd, F_DUPFD_CLOEXEC, 0));
}

void ServiceManager::lose(const std::string& name) {
    listen();
    remove(name);
}

void ServiceManager::forget() {
    listen();
    for (const auto& entry : parked_) ::close(entry.second);
    parked_.clear();
}

}  // namespace gradsieve::e2e
