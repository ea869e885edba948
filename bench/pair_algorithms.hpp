// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <mpi.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <omni/collectives.hpp>
#include <omni/sparse.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

// Other ways to add up key-value tensors, as one would write them with MPI: the algorithms of SparCML (Renggli, Ashkboos,
// Aghagolzadeh, Alistarh, Hoefler, SC 2019), everybody's pairs to everybody, and a dense tensor that is filled and gathered from.
// Where each rank gets a part of the keys, or one rank all, they end before the parts would be gathered, or gather them there.
// Floats by 32-bit keys, which ascend; buffers are kept from call to call.

struct key_value {
  std::uint32_t key;
  float value;
};

/// Who gets the sums: of an allreduce, of a reduce_scatter (each rank keys of its own), of a reduce to rank 0.
enum class sums_for { all, owners, root };

/// Keys [first, end) that a rank gets of a reduce_scatter.
struct key_part {
  std::size_t first, end;
  key_part(std::size_t elements, std::size_t rank, std::size_t ranks)
      : first(elements * rank / ranks), end(elements * (rank + 1) / ranks) {}
};

/// What omni is measured against.
class pair_algorithm {
 public:
  pair_algorithm(std::string n, sums_for who) : name(std::move(n)), whose(who) {}
  pair_algorithm(const pair_algorithm&) = delete;
  pair_algorithm(pair_algorithm&&) = delete;
  pair_algorithm& operator=(const pair_algorithm&) = delete;
  pair_algorithm& operator=(pair_algorithm&&) = delete;
  virtual ~pair_algorithm() = default;

  /// Leaves the sum of all ranks' pairs, or what of it is for this rank, in keys and values.
  virtual void run(MPI_Comm comm, std::span<const std::uint32_t> own_keys, std::span<const float> own_values) = 0;

  std::string name;
  sums_for whose;
  std::vector<std::uint32_t> keys;
  std::vector<float> values;

 protected:
  using list = std::vector<key_value>;

