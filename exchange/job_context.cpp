// Names, look-ups and sending for the parts of a job's machine. One thread; owned by JobMachine.
#include "exchange/job_context.hpp"

#include <algorithm>

namespace gradsieve::exchange {

void JobContext::set_spec(const JobSpec& agreed) {
    spec = agreed;
    std::set<std::string> names;
    for (const auto& tensor : spec.tensors) names.insert(tensor.group);
    groups.assign(names.begin(), names.end());
    payloads_of.assign(groups.size(), {});
    group_of.clear();
    position_of.clear();
    two_phased.clear();
    second_of.clear();
    const auto add = [this](GroupNumber group) {
        const auto number = static_cast<PayloadNumber>(group_of.size());
        group_of.push_back(group);
        position_of.push_back(static_cast<std::uint32_t>(payloads_of[group].size()));
        payloads_of[group].push_back(number);
        return number;
    };
    for (const auto& tensor : spec.tensors) {
        const auto found = std::lower_bound(groups.begin(), groups.end(), tensor.group);
        const auto number = add(static_cast<GroupNumber>(found - groups.begin()));
        if (tensor.phases > 1) two_phased.push_back(number);
        second_of.emplace_back();
    }
    for (const auto tensor : two_phased) second_of[tensor] = add(group_of[tensor]);
}

bool JobContext::is_for(PayloadNumber payload, std::uint32_t chunk, std::size_t member) const {
    if (!is_scattered(payload)) return true;
    const auto& owners = owners_of[payload];
    return chunk < owners.size() && owners[chunk] == member;
}

bool JobContext::is_of(PayloadNumber payload, std::uint32_t chunk, std::size_t member) const {
    const auto& owners = owners_of[tensor_of(payload)];
    return owners.empty() || !is_second(payload) || (chunk < owners.size() && owners[chunk] == member);
}

std::string JobContext::node_text(PeerIndex peer) const {
    return "node " + (peer < nodes.size() ? nodes[peer].name : std::to_string(peer));
}

std::string JobContext::rank_text(Rank rank) const {
    const auto member = member_with(rank);
    const auto name = "rank " + std::to_string(rank);
    return member ? name + " on " + node_text(members[*member].peer) : name;
}

std::string JobContext::tensor_text(PayloadNumber payload) const {
    return (is_second(payload) ? "the second phase of tensor '" : "tensor '") + spec.tensors[tensor_of(payload)].name +
           "'";
}

std::string JobContext::step_text(GroupNumber group, Step step) const {
    const auto text = "step " + std::to_string(step);
    return groups.size() < 2 ? text : text + " of group '" + groups[group] + "'";
}

std::optional<std::size_t> JobContext::member_of(PeerIndex peer) const {
    for (std::size_t member = 0; member < members.size(); ++member)
        if (members[member].peer == peer) return member;
    return std::nullopt;
}

std::optional<std::size_t> JobContext::member_with(Rank rank) const {
    for (std::size_t member = 0; member < members.size(); ++member)
        if (std::binary_search(members[member].ranks.begin(), members[member].ranks.end(), rank)) return member;
    return std::nullopt;
}

bool JobContext::is_gone(std::size_t member) const {
    const auto& ranks = members[member].ranks;
    return std::all_of(ranks.begin(), ranks.end(), [this](Rank rank) { return detached.contains(rank); });
}

bool JobContext::is_reachable(std::size_t member) const {
    return member == own || !peers[members[member].peer].is_failed;
}

bool JobContext::is_active(std::size_t member) const {
    return member == own || (is_reachable(member) && !is_gone(member));
}

namespace {

SendFrame control_frame(PeerIndex to, FrameType type, Bytes body) {
    SendFrame frame{
        .to = to, .is_bulk = false, .type = static_cast<std::uint16_t>(type), .epoch = 0, .step = 0, .parts = {}};
    frame.parts.push_back(SharedView::take(std::move(body)));
    return frame;
}

}  // namespace

void JobContext::send(PeerIndex to, FrameType type, Step step, Bytes body) {
    auto frame = control_frame(to, type, std::move(body));
    frame.epoch = epoch;
    frame.step = step;
    actions.emplace_back(std::move(frame));
}

void JobContext::send_announcement(PeerIndex to, FrameType type, Bytes body) {
    actions.emplace_back(control_frame(to, type, std::move(body)));
}

void JobContext::send_to_members(FrameType type, Step step, const Bytes& body, std::optional<PeerIndex> except) {
    for (std::size_t member = 0; member < members.size(); ++member)
        if (member != own && is_reachable(member) && members[member].peer != except)
            send(members[member].peer, type, step, body);
}

void JobContext::refuse(PeerIndex from, const std::string& why) {
    ++frames_refused;
    last_refusal = "frame from " + node_text(from) + ": " + why;
}

void JobContext::complain(StatusCode code, std::string text, std::vector<PeerIndex> failed) {
    if (!complaint)
        complaint = Complaint{.reason = {.code = code, .text = std::move(text)}, .failed = std::move(failed)};
}

void JobContext::fail(StatusCode code, std::string text) {
    if (!failure) failure = Status(code, std::move(text));
}

std::optional<Status> doom_of_step(const JobContext& context, GroupNumber group, Step step) {
    for (const auto& [rank, detachment] : context.detached) {
        const auto last = detachment.last_steps[group];
        if (last >= step) continue;
        return Status(StatusCode::kPeerFailed, context.rank_text(rank) + " has detached: its last step is " +
                                                   std::to_string(last) + ", " + context.step_text(group, step) +
                                                   " needs all ranks; detach, or start the job again");
    }
    return std::nullopt;
}

}  // namespace gradsieve::exchange
