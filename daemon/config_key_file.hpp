// The file that holds this node's secret key: one line, the key's text. Written only by `gradsieve keygen`, read by the
// daemon and the doctor. What it says is never put into a text or a log. Any thread; blocks on the disk only.
#pragma once

#include "base/status.hpp"
#include "daemon/config.hpp"
#include "transport/curve_key.hpp"

#include <string>

namespace gradsieve::daemon {

/// Errors: kNotFound, kPermissionDenied (this user may not read it, or others than this user and root could),
/// kInvalidArgument (not a file, or not one key), each with what to do.
[[nodiscard]] Result<transport::SecretKey> read_key_file(const std::string& path);

/// Writes it with mode 0600, owned by the caller, complete or not at all. Errors: kAlreadyExists (something is there,
/// and not `may_replace`), kNotFound (no such folder), kPermissionDenied, kUnavailable (the disk).
[[nodiscard]] Status write_key_file(const std::string& path, const transport::SecretKey& secret, bool may_replace);

/// Whether traffic to other nodes is to be encrypted: CURVE, and there are other nodes.
[[nodiscard]] bool is_encrypted(const Config& config) noexcept;
/// Reads the key file of an encrypted configuration and holds it against this node's public_key. Errors: as above, and
/// kMismatch (the file's key is another one; whose, if it is in the node list).
[[nodiscard]] Result<transport::SecretKey> load_node_key(const Config& config);

}  // namespace gradsieve::daemon