  static void zip(std::span<const std::uint32_t> k, std::span<const float> v, list& to) {
    to.resize(k.size());
    for (std::size_t i = 0; i < k.size(); ++i) to[i] = {k[i], v[i]};
  }
  void unzip(const list& from) {
    keys.resize(from.size());
    values.resize(from.size());
    for (std::size_t i = 0; i < from.size(); ++i) {
      keys[i] = from[i].key;
      values[i] = from[i].value;
    }
  }
  /// Without a branch that depends on the keys.
  static void merge(std::span<const key_value> a, std::span<const key_value> b, list& to) {
    to.resize(a.size() + b.size());
    std::size_t i = 0, j = 0, n = 0;
    for (; i != a.size() && j != b.size(); ++n) {
      const auto x = a[i], y = b[j];
      const bool from_a = x.key <= y.key, from_b = y.key <= x.key;
      to[n] = {std::min(x.key, y.key), (from_a ? x.value : 0) + (from_b ? y.value : 0)};
      i += from_a ? 1 : 0;
      j += from_b ? 1 : 0;
    }
    n = static_cast<std::size_t>(
        std::copy(a.begin() + static_cast<std::ptrdiff_t>(i), a.end(), to.begin() + static_cast<std::ptrdiff_t>(n)) - to.begin());
    n = static_cast<std::size_t>(
        std::copy(b.begin() + static_cast<std::ptrdiff_t>(j), b.end(), to.begin() + static_cast<std::ptrdiff_t>(n)) - to.begin());
    to.resize(n);
  }
  /// All lists, two at a time.
  static void merge_all(std::vector<list>& lists, list& spare) {
    for (std::size_t step = 1; step < lists.size(); step *= 2)
      for (std::size_t i = 0; i + step < lists.size(); i += 2 * step) {
        merge(lists[i], lists[i + step], spare);
        lists[i].swap(spare);
      }
  }
  static std::size_t size_of(MPI_Comm comm) {
    int n = 0;
    MPI_Comm_size(comm, &n);
    return static_cast<std::size_t>(n);
  }
  static std::size_t rank_in(MPI_Comm comm) {
    int r = 0;
    MPI_Comm_rank(comm, &r);
    return static_cast<std::size_t>(r);
  }
  static int bytes(std::span<const key_value> l) { return static_cast<int>(l.size_bytes()); }
  /// Takes a list of any length from a rank.
  static void receive(MPI_Comm comm, int from, list& to) {
    MPI_Status status;
    int n = 0;
    MPI_Probe(from, 0, comm, &status);
    MPI_Get_count(&status, MPI_BYTE, &n);
    to.resize(static_cast<std::size_t>(n) / sizeof(key_value));
    MPI_Recv(to.data(), n, MPI_BYTE, from, 0, comm, MPI_STATUS_IGNORE);
  }
  static void exchange(MPI_Comm comm, int to, std::span<const key_value> sent, int from, list& got) {
    MPI_Request request;
    MPI_Isend(sent.data(), bytes(sent), MPI_BYTE, to, 0, comm, &request);
    receive(comm, from, got);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  }
  /// Of an ascending list, the keys of part r of n.
  static std::span<const key_value> part(std::span<const key_value> l, std::size_t r, std::size_t n, std::size_t elements) {
    const auto place = [&](std::size_t key) {
      return std::lower_bound(l.begin(), l.end(), key, [](const key_value& p, std::size_t k) { return p.key < k; });
    };
    const key_part p(elements, r, n);
    const auto first = place(p.first), last = place(p.end);
    return l.subspan(static_cast<std::size_t>(first - l.begin()), static_cast<std::size_t>(last - first));
  }
  /// Every rank's list, one after the other, on all ranks or on rank 0.
  void collect(MPI_Comm comm, const list& mine) {
    const auto n = size_of(comm);
    const bool to_all = whose != sums_for::root, here = to_all || rank_in(comm) == 0;
    counts_.assign(n, 0);
    places_.assign(n + 1, 0);
    const int own = bytes(mine);
    if (to_all) MPI_Allgather(&own, 1, MPI_INT, counts_.data(), 1, MPI_INT, comm);
    else MPI_Gather(&own, 1, MPI_INT, counts_.data(), 1, MPI_INT, 0, comm);
    for (std::size_t r = 0; r < n; ++r) places_[r + 1] = places_[r] + counts_[r];
    all_.resize(here ? static_cast<std::size_t>(places_[n]) / sizeof(key_value) : 0);
    if (to_all) MPI_Allgatherv(mine.data(), own, MPI_BYTE, all_.data(), counts_.data(), places_.data(), MPI_BYTE, comm);
    else MPI_Gatherv(mine.data(), own, MPI_BYTE, all_.data(), counts_.data(), places_.data(), MPI_BYTE, 0, comm);
  }
  /// Of parts that ascend with the ranks, to whom it belongs.
  void deliver(MPI_Comm comm, const list& mine) {
    if (whose == sums_for::owners) return unzip(mine);
    collect(comm, mine);
    unzip(all_);
  }
  std::vector<int> counts_, places_;
  list all_;
};

/// Everyone's pairs to everyone, or to the root, and a merge.
class gather_and_merge final : public pair_algorithm {
 public:
  explicit gather_and_merge(sums_for who) : pair_algorithm("gather", who) {}
  void run(MPI_Comm comm, std::span<const std::uint32_t> k, std::span<const float> v) override {
    const auto n = size_of(comm);
    zip(k, v, mine_);
    collect(comm, mine_);
    lists_.resize(n);
    for (std::size_t r = 0; r < lists_.size(); ++r) {
      const auto at = [&](std::size_t i) { return all_.begin() + places_[i] / static_cast<int>(sizeof(key_value)); };
      lists_[r].assign(at(r), at(r + 1));
    }
    merge_all(lists_, spare_);
    unzip(lists_[0]);
  }

 private:
  list mine_, spare_;
  std::vector<list> lists_;
};

