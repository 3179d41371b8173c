// Exact broadcasts: the root's node reads the bytes once all of its ranks asked and sends them in pieces; every node
// tells the others what its ranks asked for, so that ranks that disagree are named. One thread; owned by JobMachine.
#include "exchange/side_rounds.hpp"

#include <algorithm>

namespace gradsieve::exchange {
namespace {

/// One frame each: small enough to interleave with steps, large enough that its header does not count.
constexpr ByteCount kPieceBytes = ByteCount{1} << 20U;
/// No exact element is wider (float64, int64): bounds what a peer can make us hold.
constexpr ByteCount kElementBytesLimit = 8;

std::string ask_text(const JobContext& context, const BroadcastAsk& ask) {
    return context.tensor_text(ask.tensor) + " from rank " + std::to_string(ask.root);
}

}  // namespace

SideRounds::Broadcast& SideRounds::broadcast(Step number, TimePoint now) {
    const auto [entry, is_new] = broadcasts_.try_emplace(number);
    if (is_new) entry->second.opened_at = now;
    return entry->second;
}

Status SideRounds::on_broadcast_requested(Rank rank, TensorNumber tensor, Step number, Rank root, TimePoint now) {
    const auto subject = "broadcast " + std::to_string(number) + ": ";
    const auto known = broadcasts_.find(number);
    if (const auto doom = doom_of_broadcast(number, known == broadcasts_.end() ? Broadcast{} : known->second))
        return *doom;
    if (finished_broadcasts_.is_done(number) || finished_broadcasts_.is_absurd(number))
        return {StatusCode::kInvalidArgument, subject + "this number is over or far ahead: count broadcasts from 1"};
    if (root >= context_.spec.world_size)
        return {StatusCode::kInvalidArgument, subject + "root " + std::to_string(root) + ": allowed is 0 to " +
                                                  std::to_string(context_.spec.world_size - 1) + ": name a rank"};
    auto& round = broadcast(number, now);
    if (!round.asked.insert(rank).second)
        return {StatusCode::kBusy, subject + "rank " + std::to_string(rank) + " has asked already: wait for it first"};
    last_broadcast_[rank] = std::max(last_broadcast_[rank], number);
    const BroadcastAsk ask{.tensor = tensor, .root = root};
    if (!round.ask) round.ask = ask;
    if (!agrees(number, *round.ask, ask)) return {};
    if (has_all_local(round.asked))
        context_.send_to_members(FrameType::kBroadcastAsk, number, build_message(context_.hash, ask));
    advance_broadcast(number);
    forget_finished();
    return {};
}

/// Ranks that call different broadcasts run different programs: the job ends, naming both calls.
bool SideRounds::agrees(Step number, const BroadcastAsk& left, const BroadcastAsk& right) {
    if (left == right) return true;
    context_.fail(StatusCode::kMismatch, "broadcast " + std::to_string(number) + ": one rank asks for " +
                                             ask_text(context_, left) + ", another for " + ask_text(context_, right) +
                                             ": all ranks must call the same broadcasts in the same order");
    return false;
}

void SideRounds::on_broadcast_ask(std::size_t from, Step number, const BroadcastAsk& ask, TimePoint now) {
    if (finished_broadcasts_.is_done(number)) return;
    if (finished_broadcasts_.is_absurd(number) || ask.tensor >= context_.spec.tensors.size() ||
        ask.root >= context_.spec.world_size)
        return context_.refuse(context_.members[from].peer, "broadcast request that is not in the job");
    broadcast(number, now).others[from] = ask;
    advance_broadcast(number);
}

void SideRounds::on_broadcast_bytes(TensorNumber tensor, Step number, const SharedView& bytes, TimePoint now) {
    const auto found = broadcasts_.find(number);
    if (found == broadcasts_.end() || !found->second.is_reading || found->second.bytes) return;
    auto& round = found->second;
    if (round.ask->tensor != tensor) return;
    round.bytes = bytes;
    round.sent_at = now;
    for (std::size_t member = 0; member < context_.members.size(); ++member)
        if (member != context_.own && context_.is_active(member)) send_bytes(number, member, round);
    advance_broadcast(number);
    forget_finished();
}

void SideRounds::send_bytes(Step number, std::size_t member, const Broadcast& round) {
    const auto to = context_.members[member].peer;
    const OutKey key{.step = number, .stream = kBroadcastStream, .origin = context_.self};
    outbox_.forget(to, key);
    const ByteCount total = round.bytes->bytes().size();
    std::uint32_t index = 0;
    for (ByteCount first = 0; first == 0 || first < total; first += kPieceBytes) {
        const BroadcastPiece piece{.ask = *round.ask, .total_bytes = total, .first_byte = first};
        outbox_.add(to, key,
                    {.tensor = 0,
                     .chunk = index++,
                     .header = build_piece_header(piece),
                     .payload = round.bytes->part(first, std::min(kPieceBytes, total - first))});
    }
    outbox_.complete(to, key);
}

void SideRounds::on_broadcast_piece(std::size_t from, Step number, const SharedView& body, TimePoint now) {
    const auto sender = context_.members[from].peer;
    const auto piece = parse_broadcast_piece(body.bytes());
    if (!piece.is_ok()) return context_.refuse(sender, piece.error().text());
    const auto bytes = body.part(piece->header_bytes, body.bytes().size() - piece->header_bytes);
    if (finished_broadcasts_.is_done(number)) return send_ack(from, kBroadcastStream, number);
    const auto limit = piece->ask.tensor < context_.spec.tensors.size()
                           ? checked_multiply(context_.spec.tensors[piece->ask.tensor].elements(), kElementBytesLimit)
                           : std::nullopt;
    const auto count = static_cast<ByteCount>(bytes.bytes().size());
    const auto end = checked_add(piece->first_byte, count);
    const bool is_sound = !finished_broadcasts_.is_absurd(number) && limit && piece->total_bytes <= *limit && end &&
                          *end <= piece->total_bytes && piece->first_byte % kPieceBytes == 0 &&
                          count == std::min(kPieceBytes, piece->total_bytes - piece->first_byte) &&
                          context_.member_with(piece->ask.root) == from;
    if (!is_sound) return context_.refuse(sender, "broadcast piece that is not in the job");
    take_piece(from, number, *piece, bytes, now);
}

void SideRounds::take_piece(std::size_t from, Step number, const BroadcastPiece& piece, SharedView bytes,
                            TimePoint now) {
    auto& round = broadcast(number, now);
    if (round.bytes) return send_ack(from, kBroadcastStream, number);
    if (!round.sent) {
        round.sent = piece.ask;
        round.total_bytes = piece.total_bytes;
    }
    if (*round.sent != piece.ask || round.total_bytes != piece.total_bytes)
        return context_.refuse(context_.members[from].peer, "broadcast piece that differs from the ones before");
    const auto count = bytes.bytes().size();
    if (!round.pieces.emplace(piece.first_byte, std::move(bytes)).second) return;
    round.arrived_bytes += count;
    if (round.arrived_bytes < round.total_bytes) return;
    if (round.pieces.size() == 1) {
        round.bytes = round.pieces.begin()->second;
    } else {
        Bytes whole;
        whole.reserve(round.total_bytes);
        for (const auto& [first, part] : round.pieces)
            whole.insert(whole.end(), part.bytes().begin(), part.bytes().end());
        round.bytes = SharedView::take(std::move(whole));
    }
    round.pieces.clear();
    send_ack(from, kBroadcastStream, number);
    advance_broadcast(number);
    forget_finished();
}

std::optional<Status> SideRounds::doom_of_broadcast(Step number, const Broadcast& round) const {
    if (round.bytes) return std::nullopt;
    for (const auto& [rank, detachment] : context_.detached)
        if (detachment.last_broadcast < number)
            return Status(StatusCode::kPeerFailed, context_.rank_text(rank) + " has detached: broadcast " +
                                                       std::to_string(number) +
                                                       " needs all ranks; detach, or start the job again");
    return std::nullopt;
}

void SideRounds::advance_broadcast(Step number) {
    auto& round = broadcasts_.at(number);
    if (round.is_delivered || !round.ask) return;
    for (const auto& entry : round.others)
        if (!agrees(number, *round.ask, entry.second)) return;
    if (round.sent && !agrees(number, *round.ask, *round.sent)) return;
    if (const auto doom = doom_of_broadcast(number, round)) {
        round.is_delivered = true;
        context_.actions.emplace_back(
            DeliverBroadcast{.tensor = round.ask->tensor, .number = number, .bytes = {}, .status = *doom});
        return;
    }
    if (!has_all_local(round.asked)) return;
    if (context_.member_with(round.ask->root) == context_.own && !round.is_reading) {
        round.is_reading = true;
        context_.actions.emplace_back(
            ReadBroadcast{.tensor = round.ask->tensor, .number = number, .root = round.ask->root});
    }
    if (!round.bytes) return;
    round.is_delivered = true;
    context_.actions.emplace_back(
        DeliverBroadcast{.tensor = round.ask->tensor, .number = number, .bytes = *round.bytes, .status = {}});
}

}  // namespace gradsieve::exchange
