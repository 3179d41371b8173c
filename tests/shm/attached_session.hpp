// Both ends of one session in this process, as after an attach over the socket. Tests only.
#pragma once

#include "shm/doorbell.hpp"
#include "tests/shm/shm_test_support.hpp"

namespace gradsieve::shm {

struct AttachedSession {
    explicit AttachedSession(std::vector<TensorEntry> entries = two_tensors())
        : tensors(std::move(entries)),
          daemon(DaemonSession::make("test", tensors).value()),
          results(ResultArea::make("test", elements_of(tensors)).value()),
          doorbell(Doorbell::make().value()),
          client(ClientSession::adopt(tensors, reply_for(daemon, results, tensors.size()),
                                      descriptors_for(daemon, results, doorbell.fd()))
                     .value()) {}

    std::vector<TensorEntry> tensors;
    DaemonSession daemon;
    ResultArea results;
    Doorbell doorbell;
    ClientSession client;
};

}  // namespace gradsieve::shm
