// The state of one job on one node in a memfd that outlives its daemon: a table that says what it is (state_table.hpp),
// the words that change while the job runs, and the arrays in two generations. A kill between any two stores leaves the
// old or the new committed step, never a mixture: the pass writes the generation that is not live, whose validity is
// taken away first and given back last, and one store per group commits. One thread writes the words; the arrays belong
// to whoever runs the pass. The object owns descriptor and mapping.
#pragma once

#include "shm/segment.hpp"
#include "shm/shared_word.hpp"
#include "shm/state_placement.hpp"

#include <optional>
#include <span>
#include <vector>

namespace gradsieve::shm {

class StateSegment {
public:
    struct Generation {
        Step stamp = 0;         ///< the step that wrote it; 0 = zeros
        bool is_valid = false;  ///< false while, and after, a step wrote it without success
        double scale = 0;       ///< of the gradients in it; 0 = nothing in it yet
    };
    /// The steps that a group can go on from.
    struct Steps {
        Step newest = 0;  ///< the committed one; 0 = none
        Step older = 0;   ///< the one before it, as long as nothing has overwritten it; 0 = none
    };

    /// A fresh segment, all zeros, nothing committed. `table` and `devices` as lay_out_state wants them. Errors: as
    /// Segment::make.
    [[nodiscard]] static Result<StateSegment> make(const std::string& label, StateTable table, std::size_t devices = 1);
    /// One that an earlier daemon left: size, seals, table and every word are checked. Errors: as parse_state_table;
    /// kCorrupt for words that no order of stores leaves behind.
    [[nodiscard]] static Result<StateSegment> adopt(UniqueFd fd);

    [[nodiscard]] const StateTable& table() const noexcept { return table_; }
    [[nodiscard]] int fd() const noexcept { return segment_.fd(); }
    [[nodiscard]] ByteCount size_bytes() const noexcept { return segment_.size_bytes(); }
    /// Whether arrays lie on GPUs.
    [[nodiscard]] bool has_device_arrays() const noexcept { return layout_.placement_room_bytes > 0; }
    /// Of a group: whether any of its tensors has arrays on GPUs.
    [[nodiscard]] bool has_device_arrays(std::size_t group) const;
    /// Where those lie, once it is known.
    [[nodiscard]] const std::optional<StatePlacement>& placement() const noexcept { return placement_; }
    /// The arrays on GPUs lie there from here on; in place of a placement before. Errors: kResourceExhausted (more
    /// GPUs than the segment has room for).
    [[nodiscard]] Status place(StatePlacement placement);
    /// They lie nowhere: what is committed of groups with arrays on GPUs counts no more for who takes it up now.
    void displace();
    /// The first element; `array` of this table, in the segment.
    [[nodiscard]] float* values(const StateArray& array, std::size_t generation) noexcept {
        return word_address<float>(segment_.bytes(), array.offset_bytes[generation]);
    }

    /// Ranks of this node whose mean the state is in, ascending.
    [[nodiscard]] std::vector<Rank> ranks() const;
    void set_ranks(std::span<const Rank> ranks);

    [[nodiscard]] Generation generation(std::size_t tensor, std::size_t generation) const;
    /// From here on the generation counts as unwritten: before a pass writes it, or after a step failed.
    void invalidate(std::size_t tensor, std::size_t generation);
    /// The pass is done: the generation holds `step` from here on, but counts only once that is committed.
    void finish(std::size_t tensor, std::size_t generation, Step step, double scale);
    [[nodiscard]] Step committed(std::size_t group) const;
    /// One store: all tensors of the group go over to their generations of `step`. One that the step did not touch
    /// keeps what it has.
    void commit(std::size_t group, Step step);

    /// Of a tensor, if its group is at `committed`.
    [[nodiscard]] std::optional<std::size_t> live_generation(std::size_t tensor, Step committed) const;
    [[nodiscard]] Steps steps(std::size_t group) const;
    [[nodiscard]] bool has_committed() const;
    /// Goes back to one of `steps`: newer generations count as unwritten.
    void roll_back(std::size_t group, Step step);
    /// The group begins anew: zeros, nothing committed. The pages are given back and taken anew, not visited; arrays on
    /// GPUs are the caller's. Errors: kResourceExhausted.
    [[nodiscard]] Status clear(std::size_t group);

private:
    StateSegment(Segment segment, ParsedState parsed)
        : segment_(std::move(segment)), table_(std::move(parsed.table)), layout_(parsed.layout) {}
    [[nodiscard]] std::uint64_t load(std::uint64_t offset) const noexcept;
    void store(std::uint64_t offset, std::uint64_t value) noexcept;
    [[nodiscard]] Status check_words() const;
    [[nodiscard]] Status check_group(std::size_t group) const;
    [[nodiscard]] Status clear(const StateArray& array, std::size_t generation);
    [[nodiscard]] Status take_up_placement();

    mutable Segment segment_;  // atomic_ref reads through a mutable address
    StateTable table_;
    StateLayout layout_;
    std::optional<StatePlacement> placement_;
};

}  // namespace gradsieve::shm
