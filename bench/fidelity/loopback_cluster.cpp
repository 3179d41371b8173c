#include "loopback_cluster.hpp"

#include "codec/philox.hpp"
#include "codec/select_topk.hpp"
#include "codec/stages/accumulate.hpp"
#include "codec/stages/warmup.hpp"

#include <algorithm>
#include <cstring>

namespace gradsieve::bench {
namespace {

constexpr Duration kTurn = std::chrono::milliseconds(1);
constexpr int kMostTurns = 1000;

exchange::JobSpec spec_of(const ClusterPlan& plan) {
    exchange::JobSpec spec;
    spec.world_size = plan.nodes * plan.ranks;
    spec.codec = plan.codec;
    for (const auto& tensor : plan.tensors)
        spec.tensors.push_back({.name = tensor.name,
                                .group = "",
                                .shape = tensor.shape,
                                .rule = codec::canonical_text(tensor.pipeline, codec::Knobs::kBlank),
                                .phases = static_cast<std::uint8_t>(codec::phase_count(tensor.pipeline))});
    return spec;
}

NodeTerms terms_of(const ClusterPlan& plan, std::uint32_t node, const std::string& node_name) {
    NodeTerms terms{.nodes = plan.nodes, .node = node};
    const auto rank_weight = static_cast<float>(1.0 / plan.ranks);
    const auto weight = static_cast<float>(1.0 / plan.samples * static_cast<double>(rank_weight));
    terms.weights.assign(std::size_t{plan.ranks} * plan.samples, weight);
    terms.batch_samples = plan.batch_samples;
    terms.random_seed = codec::rounding_seed(plan.job, node_name);
    terms.selection_seed = codec::selection_seed(plan.job);
    return terms;
}

}  // namespace

/// Tensors of one node that share out one k.
struct LoopbackCluster::Scope {
    codec::Pipeline pipeline;
    std::vector<exchange::TensorNumber> tensors;  ///< ascending
    std::size_t arrived = 0;
    ElementCount elements = 0;
    std::uint32_t hint = 0;
};

struct LoopbackCluster::Node {
    std::unique_ptr<exchange::JobMachine> machine;
    std::unique_ptr<transport::Transport> endpoint;
    std::vector<std::unique_ptr<NodeTensor>> tensors;
    std::vector<Scope> scopes;
    bool has_started = false;
    std::size_t delivered = 0;  ///< tensors of the open step
    Status error;               ///< the first one

