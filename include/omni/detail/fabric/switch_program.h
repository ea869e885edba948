/* SPDX-FileCopyrightText: 2026 The omni authors */
/* SPDX-License-Identifier: BSL-1.0 */
#pragma once

/* What a switch does with a packet, written once in the subset of C that the kernel's BPF verifier takes and a programmable switch
 * could run: loops with constant bounds, integers only, no division, no allocation, slots of fixed size, nothing about tensors. It is
 * compiled into the kernel's classifier, into the program omni-switch, and into the tests. It is also C++.
 *
 * The method is that of SwitchML (Sapio et al., NSDI 2021), with OmniReduce's (Fei et al., SIGCOMM 2021) skipping of null blocks. A
 * slot adds one packet of each worker, a round. It has two versions, for even and for odd rounds: while one collects, the other still
 * has the result of the round before, for workers that have lost it. A packet has up to eight lanes, a block of each that is sent.
 * Beside the blocks the slot keeps the least `next` of each lane: the block that comes next.
 *
 * Of switches above switches, one below is a worker of the one above: it sends its sum up when all its workers have contributed, and
 * what comes down is the result. It has no timers: when the first of its workers asks for a result, the sum goes up again. */

/* NOLINTBEGIN(modernize-*,readability-*,cppcoreguidelines-*): it is C, too */
typedef unsigned char omni_u8;
typedef unsigned short omni_u16;
typedef unsigned int omni_u32;
typedef unsigned long long omni_u64;

#define OMNI_SWITCH_MAGIC 0x31776d6fU /* "omw1" */
#define OMNI_SWITCH_LANES 8
#define OMNI_SWITCH_WORKERS 32
#define OMNI_SWITCH_PAIRS 1024 /* of 32-bit integers in a packet: all lanes together */
#define OMNI_SWITCH_CHUNK 32   /* pairs that are added between two looks at the packet's end */

enum omni_switch_kind {
  /* Data. */
  omni_switch_contribution = 1, /* a worker's part of a round */
  omni_switch_ask = 2,          /* a worker waits for the result of a round to which it has contributed */
  omni_switch_result = 3,       /* of a round */
  omni_switch_pending = 4,      /* the round is not complete; `seen` says who has contributed */
  /* Control, between workers and the program that leases slots. */
  omni_switch_open = 8,    /* next: workers, slots, bytes of a packet, switches beside this one and it, which of them this is */
  omni_switch_lease = 9,   /* next: slots, pairs of a lane, lanes, milliseconds, key of the lease above */
  omni_switch_refuse = 10, /* next: why, slots that are free */
  omni_switch_join = 11,   /* tells the address of a worker */
  omni_switch_joined = 12,
  omni_switch_leave = 13 /* the job is over */
};

/* What is done with two integers. */
enum omni_switch_op { omni_switch_add_32, omni_switch_add_64, omni_switch_min_32, omni_switch_min_64, omni_switch_ops };

/* Of every packet; blocks of the lanes in `lanes` follow, in ascending order. Little-endian. */
struct omni_switch_header {
  omni_u32 magic;
  omni_u8 kind, op, worker, lanes; /* lanes: a bit for each of which a block follows */
  omni_u16 job, slot;              /* slot: counted within the job */
  omni_u32 key;                    /* of the lease */
  omni_u32 round;                  /* counted in each slot, as long as the lease lasts */
  omni_u32 seen;                   /* pending: a bit for each worker that has contributed */
  omni_u32 check[2];               /* of the header without them, and of all that follows */
  omni_u32 next[OMNI_SWITCH_LANES];
};

