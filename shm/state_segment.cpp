// A state segment's words and pages. One thread writes; docs/state-format.md.
#include "shm/state_segment.hpp"

#include "shm/system_error.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <bit>
#include <cmath>
#include <cstring>

namespace gradsieve::shm {
namespace {

constexpr std::uint64_t kReadyOffset = kStateHeadBytes - 8;
constexpr std::uint64_t kStampWord = 0, kValidWord = 8, kScaleWord = 16;
constexpr std::uint64_t kPreviousWord = 8;  // behind the committed step
constexpr std::uint64_t kPlacementBytesWord = 0, kPlacementChecksumWord = 8, kPlacedWord = 16;

Result<std::uint64_t> inode_of(int fd, ByteCount& ret_bytes) {
    struct stat seen {};
    if (::fstat(fd, &seen) != 0)
        return Status(StatusCode::kCorrupt, "kept state: descriptor " + std::to_string(fd) + ": " + errno_text(errno) +
                                                ": allowed is an open one; it is dropped");
    ret_bytes = S_ISREG(seen.st_mode) && seen.st_size > 0 ? static_cast<ByteCount>(seen.st_size) : 0;
    return static_cast<std::uint64_t>(seen.st_ino);
}

}  // namespace

Result<StateSegment> StateSegment::make(const std::string& label, StateTable table, std::size_t devices) {
    GRADSIEVE_ASSIGN(const auto layout, lay_out_state(table, devices));
    GRADSIEVE_ASSIGN(auto segment, Segment::make(label, layout.segment_bytes, Sharing::kPrivate));
    ByteCount bytes = 0;
    GRADSIEVE_ASSIGN(const auto inode, inode_of(segment.fd(), bytes));
    const auto head = build_state_table(table, layout, inode);
    std::memcpy(segment.bytes().data(), head.data(), head.size());
    StateSegment state(std::move(segment), ParsedState{std::move(table), layout});
    for (std::size_t tensor = 0; tensor < state.table_.tensors.size(); ++tensor)
        for (std::size_t generation = 0; generation < 2; ++generation) state.finish(tensor, generation, 0, 0);
    state.store(kReadyOffset, kStateReady);
    return state;
}

Result<StateSegment> StateSegment::adopt(UniqueFd fd) {
    ByteCount bytes = 0;
    GRADSIEVE_ASSIGN(const auto inode, inode_of(fd.get(), bytes));
    GRADSIEVE_ASSIGN(auto segment, Segment::adopt(std::move(fd), bytes, Access::kReadWrite, true));
    GRADSIEVE_ASSIGN(auto parsed, parse_state_table(std::as_const(segment).bytes(), inode));
    StateSegment state(std::move(segment), std::move(parsed));
    GRADSIEVE_TRY(state.take_up_placement());
    GRADSIEVE_TRY(state.check_words());
    return state;
}

/// Acquire and release only matter within one process; against a kill it is the order of the stores that counts, and
/// release keeps the compiler from changing it.
std::uint64_t StateSegment::load(std::uint64_t offset) const noexcept {
    return shared_word64(segment_.bytes(), offset).load(std::memory_order_acquire);  // pairs with the release in store
}
void StateSegment::store(std::uint64_t offset, std::uint64_t value) noexcept {
    shared_word64(segment_.bytes(), offset).store(value, std::memory_order_release);  // pairs with the acquire in load
}

std::vector<Rank> StateSegment::ranks() const {
    std::vector<Rank> ranks;
    for (Rank rank = 0; rank < table_.world_size; ++rank)
        if (((load(layout_.rank_word(rank / 64)) >> (rank % 64)) & 1U) != 0) ranks.push_back(rank);
    return ranks;
}

void StateSegment::set_ranks(std::span<const Rank> ranks) {
    std::vector<std::uint64_t> words(StateLayout::rank_words(table_.world_size));
    for (const auto rank : ranks) words[rank / 64] |= std::uint64_t{1} << (rank % 64);
    for (std::size_t index = 0; index < words.size(); ++index)
        if (load(layout_.rank_word(index)) != words[index]) store(layout_.rank_word(index), words[index]);
}

StateSegment::Generation StateSegment::generation(std::size_t tensor, std::size_t generation) const {
    const auto word = layout_.generation_word(table_, tensor, generation);
    return {load(word + kStampWord), load(word + kValidWord) == 1, std::bit_cast<double>(load(word + kScaleWord))};
}

void StateSegment::invalidate(std::size_t tensor, std::size_t generation) {
    store(layout_.generation_word(table_, tensor, generation) + kValidWord, 0);
}

void StateSegment::finish(std::size_t tensor, std::size_t generation, Step step, double scale) {
    const auto word = layout_.generation_word(table_, tensor, generation);
    store(word + kScaleWord, std::bit_cast<std::uint64_t>(scale));
    store(word + kStampWord, step);
    store(word + kValidWord, 1);  // last: what stands above counts from here on
}

Step StateSegment::committed(std::size_t group) const { return load(layout_.committed_word(table_, group)); }

void StateSegment::commit(std::size_t group, Step step) {
    const auto word = layout_.committed_word(table_, group);
    store(word + kPreviousWord, load(word));
    store(word, step);
}

/// The newest valid one whose stamp is not above `committed`.
std::optional<std::size_t> StateSegment::live_generation(std::size_t tensor, Step committed) const {
    std::optional<std::size_t> live;
    for (std::size_t index = 0; index < 2; ++index) {
        const auto seen = generation(tensor, index);
        if (!seen.is_valid || seen.stamp > committed) continue;
        if (!live || seen.stamp > generation(tensor, *live).stamp) live = index;
    }
    return live;
}

StateSegment::Steps StateSegment::steps(std::size_t group) const {
    Steps steps{.newest = committed(group), .older = 0};
    const auto previous = load(layout_.committed_word(table_, group) + kPreviousWord);
    if (previous >= steps.newest) return steps;
    // What the pass of a newer generation read is the other one, unless it has been overwritten since.
    for (std::size_t tensor = 0; tensor < table_.tensors.size(); ++tensor)
        if (table_.tensors[tensor].group == group && !live_generation(tensor, previous)) return steps;
    steps.older = previous;
    return steps;
}

bool StateSegment::has_committed() const {
    for (std::size_t group = 0; group < table_.groups.size(); ++group)
        if (committed(group) > 0) return true;
    return false;
}

void StateSegment::roll_back(std::size_t group, Step step) {
    store(layout_.committed_word(table_, group) + kPreviousWord, 0);
    store(layout_.committed_word(table_, group), step);  // from here on what is newer does not count
    for (std::size_t tensor = 0; tensor < table_.tensors.size(); ++tensor)
        for (std::size_t index = 0; index < 2; ++index)
            if (table_.tensors[tensor].group == group && generation(tensor, index).stamp > step)
                invalidate(tensor, index);
}

Status StateSegment::clear(std::size_t group) {
    store(layout_.committed_word(table_, group), 0);  // first: nothing is to be taken up from here on
    store(layout_.committed_word(table_, group) + kPreviousWord, 0);
    for (std::size_t tensor = 0; tensor < table_.tensors.size(); ++tensor) {
        if (table_.tensors[tensor].group != group) continue;
        for (std::size_t index = 0; index < 2; ++index) {
            for (const auto& array : table_.tensors[tensor].arrays)
                if (!is_on_devices(array)) GRADSIEVE_TRY(clear(array, index));
            finish(tensor, index, 0, 0);
        }
    }
    return {};
}

Status StateSegment::clear(const StateArray& array, std::size_t generation) {
    const auto offset = static_cast<off_t>(array.offset_bytes[generation]);
    const auto bytes = static_cast<off_t>(checked_align(array.bytes, kStateAlignBytes).value_or(0));
    if (bytes == 0) return {};
    if (::fallocate(fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, bytes) == 0 &&
        ::fallocate(fd(), 0, offset, bytes) == 0)
        return {};
    return {StatusCode::kResourceExhausted, "state of job '" + table_.job_name + "': " + std::to_string(bytes) +
                                                " bytes of zeros: " + errno_text(errno) +
                                                ": needed is memory for it; free some, then start the job again"};
}

bool StateSegment::has_device_arrays(std::size_t group) const {
    for (const auto& tensor : table_.tensors)
        if (tensor.group == group && is_on_devices(tensor)) return true;
    return false;
}

/// The mark is stored last and taken away first: a kill in between leaves no placement, never half of one.
Status StateSegment::place(StatePlacement placement) {
    displace();
    const auto text = build_placement(placement);
    const auto at = layout_.placement_offset;
    if (kPlacementHeadBytes + text.size() > layout_.placement_room_bytes)
        return {StatusCode::kResourceExhausted,
                "state of job '" + table_.job_name + "': its places on " + std::to_string(placement.parts.size()) +
                    " GPUs take " + std::to_string(text.size()) + " bytes: allowed are " +
                    std::to_string(layout_.placement_room_bytes) +
                    ", for the GPUs that were seen when the job began; start the job again"};
    std::memcpy(segment_.bytes().data() + at + kPlacementHeadBytes, text.data(), text.size());
    store(at + kPlacementBytesWord, text.size());
    store(at + kPlacementChecksumWord, state_checksum(text));
    store(at + kPlacedWord, kStatePlaced);
    placement_ = std::move(placement);
    return {};
}

void StateSegment::displace() {
    if (layout_.placement_room_bytes > 0) store(layout_.placement_offset + kPlacedWord, 0);
    placement_.reset();
}

Status StateSegment::take_up_placement() {
    const auto at = layout_.placement_offset;
    if (layout_.placement_room_bytes == 0 || load(at + kPlacedWord) == 0) return {};
    const auto bytes = load(at + kPlacementBytesWord);
    if (load(at + kPlacedWord) != kStatePlaced || bytes > layout_.placement_room_bytes - kPlacementHeadBytes)
        return corrupt_state("a placement of " + std::to_string(bytes) + " bytes",
                             "what its room of " + std::to_string(layout_.placement_room_bytes) + " holds");
    const auto text = std::as_const(segment_).bytes().subspan(at + kPlacementHeadBytes, bytes);
    if (state_checksum(text) != load(at + kPlacementChecksumWord))
        return corrupt_state("a placement whose checksum differs", "the bytes it was made with");
    GRADSIEVE_ASSIGN(placement_, parse_placement(text, table_));
    return {};
}

Status StateSegment::check_words() const {
    const auto surplus = table_.world_size % 64;
    const auto last = load(layout_.rank_word(StateLayout::rank_words(table_.world_size) - 1));
    if (surplus != 0 && (last >> surplus) != 0)
        return corrupt_state("a rank beyond the world", "below " + std::to_string(table_.world_size));
    for (std::size_t tensor = 0; tensor < table_.tensors.size(); ++tensor)
        for (std::size_t index = 0; index < 2; ++index) {
            const auto valid = load(layout_.generation_word(table_, tensor, index) + kValidWord);
            const auto seen = generation(tensor, index);
            const auto subject = "tensor '" + table_.tensors[tensor].name + "'";
            if (valid > 1) return corrupt_state(subject + " with validity " + std::to_string(valid), "0 or 1");
            if (!seen.is_valid) continue;  // its other words may be of any moment
            if (seen.stamp > kStateLastStep)
                return corrupt_state(subject + " with stamp " + std::to_string(seen.stamp), "at most 2^62");
            if (!std::isfinite(seen.scale) || seen.scale < 0)
                return corrupt_state(subject + " with scale " + std::to_string(seen.scale), "a number from 0");
        }
    for (std::size_t group = 0; group < table_.groups.size(); ++group) GRADSIEVE_TRY(check_group(group));
    return {};
}

Status StateSegment::check_group(std::size_t group) const {
    const auto step = committed(group);
    const auto subject = "group '" + table_.groups[group] + "' at step " + std::to_string(step);
    if (step > kStateLastStep) return corrupt_state(subject, "at most 2^62");
    if (step > 0 && ranks().empty()) return corrupt_state(subject + " without ranks", "the node's ranks");
    if (step > 0 && has_device_arrays(group) && !placement_)
        return corrupt_state(subject + " with arrays on GPUs, but none says where", "a placement");
    for (std::size_t tensor = 0; tensor < table_.tensors.size() && step > 0; ++tensor) {
        if (table_.tensors[tensor].group != group) continue;
        if (!live_generation(tensor, step))
            return corrupt_state(subject + ", but tensor '" + table_.tensors[tensor].name + "' has no array of it",
                                 "a live generation for every tensor");
    }
    return {};
}

}  // namespace gradsieve::shm
