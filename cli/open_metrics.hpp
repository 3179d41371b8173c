// The status as OpenMetrics text, for Prometheus and whatever else reads it. Tensors are left out: a model has too many
// for a time series each. Pure; any thread.
#pragma once

#include "cli/status_view.hpp"

#include <string>

namespace gradsieve::cli {

/// Every family of docs/metrics.md with samples for what the daemon told, and `# EOF` at the end. Without a status
/// (a dead daemon, or one that never ran) the families of health alone have samples.
[[nodiscard]] std::string open_metrics_text(const StatusView& status, const HealthView& health);

}  // namespace gradsieve::cli