struct omni_switch_version {
  omni_u32 round, seen;
  omni_u32 op, lanes;
  omni_u32 is_result, reserved; /* whether it is complete: everybody's, and of switches in a tree, of all below the highest */
  omni_u32 next[OMNI_SWITCH_LANES];
  omni_u64 pairs[OMNI_SWITCH_PAIRS];
};
struct omni_switch_slot {
  struct omni_switch_version version[2];
};
struct omni_switch_job {
  omni_u32 key; /* 0: there is no such job */
  omni_u32 workers;
  omni_u32 pairs; /* of a lane's block */
  omni_u32 first_slot, slots;
  omni_u32 reserved;
  omni_u64 address[OMNI_SWITCH_WORKERS]; /* of each worker that has joined, else 0 */
  /* The lease at the switch above. */
  omni_u64 above_address; /* 0: there is none above */
  omni_u32 above_key;
  omni_u16 above_job, above_worker;
};

/* What is to be done with a packet, and why one is dropped. */
enum omni_switch_verdict {
  omni_switch_absorb,  /* added; nothing is sent */
  omni_switch_spread,  /* the result goes to all workers */
  omni_switch_answer,  /* the result goes to the sender */
  omni_switch_tell,    /* the sender hears that the round is not complete */
  omni_switch_raise,   /* the sum goes to the switch above */
  omni_switch_damaged, /* dropped: not what was sent */
  omni_switch_strange, /* dropped: no worker of the job has sent it */
  omni_switch_late     /* dropped: of a round that is over, or that cannot have begun */
};

#if defined(__cplusplus)
#define OMNI_SWITCH_INLINE inline
#else
#define OMNI_SWITCH_INLINE static __attribute__((always_inline, unused)) inline
#endif

/* The verifier wants to see the comparison with the packet's end that precedes an access; a compiler would rather count. */
#if defined(__bpf__)
#define OMNI_SWITCH_OPAQUE(x) __asm__ volatile("" : "+r"(x))
#define OMNI_SWITCH_READ(x) (*(const volatile __typeof__(x)*)&(x)) /* anew: nothing is known of it from before */
#else
#define OMNI_SWITCH_OPAQUE(x) ((void)(x))
#define OMNI_SWITCH_READ(x) (x)
#endif

/* Two sums over words: one of the words, one of the first sum. They tell any word that is wrong, and two that are exchanged. */
struct omni_switch_sums {
  omni_u64 a, b;
};
OMNI_SWITCH_INLINE void omni_switch_sum(struct omni_switch_sums* s, omni_u64 word) {
  s->a += word ^ 0x9e3779b97f4a7c15ULL;
  s->b += s->a;
}
/* Of a header, to begin with. */
OMNI_SWITCH_INLINE struct omni_switch_sums omni_switch_begin_sums(const struct omni_switch_header* h) {
  struct omni_switch_sums s = {1, 0};
  omni_switch_sum(&s, (omni_u64)h->magic << 32 | (omni_u64)h->kind << 24 | (omni_u64)h->op << 16 | (omni_u64)h->worker << 8 | h->lanes);
  omni_switch_sum(&s, (omni_u64)h->job << 48 | (omni_u64)h->slot << 32 | h->key);
  omni_switch_sum(&s, (omni_u64)h->round << 32 | h->seen);
  for (int i = 0; i < OMNI_SWITCH_LANES; i += 2) omni_switch_sum(&s, (omni_u64)h->next[i + 1] << 32 | h->next[i]);
  return s;
}
OMNI_SWITCH_INLINE omni_u32 omni_switch_folded(omni_u64 x) { return (omni_u32)(x * 0x9e3779b97f4a7c15ULL >> 32); }
OMNI_SWITCH_INLINE void omni_switch_seal(struct omni_switch_header* h, const struct omni_switch_sums* s) {
  h->check[0] = omni_switch_folded(s->a);
  h->check[1] = omni_switch_folded(s->b);
}
OMNI_SWITCH_INLINE int omni_switch_is_sealed(const struct omni_switch_header* h, const struct omni_switch_sums* s) {
  return h->check[0] == omni_switch_folded(s->a) && h->check[1] == omni_switch_folded(s->b);
}

