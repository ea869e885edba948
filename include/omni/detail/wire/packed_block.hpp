// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "../detect/elements.hpp"
#include "../memory/copy.hpp"

// Blocks that travel as their elements that are not null, described in docs/wire_format.md: 4 bytes that say in which form and how
// many, where the elements belong, the elements, without gaps. Whoever unpacks one has the same bytes as if all elements had come.

namespace omni::detail {

enum class block_form : std::uint32_t {
  plain = 0,   ///< all elements
  bitmap = 1,  ///< a bit for each element, then those that are not null
  list = 2,    ///< their indexes, then the same
};

/// What a packed block begins with: the elements that follow, and 2 bits for the form.
using packed_header = std::uint32_t;
inline constexpr std::size_t most_packed = std::size_t{1} << 30U;   ///< elements that it may count, of a block that is not plain
inline constexpr std::size_t most_indexed = std::size_t{1} << 16U;  ///< elements of a block with a list
/// Bytes of an index into a block of n elements.
inline std::size_t bytes_of_index(std::size_t n) { return n <= 256 ? 1 : 2; }

/// Bytes of the bitmap or the list of a block of n elements, so many of them not null.
inline std::size_t bytes_of_places(block_form form, std::size_t n, std::size_t found) {
  if (form == block_form::bitmap) return words_of(n) * sizeof(std::uint64_t);
  return form == block_form::list ? found * bytes_of_index(n) : 0;
}

/// When blocks are plain: where that is shortest; or where no element is null, so that a block says of each whether it is.
enum class plain_blocks { if_shortest, if_full };

/// The bytes of a block of n elements, so many of them not null, in its shortest form.
struct packed_shape {
  block_form form = block_form::plain;
  std::size_t bytes = 0;

  packed_shape(std::size_t n, std::size_t element, std::size_t found, plain_blocks plain = plain_blocks::if_shortest)
      : bytes(n * element) {
    const auto shorter = [&](block_form f) {
      const auto b = bytes_of_places(f, n, found) + found * element;
      if (b < bytes) form = f, bytes = b;
    };
    if (plain == plain_blocks::if_full && found < n) bytes = most_bytes(n, element, n);
    if (n < most_packed) shorter(block_form::bitmap);
    if (n <= most_indexed) shorter(block_form::list);
    bytes += sizeof(packed_header);
  }
  /// No block of n elements takes more, of which so many or fewer are not null.
  [[nodiscard]] static std::size_t most_bytes(std::size_t n, std::size_t element, std::size_t found) {
    return sizeof(packed_header) + bytes_of_places(block_form::bitmap, n, found) + found * element;
  }
};

/// What a packed block of n elements says of itself. It need be none.
struct packed_head {
  block_form form;
  std::size_t count;     ///< as it is written
  std::size_t elements;  ///< that follow
  std::size_t before;    ///< bytes, and then the elements

  packed_head(std::span<const std::byte> from, std::size_t n) {
    packed_header h = 0;
    std::memcpy(&h, from.data(), std::min(sizeof(h), from.size()));
    form = block_form{h >> 30U};
    count = h & (most_packed - 1);
    elements = form == block_form::plain ? n : count;
    before = sizeof(h) + bytes_of_places(form, n, elements);
  }
  /// Whether all of it is there, and a block of n elements has that form. Where the elements belong is not looked at.
  [[nodiscard]] bool is_within(std::size_t bytes, std::size_t n, std::size_t element) const {
    const bool fits =
        form == block_form::plain ? count == 0 : count <= n && (form == block_form::bitmap || form == block_form::list);
    return fits && (form != block_form::list || n <= most_indexed) && bytes >= before + elements * element;
  }
};

/// Packs one block after the other.
class block_packer {
 public:
  /// Bytes that a block takes at most.
  [[nodiscard]] static std::size_t most_bytes(std::size_t block_bytes) { return sizeof(packed_header) + block_bytes; }

