// What callers ask about kept state without being attached: snapshots saved, read, brought, released, and the step that
// a job's next start goes on from. Only of jobs that are the caller's own.
#include "daemon/conductor.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

namespace gradsieve::daemon {

namespace {

/// Groups that one program can name steps for.
constexpr std::size_t kWishesLimit = 4096;

exchange::JobKey key_of(const shm::StateRequest& request) { return {request.job_name, request.run_id}; }

std::string job_text(const exchange::JobKey& key) { return "job '" + key.name + "', run '" + key.run_id + "'"; }

bool is_meant(const shm::StateRequest& request, const SnapshotHead& head) {
    return (request.is_of_all_groups || head.table.groups.front() == request.group) &&
           (request.step == 0 || head.step == request.step);
}

/// "step 80, 90"; of one group, or of all.
std::string steps_text(const std::vector<FoundSnapshot>& found, const shm::StateRequest& request) {
    std::string text;
    for (const auto& one : found)
        if (one.head.is_ok() && (request.is_of_all_groups || one.head->table.groups.front() == request.group))
            text += (text.empty() ? "step " : ", ") + std::to_string(one.head->step);
    return text.empty() ? "none" : text;
}

/// This node's part.
shm::SnapshotPart part_of(const SnapshotHead& head, const Config& config) {
    return {.group = head.table.groups.front(),
            .step = head.step,
            .node = config.nodes.empty() ? "this node" : config.nodes[config.self].name,
            .ranks = head.ranks,
            .digest = head.digest,
            .bytes = snapshot_bytes(head)};
}

Status not_found(const shm::StateRequest& request, const std::vector<FoundSnapshot>& found) {
    for (const auto& one : found)  // what cannot be read may be the one
        if (!one.head.is_ok()) return one.head.error();
    return {StatusCode::kNotFound,
            job_text(key_of(request)) + ": no pinned snapshot of step " + std::to_string(request.step) +
                (request.is_of_all_groups ? "" : " of group '" + request.group + "'") + " lies here: there is " +
                steps_text(found, request) + ": name one of them; gradsieve state list shows all"};
}

}  // namespace

bool Session::may_touch(std::uint32_t owner) const {
    return who.uid == owner || who.uid == 0 || who.uid == ::geteuid();
}

void Conductor::reply_to(std::uint64_t session_id, const shm::StateReply& reply) {
    const auto place = sessions_.find(session_id);
    if (place == sessions_.end() || place->second->is_gone) return;
    if (!reply.status.is_ok()) log_.warning("state request refused: " + reply.status.text(), {});
    static_cast<void>(place->second->connection.send(shm::build_state_reply(reply), {}));  // a caller may be gone
}

void Conductor::on_state_message(Session& session, shm::LocalMessage message, TimePoint now) {
    const auto request = shm::parse_state_request(message.bytes);
    if (!request.is_ok()) {
        note_error("pid " + std::to_string(session.who.pid) + ": " + request.error().text(), now);
        return reply_to(session.id, {.number = 0, .status = request.error()});
    }
    UniqueFd file;
    std::optional<shm::StateReply> reply;
    if (request->kind == shm::StateRequestKind::kRead)
        reply = read_pinned(session, *request, file);
    else
        reply = answer_state_request(session, *request, message, now);
    if (!reply) return;
    reply->number = request->number;
    if (!file.is_open()) return reply_to(session.id, *reply);
    const int descriptor = file.get();
    static_cast<void>(session.connection.send(shm::build_state_reply(*reply), std::span(&descriptor, 1)));
}

std::optional<shm::StateReply> Conductor::answer_state_request(Session& session, const shm::StateRequest& request,
                                                               shm::LocalMessage& message, TimePoint now) {
    const auto refused = [](Status status) { return shm::StateReply{.status = std::move(status)}; };
    const auto key = key_of(request);
    if (const auto status = check_state_owner(session, key); !status.is_ok()) return refused(status);
    switch (request.kind) {
        case shm::StateRequestKind::kResume:
            if (session.wishes.size() >= kWishesLimit)
                return refused(
                    {StatusCode::kResourceExhausted, "steps for more than " + std::to_string(kWishesLimit) +
                                                         " groups are named: allowed are as many; name fewer"});
            session.wishes.push_back(request);
            return std::nullopt;
        case shm::StateRequestKind::kSave: {
            const auto place = jobs_.find(exchange::job_hash(key));
            if (place != jobs_.end() && !place->second->is_ended()) {
                place->second->on_save_request(session.id, request, now);
                return std::nullopt;
            }
            return refused({StatusCode::kNotFound, job_text(key) +
                                                       ": it does not run here: a snapshot is made of a job that runs; "
                                                       "gradsieve status names those"});
        }
        case shm::StateRequestKind::kRelease: return release_pinned(session, request);
        case shm::StateRequestKind::kChoose: return choose_step(session, request);
        case shm::StateRequestKind::kWrite: {
            const auto status = take_in(session, request, message);
            if (status.is_ok()) return std::nullopt;
            return refused(status);
        }
        case shm::StateRequestKind::kRead: break;
    }
    return refused({StatusCode::kUnimplemented, "state request of an unknown kind"});
}

/// Of the job as it runs here, of what is kept of it, and of its pinned snapshots.
Status Conductor::check_state_owner(const Session& session, const exchange::JobKey& key) const {
    const auto refuse = [&] {
        return Status(StatusCode::kPermissionDenied,
                      job_text(key) + " is another user's, you are " + session.user + ": ask as that user, or as root");
    };
    const auto place = jobs_.find(exchange::job_hash(key));
    if (place != jobs_.end() && !session.may_touch(place->second->owner())) return refuse();
    if (const auto owner = kept_states_.owner_of(key); owner && !session.may_touch(*owner)) return refuse();
    for (const auto& found : find_pinned(config_.state_directory, key))
        if (found.head.is_ok() && !session.may_touch(found.head->table.owner)) return refuse();
    return {};
}

shm::StateReply Conductor::read_pinned(Session& session, const shm::StateRequest& request, UniqueFd& ret_file) {
    const auto key = key_of(request);
    if (auto status = check_state_owner(session, key); !status.is_ok()) return {.status = std::move(status)};
    auto found = find_pinned(config_.state_directory, key);
    const auto place = std::find_if(found.begin(), found.end(), [&](const FoundSnapshot& one) {
        return one.head.is_ok() && is_meant(request, *one.head);
    });
    if (place == found.end()) return {.status = not_found(request, found)};
    ret_file = UniqueFd(::open(place->path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    if (!ret_file.is_open())
        return {.status = {StatusCode::kUnavailable, "snapshot " + place->path + " cannot be opened: try again"}};
    return {.status = {}, .parts = {part_of(*place->head, config_)}};
}

shm::StateReply Conductor::release_pinned(const Session& session, const shm::StateRequest& request) {
    shm::StateReply reply;
    const auto found = find_pinned(config_.state_directory, key_of(request));
    for (const auto& one : found) {
        if (!one.head.is_ok() || !is_meant(request, *one.head)) continue;
        ::unlink(one.path.c_str());
        reply.parts.push_back(part_of(*one.head, config_));
        log_.info("pinned snapshot of step " + std::to_string(one.head->step) + " is released by " + session.user,
                  {.job = request.job_name, .step = one.head->step});
    }
    if (reply.parts.empty()) reply.status = not_found(request, found);
    return reply;
}

/// Every node looks whether it has it when the job starts; this one does now.
shm::StateReply Conductor::choose_step(const Session& session, const shm::StateRequest& request) {
    const auto key = key_of(request);
    shm::StateReply reply;
    auto choice = read_resume_choice(config_.state_directory, key);
    if (request.step == 0) {
        if (request.is_of_all_groups) choice.clear();
        choice.erase(request.group);
    } else {
        auto found = find_pinned(config_.state_directory, key);
        for (auto& one : find_snapshots(config_.state_directory, key)) found.push_back(std::move(one));
        for (const auto& one : found) {
            if (!one.head.is_ok() || !is_meant(request, *one.head)) continue;
            choice[one.head->table.groups.front()] = request.step;
            reply.parts.push_back(part_of(*one.head, config_));
        }
        if (reply.parts.empty()) return {.status = not_found(request, found)};
        for (const auto& one : found) {  // a part of a model that begins anew would be of use to nobody
            if (!one.head.is_ok() || !request.is_of_all_groups) continue;
            const auto& group = one.head->table.groups.front();
            if (!choice.contains(group))
                return {.status = {StatusCode::kNotFound,
                                   job_text(key) + ": group '" + group + "' has no snapshot of step " +
                                       std::to_string(request.step) +
                                       " here, as other groups have: allowed is a step of each; choose "
                                       "one group after the other (--group)"}};
        }
    }
    reply.status = write_resume_choice(config_.state_directory, key, choice);
    if (reply.status.is_ok())
        log_.info("the next start goes on from step " + std::to_string(request.step) + ", says " + session.user,
                  {.job = request.job_name, .step = request.step});
    return reply;
}

Status Conductor::take_in(const Session& session, const shm::StateRequest& request, shm::LocalMessage& message) {
    if (message.descriptors.size() != 1)
        return {StatusCode::kInvalidArgument, "a snapshot to take in came with " +
                                                  std::to_string(message.descriptors.size()) +
                                                  " descriptors: allowed is one, of its sealed memfd"};
    if (snapshots_ == nullptr)
        return {StatusCode::kFailedPrecondition, "this daemon keeps no snapshots: give it a state directory"};
    auto task = std::make_shared<SnapshotTask>();
    task->kind = SnapshotTask::Kind::kTakeIn;
    task->folder = config_.state_directory;
    task->head.table.job_name = request.job_name;
    task->head.table.run_id = request.run_id;
    task->head.table.owner = session.who.uid;
    task->limits = {static_cast<std::size_t>(config_.pinned_snapshots), config_.pinned_limit_bytes,
                    config_.pinned_days};
    task->file = std::move(message.descriptors.front());
    task->session_id = session.id;
    task->number = request.number;
    snapshots_->give(std::move(task));
    return {};
}

void Conductor::on_taken_in(const SnapshotTask& task) {
    shm::StateReply reply{.number = task.number, .status = task.status};
    if (task.status.is_ok()) {
        const auto& head = task.head;
        reply.parts.push_back(part_of(head, config_));
        log_.info("a snapshot of step " + std::to_string(head.step) + " was taken in and pinned",
                  {.job = head.table.job_name, .step = head.step});
    }
    reply_to(task.session_id, reply);
}

}  // namespace gradsieve::daemon