OMNI_SWITCH_INLINE omni_u32 omni_switch_count(omni_u32 lanes) {
  omni_u32 n = 0;
  for (int i = 0; i < OMNI_SWITCH_LANES; ++i) n += lanes >> i & 1;
  return n;
}
/* Where the block of a lane lies, of those that follow a header. */
OMNI_SWITCH_INLINE omni_u32 omni_switch_place_of(omni_u32 lanes, omni_u32 lane, omni_u32 pairs) {
  omni_u32 place = omni_switch_count(lanes & ((1U << lane) - 1)) * pairs;
  OMNI_SWITCH_OPAQUE(place);
  return place & (OMNI_SWITCH_PAIRS - 1); /* as it is; the verifier wants to see that */
}
OMNI_SWITCH_INLINE omni_u32 omni_switch_everybody(omni_u32 workers) {
  return workers >= OMNI_SWITCH_WORKERS ? 0xffffffffU : (1U << workers) - 1;
}

/* A slot of a new lease: round 0 is the first that may begin. */
OMNI_SWITCH_INLINE void omni_switch_clear(struct omni_switch_slot* slot, omni_u32 workers) {
  slot->version[0].round = 0xfffffffeU;
  slot->version[0].seen = 0;
  slot->version[0].is_result = 0;
  slot->version[1].round = 0xffffffffU;
  slot->version[1].seen = omni_switch_everybody(workers);
  slot->version[1].is_result = 1;
}

/* The sums of a packet, of whose blocks none ends after `end`; of as many as there are before it, else. */
OMNI_SWITCH_INLINE struct omni_switch_sums omni_switch_sums_of(const struct omni_switch_header* h, const omni_u64* from,
                                                               const void* end, omni_u32 pairs) {
  struct omni_switch_sums s = omni_switch_begin_sums(h);
  const omni_u32 chunks = omni_switch_count(h->lanes) * (pairs / OMNI_SWITCH_CHUNK);
  for (omni_u32 c = 0; c < OMNI_SWITCH_PAIRS / OMNI_SWITCH_CHUNK; ++c) {
    if (c >= chunks) break;
    OMNI_SWITCH_OPAQUE(from);
    if ((const void*)(from + OMNI_SWITCH_CHUNK) > end) break;
    for (int i = 0; i < OMNI_SWITCH_CHUNK; ++i) omni_switch_sum(&s, from[i]);
    from += OMNI_SWITCH_CHUNK;
  }
  return s;
}

/* Whether it can only have come from above. */
OMNI_SWITCH_INLINE int omni_switch_comes_down(const struct omni_switch_header* h) {
  return h->kind == omni_switch_result || h->kind == omni_switch_pending;
}
/* Whether a worker of this job, or the switch above, can have sent it: what does not need the slot. */
OMNI_SWITCH_INLINE int omni_switch_is_ours(const struct omni_switch_header* h, const struct omni_switch_job* job, omni_u64 address) {
  if (h->magic != OMNI_SWITCH_MAGIC || job->key == 0) return 0;
  if (omni_switch_comes_down(h))
    return job->above_address != 0 && job->above_address == address && h->key == job->above_key && h->job == job->above_job &&
           h->slot < job->slots;
  if (h->key != job->key) return 0;
  if (h->kind != omni_switch_contribution && h->kind != omni_switch_ask) return 0;
  if (h->worker >= job->workers || h->worker >= OMNI_SWITCH_WORKERS || h->slot >= job->slots || h->op >= omni_switch_ops) return 0;
  return address != 0 && job->address[h->worker & (OMNI_SWITCH_WORKERS - 1)] == address;
}

