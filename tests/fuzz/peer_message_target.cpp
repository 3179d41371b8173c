// What another node's daemon says about a job: one byte tells the message, the rest is a frame's body.
#include "exchange/messages.hpp"
#include "exchange/record.hpp"
#include "tests/exchange/golden_frames.hpp"
#include "tests/fuzz/fuzz_target.hpp"

#include <array>
#include <filesystem>
#include <string>

namespace gradsieve::fuzz {
namespace {

constexpr std::uint64_t kHash = 0x1122334455667788;

/// What was taken is built again and taken again.
template <auto kParse>
void run_message(ByteView body) {
    const auto message = kParse(body);
    if (!message.is_ok()) return;
    const auto built = exchange::build_message(kHash, *message);
    require(kParse(built).is_ok(), "a message that was taken can be built and taken again");
}
template <auto kParse>
void run_parser(ByteView body) {
    static_cast<void>(kParse(body));
}
void run_spec(ByteView body) {
    const auto spec = exchange::parse_job_spec(body);
    if (!spec.is_ok()) return;
    const auto again = exchange::parse_job_spec(exchange::build_job_spec(*spec));
    require(again.is_ok() && *again == *spec, "a job's specification is built as it was read");
    require(exchange::first_difference(*spec, "a", *again, "b").empty(), "equal specifications do not differ");
}
template <bool kIsRelay>
void run_records(ByteView input) {
    const auto prefix = exchange::parse_data_prefix(input, kIsRelay);
    if (!prefix.is_ok()) return;
    const SharedView body({}, input);
    exchange::RecordReader reader(body, prefix->first_byte);
    std::size_t bytes = prefix->first_byte;
    while (const auto record = reader.next()) {
        require(record->payload.bytes().size() == record->header.payload_bytes, "a record has the bytes it says");
        bytes += record->payload.bytes().size();
        require(bytes <= input.size(), "records lie in their frame");
    }
    require(reader.is_ok() == exchange::has_whole_records(body, prefix->first_byte),
            "both readers see the same records");
}

using Run = void (*)(ByteView);
constexpr Run kRuns[] = {
    &run_message<&exchange::parse_prepared>,
    &run_message<&exchange::parse_start>,
    &run_message<&exchange::parse_reason>,
    &run_message<&exchange::parse_ack>,
    &run_message<&exchange::parse_credit>,
    &run_message<&exchange::parse_progress>,
    &run_message<&exchange::parse_fetch>,
    &run_message<&exchange::parse_complaint>,
    &run_message<&exchange::parse_query>,
    &run_message<&exchange::parse_report>,
    &run_message<&exchange::parse_verdict>,
    &run_message<&exchange::parse_rank_died>,
    &run_message<&exchange::parse_detached>,
    &run_message<&exchange::parse_broadcast_ask>,
    &run_message<&exchange::parse_check>,
    &run_message<&exchange::parse_snapshot_ask>,
    &run_message<&exchange::parse_snapshot_answer>,
    &run_parser<&exchange::parse_broadcast_piece>,
    &run_records<false>,
    &run_records<true>,
    &run_spec,
};
constexpr std::size_t kRunCount = std::size(kRuns);

}  // namespace

std::vector<Bytes> seeds() {
    std::vector<Bytes> made;
    for (const auto& file : std::filesystem::directory_iterator(FUZZ_GOLDEN_FRAMES)) {
        const auto bytes = exchange::read_golden_frame(file.path());
        // Whoever takes it keeps it: the message that it is, and any that reads alike.
        for (std::size_t run = 0; run < kRunCount; ++run) made.push_back(tagged(static_cast<std::uint8_t>(run), bytes));
    }
    exchange::JobSpec spec;
    spec.codec = "all | f32 | auto";
    spec.tensors = {{"a", "", {3, 4}, "all | f32 | auto"}, {"b", "g", {}, "topk(0.01) | f32 | auto"}};
    made.push_back(tagged(kRunCount - 1, exchange::build_job_spec(spec)));
    return made;
}

void run_one(ByteView input) {
    if (!input.empty()) kRuns[std::to_integer<std::size_t>(input[0]) % kRunCount](input.subspan(1));
}

}  // namespace gradsieve::fuzz
