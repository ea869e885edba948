// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "../../block.hpp"
#include "../../error.hpp"
#include "../../report.hpp"
#include "../call/call.hpp"
#include "../call/trace.hpp"
#include "../wire/signature.hpp"
#include "argument_checks.hpp"
#include "arguments.hpp"

// Many tensors in one operation: a model's layers, say. Each is cut into blocks for itself, and the blocks of all are numbered
// through: to the engine of the owner streams a group is one tensor, the blocks of which happen to lie in several places.

namespace omni::detail {

/// A range of tensors: std::vector<std::span<T>>, std::vector<std::vector<T>>, std::array<std::span<T>, 3>. What has a length that
/// is part of its type, as std::array has, is an element.
template <class A>
concept grouped = spannable<A> && requires(A& a) {
  std::span(*std::span(a).data());
  requires decltype(std::span(*std::span(a).data()))::extent == std::dynamic_extent;
  requires !requires { typename std::remove_cvref_t<decltype(*std::span(a).data())>::traits_type; };  // a string is no tensor
};
template <class A>
using group_element = span_element<span_element<A>>;

template <class T, class A>
std::vector<std::span<T>> spans_of(A& tensors) {
  std::vector<std::span<T>> all;
  all.reserve(span_over(tensors).size());
  for (auto& tensor : span_over(tensors)) all.emplace_back(span_over(tensor));
  return all;
}

/// Partitioner: cuts each tensor of a group by P. Positions of elements count through all tensors.
template <class P>
class group_blocks {
 public:
  template <class T>
  group_blocks(const P& each, std::span<const std::span<T>> tensors) : each_(each) {
    auto l = std::make_shared<layout>();
    std::size_t position = 0, blocks = 0;
    for (const auto& t : tensors) {
      l->tensors.push_back({blocks, position, t.size()});
      blocks += each.count(t.size());
      position += t.size();
      largest_ = std::max(largest_, each.largest(t.size()));
      l->shape = mixed(l->shape, t.size());
    }
    if (tensors.size() > std::numeric_limits<std::uint32_t>::max()) throw usage("omni: a group of more than 2^32 tensors");
    l->tensor_of.reserve(blocks);
    for (std::size_t i = 0; i < tensors.size(); ++i)
      l->tensor_of.resize(i + 1 < tensors.size() ? l->tensors[i + 1].first_block : blocks, static_cast<std::uint32_t>(i));
    layout_ = std::move(l);
  }

  [[nodiscard]] std::size_t count(std::size_t /*all*/) const { return layout_->tensor_of.size(); }
  [[nodiscard]] block_range block(std::size_t i, std::size_t /*all*/) const {
    const auto& t = layout_->tensors[tensor(i)];
    const auto b = each_.block(i - t.first_block, t.size);
    return {t.position + b.first, b.size};
  }
  [[nodiscard]] std::size_t largest(std::size_t /*all*/) const { return largest_; }
  [[nodiscard]] std::size_t uniform() const requires requires(const P& p) { p.uniform(); }
  { return each_.uniform(); }
  [[nodiscard]] std::uint64_t fingerprint() const {
    auto h = mixed(layout_->tensors.size(), layout_->shape);
    if constexpr (requires { each_.fingerprint(); }) h = mixed(h, each_.fingerprint());
    return h;
  }

  [[nodiscard]] const P& each() const { return each_; }
  /// The tensor that block i is of, and where it begins.
  [[nodiscard]] std::size_t tensor(std::size_t i) const { return layout_->tensor_of[i]; }
  [[nodiscard]] std::size_t position(std::size_t tensor) const { return layout_->tensors[tensor].position; }
  /// Elements of all tensors.
  [[nodiscard]] std::size_t elements() const {
    return layout_->tensors.empty() ? 0 : layout_->tensors.back().position + layout_->tensors.back().size;
  }
  /// Of n blocks from block i on, those of the same tensor.
  [[nodiscard]] std::size_t together(std::size_t i, std::size_t n) const {
    const auto next = tensor(i) + 1;
    const auto end = next < layout_->tensors.size() ? layout_->tensors[next].first_block : layout_->tensor_of.size();
    return std::min(n, end - i);
  }

