// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "../../error.hpp"
#include "../../reduction.hpp"
#include "../deal/stripes.hpp"
#include "../memory/aligned_bytes.hpp"
#include "../streams/in_stream.hpp"
#include "../streams/out_stream.hpp"
#include "../streams/unpacked_row.hpp"
#include "../wire/packed_block.hpp"

namespace omni::detail {

/// A tensor cut into blocks of equal size, as far as a server has to know it.
struct server_tensor {
  std::uint64_t count = 0;
  std::size_t element_size = 1, block = 0;  ///< bytes; elements
  std::size_t blocks = 0;

  [[nodiscard]] std::size_t elements(std::size_t b) const {
    return static_cast<std::size_t>(std::min<std::uint64_t>(block, count - std::uint64_t{b} * block));
  }
};

/// How a server folds rows, and memory for it that is kept from call to call.
struct row_folding {
  const reductions::fold_function* fold = nullptr;
  std::size_t result_size = 1;  ///< of an element that has been folded
  null_element null{};          ///< of an operation that has one
  bool packs = false;           ///< results are packed
  std::vector<const void*> sources;
  unpacked_row unpacked;
  aligned_bytes folded;
  block_packer packer;
};

/// Folds the blocks of a server's share in rank order, as soon as the streams of all workers cover them.
class block_folder {
 public:
  block_folder() = default;
  block_folder(const server_tensor& tensor, std::size_t servers, std::size_t index)
      : tensor_(tensor), index_(index), map_(tensor.blocks, servers, stripe_blocks(tensor.element_size, tensor.block)) {}

  /// The most rows of a contribution, and of the results.
  [[nodiscard]] std::uint64_t rows() const { return map_.rows(); }
  [[nodiscard]] bool done() const { return folded_ == rows(); }
  /// How far the results go.
  [[nodiscard]] std::uint64_t covers() const { return folded_; }

  bool fold(std::span<in_stream> arriving, out_stream& results, any_mailbox& messages, row_folding& by) {
    auto end = rows();
    for (const auto& i : arriving) end = std::min(end, i.covers());
    if (folded_ == end) return false;
    bool moved = false;
    for (;;) {
      const auto row = lowest_row(arriving, in_stream::no_row);
      if (row >= end) break;
      const bool packed = by.packs || has_packed(arriving, row);
      const auto n = packed ? 1 : rows_alike(arriving, row, static_cast<std::size_t>(end - row));
      if (!map_.exists(map_.block(row + n - 1, index_))) {
        for (const auto& i : arriving)
          if (i.next_row() == row) throw protocol(i.peer(), "a row past the end");
      }
      const auto done =
          packed ? fold_packed_row(arriving, results, messages, by, row) : fold_rows(arriving, results, messages, by, row, n);
      if (done != 0) moved = true;
      if (done != n) return moved;
    }
    folded_ = end;
    for (auto& i : arriving) i.post(messages);
    return true;
  }

 private:
  // Folds n rows for which the same workers have blocks. How many: fewer if there is no packet for the results.
  std::size_t fold_rows(std::span<in_stream> arriving, out_stream& results, any_mailbox& messages, row_folding& by,
                        std::uint64_t row, std::size_t n) {
    std::size_t bytes = 0, done = 0;  // of what is folded
    while (done != n) {
      auto more = map_.together(row + done, n - done);
      const auto block = map_.block(row + done, index_);
      const auto size = tensor_.elements(block);
      if (tensor_.elements(block + more - 1) != size) more = std::max<std::size_t>(more - 1, 1);  // the last block is shorter
      auto* const to = results.add(messages, row + done, size * by.result_size, more);
      if (to == nullptr) break;
      by.sources.clear();
      const auto end = bytes + size * tensor_.element_size * more;
      for (const auto& i : arriving)
        if (i.next_row() == row) by.sources.push_back(i.elements(end) + bytes);
      (*by.fold)(by.sources, by.sources.size() < arriving.size(), to, size * more);
      bytes = end;
      done += more;
    }
    if (done == 0) return 0;
    for (auto& i : arriving)
      if (i.next_row() == row) {
        i.pop(bytes, done);
        i.post(messages);
      }
    folded_ = row + done;
    return done;
  }

  // Folds one row, whose blocks may be packed. 0 if there is no packet for the result.
  std::size_t fold_packed_row(std::span<in_stream> arriving, out_stream& results, any_mailbox& messages, row_folding& by,
                              std::uint64_t row) {
    const auto size = tensor_.elements(map_.block(row, index_)), bytes = size * tensor_.element_size;
    if (!has_room(results, messages, row, bytes, by.packs)) return 0;
    by.unpacked.open(arriving.size(), size, tensor_.element_size);
    by.sources.clear();
    for (std::size_t i = 0; i < arriving.size(); ++i)
      if (arriving[i].next_row() == row) by.sources.push_back(by.unpacked.elements(i, arriving[i], by.null));
    if (by.folded.size() < bytes) by.folded = aligned_bytes(bytes);
    const auto out = by.folded.span().first(bytes);
    (*by.fold)(by.sources, by.sources.size() < arriving.size(), out.data(), size);
    add_block(results, messages, row, out, size, by.null, by.packs ? &by.packer : nullptr, stores::vectors);
    by.unpacked.pop(arriving, row, messages);
    folded_ = row + 1;
    return 1;
  }

  server_tensor tensor_;
  std::size_t index_ = 0;
  stripes map_;
  std::uint64_t folded_ = 0;  // rows below have been folded
};

}  // namespace omni::detail
