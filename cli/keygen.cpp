// gradsieve keygen: makes the key pair of a node. The secret goes into its file and nowhere else; the public half is
// all that standard output says, so that scripts can take it.
#include "cli/commands.hpp"

#include "daemon/config_host.hpp"
#include "daemon/config_key_file.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <ostream>

namespace gradsieve::cli {

namespace {

namespace fs = std::filesystem;

/// Where the daemon of this user looks, or what was asked for; a folder stands for the usual name in it.
Result<std::string> key_path(const KeygenOptions& options) {
    std::error_code error;
    if (!options.out.empty()) {
        const auto path = fs::absolute(options.out, error).lexically_normal();
        if (error)
            return Status(StatusCode::kInvalidArgument, "--out " + options.out + ": " + error.message() +
                                                            ": a folder or a file is needed; give an absolute path");
        return (fs::is_directory(path, error) ? path / daemon::kKeyFileName : path).string();
    }
    const auto host = daemon::read_host_facts();
    GRADSIEVE_ASSIGN(const auto folder, daemon::default_state_directory(host));
    if (!options.is_shown) fs::create_directories(folder.path, error);  // if it fails, writing the file says so
    return daemon::default_key_file(host, folder.path).path;
}

/// A daemon that runs as the folder's owner could not read what root keeps for itself.
void warn_of_owner(const std::string& path, Console& console) {
    struct stat folder {};
    if (::stat(fs::path(path).parent_path().c_str(), &folder) != 0 || folder.st_uid == ::geteuid()) return;
    console.error
        << "gradsieve: its folder is another user's: if the daemon runs as that user, give it the file: chown "
           "--reference="
        << fs::path(path).parent_path().string() << ' ' << path << '\n';
}

Result<std::string> show(const std::string& path) {
    GRADSIEVE_ASSIGN(const auto secret, daemon::read_key_file(path));
    return transport::public_key_of(secret);
}

Result<std::string> make(const std::string& path, bool may_replace) {
    GRADSIEVE_ASSIGN(const auto pair, transport::make_key_pair());
    GRADSIEVE_TRY(daemon::write_key_file(path, pair.secret_key, may_replace));
    return pair.public_key;
}

}  // namespace

ExitCode run_keygen(const KeygenOptions& options, Console& console) {
    const auto path = key_path(options);
    const auto key = !path.is_ok()      ? Result<std::string>(path.error())
                     : options.is_shown ? show(*path)
                                        : make(*path, options.may_replace);
    if (!key.is_ok()) {
        console.error << "gradsieve: " << key.error().text() << '\n';
        return ExitCode::kFailed;
    }
    console.out << *key << '\n';
    if (options.is_shown) return ExitCode::kOk;
    console.error << "gradsieve: the secret key is in " << *path
                  << ", for its owner alone; enter the public one above as public_key of this node's [[node]] on all "
                     "nodes\n";
    warn_of_owner(*path, console);
    return ExitCode::kOk;
}

}  // namespace gradsieve::cli