 private:
  struct extent {
    std::size_t first_block, position, size;
  };
  struct layout {
    std::vector<extent> tensors;
    std::vector<std::uint32_t> tensor_of;  // for each block: found without a search
    std::uint64_t shape = 0;
  };
  P each_;
  std::size_t largest_ = 0;
  std::shared_ptr<const layout> layout_;
};

/// An allreduce of a group, as an engine sees it. The spans of the call that it derives from are empty.
template <class T, class Op, class Partitioner, class Detector>
struct group_call : call<T, Op, group_blocks<Partitioner>, Detector> {
  using base = call<T, Op, group_blocks<Partitioner>, Detector>;
  static constexpr bool is_group = true;

  struct tensors {
    std::vector<std::span<const T>> in;
    std::vector<std::span<T>> out;
  };
  std::shared_ptr<const tensors> data;  ///< outlives the caller's list, as a request may

  [[nodiscard]] std::size_t size() const { return this->partition.elements(); }
  [[nodiscard]] std::size_t bytes() const { return size() * sizeof(T); }
  [[nodiscard]] const T* input(std::size_t block) const { return find(data->in, block); }
  [[nodiscard]] T* output(std::size_t block, std::size_t /*n*/ = 1) const { return find(data->out, block); }
  [[nodiscard]] std::size_t together(std::size_t block, std::size_t n) const { return this->partition.together(block, n); }
  [[nodiscard]] bool in_place() const {
    for (std::size_t i = 0; i < data->in.size(); ++i)
      if (data->in[i].data() != data->out[i].data()) return false;
    return true;
  }
  void copy_through() const {
    for (std::size_t i = 0; i < data->in.size(); ++i)
      if (data->in[i].data() != data->out[i].data()) std::copy(data->in[i].begin(), data->in[i].end(), data->out[i].begin());
  }
  void let_go() { data = std::make_shared<tensors>(); }

  [[nodiscard]] signature sign() const { return sign("", this->packet_bytes, this->window); }
  [[nodiscard]] signature sign(std::string_view mode, std::size_t largest_packet, int in_flight) const {
    auto s = base::sign(mode, largest_packet, in_flight);
    s.count = size();
    return s;
  }

  /// The call of one of its tensors; of one without elements, if it has none.
  [[nodiscard]] auto one(std::size_t i) const {
    call<T, Op, Partitioner, Detector> made{{}, {}, this->op, this->partition.each(), this->detector};
    if (i < data->in.size()) {
      made.in = data->in[i];
      made.out = data->out[i];
    }
    made.limit = this->limit;
    return made;
  }

 private:
  template <class Spans>
  [[nodiscard]] auto find(const Spans& spans, std::size_t block) const {
    const auto i = this->partition.tensor(block);
    return spans[i].data() + (this->partition.block(block, 0).first - this->partition.position(i));
  }
};

/// What several calls did together.
inline void add_to(report& sum, const report& one) {
  add_cost(sum, one);
  sum.topology = one.topology;
  sum.blocks_total += one.blocks_total;
  sum.blocks_sent += one.blocks_sent;
  sum.union_blocks += one.union_blocks;
  sum.dense_bytes += one.dense_bytes;
  sum.seconds += one.seconds;
  if (sum.blocks_total == 0) return;
  sum.density = static_cast<double>(sum.blocks_sent) / static_cast<double>(sum.blocks_total);
  sum.union_density = static_cast<double>(sum.union_blocks) / static_cast<double>(sum.blocks_total);
}

/// Makes the call of a group out of its tensors and the other arguments, and gives it to f.
template <class T, class... A, class F>
auto with_group(std::vector<std::span<const T>> in, std::vector<std::span<T>> out, const F& f, const A&... more) {
  if (in.size() != out.size())
    throw usage("omni: the input has " + std::to_string(in.size()) + " tensors, the output " + std::to_string(out.size()));
  for (std::size_t i = 0; i < in.size(); ++i) expect_usable<T>(in[i], out[i]);
  expect_disjoint(in, out);
  const auto c = choose<T>(more...);
  expect_blocks(c.partition);
  using group_type = group_call<T, decltype(c.op), decltype(c.partition), decltype(c.detector)>;
  const std::span<const std::span<T>> tensors(out);
  group_type made{{{}, {}, c.op, group_blocks<decltype(c.partition)>(c.partition, tensors), c.detector}, nullptr};
  made.data = std::make_shared<typename group_type::tensors>(typename group_type::tensors{std::move(in), std::move(out)});
  choose_topology(made, c.topology);
  made.limit = c.limit;
  return f(made, c.topology);
}

}  // namespace omni::detail
