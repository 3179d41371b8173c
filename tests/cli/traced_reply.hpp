// An answer to a trace request as a daemon would give it, with random times in the right order. Tests only.
#pragma once

#include "shm/trace_message.hpp"

#include <random>

namespace gradsieve::cli {

struct TracedReply {
    explicit TracedReply(std::uint32_t seed) : random(seed) {
        reply.node = "a";
        reply.codec = "all | f32";
        reply.groups = {""};
        reply.tensors = {{.name = "fc.\"weight\"\xff", .group = 0, .elements = 300},
                         {.name = "fc.bias", .group = 0, .elements = 4}};
        reply.ranks = {0, 1};
        reply.peers = {{.peer = 1, .name = "b"}, {.peer = 4, .name = "c"}};
        reply.begin_ns = 5'000'000'000'123;
        now = reply.begin_ns;
        reply.end_ns = now;
    }
    std::int64_t later() { return now += std::uniform_int_distribution<std::int64_t>(0, 50'000)(random); }
    void add(shm::TraceEventKind kind, std::uint32_t tensor, Step step, std::uint32_t who, std::int64_t until = 0,
             std::uint64_t number = 0) {
        reply.events.push_back({.kind = kind,
                                .tensor = tensor,
                                .who = who,
                                .step = step,
                                .time_ns = now,
                                .until_ns = until,
                                .number = number});
    }
    void hand_in(std::uint32_t tensor, Step step, Rank rank) {
        later();
        add(shm::TraceEventKind::kHandIn, tensor, step, rank);
    }
    void encode(std::uint32_t tensor, Step step) {
        later();
        add(shm::TraceEventKind::kEncodeAsked, tensor, step, 0);
        const auto began = later();
        const auto ended = later();
        now = began;
        add(shm::TraceEventKind::kEncoded, tensor, step, 0, ended, 77);
        now = ended;
        for (const auto& peer : reply.peers) {
            later();
            add(shm::TraceEventKind::kRecordsOut, tensor, step, peer.peer, 0, ++frame);
            later();
            add(shm::TraceEventKind::kFrameSent, 0, 0, 0, 0, frame);
        }
    }
    void receive(std::uint32_t tensor, Step step, PeerIndex peer) {
        const auto arrived = later();
        const auto taken = later();
        now = arrived;
        add(shm::TraceEventKind::kFirstRecord, tensor, step, peer, taken);
        add(shm::TraceEventKind::kLastRecord, tensor, step, peer, taken);
        now = taken;
    }
    void decode(std::uint32_t tensor, Step step) {
        later();
        add(shm::TraceEventKind::kDecodeAsked, tensor, step, 0);
        const auto began = later();
        const auto ended = later();
        now = began;
        add(shm::TraceEventKind::kDecoded, tensor, step, 0, ended);
        now = ended;
    }
    void hand_back(std::uint32_t tensor, Step step) {
        later();
        add(shm::TraceEventKind::kHandedBack, tensor, step, 0);
    }
    void commit(Step step) {
        later();
        add(shm::TraceEventKind::kStepCommitted, 0, step, 0);
        ++reply.steps_ended;
    }
    /// Peers' payloads come before or after this node's own are coded.
    void whole_step(Step step) {
        const bool is_early = random() % 2 == 0;
        for (const std::uint32_t tensor : {1U, 0U}) {
            if (is_early) receive(tensor, step, 4);
            hand_in(tensor, step, random() % 2);
            hand_in(tensor, step, 1 - reply.events.back().who);
            encode(tensor, step);
            if (!is_early) receive(tensor, step, 4);
            receive(tensor, step, 1);
        }
        for (const std::uint32_t tensor : {0U, 1U}) decode(tensor, step);
        hand_back(0, step);
        commit(step);
        hand_back(1, step);
    }
    shm::TraceReply& finish() {
        reply.end_ns = later();
        return reply;
    }

    std::mt19937 random;
    shm::TraceReply reply;
    std::int64_t now = 0;
    std::uint64_t frame = 0;
};

}  // namespace gradsieve::cli
