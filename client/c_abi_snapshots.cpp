// The calls of gradsieve.h about checkpoints: what c_abi.cpp is for the others. Threads and ownership as the header
// says.
#include "client/c_handles.hpp"

#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

using gradsieve::Status;
using gradsieve::StatusCode;
using gradsieve::client::guarded;
using gradsieve::client::null_argument;
using gradsieve::client::text_or_empty;
using gradsieve::client::timeout_of;

struct gradsieve_snapshot {
    gradsieve::Snapshot snapshot;
};
struct gradsieve_bytes {
    std::vector<std::byte> bytes;
};

extern "C" {

gradsieve_status gradsieve_job_request_snapshot(gradsieve_job* job, uint64_t step, const char* group,
                                                int64_t timeout_ms, gradsieve_snapshot** ret_snapshot) {
    return guarded([&]() -> Status {
        if (job == nullptr) return null_argument("job");
        if (ret_snapshot == nullptr) return null_argument("ret_snapshot");
        GRADSIEVE_ASSIGN(auto snapshot,
                         job->core->request_snapshot(step, text_or_empty(group), timeout_of(timeout_ms)));
        *ret_snapshot = std::make_unique<gradsieve_snapshot>(gradsieve_snapshot{std::move(snapshot)}).release();
        return {};
    });
}
gradsieve_status gradsieve_job_resume_from(gradsieve_job* job, uint64_t step, const char* group, uint64_t digest) {
    return guarded([&] {
        return job == nullptr ? null_argument("job") : job->core->resume_from(step, text_or_empty(group), digest);
    });
}
gradsieve_status gradsieve_job_export_snapshot(gradsieve_job* job, uint64_t step, const char* group, int64_t timeout_ms,
                                               gradsieve_bytes** ret_bytes) {
    return guarded([&]() -> Status {
        if (job == nullptr) return null_argument("job");
        if (ret_bytes == nullptr) return null_argument("ret_bytes");
        GRADSIEVE_ASSIGN(auto bytes, job->core->export_snapshot(step, text_or_empty(group), timeout_of(timeout_ms)));
        *ret_bytes = std::make_unique<gradsieve_bytes>(gradsieve_bytes{std::move(bytes)}).release();
        return {};
    });
}
gradsieve_status gradsieve_job_import_snapshot(gradsieve_job* job, const void* bytes, size_t byte_count,
                                               int64_t timeout_ms, gradsieve_snapshot** ret_snapshot) {
    return guarded([&]() -> Status {
        if (job == nullptr) return null_argument("job");
        if (bytes == nullptr) return null_argument("bytes");
        if (ret_snapshot == nullptr) return null_argument("ret_snapshot");
        GRADSIEVE_ASSIGN(auto snapshot, job->core->import_snapshot({static_cast<const std::byte*>(bytes), byte_count},
                                                                   timeout_of(timeout_ms)));
        *ret_snapshot = std::make_unique<gradsieve_snapshot>(gradsieve_snapshot{std::move(snapshot)}).release();
        return {};
    });
}
gradsieve_status gradsieve_job_release_snapshots(gradsieve_job* job, uint64_t step, const char* group,
                                                 int64_t timeout_ms) {
    return guarded([&] {
        return job == nullptr ? null_argument("job")
                              : job->core->release_snapshots(step, text_or_empty(group), timeout_of(timeout_ms));
    });
}

void gradsieve_snapshot_free(gradsieve_snapshot* snapshot) {
    const std::unique_ptr<gradsieve_snapshot> owned(snapshot);
}
uint64_t gradsieve_snapshot_step(const gradsieve_snapshot* snapshot) {
    return snapshot == nullptr ? 0 : snapshot->snapshot.step;
}
size_t gradsieve_snapshot_part_count(const gradsieve_snapshot* snapshot) {
    return snapshot == nullptr ? 0 : snapshot->snapshot.parts.size();
}
gradsieve_status gradsieve_snapshot_part(const gradsieve_snapshot* snapshot, size_t index,
                                         gradsieve_snapshot_part_info* ret_part) {
    return guarded([&]() -> Status {
        if (snapshot == nullptr) return null_argument("snapshot");
        if (ret_part == nullptr) return null_argument("ret_part");
        const auto& parts = snapshot->snapshot.parts;
        if (index >= parts.size())
            return {StatusCode::kInvalidArgument, "part " + std::to_string(index) + ": the snapshot has " +
                                                      std::to_string(parts.size()) +
                                                      ": allowed is below gradsieve_snapshot_part_count; correct it"};
        gradsieve_snapshot_part_info known{};
        known.struct_size = sizeof(known);
        known.node = parts[index].node.c_str();
        known.ranks = parts[index].ranks.data();
        known.rank_count = parts[index].ranks.size();
        known.digest = parts[index].digest;
        known.bytes = parts[index].bytes;
        const auto size = std::min(ret_part->struct_size, sizeof(known));
        if (size < sizeof(known))
            return {StatusCode::kInvalidArgument, "ret_part.struct_size is " + std::to_string(ret_part->struct_size) +
                                                      ": allowed is " + std::to_string(sizeof(known)) +
                                                      " or more; set it to the struct's size"};
        std::memcpy(ret_part, &known, size);
        return {};
    });
}

void gradsieve_bytes_free(gradsieve_bytes* bytes) { const std::unique_ptr<gradsieve_bytes> owned(bytes); }
const void* gradsieve_bytes_data(const gradsieve_bytes* bytes) {
    return bytes == nullptr ? nullptr : bytes->bytes.data();
}
size_t gradsieve_bytes_count(const gradsieve_bytes* bytes) { return bytes == nullptr ? 0 : bytes->bytes.size(); }

}  // extern "C"