/// SSAR_Recursive_double: the sums so far with a rank that is 1, 2, 4, ... away.
class recursive_doubling final : public pair_algorithm {
 public:
  recursive_doubling() : pair_algorithm("doubling", sums_for::all) {}
  void run(MPI_Comm comm, std::span<const std::uint32_t> k, std::span<const float> v) override {
    const auto n = size_of(comm), me = rank_in(comm);
    zip(k, v, mine_);
    for (std::size_t step = 1; step < n; step *= 2) {
      const auto other = static_cast<int>(me ^ step);
      exchange(comm, other, mine_, other, theirs_);
      if ((me & step) == 0) merge(mine_, theirs_, spare_);
      else merge(theirs_, mine_, spare_);
      mine_.swap(spare_);
    }
    unzip(mine_);
  }

 private:
  list mine_, theirs_, spare_;
};

/// SSAR_Split_allgather: each rank adds up a part of the keys, and all gather the parts. SparCML's dense variant, where the union
/// is large: parts are arrays, and what comes out is a dense tensor, from which nothing is gathered.
class split_allgather final : public pair_algorithm {
 public:
  split_allgather(std::size_t elements, sums_for who, bool dense)
      : pair_algorithm(dense ? "split, dense" : "split", who), elements_(elements), dense_(dense) {}
  void run(MPI_Comm comm, std::span<const std::uint32_t> k, std::span<const float> v) override {
    const auto n = size_of(comm), me = rank_in(comm);
    zip(k, v, mine_);
    lists_.resize(n);
    requests_.clear();
    for (std::size_t d = 1; d < n; ++d) {
      const auto to = (me + d) % n;
      const auto sent = part(mine_, to, n, elements_);
      requests_.emplace_back();
      MPI_Isend(sent.data(), bytes(sent), MPI_BYTE, static_cast<int>(to), 0, comm, &requests_.back());
    }
    for (std::size_t d = 1; d < n; ++d) {
      const auto from = (me + n - d) % n;
      receive(comm, static_cast<int>(from), lists_[from]);
    }
    const auto own = part(mine_, me, n, elements_);
    lists_[me].assign(own.begin(), own.end());
    MPI_Waitall(static_cast<int>(requests_.size()), requests_.data(), MPI_STATUSES_IGNORE);
    if (!dense_) {
      merge_all(lists_, spare_);
      return deliver(comm, lists_[0]);
    }
    const auto first = [&](std::size_t r) { return elements_ * r / n; };
    part_.assign(first(me + 1) - first(me), 0.0F);
    for (const auto& l : lists_)
      for (const auto& p : l) part_[p.key - first(me)] += p.value;
    dense_values.resize(elements_);
    counts_.resize(n);
    places_.resize(n);
    for (std::size_t r = 0; r < n; ++r) {
      counts_[r] = static_cast<int>(first(r + 1) - first(r));
      places_[r] = static_cast<int>(first(r));
    }
    MPI_Allgatherv(part_.data(), counts_[me], MPI_FLOAT, dense_values.data(), counts_.data(), places_.data(), MPI_FLOAT, comm);
  }
  std::vector<float> dense_values;

 private:
  std::size_t elements_;
  bool dense_;
  list mine_, spare_;
  std::vector<list> lists_;
  std::vector<float> part_;
  std::vector<MPI_Request> requests_;
};

/// SSAR_Ring: parts of the keys travel round, and are added to on their way.
class pair_ring final : public pair_algorithm {
 public:
  pair_ring(std::size_t elements, sums_for who) : pair_algorithm("ring", who), elements_(elements) {}
  void run(MPI_Comm comm, std::span<const std::uint32_t> k, std::span<const float> v) override {
    const auto n = size_of(comm), me = rank_in(comm);
    zip(k, v, mine_);
    const auto next = static_cast<int>((me + 1) % n), before = static_cast<int>((me + n - 1) % n);
    const auto first = part(mine_, (me + n - 1) % n, n, elements_);
    held_.assign(first.begin(), first.end());
    for (std::size_t step = 0; step + 1 < n; ++step) {
      exchange(comm, next, held_, before, got_);
      merge(got_, part(mine_, (me + 2 * n - 2 - step) % n, n, elements_), held_);
    }
    deliver(comm, held_);
  }

 private:
  std::size_t elements_;
  list mine_, held_, got_;
};