/* A chunk of a block of `from` comes to what is there. Without branches, of which the verifier would follow each both ways. */
OMNI_SWITCH_INLINE void omni_switch_fold(omni_u32 op, omni_u64* to, const omni_u64* from) {
  if (op == omni_switch_add_32) {
    for (int i = 0; i < OMNI_SWITCH_CHUNK; ++i) {
      const omni_u64 x = to[i], y = from[i]; /* the lower sum must not carry into the upper */
      to[i] = ((x & 0x7fffffff7fffffffULL) + (y & 0x7fffffff7fffffffULL)) ^ ((x ^ y) & 0x8000000080000000ULL);
    }
  } else if (op == omni_switch_add_64) {
    for (int i = 0; i < OMNI_SWITCH_CHUNK; ++i) to[i] += from[i];
  } else if (op == omni_switch_min_32) {
    for (int i = 0; i < OMNI_SWITCH_CHUNK; ++i) {
      const omni_u64 x = to[i], y = from[i];
      omni_u64 low = (omni_u64)(((long long)(int)(omni_u32)y - (int)(omni_u32)x) >> 63);
      omni_u64 high = (omni_u64)((((long long)y >> 32) - ((long long)x >> 32)) >> 63);
      OMNI_SWITCH_OPAQUE(low);
      OMNI_SWITCH_OPAQUE(high);
      to[i] = x ^ ((x ^ y) & ((low & 0xffffffffULL) | (high & 0xffffffff00000000ULL)));
    }
  } else {
    for (int i = 0; i < OMNI_SWITCH_CHUNK; ++i) {
      const omni_u64 x = to[i], y = from[i];
      omni_u64 less = (omni_u64)((long long)((y - x) ^ ((y ^ x) & ((y - x) ^ y))) >> 63);
      OMNI_SWITCH_OPAQUE(less);
      to[i] = x ^ ((x ^ y) & less);
    }
  }
}

/* Takes a packet that is whole and of the job, into its slot. `blocks`: what follows its header, up to `end`. The caller holds the slot. */
OMNI_SWITCH_INLINE enum omni_switch_verdict omni_switch_take(struct omni_switch_slot* slot, const struct omni_switch_header* h,
                                                             const omni_u64* blocks, const void* end,
                                                             const struct omni_switch_job* job) {
  struct omni_switch_version* const v = &slot->version[h->round & 1];
  const struct omni_switch_version* const before = &slot->version[(h->round & 1) ^ 1];
  const omni_u32 everybody = omni_switch_everybody(job->workers), sender = 1U << (h->worker & (OMNI_SWITCH_WORKERS - 1));
  const int comes_down = omni_switch_comes_down(h);
  if (comes_down) {
    if (h->round != v->round || h->op != v->op || v->seen != everybody || v->is_result) return omni_switch_late;
    if (h->kind == omni_switch_pending) return h->seen >> (job->above_worker & 31) & 1 ? omni_switch_absorb : omni_switch_raise;
    v->lanes = 0; /* the sum of all takes the place of that of the workers here */
  } else if (h->round != v->round) {
    /* Who begins a round has the result of the one before. Who asks for one that nobody has begun has to send its part again. */
    if (h->round != v->round + 2 || before->round != h->round - 1 || !before->is_result) return omni_switch_late;
    if (h->kind == omni_switch_ask) return omni_switch_tell;
    v->round = h->round;
    v->seen = 0;
    v->lanes = 0;
    v->op = h->op;
    v->is_result = 0;
    for (int i = 0; i < OMNI_SWITCH_LANES; ++i) v->next[i] = 0xffffffffU;
  } else if (v->seen & sender) {
    if (v->is_result) return omni_switch_answer;
    /* The sum or its result may have been lost: once for all that ask, it is sent up again. */
    return v->seen == everybody && h->kind == omni_switch_ask && h->worker == 0 ? omni_switch_raise : omni_switch_tell;
  } else if (h->kind == omni_switch_ask) {
    return omni_switch_tell;
  }
  if (h->op != v->op) return omni_switch_strange;
  for (omni_u32 lane = 0; lane < OMNI_SWITCH_LANES; ++lane) {
    if (!(OMNI_SWITCH_READ(h->lanes) >> lane & 1)) continue;
    const omni_u32 place = omni_switch_place_of(OMNI_SWITCH_READ(h->lanes), lane, OMNI_SWITCH_READ(job->pairs));
    for (omni_u32 c = 0; c < OMNI_SWITCH_PAIRS / OMNI_SWITCH_LANES / OMNI_SWITCH_CHUNK; ++c) {
      if (c >= OMNI_SWITCH_READ(job->pairs) / OMNI_SWITCH_CHUNK) break;
      const omni_u64* from = blocks + place + c * OMNI_SWITCH_CHUNK;
      OMNI_SWITCH_OPAQUE(from);
      if ((const void*)(from + OMNI_SWITCH_CHUNK) > end) return omni_switch_damaged; /* cannot be: it is whole */
      omni_u64* const to = v->pairs + lane * (OMNI_SWITCH_PAIRS / OMNI_SWITCH_LANES) + c * OMNI_SWITCH_CHUNK;
      if (!(OMNI_SWITCH_READ(v->lanes) >> lane & 1))
        for (int i = 0; i < OMNI_SWITCH_CHUNK; ++i) to[i] = from[i];
      else
        omni_switch_fold(OMNI_SWITCH_READ(v->op), to, from);
    }
  }
  v->lanes |= h->lanes;
  for (int i = 0; i < OMNI_SWITCH_LANES; ++i)
    if (h->next[i] < v->next[i]) v->next[i] = h->next[i];
  if (!comes_down) v->seen |= sender;
  if (v->seen != everybody) return omni_switch_absorb;
  if (!comes_down && job->above_address) return omni_switch_raise;
  v->is_result = 1;
  return omni_switch_spread;
}