    void note(const Status& status) {
        if (error.is_ok() && !status.is_ok()) error = status;
    }
    Scope* scope_of(exchange::TensorNumber tensor) {
        for (auto& scope : scopes)
            if (std::ranges::find(scope.tensors, tensor) != scope.tensors.end()) return &scope;
        return nullptr;
    }
    void lay_out_scopes() {
        for (exchange::TensorNumber number = 0; number < tensors.size(); ++number) {
            const auto& pipeline = tensors[number]->pipeline();
            if (!codec::has_model_scope(pipeline)) continue;
            auto found = std::ranges::find_if(
                scopes, [&](const auto& scope) { return codec::is_one_scope(scope.pipeline, pipeline); });
            if (found == scopes.end()) found = scopes.insert(scopes.end(), Scope{.pipeline = pipeline, .tensors = {}});
            found->tensors.push_back(number);
        }
        for (auto& scope : scopes) {
            for (const auto number : scope.tensors) scope.elements += tensors[number]->elements();
        }
    }
};

LoopbackCluster::LoopbackCluster(ClusterPlan plan) : plan_(std::move(plan)), network_(plan_.nodes, clock_) {
    std::vector<exchange::NodeName> names;
    for (PeerIndex node = 0; node < plan_.nodes; ++node)
        names.push_back({std::string("node ") + std::to_string(node), "in this process"});
    for (PeerIndex node = 0; node < plan_.nodes; ++node) {
        auto made = std::make_unique<Node>();
        made->machine = std::make_unique<exchange::JobMachine>(exchange::JobKey{plan_.job, "run"}, node, names,
                                                               exchange::JobTimes{}, exchange::JobLimits{}, 17 + node);
        made->endpoint = network_.make_endpoint(node);
        const auto terms = terms_of(plan_, node, names[node].name);
        for (const auto& tensor : plan_.tensors) made->tensors.push_back(std::make_unique<NodeTensor>(tensor, terms));
        made->lay_out_scopes();
        nodes_.push_back(std::move(made));
    }
}

LoopbackCluster::~LoopbackCluster() = default;

Status LoopbackCluster::form() {
    const auto spec = spec_of(plan_);
    for (PeerIndex node = 0; node < plan_.nodes; ++node)
        for (Rank rank = 0; rank < plan_.ranks; ++rank)
            GRADSIEVE_TRY(nodes_[node]->machine->on_rank_attached(node * plan_.ranks + rank, spec, clock_.now()));
    return run_until([](const Node& node) { return node.has_started; }, "the job does not form");
}

Status LoopbackCluster::step(std::span<const Gradients> gradients, float rescale) {
    ++step_;
    const auto count = static_cast<exchange::TensorNumber>(plan_.tensors.size());
    for (PeerIndex index = 0; index < plan_.nodes; ++index) {
        auto& node = *nodes_[index];
        node.delivered = 0;
        for (exchange::TensorNumber tensor = 0; tensor < count; ++tensor) {
            node.tensors[tensor]->hand_in(step_, gradients[std::size_t{index} * count + tensor], rescale);
            for (Rank rank = 0; rank < plan_.ranks; ++rank)
                GRADSIEVE_TRY(node.machine->on_submitted(index * plan_.ranks + rank, tensor, step_, clock_.now()));
        }
    }
    GRADSIEVE_TRY(run_until([count](const Node& node) { return node.delivered == count; },
                            "step " + std::to_string(step_) + " has no result"));
    return compare();
}

template <typename Condition>
Status LoopbackCluster::run_until(Condition is_done, const std::string& what) {
    for (int turns = 0; turns < kMostTurns; ++turns) {
        bool is_everywhere = true;
        for (const auto& node : nodes_) {
            turn(*node);
            if (!node->error.is_ok()) return node->error;
            is_everywhere = is_everywhere && is_done(*node);
        }
        if (is_everywhere) return {};
        clock_.advance(kTurn);
    }
    return {StatusCode::kTimeout, what + " within " + std::to_string(kMostTurns) + " turns of all nodes"};
}

void LoopbackCluster::turn(Node& node) {
    transport::Inbox inbox;
    node.note(node.endpoint->poll(Duration(0), inbox));
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
        for (const auto& action : actions) act(node, action);
        if (!actions.empty()) continue;
        if (is_flushed) break;
        node.machine->flush();
        is_flushed = true;
    }
}

void LoopbackCluster::act(Node& node, const exchange::Action& action) {
    if (const auto* frame = std::get_if<exchange::SendFrame>(&action)) {
        node.note(node.endpoint->send(frame->to, frame->is_bulk ? transport::Lane::kData : transport::Lane::kControl,
                                      {{frame->type, frame->epoch, frame->step}, frame->parts}));
    } else if (std::holds_alternative<exchange::StartJob>(action)) {
        node.has_started = true;
    } else if (const auto* encoding = std::get_if<exchange::EncodeTensor>(&action)) {
        encode(node, *encoding);
    } else if (const auto* decoding = std::get_if<exchange::DecodeTensor>(&action)) {
        decode(node, *decoding);
    } else if (const auto* result = std::get_if<exchange::DeliverResult>(&action)) {
        node.note(result->status);
        ++node.delivered;
    } else if (std::holds_alternative<exchange::CommitStep>(action)) {
        for (const auto& tensor : node.tensors) tensor->commit();
    } else if (const auto* aborted = std::get_if<exchange::AbortStep>(&action)) {
        node.note(aborted->status);
    } else if (const auto* end = std::get_if<exchange::EndJob>(&action)) {
        node.note(end->status);
    }
}

