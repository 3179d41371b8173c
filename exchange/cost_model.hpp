// What a step costs between nodes, by arithmetic: gradients come out of the backward pass bit by bit and go through
// encoder, link and decoder as through a pipe, each busy with one piece at a time, encoder and decoder with the same
// workers. For people who choose, and for
// whoever checks the exchange against it; no round depends on it. Plain values; any thread.
#pragma once

#include "base/id.hpp"

#include <cstdint>

namespace gradsieve::exchange {

struct StepFacts {
    ElementCount elements = 0;  ///< of the model, >= 1
    std::uint32_t nodes = 1;    ///< >= 1
    double step_seconds = 0;    ///< of computing, without any exchange; > 0
    double backward_share = 0;  ///< of the step, at its end, in which gradients come out evenly; 0 .. 1
};
struct LinkFacts {
    double bits_per_second = 0;  ///< each way, of one node; > 0
    double latency_seconds = 0;  ///< one way
    double wire_per_byte = 1;    ///< bytes on the wire for each byte of a payload, headers of packets included; >= 1
    /// In which a host, beside everything else, sends a byte and takes one in: system calls, copies, the kernel's work.
    double host_seconds_per_byte = 0;
};
struct CodecFacts {
    double bytes_per_element = 0;           ///< of one node's payloads
    double encode_seconds_per_element = 0;  ///< all local ranks' gradients
    double decode_seconds_per_element = 0;  ///< of one node's payloads
};
struct StepCost {
    double sent_bytes = 0;        ///< by each node, a step; in the mean of the nodes
    double link_seconds = 0;      ///< in which the link of the busiest node is busy
    double exchange_seconds = 0;  ///< if nothing overlapped
    double exposed_seconds = 0;   ///< that the step gets longer by
    double step_seconds = 0;      ///< as it comes out
};

/// The gather plan: every node sends its payloads to every other one and decodes all.
[[nodiscard]] StepCost gather_cost(const StepFacts& step, const LinkFacts& link, const CodecFacts& codec);
/// The sharded plan (shards.hpp): every node sends (N - 1) / N of its payloads to the owners, who decode them, encode
/// the average with `down` and send that to all. Everybody decodes all averages, and encodes those of its share. Shares
/// are of whole chunks, and the tensors' last ones count as whole: with more nodes than chunks some own none, and the
/// step waits for those that do.
[[nodiscard]] StepCost sharded_cost(const StepFacts& step, const LinkFacts& link, const CodecFacts& codec,
                                    const CodecFacts& down);
/// A ring all-reduce of plain values, in buckets during the backward pass: 2 (N - 1) / N of the bytes, in 2 (N - 1)
/// messages of each bucket, one behind the other. `bytes_per_element`: 4, or 2 for 16-bit values;
/// `sum_seconds_per_byte`: of a host, for what it adds, half of what it takes in.
[[nodiscard]] StepCost ring_cost(const StepFacts& step, const LinkFacts& link, double bytes_per_element,
                                 double sum_seconds_per_byte = 0);

}  // namespace gradsieve::exchange
