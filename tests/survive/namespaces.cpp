#include "tests/survive/namespaces.hpp"

#include "tests/survive/residue.hpp"

#include <unistd.h>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>

namespace gradsieve::survive {
namespace {

constexpr std::size_t kEnds = 2;
const std::string kPrefix = "gradsieve-survive-";
const std::string kDevice = "gsv0";  // in each namespace

std::string call(std::vector<std::string> arguments) {
    const auto ran = e2e::run(arguments);
    if (ran.code == 0) return ran.output;
    std::string line;
    for (const auto& argument : arguments) line += argument + " ";
    throw std::runtime_error(line + "ended with " + std::to_string(ran.code) + ": " + ran.output);
}
std::string address(std::size_t node) { return "10.79.0." + std::to_string(node + 1); }

void remove_stale() {
    for (const auto& name : names_in("/run/netns"))
        if (name.starts_with(kPrefix) && !std::filesystem::exists("/proc/" + name.substr(name.rfind('-') + 1)))
            call({"ip", "netns", "delete", name});
}

}  // namespace

Namespaces::Namespaces()
    : names_{kPrefix + "a-" + std::to_string(::getpid()), kPrefix + "b-" + std::to_string(::getpid())} {
    remove_stale();
    for (const auto& name : names_) call({"ip", "netns", "add", name});
    call({"ip", "link", "add", kDevice, "netns", names_[0], "type", "veth", "peer", "name", kDevice, "netns",
          names_[1]});
    for (std::size_t node = 0; node < kEnds; ++node) {
        call({"ip", "-n", names_[node], "address", "add", address(node) + "/24", "dev", kDevice});
        call({"ip", "-n", names_[node], "link", "set", "lo", "up"});
        call({"ip", "-n", names_[node], "link", "set", kDevice, "up"});
    }
}

Namespaces::~Namespaces() {
    for (const auto& name : names_) static_cast<void>(e2e::run({"ip", "netns", "delete", name}));
}

std::vector<e2e::Place> Namespaces::places() const {
    std::vector<e2e::Place> found;
    for (std::size_t node = 0; node < kEnds; ++node)
        found.push_back({address(node), {"ip", "netns", "exec", names_[node]}});
    return found;
}

void Namespaces::blackhole(std::size_t node, bool is_on) const {
    call({"ip", "-n", names_[node], "route", is_on ? "add" : "delete", "blackhole", address(1 - node) + "/32"});
}

void Namespaces::limit(std::uint64_t bits_per_s, std::uint64_t burst_bytes) const {
    for (const auto& name : names_)
        call({"tc", "-n", name, "qdisc", "add", "dev", kDevice, "root", "tbf", "rate",
              std::to_string(bits_per_s) + "bit", "burst", std::to_string(burst_bytes), "latency", "50ms"});
}

std::uint64_t Namespaces::sent_bytes(std::size_t node) const {
    const auto text = call({"tc", "-n", names_[node], "-s", "qdisc", "show", "dev", kDevice});
    const std::string word = "Sent ";
    const auto place = text.find(word);
    return place == std::string::npos ? 0 : std::strtoull(text.c_str() + place + word.size(), nullptr, 10);
}

}  // namespace gradsieve::survive