  /// For the blocks of a call.
  void open(plain_blocks plain) { plain_ = plain; }
  /// Looks at a block of n elements; how many bytes it takes.
  std::size_t measure(const std::byte* block, std::size_t n, const null_element& null) {
    bits_.resize(std::max(bits_.size(), words_of(n)));
    find_elements(block, n, null, bits_);
    return take(block, n, null.bytes(), std::span(bits_).first(words_of(n)));
  }
  /// Or takes what has been seen of it: a bit for each element that is not null. It stays until the block is written.
  std::size_t take(const std::byte* block, std::size_t n, std::size_t element, std::span<const std::uint64_t> bits) {
    block_ = block;
    made_ = {};
    gathered_ = nullptr;
    return see(n, element, count_bits(bits), bits);
  }
  /// Or takes the elements of a block of n that are not null, one after the other, and their bits; both stay until it is written.
  /// Precondition: blocks are plain only if no element is null.
  std::size_t take_gathered(const std::byte* elements, std::size_t n, std::size_t element, std::size_t found,
                            std::span<const std::uint64_t> bits) {
    block_ = gathered_ = elements;
    made_ = {};
    return see(n, element, found, bits);
  }
  /// Or takes one that is packed: what `from` begins with, which stays until it is written.
  void take(std::span<const std::byte> from, std::size_t n, std::size_t element) {
    const packed_head head(from, n);
    made_ = from;
    n_ = n;
    found_ = head.elements;
    shape_.form = head.form;
    shape_.bytes = std::min(head.before + found_ * element, from.size());
  }
  /// How many bytes it takes.
  [[nodiscard]] std::size_t bytes() const { return shape_.bytes; }
  /// Of memory that is kept for the next block.
  [[nodiscard]] std::size_t kept_bytes() const { return bits_.capacity() * sizeof(std::uint64_t) + scratch_.capacity(); }
  /// How many elements travel.
  [[nodiscard]] std::size_t elements() const { return shape_.form == block_form::plain ? n_ : found_; }
  /// Writes it.
  void write(std::byte* to, stores how) {
    if (!made_.empty()) return copy_out(to, made_.data(), shape_.bytes, how);
    if (how == stores::vectors) return write(to);
    scratch_.resize(std::max(scratch_.size(), shape_.bytes));  // memory that others read is written in one piece
    write(scratch_.data());
    copy_out(to, scratch_.data(), shape_.bytes, how);
  }

 private:
  std::size_t see(std::size_t n, std::size_t element, std::size_t found, std::span<const std::uint64_t> bits) {
    seen_ = bits;
    n_ = n;
    element_ = element;
    found_ = found;
    shape_ = packed_shape(n, element, found_, plain_);
    return shape_.bytes;
  }
  void write(std::byte* to) const {
    const auto count = shape_.form == block_form::plain ? 0 : static_cast<std::uint32_t>(found_);  // of plain ones it is known
    const packed_header h = count | static_cast<std::uint32_t>(shape_.form) << 30U;
    std::memcpy(to, &h, sizeof(h));
    to += sizeof(h);
    switch (shape_.form) {
      case block_form::plain:
        copy_bytes(to, block_, n_ * element_);
        return;
      case block_form::bitmap:
        std::memcpy(to, seen_.data(), seen_.size_bytes());
        to += seen_.size_bytes();
        break;
      case block_form::list: {
        const auto list = [&](auto index) {
          for_each_bit(seen_, [&](std::size_t i) {
            index = static_cast<decltype(index)>(i);
            std::memcpy(to, &index, sizeof(index));
            to += sizeof(index);
          });
        };
        if (bytes_of_index(n_) == 1) list(std::uint8_t{});
        else list(std::uint16_t{});
        break;
      }
    }
    if (gathered_ != nullptr) copy_bytes(to, gathered_, found_ * element_);
    else gather_elements(block_, element_, seen_, to);
  }

