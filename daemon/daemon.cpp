#include "daemon/daemon.hpp"

#include "daemon/config_key_file.hpp"
#include "transport/zmq_transport.hpp"

#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>
#include <algorithm>

namespace gradsieve::daemon {

namespace {

constexpr Duration kSleepAtMost = std::chrono::milliseconds(100);
constexpr Duration kStopWithin = std::chrono::milliseconds(2500);

std::uint32_t codec_threads(const Config& config) {
    if (config.threads > 0) return config.threads;
    return std::max(1U, std::thread::hardware_concurrency() / 4);
}

/// "0-3,8" -> set. The configuration has checked the form.
Status pin_to_cpus(const std::string& list) {
    if (list.empty()) return {};
    cpu_set_t set;
    CPU_ZERO(&set);
    for (std::size_t position = 0; position < list.size();) {
        const auto end = std::min(list.find(',', position), list.size());
        const auto item = list.substr(position, end - position);
        const auto dash = item.find('-');
        const int first = std::stoi(item.substr(0, dash));
        const int last = dash == std::string::npos ? first : std::stoi(item.substr(dash + 1));
        for (int cpu = first; cpu <= last && cpu < CPU_SETSIZE; ++cpu) CPU_SET(static_cast<std::size_t>(cpu), &set);
        position = end + 1;
    }
    if (::sched_setaffinity(0, sizeof(set), &set) != 0)
        return {StatusCode::kInvalidArgument,
                "daemon.cpus = \"" + list +
                    "\": this host refuses it: allowed are CPUs that exist and that the service may use"};
    return {};
}

}  // namespace

Result<Daemon::OptionalKey> Daemon::load_secret_key(const Config& config) {
    if (!is_encrypted(config)) return OptionalKey();
    GRADSIEVE_ASSIGN(auto key, load_node_key(config));
    return OptionalKey(std::move(key));
}

Result<std::unique_ptr<NetworkThread>> Daemon::make_network(const Config& config, const OptionalKey& secret_key) {
    if (config.nodes.size() <= 1) return std::unique_ptr<NetworkThread>();
    transport::ZmqOptions options;
    for (const auto& node : config.nodes)
        options.nodes.push_back({node.name, node.address, node.port, node.public_key});
    options.secret_key = secret_key;
    options.self = config.self;
    options.bind_interface = config.interface;
    options.lanes = config.lanes;
    options.heartbeat_every = config.heartbeat;
    options.silent_after = config.silent_after;
    GRADSIEVE_ASSIGN(auto transport, transport::make_zmq_transport(options, clock_));
    if (!secret_key) log_.warning(kPlainTextWarning, {});
    return std::make_unique<NetworkThread>(std::move(transport), *wake_, log_);
}

Result<std::unique_ptr<Daemon>> Daemon::start(const Config& config, HandedDescriptors handed, Log& log) {
    std::unique_ptr<Daemon> daemon(new Daemon(config, log));
    GRADSIEVE_TRY(pin_to_cpus(config.cpus));
    if (handed.listener) {
        GRADSIEVE_ASSIGN(daemon->listener_, shm::LocalListener::adopt(std::move(*handed.listener)));
    } else {
        GRADSIEVE_ASSIGN(daemon->listener_,
                         shm::LocalListener::make({config.socket_path, config.socket_mode, config.socket_group}));
    }
    GRADSIEVE_ASSIGN(daemon->doorbell_, shm::Doorbell::make());
    daemon->wake_.emplace(daemon->doorbell_->fd());
    GRADSIEVE_ASSIGN(const auto secret_key, load_secret_key(config));
    GRADSIEVE_ASSIGN(auto network, daemon->make_network(config, secret_key));
    GRADSIEVE_ASSIGN(daemon->status_page_,
                     shm::StatusPageWriter::make(shm::status_page_path(config.socket_path), config.socket_group));
    daemon->pool_ = std::make_unique<CodecPool>(codec_threads(config), *daemon->wake_);
    daemon->gpus_ =
        std::make_unique<GpuPool>(*daemon->wake_, GpuPace{config.gpu_multiprocessors, config.gpu_batch_elements});
    daemon->snapshots_ = std::make_unique<Snapshotter>(*daemon->wake_);
    remove_snapshot_leftovers(config.state_directory);
    for (const auto& gone : remove_aged_pinned(config.state_directory, config.pinned_days))
        log.info("pinned snapshot " + gone.path + " is older than state.pinned_days: it is removed", {});
    daemon->conductor_ = std::make_unique<Conductor>(
        config, *daemon->listener_, *daemon->doorbell_, *daemon->wake_, *daemon->pool_, *daemon->gpus_,
        std::move(network), *daemon->status_page_, log, std::move(handed.kept), daemon->snapshots_.get());
    daemon->summary_ =
        "node " + (config.nodes.empty() ? std::string("alone") : config.nodes[config.self].name) + ", clients at " +
        config.socket_path +
        (daemon->conductor_->network() ? ", peers at " + daemon->conductor_->network()->bound_address() : ", no peers");
    daemon->conductor_->run_once(daemon->clock_.now());  // the status page is complete before anybody is told
    daemon->thread_ = std::thread([raw = daemon.get()] { raw->run_conductor(); });
    return daemon;
}

Daemon::~Daemon() { stop(); }

void Daemon::stop() {
    if (!thread_.joinable()) return;
    is_stopping_.store(true, std::memory_order_release);
    wake_->ring();
    thread_.join();
    pool_.reset();  // first: its tasks read the sessions' slabs
    gpus_->stop();
    snapshots_.reset();
    conductor_->save_states();
    conductor_.reset();  // closes the network after a last drain
    status_page_->set_stopped();
}

void Daemon::reload(const Config& fresh) {
    for (const auto& key : changed_keys_needing_restart(config_, fresh))
        log_.warning(key + " has changed: it is applied at the next restart (`systemctl restart gradsieved`)", {});
    take_reloadable_keys(config_, fresh);
    {
        const std::lock_guard lock(fresh_mutex_);
        fresh_config_ = config_;
    }
    has_fresh_config_.store(true, std::memory_order_release);  // pairs with the acquire in take_reload
    wake_->ring();
}

void Daemon::take_reload() {
    if (has_fresh_config_.exchange(false, std::memory_order_acquire)) {  // pairs with the release in reload
        const std::lock_guard lock(fresh_mutex_);
        conductor_->apply_limits(*fresh_config_);
        if (const auto level = parse_log_level(fresh_config_->log_level); level.is_ok()) log_.set_level(*level);
        pending_nodes_ = std::move(fresh_config_);
        log_.info("configuration applied", {});
    }
    if (!pending_nodes_ || conductor_->has_jobs()) return;  // the node list changes between jobs
    const auto is_same = [](const NodeConfig& a, const NodeConfig& b) {
        return a.name == b.name && a.address == b.address && a.port == b.port && a.public_key == b.public_key;
    };
    const auto& nodes = conductor_->config().nodes;
    if (!std::equal(nodes.begin(), nodes.end(), pending_nodes_->nodes.begin(), pending_nodes_->nodes.end(), is_same))
        change_nodes(*pending_nodes_);
    pending_nodes_.reset();
}

void Daemon::change_nodes(const Config& fresh) {
    // The key first, which may be a new one too: without it the old list and its connections go on.
    const auto secret_key = load_secret_key(fresh);
    if (!secret_key.is_ok())
        return log_.error("new node list not applied: " + secret_key.error().text() + "; then reload again", {});
    conductor_->set_nodes(fresh, nullptr);  // closes the old port, which may be the new one too
    auto network = make_network(fresh, *secret_key);
    if (network.is_ok()) return conductor_->set_nodes(fresh, std::move(*network));
    log_.error("new node list: " + network.error().text() +
                   ": this node has no peers until the configuration is mended and reloaded",
               {});
}

void Daemon::run_conductor() {
    pthread_setname_np(pthread_self(), "conductor");
    // Its shortest sleeps are tens of microseconds, as long as the kernel's usual leeway.
    ::prctl(PR_SET_TIMERSLACK, 1000UL, 0, 0, 0);
    while (!is_stopping_.load(std::memory_order_acquire)) {
        take_reload();
        const bool is_busy = conductor_->run_once(clock_.now());
        if (!conductor_->gpu_failure().empty()) needs_restart_.store(true, std::memory_order_release);
        if (!is_busy) conductor_->wait(kSleepAtMost);
    }
    const auto give_up = clock_.now() + kStopWithin;
    conductor_->begin_stop(clock_.now());
    while (!conductor_->is_drained() && clock_.now() < give_up) {
        if (!conductor_->run_once(clock_.now())) conductor_->wait(std::chrono::milliseconds(10));
    }
    conductor_->run_once(clock_.now());
}

}  // namespace gradsieve::daemon
