// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <cerrno>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "../../version.hpp"

#if __has_include(<sys/mman.h>) && __has_include(<fcntl.h>) && __has_include(<unistd.h>)
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#define OMNI_DETAIL_SHARED_MEMORY 1
#else
#define OMNI_DETAIL_SHARED_MEMORY 0
#endif

namespace omni::detail {

/// Memory that processes of one host share. One makes it under a name that nobody else has, the others open it by that name, and
/// then the name is taken back: from then on nothing is left when the processes end, however they do.
///
/// Whatever the system refuses leaves it empty; there is another way for every message.
class shared_memory {
 public:
  using name_type = std::array<char, 64>;

  shared_memory() = default;
  shared_memory(shared_memory&& other) noexcept { swap(other); }
  shared_memory& operator=(shared_memory&& other) noexcept {
    swap(other);
    return *this;
  }
  shared_memory(const shared_memory&) = delete;
  shared_memory& operator=(const shared_memory&) = delete;

  [[nodiscard]] std::span<std::byte> bytes() const { return bytes_; }
  [[nodiscard]] bool empty() const { return bytes_.empty(); }
  /// Of memory made here.
  [[nodiscard]] const name_type& name() const { return name_; }

#if OMNI_DETAIL_SHARED_MEMORY
  ~shared_memory() {
    forget_name();
    close_file();
    if (!bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
  }
  /// `size` bytes of zeros. What is not committed must not be touched.
  static shared_memory make(std::size_t size) {
    shared_memory made;
    const auto name = new_name();
    if (name.empty()) return made;
    made.file_ = ::shm_open(name.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, S_IRUSR | S_IWUSR);
    if (made.file_ < 0) return made;
    name.copy(made.name_.data(), made.name_.size() - 1);
    if (::ftruncate(made.file_, static_cast<off_t>(size)) == 0) made.map(made.file_, size);
    return made;
  }
  /// What another process made with this size; of another version of the library it would mean something else.
  static shared_memory open(const name_type& name, std::size_t size) {
    shared_memory opened;
    if (name.back() != '\0' || !std::string_view(name.data()).starts_with(prefix())) return opened;
    const int file = ::shm_open(name.data(), O_RDWR | O_CLOEXEC, 0);
    if (file < 0) return opened;
    struct stat about = {};
    if (::fstat(file, &about) == 0 && about.st_size == static_cast<off_t>(size)) opened.map(file, size);
    ::close(file);
    return opened;
  }
  /// Takes memory for a part now: a host that runs out of it says so here, and not with a signal when the part is touched.
  [[nodiscard]] bool commit(std::size_t first, std::size_t size) const {
    if (empty() || file_ < 0) return false;
    int code = EINTR;
    while (code == EINTR) code = ::posix_fallocate(file_, static_cast<off_t>(first), static_cast<off_t>(size));
    return code == 0;
  }
  /// Once nothing more is to be committed.
  void close_file() {
    if (file_ >= 0) ::close(file_);
    file_ = -1;
  }
  /// Once all that want it have opened it.
  void forget_name() {
    if (name_[0] != '\0') ::shm_unlink(name_.data());
    name_ = {};
  }

 private:
  static std::string prefix() { return "/omni-" + std::to_string(OMNI_VERSION) + "-"; }
  static std::string new_name() {
    std::array<unsigned char, 16> random{};
    const int source = ::open("/dev/urandom", O_RDONLY | O_CLOEXEC);  // NOLINT(cppcoreguidelines-pro-type-vararg)
    if (source < 0) return {};
    const auto read = ::read(source, random.data(), random.size());
    ::close(source);
    if (read != static_cast<ssize_t>(random.size())) return {};
    auto name = prefix();
    for (const auto byte : random) {
      name += "0123456789abcdef"[byte & 15U];
      name += "0123456789abcdef"[byte >> 4U];
    }
    return name;
  }
  void map(int file, std::size_t size) {
    void* const at = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (at != MAP_FAILED) bytes_ = {static_cast<std::byte*>(at), size};
  }
#else
  ~shared_memory() = default;
  static shared_memory make(std::size_t /*size*/) { return {}; }
  static shared_memory open(const name_type& /*name*/, std::size_t /*size*/) { return {}; }
  [[nodiscard]] bool commit(std::size_t /*first*/, std::size_t /*size*/) const { return false; }
  void close_file() {}
  void forget_name() {}

 private:
#endif
  void swap(shared_memory& other) noexcept {
    std::swap(bytes_, other.bytes_);
    std::swap(name_, other.name_);
    std::swap(file_, other.file_);
  }

  std::span<std::byte> bytes_;
  name_type name_{};
  int file_ = -1;
};

}  // namespace omni::detail