void LoopbackCluster::encode(Node& node, const exchange::EncodeTensor& action) {
    auto& tensor = *node.tensors[action.tensor];
    auto* const scope = node.scope_of(action.tensor);
    if (scope == nullptr || codec::is_waiting(tensor.pipeline(), action.step))
        return answer(node, action.tensor, tensor.encode(action.phase, workspace_));
    if (++scope->arrived < scope->tensors.size()) return;
    scope->arrived = 0;
    encode_scope(node, *scope);
}

/// All of the scope's tensors are in: their phases, one after the other.
void LoopbackCluster::encode_scope(Node& node, Scope& scope) {
    std::vector<codec::ScopeMember*> members;
    for (const auto number : scope.tensors) members.push_back(&node.tensors[number]->member());
    const auto k = codec::top_k_count(codec::ratio_at(scope.pipeline, step_), scope.elements);
    codec::NextPhase at{codec::ScopePhase::kObserve, {.k = k, .hint = scope.hint}};
    for (; at.phase != codec::ScopePhase::kCut;
         at = codec::phase_after(at.phase, at.terms, {members.data(), members.size()}))
        for (const auto number : scope.tensors) {
            auto passed = node.tensors[number]->encode_member(at.phase, at.terms, workspace_);
            if (!passed.is_ok()) return answer(node, number, std::move(passed));
        }
    scope.hint = codec::cut_scope(at.terms, members);
    for (const auto number : scope.tensors)
        answer(node, number, node.tensors[number]->encode_member(codec::ScopePhase::kSettle, at.terms, workspace_));
}

void LoopbackCluster::answer(Node& node, exchange::TensorNumber tensor, Result<codec::EncodeResult> encoded) {
    if (!encoded.is_ok()) {
        node.note(encoded.error());
        return node.machine->on_encode_failed(tensor, step_, encoded.error(), clock_.now());
    }
    std::vector<std::pair<std::uint32_t, SharedView>> chunks;
    for (const auto& chunk : encoded->chunks) {
        const ByteView bytes = chunk.bytes.view();
        payload_bytes_ += bytes.size();
        chunks.emplace_back(chunk.chunk_index, SharedView::take(Bytes(bytes.begin(), bytes.end())));
    }
    node.machine->on_encoded(tensor, step_, std::move(chunks), clock_.now());
}

void LoopbackCluster::decode(Node& node, const exchange::DecodeTensor& action) {
    std::vector<std::vector<codec::ChunkView>> chunks;
    for (const auto& payload : action.payloads) {
        chunks.emplace_back();
        for (const auto& [chunk, bytes] : payload.chunks) chunks.back().push_back({chunk, bytes.bytes()});
    }
    std::vector<codec::Contribution> contributions;
    contributions.reserve(chunks.size());
    const float factor = 1.0F / static_cast<float>(plan_.nodes);
    for (const auto& of_node : chunks) contributions.push_back({factor, of_node});
    const auto digest = node.tensors[action.tensor]->decode(action.phase, contributions);
    node.machine->on_decoded(action.tensor, action.step, digest.is_ok() ? *digest : 0, digest.status(), clock_.now());
}

Status LoopbackCluster::compare() const {
    for (std::size_t tensor = 0; tensor < plan_.tensors.size(); ++tensor)
        for (const auto& node : nodes_)
            if (const auto own = node->tensors[tensor]->average();
                std::memcmp(own.data(), average(tensor).data(), own.size_bytes()) != 0)
                return {StatusCode::kMismatch, "nodes decode different averages of '" + plan_.tensors[tensor].name +
                                                   "' in step " + std::to_string(step_) + "; allowed are equal bits"};
    return {};
}

std::span<const float> LoopbackCluster::average(std::size_t tensor) const {
    return nodes_.front()->tensors[tensor]->average();
}

codec::VarianceSource LoopbackCluster::variance_source(std::size_t tensor) const {
    return nodes_.front()->tensors[tensor]->variance_source();
}

ClusterCounters LoopbackCluster::counters() const {
    ClusterCounters sums{.payload_bytes = payload_bytes_};
    for (const auto& node : nodes_) {
        for (const auto& peer : node->endpoint->counters()) sums.wire_bytes += peer.bytes_sent;
        for (const auto& tensor : node->tensors) sums.kept_elements += tensor->kept_elements();
    }
    return sums;
}

}  // namespace gradsieve::bench