/// A dense tensor is filled, added up by omni, and gathered from. Zeros that a sum has come to are lost.
class dense_and_gather final : public pair_algorithm {
 public:
  dense_and_gather(std::size_t elements, sums_for who) : pair_algorithm("dense omni", who), dense_(elements) {}
  void run(MPI_Comm comm, std::span<const std::uint32_t> k, std::span<const float> v) override {
    std::fill(dense_.begin(), dense_.end(), 0.0F);
    for (std::size_t i = 0; i < k.size(); ++i) dense_[k[i]] = v[i];
    const auto n = size_of(comm), me = rank_in(comm);
    std::size_t first = 0;
    auto sums = std::span(dense_);
    if (whose == sums_for::all) {
      omni::allreduce(comm, dense_);
    } else if (whose == sums_for::root) {
      omni::reduce(comm, dense_, omni::root{0});
      if (me != 0) sums = {};
    } else {
      sizes_.clear();
      for (std::size_t r = 0; r < n; ++r) {
        const key_part p(dense_.size(), r, n);
        sizes_.push_back(p.end - p.first);
        if (r == me) first = p.first;
      }
      part_.resize(sizes_[me]);
      omni::reduce_scatter(comm, dense_, part_, omni::part_sizes{sizes_});
      sums = part_;
    }
    gather(sums, first);
  }

 private:
  // Without a branch for each element, which is guessed wrong where many are not zero.
  void gather(std::span<const float> sums, std::size_t first) {
    const auto found = sums.size() - static_cast<std::size_t>(std::count(sums.begin(), sums.end(), 0.0F));
    keys.resize(found + 1);  // a zero is written behind the last, and then over
    values.resize(found + 1);
    std::size_t at = 0;
    for (std::size_t i = 0; i < sums.size(); ++i) {
      keys[at] = static_cast<std::uint32_t>(first + i);
      values[at] = sums[i];
      at += sums[i] != 0 ? 1 : 0;
    }
    keys.pop_back();
    values.pop_back();
  }

  std::vector<float> dense_, part_;
  std::vector<std::size_t> sizes_;
};

/// omni::allreduce, of which each rank keeps its own.
class reduce_all_and_keep final : public pair_algorithm {
 public:
  reduce_all_and_keep(std::size_t elements, sums_for who) : pair_algorithm("allreduce", who), elements_(elements) {}
  void run(MPI_Comm comm, std::span<const std::uint32_t> k, std::span<const float> v) override {
    auto& all = sums_;
    omni::allreduce(comm, omni::sparse_view{k, v}, all);
    const auto me = rank_in(comm);
    key_part p(elements_, me, size_of(comm));
    if (whose == sums_for::root) p.first = 0, p.end = me == 0 ? elements_ : 0;
    const auto at = [&](std::size_t key) { return std::lower_bound(all.keys.begin(), all.keys.end(), key) - all.keys.begin(); };
    keys.assign(all.keys.begin() + at(p.first), all.keys.begin() + at(p.end));
    values.assign(all.values.begin() + at(p.first), all.values.begin() + at(p.end));
  }

 private:
  std::size_t elements_;
  omni::sparse_tensor<std::uint32_t, float> sums_;
};

/// All of them that so many ranks can run.
inline std::vector<std::unique_ptr<pair_algorithm>> pair_algorithms(std::size_t elements, int ranks, sums_for who) {
  std::vector<std::unique_ptr<pair_algorithm>> all;
  if (who != sums_for::owners) all.push_back(std::make_unique<gather_and_merge>(who));
  if (who == sums_for::all && (ranks & (ranks - 1)) == 0) all.push_back(std::make_unique<recursive_doubling>());
  all.push_back(std::make_unique<split_allgather>(elements, who, false));
  if (who == sums_for::all) all.push_back(std::make_unique<split_allgather>(elements, who, true));
  all.push_back(std::make_unique<pair_ring>(elements, who));
  all.push_back(std::make_unique<dense_and_gather>(elements, who));
  if (who != sums_for::all) all.push_back(std::make_unique<reduce_all_and_keep>(elements, who));
  return all;
}
