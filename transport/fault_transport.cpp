#include "transport/fault_transport.hpp"

#include "transport/outgoing.hpp"

#include <algorithm>
#include <deque>
#include <optional>

namespace gradsieve::transport {
namespace {

/// What a draw decides; part of the key, so that one probability does not move the others' draws.
enum class Purpose : std::uint64_t { kDrop = 1, kRepeat = 2, kCorrupt = 3, kDelay = 4, kBit = 5 };

class FaultTransportImpl final : public FaultTransport {
public:
    FaultTransportImpl(std::unique_ptr<Transport> inner, const FaultPlan& plan, const Clock& clock)
        : inner_(std::move(inner)), plan_(plan), clock_(clock) {}

    Status send(PeerIndex to, Lane lane, OutFrame frame) override;
    Status poll(Duration timeout, Inbox& ret_inbox) override;
    void wake() override { inner_->wake(); }
    void set_tick(std::uint64_t tick) override { inner_->set_tick(tick); }
    PortCounters port_counters() const override { return inner_->port_counters(); }
    std::vector<PeerCounters> counters() const override { return inner_->counters(); }
    std::string bound_address() const override { return inner_->bound_address(); }
    FaultCounts fault_counts() const override;

private:
    struct Held {
        TimePoint due;
        PeerIndex to;
        Lane lane;
        OutFrame frame;
    };
    [[nodiscard]] std::uint64_t draw(Purpose purpose) const noexcept;
    [[nodiscard]] bool happens(Purpose purpose, double probability) const noexcept;
    [[nodiscard]] OutFrame corrupted(const OutFrame& frame) const;
    void send_late(PeerIndex to, Lane lane, OutFrame frame);
    void release_due();

    // constant after construction
    const std::unique_ptr<Transport> inner_;
    const FaultPlan plan_;
    const Clock& clock_;

    FaultCounts counts_;
    std::deque<Held> held_;  ///< in order of `due`: all are held equally long
};

std::uint64_t FaultTransportImpl::draw(Purpose purpose) const noexcept {
    return mix64(mix64(mix64(plan_.seed) ^ counts_.frames) ^ static_cast<std::uint64_t>(purpose));
}

bool FaultTransportImpl::happens(Purpose purpose, double probability) const noexcept {
    constexpr double kUnit = 1.0 / 9007199254740992.0;  // 2^-53: the draw becomes a fraction in [0, 1)
    return static_cast<double>(draw(purpose) >> 11U) * kUnit < probability;
}

OutFrame FaultTransportImpl::corrupted(const OutFrame& frame) const {
    const auto whole = joined(frame.parts).bytes();
    Bytes bytes(whole.begin(), whole.end());
    const auto bit = draw(Purpose::kBit) % (bytes.size() * 8);
    bytes[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    return {frame.header, {SharedView::take(std::move(bytes))}};
}

Status FaultTransportImpl::send(PeerIndex to, Lane lane, OutFrame frame) {
    release_due();
    ++counts_.frames;
    if (happens(Purpose::kDrop, plan_.drop)) {
        ++counts_.dropped;
        return {};
    }
    if (body_bytes(frame.parts) > 0 && happens(Purpose::kCorrupt, plan_.corrupt)) {
        ++counts_.corrupted;
        frame = corrupted(frame);
    }
    std::optional<OutFrame> again;
    if (happens(Purpose::kRepeat, plan_.repeat)) {
        ++counts_.repeated;
        again = frame;
    }
    if (happens(Purpose::kDelay, plan_.delay)) {
        ++counts_.delayed;
        held_.push_back({clock_.now() + plan_.delay_by, to, lane, std::move(frame)});
    } else {
        GRADSIEVE_TRY(inner_->send(to, lane, std::move(frame)));
    }
    if (again) send_late(to, lane, std::move(*again));
    return {};
}

Status FaultTransportImpl::poll(Duration timeout, Inbox& ret_inbox) {
    release_due();
    if (!held_.empty()) timeout = std::clamp(held_.front().due - clock_.now(), Duration::zero(), timeout);
    GRADSIEVE_TRY(inner_->poll(timeout, ret_inbox));
    release_due();
    return {};
}

FaultCounts FaultTransportImpl::fault_counts() const {
    auto counts = counts_;
    counts.held = held_.size();
    return counts;
}

/// Nobody is left to hear of an error: it is counted.
void FaultTransportImpl::send_late(PeerIndex to, Lane lane, OutFrame frame) {
    if (!inner_->send(to, lane, std::move(frame)).is_ok()) ++counts_.refused_late;
}

void FaultTransportImpl::release_due() {
    const auto now = clock_.now();
    while (!held_.empty() && held_.front().due <= now) {
        auto held = std::move(held_.front());
        held_.pop_front();
        send_late(held.to, held.lane, std::move(held.frame));
    }
}

}  // namespace

std::unique_ptr<FaultTransport> make_fault_transport(std::unique_ptr<Transport> inner, const FaultPlan& plan,
                                                     const Clock& clock) {
    return std::make_unique<FaultTransportImpl>(std::move(inner), plan, clock);
}

}  // namespace gradsieve::transport