/* Makes the packet that came what the verdict asks for. `blocks`: where they go, up to `end`. It is to be sealed then, and as long as
 * its lanes make it. */
OMNI_SWITCH_INLINE void omni_switch_reply(const struct omni_switch_slot* slot, struct omni_switch_header* h, omni_u64* blocks,
                                          const void* end, const struct omni_switch_job* job, omni_u16 job_number, omni_u32 verdict) {
  const struct omni_switch_version* const v = &slot->version[h->round & 1];
  if (verdict == omni_switch_raise) {
    h->kind = omni_switch_contribution;
    h->job = job->above_job;
    h->key = job->above_key;
    h->worker = (omni_u8)job->above_worker;
    h->seen = 0;
  } else {
    h->kind = verdict == omni_switch_tell ? omni_switch_pending : omni_switch_result;
    h->job = job_number;
    h->key = job->key;
    h->seen = h->round == v->round ? v->seen : 0;
  }
  h->op = (omni_u8)v->op;
  h->lanes = verdict == omni_switch_tell ? 0 : (omni_u8)v->lanes;
  for (int i = 0; i < OMNI_SWITCH_LANES; ++i) h->next[i] = v->next[i];
  for (omni_u32 lane = 0; lane < OMNI_SWITCH_LANES; ++lane) {
    if (!(OMNI_SWITCH_READ(h->lanes) >> lane & 1)) continue;
    const omni_u32 place = omni_switch_place_of(OMNI_SWITCH_READ(h->lanes), lane, OMNI_SWITCH_READ(job->pairs));
    for (omni_u32 c = 0; c < OMNI_SWITCH_PAIRS / OMNI_SWITCH_LANES / OMNI_SWITCH_CHUNK; ++c) {
      if (c >= OMNI_SWITCH_READ(job->pairs) / OMNI_SWITCH_CHUNK) break;
      omni_u64* to = blocks + place + c * OMNI_SWITCH_CHUNK;
      OMNI_SWITCH_OPAQUE(to);
      if ((const void*)(to + OMNI_SWITCH_CHUNK) > end) return;
      const omni_u64* const from = v->pairs + lane * (OMNI_SWITCH_PAIRS / OMNI_SWITCH_LANES) + c * OMNI_SWITCH_CHUNK;
      for (int i = 0; i < OMNI_SWITCH_CHUNK; ++i) to[i] = from[i];
    }
  }
}
/* NOLINTEND(modernize-*,readability-*,cppcoreguidelines-*) */
