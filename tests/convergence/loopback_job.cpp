#include "loopback_job.hpp"

#include "codec/difference.hpp"
#include "codec/philox.hpp"

#include <gtest/gtest.h>

#include <cstring>

namespace gradsieve::test {
namespace {

const exchange::JobKey kKey = {"convergence", "run"};
constexpr Duration kTurn = std::chrono::milliseconds(1);
constexpr int kMostTurns = 1000;

exchange::JobSpec spec_of(const codec::Pipeline& pipeline, PeerIndex nodes, ElementCount elements) {
    exchange::JobSpec spec;
    spec.world_size = nodes;
    spec.codec = codec::canonical_text(pipeline, codec::Knobs::kBlank);
    spec.tensors.push_back({.name = "weights",
                            .group = "",
                            .shape = {elements},
                            .rule = spec.codec,
                            .phases = static_cast<std::uint8_t>(codec::phase_count(pipeline))});
    return spec;
}

}  // namespace

LoopbackJob::Node::Node(const codec::Pipeline& pipeline, ElementCount elements, std::size_t sample_count,
                        std::uint64_t batch)
    : encoder(pipeline, elements, sample_count, batch),
      average(elements, 0.0F),
      result(tensor_id("weights"), average.data(), elements),
      has_delta(codec::has_delta(pipeline)) {
    if (has_delta)
        for (auto& generation : sent) generation.assign(elements, 0.0F);
}

LoopbackJob::LoopbackJob(const codec::Pipeline& pipeline, PeerIndex nodes, ElementCount elements, std::size_t samples,
                         std::uint64_t batch_samples)
    : network_(nodes, clock_) {
    std::vector<exchange::NodeName> names;
    for (PeerIndex node = 0; node < nodes; ++node)
        names.push_back({std::string("node ") + std::to_string(node), "in this process"});
    for (PeerIndex node = 0; node < nodes; ++node) {
        auto made = std::make_unique<Node>(pipeline, elements, samples, batch_samples);
        made->machine = std::make_unique<exchange::JobMachine>(kKey, node, names, exchange::JobTimes{},
                                                               exchange::JobLimits{}, 17 + node);
        made->endpoint = network_.make_endpoint(node);
        made->encoder.set_random_seed(codec::rounding_seed(kKey.name, names[node].name));
        made->encoder.set_nodes(nodes, node);
        made->encoder.set_selection_seed(codec::selection_seed(kKey.name));
        nodes_.push_back(std::move(made));
    }
    const auto spec = spec_of(pipeline, nodes, elements);
    for (PeerIndex node = 0; node < nodes; ++node) {
        const Status status = nodes_[node]->machine->on_rank_attached(node, spec, clock_.now());
        EXPECT_TRUE(status.is_ok()) << status.to_string();
    }
    EXPECT_TRUE(run_until([](const Node& node, Step) { return node.has_started; }, 0)) << "the job does not form";
}

std::span<const float> LoopbackJob::step(std::span<const std::vector<std::vector<float>>> gradients) {
    ++step_;
    for (std::size_t index = 0; index < nodes_.size(); ++index) {
        Node& node = *nodes_[index];
        node.samples = &gradients[index];
        const Status status = node.machine->on_submitted(static_cast<Rank>(index), 0, step_, clock_.now());
        EXPECT_TRUE(status.is_ok()) << status.to_string();
    }
    EXPECT_TRUE(run_until([](const Node& node, Step step) { return node.delivered == step; }, step_))
        << "step " << step_ << " has no result";
    for (const auto& node : nodes_) {
        for (const Status& status : node->errors) ADD_FAILURE() << status.to_string();
        EXPECT_EQ(std::memcmp(node->average.data(), nodes_[0]->average.data(), node->average.size() * sizeof(float)), 0)
            << "nodes decode different averages in step " << step_;
    }
    return nodes_[0]->average;
}

bool LoopbackJob::run_until(bool (*is_done)(const Node&, Step), Step step) {
    for (int turns = 0; turns < kMostTurns; ++turns) {
        bool is_everywhere = true;
        for (std::size_t index = 0; index < nodes_.size(); ++index) {
            turn(index);
            is_everywhere = is_everywhere && is_done(*nodes_[index], step);
        }
        if (is_everywhere) return true;
        clock_.advance(kTurn);
    }
    has_failed_ = true;
    return false;
}

void LoopbackJob::turn(std::size_t index) {
    Node& node = *nodes_[index];
    transport::Inbox inbox;
    if (const Status status = node.endpoint->poll(Duration(0), inbox); !status.is_ok()) node.errors.push_back(status);
    for (const auto& event : inbox.events)
        node.machine->on_link(
            event.peer,
            event.state == transport::PeerState::kUp ? exchange::LinkState::kUp : exchange::LinkState::kClosed,
            event.instance, event.text, clock_.now());
    for (const auto& frame : inbox.frames)
        node.machine->on_frame(frame.from, frame.header.type, frame.header.epoch, frame.header.step, frame.body,
                               clock_.now());
    node.machine->on_time(clock_.now());
    for (bool is_flushed = false;;) {
        const auto actions = node.machine->take_actions();
        for (const auto& action : actions) act(index, action);
        if (!actions.empty()) continue;
        if (is_flushed) break;
        node.machine->flush();
        is_flushed = true;
    }
}

void LoopbackJob::act(std::size_t index, const exchange::Action& action) {
    Node& node = *nodes_[index];
    if (const auto* frame = std::get_if<exchange::SendFrame>(&action)) {
        const Status status =
            node.endpoint->send(frame->to, frame->is_bulk ? transport::Lane::kData : transport::Lane::kControl,
                                {{frame->type, frame->epoch, frame->step}, frame->parts});
        if (!status.is_ok()) node.errors.push_back(status);
    } else if (std::holds_alternative<exchange::StartJob>(action)) {
        node.has_started = true;
    } else if (const auto* encoding = std::get_if<exchange::EncodeTensor>(&action)) {
        encode(node, *encoding);
    } else if (const auto* decoding = std::get_if<exchange::DecodeTensor>(&action)) {
        decode(node, *decoding);
    } else if (const auto* result = std::get_if<exchange::DeliverResult>(&action)) {
        if (!result->status.is_ok()) node.errors.push_back(result->status);
        node.delivered = result->step;
    } else if (std::holds_alternative<exchange::CommitStep>(action)) {
        node.encoder.commit();
    } else if (const auto* aborted = std::get_if<exchange::AbortStep>(&action)) {
        node.errors.push_back(aborted->status);
    } else if (const auto* end = std::get_if<exchange::EndJob>(&action)) {
        node.errors.push_back(end->status);
    }
}

void LoopbackJob::encode(Node& node, const exchange::EncodeTensor& action) {
    node.pointers.clear();
    for (const auto& sample : *node.samples) node.pointers.push_back(sample.data());
    auto encoded = action.phase == 0 ? node.encoder.step(node.pointers) : node.encoder.second_phase();
    std::vector<std::pair<std::uint32_t, SharedView>> chunks;
    for (const auto& chunk : encoded.chunks) {
        const ByteView bytes = chunk.bytes.view();
        payload_bytes_ += bytes.size();
        chunks.emplace_back(chunk.chunk_index, SharedView::take(Bytes(bytes.begin(), bytes.end())));
    }
    node.machine->on_encoded(action.tensor, action.step, std::move(chunks), clock_.now());
}

void LoopbackJob::decode(Node& node, const exchange::DecodeTensor& action) {
    std::vector<std::vector<codec::ChunkView>> chunks;
    for (const auto& payload : action.payloads) {
        chunks.emplace_back();
        for (const auto& [chunk, bytes] : payload.chunks) chunks.back().push_back({chunk, bytes.bytes()});
    }
    std::vector<codec::Contribution> contributions;
    const float factor = 1.0F / static_cast<float>(nodes_.size());
    for (const auto& of_node : chunks) contributions.push_back({factor, of_node});
    codec::PhaseMemory* const phases = node.encoder.phases();
    if (phases != nullptr && action.phase == 0) {
        node.machine->on_decoded(action.tensor, action.step, 0,
                                 codec::decode_first_phase(node.encoder.phase_step(), contributions, *phases),
                                 clock_.now());
        return;
    }
    if (codec::HeldPayloads* const held = node.encoder.held()) {
        auto resolved = held->take(action.step, contributions);
        if (!resolved.is_ok())
            return node.machine->on_decoded(action.tensor, action.step, 0, resolved.status(), clock_.now());
        contributions.assign(resolved->begin(), resolved->end());
    }
    const std::size_t live = action.step % 2;
    const auto decoded =
        node.has_delta      ? codec::decode_differences(action.step, contributions, node.sent[1 - live].data(),
                                                        node.sent[live].data(), node.result)
        : phases == nullptr ? node.result.decode_average(action.step, contributions)
                            : codec::decode_last_phase(action.step, contributions, *phases, node.result);
    node.machine->on_decoded(action.tensor, action.step, decoded.is_ok() ? decoded->digest : 0, decoded.status(),
                             clock_.now());
}

}  // namespace gradsieve::test
