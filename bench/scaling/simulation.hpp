// Nodes of one job under a simulated clock: the daemon's own job machines, joined by a model of their links. Codecs are
// numbers here: how long they take, and how many bytes come out. One thread.
#pragma once

#include "base/id.hpp"
#include "bench/scaling/network_model.hpp"
#include "exchange/cost_model.hpp"
#include "exchange/job_machine.hpp"
#include "exchange/shards.hpp"

#include <memory>
#include <optional>
#include <random>
#include <unordered_map>
#include <vector>

namespace gradsieve::scaling {

struct SimulationOptions {
    std::size_t nodes = 2;              ///< one rank on each; 2 .. 1,024
    std::vector<ElementCount> tensors;  ///< elements of each, in the order in which the backward pass gives them
    bool is_sharded = false;            ///< the sharded plan
    exchange::CodecFacts codec;         ///< seconds are those of one core
    exchange::CodecFacts down;          ///< of averages; sharded plan only
    LinkModel link;
    double step_seconds = 0;        ///< of computing
    double backward_share = 0;      ///< of it, at its end, in which tensors come out evenly
    double straggler_seconds = 0;   ///< longer on one node, another one in each step
    double breaks = 0;              ///< share of frames of a running job at which the connection of two nodes breaks
    std::size_t cores = 1;          ///< that code, of each node, or
    bool are_cores_shared = false;  ///< of all of them together: nodes that are namespaces of one machine
    Step steps = 10;                ///< the first of them does not count
    std::uint64_t seed = 1;
    /// Payloads are this many times smaller in memory than they count. 1 .. 65,536.
    std::uint32_t scale = 1;
};

/// Of a node and step, where nothing else is said.
struct SimulationOutcome {
    double payload_bytes = 0;                         ///< one node's own payloads, first phase
    double sent_bytes_mean = 0, sent_bytes_most = 0;  ///< on its interface: mean of the nodes, and the node with most
    double frames = 0;                                ///< messages that a node sends, mean of the nodes
    double step_median_s = 0, step_longest_s = 0;     ///< until the last node has all averages
    double retained_bytes = 0;                        ///< the most payload bytes that a node kept at a time
    std::uint64_t broken_links = 0;                   ///< of all nodes and steps
};

class Simulation {
public:
    explicit Simulation(const SimulationOptions& options);
    /// All steps. Throws std::runtime_error if a step fails, or none ends within a simulated hour.
    [[nodiscard]] SimulationOutcome run();

private:
    struct Node {
        std::optional<exchange::JobMachine> machine;
        Step step = 0;           ///< under way
        std::size_t waited = 0;  ///< results of it that are out
        double retained_bytes = 0;
    };
    struct Pair {
        std::uint64_t life = 0;  ///< frames of an earlier one are lost
        bool is_up = true;
    };
    [[nodiscard]] Pair& pair(std::size_t a, std::size_t b);
    void break_link(std::size_t a, std::size_t b);
    void tell_of_link(std::size_t a, std::size_t b, exchange::LinkState state);
    void start();
    void tick();
    void begin_step(std::size_t index, Step step);
    void pump(std::size_t index);
    void act(std::size_t index, const exchange::SendFrame& frame);
    void act(std::size_t index, const exchange::StartJob& start);
    void act(std::size_t index, const exchange::EncodeTensor& encode);
    void act(std::size_t index, const exchange::DecodeTensor& decode);
    void act(std::size_t index, const exchange::DeliverResult& result);
    void act(std::size_t index, const exchange::AbortStep& abort);
    void act(std::size_t index, const exchange::EndJob& end);
    template <typename Other>
    void act(std::size_t, const Other&) {}  // commits, snapshots: nothing to do for nodes without state
    void end_step(Step step);

    [[nodiscard]] ElementCount chunk_elements(exchange::TensorNumber tensor, std::uint32_t chunk) const;
    [[nodiscard]] std::uint32_t chunk_count(exchange::TensorNumber tensor) const;
    /// Bytes of a chunk's payload in this process.
    [[nodiscard]] std::size_t held_bytes(ElementCount elements, bool is_down) const;
    [[nodiscard]] TimePoint coded_at(std::size_t index, const std::vector<double>& chunk_seconds);

    SimulationOptions options_;
    Agenda agenda_;
    NetworkModel network_;
    exchange::JobSpec spec_;
    std::vector<exchange::ChunkOwners> owners_;  ///< by tensor; as members are in node order, by node
    std::shared_ptr<const Bytes> payload_;       ///< what every payload is a part of
    std::vector<WorkerModel> workers_;
    std::vector<Node> nodes_;
    std::mt19937_64 random_;
    std::vector<std::size_t> stragglers_;          ///< by step
    std::vector<TimePoint> step_ends_;             ///< by step, of the last node so far
    std::vector<std::size_t> nodes_done_;          ///< by step
    std::vector<NetworkModel::Sent> sent_before_;  ///< by node: before the steps that count
    Step steps_done_ = 0;
    std::unordered_map<std::size_t, Pair> pairs_;  ///< only where links break
    std::uint64_t broken_links_ = 0;
};

}  // namespace gradsieve::scaling
