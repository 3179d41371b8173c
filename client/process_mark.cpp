#include "client/process_mark.hpp"

#include <sys/mman.h>
#include <unistd.h>

namespace gradsieve::client {
namespace {

constexpr std::size_t kPageBytes = 4096;  // the kernel rounds up to its own page

}  // namespace

ProcessMark::ProcessMark() : owner_(::getpid()) {
    void* page = ::mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return;
    if (::madvise(page, kPageBytes, MADV_WIPEONFORK) != 0) {
        ::munmap(page, kPageBytes);
        return;
    }
    page_ = static_cast<volatile unsigned char*>(page);
    *page_ = 1;
}

ProcessMark::~ProcessMark() {
    if (page_ != nullptr) ::munmap(const_cast<unsigned char*>(page_), kPageBytes);
}

bool ProcessMark::is_same_process() const noexcept { return page_ != nullptr ? *page_ == 1 : ::getpid() == owner_; }

Status ProcessMark::check() const {
    if (is_same_process()) return {};
    return {StatusCode::kFailedPrecondition,
            "this handle belongs to process " + std::to_string(owner_) + ", and this is its forked child " +
                std::to_string(::getpid()) +
                ": allowed is the process that made the job; open a job in the forked process itself"};
}

}  // namespace gradsieve::client