  const std::byte *block_ = nullptr, *gathered_ = nullptr;
  std::span<const std::byte> made_{};
  std::span<const std::uint64_t> seen_{};
  std::size_t n_ = 0, element_ = 1, found_ = 0;
  plain_blocks plain_ = plain_blocks::if_shortest;
  packed_shape shape_{0, 1, 0};
  std::vector<std::uint64_t> bits_;
  std::vector<std::byte> scratch_;
};

inline std::size_t index_in_list(const std::byte* list, std::size_t i, bool wide) {
  if (!wide) return static_cast<std::size_t>(list[i]);
  std::uint16_t index = 0;
  std::memcpy(&index, list + 2 * i, sizeof(index));
  return index;
}

/// The elements of a packed block that are not null.
struct packed_elements {
  const std::byte* elements = nullptr;
  std::size_t found = 0, bytes = 0;  ///< bytes of the block, 0 if it is none
};
/// Reads a block of n elements, and sets the bits of those that are not null: of a plain one, of all. Nothing that it says is
/// believed before it is checked.
inline packed_elements read_packed(std::span<const std::byte> from, std::size_t n, std::size_t element,
                                   std::span<std::uint64_t> bits) {
  const packed_head head(from, n);
  if (!head.is_within(from.size(), n, element)) return {};
  const auto found = head.elements;
  const packed_elements read{from.data() + head.before, found, head.before + found * element};
  const auto* const at = from.data() + sizeof(packed_header);
  if (head.form == block_form::plain) {
    for (std::size_t i = 0; i < n; i += 64) bits[i / 64] = ones(std::min<std::size_t>(n - i, 64));
    return read;
  }
  if (head.form == block_form::bitmap) {
    std::memcpy(bits.data(), at, bits.size_bytes());
    const bool past = n % 64 != 0 && (bits.back() & ~ones(n % 64)) != 0;
    return past || count_bits(bits) != found ? packed_elements{} : read;
  }
  std::fill(bits.begin(), bits.end(), 0);
  std::size_t least = 0;
  const bool wide = bytes_of_index(n) == 2;
  for (std::size_t i = 0; i < found; ++i) {
    const auto index = index_in_list(at, i, wide);
    if (index < least || index >= n) return {};
    least = index + 1;
    bits[index / 64] |= std::uint64_t{1} << (index % 64);
  }
  return read;
}

/// Writes the n elements of the block that `from` begins with; `is_null`: those there are null already. How many bytes it has; 0 if
/// it is none. Nothing that it says is believed before it is checked.
inline std::size_t unpack_block(std::span<const std::byte> from, std::size_t n, const null_element& null, std::byte* to,
                                bool is_null = false) {
  const packed_head head(from, n);
  const auto element = null.bytes();
  if (!head.is_within(from.size(), n, element)) return 0;
  const auto found = head.elements;
  const auto* const places = from.data() + sizeof(packed_header);
  const auto* elements = from.data() + head.before;
  if (head.form != block_form::plain && !is_null) fill(to, n * element, null);
  switch (head.form) {
    case block_form::plain:
      copy_bytes(to, elements, n * element);
      break;
    case block_form::bitmap: {
      const auto* bits = places;
      std::size_t left = found;
      std::array<std::uint64_t, 64> some;  // NOLINT(cppcoreguidelines-pro-type-member-init): copied, for words are aligned
      for (std::size_t first = 0; first < n; first += 64 * some.size()) {
        const auto words = std::span(some).first(std::min(some.size(), words_of(n - first)));
        std::memcpy(words.data(), bits, words.size_bytes());
        bits += words.size_bytes();
        const auto here = count_bits(words);
        if (here > left || (words.back() & ~ones(n - first - 64 * (words.size() - 1))) != 0) return 0;
        scatter_elements(elements, element, words, to + first * element);
        elements += here * element;
        left -= here;
      }
      if (left != 0) return 0;
      break;
    }
    case block_form::list: {
      std::size_t least = 0;
      bool ascend = true;
      const bool wide = bytes_of_index(n) == 2;
      with_element_size(element, [&](auto bytes) {
        for (std::size_t i = 0; i < found && ascend; ++i, elements += bytes) {
          const auto at = index_in_list(places, i, wide);
          ascend = at >= least && at < n;
          if (!ascend) return;
          least = at + 1;
          std::memcpy(to + at * bytes, elements, bytes);
        }
      });
      if (!ascend) return 0;
      break;
    }
  }
  return head.before + found * element;
}

}  // namespace omni::detail
